//! The EAP side of a login: one method for all users, one peer for each login.

use crate::tally::LoginFailure;
use std::sync::Arc;
use usher_core::{Duration, Instant, SecureRng, WallTime};
use usher_crypto::SecretValue;
use usher_crypto::tls::ClientConfig;
use usher_eap::method::peap::PeerMethodPeap;
use usher_eap::method::tls::{PeerMethodTls, PeerTls};
use usher_eap::method::ttls::{PeerMethodTtls, TtlsProof};
use usher_eap::method::{PeerOffer, gtc, md5, mschapv2};
use usher_eap::packet::{self, EapType};
use usher_eap::peer::{self, EapPeer};
use usher_eap::{EapKeys, packet::EapCode};

/// More rounds than any login takes: a chain of many certificates in the shortest fragments.
const MOST_ROUNDS: u16 = 500;
/// The peer's patience. The client's retransmission decides before.
const PEER_TIMEOUT: Duration = Duration::from_secs(3_600);

/// What users prove themselves by.
#[derive(Clone, Debug)]
pub enum EapMethod {
    /// EAP-MD5-Challenge: the password.
    Md5,
    /// EAP-GTC: the password in clear, outside any tunnel.
    Gtc,
    /// EAP-MSCHAPv2.
    MsChapV2,
    /// EAP-TLS.
    Tls(EapTlsConfig),
    /// PEAPv0 with an EAP method inside.
    Peap(EapTlsConfig, PeapInner),
    /// EAP-TTLS (RFC 5281).
    Ttls(EapTlsConfig, TtlsInner),
}

/// The TLS of a method.
#[derive(Clone, Debug)]
pub struct EapTlsConfig {
    /// Certificates, versions, authorities: of all users that have none of their own.
    pub config: ClientConfig,
    /// Each user's own, by number; empty: all have the same.
    pub each: Arc<[ClientConfig]>,
    /// The longest EAP packet sent, octets.
    pub fragment: usize,
    /// Whether each user takes up its earlier session; the configuration must keep sessions.
    pub resume: bool,
}

/// What runs inside PEAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeapInner {
    /// EAP-MSCHAPv2.
    MsChapV2,
    /// EAP-GTC.
    Gtc,
}

/// What runs inside EAP-TTLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TtlsInner {
    /// User-Password.
    Pap,
    /// CHAP-Password.
    Chap,
    /// MS-CHAP.
    MsChap,
    /// MS-CHAP-V2.
    MsChapV2,
    /// EAP-MD5-Challenge.
    EapMd5,
    /// EAP-GTC.
    EapGtc,
    /// EAP-MSCHAPv2.
    EapMsChapV2,
}

impl EapMethod {
    /// Whether it gives keys, which a server must send (RFC 3579, RFC 2548).
    pub(crate) const fn exports_keys(&self) -> bool {
        !matches!(self, Self::Md5 | Self::Gtc)
    }
    /// Whether a login can be wrong, so that it must be turned away: by a wrong password, or by the certificate of
    /// another user.
    #[must_use]
    pub fn is_deniable(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.each.len() > 1,
            _ => true,
        }
    }
    /// Whether the user's name is said within a tunnel, so that another may be outside.
    #[must_use]
    pub const fn has_tunnel(&self) -> bool {
        matches!(self, Self::Peap(..) | Self::Ttls(..))
    }

    /// What a peer of this user does when it is asked for the method.
    pub(crate) fn peer_offer(&self, who: LoginCredentials<'_>) -> Box<dyn PeerOffer> {
        match self {
            Self::Md5 => Box::new(md5::Md5Password::new(who.password)),
            Self::Gtc => Box::new(gtc::GtcToken::new(who.password)),
            Self::MsChapV2 => Box::new(mschapv2::MsChapV2Account::new(who.name, who.password)),
            Self::Tls(tls) => Box::new(PeerMethodTls { tls: tls.peer_tls(who), fragment: tls.fragment }),
            Self::Peap(tls, inner) => {
                let inner: Box<dyn PeerOffer> = match inner {
                    PeapInner::MsChapV2 => Box::new(mschapv2::MsChapV2Account::new(who.name, who.password)),
                    PeapInner::Gtc => Box::new(gtc::GtcToken::new(who.password)),
                };
                Box::new(PeerMethodPeap {
                    tls: tls.peer_tls(who),
                    fragment: tls.fragment,
                    identity: who.name.to_vec(),
                    inner: Arc::new([inner]),
                })
            }
            Self::Ttls(tls, inner) => {
                let eap = |offer: Box<dyn PeerOffer>| TtlsProof::Eap(Arc::new([offer]));
                let password = SecretValue::from(who.password);
                let proof = match inner {
                    TtlsInner::Pap => TtlsProof::Pap(password),
                    TtlsInner::Chap => TtlsProof::Chap(password),
                    TtlsInner::MsChap => TtlsProof::MsChap(password),
                    TtlsInner::MsChapV2 => TtlsProof::MsChapV2(password),
                    TtlsInner::EapMd5 => eap(Box::new(md5::Md5Password::new(&password))),
                    TtlsInner::EapGtc => eap(Box::new(gtc::GtcToken::new(&password))),
                    TtlsInner::EapMsChapV2 => {
                        eap(Box::new(mschapv2::MsChapV2Account::new(who.name, &password)))
                    }
                };
                Box::new(PeerMethodTtls {
                    tls: tls.peer_tls(who),
                    fragment: tls.fragment,
                    identity: who.name.to_vec(),
                    proof,
                })
            }
        }
    }
}

