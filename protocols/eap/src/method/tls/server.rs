//! The server's side of EAP-TLS.

use super::super::{Answer, Credential, Fault, Question, ServerMethod, ServerVerdict};
use crate::Keys;
use crate::method::link::{Link, Piece, START, server_detail, server_fault};
use crate::packet::Type;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::Work;

/// One run of EAP-TLS in a server.
#[derive(Debug)]
pub struct Server {
    /// Without an engine (its configuration was refused) every run fails.
    link: Option<Link>,
    started: bool,
    failed: bool,
    established: bool,
    question: Option<Question>,
    /// The host did not let the peer in by the session that it took up.
    refused: bool,
}

impl Server {
    pub(super) fn new(link: Option<Link>) -> Self {
        Self { link, started: false, failed: false, established: false, question: None, refused: false }
    }

    /// A whole message came.
    fn message(&mut self) -> ServerVerdict {
        let Some(link) = &mut self.link else { return ServerVerdict::Failure };
        self.failed = !link.digest();
        if !self.failed && !self.established && !link.engine.is_handshaking() {
            self.established = true;
            if let Some(remembered) = link.remembered() {
                self.question = Some(Question::Resume(remembered));
                return ServerVerdict::Ask;
            }
            self.commit();
        }
        self.turn()
    }

    /// RFC 9190 §2.1.1: one octet of zero says that no handshake message follows, and that the server is content.
    fn commit(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|link| link.is_13()) {
            self.failed = !link.write(&[0]);
        }
    }

    fn turn(&self) -> ServerVerdict {
        let Some(link) = &self.link else { return ServerVerdict::Failure };
        match (link.sending(), self.failed) {
            (true, _) => ServerVerdict::Continue,
            (false, true) => ServerVerdict::Failure,
            // A resumed TLS 1.2 session ends with the peer's message.
            (false, false) if !link.engine.is_handshaking() => ServerVerdict::Success,
            (false, false) => ServerVerdict::Failure,
        }
    }
}

impl ServerMethod for Server {
    fn build(&mut self, _: u8, out: &mut Vec<u8>) {
        match &mut self.link {
            Some(link) if self.started => link.build(out),
            _ => {
                self.started = true;
                out.push(START);
            }
        }
    }

    fn response(&mut self, _: u8, data: &[u8]) -> ServerVerdict {
        let Some(link) = &mut self.link else { return ServerVerdict::Failure };
        match link.read(data) {
            Piece::Nothing if link.sending() => ServerVerdict::Continue,
            // What was sent is acknowledged, and nothing is left to say: an alert, or the handshake's end.
            Piece::Nothing if self.failed => ServerVerdict::Failure,
            Piece::Nothing if !link.engine.is_handshaking() => ServerVerdict::Success,
            Piece::More if !link.sending() => {
                link.rewind();
                ServerVerdict::Continue
            }
            // A peer that answers an alert with one of its own has failed all the same.
            Piece::Whole if self.failed => ServerVerdict::Failure,
            Piece::Whole if !link.sending() => self.message(),
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
        if let (Answer::Resume(false), Some(link)) = (answer, &mut self.link) {
            link.engine.end_session();
        }
        ServerVerdict::Failure
    }

    fn fault(&self) -> Fault {
        server_fault(self.link.as_ref(), if self.refused { Fault::Host } else { Fault::Rules })
    }

    fn detail(&self) -> Option<String> {
        server_detail(self.link.as_ref())
    }

    fn keys(&self) -> Option<Keys> {
        self.link.as_ref().filter(|_| !self.failed)?.keys(Type::TLS)
    }

    fn resumed(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.engine.resumed())
    }

    fn remember(&mut self, name: &[u8], credential: &Credential) {
        if let Some(link) = self.link.as_mut().filter(|_| self.established && !self.failed) {
            link.remember(name, credential, None);
        }
    }

    fn peer_certificates(&self) -> &[Vec<u8>] {
        self.link.as_ref().map_or(&[], |link| &link.certificates)
    }

    fn is_costly(&self, data: &[u8]) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_costly(data))
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.link.as_ref().map_or(0, Link::memory)
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.link.as_mut()?.poll_work()
    }
}
