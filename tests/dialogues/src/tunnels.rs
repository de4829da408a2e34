//! TLS-based EAP methods, on both sides.

use std::sync::{Arc, LazyLock};
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsHandshakeRecording, TlsServerOptions,
    TlsVersion, TrustRoots, fixtures, record_handshake,
};
use usher_eap::method::peap::{CryptobindingPolicy, PeapPeerFactory, PeapServerFactory};
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory, TtlsServerFactory};
use usher_eap::method::{InnerMethod, PeerMethodFactory};
use usher_eap::packet::EapType;

const FRAGMENT: usize = 1024;

/// Handshakes with Ann's client certificate and without a certificate. They are replayed: the cryptography is not
/// under test, and a replay is deterministic.
static HANDSHAKES: LazyLock<[Arc<TlsHandshakeRecording>; 2]> = LazyLock::new(|| {
    [false, true].map(|certified| {
        let clock = || SharedWallClock::from_time(fixtures::WALL_TIME);
        let client = ClientConfig::new(TlsClientOptions {
            versions: TlsVersion::Tls13.into(),
            credentials: certified.then(|| fixtures::client_credentials(1)),
            roots: TrustRoots::from_der([fixtures::root_certificate()]),
            server_name: None,
            resumption: None,
            clock: clock(),
            key_log: None,
        });
        let server = ServerConfig::new(TlsServerOptions {
            versions: TlsVersion::Tls13.into(),
            credentials: fixtures::server_credentials(1),
            client_roots: certified.then(|| TrustRoots::from_der([fixtures::root_certificate()])),
            resumption: None,
            clock: clock(),
            key_log: None,
        });
        let both = client.and_then(|client| record_handshake(&client, &server?));
        Arc::new(both.expect("the fixtures shake hands"))
    })
});

/// Adds the server's side of PEAP and EAP-TTLS, and of EAP-TLS with Ann's certificate.
pub(crate) fn add_tunnel_methods(config: &mut usher_aaa::AaaServerConfig) {
    let [plain, certified] = &*HANDSHAKES;
    let tls = |recording: &Arc<_>| ServerTlsBackend::Recorded(Arc::clone(recording));
    config.tls = Some(Arc::new(EapTlsServerFactory { tls: tls(certified), fragment: FRAGMENT }));
    config.peap = Some(Arc::new(PeapServerFactory {
        tls: tls(plain),
        fragment: FRAGMENT,
        inner: [EapType::MSCHAPV2, EapType::GTC].into(),
        cryptobinding: CryptobindingPolicy::Required,
    }));
    config.ttls = Some(Arc::new(TtlsServerFactory {
        tls: tls(plain),
        fragment: FRAGMENT,
        inner: [InnerMethod::Pap, InnerMethod::MsChapV2, InnerMethod::Eap(EapType::MD5)].into(),
    }));
}

fn recorded_peer(recording: &Arc<TlsHandshakeRecording>) -> PeerTlsBackend {
    PeerTlsBackend::Recorded(recording.clone())
}
/// A peer's side of PEAP, with this inner identity.
pub(crate) fn peap_offer(name: &[u8], inner: Box<dyn PeerMethodFactory>) -> Box<dyn PeerMethodFactory> {
    let (tls, inner) = (recorded_peer(&HANDSHAKES[0]), Arc::new([inner]));
    Box::new(PeapPeerFactory { tls, fragment: FRAGMENT, identity: name.to_vec(), inner })
}
/// A peer's side of EAP-TTLS, with this inner identity.
pub(crate) fn ttls_offer(name: &[u8], proof: TtlsInnerCredential) -> Box<dyn PeerMethodFactory> {
    let tls = recorded_peer(&HANDSHAKES[0]);
    Box::new(TtlsPeerFactory { tls, fragment: FRAGMENT, identity: name.to_vec(), proof })
}
/// A peer's side of EAP-TLS with Ann's certificate.
pub(crate) fn tls_offer() -> Box<dyn PeerMethodFactory> {
    Box::new(EapTlsPeerFactory { tls: recorded_peer(&HANDSHAKES[1]), fragment: FRAGMENT })
}
