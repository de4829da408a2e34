//! EAP methods that begin with a handshake of TLS, on both sides.

use std::sync::{Arc, LazyLock};
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Recording, Roots, ServerConfig, ServerOptions, Version, WallClock, fixtures,
    record,
};
use usher_eap::method::peap::{Cryptobinding, PeerMethodPeap, ServerMethodPeap};
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_eap::method::ttls::{PeerMethodTtls, Proof, ServerMethodTtls};
use usher_eap::method::{Inner, PeerOffer};
use usher_eap::packet::Type;

const FRAGMENT: usize = 1024;

/// A handshake with a client's certificate, which is Ann's, or without one. Handshakes are replayed: their cryptography is not what is
/// looked at here, and a replayed one is the same each time.
static HANDSHAKES: LazyLock<[Arc<Recording>; 2]> = LazyLock::new(|| {
    [false, true].map(|certified| {
        let clock = || WallClock::at(fixtures::WALL_TIME);
        let client = ClientConfig::new(ClientOptions {
            versions: Version::Tls13.into(),
            credentials: certified.then(|| fixtures::client(1)),
            roots: Roots::from_der([fixtures::root()]),
            server_name: None,
            resumption: None,
            clock: clock(),
            key_log: None,
        });
        let server = ServerConfig::new(ServerOptions {
            versions: Version::Tls13.into(),
            credentials: fixtures::server(1),
            client_roots: certified.then(|| Roots::from_der([fixtures::root()])),
            resumption: None,
            clock: clock(),
            key_log: None,
        });
        let both = client.and_then(|client| record(&client, &server?));
        Arc::new(both.expect("the fixtures shake hands"))
    })
});

/// The server's side of PEAP and EAP-TTLS, and of EAP-TLS with Ann's certificate.
pub(crate) fn serve(config: &mut usher_aaa::Config) {
    let [plain, certified] = &*HANDSHAKES;
    let tls = |recording: &Arc<_>| ServerTls::Recorded(Arc::clone(recording));
    config.tls = Some(Arc::new(ServerMethodTls { tls: tls(certified), fragment: FRAGMENT }));
    config.peap = Some(Arc::new(ServerMethodPeap {
        tls: tls(plain),
        fragment: FRAGMENT,
        inner: [Type::MSCHAPV2, Type::GTC].into(),
        cryptobinding: Cryptobinding::Required,
    }));
    config.ttls = Some(Arc::new(ServerMethodTtls {
        tls: tls(plain),
        fragment: FRAGMENT,
        inner: [Inner::Pap, Inner::MsChapV2, Inner::Eap(Type::MD5)].into(),
    }));
}

fn peer(recording: &Arc<Recording>) -> PeerTls {
    PeerTls::Recorded(recording.clone())
}
/// A peer's side of PEAP, which says this name inside.
pub(crate) fn peap(name: &[u8], inner: Box<dyn PeerOffer>) -> Box<dyn PeerOffer> {
    let (tls, inner) = (peer(&HANDSHAKES[0]), Arc::new([inner]));
    Box::new(PeerMethodPeap { tls, fragment: FRAGMENT, identity: name.to_vec(), inner })
}
/// A peer's side of EAP-TTLS, which says this name inside.
pub(crate) fn ttls(name: &[u8], proof: Proof) -> Box<dyn PeerOffer> {
    let tls = peer(&HANDSHAKES[0]);
    Box::new(PeerMethodTtls { tls, fragment: FRAGMENT, identity: name.to_vec(), proof })
}
/// A peer's side of EAP-TLS with Ann's certificate.
pub(crate) fn tls() -> Box<dyn PeerOffer> {
    Box::new(PeerMethodTls { tls: peer(&HANDSHAKES[1]), fragment: FRAGMENT })
}
