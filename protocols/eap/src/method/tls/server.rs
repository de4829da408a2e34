//! The server's side of EAP-TLS.

use super::super::{Answer, Credential, Fault, Question, ServerMethod, ServerVerdict};
use crate::Keys;
use crate::method::connection::{Piece, START, TlsConnection, server_detail, server_fault};
use crate::packet::Type;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::Work;

/// One run of EAP-TLS in a server.
#[derive(Debug)]
pub struct Server {
    /// Without an engine (its configuration was refused) every run fails.
    conn: Option<TlsConnection>,
    started: bool,
    failed: bool,
    established: bool,
    question: Option<Question>,
    /// The host did not let the peer in by the session that it took up.
    refused: bool,
}

impl Server {
    pub(super) fn new(conn: Option<TlsConnection>) -> Self {
        Self { conn, started: false, failed: false, established: false, question: None, refused: false }
    }

    /// A whole message came.
    fn message(&mut self) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        self.failed = !conn.digest();
        if !self.failed && !self.established && !conn.engine.is_handshaking() {
            self.established = true;
            if let Some(remembered) = conn.remembered() {
                self.question = Some(Question::Resume(remembered));
                return ServerVerdict::Ask;
            }
            self.commit();
        }
        self.turn()
    }

    /// RFC 9190 §2.1.1: one octet of zero says that no handshake message follows, and that the server is content.
    fn commit(&mut self) {
        if let Some(conn) = self.conn.as_mut().filter(|conn| conn.is_13()) {
            self.failed = !conn.write(&[0]);
        }
    }

    fn turn(&self) -> ServerVerdict {
        let Some(conn) = &self.conn else { return ServerVerdict::Failure };
        match (conn.sending(), self.failed) {
            (true, _) => ServerVerdict::Continue,
            (false, true) => ServerVerdict::Failure,
            // A resumed TLS 1.2 session ends with the peer's message.
            (false, false) if !conn.engine.is_handshaking() => ServerVerdict::Success,
            (false, false) => ServerVerdict::Failure,
        }
    }
}

impl ServerMethod for Server {
    fn build(&mut self, _: u8, out: &mut Vec<u8>) {
        match &mut self.conn {
            Some(conn) if self.started => conn.build(out),
            _ => {
                self.started = true;
                out.push(START);
            }
        }
    }

    fn response(&mut self, _: u8, data: &[u8]) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        match conn.read(data) {
            Piece::Nothing if conn.sending() => ServerVerdict::Continue,
            // What was sent is acknowledged, and nothing is left to say: an alert, or the handshake's end.
            Piece::Nothing if self.failed => ServerVerdict::Failure,
            Piece::Nothing if !conn.engine.is_handshaking() => ServerVerdict::Success,
            Piece::More if !conn.sending() => {
                conn.rewind();
                ServerVerdict::Continue
            }
            // A peer that answers an alert with one of its own has failed all the same.
            Piece::Whole if self.failed => ServerVerdict::Failure,
            Piece::Whole if !conn.sending() => self.message(),
            Piece::Bad => ServerVerdict::Failure,
            Piece::Start | Piece::Nothing | Piece::More | Piece::Whole => ServerVerdict::Ignore,
        }
    }

    fn question(&mut self) -> Option<Question> {
        self.question.take()
    }

    fn answer(&mut self, answer: Answer) -> ServerVerdict {
        if answer == Answer::Resume(true) {
            self.commit();
            return self.turn();
        }
        (self.failed, self.refused) = (true, true);
        if let (Answer::Resume(false), Some(conn)) = (answer, &mut self.conn) {
            conn.engine.end_session();
        }
        ServerVerdict::Failure
    }

    fn fault(&self) -> Fault {
        server_fault(self.conn.as_ref(), if self.refused { Fault::Host } else { Fault::Rules })
    }

    fn detail(&self) -> Option<String> {
        server_detail(self.conn.as_ref())
    }

    fn keys(&self) -> Option<Keys> {
        self.conn.as_ref().filter(|_| !self.failed)?.keys(Type::TLS)
    }

    fn resumed(&self) -> bool {
        self.conn.as_ref().is_some_and(|conn| conn.engine.resumed())
    }

    fn remember(&mut self, name: &[u8], credential: &Credential) {
        if let Some(conn) = self.conn.as_mut().filter(|_| self.established && !self.failed) {
            conn.remember(name, credential, None);
        }
    }

    fn peer_certificates(&self) -> &[Vec<u8>] {
        self.conn.as_ref().map_or(&[], |conn| &conn.certificates)
    }

    fn is_costly(&self, data: &[u8]) -> bool {
        self.conn.as_ref().is_some_and(|conn| conn.is_costly(data))
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.conn.as_ref().map_or(0, TlsConnection::memory)
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.conn.as_mut()?.poll_work()
    }
}
