//! EAP-TTLS, peer against server in memory.

use super::super::connection::Piece;
use super::super::tunnel::tests::{
    Host, PASSWORD, Run, USER, VERSIONS, a_session_ends_with_its_password, configs, real, recorded,
    run as converse, the_refused_stay_so, the_unknown_fail_as_the_wrong_do,
};
use super::super::{PeerVerdict, ServerVerdict, UserSecret, gtc, md5, mschapv2};
use super::*;
use usher_crypto::legacy::nt_hash;
use usher_crypto::tls::{Resumption, Version};

const ALL: [Inner; 7] = [
    Inner::Pap,
    Inner::Chap,
    Inner::MsChap,
    Inner::MsChapV2,
    Inner::Eap(Type::MSCHAPV2),
    Inner::Eap(Type::GTC),
    Inner::Eap(Type::MD5),
];

fn prove(inner: Inner, user: &[u8], password: &[u8]) -> Proof {
    let eap = |offer: Box<dyn PeerOffer>| Proof::Eap([offer].into());
    match inner {
        Inner::Pap => Proof::Pap(password.into()),
        Inner::Chap => Proof::Chap(password.into()),
        Inner::MsChap => Proof::MsChap(password.into()),
        Inner::MsChapV2 => Proof::MsChapV2(password.into()),
        Inner::Eap(Type::MSCHAPV2) => eap(Box::new(mschapv2::Account::new(user, password))),
        Inner::Eap(Type::GTC) => eap(Box::new(gtc::Token::new(password))),
        Inner::Eap(_) => eap(Box::new(md5::Password::new(password))),
    }
}

struct Case {
    tls: (PeerTls, ServerTls),
    inner: Inner,
    accepted: Vec<Inner>,
    user: &'static [u8],
    password: &'static [u8],
    host: Host,
    mtu: Option<usize>,
}

impl Case {
    fn new(tls: (PeerTls, ServerTls), inner: Inner) -> Self {
        Self {
            tls,
            inner,
            accepted: ALL.to_vec(),
            user: USER,
            password: PASSWORD,
            host: Host::Knows(UserSecret::Clear(PASSWORD[..].into())),
            mtu: None,
        }
    }
    fn run(self) -> Run {
        let (peer, server) = self.tls;
        let fragment = self.mtu.unwrap_or(1024);
        let proof = prove(self.inner, self.user, self.password);
        let peer = PeerMethodTtls { tls: peer, fragment, identity: self.user.to_vec(), proof };
        let server = ServerMethodTtls { tls: server, fragment: 1400, inner: self.accepted.into() };
        converse(peer, server, &self.host, self.mtu)
    }
}

#[test]
fn every_method_inside_whatever_the_version_chain_and_fragment() {
    for version in VERSIONS {
        for chain in 2..=4 {
            let configs = configs(version, chain, None);
            for inner in ALL {
                for mtu in [64, 100, 256, 1024, 65_000] {
                    let tls = real(configs.clone());
                    let run = Case { mtu: Some(mtu), ..Case::new(tls, inner) }.run();
                    let keys = run.keys();
                    assert_ne!(keys.msk, keys.emsk);
                    let id = keys.session_id.unwrap();
                    assert_eq!((id.len(), id[0]), (65, 21));
                    assert_eq!(run.identity.as_deref(), Some(USER));
                    assert_eq!((run.inner, run.questions), (Some(inner), 1), "{version:?}");
                }
            }
        }
    }
}

#[test]
fn a_secret_does_for_the_methods_that_it_allows() {
    let nt = || UserSecret::NtHash(nt_hash(PASSWORD).into());
    for (secret, good, asked) in [
        (UserSecret::Hashed, &[Inner::Pap, Inner::Eap(Type::GTC)][..], 2),
        (
            nt(),
            &[Inner::Pap, Inner::MsChap, Inner::MsChapV2, Inner::Eap(Type::MSCHAPV2), Inner::Eap(Type::GTC)]
                [..],
            1,
        ),
    ] {
        for inner in ALL {
            for password in [PASSWORD, b"pen"] {
                let tls = real(configs(Version::Tls12, 2, None));
                let host = Host::Knows(secret.clone());
                let run = Case { host, password, ..Case::new(tls, inner) }.run();
                let should = good.contains(&inner) && password == PASSWORD;
                assert_eq!(run.failed(), !should, "{secret:?} {inner}");
                assert!(!should || run.questions == asked);
            }
        }
    }
}

