//! Lines of the control socket, from either side: read or refused, and written as they were read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use usher_control::{Answer, Request};
use usher_radius::dictionary::Dictionary;

static DICTIONARY: LazyLock<Dictionary> = LazyLock::new(Dictionary::builtin);

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        if let Ok(request) = serde_json::from_str::<Request>(line) {
            let written = serde_json::to_string(&request).expect("it can be written");
            assert_eq!(serde_json::from_str::<Request>(&written).ok(), Some(request.clone()));
            if let Request::Change { attributes, .. } = request {
                for attribute in attributes {
                    let rows = usher_aaa_config::row(&attribute).into_iter().collect();
                    let user = usher_aaa::store::UserRows { reply: rows, ..Default::default() };
                    // It is understood or not.
                    let _ = usher_aaa::User::compile(&user, &DICTIONARY);
                }
            }
        }
        if let Ok(answer) = serde_json::from_str::<Answer>(line) {
            let written = serde_json::to_string(&answer).expect("it can be written");
            assert!(serde_json::from_str::<Answer>(&written).is_ok(), "{written}");
        }
    }
});
