//! Anonymous outer identities: which clients get the inner identity, and the user of accounting records.

use crate::accounting::{RadiusTestClient, build_acr};
use crate::build::{PASSWORD, user_name};
use crate::peers::DiameterPeerPair;
use crate::tls::{tls_client_config, tls_server_config};
use crate::tunnels::{ANONYMOUS, tunnel_config};
use std::sync::Arc;
use usher_aaa::ledger::{LedgerConfig, SessionFilter};
use usher_aaa::proxy::{self, AccountingMode, HomeServer, HomeServerPool, Realm, RealmTable, RealmTarget};
use usher_aaa::{AaaServerConfig, IdentityKey, User, UserDirectory, UserSource, is_user_alias_class};
use usher_core::{Duration, Instant, Seed, WallTime};
use usher_crypto::tls::{TlsVersion, fixtures};
use usher_diameter::accounting::AccountingRecordType;
use usher_eap::method::PeerMethodFactory;
use usher_eap::method::tls::PeerTlsBackend;
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory};
use usher_eap::peer::{self, EapPeer};
use usher_radius::attribute::kind;
use usher_radius::{AttributeList, PacketCode, SharedSecret};

const KEY: &[u8] = b"a key of thirty-two characters!!";
const START: u32 = 1;
const STOP: u32 = 2;
const CUI: u8 = 89;
const OPERATOR: u8 = 126;

/// A server with one user, who may log in through tunnels, with one session.
fn config_with_key() -> AaaServerConfig {
    let mut config = tunnel_config(tls_server_config(TlsVersion::Tls13));
    let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    all.insert(&user_name(0), User { simultaneous: Some(1), ..User::with_password(PASSWORD) });
    config.users = UserSource::Memory(Arc::new(all));
    config.identity_key = Some(IdentityKey::new(KEY));
    config
}

/// Logs in from a station by EAP-TTLS and returns the last reply.
fn log_in(
    r: &mut RadiusTestClient,
    secs: u64,
    station: &str,
    ask: impl Fn(&mut AttributeList),
) -> (PacketCode, AttributeList) {
    login_as(r, secs, station, &user_name(0), ask)
}

/// Logs in as this user.
fn login_as(
    r: &mut RadiusTestClient,
    secs: u64,
    station: &str,
    user: &[u8],
    ask: impl Fn(&mut AttributeList),
) -> (PacketCode, AttributeList) {
    let offer: Box<dyn PeerMethodFactory> = Box::new(TtlsPeerFactory {
        tls: PeerTlsBackend::Real(tls_client_config(TlsVersion::Tls13, fixtures::client_credentials(2)), 0),
        fragment: 1024,
        identity: user.to_vec(),
        proof: TtlsInnerCredential::Pap(PASSWORD[..].into()),
    });
    let config = peer::EapPeerConfig {
        identity: ANONYMOUS.to_vec(),
        methods: [offer].into(),
        timeout: Duration::MAX,
        wall: WallTime::from_unix_secs(0),
    };
    let now = Instant::ZERO + Duration::from_secs(secs);
    let mut peer = EapPeer::new(config, Seed::new(6).derive_secure_rng("peer", secs), now);
    let mut packet = vec![1, 1, 0, 5, 1];
    let mut state: Option<Vec<u8>> = None;
    loop {
        peer.handle_packet(now, &packet);
        packet.clear();
        let _ = peer.poll_transmit(&mut packet);
        let (code, reply) = r
            .send_request(secs, PacketCode::ACCESS_REQUEST, |a| {
                a.push_bytes(kind::USER_NAME, ANONYMOUS).unwrap();
                a.push_text(kind::CALLING_STATION_ID, station).unwrap();
                if let Some(state) = &state {
                    a.push_bytes(kind::STATE, state).unwrap();
                }
                a.push_eap(&packet);
                ask(a);
            })
            .expect("an answer");
        packet.clear();
        reply.read_eap_packet(&mut packet);
        state = reply.get(kind::STATE).map(<[u8]>::to_vec);
        if code != PacketCode::ACCESS_CHALLENGE {
            return (code, reply);
        }
    }
}

