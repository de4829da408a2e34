//! Local users of a concentrator.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_access::LoginFailureLimit;
use usher_core::{SecureRng, WallTime, WorkRecord};
use usher_crypto::SecretValue;
use usher_crypto::digest::{constant_time_eq, md5};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_eap::method::{
    EapMethodContext, ServerMethodFactory, UserQueryAnswer, UserSecret, md5 as eap_md5, mschapv2,
};
use usher_eap::packet::EapType;
use usher_eap::server::{EapServer, EapServerEvent};
use usher_ppp::auth::AuthenticationProof;

/// Local users of a concentrator.
#[derive(Clone, Default)]
pub struct LocalUsers {
    /// The EAP methods to propose, by preference: EAP-MSCHAPv2 and EAP-MD5 are supported.
    pub methods: Vec<EapType>,
    /// Passwords by user name.
    pub passwords: Arc<BTreeMap<Vec<u8>, SecretValue>>,
    /// Failed attempts of a name or station that lead to a lockout; `None`: no lockout.
    pub failures: Option<LoginFailureLimit>,
}

impl fmt::Debug for LocalUsers {
    /// Omits the passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalUsers")
            .field("methods", &self.methods)
            .field("users", &self.passwords.len())
            .finish_non_exhaustive()
    }
}

/// The verdict on a proof.
#[derive(Debug)]
pub(crate) enum LocalVerdict {
    /// Send this EAP request.
    Continue(Vec<u8>),
    /// The user is accepted, with this message.
    Accept(Vec<u8>),
    /// The user is rejected, with this message.
    Reject(Vec<u8>),
}

fn server_offer(kind: EapType, secret: &SecretValue) -> Option<Box<dyn ServerMethodFactory>> {
    match kind {
        EapType::MD5 => Some(Box::new(eap_md5::EapMd5Password::new(secret))),
        EapType::MSCHAPV2 => {
            let hash = mschapv2::MsChapV2ServerFactory::new(&UserSecret::Clear(secret.clone()))?;
            Some(Box::new(hash))
        }
        _ => None,
    }
}

impl LocalUsers {
    /// Verifies a proof without further rounds (PAP, CHAP, MS-CHAPv2).
    pub(crate) fn verify_proof(&self, name: &[u8], proof: &AuthenticationProof) -> LocalVerdict {
        let refused = || LocalVerdict::Reject(Vec::new());
        let Some(secret) = self.passwords.get(name) else { return refused() };
        let holds = match proof {
            AuthenticationProof::Pap(password) => constant_time_eq(&password[..], &secret[..]),
            AuthenticationProof::Chap { identifier, challenge, response } => {
                constant_time_eq(&md5(&[&[*identifier], &secret[..], challenge]), response)
            }
            AuthenticationProof::MsChapV2 { challenge, peer_challenge, response, .. } => {
                let hash = nt_hash(&secret[..]);
                if !constant_time_eq(&mschap::nt_response(challenge, peer_challenge, name, &hash), response) {
                    return refused();
                }
                let said = mschap::authenticator_response(&hash, response, peer_challenge, challenge, name);
                return LocalVerdict::Accept(said.to_vec());
            }
            AuthenticationProof::Eap(_) => false,
        };
        if holds { LocalVerdict::Accept(Vec::new()) } else { refused() }
    }

    /// Starts a conversation by the host's Identity response. Unknown users get the same requests as known ones, and a
    /// reject.
    pub(crate) fn start_conversation(
        &self,
        name: &[u8],
        packet: &[u8],
        wall: WallTime,
        rng: &mut SecureRng,
    ) -> EapConversation {
        let stand_in = || SecretValue::from(&rng.random_array::<32>()[..]);
        let secret = self.passwords.get(name).cloned().unwrap_or_else(stand_in);
        let offers = self.methods.iter().filter_map(|kind| server_offer(*kind, &secret)).collect();
        let identifier = packet.get(1).copied().unwrap_or(0);
        let context = EapMethodContext { rng, wall, mtu: None, without_extended_master_secret: false };
        EapConversation { server: EapServer::new(offers, identifier, context) }
    }
}

/// An EAP conversation with a host.
#[derive(Debug)]
pub(crate) struct EapConversation {
    server: EapServer,
}

impl EapConversation {
    pub(crate) fn handle_packet(&mut self, packet: &[u8]) {
        self.server.handle_packet(packet);
    }
    /// True once the host was told that its password is wrong.
    pub(crate) fn has_refused(&self) -> bool {
        self.server.is_refusing()
    }
    pub(crate) fn next_eap_verdict(&mut self) -> LocalVerdict {
        let mut packet = Vec::new();
        let sends = self.server.poll_transmit(&mut packet);
        match self.server.poll_event() {
            Some(EapServerEvent::Success { .. }) => LocalVerdict::Accept(packet),
            Some(EapServerEvent::Failure { .. }) => LocalVerdict::Reject(packet),
            Some(EapServerEvent::Query(_)) => {
                // No supported EAP method needs data about the user, so this query gets none.
                self.server.apply_answer(UserQueryAnswer::Unavailable);
                self.next_eap_verdict()
            }
            None if sends => LocalVerdict::Continue(packet),
            // The response was discarded: repeat the request.
            None => LocalVerdict::Continue(self.server.open_request().unwrap_or_default().to_vec()),
        }
    }
    pub(crate) fn drain_work(&mut self) -> impl Iterator<Item = WorkRecord> {
        core::iter::from_fn(|| self.server.poll_work())
    }
}
