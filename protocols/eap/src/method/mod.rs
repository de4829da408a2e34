//! EAP methods: what runs inside the automata of peer and server, behind two small traits.

pub mod md5;
#[cfg(feature = "tls")]
pub mod tls;

use crate::Keys;
use crate::packet::Type;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{SecureRng, WallTime, Work};

/// What a peer's method makes of a request: `methodState` and `decision` of RFC 4137 §4.2 in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerVerdict {
    /// The request is not for this state: it is discarded, as if it never came.
    Ignore,
    /// The method goes on; a Success now would be premature (CONT, FAIL).
    Continue,
    /// The method may end here, as the server decides (MAY_CONT, COND_SUCC).
    MayEnd,
    /// The method is done and the peer content: Success is expected (DONE, UNCOND_SUCC).
    Done,
    /// The method failed; what follows can only be Failure (DONE, FAIL).
    Failed,
}

/// One run of a method in a peer.
pub trait PeerMethod: fmt::Debug + Send {
    /// Takes the data of a request of this method's type, and appends the data of the response unless it
    /// answers [`PeerVerdict::Ignore`].
    fn request(&mut self, identifier: u8, data: &[u8], out: &mut Vec<u8>) -> PeerVerdict;
    /// The keys, once there are some.
    fn keys(&self) -> Option<Keys> {
        None
    }
    /// The next piece of work done since the last poll.
    fn poll_work(&mut self) -> Option<Work> {
        None
    }
}

/// What a server's method makes of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerVerdict {
    /// The response is not for this state: it is discarded, as if it never came.
    Ignore,
    /// The method goes on with another request.
    Continue,
    /// The peer is who it says.
    Success,
    /// It is not.
    Failure,
}

/// One run of a method in a server.
pub trait ServerMethod: fmt::Debug + Send {
    /// Appends the data of the next request, which will have this identifier.
    fn build(&mut self, identifier: u8, out: &mut Vec<u8>);
    /// Takes the data of a response of this method's type to the last request.
    fn response(&mut self, identifier: u8, data: &[u8]) -> ServerVerdict;
    /// The keys, once there are some.
    fn keys(&self) -> Option<Keys> {
        None
    }
    /// The next piece of work done since the last poll.
    fn poll_work(&mut self) -> Option<Work> {
        None
    }
}

/// What a method may need that only its host has.
#[derive(Debug)]
pub struct Context<'a> {
    /// The session's chance.
    pub rng: &'a mut SecureRng,
    /// The time of day, for certificates.
    pub wall: WallTime,
}

/// A method that a peer can do, and how to begin one run of it.
pub trait PeerOffer: fmt::Debug + Send + Sync {
    /// Its type.
    fn kind(&self) -> Type;
    /// Begins a run.
    fn begin(&self, context: Context<'_>) -> Box<dyn PeerMethod>;
}

/// A method that a server can do, and how to begin one run of it.
pub trait ServerOffer: fmt::Debug + Send + Sync {
    /// Its type.
    fn kind(&self) -> Type;
    /// Begins a run.
    fn begin(&self, context: Context<'_>) -> Box<dyn ServerMethod>;
}
