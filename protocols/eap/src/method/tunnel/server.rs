//! The server's side of a tunnel.

use super::super::connection::{
    FragmentKind, START, ServerTls, TlsConnection, VERSION, server_detail, server_fault,
};
use super::super::{
    CredentialDigest, InnerMethod, MethodContext, MethodFault, ServerMethod, ServerVerdict, SessionUser,
    UserAnswer, UserQuery,
};
use super::take_application_data;
use crate::EapKeys;
use crate::packet::EapType;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use usher_core::{SecureRng, WallTime, WorkRecord};

/// The result of a step of phase 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PhaseVerdict {
    /// The input does not fit the state and is discarded.
    Ignore,
    /// The output goes through the tunnel.
    Send,
    /// No inner output. The peer's turn comes with the pending flight of the handshake or a packet without data.
    Wait,
    /// The host's answer is pending.
    QueryPending,
    /// The peer is authenticated.
    Success,
    /// The authentication failed.
    Failure,
}

/// The tunnel as phase 2 sees it.
#[derive(Debug)]
pub(crate) struct TunnelContext<'a> {
    /// The TLS connection, for its exporter and version.
    pub(crate) conn: &'a TlsConnection,
    /// Random numbers for the inner methods.
    pub(crate) rng: SecureRng,
    /// The time of day.
    pub(crate) wall: WallTime,
    /// The identifier of the response in progress.
    pub(crate) identifier: u8,
    /// The identifier of the answered request. Inner requests without a header share it.
    pub(crate) request_identifier: u8,
}

impl TunnelContext<'_> {
    /// The context of an inner method, without an MTU: inner packets are not fragmented.
    pub(crate) fn inner_context(&mut self) -> MethodContext<'_> {
        MethodContext {
            rng: &mut self.rng,
            wall: self.wall,
            mtu: None,
            without_extended_master_secret: false,
        }
    }
}