/// Sends a record under the outer name with these Classes.
fn send_record(r: &mut RadiusTestClient, secs: u64, status: u32, id: &str, name: &[u8], classes: &[Vec<u8>]) {
    let answer = r.send_request(secs, PacketCode::ACCOUNTING_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, name).unwrap();
        a.push_u32(kind::ACCT_STATUS_TYPE, status).push_text(kind::ACCT_SESSION_ID, id).unwrap();
        a.push_text(kind::CALLING_STATION_ID, "02-00-00-00-00-01").unwrap();
        for class in classes {
            a.push_bytes(kind::CLASS, class).unwrap();
        }
    });
    assert_eq!(answer.map(|(code, _)| code), Some(PacketCode::ACCOUNTING_RESPONSE));
}

fn reply_classes(reply: &AttributeList) -> Vec<Vec<u8>> {
    reply.get_all(kind::CLASS).map(<[u8]>::to_vec).collect()
}

const FIRST: &str = "02-00-00-00-00-01";
const SECOND: &str = "02-00-00-00-00-02";

#[test]
fn a_network_hears_the_name_within_a_tunnel_only_where_it_may() {
    let mut r = RadiusTestClient::new(config_with_key(), LedgerConfig::default());
    let (code, reply) = log_in(&mut r, 1, FIRST, |_| {});
    assert_eq!((code, reply.get(kind::USER_NAME)), (PacketCode::ACCESS_ACCEPT, Some(ANONYMOUS)));
    assert_eq!((reply_classes(&reply).len(), reply.get(CUI)), (1, None));
    let name = user_name(0);
    assert!(!reply.as_bytes().windows(name.len()).any(|part| part == name));
    // Two logins of one user cannot be linked.
    let (_, again) = log_in(&mut r, 2, FIRST, |_| {});
    assert_ne!(reply_classes(&reply), reply_classes(&again));

    let mut r = RadiusTestClient::new(
        AaaServerConfig { inner_names: vec![0], ..config_with_key() },
        LedgerConfig::default(),
    );
    let (_, reply) = log_in(&mut r, 1, FIRST, |_| {});
    assert_eq!((reply.get(kind::USER_NAME), reply_classes(&reply).len()), (Some(&name[..]), 0));
}

#[test]
fn accounting_of_an_anonymous_user_is_the_users_own() {
    let mut r = RadiusTestClient::new(config_with_key(), LedgerConfig::default());
    let (_, reply) = log_in(&mut r, 1, FIRST, |_| {});
    let class = reply_classes(&reply);
    send_record(&mut r, 2, START, "s", ANONYMOUS, &class);
    let user = String::from_utf8(user_name(0)).unwrap();
    let [row] = &r.host.rows()[..] else { panic!() };
    assert_eq!((row.username.as_str(), row.realm.as_str()), (user.as_str(), "example.org"));
    assert!(is_user_alias_class(&row.class), "who asks its NAS to end it must not name the user");
    assert_eq!(r.host.service.ledger().find_sessions(SessionFilter::User(&user)).len(), 1);
    // The next login exceeds the limit until the session ends, whichever NAS reports it.
    assert_eq!(log_in(&mut r, 3, SECOND, |_| {}).0, PacketCode::ACCESS_REJECT);
    assert_eq!(
        log_in(&mut r, 4, FIRST, |_| {}).0,
        PacketCode::ACCESS_ACCEPT,
        "of the same station it is none more"
    );
    send_record(&mut r, 70, STOP, "s", ANONYMOUS, &class);
    assert!(r.host.rows()[0].acctstoptime.is_some());
    assert_eq!(log_in(&mut r, 140, SECOND, |_| {}).0, PacketCode::ACCESS_ACCEPT);
}

/// A name of any length that RADIUS allows: its sessions are the user's and count.
#[test]
fn accounting_of_a_user_of_a_long_name_is_the_users_own() {
    for (length, octets) in [(64, 1), (191, 1), (192, 1), (220, 1), (221, 2), (240, 2), (253, 2)] {
        let user = vec![b'k'; length];
        let mut config = config_with_key();
        let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
        all.insert(&user, User { simultaneous: Some(1), ..User::with_password(PASSWORD) });
        config.users = UserSource::Memory(Arc::new(all));
        let mut r = RadiusTestClient::new(config, LedgerConfig::default());
        let (code, reply) = login_as(&mut r, 1, FIRST, &user, |_| {});
        let class = reply_classes(&reply);
        assert_eq!((code, class.len()), (PacketCode::ACCESS_ACCEPT, octets), "{length}");
        send_record(&mut r, 2, START, "s", ANONYMOUS, &class);
        assert_eq!(r.host.rows()[0].username.as_bytes(), &user[..], "{length}");
        let (second, _) = login_as(&mut r, 3, SECOND, &user, |_| {});
        assert_eq!(second, PacketCode::ACCESS_REJECT, "{length}: one session at a time");
    }
}

