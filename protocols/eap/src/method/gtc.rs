//! EAP-GTC, the Generic Token Card (RFC 3748 §5.6): the password itself as text. It derives no keys and belongs inside
//! a TLS tunnel.

use super::{
    EapMethodContext, PeerMethod, PeerMethodFactory, PeerMethodResult, ServerMethod, ServerMethodFactory,
    ServerMethodFailure, ServerMethodResult, UserQuery, UserQueryAnswer, UserSecret,
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

impl PeerMethodFactory for GtcToken {
    fn kind(&self) -> EapType {
        EapType::GTC
    }
    fn start_peer_method(&self, _: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        Box::new(GtcPeer(self.clone()))
    }
}

#[derive(Debug)]
struct GtcPeer(GtcToken);

impl PeerMethod for GtcPeer {
    fn handle_request(&mut self, _: u8, _: &[u8], out: &mut Vec<u8>) -> PeerMethodResult {
        out.extend_from_slice(&self.0.0);
        // The server decides; another prompt may follow.
        PeerMethodResult::MayEnd
    }
}

/// The server's side for a user with this secret. If only the host can compare, the method sends
/// [`UserQuery::Password`].
#[derive(Clone, Debug)]
pub struct GtcServerFactory(UserSecret);

impl GtcServerFactory {
    /// Returns the method for a user with this secret.
    #[must_use]
    pub const fn new(secret: UserSecret) -> Self {
        Self(secret)
    }
}

impl ServerMethodFactory for GtcServerFactory {
    fn kind(&self) -> EapType {
        EapType::GTC
    }
    fn start_server_method(&self, _: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
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

const fn password_proof_result(right: bool) -> ServerMethodResult {
    if right { ServerMethodResult::Success } else { ServerMethodResult::Failure }
}

impl ServerMethod for GtcServer {
    fn build_request(&mut self, _: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(PROMPT);
    }
    fn handle_response(&mut self, _: u8, data: &[u8]) -> ServerMethodResult {
        match self.secret.matches_password(data) {
            Some(right) => password_proof_result(right),
            None => {
                self.pending_password = Some(data.into());
                ServerMethodResult::QueryPending
            }
        }
    }
    fn take_query(&mut self) -> Option<UserQuery> {
        self.pending_password.take().map(|password| UserQuery::Password { password })
    }
    fn apply_answer(&mut self, answer: UserQueryAnswer) -> ServerMethodResult {
        self.is_host_undecided = !matches!(answer, UserQueryAnswer::Password(_));
        password_proof_result(answer == UserQueryAnswer::Password(true))
    }
    fn fault(&self) -> ServerMethodFailure {
        if self.is_host_undecided { ServerMethodFailure::Host } else { ServerMethodFailure::Proof }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::{SecureRng, Seed, WallTime};

    fn test_context(rng: &mut SecureRng) -> EapMethodContext<'_> {
        EapMethodContext {
            rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        }
    }

    fn gtc_server(secret: UserSecret) -> Box<dyn ServerMethod> {
        let mut rng = Seed::new(1).derive_secure_rng("gtc", 0);
        ServerMethodFactory::start_server_method(&GtcServerFactory::new(secret), test_context(&mut rng))
    }

    #[test]
    fn the_password_goes_as_it_is() {
        let mut rng = Seed::new(1).derive_secure_rng("gtc", 0);
        let mut peer =
            PeerMethodFactory::start_peer_method(&GtcToken::new(b"pencil"), test_context(&mut rng));
        let mut out = Vec::new();
        assert_eq!(peer.handle_request(7, b"Password", &mut out), PeerMethodResult::MayEnd);
        assert_eq!(out, b"pencil");
    }

    #[test]
    fn a_secret_is_compared_in_the_form_in_which_it_is_kept() {
        for secret in [
            UserSecret::Clear(b"pencil"[..].into()),
            UserSecret::NtHash(usher_crypto::legacy::nt_hash(b"pencil").into()),
        ] {
            assert_eq!(gtc_server(secret.clone()).handle_response(1, b"pencil"), ServerMethodResult::Success);
            assert_eq!(gtc_server(secret).handle_response(1, b"pen"), ServerMethodResult::Failure);
        }
    }

    #[test]
    fn what_only_the_host_can_compare_is_asked() {
        for (answer, want) in [
            (UserQueryAnswer::Password(true), ServerMethodResult::Success),
            (UserQueryAnswer::Password(false), ServerMethodResult::Failure),
            (UserQueryAnswer::Unavailable, ServerMethodResult::Failure),
        ] {
            let mut server = gtc_server(UserSecret::Hashed);
            assert_eq!(server.handle_response(1, b"pencil"), ServerMethodResult::QueryPending);
            let Some(UserQuery::Password { password }) = server.take_query() else { panic!("no question") };
            assert_eq!(*password, b"pencil");
            assert!(server.take_query().is_none());
            assert_eq!(server.apply_answer(answer), want);
        }
    }
}
