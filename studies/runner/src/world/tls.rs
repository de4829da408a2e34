//! TLS between a simulated TCP connection and the machine above it.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use usher_core::{CloseReason, ConnId, Instant, ListenerId, Machine, MachineInput, StreamEvent};
use usher_crypto::tls::{ClientConfig, HANDSHAKE_TIMEOUT, TlsStream, TrustConfig};
use usher_sim::{AppContext, Payload};

/// An endpoint's connections inside TLS, by the simulator's ids, and which of those that it opens are to be.
#[derive(Debug, Default)]
pub(super) struct TlsConnections {
    outgoing: BTreeMap<SocketAddr, ClientConfig>,
    all: BTreeMap<ConnId, TlsConnection>,
    /// Until when those are to be up that have begun, or over whose TLS failed: in the order of that.
    deadlines: VecDeque<(Instant, ConnId)>,
}

/// One of them.
#[derive(Debug)]
struct TlsConnection {
    stream: TlsStream,
    /// The other side, our address, and for one that the other side began where it was accepted: once TCP is connected.
    remote: Option<(SocketAddr, IpAddr, Option<ListenerId>)>,
    /// The machine wants it to end as soon as what it said is sent.
    is_closing: bool,
    /// TLS has failed, and nobody hears of it any more.
    has_failed: bool,
}

impl TlsConnections {
    /// Connections to these addresses are inside TLS.
    pub(super) fn with_outgoing(outgoing: BTreeMap<SocketAddr, ClientConfig>) -> Self {
        Self { outgoing, ..Self::default() }
    }

    /// How a connection to this address is to be protected.
    pub(super) fn trust_for(&self, remote: SocketAddr) -> Option<TrustConfig> {
        self.outgoing.get(&remote).cloned().map(TrustConfig::Client)
    }

    /// Puts a connection inside TLS; false where the configuration cannot work.
    pub(super) fn start_tls(&mut self, sim: ConnId, trust: TrustConfig) -> bool {
        let Ok(stream) = TlsStream::new(trust) else { return false };
        self.all.insert(sim, TlsConnection { stream, remote: None, is_closing: false, has_failed: false });
        true
    }

    /// Whether a connection is inside TLS.
    pub(super) fn contains(&self, sim: ConnId) -> bool {
        self.all.contains_key(&sim)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// TCP is connected.
    pub(super) fn handle_connected<R>(
        &mut self,
        ctx: &mut AppContext<'_, R>,
        sim: ConnId,
        remote: (SocketAddr, IpAddr, Option<ListenerId>),
    ) {
        let Some(connection) = self.all.get_mut(&sim) else { return };
        connection.remote = Some(remote);
        self.deadlines.push_back((ctx.now() + HANDSHAKE_TIMEOUT, sim));
        let mut out = Vec::new();
        connection.stream.start_handshake(&mut out);
        write_octets(ctx, sim, &out);
    }

    /// TCP brought octets: what the other side says reaches the machine, which calls the connection `conn`.
    pub(super) fn handle_received<R, M: Machine>(
        &mut self,
        ctx: &mut AppContext<'_, R>,
        machine: &mut M,
        (sim, conn): (ConnId, ConnId),
        bytes: &[u8],
    ) {
        let Some(connection) = self.all.get_mut(&sim).filter(|connection| !connection.has_failed) else {
            return;
        };
        let TlsConnection { stream, remote, is_closing: ending, has_failed: over } = connection;
        let (mut data, mut out, now) = (Vec::new(), Vec::new(), ctx.now());
        let was_up = stream.is_up();
        let result = stream.receive_tls(bytes, &mut data, &mut out);
        stream.take_work().to_work_records().for_each(|work| ctx.charge_work(work));
        let mut tell =
            |event: StreamEvent<'_>| machine.handle_input(now, MachineInput::Stream { conn, event });
        if let (true, Some((remote, local, listener))) = (!was_up && stream.is_up(), *remote) {
            let (local, certificate) = (Some(local), stream.peer_certificate());
            tell(match listener {
                Some(listener) => StreamEvent::Accepted { listener, remote, local, certificate },
                None => StreamEvent::Connected { remote, local, certificate },
            });
            stream.flush_pending(&mut out);
        }
        if !data.is_empty() {
            tell(StreamEvent::Data(&data));
        }
        if result.is_err() {
            *over = true;
            self.deadlines.push_back((now + HANDSHAKE_TIMEOUT, sim));
            if let Some(reason) = machine_close_reason(sim, stream, CloseReason::Reset) {
                tell(StreamEvent::Closed(reason));
            }
        }
        write_octets(ctx, sim, &out);
        // The other side reads the alert before the end.
        if *over || (*ending && stream.is_up()) {
            ctx.shutdown(sim);
        }
    }

    /// The next one that has not come up, or to its end, in its time; it stays until it is [`closed`](Self::handle_closed).
    pub(super) fn pop_overdue(&mut self, now: Instant) -> Option<ConnId> {
        self.next_deadline().filter(|at| *at <= now)?;
        self.deadlines.pop_front().map(|(_, sim)| sim)
    }

    /// When that is.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let waited_for = |connection: &TlsConnection| connection.has_failed || !connection.stream.is_up();
        while let Some((at, sim)) = self.deadlines.front() {
            if self.all.get(sim).is_some_and(waited_for) {
                return Some(*at);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// All are over without a word.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.deadlines.clear();
    }

    /// TCP has come to its end: what the machine is to hear of that, if it knows of the connection.
    pub(super) fn handle_closed(&mut self, sim: ConnId, reason: CloseReason) -> Option<CloseReason> {
        let connection = self.all.remove(&sim)?;
        if connection.has_failed { None } else { machine_close_reason(sim, &connection.stream, reason) }
    }

    /// The machine says something.
    pub(super) fn send_data<R>(&mut self, ctx: &mut AppContext<'_, R>, sim: ConnId, bytes: &[u8]) {
        let Some(connection) = self.all.get_mut(&sim) else { return };
        let mut out = Vec::new();
        connection.stream.send_application(bytes, &mut out);
        write_octets(ctx, sim, &out);
    }

    /// The machine has no more to say: what it said before the handshake is complete goes first.
    pub(super) fn shutdown<R>(&mut self, ctx: &mut AppContext<'_, R>, sim: ConnId) {
        let Some(connection) = self.all.get_mut(&sim) else { return };
        connection.is_closing = true;
        if connection.stream.pending_octets() == 0 {
            ctx.shutdown(sim);
        }
    }

    /// The machine resets it.
    pub(super) fn abort(&mut self, sim: ConnId) {
        self.all.remove(&sim);
    }
}

/// How a connection's end is told to the machine that it is of, as a live driver tells it: of one that was accepted and never
/// came up it does not know.
fn machine_close_reason(sim: ConnId, stream: &TlsStream, reason: CloseReason) -> Option<CloseReason> {
    match (stream.is_up(), sim.is_accepted()) {
        (true, _) => Some(reason),
        (false, true) => None,
        (false, false) => Some(match reason {
            CloseReason::TimedOut => CloseReason::TimedOut,
            _ => CloseReason::Refused,
        }),
    }
}

fn write_octets<R>(ctx: &mut AppContext<'_, R>, sim: ConnId, out: &[u8]) {
    if !out.is_empty() {
        ctx.write(sim, Payload::copy_from_slice(out));
    }
}
