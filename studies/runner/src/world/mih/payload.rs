//! The payload of a workload's message, which identifies it: a vendor-specific parameter.

use usher_core::Instant;
use usher_mih::{MihfMessage, Tlv, kind};

/// The start of a transaction and its number at the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TransactionPayload {
    pub(super) started_at: Instant,
    pub(super) number: u64,
}

impl TransactionPayload {
    /// Returns a parameter that reserves room for the payload.
    pub(super) fn placeholder() -> Tlv {
        Tlv::Other { kind: kind::VENDOR, value: vec![0; 16] }
    }
    /// Returns a copy of the message with the payload in the placeholder.
    pub(super) fn fill_payload_placeholder(self, message: &MihfMessage) -> MihfMessage {
        let mut message = message.clone();
        for param in &mut message.params {
            if let Tlv::Other { kind: kind::VENDOR, value } = param
                && value.len() == 16
            {
                value[..8].copy_from_slice(&self.started_at.as_nanos().to_be_bytes());
                value[8..].copy_from_slice(&self.number.to_be_bytes());
            }
        }
        message
    }
    /// Returns the payload of a message.
    pub(super) fn from_message(message: &MihfMessage) -> Option<Self> {
        let Some(Tlv::Other { value, .. }) = message.get(kind::VENDOR) else { return None };
        let (began, rest) = value.split_first_chunk::<8>()?;
        let number = rest.first_chunk::<8>()?;
        Some(Self {
            started_at: Instant::from_nanos(u64::from_be_bytes(*began)),
            number: u64::from_be_bytes(*number),
        })
    }
}

/// The set of received numbers.
#[derive(Debug, Default)]
pub(super) struct ReceivedTransactionNumbers(Vec<u64>);

impl ReceivedTransactionNumbers {
    /// Adds a number; true if it is new.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let first = self.0[word] & bit == 0;
        self.0[word] |= bit;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_mih::MessageId;

    #[test]
    fn a_payload_comes_back_as_it_went() {
        let bare = MihfMessage::new(MessageId::LINK_UP_INDICATION, vec![TransactionPayload::placeholder()]);
        let payload = TransactionPayload { started_at: Instant::from_nanos(5_000_000_123), number: 77 };
        assert_eq!(TransactionPayload::from_message(&payload.fill_payload_placeholder(&bare)), Some(payload));
        assert_eq!(
            TransactionPayload::from_message(&MihfMessage::new(MessageId::LINK_UP_INDICATION, vec![])),
            None
        );
    }

    #[test]
    fn only_the_first_of_each_number_is_the_first() {
        let mut seen = ReceivedTransactionNumbers::default();
        let order = [0, 1, 0, 200, 63, 64, 200, 1];
        assert_eq!(order.map(|n| seen.insert(n)), [true, true, false, true, true, true, false, false]);
    }
}
