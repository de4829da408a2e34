//! The exporting process: messages of records, with their templates.

use crate::nat::{NatRecord, TEMPLATES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, WallTime};

/// The version of messages (RFC 7011 §3.1).
const VERSION: u16 = 10;
/// Octets of a message's header.
const HEADER: usize = 16;
/// Octets of a set's header.
const SET: usize = 4;
/// The set ID of templates (§3.3.2).
const TEMPLATE_SET: u16 = 2;
/// The lowest valid limit of a message. Every record, and all templates, fit into it.
const SHORTEST: usize = 512;
/// Maximum messages that wait for [`poll`](IpfixExporter::poll).
const WAITING: usize = 4096;

/// The configuration of an exporter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExporterConfig {
    /// Observation Domain ID: the part of this exporter that observed the records.
    pub domain: u32,
    /// Maximum octets of a message, at least 512. Use 512 if the path MTU is unknown (§10.3.3).
    pub longest: usize,
    /// Interval of template retransmissions (§8.4).
    pub refresh: Duration,
}

impl Default for ExporterConfig {
    /// Domain 0, 512 octets, ten minutes.
    fn default() -> Self {
        Self { domain: 0, longest: SHORTEST, refresh: Duration::from_secs(600) }
    }
}

usher_core::counters! {
    /// Counters of an [`IpfixExporter`].
    pub struct ExporterCounters {
        /// Records in messages.
        ipfix_records,
        /// Messages.
        ipfix_messages,
        /// Records that were lost since nobody took the messages before them.
        ipfix_lost,
    }
}

/// Builds messages from records. It sends nothing itself: [`poll`](Self::poll) returns the messages to send.
#[derive(Clone, Debug)]
pub struct IpfixExporter {
    config: ExporterConfig,
    /// Number of records in all messages before the current one.
    sequence: u32,
    /// The current message and its number of records; empty if there is none.
    message: Vec<u8>,
    records: u32,
    /// The set of its latest record: its ID and offset.
    set: Option<(u16, usize)>,
    /// When templates are due; `None`: they have never been sent.
    due: Option<Instant>,
    ready: VecDeque<Vec<u8>>,
    /// Counters.
    pub counters: ExporterCounters,
}

impl IpfixExporter {
    /// Creates an exporter.
    #[must_use]
    pub fn new(config: ExporterConfig) -> Self {
        let config = ExporterConfig { longest: config.longest.clamp(SHORTEST, 65_535), ..config };
        Self {
            config,
            sequence: 0,
            message: Vec::new(),
            records: 0,
            set: None,
            due: None,
            ready: VecDeque::new(),
            counters: ExporterCounters::default(),
        }
    }

    /// Adds a record; `wall` is the current time. The record leaves with its message: when that is full, or by
    /// [`flush`](Self::flush).
    pub fn add_nat_record(&mut self, now: Instant, wall: WallTime, record: &NatRecord) {
        self.send_templates(now, wall);
        if self.ready.len() >= WAITING {
            self.counters.ipfix_lost += 1;
            // A lost record counts in the sequence number, so that the collector sees how many records it has missed.
            self.sequence = self.sequence.wrapping_add(1);
            return;
        }
        let mut octets = Vec::new();
        record.write_record(&mut octets);
        let id = record.template_id();
        let further = self.set.is_none_or(|(set, _)| set != id);
        if self.message.len() + octets.len() + if further { SET } else { 0 } > self.config.longest {
            self.flush(wall);
        }
        if self.message.is_empty() {
            self.message.resize(HEADER, 0);
        }
        if self.set.is_none_or(|(set, _)| set != id) {
            self.write_current_set_length();
            self.set = Some((id, self.message.len()));
            self.message.extend_from_slice(&id.to_be_bytes());
            self.message.extend_from_slice(&[0; 2]);
        }
        self.message.extend_from_slice(&octets);
        self.records += 1;
        self.counters.ipfix_records += 1;
    }

