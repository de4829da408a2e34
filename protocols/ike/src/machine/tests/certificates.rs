//! Certificates with chains, and signature jobs.

use super::*;
use crate::credentials::{CertificateRejection, IkeCredentials};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SanType,
};
use time::OffsetDateTime;
use usher_core::WallTime;
use usher_crypto::signature::SigningKey;
use usher_crypto::tls::{SharedWallClock, TrustRoots};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// The wall-clock time.
const NOW: u64 = 1_800_000_000;

/// A root authority with an intermediate one.
struct TestAuthority {
    root: Vec<u8>,
    intermediate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl TestAuthority {
    fn new() -> Self {
        Self::below_for(&[])
    }
    /// The intermediate one is limited to these purposes, if any.
    fn below_for(purposes: &[ExtendedKeyUsagePurpose]) -> Self {
        let authority = |name: &str| {
            let mut params = CertificateParams::new(vec![]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            (params, KeyPair::generate().unwrap())
        };
        let ((root, root_key), (mut below, below_key)) = (authority("root"), authority("below"));
        below.extended_key_usages = purposes.to_vec();
        let root_der = root.self_signed(&root_key).unwrap().der().to_vec();
        let issuer = Issuer::new(root, root_key);
        let intermediate = below.signed_by(&below_key, &issuer).unwrap().der().to_vec();
        Self { root: root_der, intermediate, issuer: Issuer::new(below, below_key) }
    }
    /// Issues a certificate with its chain, and returns its key.
    fn issue_certificate(
        &self,
        name: &str,
        algorithm: &'static rcgen::SignatureAlgorithm,
    ) -> (Vec<Vec<u8>>, SigningKey) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
        let der = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        (vec![der, self.intermediate.clone()], SigningKey::from_der(&key.serialize_der()).unwrap())
    }
    /// Makes it a trust anchor of these credentials.
    fn trusted_by(&self, credentials: &mut IkeCredentials) {
        let clock = SharedWallClock::from_time(WallTime::from_unix_secs(NOW));
        credentials
            .set_connection_trust_roots("site", TrustRoots::from_der([&self.root[..]]), clock)
            .unwrap();
    }
    /// Returns the intermediate authority's revocation list, valid for this many seconds.
    fn revocation_list(&self, number: u64, revoked: &[&[u8]], seconds: i64) -> Vec<u8> {
        let at = |seconds: i64| OffsetDateTime::from_unix_timestamp(NOW as i64 + seconds).unwrap();
        let revoked = revoked.iter().map(|certificate| {
            let (_, read) = X509Certificate::from_der(certificate).unwrap();
            RevokedCertParams {
                serial_number: read.raw_serial().to_vec().into(),
                revocation_time: at(-60),
                reason_code: None,
                invalidity_date: None,
            }
        });
        let params = CertificateRevocationListParams {
            this_update: at(-30),
            next_update: at(seconds),
            crl_number: number.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().der().to_vec()
    }
}

/// A network whose sides have certificates of one authority, of these kinds.
fn certificate_network(
    authority: &TestAuthority,
    algorithms: [&'static rcgen::SignatureAlgorithm; 2],
    name: &str,
    trusts: &TestAuthority,
) -> IkeTestNetwork {
    let mut sides = [psk_connection(true), psk_connection(false)];
    let mut credentials = Vec::new();
    for ((side, algorithm), name) in sides.iter_mut().zip(algorithms).zip([name, "gw.test"]) {
        let (chain, key) = authority.issue_certificate(name, algorithm);
        let mut own = IkeCredentials::new();
        let kind = own.set_connection_signing_key("site", key);
        trusts.trusted_by(&mut own);
        side.local_auth = LocalAuth::Certificate { chain, kind, pss: false };
        side.remote_auth = RemoteAuth::Certificate { authorities: vec![[7; 20]] };
        credentials.push(own);
    }
    let [ours, theirs] = sides;
    let mut world = IkeTestNetwork::new(ours, theirs);
    for (host, own) in [world.initiator, world.responder].into_iter().zip(credentials) {
        world.net.on_job(host, move |job| Some((millis(3), own.answer_job(&job))));
    }
    world
}

const P256: &rcgen::SignatureAlgorithm = &rcgen::PKCS_ECDSA_P256_SHA256;

/// IPv6 Ready: EN.I.1.1.10.1, EN.I.1.1.10.2, EN.I.1.1.10.3, EN.R.1.1.10.1, EN.R.1.1.10.2, EN.R.1.1.10.3.
#[test]
fn both_sides_are_proved_by_certificates_with_chains() {
    let authority = TestAuthority::new();
    for algorithms in
        [[&rcgen::PKCS_RSA_SHA256, P256], [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_RSA_SHA256]]
    {
        let mut world = certificate_network(&authority, algorithms, "ini.test", &authority);
        world.connect();
        world.assert_children_match(1);
        let work = world.net.take_work();
        assert_eq!((work["ike.sign"], work["ike.verify"]), (2, 2));
        assert!(world.net.sent_transmits().len() > 4, "the chains are long: IKE_AUTH is in fragments");
    }
}

#[test]
fn a_certificate_of_another_name_or_authority_does_not_convince() {
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    for mut world in [
        certificate_network(&authority, [P256, P256], "other.test", &authority),
        certificate_network(&authority, [P256, P256], "ini.test", &other),
    ] {
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(world.end_reasons(world.responder), [EndReason::AuthenticationFailed]);
        assert_eq!(world.end_reasons(world.initiator), [EndReason::Refused]);
        world.assert_all_removed();
    }
}

#[test]
fn without_a_signature_there_is_no_login() {
    let authority = TestAuthority::new();
    for of_initiator in [true, false] {
        let mut world = certificate_network(&authority, [P256, P256], "ini.test", &authority);
        let host = if of_initiator { world.initiator } else { world.responder };
        let own = IkeCredentials::new();
        world.net.on_job(host, move |job| match &job.job {
            IkeJob::Sign { .. } => Some((millis(1), own.answer_job(&job))),
            IkeJob::Verify { .. } => Some((
                millis(1),
                IkeCommand::Verified {
                    token: job.token,
                    until: Some(usher_core::bench::EPOCH + secs(1000)),
                    certificates: Vec::new(),
                },
            )),
        });
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(world.end_reasons(host), [EndReason::Helper]);
    }
}

#[test]
fn where_helpers_have_no_time_initiators_are_told_to_come_later() {
    let authority = TestAuthority::new();
    let mut world = certificate_network(&authority, [P256, P256], "ini.test", &authority);
    world.net.on_job(world.responder, |job| Some((millis(1), IkeCommand::Unable { token: job.token })));
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(world.responder), [EndReason::Helper]);
    assert_eq!(world.end_reasons(world.initiator), [EndReason::Refused]);
    assert_eq!(world.counters(world.responder).authentication_failed, 1);
    world.assert_all_removed();
}

#[test]
fn nobody_waits_for_helpers_of_an_sa_that_has_ended() {
    let authority = TestAuthority::new();
    let mut world = certificate_network(&authority, [P256, P256], "ini.test", &authority);
    let asked = Rc::new(RefCell::new(Vec::new()));
    let jobs = asked.clone();
    world.net.on_job(world.responder, move |job| {
        jobs.borrow_mut().push((job.token, job.origin));
        None
    });
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(asked.borrow()[0].1.host(), Some(INITIATOR.parse().unwrap()));
    assert!(asked.borrow()[0].1.is_result_needed());
    // An initiator that does not authenticate in time is removed, with its jobs.
    world.net.run_for(secs(300));
    assert_eq!(world.net[world.responder].half_open(), 0);
    assert!(asked.borrow().iter().all(|(_, origin)| !origin.is_result_needed()));
    let late = IkeCommand::Unable { token: asked.borrow()[0].0 };
    assert!(world.net.send_command(world.responder, late).is_err());
}

/// Behind a NAT, a proof may come from any address. Its jobs are charged to the proven address.
#[test]
fn jobs_of_a_forged_source_are_charged_to_the_proved_address() {
    let authority = TestAuthority::new();
    let mut world = certificate_network(&authority, [P256, P256], "ini.test", &authority);
    let asked = Rc::new(RefCell::new(Vec::new()));
    let jobs = asked.clone();
    world.net.on_job(world.responder, move |job| {
        jobs.borrow_mut().push(job.origin.host());
        None
    });
    let connection = world.connection.clone();
    let (local, remote) = (socket_address("0.0.0.0", 500), socket_address(RESPONDER, 500));
    world
        .net
        .send_command(world.initiator, IkeCommand::Initiate { token: 7, connection, local, remote })
        .unwrap();
    world.net.run_for(millis(25));
    let proof = world.net.sent_transmits()[2].bytes.clone();
    world.forge_datagram(
        world.responder,
        socket_address("10.2.0.5", 4500),
        socket_address(RESPONDER, 4500),
        &proof,
    );
    assert_eq!(asked.borrow()[..], [Some(INITIATOR.parse().unwrap())]);
}

#[test]
fn one_side_may_use_a_shared_key_and_the_other_a_certificate() {
    let authority = TestAuthority::new();
    let (chain, key) = authority.issue_certificate("gw.test", P256);
    let mut gateway = IkeCredentials::new();
    let kind = gateway.set_connection_signing_key("site", key);
    let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
    theirs.local_auth = LocalAuth::Certificate { chain, kind, pss: false };
    ours.remote_auth = RemoteAuth::Certificate { authorities: vec![] };
    let mut own = IkeCredentials::new();
    authority.trusted_by(&mut own);
    let mut world = IkeTestNetwork::new(ours, theirs);
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.on_job(initiator, move |job| Some((millis(1), own.answer_job(&job))));
    world.net.on_job(responder, move |job| Some((millis(1), gateway.answer_job(&job))));
    world.connect();
    world.assert_children_match(1);
}

#[test]
fn eap_beside_a_gateways_certificate_is_a_login() {
    let authority = TestAuthority::new();
    let (chain, key) = authority.issue_certificate("gw.test", P256);
    let mut gateway = IkeCredentials::new();
    let kind = gateway.set_connection_signing_key("site", key);
    let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
    theirs.local_auth = LocalAuth::Certificate { chain, kind, pss: false };
    theirs.remote_auth = RemoteAuth::Eap { request_identity: false };
    ours.local_auth = peer_auth(TestEapMethod::MsChapV2, PASSWORD);
    ours.remote_auth = RemoteAuth::Certificate { authorities: vec![] };
    let mut own = IkeCredentials::new();
    authority.trusted_by(&mut own);
    let mut world = IkeTestNetwork::new(ours, theirs);
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.on_job(initiator, move |job| Some((millis(1), own.answer_job(&job))));
    world.net.on_job(responder, move |job| Some((millis(1), gateway.answer_job(&job))));
    world.connect();
    world.assert_children_match(1);
}

/// The gateway loads a revocation list while it runs. Listed peers are rejected from then on, with the reason, and
/// others are not.
#[test]
fn a_revoked_peer_is_refused_as_soon_as_the_list_arrives() {
    let authority = TestAuthority::new();
    let (chain, key) = authority.issue_certificate("ini.test", P256);
    let leaf = chain[0].clone();
    let (gateway_chain, gateway_key) = authority.issue_certificate("gw.test", P256);
    let [mut own, mut gateway] = [IkeCredentials::new(), IkeCredentials::new()];
    let kinds = [
        own.set_connection_signing_key("site", key),
        gateway.set_connection_signing_key("site", gateway_key),
    ];
    let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
    for (side, chain, kind) in [(&mut ours, chain, kinds[0]), (&mut theirs, gateway_chain, kinds[1])] {
        side.local_auth = LocalAuth::Certificate { chain, kind, pss: false };
        side.remote_auth = RemoteAuth::Certificate { authorities: vec![] };
    }
    authority.trusted_by(&mut own);
    authority.trusted_by(&mut gateway);
    let mut world = IkeTestNetwork::new(ours, theirs);
    let (initiator, responder) = (world.initiator, world.responder);
    let gateway = Rc::new(gateway);
    let newest = Rc::new(RefCell::new(gateway.clone()));
    let refused = Rc::new(RefCell::new(Vec::new()));
    let (taken, why) = (newest.clone(), refused.clone());
    world.net.on_job(initiator, move |job| Some((millis(1), own.answer_job(&job))));
    world.net.on_job(responder, move |job| {
        let credentials = taken.borrow().clone();
        if matches!(job.job, IkeJob::Verify { .. }) {
            why.borrow_mut().extend(credentials.verify_proof(&job.job).err());
        }
        Some((millis(1), credentials.answer_job(&job)))
    });
    let other = authority.issue_certificate("other.test", P256).0.remove(0);
    // The revoked serial numbers, the list's validity, and whether the initiator is accepted.
    let lists: [(&[&[u8]], i64, bool); 4] =
        [(&[], 3600, true), (&[&other], 3600, true), (&[&other, &leaf], 3600, false), (&[], -1, false)];
    for (n, (revoked, seconds, holds)) in (1..).zip(lists) {
        let list = authority.revocation_list(n, revoked, seconds);
        *newest.borrow_mut() = Rc::new(gateway.with_revocation_lists(&[list]).unwrap());
        let before = (world.end_reasons(initiator).len(), refused.borrow().len());
        world.initiate();
        world.net.run_for(secs(1));
        let after = (world.end_reasons(initiator).len(), refused.borrow().len());
        let failed = usize::from(!holds);
        assert_eq!((after.0 - before.0, after.1 - before.1), (failed, failed), "list {n}");
    }
    let reasons: Vec<String> = refused.borrow().iter().map(ToString::to_string).collect();
    assert!(reasons[0].contains("revoked") && reasons[1].contains("xpired"), "{reasons:?}");
    assert!(refused.borrow().iter().all(|why| matches!(why, CertificateRejection::Chain(_))));
    assert!(world.end_reasons(initiator).iter().all(|reason| *reason == EndReason::Refused));
    // Without lists all is as at first. An invalid list is rejected.
    *newest.borrow_mut() = Rc::new(gateway.with_revocation_lists(&[]).unwrap());
    world.connect();
    assert!(gateway.with_revocation_lists(&[leaf]).is_err());
}

/// Both sides have certificates of an intermediate authority. True if the responder rejects one for its key usage.
fn is_refused_for_usage(purposes: &[ExtendedKeyUsagePurpose]) -> bool {
    let authority = TestAuthority::below_for(purposes);
    let [mut own, mut gateway] = [IkeCredentials::new(), IkeCredentials::new()];
    let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
    for (side, name, credentials) in
        [(&mut ours, "ini.test", &mut own), (&mut theirs, "gw.test", &mut gateway)]
    {
        let (chain, key) = authority.issue_certificate(name, P256);
        let kind = credentials.set_connection_signing_key("site", key);
        side.local_auth = LocalAuth::Certificate { chain, kind, pss: false };
        side.remote_auth = RemoteAuth::Certificate { authorities: vec![] };
        authority.trusted_by(credentials);
    }
    let mut world = IkeTestNetwork::new(ours, theirs);
    let refused = Rc::new(RefCell::new(Vec::new()));
    let why = refused.clone();
    world.net.on_job(world.initiator, move |job| Some((millis(1), own.answer_job(&job))));
    world.net.on_job(world.responder, move |job| {
        if matches!(job.job, IkeJob::Verify { .. }) {
            why.borrow_mut().push(gateway.verify_proof(&job.job).err());
        }
        Some((millis(1), gateway.answer_job(&job)))
    });
    world.initiate();
    world.net.run_for(secs(1));
    let refused = refused.borrow();
    match &refused[..] {
        [Some(CertificateRejection::Usage)] => true,
        [None] => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_authority_that_is_for_something_else_lets_nobody_in() {
    assert!(!is_refused_for_usage(&[]) && !is_refused_for_usage(&[ExtendedKeyUsagePurpose::ClientAuth]));
    assert!(is_refused_for_usage(&[ExtendedKeyUsagePurpose::EmailProtection]));
}

/// Returns the command with the names of a list's certificates.
fn on_list(list: &[u8]) -> IkeCommand {
    let list = usher_crypto::x509::RevocationList::of_der(list).unwrap();
    IkeCommand::Revoked(Arc::new(list.revoked_certificates().collect()))
}

/// A later revocation ends the peer's IKE_SA, also after rekeying, after resumption, and if the peer does not
/// respond. Others stay.
#[test]
fn whose_certificate_is_revoked_later_is_put_out() {
    let authority = TestAuthority::new();
    let other = authority.issue_certificate("other.test", P256).0.remove(0);
    for how in ["at once", "rekeyed", "resumed", "silent", "gateway's", "gateway's, resumed"] {
        let mut world = certificate_network(&authority, [P256, P256], "ini.test", &authority);
        let (initiator, responder) = (world.initiator, world.responder);
        for host in [initiator, responder] {
            world.net[host].cx.config.tickets = Some(secs(3600));
        }
        let (ours, _) = world.connect();
        match how {
            "rekeyed" => world.net.send_command(initiator, IkeCommand::Rekey(ours)).unwrap(),
            "resumed" | "gateway's, resumed" => {
                // The initiator restarts with its stored ticket.
                let now = world.net.now();
                world.net[initiator]
                    .run_sa_step_at(now, ours.token(), |sa, cx| sa.end_sa(cx, EndReason::Unreachable));
                world.initiate();
            }
            _ => {}
        }
        world.net.run_for(secs(1));
        assert_eq!(world.counters(responder).resumed, u64::from(how.contains("resumed")));
        let gateways = how.starts_with("gateway's");
        let (by, there) = if gateways { (initiator, responder) } else { (responder, initiator) };
        let before = world.end_reasons(by).len();
        let served = world.net[responder].cx.connections[0].clone();
        let whose = if gateways { &served } else { &world.connection };
        let LocalAuth::Certificate { chain, .. } = &whose.local_auth else { unreachable!() };
        let leaf = chain[0].clone();
        world.net.send_command(by, on_list(&authority.revocation_list(1, &[&other], 3600))).unwrap();
        world.net.run_for(secs(1));
        assert_eq!((world.end_reasons(by).len(), world.counters(by).revoked), (before, 0), "{how}");
        world.net.set_silent(initiator, how == "silent");
        world.net.send_command(by, on_list(&authority.revocation_list(2, &[&other, &leaf], 3600))).unwrap();
        world.net.run_for(if how == "silent" { secs(31) } else { secs(1) });
        assert_eq!(world.end_reasons(by).last(), Some(&EndReason::Revoked), "{how}");
        assert_eq!((world.counters(by).revoked, world.net[by].active_sa_count()), (1, 0), "{how}");
        assert_eq!(world.installed_children(by).len(), 0);
        if how != "silent" {
            assert_eq!(world.end_reasons(there).last(), Some(&EndReason::DeletedByPeer), "{how}");
        }
    }
}

/// A resumed client relies on the gateway's earlier proof, for as long as it is valid. A full login needs a new
/// proof.
#[test]
fn a_certificate_revoked_during_resumption_does_not_hold() {
    let authority = TestAuthority::new();
    for falls_back in [false, true] {
        let mut world = certificate_network(&authority, [P256, P256], "ini.test", &authority);
        let (initiator, responder) = (world.initiator, world.responder);
        for host in [initiator, responder] {
            world.net[host].cx.config.tickets = Some(secs(3600));
        }
        let (ours, _) = world.connect();
        let LocalAuth::Certificate { chain, .. } = world.net[responder].cx.connections[0].local_auth.clone()
        else {
            unreachable!()
        };
        let now = world.net.now();
        world.net[initiator]
            .run_sa_step_at(now, ours.token(), |sa, cx| sa.end_sa(cx, EndReason::Unreachable));
        world.net.set_silent(responder, true);
        world.initiate();
        world.net.run_for(millis(5));
        let of = |world: &IkeTestNetwork| {
            let token = *world.net[initiator].by_spi.values().next().unwrap();
            let sa = world.net[initiator].sas.get(token).unwrap();
            (sa.base.proof_until.is_some(), sa.base.certificates.len())
        };
        assert_eq!(of(&world), (true, 2));
        if falls_back {
            world.net.run_for(secs(15));
            assert_eq!(of(&world), (false, 0));
            continue;
        }
        world
            .net
            .send_command(initiator, on_list(&authority.revocation_list(1, &[&chain[0]], 3600)))
            .unwrap();
        assert_eq!(world.end_reasons(initiator), [EndReason::Unreachable, EndReason::Revoked]);
    }
}

/// Both sides delete at the same time; the revocation stays the reason. An IKE_SA that already ends is not counted
/// again.
#[test]
fn who_is_put_out_and_deletes_at_the_same_time_is_put_out() {
    let authority = TestAuthority::new();
    let mut world = certificate_network(&authority, [P256, P256], "ini.test", &authority);
    let (initiator, responder) = (world.initiator, world.responder);
    let (ours, theirs) = world.connect();
    let LocalAuth::Certificate { chain, .. } = world.connection.local_auth.clone() else { unreachable!() };
    // A Delete waits for the outstanding request.
    world.net.send_command(responder, IkeCommand::Probe(theirs)).unwrap();
    for number in 1..4 {
        world
            .net
            .send_command(responder, on_list(&authority.revocation_list(number, &[&chain[0]], 3600)))
            .unwrap();
    }
    assert_eq!(world.counters(responder).revoked, 1);
    // The response comes after 20 ms, and the Delete follows.
    world.net.run_for(millis(15));
    world.net.send_command(initiator, IkeCommand::Delete(ours)).unwrap();
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(responder), [EndReason::Revoked]);
    assert_eq!(world.end_reasons(initiator), [EndReason::Deleted]);
}

/// A worker that began before the list arrived may report a revoked certificate as valid.
#[test]
fn a_certificate_revoked_during_its_check_does_not_hold() {
    let authority = TestAuthority::new();
    let mut world = certificate_network(&authority, [P256, P256], "ini.test", &authority);
    let LocalAuth::Certificate { chain, .. } = world.connection.local_auth.clone() else { unreachable!() };
    world
        .net
        .send_command(world.responder, on_list(&authority.revocation_list(1, &[&chain[0]], 3600)))
        .unwrap();
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(world.responder), [EndReason::AuthenticationFailed]);
    assert_eq!(world.end_reasons(world.initiator), [EndReason::Refused]);
}

/// RFC 4806: a peer that requests an OCSP response gets one beside the certificate. Others get none, and none is
/// invented.
#[test]
fn a_response_of_ocsp_is_shown_to_whom_asks_for_it() {
    let authority = TestAuthority::new();
    for (initiator_asks, responder_asks) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut world = certificate_network(&authority, [P256, P256], "ini.test", &authority);
        let (initiator, responder) = (world.initiator, world.responder);
        world.net[initiator].cx.config.request_ocsp = initiator_asks;
        world.net[responder].cx.config.request_ocsp = responder_asks;
        let seen = Rc::new(RefCell::new(Vec::new()));
        for (host, name) in [(initiator, "ini.test"), (responder, "gw.test")] {
            let (algorithm, seen) = (P256, seen.clone());
            let (chain, key) = authority.issue_certificate(name, algorithm);
            let mut own = IkeCredentials::new();
            let kind = own.set_connection_signing_key("site", key);
            authority.trusted_by(&mut own);
            let auth = LocalAuth::Certificate { chain, kind, pss: false };
            if name == "ini.test" {
                world.connection =
                    Arc::new(IkeConnectionConfig { local_auth: auth, ..(*world.connection).clone() });
            } else {
                let mut served = (*world.net[responder].cx.connections[0]).clone();
                served.local_auth = auth;
                world.net.send_command(responder, IkeCommand::Serve(vec![Arc::new(served)])).unwrap();
            }
            world.net.on_job(host, move |job| {
                let answer = own.answer_job(&job);
                let answer = match (&job.job, answer) {
                    (IkeJob::Sign { ocsp: true, .. }, IkeCommand::Signed { token, signature, .. }) => {
                        IkeCommand::Signed {
                            token,
                            signature,
                            ocsp: Some(format!("response about {name}").into()),
                        }
                    }
                    (IkeJob::Verify { ocsp, .. }, answer) => {
                        seen.borrow_mut().push((name, ocsp.clone()));
                        answer
                    }
                    (_, answer) => answer,
                };
                Some((millis(3), answer))
            });
        }
        world.connect();
        world.assert_children_match(1);
        let about = |name: &str, asked: bool| {
            if asked { vec![format!("response about {name}").into_bytes()] } else { vec![] }
        };
        let expected = vec![
            ("gw.test", about("ini.test", responder_asks)),
            ("ini.test", about("gw.test", initiator_asks)),
        ];
        assert_eq!(*seen.borrow(), expected, "{initiator_asks} {responder_asks}");
    }
}
