//! The server's side of EAP-TLS.

use super::super::{
    CredentialDigest, ServerMethod, ServerMethodFailure, ServerMethodResult, UserQuery, UserQueryAnswer,
};
use crate::EapKeys;
use crate::method::connection::{EapFragmentKind, START, TlsConnection, server_fault, tls_fault_description};
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
    fn process_message(&mut self) -> ServerMethodResult {
        let Some(conn) = &mut self.conn else { return ServerMethodResult::Failure };
        self.failed = !conn.process_message();
        // RFC 9190, 2.5: the zero octet comes after the peer's Finished.
        if !self.failed && !self.established && !conn.engine.is_handshaking() {
            self.established = true;
            // RFC 5216, 2.1.2; RFC 9190, 5.7: the host decides about a resumed session.
            if let Some(remembered) = conn.session_user() {
                self.question = Some(UserQuery::Resume(remembered));
                return ServerMethodResult::QueryPending;
            }
            self.send_final_handshake_octet();
        }
        self.tls_method_result()
    }

    /// RFC 9190 §2.1.1, §2.5: a zero octet says that no handshake message follows and that the server accepts.
    fn send_final_handshake_octet(&mut self) {
        if let Some(conn) = self.conn.as_mut().filter(|conn| conn.is_tls13()) {
            self.failed = !conn.write_data(&[0]);
        }
    }

    fn tls_method_result(&self) -> ServerMethodResult {
        let Some(conn) = &self.conn else { return ServerMethodResult::Failure };
        match (conn.is_sending(), self.failed) {
            (true, _) => ServerMethodResult::Continue,
            (false, true) => ServerMethodResult::Failure,
            // A resumed TLS 1.2 handshake ends with the peer's message, so there is nothing left to send.
            (false, false) if !conn.engine.is_handshaking() => ServerMethodResult::Success,
            (false, false) => ServerMethodResult::Failure,
        }
    }
}

impl ServerMethod for EapTlsServer {
    fn build_request(&mut self, _: u8, out: &mut Vec<u8>) {
        match &mut self.conn {
            Some(conn) if self.started => conn.build_fragment(out),
            _ => {
                self.started = true;
                // RFC 5216, 2.1.1: the start has no data.
                out.push(START);
            }
        }
    }

    fn handle_response(&mut self, _: u8, data: &[u8]) -> ServerMethodResult {
        let Some(conn) = &mut self.conn else { return ServerMethodResult::Failure };
        match conn.read_fragment(data) {
            EapFragmentKind::Acknowledgement if conn.is_sending() => ServerMethodResult::Continue,
            // RFC 5216, 2.1.3: Failure follows the answer to the alert.
            EapFragmentKind::Acknowledgement if self.failed => ServerMethodResult::Failure,
            // RFC 5216, 2.1.3; RFC 9190, 2.5: Success follows the last acknowledgement.
            EapFragmentKind::Acknowledgement if !conn.engine.is_handshaking() => ServerMethodResult::Success,
            EapFragmentKind::More if !conn.is_sending() => {
                conn.clear_output();
                ServerMethodResult::Continue
            }
            // The peer answered the server's alert with an alert instead of an acknowledgement. The run has failed all
            // the same.
            EapFragmentKind::Complete if self.failed => ServerMethodResult::Failure,
            EapFragmentKind::Complete if !conn.is_sending() => self.process_message(),
            EapFragmentKind::Bad => ServerMethodResult::Failure,
            EapFragmentKind::Start
            | EapFragmentKind::Acknowledgement
            | EapFragmentKind::More
            | EapFragmentKind::Complete => ServerMethodResult::Ignore,
        }
    }

    fn take_query(&mut self) -> Option<UserQuery> {
        self.question.take()
    }

    fn apply_answer(&mut self, answer: UserQueryAnswer) -> ServerMethodResult {
        if answer == UserQueryAnswer::Resume(true) {
            self.send_final_handshake_octet();
            return self.tls_method_result();
        }
        (self.failed, self.refused) = (true, true);
        if let (UserQueryAnswer::Resume(false), Some(conn)) = (answer, &mut self.conn) {
            conn.engine.end_session();
        }
        ServerMethodResult::Failure
    }

    fn fault(&self) -> ServerMethodFailure {
        server_fault(
            self.conn.as_ref(),
            if self.refused { ServerMethodFailure::Host } else { ServerMethodFailure::Rules },
        )
    }

    fn fault_detail(&self) -> Option<String> {
        tls_fault_description(self.conn.as_ref())
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
