//! The entry point for fuzzers.

use super::*;
use crate::{HeaderFlags, MessageId, TransactionId};
use core::net::{IpAddr, SocketAddr};
use usher_core::{
    CloseReason, ConnId, DatagramPath, Duration, ListenerId, Seed, SocketId, TransportProtocol,
};

const MOST: usize = 6;
const CLAIMS: usize = 3;

/// A function that octets have their way with.
struct FuzzedMihf {
    now: Instant,
    mihf: Mihf,
    open: Vec<u64>,
    next: u64,
    pending_request: Option<(IncomingRequestId, MessageId)>,
    sound: bool,
}

fn peer_id(n: u8) -> MihfId {
    MihfId::new([b'a' + n % 3]).unwrap_or_default()
}

fn peer_address(n: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 0, 0, n % 3]), PORT)
}

/// Takes octets for what happens to an MIH function: commands, packets, connections, time. False where a message is
/// done that was not under way, more is remembered than may be, or draining does not end.
#[must_use]
pub fn fuzz_mih_function(mut octets: &[u8]) -> bool {
    let Some((&flags, rest)) = octets.split_first() else { return true };
    octets = rest;
    let mut config = MihfConfig::new(peer_id(0));
    config.max_transactions = MOST;
    config.max_message = 60 + usize::from(flags & 0x30) * 8;
    config.max_queue = 200;
    config.max_registered = 1;
    config.lifetime = Duration::from_millis(500);
    config.ack_delay = Duration::from_millis(u64::from(flags & 1) * 50);
    config.timing.response = (flags & 2 != 0).then_some(Duration::from_millis(300));
    let proofs = AddressProofConfig {
        allowed_networks: [(peer_id(1), alloc::vec![(peer_address(2).ip(), 32)])].into(),
        claims: CLAIMS,
        address_proofs_per_network: 2,
    };
    config.proofs = (flags & 0x40 != 0).then_some(proofs);
    config.timing.unanswered =
        [ResponseTimeoutPolicy::Wait, ResponseTimeoutPolicy::Retransmit, ResponseTimeoutPolicy::Abort]
            [usize::from(flags >> 2 & 3) % 3];
    let mut it = FuzzedMihf {
        now: Instant::ZERO,
        mihf: Mihf::new(config, Seed::new(1).derive_rng("fuzz", 0)),
        open: Vec::new(),
        next: 0,
        pending_request: None,
        sound: true,
    };
    while let Some((&[what, which], rest)) = octets.split_first_chunk::<2>() {
        octets = it.apply_fuzz_step(what, which, rest);
        it.drain_outputs();
        if !it.sound || it.mihf.transaction_count() > MOST || it.mihf.claims.len() > CLAIMS {
            return false;
        }
    }
    true
}

