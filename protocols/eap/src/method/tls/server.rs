//! The server's side of EAP-TLS.

use super::super::{CredentialDigest, MethodFault, ServerMethod, ServerVerdict, UserAnswer, UserQuery};
use crate::EapKeys;
use crate::method::connection::{FragmentKind, START, TlsConnection, server_detail, server_fault};
use crate::packet::EapType;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::WorkRecord;

/// A run of EAP-TLS in a server.
#[derive(Debug)]
pub struct EapTlsServer {
    /// `None` if TLS refused the configuration. The run then fails.
    conn: Option<TlsConnection>,
    started: bool,
    failed: bool,
    established: bool,
    question: Option<UserQuery>,
    /// True if the host refused the resumption of the session.
    refused: bool,
}

impl EapTlsServer {
    pub(super) fn new(conn: Option<TlsConnection>) -> Self {
        Self { conn, started: false, failed: false, established: false, question: None, refused: false }
    }

    /// Handles a complete TLS message.
    fn process_message(&mut self) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        self.failed = !conn.process_message();
        if !self.failed && !self.established && !conn.engine.is_handshaking() {
            self.established = true;
            if let Some(remembered) = conn.session_user() {
                self.question = Some(UserQuery::Resume(remembered));
                return ServerVerdict::QueryPending;
            }
            self.send_commitment();
        }
        self.current_verdict()
    }

    /// RFC 9190 §2.1.1: a zero octet says that no handshake message follows and that the server accepts.
    fn send_commitment(&mut self) {
        if let Some(conn) = self.conn.as_mut().filter(|conn| conn.is_13()) {
            self.failed = !conn.write_data(&[0]);
        }
    }

    fn current_verdict(&self) -> ServerVerdict {
        let Some(conn) = &self.conn else { return ServerVerdict::Failure };
        match (conn.is_sending(), self.failed) {
            (true, _) => ServerVerdict::Continue,
            (false, true) => ServerVerdict::Failure,
            // A resumed TLS 1.2 session ends with the peer's message.
            (false, false) if !conn.engine.is_handshaking() => ServerVerdict::Success,
            (false, false) => ServerVerdict::Failure,
        }
    }
}

impl ServerMethod for EapTlsServer {
    fn build_request(&mut self, _: u8, out: &mut Vec<u8>) {
        match &mut self.conn {
            Some(conn) if self.started => conn.build_fragment(out),
            _ => {
                self.started = true;
                out.push(START);
            }
        }
    }

    fn handle_response(&mut self, _: u8, data: &[u8]) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        match conn.read_fragment(data) {
            FragmentKind::Acknowledgement if conn.is_sending() => ServerVerdict::Continue,
            // The peer acknowledges the whole output: an alert, or the handshake's end.
            FragmentKind::Acknowledgement if self.failed => ServerVerdict::Failure,
            FragmentKind::Acknowledgement if !conn.engine.is_handshaking() => ServerVerdict::Success,
            FragmentKind::More if !conn.is_sending() => {
                conn.clear_output();
                ServerVerdict::Continue
            }
            // A peer that answers the server's alert with an alert has failed, too.
            FragmentKind::Complete if self.failed => ServerVerdict::Failure,
            FragmentKind::Complete if !conn.is_sending() => self.process_message(),
            FragmentKind::Bad => ServerVerdict::Failure,
            FragmentKind::Start
            | FragmentKind::Acknowledgement
            | FragmentKind::More
            | FragmentKind::Complete => ServerVerdict::Ignore,
        }
    }

    fn take_query(&mut self) -> Option<UserQuery> {
        self.question.take()
    }

    fn apply_answer(&mut self, answer: UserAnswer) -> ServerVerdict {
        if answer == UserAnswer::Resume(true) {
            self.send_commitment();
            return self.current_verdict();
        }
        (self.failed, self.refused) = (true, true);
        if let (UserAnswer::Resume(false), Some(conn)) = (answer, &mut self.conn) {
            conn.engine.end_session();
        }
        ServerVerdict::Failure
    }

    fn fault(&self) -> MethodFault {
        server_fault(self.conn.as_ref(), if self.refused { MethodFault::Host } else { MethodFault::Rules })
    }

    fn fault_detail(&self) -> Option<String> {
        server_detail(self.conn.as_ref())
    }

    fn keys(&self) -> Option<EapKeys> {
        self.conn.as_ref().filter(|_| !self.failed)?.export_keys(EapType::TLS)
    }

    fn is_resumed(&self) -> bool {
        self.conn.as_ref().is_some_and(|conn| conn.engine.is_resumed())
    }

    fn allow_resumption(&mut self, name: &[u8], credential: &CredentialDigest) {
        if let Some(conn) = self.conn.as_mut().filter(|_| self.established && !self.failed) {
            conn.allow_resumption(name, credential, None);
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
        self.conn.as_mut()?.poll_work()
    }
}
