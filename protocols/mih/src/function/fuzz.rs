//! The entry point for fuzzers.

use super::*;
use crate::{Bits, MessageId, TransactionId};
use core::net::{IpAddr, SocketAddr};
use usher_core::{CloseReason, ConnId, Duration, ListenerId, Path, Seed, SocketId, TransportProtocol};

const MOST: usize = 6;
const CLAIMS: usize = 3;

/// A function that octets have their way with.
struct Plaything {
    now: Instant,
    mihf: Mihf,
    open: Vec<u64>,
    next: u64,
    asked: Option<(Incoming, MessageId)>,
    sound: bool,
}

fn name(n: u8) -> MihfId {
    MihfId::new([b'a' + n % 3]).unwrap_or_default()
}

fn address(n: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 0, 0, n % 3]), PORT)
}

/// Takes octets for what happens to an MIH function: commands, packets, connections, time. False where a message is
/// done that was not under way, more is remembered than may be, or draining does not end.
#[must_use]
pub fn function(mut octets: &[u8]) -> bool {
    let Some((&flags, rest)) = octets.split_first() else { return true };
    octets = rest;
    let mut config = Config::new(name(0));
    config.max_transactions = MOST;
    config.max_message = 60 + usize::from(flags & 0x30) * 8;
    config.max_queue = 200;
    config.max_registered = 1;
    config.lifetime = Duration::from_millis(500);
    config.ack_delay = Duration::from_millis(u64::from(flags & 1) * 50);
    config.timing.response = (flags & 2 != 0).then_some(Duration::from_millis(300));
    let proofs = AddressProofs {
        places: [(name(1), alloc::vec![(address(2).ip(), 32)])].into(),
        claims: CLAIMS,
        claims_per_network: 2,
    };
    config.proofs = (flags & 0x40 != 0).then_some(proofs);
    config.timing.unanswered =
        [Unanswered::Wait, Unanswered::Retransmit, Unanswered::Abort][usize::from(flags >> 2 & 3) % 3];
    let mut it = Plaything {
        now: Instant::ZERO,
        mihf: Mihf::new(config, Seed::new(1).stream("fuzz", 0)),
        open: Vec::new(),
        next: 0,
        asked: None,
        sound: true,
    };
    while let Some((&[what, which], rest)) = octets.split_first_chunk::<2>() {
        octets = it.happens(what, which, rest);
        it.drain();
        if !it.sound || it.mihf.remembered() > MOST || it.mihf.claims.len() > CLAIMS {
            return false;
        }
    }
    true
}