#[test]
fn another_server_of_the_same_key_knows_whose_a_session_is() {
    let class = reply_classes(
        &log_in(&mut RadiusTestClient::new(config_with_key(), LedgerConfig::default()), 1, FIRST, |_| {}).1,
    );
    let with = |classes: &[Vec<u8>], name: &[u8], change: fn(&mut AaaServerConfig)| {
        let mut config = config_with_key();
        change(&mut config);
        let mut r = RadiusTestClient::new(config, LedgerConfig::default());
        send_record(&mut r, 2, START, "s", name, classes);
        r.host.rows()[0].username.clone()
    };
    let (user, anonymous) =
        (String::from_utf8(user_name(0)).unwrap(), String::from_utf8(ANONYMOUS.to_vec()).unwrap());
    assert_eq!(with(&class, ANONYMOUS, |_| {}), user);
    let beside = [b"staff".to_vec(), class[0].clone()];
    assert_eq!(with(&beside, ANONYMOUS, |_| {}), user, "beside another Class");
    let mut forged = class[0].clone();
    forged[20] ^= 1;
    assert_eq!(with(&[forged], ANONYMOUS, |_| {}), anonymous);
    assert_eq!(with(&[], ANONYMOUS, |_| {}), anonymous);
    let other = |config: &mut AaaServerConfig| config.identity_key = Some(IdentityKey::new(b"another"));
    assert_eq!(with(&class, ANONYMOUS, other), anonymous);
    // A home server that saw our Class cannot assign its own users' sessions to ours.
    let elsewhere = |config: &mut AaaServerConfig| {
        let home =
            HomeServer::new("home", "10.9.9.9:1812".parse().unwrap(), SharedSecret::new(b"sixteen octets!!"));
        let pool =
            HomeServerPool { name: "homes".into(), servers: vec![0], balance: proxy::PoolBalance::Failover };
        let route = RealmTarget::Pool { pool: 0, accounting: AccountingMode::Local };
        let realms = RealmTable::new(vec![Realm::new("else.example", route)], None).unwrap();
        config.proxy = Some(proxy::ProxyConfig::new(realms, vec![home], vec![pool]));
    };
    assert_eq!(with(&class, b"eve@else.example", elsewhere), "eve@else.example");
    assert_eq!(with(&class, ANONYMOUS, elsewhere), user);
}

#[test]
fn a_class_means_the_same_in_diameter() {
    let class = reply_classes(
        &log_in(&mut RadiusTestClient::new(config_with_key(), LedgerConfig::default()), 1, FIRST, |_| {}).1,
    );
    let mut peers =
        DiameterPeerPair::with_config(&[], |config| config.identity_key = Some(IdentityKey::new(KEY)));
    let mut record = build_acr(AccountingRecordType::Start, 0, 0);
    record.class = Some(&class[0]);
    peers.send_record(&record);
    assert_eq!(peers.host.rows()[0].username.as_bytes(), user_name(0));
}

#[test]
fn a_user_is_chargeable_under_another_name_at_each_operator() {
    let mut r = RadiusTestClient::new(config_with_key(), LedgerConfig::default());
    let mut cui = |secs, operator: &'static str| {
        let (_, reply) = log_in(&mut r, secs, FIRST, |a| {
            a.push_bytes(CUI, &[0]).unwrap().push_text(OPERATOR, operator).unwrap();
        });
        reply.get(CUI).expect("it was asked for").to_vec()
    };
    let first = cui(1, "1visited.example");
    assert_eq!((first.len(), cui(2, "1visited.example")), (32, first.clone()));
    assert_ne!(cui(3, "1other.example"), first);
    // Only a request with the attribute gets one.
    assert_eq!(log_in(&mut r, 4, FIRST, |_| {}).1.get(CUI), None);
}