impl EapTlsConfig {
    fn peer_tls(&self, who: LoginCredentials<'_>) -> PeerTls {
        // Another user's: the next one's.
        let number = if who.wrong { (who.number + 1) % self.each.len().max(1) } else { who.number };
        let config = self.each.get(number).unwrap_or(&self.config);
        PeerTls::Real(config.clone(), if self.resume { who.number as u64 } else { 0 })
    }
}

/// What an EAP packet of the server led to.
#[derive(Debug)]
pub(crate) enum ConversationStep {
    /// The response is in the buffer.
    Respond,
    /// The method is over.
    MethodEnded(peer::EapPeerEvent),
}

/// Whose conversation it is.
#[derive(Clone, Copy)]
pub(crate) struct LoginCredentials<'a> {
    /// The user's number.
    pub(crate) number: usize,
    /// What is answered to the Identity request.
    pub(crate) outer: &'a [u8],
    /// The user's name, inside a tunnel too.
    pub(crate) name: &'a [u8],
    pub(crate) password: &'a [u8],
    /// The login is to be turned away: the password is wrong already.
    pub(crate) wrong: bool,
}

/// One user's peer.
#[derive(Debug)]
pub(crate) struct EapConversation {
    peer: EapPeer,
}

impl EapConversation {
    /// Begins; `out` gets the response to an Identity request that the access server asked itself.
    pub(crate) fn start(
        method: &EapMethod,
        who: LoginCredentials<'_>,
        wall: WallTime,
        now: Instant,
        rng: SecureRng,
        out: &mut Vec<u8>,
    ) -> Self {
        let methods: Arc<[Box<dyn PeerOffer>]> = Arc::new([method.peer_offer(who)]);
        let config =
            peer::EapPeerConfig { identity: who.outer.to_vec(), methods, timeout: PEER_TIMEOUT, wall };
        let mut peer = EapPeer::new(config, rng, now);
        let mut request = Vec::with_capacity(5);
        packet::emit_packet(&mut request, EapCode::Request, 0, EapType::IDENTITY, &[]);
        peer.handle_packet(now, &request);
        let _responds = peer.poll_transmit(out);
        Self { peer }
    }

    /// Takes the EAP packet of an answer; `out` gets the response.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        packet: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<ConversationStep, LoginFailure> {
        if !self.peer.handle_packet(now, packet) {
            return Err(LoginFailure::EapDiscarded);
        }
        match self.peer.poll_event() {
            Some(event) => Ok(ConversationStep::MethodEnded(event)),
            None if self.peer.poll_transmit(out) => Ok(ConversationStep::Respond),
            None => Err(LoginFailure::EapDiscarded),
        }
    }
}

/// Whether a login of so many rounds may have another.
pub(crate) const fn may_go_on(rounds: u16) -> bool {
    rounds < MOST_ROUNDS
}

/// Compares the keys that the peer derived with those that the server sent: the halves of the MSK, of which
/// EAP-MSCHAPv2 may give the first 32 octets only.
pub(crate) fn check_keys(
    method: &EapMethod,
    derived: Option<&EapKeys>,
    sent: Option<(&[u8], &[u8])>,
) -> Result<(), LoginFailure> {
    if !method.exports_keys() {
        return Ok(());
    }
    let (Some(EapKeys { msk, .. }), Some((recv, send))) = (derived, sent) else {
        return Err(LoginFailure::NoKeys);
    };
    let whole = recv == &msk[..32] && send == &msk[32..];
    let short = matches!(method, EapMethod::MsChapV2) && recv == &msk[..16] && send == &msk[16..32];
    if whole || short { Ok(()) } else { Err(LoginFailure::WrongKeys) }
}
