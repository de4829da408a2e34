//! TLS between a simulated TCP connection and the machine above it.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use usher_core::{CloseReason, ConnId, Instant, ListenerId, Machine, MachineInput, StreamEvent};
use usher_crypto::tls::{ClientConfig, HANDSHAKE_TIMEOUT, TlsStream, TlsTrustConfig};
use usher_sim::{AppContext, Payload};

/// An endpoint's TLS connections by the simulator's ids, and the addresses that need TLS.
#[derive(Debug, Default)]
pub(super) struct TlsConnections {
    outgoing: BTreeMap<SocketAddr, ClientConfig>,
    all: BTreeMap<ConnId, TlsConnection>,
    /// Deadlines of handshakes and of ends after a TLS failure, ascending.
    deadlines: VecDeque<(Instant, ConnId)>,
}

/// A TLS connection.
#[derive(Debug)]
struct TlsConnection {
    stream: TlsStream,
    /// After the TCP connect: the peer, our address and, if the peer opened it, the listener.
    remote: Option<(SocketAddr, IpAddr, Option<ListenerId>)>,
    /// True if the machine wants to close it after the queued data is sent.
    is_closing: bool,
    /// True if TLS has failed; the machine gets no further events.
    has_failed: bool,
}

impl TlsConnections {
    /// Uses TLS for connections to these addresses.
    pub(super) fn with_outgoing(outgoing: BTreeMap<SocketAddr, ClientConfig>) -> Self {
        Self { outgoing, ..Self::default() }
    }

    /// Returns the TLS configuration for connections to this address.
    pub(super) fn client_trust_for(&self, remote: SocketAddr) -> Option<TlsTrustConfig> {
        self.outgoing.get(&remote).cloned().map(TlsTrustConfig::Client)
    }

    /// Starts TLS on a connection; false if the configuration is invalid.
    pub(super) fn start_tls(&mut self, sim: ConnId, trust: TlsTrustConfig) -> bool {
        let Ok(stream) = TlsStream::new(trust) else { return false };
        self.all.insert(sim, TlsConnection { stream, remote: None, is_closing: false, has_failed: false });
        true
    }

    /// True if a connection uses TLS.
    pub(super) fn contains(&self, sim: ConnId) -> bool {
        self.all.contains_key(&sim)
    }

    /// Returns the number of connections.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Handles the TCP connect.
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

    /// Handles TCP data. The machine, which names the connection `conn`, receives the decrypted data.
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
        // Shut down instead of aborting, so that the peer reads the alert before the end of the stream.
        if *over || (*ending && stream.is_up()) {
            ctx.shutdown(sim);
        }
    }

    /// Returns the next connection whose handshake or end is overdue; it stays until
    /// [`handle_closed`](Self::handle_closed).
    pub(super) fn pop_overdue_tls_connection(&mut self, now: Instant) -> Option<ConnId> {
        self.next_deadline().filter(|at| *at <= now)?;
        self.deadlines.pop_front().map(|(_, sim)| sim)
    }

    /// Returns the next deadline.
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

    /// Removes all connections without events.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.deadlines.clear();
    }

    /// Handles the end of TCP. Returns the close reason for the machine, if it knows the connection.
    pub(super) fn handle_closed(&mut self, sim: ConnId, reason: CloseReason) -> Option<CloseReason> {
        let connection = self.all.remove(&sim)?;
        if connection.has_failed { None } else { machine_close_reason(sim, &connection.stream, reason) }
    }

    /// Sends the machine's data.
    pub(super) fn send_data<R>(&mut self, ctx: &mut AppContext<'_, R>, sim: ConnId, bytes: &[u8]) {
        let Some(connection) = self.all.get_mut(&sim) else { return };
        let mut out = Vec::new();
        connection.stream.send_application(bytes, &mut out);
        write_octets(ctx, sim, &out);
    }

    /// Closes the machine's side after the data queued before the handshake.
    pub(super) fn shutdown<R>(&mut self, ctx: &mut AppContext<'_, R>, sim: ConnId) {
        let Some(connection) = self.all.get_mut(&sim) else { return };
        connection.is_closing = true;
        if connection.stream.pending_octets() == 0 {
            ctx.shutdown(sim);
        }
    }

    /// Resets the connection for the machine.
    pub(super) fn abort(&mut self, sim: ConnId) {
        self.all.remove(&sim);
    }
}

/// Returns the close reason for the machine, as a live driver reports it; `None` for an accepted connection whose
/// handshake never completed.
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
