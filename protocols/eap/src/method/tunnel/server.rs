//! The server's side of a tunnel.

use super::super::connection::{
    Piece, START, ServerTls, TlsConnection, VERSION, server_detail, server_fault,
};
use super::super::{
    Answer, Context, Credential, Fault, Inner, Question, Remembered, ServerMethod, ServerVerdict,
};
use super::application;
use crate::Keys;
use crate::packet::Type;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use usher_core::{SecureRng, WallTime, Work};

/// What phase 2 makes of what it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It is not for this state.
    Ignore,
    /// What was put out goes through the tunnel.
    Say,
    /// Nothing is to be said: the peer's turn comes with what the handshake has still to send, or with a packet
    /// without data.
    Wait,
    /// The host has to answer first.
    Ask,
    /// The peer is who it says.
    Success,
    /// It is not.
    Failure,
}

/// What phase 2 sees of its tunnel.
#[derive(Debug)]
pub(crate) struct Tunnel<'a> {
    /// For the exporter and the version.
    pub(crate) conn: &'a TlsConnection,
    /// Chance for the methods inside.
    pub(crate) rng: SecureRng,
    /// The time of day.
    pub(crate) wall: WallTime,
    /// The identifier of the response that is being answered.
    pub(crate) identifier: u8,
    /// The identifier of the request that was answered, which those inside share where they have none.
    pub(crate) asked: u8,
}

impl Tunnel<'_> {
    /// The context of a method inside: nothing there is ever cut.
    pub(crate) fn context(&mut self) -> Context<'_> {
        Context { rng: &mut self.rng, wall: self.wall, mtu: None, without_extended_master_secret: false }
    }
}

