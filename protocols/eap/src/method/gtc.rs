//! EAP-GTC, the Generic Token Card (RFC 3748 §5.6): the password itself as text. It derives no keys and belongs inside
//! a TLS tunnel.

use super::{
    MethodContext, MethodFault, PeerMethod, PeerOffer, PeerVerdict, ServerMethod, ServerOffer, ServerVerdict,
    UserAnswer, UserQuery, UserSecret,
};
use crate::packet::EapType;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_crypto::SecretValue;

/// The prompt to the user.
const PROMPT: &[u8] = b"Password";

/// A peer's password or token.
#[derive(Clone)]
pub struct GtcToken(Arc<SecretValue>);

impl GtcToken {
    /// Takes the password as the user types it.
    #[must_use]
    pub fn new(password: &[u8]) -> Self {
        Self(Arc::new(password.into()))
    }
}

impl fmt::Debug for GtcToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl PeerOffer for GtcToken {
    fn kind(&self) -> EapType {
        EapType::GTC
    }
    fn start_peer_method(&self, _: MethodContext<'_>) -> Box<dyn PeerMethod> {
        Box::new(GtcPeer(self.clone()))
    }
}

#[derive(Debug)]
struct GtcPeer(GtcToken);

impl PeerMethod for GtcPeer {
    fn handle_request(&mut self, _: u8, _: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        out.extend_from_slice(&self.0.0);
        // The server decides; another prompt may follow.
        PeerVerdict::MayEnd
    }
}

/// The server's side for a user with this secret. If only the host can compare, the method sends
/// [`UserQuery::Password`].
#[derive(Clone, Debug)]
pub struct GtcPrompt(UserSecret);

impl GtcPrompt {
    /// Returns the method for a user with this secret.
    #[must_use]
    pub const fn new(secret: UserSecret) -> Self {
        Self(secret)
    }
}

impl ServerOffer for GtcPrompt {
    fn kind(&self) -> EapType {
        EapType::GTC
    }
    fn start_server_method(&self, _: MethodContext<'_>) -> Box<dyn ServerMethod> {
        Box::new(GtcServer { secret: self.0.clone(), pending_password: None, is_host_undecided: false })
    }
}

struct GtcServer {
    secret: UserSecret,
    /// The received password, for the pending query.
    pending_password: Option<SecretValue>,
    /// True if the host could not answer.
    is_host_undecided: bool,
}

impl fmt::Debug for GtcServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GtcServer(..)")
    }
}

const fn proof_verdict(right: bool) -> ServerVerdict {
    if right { ServerVerdict::Success } else { ServerVerdict::Failure }
}

impl ServerMethod for GtcServer {
    fn build_request(&mut self, _: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(PROMPT);
    }
    fn handle_response(&mut self, _: u8, data: &[u8]) -> ServerVerdict {
        match self.secret.matches_password(data) {
            Some(right) => proof_verdict(right),
            None => {
                self.pending_password = Some(data.into());
                ServerVerdict::QueryPending
            }
        }
    }
    fn take_query(&mut self) -> Option<UserQuery> {
        self.pending_password.take().map(|password| UserQuery::Password { password })
    }
    fn apply_answer(&mut self, answer: UserAnswer) -> ServerVerdict {
        self.is_host_undecided = !matches!(answer, UserAnswer::Password(_));
        proof_verdict(answer == UserAnswer::Password(true))
    }
    fn fault(&self) -> MethodFault {
        if self.is_host_undecided { MethodFault::Host } else { MethodFault::Proof }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::{SecureRng, Seed, WallTime};

    fn test_context(rng: &mut SecureRng) -> MethodContext<'_> {
        MethodContext {
            rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        }
    }

    fn gtc_server(secret: UserSecret) -> Box<dyn ServerMethod> {
        let mut rng = Seed::new(1).derive_secure_rng("gtc", 0);
        ServerOffer::start_server_method(&GtcPrompt::new(secret), test_context(&mut rng))
    }

    #[test]
    fn the_password_goes_as_it_is() {
        let mut rng = Seed::new(1).derive_secure_rng("gtc", 0);
        let mut peer = PeerOffer::start_peer_method(&GtcToken::new(b"pencil"), test_context(&mut rng));
        let mut out = Vec::new();
        assert_eq!(peer.handle_request(7, b"Password", &mut out), PeerVerdict::MayEnd);
        assert_eq!(out, b"pencil");
    }

    #[test]
    fn a_secret_is_compared_in_the_form_in_which_it_is_kept() {
        for secret in [
            UserSecret::Clear(b"pencil"[..].into()),
            UserSecret::NtHash(usher_crypto::legacy::nt_hash(b"pencil").into()),
        ] {
            assert_eq!(gtc_server(secret.clone()).handle_response(1, b"pencil"), ServerVerdict::Success);
            assert_eq!(gtc_server(secret).handle_response(1, b"pen"), ServerVerdict::Failure);
        }
    }

    #[test]
    fn what_only_the_host_can_compare_is_asked() {
        for (answer, want) in [
            (UserAnswer::Password(true), ServerVerdict::Success),
            (UserAnswer::Password(false), ServerVerdict::Failure),
            (UserAnswer::Unavailable, ServerVerdict::Failure),
        ] {
            let mut server = gtc_server(UserSecret::Hashed);
            assert_eq!(server.handle_response(1, b"pencil"), ServerVerdict::QueryPending);
            let Some(UserQuery::Password { password }) = server.take_query() else { panic!("no question") };
            assert_eq!(*password, b"pencil");
            assert!(server.take_query().is_none());
            assert_eq!(server.apply_answer(answer), want);
        }
    }
}
