//! The error on a kernel without SCTP. On a kernel with SCTP, the same calls succeed.

use std::error::Error;
use std::io;
use usher_sctp::{SctpAssociation, SctpListener, SctpUnavailable, SocketOptions, is_available};

#[test]
fn a_kernel_without_sctp_is_told_from_other_errors() {
    let at = ["127.0.0.1:0".parse().unwrap()];
    let options = SocketOptions::default();
    let tried: [io::Result<()>; 2] = [
        SctpListener::bind(&at, &options).map(drop),
        SctpAssociation::connect(&[], &["127.0.0.1:9".parse().unwrap()], &options).map(drop),
    ];
    for tried in tried {
        if is_available() {
            tried.expect("the kernel has SCTP");
            continue;
        }
        let error = tried.expect_err("the kernel has no SCTP");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<SctpUnavailable>), "{error:?}");
        let said = error.to_string();
        assert!(said.contains("modprobe sctp") && said.contains("scripts/guest"), "{said}");
    }
}