/// Phase 2 of a server.
pub(crate) trait ServerPhase: Debug + Send {
    /// The handshake is complete; its last flight may still be to be sent. `resumed` is whom the session that was
    /// taken up has admitted.
    fn established(&mut self, resumed: Option<Remembered>, tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step;
    /// A response without data came, and nothing is left to be sent.
    fn nothing(&mut self, tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step;
    /// Data came out of the tunnel.
    fn data(&mut self, data: &[u8], tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step;
    /// The host answered.
    fn answer(&mut self, answer: Answer, tunnel: Tunnel<'_>, out: &mut Vec<u8>) -> Step;
    /// What the host is asked.
    fn question(&mut self) -> Option<Question>;
    /// Whom the peer says it is inside.
    fn identity(&self) -> Option<&[u8]>;
    /// How it proves that.
    fn inner(&self) -> Option<Inner>;
    /// [`ServerMethod::refuses`].
    fn refuses(&self) -> bool;
    /// [`ServerMethod::fault`].
    fn fault(&self) -> Fault;
    /// The method's keys, from those that its tunnel gives.
    fn keys(&self, tunnel: Keys) -> Keys {
        tunnel
    }
    /// Work done inside.
    fn poll_work(&mut self) -> Option<Work>;
}

/// One run of a tunnelled method in a server.
#[derive(Debug)]
pub(crate) struct TunnelServer<P> {
    kind: Type,
    /// Without an engine (its configuration was refused) every run fails.
    conn: Option<TlsConnection>,
    started: bool,
    established: bool,
    /// How the run ends as soon as what is to be sent is acknowledged.
    end: Option<bool>,
    succeeded: bool,
    phase: P,
    rng: SecureRng,
    wall: WallTime,
    /// The identifiers of the last request that was sent whole, and of the last response.
    asked: u8,
    identifier: u8,
}

impl<P: ServerPhase> TunnelServer<P> {
    pub(crate) fn new(kind: Type, tls: &ServerTls, fragment: usize, phase: P, context: Context<'_>) -> Self {
        Self {
            kind,
            conn: TlsConnection::server(tls, kind, fragment, &context),
            started: false,
            established: false,
            end: None,
            succeeded: false,
            phase,
            rng: SecureRng::from_seed(context.rng.array()),
            wall: context.wall,
            asked: 0,
            identifier: 0,
        }
    }

    /// Has phase 2 do something, and says what the run's verdict is then.
    fn turn(&mut self, act: impl FnOnce(&mut P, Tunnel<'_>, &mut Vec<u8>) -> Step) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        let mut out = Vec::new();
        let tunnel = Tunnel {
            conn,
            rng: SecureRng::from_seed(self.rng.array()),
            wall: self.wall,
            identifier: self.identifier,
            asked: self.asked,
        };
        let step = act(&mut self.phase, tunnel, &mut out);
        match step {
            Step::Ignore => ServerVerdict::Ignore,
            Step::Ask => ServerVerdict::Ask,
            Step::Wait => ServerVerdict::Continue,
            Step::Say if conn.write(&out) => ServerVerdict::Continue,
            Step::Say => ServerVerdict::Failure,
            Step::Success | Step::Failure if conn.sending() => {
                self.end = Some(step == Step::Success);
                ServerVerdict::Continue
            }
            Step::Success => self.succeed(),
            Step::Failure => ServerVerdict::Failure,
        }
    }

    fn succeed(&mut self) -> ServerVerdict {
        self.succeeded = true;
        ServerVerdict::Success
    }

    /// A whole message came.
    fn message(&mut self) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        if !conn.digest() {
            self.end = Some(false);
            return if conn.sending() { ServerVerdict::Continue } else { ServerVerdict::Failure };
        }
        if conn.engine.is_handshaking() {
            return if conn.sending() { ServerVerdict::Continue } else { ServerVerdict::Failure };
        }
        let data = application(conn);
        match (core::mem::replace(&mut self.established, true), data.is_empty()) {
            (false, true) => {
                let resumed = conn.remembered();
                self.turn(|p, tunnel, out| p.established(resumed, tunnel, out))
            }
            // RFC 9427 §4: data may come with the handshake's end.
            (_, false) => self.turn(|p, tunnel, out| p.data(&data, tunnel, out)),
            // Records without data are an empty response.
            (true, true) => self.turn(|p, tunnel, out| p.nothing(tunnel, out)),
        }
    }
}

impl<P: ServerPhase> ServerMethod for TunnelServer<P> {
    fn build(&mut self, identifier: u8, out: &mut Vec<u8>) {
        match &mut self.conn {
            Some(conn) if self.started => {
                let said = conn.sending();
                conn.build(out);
                if said && !conn.sending() {
                    self.asked = identifier;
                }
            }
            _ => {
                self.started = true;
                out.push(START);
            }
        }
    }

    fn response(&mut self, identifier: u8, data: &[u8]) -> ServerVerdict {
        let Some(conn) = &mut self.conn else { return ServerVerdict::Failure };
        // Version 0 was offered, and there is none below it (RFC 5281 §9.2.1).
        if data.first().is_some_and(|flags| flags & VERSION != 0) {
            return ServerVerdict::Failure;
        }
        self.identifier = identifier;
        match (conn.read(data), conn.sending(), self.end) {
            (Piece::Nothing, true, _) => ServerVerdict::Continue,
            (Piece::Nothing | Piece::Whole, false, Some(true)) => self.succeed(),
            (Piece::Nothing | Piece::Whole, false, Some(false)) | (Piece::Bad, ..) => ServerVerdict::Failure,
            (Piece::Nothing, false, None) if self.established => {
                conn.rewind();
                self.turn(|p, tunnel, out| p.nothing(tunnel, out))
            }
            (Piece::More, false, None) => {
                conn.rewind();
                ServerVerdict::Continue
            }
            (Piece::Whole, false, None) => self.message(),
            _ => ServerVerdict::Ignore,
        }
    }

    fn question(&mut self) -> Option<Question> {
        self.phase.question()
    }

    fn answer(&mut self, answer: Answer) -> ServerVerdict {
        if let (Answer::Resume(false), Some(conn)) = (&answer, &mut self.conn) {
            conn.engine.end_session();
        }
        match self.turn(|p, tunnel, out| p.answer(answer, tunnel, out)) {
            ServerVerdict::Ignore => ServerVerdict::Failure,
            verdict => verdict,
        }
    }

    fn refuses(&self) -> bool {
        match self.end {
            Some(succeeds) => !succeeds,
            None => self.phase.refuses(),
        }
    }

    fn fault(&self) -> Fault {
        server_fault(self.conn.as_ref(), self.phase.fault())
    }

    fn detail(&self) -> Option<String> {
        server_detail(self.conn.as_ref())
    }

    fn keys(&self) -> Option<Keys> {
        let keys = self.conn.as_ref().filter(|_| self.succeeded)?.keys(self.kind)?;
        Some(self.phase.keys(keys))
    }

    fn identity(&self) -> Option<&[u8]> {
        self.phase.identity()
    }

    fn inner(&self) -> Option<Inner> {
        self.phase.inner()
    }

    fn resumed(&self) -> bool {
        self.conn.as_ref().is_some_and(|conn| conn.engine.resumed())
    }

    fn remember(&mut self, name: &[u8], credential: &Credential) {
        let inner = self.phase.inner();
        if let Some(conn) = self.conn.as_mut().filter(|_| self.succeeded) {
            conn.remember(name, credential, inner);
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
        self.conn.as_mut()?.poll_work().or_else(|| self.phase.poll_work())
    }
}