    /// Completes the current message.
    pub fn flush(&mut self, wall: WallTime) {
        self.write_current_set_length();
        if self.message.is_empty() {
            return;
        }
        let mut message = core::mem::take(&mut self.message);
        let head = [
            &VERSION.to_be_bytes()[..],
            // A message has at most 65535 octets.
            &(message.len() as u16).to_be_bytes(),
            // The seconds wrap in 2106, as in the RFC.
            &(wall.unix_secs() as u32).to_be_bytes(),
            &self.sequence.to_be_bytes(),
            &self.config.domain.to_be_bytes(),
        ];
        message[..HEADER].copy_from_slice(&head.concat());
        // RFC 7011, 3.1: the sequence number counts the data records of earlier messages.
        self.sequence = self.sequence.wrapping_add(core::mem::take(&mut self.records));
        self.counters.ipfix_messages += 1;
        self.ready.push_back(message);
    }

    /// Returns the next message to send.
    pub fn poll(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// Returns when [`refresh_templates`](Self::refresh_templates) is due.
    #[must_use]
    pub const fn next_template_refresh(&self) -> Option<Instant> {
        self.due
    }

    /// Retransmits templates when they are due.
    pub fn refresh_templates(&mut self, now: Instant, wall: WallTime) {
        if self.due.is_some() {
            self.send_templates(now, wall);
        }
    }

    fn send_templates(&mut self, now: Instant, wall: WallTime) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        self.flush(wall);
        // RFC 7011, 8.4: several copies precede the first record.
        for _ in 0..if self.due.is_none() { 2 } else { 1 } {
            self.message.resize(HEADER, 0);
            self.set = Some((TEMPLATE_SET, HEADER));
            self.message.extend_from_slice(&TEMPLATE_SET.to_be_bytes());
            self.message.extend_from_slice(&[0; 2]);
            for template in &TEMPLATES {
                template.write_template_record(&mut self.message);
            }
            self.flush(wall);
        }
        // RFC 7011, 8.4: over UDP templates are repeated.
        self.due = Some(now + self.config.refresh);
    }

    /// Writes the length of the last set (RFC 7011 §3.3.2).
    fn write_current_set_length(&mut self) {
        if let Some((_, at)) = self.set.take() {
            let length = (self.message.len() - at) as u16;
            self.message[at + 2..at + SET].copy_from_slice(&length.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::{NatEvent, SubscriberInfo};
    use core::net::{Ipv4Addr, SocketAddrV4};
    use proptest::prelude::*;

    const INSIDE: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 2);
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const WALL: WallTime = WallTime::from_unix_secs(1_790_000_000);

    fn test_subscriber(user: &[u8]) -> SubscriberInfo {
        SubscriberInfo { user: user.into(), station: [2, 0, 0, 0, 1, 1] }
    }
    fn block_record(user: &[u8]) -> NatRecord {
        let event = NatEvent::Block {
            inside: INSIDE,
            outside: OUTSIDE,
            ports: (1024, 2047),
            subscriber: test_subscriber(user),
        };
        NatRecord { occurred_at: WALL + Duration::from_millis(5), is_start: true, event }
    }
    fn session_record(begins: bool) -> NatRecord {
        let (inside, outside) = (SocketAddrV4::new(INSIDE, 40_000), SocketAddrV4::new(OUTSIDE, 1025));
        NatRecord {
            occurred_at: WALL,
            is_start: begins,
            event: NatEvent::Session { protocol: 6, inside, outside },
        }
    }
    fn drain_messages(exporter: &mut IpfixExporter) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| exporter.poll()).collect()
    }

