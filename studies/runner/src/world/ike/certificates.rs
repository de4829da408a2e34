//! Certificates of the workload: those of `vectors/certs`, and two more kinds for studies of IKE
//! (`vectors/certs/make-study.sh`).

use usher_crypto::tls::{TlsCredentials, TrustRoots, fixtures};
use usher_scenario::model::CertificateKind;
use usher_scenario::units::PositiveCount;

/// The content of one of the two study folders.
macro_rules! fixture {
    ($($part:literal),+) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/certs/", $($part),+)) as &[u8]
    };
}

/// Certificate and key.
type LeafCertificate = (&'static [u8], &'static [u8]);

macro_rules! leaves {
    ($folder:literal, $who:literal, $($n:literal),+) => {
        &[$((fixture!($folder, $who, $n, ".der"), fixture!($folder, $who, $n, ".key.der"))),+]
    };
}

/// The authorities of a folder, from below the root, and the leaf certificates at each level.
struct CertificateHierarchy {
    root: &'static [u8],
    authorities: &'static [&'static [u8]],
    servers: &'static [LeafCertificate],
    clients: &'static [LeafCertificate],
}

static LONG: CertificateHierarchy = CertificateHierarchy {
    root: fixture!("long/root.der"),
    authorities: &[fixture!("long/ca1.der"), fixture!("long/ca2.der"), fixture!("long/ca3.der")],
    servers: leaves!("long/", "server", "1", "2", "3", "4"),
    clients: leaves!("long/", "client", "1", "2", "3", "4"),
};

static ECDSA: CertificateHierarchy = CertificateHierarchy {
    root: fixture!("ecdsa/root.der"),
    authorities: &[fixture!("ecdsa/ca1.der")],
    servers: leaves!("ecdsa/", "server", "1", "2"),
    clients: leaves!("ecdsa/", "client", "1", "2"),
};

/// A side of an authentication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AuthenticationSide {
    /// The side named [`fixtures::CLIENT_NAME`].
    Initiator,
    /// The side named [`fixtures::SERVER_NAME`].
    Server,
}

/// Returns a side's certificate with its authorities, `count` certificates in all, and its key. A checked study asks
/// only for existing ones.
pub(super) fn fixture_credentials(
    kind: CertificateKind,
    side: AuthenticationSide,
    length: PositiveCount,
) -> TlsCredentials {
    let hierarchy = match kind {
        CertificateKind::Natural => {
            let length = u8::try_from(length.get()).unwrap_or(u8::MAX);
            return match side {
                AuthenticationSide::Initiator => fixtures::client_credentials(length),
                AuthenticationSide::Server => fixtures::server_credentials(length),
            };
        }
        CertificateKind::Long => &LONG,
        CertificateKind::Ecdsa => &ECDSA,
    };
    let leaves = if side == AuthenticationSide::Initiator { hierarchy.clients } else { hierarchy.servers };
    let above = (length.get() as usize).clamp(1, leaves.len()) - 1;
    let (leaf, key) = leaves[above];
    let authorities = hierarchy.authorities[..above].iter().rev().copied();
    TlsCredentials::from_der(std::iter::once(leaf).chain(authorities), key).with_even_signatures()
}

/// Returns the root that all sides trust.
pub(super) fn trusted_roots(kind: CertificateKind) -> TrustRoots {
    TrustRoots::from_der([match kind {
        CertificateKind::Natural => fixtures::root_certificate(),
        CertificateKind::Long => LONG.root,
        CertificateKind::Ecdsa => ECDSA.root,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_certificates_have_1500_octets_and_the_requested_chain() {
        for side in [AuthenticationSide::Initiator, AuthenticationSide::Server] {
            for length in 1..=4 {
                let long = fixture_credentials(CertificateKind::Long, side, PositiveCount::from_u32(length));
                assert!(long.certificate_chain().all(|certificate| certificate.len() == 1500));
                assert_eq!(long.chain_len(), length as usize);
                assert!(
                    !fixture_credentials(
                        CertificateKind::Ecdsa,
                        side,
                        PositiveCount::from_u32(length.min(2))
                    )
                    .is_rsa()
                );
            }
        }
    }
}