#[test]
fn who_is_wrong_or_unknown_or_not_accepted_is_refused() {
    for version in VERSIONS {
        for inner in ALL {
            let case = || Case::new(real(configs(version, 2, None)), inner);
            let others = ALL.into_iter().filter(|i| *i != inner).collect();
            for (what, case) in [
                ("password", Case { password: b"wrong", ..case() }),
                ("name", Case { user: b"mallory", ..case() }),
                ("host", Case { host: Host::KnowsNobody, ..case() }),
                ("host", Case { host: Host::Unavailable, ..case() }),
                ("method", Case { accepted: others, ..case() }),
                ("method", Case { accepted: vec![], ..case() }),
            ] {
                assert!(case.run().failed(), "{what} {inner} {version:?}");
            }
        }
    }
}

#[test]
fn a_name_that_no_user_name_attribute_holds_is_not_asked_for() {
    const NAME: &[u8] = &[b'a'; 254];
    for (user, asked) in [(&NAME[1..], true), (NAME, false)] {
        let run = Case { user, ..Case::new(real(configs(Version::Tls13, 2, None)), Inner::Pap) }.run();
        assert_eq!((run.failed(), run.questions > 0), (true, asked));
    }
}

#[test]
fn a_recorded_tunnel_has_the_real_ones_packets() {
    for version in VERSIONS {
        for inner in ALL {
            let real = Case::new(real(configs(version, 3, None)), inner).run();
            let replayed = Case::new(recorded(configs(version, 3, None)), inner).run();
            assert_eq!(real.lengths(), replayed.lengths());
            replayed.keys();
        }
    }
}

#[test]
fn passwords_of_any_length_go_through_their_padding() {
    for password in [&b""[..], b"fifteen octets.", b"sixteen octets..", b"seventeen octets."] {
        let tls = real(configs(Version::Tls13, 2, None));
        let host = Host::Knows(UserSecret::Clear(password[..].into()));
        Case { password, host, ..Case::new(tls, Inner::Pap) }.run().keys();
    }
}

#[test]
fn a_resumed_session_leaves_phase_2_out_but_not_the_user() {
    for version in VERSIONS {
        for inner in ALL {
            let tls = real(configs(version, 2, Some(Resumption::default())));
            let case = || Case::new(tls.clone(), inner);
            // The start, the server's flight, with TLS 1.3 a ticket and the octet of zero, Success.
            let full = case().run();
            let resumed = case().run();
            let least = if version == Version::Tls12 { 3 } else { 4 };
            assert_eq!(resumed.requests.len(), least, "{:?}", resumed.lengths());
            assert_ne!(full.keys().msk, resumed.keys().msk);
            assert_eq!((resumed.identity.as_deref(), resumed.inner), (Some(USER), Some(inner)));
            assert_eq!(resumed.questions, 1);
            assert_eq!(case().run().lengths(), resumed.lengths());
            assert!(Case { host: Host::KnowsNobody, ..case() }.run().failed());
        }
    }
}

#[test]
fn a_session_that_admitted_nobody_is_no_shortcut() {
    for version in VERSIONS {
        for inner in ALL {
            let tls = real(configs(version, 2, Some(Resumption::default())));
            assert!(Case { password: b"wrong", ..Case::new(tls.clone(), inner) }.run().failed());
            let wrong = Case { password: b"wrong", ..Case::new(tls.clone(), inner) }.run();
            assert!(wrong.failed() && wrong.questions == 1, "{version:?}");
            let right = Case::new(tls, inner).run();
            right.keys();
            assert_eq!(right.inner, Some(inner));
        }
    }
}