    #[test]
    fn a_message_is_as_worked_out_by_hand() {
        let mut exporter = IpfixExporter::new(ExporterConfig { domain: 9, ..ExporterConfig::default() });
        exporter.add_nat_record(Instant::ZERO, WALL, &block_record(b"ann"));
        exporter.add_nat_record(Instant::ZERO, WALL, &session_record(false));
        exporter.flush(WALL);
        let all = drain_messages(&mut exporter);
        assert_eq!(all.len(), 3, "templates twice, and the records");
        assert_eq!(all[0], all[1]);
        // A header, a set's header, and three templates of 7, 6 and 8 fields of 4 octets each.
        let head = |length: u8, sequence: u8| {
            vec![0, 10, 0, length, 0x6a, 0xb1, 0x3b, 0x80, 0, 0, 0, sequence, 0, 0, 0, 9]
        };
        assert_eq!(all[0][..16], head(16 + 4 + 3 * 4 + 21 * 4, 0));
        assert_eq!(all[0][16..28], [0, 2, 0, 100, 1, 0, 0, 7, 1, 67, 0, 8]);
        let mut expected = head(16 + 4 + 31 + 4 + 22, 0);
        let millis = (1_790_000_000_005_u64).to_be_bytes();
        expected.extend([1, 2, 0, 4 + 31]);
        expected.extend(millis);
        expected.push(16);
        expected.extend([100, 64, 0, 2, 192, 0, 2, 1, 4, 0, 7, 255, 2, 0, 0, 0, 1, 1, 3]);
        expected.extend(b"ann");
        expected.extend([1, 0, 0, 4 + 22]);
        expected.extend((1_790_000_000_000_u64).to_be_bytes());
        expected.push(5);
        expected.extend([100, 64, 0, 2, 192, 0, 2, 1, 6, 0x9c, 0x40, 4, 1]);
        assert_eq!(all[2], expected);
        assert_eq!((exporter.counters.ipfix_records, exporter.counters.ipfix_messages), (2, 3));
    }

    #[test]
    fn templates_come_again_and_the_sequence_goes_on() {
        let mut exporter = IpfixExporter::new(ExporterConfig::default());
        assert_eq!(exporter.next_template_refresh(), None);
        exporter.refresh_templates(Instant::ZERO, WALL);
        assert!(exporter.poll().is_none(), "nothing is to be explained yet");
        exporter.add_nat_record(Instant::ZERO, WALL, &session_record(true));
        exporter.flush(WALL);
        assert_eq!(drain_messages(&mut exporter).len(), 3);
        let due = exporter.next_template_refresh().unwrap();
        assert_eq!(due, Instant::ZERO + Duration::from_secs(600));
        exporter.refresh_templates(due, WALL);
        let again = drain_messages(&mut exporter);
        assert_eq!((again.len(), again[0][11]), (1, 1), "once, behind one record");
        for n in 0..WAITING * 100 {
            exporter.add_nat_record(due, WALL, &session_record(n % 2 == 0));
        }
        exporter.flush(WALL);
        let all = drain_messages(&mut exporter);
        assert!(all.len() <= WAITING + 1);
        let lost = exporter.counters.ipfix_lost;
        assert!(lost > 0, "what nobody takes does not grow without end");
        exporter.add_nat_record(due, WALL, &session_record(true));
        exporter.flush(WALL);
        let sequence = exporter.poll().unwrap()[8..12].try_into().map(u32::from_be_bytes).unwrap();
        assert_eq!(sequence as usize, 1 + WAITING * 100, "those that were lost count");
    }

    proptest! {
        #[test]
        fn messages_are_no_longer_than_allowed_and_hold_whole_sets(
            users in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..40), longest in 0_usize..2000, seed: u64,
        ) {
            let mut exporter = IpfixExporter::new(ExporterConfig { longest, ..ExporterConfig::default() });
            for (n, user) in users.iter().enumerate() {
                let address = NatEvent::Address { inside: INSIDE, outside: INSIDE, subscriber: test_subscriber(user) };
                let address = NatRecord { occurred_at: WALL, is_start: false, event: address };
                let record = match (seed >> n) % 3 { 0 => block_record(user), 1 => session_record(true), _ => address };
                exporter.add_nat_record(Instant::ZERO, WALL, &record);
            }
            exporter.flush(WALL);
            for message in drain_messages(&mut exporter) {
                prop_assert!(message.len() <= longest.max(SHORTEST));
                prop_assert_eq!(usize::from(u16::from_be_bytes([message[2], message[3]])), message.len());
                let mut rest = &message[HEADER..];
                while !rest.is_empty() {
                    let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
                    prop_assert!(length > SET && length <= rest.len());
                    rest = &rest[length..];
                }
            }
        }
    }
}