impl FuzzedMihf {
    fn apply_fuzz_step<'a>(&mut self, what: u8, which: u8, rest: &'a [u8]) -> &'a [u8] {
        let (some, after) = rest.split_at(rest.len().min(usize::from(which >> 2)));
        let conn = if which & 2 == 0 {
            ConnId::nth_opened_connection(0)
        } else {
            ConnId::nth_accepted_connection(u32::from(which & 1))
        };
        let path = DatagramPath {
            socket: SocketId::from_number(0),
            local: peer_address(0),
            remote: peer_address(which),
        };
        match what % 12 {
            0 => self.now += Duration::from_millis(u64::from(which) * 10),
            1 => {
                let transport = [TransportProtocol::Udp, TransportProtocol::Tcp, TransportProtocol::Sctp]
                    [usize::from(which >> 3) % 3];
                let local = (which & 4 != 0).then(|| peer_address(0).ip());
                let route = PeerRoute { transport, local, remote: peer_address(which) };
                self.apply_command(MihfCommand::Peer(MihfPeer {
                    id: peer_id(which),
                    route,
                    ack: which & 0x80 != 0,
                }));
            }
            2 | 3 => {
                let ids = [MessageId::PUSH_INFORMATION_INDICATION, MessageId::GET_INFORMATION_REQUEST];
                let message = MihfMessage::new(ids[usize::from(what % 12 == 3)], []);
                let message = match message.clone().with_padding_to_length(
                    usize::from(which) * 2,
                    &peer_id(0),
                    &peer_id(which),
                ) {
                    Ok(padded) => padded,
                    Err(_) => message,
                };
                let (token, to) = (self.next, peer_id(which));
                self.next += 1;
                self.open.push(token);
                if !self.apply_command(MihfCommand::Send { token, to, message }) {
                    self.open.pop();
                }
            }
            4 => {
                if let Some((transaction, id)) = self.pending_request.take() {
                    let status = crate::Tlv::Status(crate::Status::Success);
                    let message = MihfMessage::new(id.to_response(), [status]);
                    self.apply_command(MihfCommand::Respond { transaction, message });
                }
            }
            5 => {
                if let Some(token) = self.open.pop()
                    && !self.apply_command(MihfCommand::Abandon { token })
                {
                    self.sound = false;
                }
            }
            6 => {
                let data = some;
                self.feed_input(MachineInput::Datagram { path, data });
                return after;
            }
            7 => {
                // A message built from a few octets, so that replies match pending transactions.
                let [id, tid, flags] = *rest.first_chunk::<3>().unwrap_or(&[0; 3]);
                let id = MessageId::ALL[usize::from(id) % MessageId::ALL.len()];
                let bits = HeaderFlags { ack_req: flags & 1 != 0, ack_rsp: flags & 2 != 0, uir: false };
                let params = if flags & 4 == 0 { Vec::new() } else { alloc::vec![crate::Tlv::padding(3)] };
                let mut data = Vec::new();
                let written = MihfMessage { id, params }.encode(
                    bits,
                    TransactionId::new(tid.into()),
                    &peer_id(which),
                    &peer_id(0),
                    &mut data,
                );
                self.sound &= written.is_ok();
                self.feed_input(MachineInput::Datagram { path, data: &data });
                return rest.get(3..).unwrap_or_default();
            }
            8 => {
                let event = match which & 0xc {
                    0 if conn.is_accepted() => StreamEvent::Accepted {
                        listener: ListenerId::from_number(0),
                        remote: peer_address(which),
                        local: None,
                        certificate: None,
                    },
                    0 => {
                        StreamEvent::Connected { remote: peer_address(which), local: None, certificate: None }
                    }
                    4 => StreamEvent::Closed(CloseReason::Refused),
                    8 => StreamEvent::Writable,
                    _ => StreamEvent::Data(some),
                };
                self.feed_input(MachineInput::Stream { conn, event });
                return after;
            }
            9 => {
                let event = match which & 0xc {
                    0 if conn.is_accepted() => MessageAssociationEvent::Accepted {
                        listener: ListenerId::from_number(0),
                        remote: peer_address(which),
                        streams: which.into(),
                    },
                    0 => MessageAssociationEvent::Up { remote: peer_address(which), streams: which.into() },
                    4 => MessageAssociationEvent::Down(CloseReason::Reset),
                    _ => MessageAssociationEvent::Data { stream: 0, ppid: 0, data: some },
                };
                self.feed_input(MachineInput::Message { assoc: conn, event });
                return after;
            }
            10 => {
                if let Some(at) = self.mihf.poll_timeout() {
                    self.now = self.now.max(at);
                }
                self.feed_input(MachineInput::Timeout);
            }
            _ => self.feed_input(MachineInput::Timeout),
        }
        rest
    }
    fn apply_command(&mut self, command: MihfCommand) -> bool {
        self.mihf.handle_command(self.now, command).is_ok()
    }
    fn feed_input(&mut self, input: MachineInput<'_>) {
        self.mihf.handle_input(self.now, input);
    }
    fn drain_outputs(&mut self) {
        let mut buf = Vec::new();
        let mut sent = 0;
        while let Some(output) = self.mihf.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(_) => {
                    sent += 1;
                    self.sound &= sent < 1000;
                }
                MachineOutput::Event(MihfEvent::Request { transaction, message, .. }) => {
                    self.pending_request = Some((transaction, message.id));
                }
                MachineOutput::Event(MihfEvent::Done { token, .. }) => {
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
        assert!(fuzz_mih_function(&[]));
        // A peer with acknowledgements, a request to it, its acknowledgement, its response, time.
        assert!(fuzz_mih_function(&[0, 1, 0x81, 3, 1, 7, 1, 0, 0, 2, 10, 0, 10, 0, 10, 0, 0, 200, 11, 0]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_octets_leave_it_sound(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(fuzz_mih_function(&octets));
        }
    }
}
