//! What a fuzz target calls.

use crate::accounting::Acr;
use crate::dictionary::Dictionary;
use crate::message::MessageView;
use crate::stream::Framer;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Decodes arbitrary bytes, checks, prints, re-encodes and compares; also cuts them as a stream.
///
/// # Panics
/// When a message that was accepted does not decode to itself once re-encoded, or the framer uses more
/// bytes than there are: a defect of the codec.
pub fn message(dictionary: &Dictionary, bytes: &[u8]) {
    let mut rest = bytes;
    let mut framer = Framer::new(crate::message::MAX_LEN);
    while let Ok(Some(m)) = framer.next(&mut rest) {
        assert!(m.bytes().len() >= 20);
    }
    let Ok(view) = MessageView::parse(bytes) else { return };
    let _ = view.to_string();
    let _ = dictionary.check(&view);
    let _ = dictionary.show(&view).to_string();
    for avp in view.avps() {
        let _ = (avp.address(), avp.identity(), avp.u64(), avp.grouped().map(Iterator::count));
    }
    let _ = Acr::parse(view.avps());
    let owned = view.to_owned();
    let mut again = Vec::new();
    owned.emit(&mut again).expect("what was decoded can be encoded");
    let second = MessageView::parse(&again).expect("what was encoded can be decoded");
    assert_eq!(second.header(), view.header());
    assert!(second.avps().eq(view.avps()));
}