#[test]
fn somebody_unknown_cannot_be_told_from_somebody_with_another_password() {
    for version in VERSIONS {
        for inner in ALL {
            the_unknown_fail_as_the_wrong_do(|host, password| {
                let tls = real(configs(version, 2, None));
                Case { host, password, ..Case::new(tls, inner) }.run()
            });
        }
    }
}

#[test]
fn whoever_is_refused_is_so_whatever_is_proven_and_at_once_where_a_session_is_resumed() {
    for version in VERSIONS {
        for secret in [UserSecret::Clear(PASSWORD.into()), UserSecret::Hashed] {
            for inner in ALL {
                let tls = real(configs(version, 2, Some(Resumption::default())));
                let run = |host| Case { host, ..Case::new(tls.clone(), inner) }.run();
                the_refused_stay_so(run, &secret);
            }
        }
    }
}

/// Both ends of a tunnel whose handshake is complete: the client's connection, and the server, which waits for AVPs.
fn tunnel() -> (TlsConnection, Box<dyn crate::method::ServerMethod>) {
    let (client, server) = configs(Version::Tls12, 2, None);
    let inner: Vec<Inner> = ALL.to_vec();
    let offer = ServerMethodTtls { tls: ServerTls::Real(server), fragment: 65_000, inner: inner.into() };
    let mut rng = usher_core::Seed::new(1).secure("server", 0);
    let wall = usher_crypto::tls::fixtures::WALL_TIME;
    let mut server =
        offer.begin(Context { rng: &mut rng, wall, mtu: None, without_extended_master_secret: false });
    let engine = usher_crypto::tls::Client::for_holder(&client, 0).unwrap();
    let mut conn = TlsConnection::new(Box::new(engine), true, 65_000);
    server.build(1, &mut Vec::new());
    conn.refill();
    for round in 1..=2 {
        let (mut said, mut request) = (Vec::new(), Vec::new());
        conn.build(&mut said);
        assert_eq!(server.response(round, &said), ServerVerdict::Continue);
        server.build(round + 1, &mut request);
        assert_eq!(request[0] & 0x20, 0, "only the first request is a start");
        assert_eq!(conn.read(&request), Piece::Whole);
        assert!(conn.digest());
    }
    assert!(!conn.engine.is_handshaking());
    (conn, server)
}

/// What the server makes of AVPs.
fn tell(
    conn: &mut TlsConnection,
    server: &mut dyn crate::method::ServerMethod,
    avps: &[u8],
) -> ServerVerdict {
    assert!(conn.write(avps));
    let mut said = Vec::new();
    conn.build(&mut said);
    server.response(3, &said)
}

/// RFC 5281 §10.1: what has the M bit is understood or ends the run; reserved bits are nobody's business.
#[test]
fn what_must_be_understood_inside_and_is_not_ends_the_run() {
    for (flags, verdict) in [
        (0x40, ServerVerdict::Failure),
        (0x5f, ServerVerdict::Failure),
        (0, ServerVerdict::Ask),
        (0x1f, ServerVerdict::Ask),
    ] {
        let (mut conn, mut server) = tunnel();
        let mut avps = Vec::new();
        avp::emit(&mut avps, avp::Code::USER_NAME, USER);
        avp::emit(&mut avps, avp::Code::USER_PASSWORD, PASSWORD);
        avps[4] |= 0x1f;
        avps.extend_from_slice(&[0, 0, 0x27, 0x0f, flags, 0, 0, 8]);
        assert_eq!(tell(&mut conn, &mut *server, &avps), verdict, "{flags:#x}");
    }
}