impl Plaything {
    fn happens<'a>(&mut self, what: u8, which: u8, rest: &'a [u8]) -> &'a [u8] {
        let (some, after) = rest.split_at(rest.len().min(usize::from(which >> 2)));
        let conn = if which & 2 == 0 { ConnId::opened(0) } else { ConnId::accepted(u32::from(which & 1)) };
        let path = Path { socket: SocketId::own(0), local: address(0), remote: address(which) };
        match what % 12 {
            0 => self.now += Duration::from_millis(u64::from(which) * 10),
            1 => {
                let transport = [TransportProtocol::Udp, TransportProtocol::Tcp, TransportProtocol::Sctp]
                    [usize::from(which >> 3) % 3];
                let local = (which & 4 != 0).then(|| address(0).ip());
                let route = Route { transport, local, remote: address(which) };
                self.command(Command::Peer(Peer { id: name(which), route, ack: which & 0x80 != 0 }));
            }
            2 | 3 => {
                let ids = [MessageId::PUSH_INFORMATION_INDICATION, MessageId::GET_INFORMATION_REQUEST];
                let message = Message::new(ids[usize::from(what % 12 == 3)], []);
                let message = match message.clone().padded_to(usize::from(which) * 2, &name(0), &name(which))
                {
                    Ok(padded) => padded,
                    Err(_) => message,
                };
                let (token, to) = (self.next, name(which));
                self.next += 1;
                self.open.push(token);
                if !self.command(Command::Send { token, to, message }) {
                    self.open.pop();
                }
            }
            4 => {
                if let Some((transaction, id)) = self.asked.take() {
                    let status = crate::Tlv::Status(crate::Status::Success);
                    let message = Message::new(id.response(), [status]);
                    self.command(Command::Respond { transaction, message });
                }
            }
            5 => {
                if let Some(token) = self.open.pop()
                    && !self.command(Command::Abandon { token })
                {
                    self.sound = false;
                }
            }
            6 => {
                let data = some;
                self.input(Input::Datagram { path, data });
                return after;
            }
            7 => {
                // A message of which a few octets say all, so that replies fit what is under way.
                let [id, tid, flags] = *rest.first_chunk::<3>().unwrap_or(&[0; 3]);
                let id = MessageId::ALL[usize::from(id) % MessageId::ALL.len()];
                let bits = Bits { ack_req: flags & 1 != 0, ack_rsp: flags & 2 != 0, uir: false };
                let params = if flags & 4 == 0 { Vec::new() } else { alloc::vec![crate::Tlv::padding(3)] };
                let mut data = Vec::new();
                let written = Message { id, params }.encode(
                    bits,
                    TransactionId::new(tid.into()),
                    &name(which),
                    &name(0),
                    &mut data,
                );
                self.sound &= written.is_ok();
                self.input(Input::Datagram { path, data: &data });
                return rest.get(3..).unwrap_or_default();
            }
            8 => {
                let event = match which & 0xc {
                    0 if conn.is_accepted() => StreamEvent::Accepted {
                        listener: ListenerId::own(0),
                        remote: address(which),
                        local: None,
                        certificate: None,
                    },
                    0 => StreamEvent::Connected { remote: address(which), local: None, certificate: None },
                    4 => StreamEvent::Closed(CloseReason::Refused),
                    8 => StreamEvent::Writable,
                    _ => StreamEvent::Data(some),
                };
                self.input(Input::Stream { conn, event });
                return after;
            }
            9 => {
                let event = match which & 0xc {
                    0 if conn.is_accepted() => MessageEvent::Accepted {
                        listener: ListenerId::own(0),
                        remote: address(which),
                        streams: which.into(),
                    },
                    0 => MessageEvent::Up { remote: address(which), streams: which.into() },
                    4 => MessageEvent::Down(CloseReason::Reset),
                    _ => MessageEvent::Data { stream: 0, ppid: 0, data: some },
                };
                self.input(Input::Message { assoc: conn, event });
                return after;
            }
            10 => {
                if let Some(at) = self.mihf.poll_timeout() {
                    self.now = self.now.max(at);
                }
                self.input(Input::Timeout);
            }
            _ => self.input(Input::Timeout),
        }
        rest
    }
    fn command(&mut self, command: Command) -> bool {
        self.mihf.command(self.now, command).is_ok()
    }
    fn input(&mut self, input: Input<'_>) {
        self.mihf.handle(self.now, input);
    }
    fn drain(&mut self) {
        let mut buf = Vec::new();
        let mut sent = 0;
        while let Some(output) = self.mihf.poll_output(&mut buf) {
            match output {
                Output::Transmit(_) => {
                    sent += 1;
                    self.sound &= sent < 1000;
                }
                Output::Event(Event::Request { transaction, message, .. }) => {
                    self.asked = Some((transaction, message.id));
                }
                Output::Event(Event::Done { token, .. }) => {
                    let at = self.open.iter().position(|open| *open == token);
                    self.sound &= at.is_some();
                    at.map(|at| self.open.remove(at));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_corpus_is_sound() {
        assert!(function(&[]));
        // A peer with acknowledgements, a request to it, its acknowledgement, its response, time.
        assert!(function(&[0, 1, 0x81, 3, 1, 7, 1, 0, 0, 2, 10, 0, 10, 0, 10, 0, 0, 200, 11, 0]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_octets_leave_it_sound(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(function(&octets));
        }
    }
}
