//! EAP-GTC, the Generic Token Card (RFC 3748 §5.6): the password itself, as text. It gives no key, and belongs inside
//! a TLS tunnel.

use super::{
    Answer, Context, Fault, PeerMethod, PeerOffer, PeerVerdict, Question, ServerMethod, ServerOffer,
    ServerVerdict, UserSecret,
};
use crate::packet::Type;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_crypto::Key;

/// What the server shows to the user.
const PROMPT: &[u8] = b"Password";

/// A peer's password or token.
#[derive(Clone)]
pub struct Token(Arc<Key>);

impl Token {
    /// As the user types it.
    #[must_use]
    pub fn new(password: &[u8]) -> Self {
        Self(Arc::new(password.into()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl PeerOffer for Token {
    fn kind(&self) -> Type {
        Type::GTC
    }
    fn begin(&self, _: Context<'_>) -> Box<dyn PeerMethod> {
        Box::new(GtcPeer(self.clone()))
    }
}

#[derive(Debug)]
struct GtcPeer(Token);

impl PeerMethod for GtcPeer {
    fn request(&mut self, _: u8, _: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        out.extend_from_slice(&self.0.0);
        // The server decides; another prompt may follow.
        PeerVerdict::MayEnd
    }
}

/// The server's side, for a user with this secret. Where only the host can compare, the method asks
/// [`Question::Password`].
#[derive(Clone, Debug)]
pub struct Prompt(UserSecret);

impl Prompt {
    /// For a user with this secret.
    #[must_use]
    pub const fn new(secret: UserSecret) -> Self {
        Self(secret)
    }
}

impl ServerOffer for Prompt {
    fn kind(&self) -> Type {
        Type::GTC
    }
    fn begin(&self, _: Context<'_>) -> Box<dyn ServerMethod> {
        Box::new(GtcServer { secret: self.0.clone(), asked: None, unsaid: false })
    }
}

struct GtcServer {
    secret: UserSecret,
    /// A password that waits to be asked about.
    asked: Option<Key>,
    /// The host could not say.
    unsaid: bool,
}

impl fmt::Debug for GtcServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GtcServer(..)")
    }
}

const fn verdict(right: bool) -> ServerVerdict {
    if right { ServerVerdict::Success } else { ServerVerdict::Failure }
}

impl ServerMethod for GtcServer {
    fn build(&mut self, _: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(PROMPT);
    }
    fn response(&mut self, _: u8, data: &[u8]) -> ServerVerdict {
        match self.secret.proves(data) {
            Some(right) => verdict(right),
            None => {
                self.asked = Some(data.into());
                ServerVerdict::Ask
            }
        }
    }
    fn question(&mut self) -> Option<Question> {
        self.asked.take().map(|password| Question::Password { password })
    }
    fn answer(&mut self, answer: Answer) -> ServerVerdict {
        self.unsaid = !matches!(answer, Answer::Password(_));
        verdict(answer == Answer::Password(true))
    }
    fn fault(&self) -> Fault {
        if self.unsaid { Fault::Host } else { Fault::Proof }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::{SecureRng, Seed, WallTime};

    fn context(rng: &mut SecureRng) -> Context<'_> {
        Context { rng, wall: WallTime::from_unix_secs(0), mtu: None, without_extended_master_secret: false }
    }

    fn server(secret: UserSecret) -> Box<dyn ServerMethod> {
        let mut rng = Seed::new(1).secure("gtc", 0);
        ServerOffer::begin(&Prompt::new(secret), context(&mut rng))
    }

    #[test]
    fn the_password_goes_as_it_is() {
        let mut rng = Seed::new(1).secure("gtc", 0);
        let mut peer = PeerOffer::begin(&Token::new(b"pencil"), context(&mut rng));
        let mut out = Vec::new();
        assert_eq!(peer.request(7, b"Password", &mut out), PeerVerdict::MayEnd);
        assert_eq!(out, b"pencil");
    }

    #[test]
    fn a_secret_is_compared_in_the_form_in_which_it_is_kept() {
        for secret in [
            UserSecret::Clear(b"pencil"[..].into()),
            UserSecret::NtHash(usher_crypto::legacy::nt_hash(b"pencil").into()),
        ] {
            assert_eq!(server(secret.clone()).response(1, b"pencil"), ServerVerdict::Success);
            assert_eq!(server(secret).response(1, b"pen"), ServerVerdict::Failure);
        }
    }

    #[test]
    fn what_only_the_host_can_compare_is_asked() {
        for (answer, want) in [
            (Answer::Password(true), ServerVerdict::Success),
            (Answer::Password(false), ServerVerdict::Failure),
            (Answer::Unavailable, ServerVerdict::Failure),
        ] {
            let mut server = server(UserSecret::Hashed);
            assert_eq!(server.response(1, b"pencil"), ServerVerdict::Ask);
            let Some(Question::Password { password }) = server.question() else { panic!("no question") };
            assert_eq!(*password, b"pencil");
            assert!(server.question().is_none());
            assert_eq!(server.answer(answer), want);
        }
    }
}
