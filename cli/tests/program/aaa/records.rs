//! A network access server that reports sessions as fast as it can. It sends Starts and Stops over UDP with many in
//! flight, and retransmits unanswered ones.

use super::daemon::SECRET;
use crate::place::own_address;
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use usher_radius::SharedSecret;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::{OwnedPacket, PacketCode, RadiusPacket};

/// The number of sockets. Each has 256 identifiers.
const SOCKETS: usize = 4;
/// The time before a packet is retransmitted, and then before the record is sent in a new packet.
const REPLY_TIMEOUT: Duration = Duration::from_millis(600);
/// The number of records between a session's Start and Stop.
const LATER: usize = 3000;

/// The status of a session in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StatusType {
    /// The session has started.
    Start,
    /// The session has ended.
    Stop,
}

/// A record that was sent and is not yet answered.
struct PendingRecord {
    record: usize,
    packet: Vec<u8>,
    sent: Instant,
    is_retransmission: bool,
}

/// The network access server.
pub(super) struct AccountingNas {
    secret: SharedSecret,
    sockets: Vec<(UdpSocket, Vec<Option<PendingRecord>>)>,
    /// Its records in order: the session's number and the status.
    records: Vec<(usize, StatusType)>,
    /// The time of each record's first transmission.
    first_sent_at: Vec<Option<Instant>>,
    acknowledged: Vec<bool>,
    count: usize,
    /// Unanswered records to send next, before those from `fresh` on.
    retransmit_queue: VecDeque<usize>,
    fresh: usize,
    /// Packets that repeated an earlier packet's record with another identifier and authenticator.
    pub(super) repeated: usize,
}

