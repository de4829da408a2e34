//! Entry points for fuzzers.

use crate::accounting::AccountingRequest;
use crate::dictionary::DiameterDictionary;
use crate::message::MessageView;
use crate::stream::MessageFramer;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Parses bytes, checks and prints the message, encodes it again and compares. Also frames the bytes as a stream.
///
/// # Panics
/// If an accepted message does not survive encoding and parsing, or the framer uses more bytes than it got. Both are
/// defects.
pub fn fuzz_message(dictionary: &DiameterDictionary, bytes: &[u8]) {
    let mut rest = bytes;
    let mut framer = MessageFramer::new(crate::message::MAX_LEN);
    while let Ok(Some(m)) = framer.next_message(&mut rest) {
        assert!(m.as_bytes().len() >= 20);
    }
    let Ok(view) = MessageView::parse(bytes) else { return };
    let _ = view.to_string();
    let _ = dictionary.check_message(&view);
    let _ = dictionary.display_message(&view).to_string();
    for avp in view.avps() {
        let _ = (avp.as_address(), avp.as_identity(), avp.as_u64(), avp.as_group().map(Iterator::count));
    }
    let _ = AccountingRequest::parse(view.avps());
    let owned = view.to_owned();
    let mut again = Vec::new();
    owned.encode_into(&mut again).expect("what was decoded can be encoded");
    let second = MessageView::parse(&again).expect("what was encoded can be decoded");
    assert_eq!(second.header(), view.header());
    assert!(second.avps().eq(view.avps()));
}
