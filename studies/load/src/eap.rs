//! The EAP side of a login: one method for all users, and one peer for each login.

use crate::tally::LoginFailure;
use std::sync::Arc;
use usher_core::{Duration, Instant, SecureRng, WallTime};
use usher_crypto::SecretValue;
use usher_crypto::tls::ClientConfig;
use usher_eap::method::peap::PeapPeerFactory;
use usher_eap::method::tls::{EapTlsPeerFactory, PeerTlsBackend};
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory};
use usher_eap::method::{PeerMethodFactory, gtc, md5, mschapv2};
use usher_eap::packet::{self, EapType};
use usher_eap::peer::{self, EapPeer};
use usher_eap::{EapKeys, packet::EapCode};

/// More rounds than any login takes, even with a chain of many certificates in the shortest fragments.
const MOST_ROUNDS: u16 = 500;
/// Timeout of the peer. The client's retransmission ends first.
const PEER_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The EAP method of users.
#[derive(Clone, Debug)]
pub enum EapMethod {
    /// EAP-MD5-Challenge: the password.
    Md5,
    /// EAP-GTC: the cleartext password without a tunnel.
    Gtc,
    /// EAP-MSCHAPv2.
    MsChapV2,
    /// EAP-TLS.
    Tls(EapTlsConfig),
    /// PEAPv0 with an EAP method inside.
    Peap(EapTlsConfig, PeapInnerMethod),
    /// EAP-TTLS (RFC 5281).
    Ttls(EapTlsConfig, TtlsInnerMethod),
}

/// TLS of a method.
#[derive(Clone, Debug)]
pub struct EapTlsConfig {
    /// Certificates, versions and authorities for users without a configuration of their own.
    pub config: ClientConfig,
    /// A configuration for each user, by number; empty if all share `config`.
    pub each: Arc<[ClientConfig]>,
    /// Longest EAP packet sent, in octets.
    pub fragment: usize,
    /// True if users resume their earlier sessions; the configuration must keep sessions.
    pub resume: bool,
}

/// The inner method of PEAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeapInnerMethod {
    /// EAP-MSCHAPv2.
    MsChapV2,
    /// EAP-GTC.
    Gtc,
}