impl AccountingNas {
    /// Creates an access server that reports `sessions` sessions to a port of the test's own address.
    pub(super) fn new(port: u16, sessions: usize) -> Self {
        let socket = |_| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect((own_address(), port)).unwrap();
            socket.set_nonblocking(true).unwrap();
            (socket, (0..256).map(|_| None).collect())
        };
        let order = (0..sessions + LATER).flat_map(|n| {
            let start = (n < sessions).then_some((n, StatusType::Start));
            start.into_iter().chain(n.checked_sub(LATER).map(|n| (n, StatusType::Stop)))
        });
        let records: Vec<_> = order.collect();
        Self {
            secret: SharedSecret::new(SECRET.as_bytes()),
            sockets: (0..SOCKETS).map(socket).collect(),
            first_sent_at: vec![None; records.len()],
            acknowledged: vec![false; records.len()],
            records,
            count: 0,
            retransmit_queue: VecDeque::new(),
            fresh: 0,
            repeated: 0,
        }
    }

    /// Returns the number of acknowledged records.
    pub(super) fn acknowledged_count(&self) -> usize {
        self.count
    }

    /// Returns the acknowledged records.
    pub(super) fn acknowledged_records(&self) -> impl Iterator<Item = (usize, StatusType)> {
        let done = self.records.iter().zip(&self.acknowledged);
        done.filter(|(_, done)| **done).map(|(record, _)| *record)
    }

    /// Reports until `count` records are acknowledged or `patience` is over. True: they are acknowledged.
    pub(super) fn report_records(&mut self, count: usize, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.count < count {
            if Instant::now() > until {
                return false;
            }
            self.send_records();
            if !self.receive_answers() {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.retransmit_records();
        }
        true
    }

    /// The server has ended: late replies are read, and unanswered records are queued again.
    pub(super) fn lost_the_server(&mut self) {
        self.receive_answers();
        for (_, slots) in &mut self.sockets {
            self.retransmit_queue.extend(slots.iter_mut().filter_map(Option::take).map(|w| w.record));
        }
    }

    fn send_records(&mut self) {
        for at in 0..self.sockets.len() {
            for identifier in 0..=u8::MAX {
                if self.sockets[at].1[usize::from(identifier)].is_some() {
                    continue;
                }
                let Some(record) = self.next_record() else { return };
                let packet = self.build_packet(record, identifier);
                // An error belongs to an earlier packet, while no server listened.
                let _ = self.sockets[at].0.send(&packet);
                let waiting =
                    PendingRecord { record, packet, sent: Instant::now(), is_retransmission: false };
                self.sockets[at].1[usize::from(identifier)] = Some(waiting);
            }
        }
    }

    fn next_record(&mut self) -> Option<usize> {
        while let Some(record) = self.retransmit_queue.pop_front() {
            if !self.acknowledged[record] {
                self.repeated += 1;
                return Some(record);
            }
        }
        let fresh = (self.fresh < self.records.len()).then_some(self.fresh);
        self.fresh += usize::from(fresh.is_some());
        fresh
    }

    /// Every second record has Acct-Delay-Time in its first packet, the others once they are late (RFC 2866 §5.2).
    fn build_packet(&mut self, record: usize, identifier: u8) -> Vec<u8> {
        let (session, told) = self.records[record];
        let begun = *self.first_sent_at[record].get_or_insert_with(Instant::now);
        let delay = u32::try_from(begun.elapsed().as_secs()).unwrap();
        let mut a = AttributeList::new();
        a.push_u32(kind::ACCT_STATUS_TYPE, if told == StatusType::Start { 1 } else { 2 });
        a.push_text(kind::ACCT_SESSION_ID, &session_id(session)).unwrap();
        a.push_text(kind::USER_NAME, &format!("user-{}", session % 1000)).unwrap();
        a.push_ipv4(kind::NAS_IP_ADDRESS, [127, 0, 0, 1].into());
        if delay > 0 || record.is_multiple_of(2) {
            a.push_u32(kind::ACCT_DELAY_TIME, delay);
        }
        if told == StatusType::Stop {
            a.push_u32(kind::ACCT_INPUT_OCTETS, u32::try_from(session).unwrap());
            a.push_u32(kind::ACCT_TERMINATE_CAUSE, 1);
        }
        accounting_request(PacketCode::ACCOUNTING_REQUEST, identifier, &a, &self.secret)
    }

    fn receive_answers(&mut self) -> bool {
        let mut buf = [0; 4096];
        let mut any = false;
        for (socket, slots) in &mut self.sockets {
            while let Ok(n) = socket.recv(&mut buf) {
                any = true;
                let answer = RadiusPacket::parse(&buf[..n]).unwrap();
                let slot = &mut slots[usize::from(answer.identifier())];
                let asked = slot.as_ref().map(|w| <[u8; 16]>::try_from(&w.packet[4..20]).unwrap());
                let right = |asked| usher_radius::auth::check_response(&answer, &asked, &self.secret);
                if !asked.is_some_and(right) {
                    // The reply to an earlier request with this identifier.
                    continue;
                }
                assert_eq!(answer.code(), PacketCode::ACCOUNTING_RESPONSE);
                let Some(waiting) = slot.take() else { continue };
                if !std::mem::replace(&mut self.acknowledged[waiting.record], true) {
                    self.count += 1;
                }
            }
        }
        any
    }

    fn retransmit_records(&mut self) {
        for (socket, slots) in &mut self.sockets {
            for slot in slots {
                match slot {
                    Some(waiting) if waiting.sent.elapsed() < REPLY_TIMEOUT => {}
                    Some(waiting) if !waiting.is_retransmission => {
                        waiting.is_retransmission = true;
                        waiting.sent = Instant::now();
                        // As above.
                        let _ = socket.send(&waiting.packet);
                    }
                    Some(waiting) => {
                        self.retransmit_queue.push_back(waiting.record);
                        *slot = None;
                    }
                    None => {}
                }
            }
        }
    }
}

/// Returns the Acct-Session-Id of a session.
pub(super) fn session_id(session: usize) -> String {
    format!("S{session:06}")
}

/// Builds a request with its authenticator (RFC 2866 §3).
pub(super) fn accounting_request(
    code: PacketCode,
    identifier: u8,
    attributes: &AttributeList,
    secret: &SharedSecret,
) -> Vec<u8> {
    let packet = OwnedPacket { code, identifier, authenticator: [0; 16], attributes: attributes.clone() };
    let mut out = Vec::new();
    packet.encode_into(&mut out).unwrap();
    let authenticator = usher_radius::auth::accounting_request_authenticator(&out, secret);
    out[4..20].copy_from_slice(&authenticator);
    out
}
