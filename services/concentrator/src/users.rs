//! Users that a concentrator knows itself.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_access::FailureLimit;
use usher_core::{SecureRng, WallTime, Work};
use usher_crypto::Key;
use usher_crypto::digest::{equal, md5};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_eap::method::{Answer, Context, ServerOffer, UserSecret, md5 as eap_md5, mschapv2};
use usher_eap::packet::Type;
use usher_eap::server::{Event, Server};
use usher_ppp::auth::Proof;

/// Users that a concentrator knows itself.
#[derive(Clone, Default)]
pub struct LocalUsers {
    /// The EAP methods that are proposed, the preferred one first: EAP-MSCHAPv2 and EAP-MD5 are known.
    pub methods: Vec<Type>,
    /// Passwords by names.
    pub passwords: Arc<BTreeMap<Vec<u8>, Key>>,
    /// How many failed logins under a name, or from a station, hold it back; `None`: nobody is.
    pub failures: Option<FailureLimit>,
}

impl fmt::Debug for LocalUsers {
    /// Without the passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalUsers")
            .field("methods", &self.methods)
            .field("users", &self.passwords.len())
            .finish_non_exhaustive()
    }
}

/// What becomes of a proof.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// An EAP request for the host.
    Continue(Vec<u8>),
    /// The user is in, with what the host is to be told.
    Accept(Vec<u8>),
    /// The user is out.
    Reject(Vec<u8>),
}

fn offer(kind: Type, secret: &Key) -> Option<Box<dyn ServerOffer>> {
    match kind {
        Type::MD5 => Some(Box::new(eap_md5::Password::new(secret))),
        Type::MSCHAPV2 => {
            let hash = mschapv2::Hash::new(&UserSecret::Clear(secret.clone()))?;
            Some(Box::new(hash))
        }
        _ => None,
    }
}

impl LocalUsers {
    /// A proof of one round.
    pub(crate) fn judge(&self, name: &[u8], proof: &Proof) -> Verdict {
        let refused = || Verdict::Reject(Vec::new());
        let Some(secret) = self.passwords.get(name) else { return refused() };
        let holds = match proof {
            Proof::Pap(password) => equal(&password[..], &secret[..]),
            Proof::Chap { identifier, challenge, response } => {
                equal(&md5(&[&[*identifier], &secret[..], challenge]), response)
            }
            Proof::MsChapV2 { challenge, peer_challenge, response, .. } => {
                let hash = nt_hash(&secret[..]);
                if !equal(&mschap::nt_response(challenge, peer_challenge, name, &hash), response) {
                    return refused();
                }
                let said = mschap::authenticator_response(&hash, response, peer_challenge, challenge, name);
                return Verdict::Accept(said.to_vec());
            }
            Proof::Eap(_) => false,
        };
        if holds { Verdict::Accept(Vec::new()) } else { refused() }
    }

    /// A conversation that begins with the host's Identity response. Who is not known is asked as whoever is, and turned away.
    pub(crate) fn begin(
        &self,
        name: &[u8],
        packet: &[u8],
        wall: WallTime,
        rng: &mut SecureRng,
    ) -> Conversation {
        let stand_in = || Key::from(&rng.array::<32>()[..]);
        let secret = self.passwords.get(name).cloned().unwrap_or_else(stand_in);
        let offers = self.methods.iter().filter_map(|kind| offer(*kind, &secret)).collect();
        let identifier = packet.get(1).copied().unwrap_or(0);
        let context = Context { rng, wall, mtu: None, without_extended_master_secret: false };
        Conversation { server: Server::new(offers, identifier, context) }
    }
}

/// A conversation with a host by EAP.
#[derive(Debug)]
pub(crate) struct Conversation {
    server: Server,
}

impl Conversation {
    pub(crate) fn handle(&mut self, packet: &[u8]) {
        self.server.handle(packet);
    }
    /// Whether the host has been told that its password is wrong, whatever follows.
    pub(crate) fn refuses(&self) -> bool {
        self.server.refuses()
    }
    pub(crate) fn verdict(&mut self) -> Verdict {
        let mut packet = Vec::new();
        let sends = self.server.poll_transmit(&mut packet);
        match self.server.poll_event() {
            Some(Event::Success { .. }) => Verdict::Accept(packet),
            Some(Event::Failure { .. }) => Verdict::Reject(packet),
            Some(Event::Ask(_)) => {
                // No method that is offered here asks.
                self.server.answer(Answer::Unavailable);
                self.verdict()
            }
            None if sends => Verdict::Continue(packet),
            // What was discarded is asked again: an answer is owed.
            None => Verdict::Continue(self.server.open_request().unwrap_or_default().to_vec()),
        }
    }
    pub(crate) fn work(&mut self) -> impl Iterator<Item = Work> {
        core::iter::from_fn(|| self.server.poll_work())
    }
}