/// The inner method of EAP-TTLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TtlsInnerMethod {
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
    /// True if the method derives keys, which a server must send (RFC 3579, RFC 2548).
    pub(crate) const fn derives_session_keys(&self) -> bool {
        !matches!(self, Self::Md5 | Self::Gtc)
    }
    /// True if a login can be wrong, so that the server must reject it: by a wrong password, or by another user's
    /// certificate.
    #[must_use]
    pub fn is_deniable(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.each.len() > 1,
            _ => true,
        }
    }
    /// True if a tunnel protects the user's name, so that the outer identity may differ.
    #[must_use]
    pub const fn has_tunnel(&self) -> bool {
        matches!(self, Self::Peap(..) | Self::Ttls(..))
    }

    /// Returns the peer's method for this user.
    pub(crate) fn peer_offer(&self, who: LoginCredentials<'_>) -> Box<dyn PeerMethodFactory> {
        match self {
            Self::Md5 => Box::new(md5::EapMd5Password::new(who.password)),
            Self::Gtc => Box::new(gtc::GtcToken::new(who.password)),
            Self::MsChapV2 => Box::new(mschapv2::MsChapV2Account::new(who.name, who.password)),
            Self::Tls(tls) => Box::new(EapTlsPeerFactory { tls: tls.peer_tls(who), fragment: tls.fragment }),
            Self::Peap(tls, inner) => {
                let inner: Box<dyn PeerMethodFactory> = match inner {
                    PeapInnerMethod::MsChapV2 => {
                        Box::new(mschapv2::MsChapV2Account::new(who.name, who.password))
                    }
                    PeapInnerMethod::Gtc => Box::new(gtc::GtcToken::new(who.password)),
                };
                Box::new(PeapPeerFactory {
                    tls: tls.peer_tls(who),
                    fragment: tls.fragment,
                    identity: who.name.to_vec(),
                    inner: Arc::new([inner]),
                })
            }
            Self::Ttls(tls, inner) => {
                let eap = |offer: Box<dyn PeerMethodFactory>| TtlsInnerCredential::Eap(Arc::new([offer]));
                let password = SecretValue::from(who.password);
                let proof = match inner {
                    TtlsInnerMethod::Pap => TtlsInnerCredential::Pap(password),
                    TtlsInnerMethod::Chap => TtlsInnerCredential::Chap(password),
                    TtlsInnerMethod::MsChap => TtlsInnerCredential::MsChap(password),
                    TtlsInnerMethod::MsChapV2 => TtlsInnerCredential::MsChapV2(password),
                    TtlsInnerMethod::EapMd5 => eap(Box::new(md5::EapMd5Password::new(&password))),
                    TtlsInnerMethod::EapGtc => eap(Box::new(gtc::GtcToken::new(&password))),
                    TtlsInnerMethod::EapMsChapV2 => {
                        eap(Box::new(mschapv2::MsChapV2Account::new(who.name, &password)))
                    }
                };
                Box::new(TtlsPeerFactory {
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
    fn peer_tls(&self, who: LoginCredentials<'_>) -> PeerTlsBackend {
        // A login that must fail uses the next user's certificate.
        let number = if who.wrong { (who.number + 1) % self.each.len().max(1) } else { who.number };
        let config = self.each.get(number).unwrap_or(&self.config);
        PeerTlsBackend::Real(config.clone(), if self.resume { who.number as u64 } else { 0 })
    }
}

/// The result of an EAP packet of the server.
#[derive(Debug)]
pub(crate) enum EapConversationStep {
    /// The response is in the buffer.
    Respond,
    /// The method has ended.
    MethodEnded(peer::EapPeerEvent),
}

/// The credentials of a conversation.
#[derive(Clone, Copy)]
pub(crate) struct LoginCredentials<'a> {
    /// The user's number.
    pub(crate) number: usize,
    /// The reply to the Identity request.
    pub(crate) outer: &'a [u8],
    /// The user's name, inside a tunnel too.
    pub(crate) name: &'a [u8],
    pub(crate) password: &'a [u8],
    /// True if the server must reject the login: the password is already wrong.
    pub(crate) wrong: bool,
}

/// One user's peer.
#[derive(Debug)]
pub(crate) struct EapConversation {
    peer: EapPeer,
}

impl EapConversation {
    /// Starts the peer; `out` gets the reply to the Identity request that an access server sends itself.
    pub(crate) fn start(
        method: &EapMethod,
        who: LoginCredentials<'_>,
        wall: WallTime,
        now: Instant,
        rng: SecureRng,
        out: &mut Vec<u8>,
    ) -> Self {
        let methods: Arc<[Box<dyn PeerMethodFactory>]> = Arc::new([method.peer_offer(who)]);
        let config =
            peer::EapPeerConfig { identity: who.outer.to_vec(), methods, timeout: PEER_TIMEOUT, wall };
        let mut peer = EapPeer::new(config, rng, now);
        let mut request = Vec::with_capacity(5);
        packet::emit_packet(&mut request, EapCode::Request, 0, EapType::IDENTITY, &[]);
        peer.handle_packet(now, &request);
        let _responds = peer.poll_transmit(out);
        Self { peer }
    }

    /// Handles the EAP packet of a reply; `out` gets the response.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        packet: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<EapConversationStep, LoginFailure> {
        if !self.peer.handle_packet(now, packet) {
            return Err(LoginFailure::EapDiscarded);
        }
        match self.peer.poll_event() {
            Some(event) => Ok(EapConversationStep::MethodEnded(event)),
            None if self.peer.poll_transmit(out) => Ok(EapConversationStep::Respond),
            None => Err(LoginFailure::EapDiscarded),
        }
    }
}

/// True if a login after this number of rounds may have another.
pub(crate) const fn allows_another_eap_round(rounds: u16) -> bool {
    rounds < MOST_ROUNDS
}

/// Compares the keys of the peer with those of the server: the halves of the MSK. With EAP-MSCHAPv2 a server may send
/// only the first 32 octets.
pub(crate) fn compare_session_keys(
    method: &EapMethod,
    derived: Option<&EapKeys>,
    sent: Option<(&[u8], &[u8])>,
) -> Result<(), LoginFailure> {
    if !method.derives_session_keys() {
        return Ok(());
    }
    let (Some(EapKeys { msk, .. }), Some((recv, send))) = (derived, sent) else {
        return Err(LoginFailure::NoKeys);
    };
    let whole = recv == &msk[..32] && send == &msk[32..];
    let short = matches!(method, EapMethod::MsChapV2) && recv == &msk[..16] && send == &msk[16..32];
    if whole || short { Ok(()) } else { Err(LoginFailure::WrongKeys) }
}
