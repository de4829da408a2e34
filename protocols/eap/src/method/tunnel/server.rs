//! The server's side of a tunnel.

use super::super::connection::{
    EapFragmentKind, START, ServerTlsBackend, TlsConnection, VERSION, server_fault, tls_fault_description,
};
use super::super::{
    CredentialDigest, EapMethodContext, InnerMethod, ServerMethod, ServerMethodFailure, ServerMethodResult,
    TlsSessionUser, UserQuery, UserQueryAnswer,
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
pub(crate) enum InnerPhaseResult {
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
    pub(crate) fn inner_method_context(&mut self) -> EapMethodContext<'_> {
        EapMethodContext {
            rng: &mut self.rng,
            wall: self.wall,
            mtu: None,
            without_extended_master_secret: false,
        }
    }
}

/// Phase 2 of a server.
pub(crate) trait TunnelServerPhase: Debug + Send {
    /// Handles the end of the handshake; its last flight may be pending. `resumed` is the user of the resumed session.
    fn handle_established(
        &mut self,
        resumed: Option<TlsSessionUser>,
        tunnel: TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> InnerPhaseResult;
    /// Handles a response without data while no output is pending.
    fn handle_empty(&mut self, tunnel: TunnelContext<'_>, out: &mut Vec<u8>) -> InnerPhaseResult;
    /// Handles data from the tunnel.
    fn handle_data(&mut self, data: &[u8], tunnel: TunnelContext<'_>, out: &mut Vec<u8>) -> InnerPhaseResult;
    /// Handles the host's answer.
    fn apply_answer(
        &mut self,
        answer: UserQueryAnswer,
        tunnel: TunnelContext<'_>,
        out: &mut Vec<u8>,
    ) -> InnerPhaseResult;
    /// The pending query to the host.
    fn take_query(&mut self) -> Option<UserQuery>;
    /// The identity inside the tunnel.
    fn identity(&self) -> Option<&[u8]>;
    /// The inner method.
    fn inner_method(&self) -> Option<InnerMethod>;
    /// [`ServerMethod::is_refusing`].
    fn is_refusing(&self) -> bool;
    /// [`ServerMethod::fault`].
    fn fault(&self) -> ServerMethodFailure;
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

impl<P: TunnelServerPhase> TunnelServer<P> {
    pub(crate) fn new(
        kind: EapType,
        tls: &ServerTlsBackend,
        fragment: usize,
        phase: P,
        context: EapMethodContext<'_>,
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
        act: impl FnOnce(&mut P, TunnelContext<'_>, &mut Vec<u8>) -> InnerPhaseResult,
    ) -> ServerMethodResult {
        let Some(conn) = &mut self.conn else { return ServerMethodResult::Failure };
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
            InnerPhaseResult::Ignore => ServerMethodResult::Ignore,
            InnerPhaseResult::QueryPending => ServerMethodResult::QueryPending,
            InnerPhaseResult::Wait => ServerMethodResult::Continue,
            InnerPhaseResult::Send if conn.write_data(&out) => ServerMethodResult::Continue,
            InnerPhaseResult::Send => ServerMethodResult::Failure,
            InnerPhaseResult::Success | InnerPhaseResult::Failure if conn.is_sending() => {
                self.end = Some(step == InnerPhaseResult::Success);
                ServerMethodResult::Continue
            }
            InnerPhaseResult::Success => self.succeed_tunnel_method(),
            InnerPhaseResult::Failure => ServerMethodResult::Failure,
        }
    }

    fn succeed_tunnel_method(&mut self) -> ServerMethodResult {
        self.succeeded = true;
        ServerMethodResult::Success
    }

    /// Handles a complete TLS message.
    fn process_message(&mut self) -> ServerMethodResult {
        let Some(conn) = &mut self.conn else { return ServerMethodResult::Failure };
        if !conn.process_message() {
            self.end = Some(false);
            return if conn.is_sending() {
                ServerMethodResult::Continue
            } else {
                ServerMethodResult::Failure
            };
        }
        if conn.engine.is_handshaking() {
            return if conn.is_sending() {
                ServerMethodResult::Continue
            } else {
                ServerMethodResult::Failure
            };
        }
        let data = take_application_data(conn);
        match (core::mem::replace(&mut self.established, true), data.is_empty()) {
            (false, true) => {
                let resumed = conn.session_user();
                self.run_phase(|p, tunnel, out| p.handle_established(resumed, tunnel, out))
            }
            // RFC 9427, 4: application data may come with the handshake's last message.
            (_, false) => self.run_phase(|p, tunnel, out| p.handle_data(&data, tunnel, out)),
            // The peer's records have no application data, so its response is empty.
            (true, true) => self.run_phase(|p, tunnel, out| p.handle_empty(tunnel, out)),
        }
    }
}

impl<P: TunnelServerPhase> ServerMethod for TunnelServer<P> {
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
                // RFC 5281, 9.2: the S bit stands on the first packet only.
                out.push(START);
            }
        }
    }

    fn handle_response(&mut self, identifier: u8, data: &[u8]) -> ServerMethodResult {
        let Some(conn) = &mut self.conn else { return ServerMethodResult::Failure };
        // RFC 5281, 9.2.1: the server offers version 0, the lowest.
        if data.first().is_some_and(|flags| flags & VERSION != 0) {
            return ServerMethodResult::Failure;
        }
        self.identifier = identifier;
        match (conn.read_fragment(data), conn.is_sending(), self.end) {
            (EapFragmentKind::Acknowledgement, true, _) => ServerMethodResult::Continue,
            (EapFragmentKind::Acknowledgement | EapFragmentKind::Complete, false, Some(true)) => {
                self.succeed_tunnel_method()
            }
            (EapFragmentKind::Acknowledgement | EapFragmentKind::Complete, false, Some(false))
            | (EapFragmentKind::Bad, ..) => ServerMethodResult::Failure,
            (EapFragmentKind::Acknowledgement, false, None) if self.established => {
                conn.clear_output();
                self.run_phase(|p, tunnel, out| p.handle_empty(tunnel, out))
            }
            (EapFragmentKind::More, false, None) => {
                conn.clear_output();
                ServerMethodResult::Continue
            }
            (EapFragmentKind::Complete, false, None) => self.process_message(),
            _ => ServerMethodResult::Ignore,
        }
    }

    fn take_query(&mut self) -> Option<UserQuery> {
        self.phase.take_query()
    }

    fn apply_answer(&mut self, answer: UserQueryAnswer) -> ServerMethodResult {
        if let (UserQueryAnswer::Resume(false), Some(conn)) = (&answer, &mut self.conn) {
            conn.engine.end_session();
        }
        match self.run_phase(|p, tunnel, out| p.apply_answer(answer, tunnel, out)) {
            ServerMethodResult::Ignore => ServerMethodResult::Failure,
            verdict => verdict,
        }
    }

    fn is_refusing(&self) -> bool {
        match self.end {
            Some(succeeds) => !succeeds,
            None => self.phase.is_refusing(),
        }
    }

    fn fault(&self) -> ServerMethodFailure {
        server_fault(self.conn.as_ref(), self.phase.fault())
    }

    fn fault_detail(&self) -> Option<String> {
        tls_fault_description(self.conn.as_ref())
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
        // RFC 5281, 7.5: a rejected session is not resumed.
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