/// RFC 5281 §11.2.2 to §11.2.4: a challenge or an identifier that the tunnel did not give is refused, whatever the
/// response.
#[test]
fn a_challenge_from_elsewhere_is_refused() {
    use avp::Code;
    let kinds = [
        (Code::CHAP_PASSWORD, Code::CHAP_CHALLENGE, 17),
        (Code::MS_CHAP_RESPONSE, Code::MS_CHAP_CHALLENGE, 50),
        (Code::MS_CHAP2_RESPONSE, Code::MS_CHAP_CHALLENGE, 50),
    ];
    for (proof, challenge_code, length) in kinds {
        for (wrong_challenge, wrong_identifier) in [(false, false), (true, false), (false, true)] {
            let (mut conn, mut server) = tunnel();
            let (mut own, identifier) = if proof == Code::MS_CHAP_RESPONSE {
                challenge::<SHORT_CHALLENGE>(&conn).map(|(c, i)| (c.to_vec(), i)).unwrap()
            } else {
                challenge::<CHALLENGE>(&conn).map(|(c, i)| (c.to_vec(), i)).unwrap()
            };
            own[0] ^= u8::from(wrong_challenge);
            let mut response = vec![0; length];
            response[0] = identifier ^ u8::from(wrong_identifier);
            response[1] = 1;
            let mut avps = Vec::new();
            avp::emit(&mut avps, Code::USER_NAME, USER);
            avp::emit(&mut avps, challenge_code, &own);
            avp::emit(&mut avps, proof, &response);
            let right = !wrong_challenge && !wrong_identifier;
            let verdict = if right { ServerVerdict::Ask } else { ServerVerdict::Failure };
            assert_eq!(tell(&mut conn, &mut *server, &avps), verdict, "{proof:?}");
        }
    }
}

/// An inner method that answers with what is no response of its kind.
#[derive(Debug)]
struct Nonsense;
impl PeerOffer for Nonsense {
    fn kind(&self) -> Type {
        Type::MD5
    }
    fn begin(&self, _: Context<'_>) -> Box<dyn PeerMethod> {
        Box::new(Nonsense)
    }
}
impl PeerMethod for Nonsense {
    fn request(&mut self, _: u8, _: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        out.push(0);
        PeerVerdict::MayEnd
    }
}

/// RFC 5281 §11.2.1: outside a tunnel such a packet is discarded, and the peer waits for an answer.
#[test]
fn what_would_be_discarded_outside_ends_a_run_inside() {
    let (peer, server) = real(configs(Version::Tls13, 2, None));
    let proof = Proof::Eap([Box::new(Nonsense) as Box<dyn PeerOffer>].into());
    let peer = PeerMethodTtls { tls: peer, fragment: 1024, identity: USER.to_vec(), proof };
    let inner = [Inner::Eap(Type::MD5)].into();
    let server = ServerMethodTtls { tls: server, fragment: 1400, inner };
    let run = converse(peer, server, &Host::Knows(UserSecret::Clear(PASSWORD[..].into())), None);
    assert!(run.failed());
}

/// RFC 5281 §9.2.1: version 0 is offered, and a client that takes another is refused.
#[test]
fn another_version_is_refused() {
    let (_, tls) = real(configs(Version::Tls13, 2, None));
    let offer = ServerMethodTtls { tls, fragment: 1400, inner: [Inner::Pap].into() };
    for (flags, verdict) in
        [(1, ServerVerdict::Failure), (7, ServerVerdict::Failure), (0, ServerVerdict::Ignore)]
    {
        let mut rng = usher_core::Seed::new(1).secure("server", 0);
        let wall = usher_crypto::tls::fixtures::WALL_TIME;
        let mut server =
            offer.begin(Context { rng: &mut rng, wall, mtu: None, without_extended_master_secret: false });
        let mut start = Vec::new();
        server.build(1, &mut start);
        assert_eq!(start, [0x20]);
        assert_eq!(server.response(1, &[flags]), verdict);
    }
}

#[test]
fn a_session_ends_with_the_password_that_it_was_given_for() {
    for version in VERSIONS {
        let tls = real(configs(version, 2, Some(Resumption::default())));
        a_session_ends_with_its_password(|host, password| {
            Case { host, password, ..Case::new(tls.clone(), Inner::Pap) }.run()
        });
    }
}
