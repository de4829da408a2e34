//! Connections and associations between the world's machines: reliable, in order, and as slow as what is lost makes
//! them. Each octet sequence handed over at once arrives at once.

use crate::world::{Happening, MihHost, WIFI, World};
use std::net::{IpAddr, SocketAddr};
use usher_core::TransportProtocol;
use usher_core::{
    ConnId, Duration, Input, Instant, ListenerId, MessageEvent, MessageOp, StreamEvent, StreamOp, Transmit,
};
use usher_mih::Message;

/// How long what was lost waits until it is sent again.
const AGAIN: Duration = Duration::from_millis(200);

/// One end of a pipe.
#[derive(Clone, Copy, Debug)]
struct End {
    node: MihHost,
    conn: ConnId,
    ip: IpAddr,
    /// When the last octets to it arrive.
    last: Instant,
}

/// A connection or an association.
#[derive(Debug)]
pub(crate) struct Pipe {
    transport: TransportProtocol,
    ends: [End; 2],
}

/// What comes out of a pipe.
#[derive(Debug)]
pub(crate) enum Outcome {
    Up,
    Data { stream: u16, ppid: u32, data: Vec<u8> },
}

/// Where a machine accepts.
fn listener(node: MihHost) -> ListenerId {
    match node {
        MihHost::Station => usher_mobility::station::MIH_LISTENER,
        MihHost::Serving | MihHost::Target => ListenerId::own(0),
    }
}

/// What a machine wants of a pipe, whatever its kind.
enum Wish {
    Connect { local: Option<IpAddr>, remote: SocketAddr },
    Data { stream: u16, ppid: u32 },
}

impl World {
    /// Follows what is no datagram.
    pub(crate) fn pipe(&mut self, node: MihHost, transmit: Transmit, data: &[u8]) {
        let (transport, conn, wish) = match transmit {
            Transmit::Stream { conn, op: StreamOp::Connect { local, remote } } => {
                (TransportProtocol::Tcp, conn, Wish::Connect { local, remote })
            }
            Transmit::Stream { conn, op: StreamOp::Data } => {
                (TransportProtocol::Tcp, conn, Wish::Data { stream: 0, ppid: 0 })
            }
            Transmit::Message { assoc, op: MessageOp::Connect { local, remote, .. } } => {
                (TransportProtocol::Sctp, assoc, Wish::Connect { local, remote })
            }
            Transmit::Message { assoc, op: MessageOp::Data { stream, ppid, .. } } => {
                (TransportProtocol::Sctp, assoc, Wish::Data { stream, ppid })
            }
            // What is closed says nothing more; the other end does not mind.
            Transmit::Stream { op: StreamOp::Shutdown | StreamOp::Abort, .. }
            | Transmit::Message { op: MessageOp::Shutdown | MessageOp::Abort, .. } => return,
            other => panic!("{other:?}"),
        };
        match wish {
            Wish::Connect { local, remote } => {
                let to = MihHost::at(remote.ip());
                let n = self.pipes.len() as u32;
                let incoming = ConnId::accepted_at(listener(to), n);
                let own = End { node, conn, ip: local.unwrap_or(node.home()), last: self.now };
                let theirs = End { node: to, conn: incoming, ip: remote.ip(), last: self.now };
                self.pipes.push(Pipe { transport, ends: [own, theirs] });
                let pipe = self.pipes.len() - 1;
                // The handshake: there, and back.
                let there = self.carry(pipe, 1, self.now, Outcome::Up);
                self.carry(pipe, 0, there, Outcome::Up);
            }
            Wish::Data { stream, ppid } => {
                let is_from = |pipe: &Pipe| {
                    pipe.ends.iter().position(|end| end.node == node && end.conn == conn).map(|from| 1 - from)
                };
                let found = self.pipes.iter().enumerate().find_map(|(i, p)| Some((i, is_from(p)?)));
                let (pipe, to) = found.unwrap_or_else(|| panic!("{node:?} has no {conn:?}"));
                let decoded = Message::decode(data).unwrap();
                if self.is_to_be_lost(&decoded) {
                    return;
                }
                let data = data.to_vec();
                self.carry(pipe, to, self.now, Outcome::Data { stream, ppid, data });
            }
        }
    }

    /// Sends something to an end; when it arrives.
    fn carry(&mut self, pipe: usize, to: usize, from: Instant, outcome: Outcome) -> Instant {
        let ends = self.pipes[pipe].ends;
        let ips = [ends[0].ip, ends[1].ip];
        let mut at = from;
        let delay = self.delay(ips);
        if delay == WIFI {
            while self.lost_on_air(100) {
                at += AGAIN;
            }
        }
        let at = (at + delay).max(ends[to].last);
        self.pipes[pipe].ends[to].last = at;
        self.at(at, Happening::Pipe { pipe, to, outcome });
        at
    }

    /// Something comes out of a pipe, if its link is still there.
    pub(crate) fn come_out(&mut self, pipe: usize, to: usize, outcome: &Outcome) {
        let Pipe { transport, ends } = &self.pipes[pipe];
        let (transport, End { node, conn, .. }) = (*transport, ends[to]);
        let remote = SocketAddr::new(ends[1 - to].ip, usher_mih::PORT);
        if ends.iter().any(|end| self.is_gone(end.ip)) {
            return;
        }
        let input = match (transport, outcome) {
            (TransportProtocol::Sctp, Outcome::Up) if conn.is_accepted() => {
                let event = MessageEvent::Accepted { listener: listener(node), remote, streams: 4 };
                Input::Message { assoc: conn, event }
            }
            (TransportProtocol::Sctp, Outcome::Up) => {
                Input::Message { assoc: conn, event: MessageEvent::Up { remote, streams: 4 } }
            }
            (TransportProtocol::Sctp, Outcome::Data { stream, ppid, data }) => Input::Message {
                assoc: conn,
                event: MessageEvent::Data { stream: *stream, ppid: *ppid, data },
            },
            (_, Outcome::Up) if conn.is_accepted() => {
                let listener = listener(node);
                let event = StreamEvent::Accepted { listener, remote, local: None, certificate: None };
                Input::Stream { conn, event }
            }
            (_, Outcome::Up) => Input::Stream {
                conn,
                event: StreamEvent::Connected { remote, local: None, certificate: None },
            },
            (_, Outcome::Data { data, .. }) => Input::Stream { conn, event: StreamEvent::Data(data) },
        };
        self.handle(node, input);
    }
}