/// Phase 2 of a server.
pub(crate) trait ServerPhase: Debug + Send {
    /// Handles the end of the handshake; its last flight may be pending. `resumed` is the user of the resumed session.
    fn handle_established(
        &mut self,
        resumed: Option<SessionUser>,
        tunnel: TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> PhaseVerdict;
    /// Handles a response without data while no output is pending.
    fn handle_empty(&mut self, tunnel: TunnelContext<'_>, out: &mut Vec<u8>) -> PhaseVerdict;
    /// Handles data from the tunnel.
    fn handle_data(&mut self, data: &[u8], tunnel: TunnelContext<'_>, out: &mut Vec<u8>) -> PhaseVerdict;
    /// Handles the host's answer.
    fn apply_answer(
        &mut self,
        answer: UserAnswer,
        tunnel: TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> PhaseVerdict;
    /// The pending query to the host.
    fn take_query(&mut self) -> Option<UserQuery>;
    /// The identity inside the tunnel.
    fn identity(&self) -> Option<&[u8]>;
    /// The inner method.
    fn inner_method(&self) -> Option<InnerMethod>;
    /// [`ServerMethod::is_refusing`].
    fn is_refusing(&self) -> bool;
    /// [`ServerMethod::fault`].
    fn fault(&self) -> MethodFault;
    /// Derives the method's keys from the tunnel's.
    fn derive_keys(&self, tunnel: EapKeys) -> EapKeys {
        tunnel
    }
    /// The next piece of inner work.
    fn poll_work(&mut self) -> Option<WorkRecord>;
}

/// A run of a tunnelled method in a server.
#[derive(Debug)]
pub(crate) struct TunnelServer<P> {
    kind: EapType,
    /// `None` if TLS refused the configuration. The run then fails.
    conn: Option<TlsConnection>,
    started: bool,
    established: bool,
    /// True for success, once the pending output is acknowledged.
    end: Option<bool>,
    succeeded: bool,
    phase: P,
    rng: SecureRng,
    wall: WallTime,
    /// The identifier of the last request that was sent whole. `identifier` is that of the last response.
    request_identifier: u8,
    identifier: u8,
}

impl<P: ServerPhase> TunnelServer<P> {
    pub(crate) fn new(
        kind: EapType,
        tls: &ServerTls,
        fragment: usize,
        phase: P,
        context: MethodContext<'_>,
    ) -> Self {
        Self {
            kind,
            conn: TlsConnection::for_server(tls, kind, fragment, &context),
            started: false,
            established: false,
            end: None,
            succeeded: false,
            phase,
            rng: SecureRng::from_seed(context.rng.random_array()),
            wall: context.wall,
            request_identifier: 0,
            identifier: 0,
        }
    }

    /// Runs a step of phase 2 and returns the run's verdict.
    fn run_phase(
        &mut self,
        act: impl FnOnce(&mut P, TunnelContext<'_>, &mut Vec<u8>) -> PhaseVerdict,
    ) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        let mut out = Vec::new();
        let tunnel = TunnelContext {
            conn,
            rng: SecureRng::from_seed(self.rng.random_array()),
            wall: self.wall,
            identifier: self.identifier,
            request_identifier: self.request_identifier,
        };
        let step = act(&mut self.phase, tunnel, &mut out);
        match step {
            PhaseVerdict::Ignore => ServerVerdict::Ignore,
            PhaseVerdict::QueryPending => ServerVerdict::QueryPending,
            PhaseVerdict::Wait => ServerVerdict::Continue,
            PhaseVerdict::Send if conn.write_data(&out) => ServerVerdict::Continue,
            PhaseVerdict::Send => ServerVerdict::Failure,
            PhaseVerdict::Success | PhaseVerdict::Failure if conn.is_sending() => {
                self.end = Some(step == PhaseVerdict::Success);
                ServerVerdict::Continue
            }
            PhaseVerdict::Success => self.finish_success(),
            PhaseVerdict::Failure => ServerVerdict::Failure,
        }
    }

    fn finish_success(&mut self) -> ServerVerdict {
        self.succeeded = true;
        ServerVerdict::Success
    }

    /// Handles a complete TLS message.
    fn process_message(&mut self) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        if !conn.process_message() {
            self.end = Some(false);
            return if conn.is_sending() { ServerVerdict::Continue } else { ServerVerdict::Failure };
        }
        if conn.engine.is_handshaking() {
            return if conn.is_sending() { ServerVerdict::Continue } else { ServerVerdict::Failure };
        }
        let data = take_application_data(conn);
        match (core::mem::replace(&mut self.established, true), data.is_empty()) {
            (false, true) => {
                let resumed = conn.session_user();
                self.run_phase(|p, tunnel, out| p.handle_established(resumed, tunnel, out))
            }
            // RFC 9427 §4: application data may come with the handshake's last message.
            (_, false) => self.run_phase(|p, tunnel, out| p.handle_data(&data, tunnel, out)),
            // Records without data are an empty response.
            (true, true) => self.run_phase(|p, tunnel, out| p.handle_empty(tunnel, out)),
        }
    }
}

impl<P: ServerPhase> ServerMethod for TunnelServer<P> {
    fn build_request(&mut self, identifier: u8, out: &mut Vec<u8>) {
        match &mut self.conn {
            Some(conn) if self.started => {
                let said = conn.is_sending();
                conn.build_fragment(out);
                if said && !conn.is_sending() {
                    self.request_identifier = identifier;
                }
            }
            _ => {
                self.started = true;
                out.push(START);
            }
        }
    }

    fn handle_response(&mut self, identifier: u8, data: &[u8]) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        // RFC 5281 §9.2.1: the server offers version 0, the lowest.
        if data.first().is_some_and(|flags| flags & VERSION != 0) {
            return ServerVerdict::Failure;
        }
        self.identifier = identifier;
        match (conn.read_fragment(data), conn.is_sending(), self.end) {
            (FragmentKind::Acknowledgement, true, _) => ServerVerdict::Continue,
            (FragmentKind::Acknowledgement | FragmentKind::Complete, false, Some(true)) => {
                self.finish_success()
            }
            (FragmentKind::Acknowledgement | FragmentKind::Complete, false, Some(false))
            | (FragmentKind::Bad, ..) => ServerVerdict::Failure,
            (FragmentKind::Acknowledgement, false, None) if self.established => {
                conn.clear_output();
                self.run_phase(|p, tunnel, out| p.handle_empty(tunnel, out))
            }
            (FragmentKind::More, false, None) => {
                conn.clear_output();
                ServerVerdict::Continue
            }
            (FragmentKind::Complete, false, None) => self.process_message(),
            _ => ServerVerdict::Ignore,
        }
    }

    fn take_query(&mut self) -> Option<UserQuery> {
        self.phase.take_query()
    }

    fn apply_answer(&mut self, answer: UserAnswer) -> ServerVerdict {
        if let (UserAnswer::Resume(false), Some(conn)) = (&answer, &mut self.conn) {
            conn.engine.end_session();
        }
        match self.run_phase(|p, tunnel, out| p.apply_answer(answer, tunnel, out)) {
            ServerVerdict::Ignore => ServerVerdict::Failure,
            verdict => verdict,
        }
    }

    fn is_refusing(&self) -> bool {
        match self.end {
            Some(succeeds) => !succeeds,
            None => self.phase.is_refusing(),
        }
    }

    fn fault(&self) -> MethodFault {
        server_fault(self.conn.as_ref(), self.phase.fault())
    }

    fn fault_detail(&self) -> Option<String> {
        server_detail(self.conn.as_ref())
    }

    fn keys(&self) -> Option<EapKeys> {
        let keys = self.conn.as_ref().filter(|_| self.succeeded)?.export_keys(self.kind)?;
        Some(self.phase.derive_keys(keys))
    }

    fn identity(&self) -> Option<&[u8]> {
        self.phase.identity()
    }

    fn inner_method(&self) -> Option<InnerMethod> {
        self.phase.inner_method()
    }

    fn is_resumed(&self) -> bool {
        self.conn.as_ref().is_some_and(|conn| conn.engine.is_resumed())
    }

    fn allow_resumption(&mut self, name: &[u8], credential: &CredentialDigest) {
        let inner = self.phase.inner_method();
        if let Some(conn) = self.conn.as_mut().filter(|_| self.succeeded) {
            conn.allow_resumption(name, credential, inner);
        }
    }

    fn peer_certificates(&self) -> &[Vec<u8>] {
        self.conn.as_ref().map_or(&[], |conn| &conn.certificates)
    }

    fn is_costly(&self, data: &[u8]) -> bool {
        self.conn.as_ref().is_some_and(|conn| conn.is_costly(data))
    }

    fn memory_octets(&self) -> usize {
        size_of::<Self>() + self.conn.as_ref().map_or(0, TlsConnection::memory_octets)
    }

    fn poll_work(&mut self) -> Option<WorkRecord> {
        self.conn.as_mut()?.poll_work().or_else(|| self.phase.poll_work())
    }
}
