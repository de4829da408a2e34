//! RADIUS home servers.

use crate::world::{NAS, ProxyTestNetwork, secret_for_name, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::proxy::{
    self, AccountingMode, AllowedExtraAttributes, HomeServer, HomeServerPool, NoAnswerPolicy, PoolBalance,
    Realm, RealmFilter, RealmTable, RealmTarget,
};
use usher_aaa::{
    AaaServerCommand, AaaServerConfig, AaaServerEvent, AuthMethod, DynamicAuthResult, HomeServerState,
    RejectCause, User, UserDirectory, UserSource,
};
use usher_core::{Duration, Seed, WallTime};
use usher_eap::method::PeerMethodFactory;
use usher_eap::method::md5::EapMd5Password;
use usher_eap::peer;
use usher_radius::attribute::{error_cause, kind};
use usher_radius::client::{FailoverPolicy, ServerHealth, ServerHealthCause};
use usher_radius::server::{self, ClientConfig, PortRole};
use usher_radius::{AttributeList, PacketCode};

pub(crate) const PASSWORD: &[u8] = b"a password of more than sixteen octets";

/// A server with these users and a RADIUS client at this address.
pub(crate) fn server_of(users: &[&str], from: std::net::IpAddr, name: &str) -> AaaServerConfig {
    let mut all = UserDirectory::new(&mut Seed::new(2).derive_secure_rng("users", 0));
    for user in users {
        let mut u = User::with_password(PASSWORD);
        u.reply.push_u32(kind::SESSION_TIMEOUT, 600).push_tunnel_password(1, b"for the tunnel").unwrap();
        all.insert(user.as_bytes(), u);
    }
    let mut config = AaaServerConfig::new(UserSource::Memory(Arc::new(all)));
    let mut radius =
        server::RadiusServerConfig::new(vec![ClientConfig::new(from, 32, secret_for_name(name))]);
    radius.clients.push(ClientConfig::for_radsec(from, 32, Vec::new()));
    config.radius = Some(radius);
    config
}
pub(crate) fn home_server(n: usize) -> HomeServer {
    HomeServer::new(&format!("home{n}"), SocketAddr::new(server_address(n), 1812), secret_for_name("home"))
}
pub(crate) fn radsec_home(n: usize) -> HomeServer {
    HomeServer::radsec(&format!("home{n}"), SocketAddr::new(server_address(n), 2083))
}
fn pool_realm(name: &str, accounting: AccountingMode) -> Realm {
    Realm::new(name, RealmTarget::Pool { pool: 0, accounting })
}
/// Opens the filter of every realm.
pub(crate) fn pass_all(proxy: &mut proxy::ProxyConfig) {
    let filter =
        Arc::new(RealmFilter { answers: AllowedExtraAttributes::All, requests: AllowedExtraAttributes::All });
    let open = |r: &Realm| Realm { filter: filter.clone(), ..r.clone() };
    proxy.realms = RealmTable::new(proxy.realms.entries().iter().map(open).collect(), None).unwrap();
}
/// A proxy with the local user bob, and home servers with ann behind it.
pub(crate) fn proxy_network(
    homes: &[HomeServer],
    change: impl FnOnce(&mut proxy::ProxyConfig),
) -> ProxyTestNetwork {
    let servers = (0..homes.len() as u16).collect();
    let pool = HomeServerPool { name: "homes".into(), servers, balance: PoolBalance::Failover };
    let realms = vec![
        pool_realm("example.org", AccountingMode::Forward),
        pool_realm("both.example", AccountingMode::StoreAndForward),
        pool_realm("here.example", AccountingMode::Local),
        Realm { strip: true, ..pool_realm("short.example", AccountingMode::Forward) },
        Realm { strip: true, ..Realm::new("local.example", RealmTarget::Local) },
        Realm::new("nowhere.example", RealmTarget::Refuse),
    ];
    let realms = RealmTable::new(realms, None).unwrap();
    let mut proxy = proxy::ProxyConfig::new(realms, homes.to_vec(), vec![pool]);
    change(&mut proxy);
    let mut front = server_of(&["bob"], NAS, "nas");
    front.proxy = Some(proxy);
    let mut all = vec![front];
    for _ in homes {
        all.push(server_of(&["ann@example.org", "ann"], server_address(0), "home"));
    }
    ProxyTestNetwork::new(all)
}

#[test]
fn a_password_and_what_it_brings_pass_the_proxy() {
    for homes in [[home_server(1)], [radsec_home(1)]] {
        let mut w = proxy_network(&homes, pass_all);
        let r = w.log_in_pap("ann@example.org", PASSWORD).unwrap();
        assert_eq!(
            (r.code, r.attributes.get_u32(kind::SESSION_TIMEOUT)),
            (PacketCode::ACCESS_ACCEPT, Some(600))
        );
        assert_eq!(r.tunnel_password().unwrap().unwrap(), b"for the tunnel");
        assert_eq!(r.attributes.get(kind::PROXY_STATE), None, "the NAS sent none");
        let r = w.log_in_pap("ann@example.org", b"wrong").unwrap();
        assert_eq!(r.code, PacketCode::ACCESS_REJECT);
        assert_eq!(w[1].counters().accepted_pap, 1);
        let c = w[0].counters();
        assert_eq!((c.proxied, c.accepted_elsewhere, c.rejected_elsewhere, c.sessions), (2, 1, 1, 0));
        let told: Vec<_> = w.events.iter().filter(|(s, _)| *s == 0).map(|(_, e)| e).collect();
        assert!(
            matches!(told[0], AaaServerEvent::Accepted(l) if l.name == b"ann@example.org" && l.method.is_none())
        );
        assert!(matches!(told[1], AaaServerEvent::Rejected(l) if l.reason == Some(RejectCause::HomeServer)));
    }
}

#[test]
fn each_realm_goes_its_way() {
    let mut w = proxy_network(&[home_server(1)], |_| {});
    for (name, code, at) in [
        ("bob", PacketCode::ACCESS_ACCEPT, 0),
        ("bob@local.example", PacketCode::ACCESS_ACCEPT, 0),
        ("ann@short.example", PacketCode::ACCESS_ACCEPT, 1),
        ("ann@EXAMPLE.org", PacketCode::ACCESS_REJECT, 1),
        ("ann@nowhere.example", PacketCode::ACCESS_REJECT, 9),
        ("bob@other.example", PacketCode::ACCESS_REJECT, 0),
    ] {
        let before: Vec<u64> = (0..w.servers.len()).map(|s| w[s].counters().sessions).collect();
        assert_eq!(w.log_in_pap(name, PASSWORD).unwrap().code, code, "{name}");
        for (s, before) in before.into_iter().enumerate() {
            let asked = w[s].counters().sessions - before;
            assert_eq!(asked, u64::from(s == at), "{name} at {s}");
        }
    }
}

fn chap_attributes(response: &[u8; 17]) -> AttributeList {
    let mut a = AttributeList::new();
    a.push_text(kind::USER_NAME, "ann@example.org")
        .unwrap()
        .push_bytes(kind::CHAP_PASSWORD, response)
        .unwrap();
    a
}

#[test]
fn a_challenge_that_was_the_authenticator_is_put_in() {
    let mut w = proxy_network(&[home_server(1)], |_| {});
    w.send_request(PacketCode::ACCESS_REQUEST, chap_attributes(&[1; 17]));
    assert_eq!(w[0].counters().proxied, 1);
    assert_eq!(w.datagram_counts()[1], 1);
}

fn md5_peer(name: &str) -> peer::EapPeerConfig {
    let offer: Box<dyn PeerMethodFactory> = Box::new(EapMd5Password::new(PASSWORD));
    peer::EapPeerConfig {
        identity: name.as_bytes().to_vec(),
        methods: [offer].into(),
        timeout: usher_core::Duration::MAX,
        wall: WallTime::from_unix_secs(0),
    }
}

/// RFC 3579 §2.6.3 and §3: an EAP login that is rejected for its name alone gets an EAP-Failure with a
/// Message-Authenticator, like every reply to EAP.
#[test]
fn a_name_that_is_refused_is_told_so_by_eap() {
    let mut w = proxy_network(&[home_server(1)], |_| {});
    for name in
        ["x@nowhere.example", "x@unknown.example", "", "a@b@c", "x@", "@", "host/", "\\", "CORP\\", "nobody"]
    {
        let (reply, event, rounds) = w.log_in_eap(md5_peer(name), |_, _| {});
        let reply = reply.unwrap();
        let mut packet = Vec::new();
        assert!(reply.attributes.read_eap_packet(&mut packet), "{name:?} after {rounds}");
        assert_eq!((reply.code, packet[0], packet.len()), (PacketCode::ACCESS_REJECT, 4, 4), "{name:?}");
        assert_eq!(reply.attributes.iter().map(|a| a.kind).collect::<Vec<_>>(), [80, kind::EAP_MESSAGE]);
        assert!(!matches!(event, Some(peer::EapPeerEvent::Success { .. })), "{name:?}");
    }
    assert_eq!(w[1].counters().sessions, 0);
}

#[test]
fn a_conversation_stays_with_its_server_if_a_better_one_returns() {
    let mut w = proxy_network(&[home_server(1), home_server(2)], |p| p.servers[0].liveness.answers = 1);
    w.set_silent(1, true);
    w.log_in_pap("ann@example.org", PASSWORD);
    w.run_until_second(100);
    assert!(!w[0].home_servers().unwrap().client().is_server_usable(0), "the first is dead");
    let (reply, event, rounds) = w.log_in_eap(md5_peer("ann@example.org"), |w, round| {
        if round == 1 {
            // The first server comes back between two rounds.
            w.set_silent(1, false);
            w.run_until_second(110);
            assert!(w[0].home_servers().unwrap().client().is_server_usable(0));
        }
    });
    assert_eq!((reply.unwrap().code, rounds), (PacketCode::ACCESS_ACCEPT, 2));
    assert!(matches!(event, Some(peer::EapPeerEvent::Success { .. })));
    assert_eq!((w[1].counters().sessions, w[2].counters().accepted_eap_md5), (0, 1));
    assert_eq!(w.log_in_pap("ann@example.org", PASSWORD).unwrap().code, PacketCode::ACCESS_ACCEPT);
    assert_eq!(w[1].counters().accepted_pap, 1, "new ones go to the first again");
}

#[test]
fn load_is_spread_and_each_station_meets_one_server() {
    let mut w = proxy_network(&[home_server(1), home_server(2), home_server(3)], |p| {
        p.pools[0].balance = PoolBalance::Spread
    });
    let ask = |w: &mut ProxyTestNetwork, station: usize| {
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, "ann@example.org").unwrap().push_user_password(PASSWORD).unwrap();
        a.push_text(kind::CALLING_STATION_ID, &format!("02-00-00-00-00-{station:02x}")).unwrap();
        assert_eq!(w.request_reply(PacketCode::ACCESS_REQUEST, a).unwrap().code, PacketCode::ACCESS_ACCEPT);
    };
    (0..60).for_each(|s| ask(&mut w, s));
    let first: Vec<usize> = w.datagram_counts()[1..].to_vec();
    assert!(first.iter().all(|&n| (8..=35).contains(&n)), "{first:?}");
    (0..60).for_each(|s| ask(&mut w, s));
    assert_eq!(w.datagram_counts()[1..], first.iter().map(|n| n * 2).collect::<Vec<_>>(), "the same again");
}

#[test]
fn requests_move_on_from_a_server_that_dies() {
    for homes in [[home_server(1), home_server(2)], [radsec_home(1), radsec_home(2)]] {
        let mut w =
            proxy_network(&homes, |p| p.failover = FailoverPolicy { after: 1, ..FailoverPolicy::default() });
        assert!(w.log_in_pap("ann@example.org", PASSWORD).is_some());
        w.switch_off(1);
        w.log_in_pap("ann@example.org", PASSWORD);
        w.run_until_second(9);
        assert_eq!(w[2].counters().accepted_pap, 1);
        let n = w[0].counters();
        assert_eq!((n.proxy_answered, n.proxy_unanswered), (2, 0));
    }
}

#[test]
fn nobody_answers_and_what_is_said_then_is_a_setting() {
    for unanswered in [NoAnswerPolicy::Silence, NoAnswerPolicy::Reject] {
        let mut w = proxy_network(&[home_server(1)], |p| {
            let of = |r: &Realm| Realm { unanswered, ..r.clone() };
            p.realms = RealmTable::new(p.realms.entries().iter().map(of).collect(), None).unwrap();
        });
        w.set_silent(1, true);
        w.log_in_pap("ann@example.org", PASSWORD);
        w.run_until_second(17);
        assert_eq!(w[0].counters().proxy_unanswered, 1, "with the home server's death");
        assert_eq!(w.answers.len(), usize::from(unanswered == NoAnswerPolicy::Reject));
        w.answers.clear();
        w.run_until_second(100);
        assert_eq!(health_changes(&w, 0), ["home1 Authentication Suspect", "home1 Authentication Dead"]);
        // The server is known to be dead now: a reply, if any, comes at once.
        let answer = w.log_in_pap("ann@example.org", PASSWORD).map(|r| r.code);
        assert_eq!(answer, (unanswered == NoAnswerPolicy::Reject).then_some(PacketCode::ACCESS_REJECT));
        w.set_silent(1, false);
        w.run_until_second(200);
        assert_eq!(
            w.log_in_pap("ann@example.org", PASSWORD).unwrap().code,
            PacketCode::ACCESS_ACCEPT,
            "it is back"
        );
    }
}

/// Returns the changes of home servers' health that a server reports.
fn health_changes(w: &ProxyTestNetwork, server: usize) -> Vec<String> {
    let turn = |(s, event): &(usize, AaaServerEvent)| match event {
        AaaServerEvent::HomeServer(state) if *s == server => {
            Some(format!("{} {:?} {:?}", state.name, state.service, state.health))
        }
        _ => None,
    };
    let mut turns: Vec<String> = w.events.iter().filter_map(turn).collect();
    turns.dedup();
    turns
}

#[test]
fn one_login_awaits_a_silent_home_server_and_later_ones_move_on() {
    for balance in [PoolBalance::Failover, PoolBalance::Spread] {
        let mut w = proxy_network(&[home_server(1), home_server(2)], |p| p.pools[0].balance = balance);
        assert!(w.log_in_pap("ann@example.org", PASSWORD).is_some());
        let first = 1 + usize::from(w[2].counters().accepted_pap == 1);
        let second = 3 - first;
        w.set_silent(first, true);
        let token = w.log_in_pap("ann@example.org", PASSWORD).map(|r| r.token);
        assert_eq!(token, None);
        w.run_until_second(3);
        assert!(w.answers.is_empty());
        w.run_until_second(4);
        assert_eq!(w.answers.pop().map(|r| r.code), Some(PacketCode::ACCESS_ACCEPT), "after the window");
        for seconds in [4, 10, 60, 200] {
            w.run_until_second(seconds);
            assert_eq!(
                w.log_in_pap("ann@example.org", PASSWORD).unwrap().code,
                PacketCode::ACCESS_ACCEPT,
                "at {seconds} s"
            );
        }
        assert_eq!(w[second].counters().accepted_pap, 5);
        let reports: Vec<_> = w[0].home_servers().unwrap().reports().collect();
        let of = |n: usize| reports.iter().find(|r| r.name == format!("home{n}")).unwrap();
        assert_eq!((of(first).health, of(second).health), (ServerHealth::Dead, ServerHealth::Alive));
        assert_eq!((of(first).counts.timeouts, of(second).counts.answers), (1, 5));
        w.set_silent(first, false);
        w.run_until_second(400);
        assert_eq!(w.log_in_pap("ann@example.org", PASSWORD).unwrap().code, PacketCode::ACCESS_ACCEPT);
        assert_eq!(w[second].counters().accepted_pap, 5, "it is back");
    }
}

/// A login continues at its server, although that is suspect.
#[test]
fn a_conversation_stays_with_a_suspect_server() {
    let mut w = proxy_network(&[home_server(1), home_server(2)], |_| {});
    let (reply, ..) = w.log_in_eap(md5_peer("ann@example.org"), |w, round| {
        if round == 1 {
            let state = HomeServerState {
                name: "home1".into(),
                service: proxy::HomeServerType::Authentication,
                health: ServerHealth::Suspect,
                cause: ServerHealthCause::Answered,
            };
            w.net.send_command(w.servers[0], AaaServerCommand::HomeServer(state)).unwrap();
            assert_eq!(w.log_in_pap("ann@example.org", PASSWORD).unwrap().code, PacketCode::ACCESS_ACCEPT);
            assert_eq!(w[2].counters().accepted_pap, 1, "a new one begins elsewhere");
        }
    });
    assert_eq!(reply.unwrap().code, PacketCode::ACCESS_ACCEPT);
    assert_eq!(w[1].counters().accepted_eap_md5, 1);
    assert_eq!(w.log_in_pap("ann@example.org", PASSWORD).unwrap().code, PacketCode::ACCESS_ACCEPT);
    assert_eq!(w[1].counters().accepted_pap, 1, "its first word brought it back");
}

#[test]
fn what_one_server_finds_out_is_told_to_another_by_the_name() {
    let mut w = proxy_network(&[home_server(1), home_server(2)], |_| {});
    w.set_silent(1, true);
    w.log_in_pap("ann@example.org", PASSWORD);
    w.run_until_second(20);
    // The other has its home servers in another order, as after a reload.
    let mut other = proxy_network(&[home_server(2), home_server(1)], |_| {});
    let known = |w: &ProxyTestNetwork| {
        let reports = w[0].home_servers().unwrap().reports();
        let mut all: Vec<_> = reports.map(|r| (r.name, r.service, r.health)).collect();
        all.sort();
        all
    };
    for (_, event) in w.events.drain(..) {
        if let AaaServerEvent::HomeServer(state) = event {
            other.net.send_command(other.servers[0], AaaServerCommand::HomeServer(state)).unwrap();
        }
    }
    assert_eq!(known(&other), known(&w));
    assert_eq!(known(&w)[0].2, ServerHealth::Dead);
    assert_eq!(w[0].realms_of("home1").count(), 4);
    assert_eq!(w[0].realms_of("home3").count(), 0);
}

#[test]
fn a_request_that_went_in_a_circle_is_dropped() {
    let mut w = proxy_network(&[home_server(1)], |p| p.max_hops = 3);
    for (hops, passes) in [(3, true), (4, false)] {
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, "ann@example.org").unwrap().push_user_password(PASSWORD).unwrap();
        for i in 0..hops {
            a.push_bytes(kind::PROXY_STATE, &[i]).unwrap();
        }
        let reply = w.request_reply(PacketCode::ACCESS_REQUEST, a);
        assert_eq!(reply.is_some(), passes, "{hops}");
        if let Some(reply) = reply {
            let states: Vec<_> = reply.attributes.get_all(kind::PROXY_STATE).collect();
            assert_eq!(states, [[0], [1], [2]]);
        }
    }
    assert_eq!(w[0].counters().proxy_loops, 1);
}

#[test]
fn a_login_that_cannot_be_passed_on_ends_with_a_word() {
    let mut w = proxy_network(&[home_server(1)], pass_all);
    let named = || {
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, "ann@example.org").unwrap();
        a
    };
    // It fills a packet, so a proxy has no room for its Proxy-State.
    let mut long = named();
    long.push_user_password(PASSWORD).unwrap();
    while 20 + 18 + long.as_bytes().len() + 255 <= 4096 {
        long.push_bytes(kind::CLASS, &[7; 253]).unwrap();
    }
    let rest = 4096 - 20 - 18 - long.as_bytes().len() - 2;
    long.push_bytes(kind::CLASS, &vec![7; rest]).unwrap();
    let mut unreadable = named();
    unreadable.push_bytes(kind::USER_PASSWORD, &[1; 15]).unwrap();
    for (request, reason) in [(long, RejectCause::Busy), (unreadable, RejectCause::BadProof)] {
        w.events.clear();
        assert!(w.request_reply(PacketCode::ACCESS_REQUEST, request).is_none());
        let [(0, AaaServerEvent::Undecided(login))] = &w.events[..] else {
            panic!("{reason:?}: {:?}", w.events)
        };
        assert_eq!((&login.name[..], login.reason), (&b"ann@example.org"[..], Some(reason)));
    }
    let c = w[0].counters();
    assert_eq!((c.proxy_overload, c.proxy_unreadable, c.proxied), (1, 1, 0));
}

fn start_attributes(name: &str) -> AttributeList {
    let mut a = AttributeList::new();
    a.push_text(kind::USER_NAME, name).unwrap().push_u32(kind::ACCT_STATUS_TYPE, 1);
    a.push_text(kind::ACCT_SESSION_ID, "s1").unwrap().push_text(kind::NAS_IDENTIFIER, "switch").unwrap();
    a
}

#[test]
fn accounting_is_kept_where_its_realm_says() {
    for (name, kept_by) in [
        ("ann@example.org", &[1][..]),
        ("ann@both.example", &[0, 1]),
        ("ann@here.example", &[0]),
        ("bob", &[0]),
        ("ann@nowhere.example", &[0]),
    ] {
        for homes in [[home_server(1)], [radsec_home(1)]] {
            let mut w = proxy_network(&homes, |_| {});
            let reply = w.request_reply(PacketCode::ACCOUNTING_REQUEST, start_attributes(name));
            assert_eq!(reply.map(|r| r.code), Some(PacketCode::ACCOUNTING_RESPONSE), "{name}");
            assert_eq!(*w.recording_servers.borrow(), kept_by, "{name}");
        }
    }
}

#[test]
fn kept_records_are_acknowledged_while_the_home_server_is_away() {
    let mut w = proxy_network(&[home_server(1)], |_| {});
    w.set_silent(1, true);
    let reply = w.request_reply(PacketCode::ACCOUNTING_REQUEST, start_attributes("ann@both.example"));
    assert_eq!(reply.map(|r| r.code), Some(PacketCode::ACCOUNTING_RESPONSE));
    w.set_silent(1, false);
    w.run_until_second(5);
    assert!(w.recording_servers.borrow().contains(&1), "sent again");
}

#[test]
fn access_servers_are_asked_for_changes() {
    let mut w = proxy_network(&[home_server(1)], |_| {});
    let nas = SocketAddr::new(NAS, 3799);
    let mut attributes = AttributeList::new();
    attributes.push_text(kind::USER_NAME, "ann@example.org").unwrap();
    let command =
        |token, to, code| AaaServerCommand::Dynamic { token, to, code, attributes: attributes.clone() };
    assert!(
        w.net
            .send_command(
                w.servers[0],
                command(1, SocketAddr::new(server_address(7), 3799), PacketCode::COA_REQUEST)
            )
            .is_err()
    );
    assert!(w.net.send_command(w.servers[0], command(1, nas, PacketCode::ACCESS_REQUEST)).is_err());
    for (token, code, answer, cause) in [
        (1, PacketCode::DISCONNECT_REQUEST, PacketCode::DISCONNECT_ACK, None),
        (2, PacketCode::COA_REQUEST, PacketCode::COA_NAK, Some(error_cause::UNSUPPORTED_ATTRIBUTE)),
    ] {
        w.net.send_command(w.servers[0], command(token, nas, code)).unwrap();
        w.run_due_events();
        let asked = w.nas_requests.pop().unwrap();
        assert_eq!(asked.code, code);
        assert_eq!(asked.attributes.get_u32(kind::EVENT_TIMESTAMP), Some(1_767_225_600));
        let mut attributes = AttributeList::new();
        if let Some(cause) = cause {
            attributes.push_u32(kind::ERROR_CAUSE, cause);
        }
        let respond = server::RadiusServerCommand::Respond { token: asked.token, code: answer, attributes };
        w.net.send_command(w.nas_server, respond).unwrap();
        w.run_due_events();
        let Some((0, AaaServerEvent::Dynamic { token: told, result })) = w.events.pop() else {
            panic!("not told")
        };
        let want = if answer == PacketCode::COA_NAK {
            DynamicAuthResult::Nak(cause)
        } else {
            DynamicAuthResult::Ack
        };
        assert_eq!((told, result), (token, want));
    }
    w.net.send_command(w.servers[0], command(3, nas, PacketCode::COA_REQUEST)).unwrap();
    w.run_until_second(60);
    let last = w.events.pop();
    assert!(
        matches!(last, Some((0, AaaServerEvent::Dynamic { token: 3, result: DynamicAuthResult::TimedOut }))),
        "{last:?}"
    );
}

/// It is no UDP client, whatever its address: another client's secret does not authenticate it.
#[test]
fn an_access_server_by_radsec_is_not_asked_by_udp() {
    for (prefix, is_asked) in [(32, false), (24, true), (0, true)] {
        let mut config = server_of(&[], NAS, "nas");
        let clients = vec![
            ClientConfig::new(NAS, 24, secret_for_name("nas")),
            ClientConfig::for_radsec(NAS, prefix, Vec::new()),
        ];
        config.radius = Some(server::RadiusServerConfig::new(clients));
        let mut w = ProxyTestNetwork::new(vec![config]);
        let mut attributes = AttributeList::new();
        attributes.push_text(kind::USER_NAME, "ann@example.org").unwrap();
        let (to, code) = (SocketAddr::new(NAS, 3799), PacketCode::DISCONNECT_REQUEST);
        let asked =
            w.net.send_command(w.servers[0], AaaServerCommand::Dynamic { token: 1, to, code, attributes });
        assert_eq!(asked.is_ok(), is_asked, "{prefix}");
        w.run_due_events();
        assert_eq!(w.nas_requests.len(), usize::from(is_asked), "{prefix}");
    }
}

#[test]
fn configurations_that_lead_nowhere_are_refused() {
    let broken = |realms: Vec<Realm>, servers: Vec<u16>| {
        let pool = HomeServerPool { name: "homes".into(), servers, balance: PoolBalance::Failover };
        let mut config = server_of(&[], NAS, "nas");
        let realms = RealmTable::new(realms, None).unwrap();
        config.proxy = Some(proxy::ProxyConfig::new(realms, vec![home_server(1)], vec![pool]));
        config.methods = vec![AuthMethod::Pap];
        usher_aaa::AaaServer::new(config, Seed::new(1).derive_secure_rng("aaa", 0))
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let elsewhere =
        Realm::new("example.org", RealmTarget::Pool { pool: 1, accounting: AccountingMode::Forward });
    assert_eq!(
        broken(vec![elsewhere], vec![0]),
        "proxy: realm \"example.org\" names a pool that does not exist"
    );
    assert_eq!(
        broken(vec![], vec![0, 1]),
        "proxy: pool \"homes\" is empty or names a server that does not exist"
    );
}

#[test]
fn who_waits_for_a_former_home_server_gets_its_answer() {
    for homes in [[home_server(1), home_server(2)], [radsec_home(1), radsec_home(2)]] {
        let mut w = proxy_network(&homes, |_| {});
        // A connection is open, and the former home server is slow.
        assert!(w.log_in_pap("ann@example.org", PASSWORD).is_some());
        let mut slow = server_of(&["ann@example.org"], server_address(0), "home");
        slow.reject_delay = Duration::from_secs(2);
        w.net.send_command(w.servers[1], AaaServerCommand::Reload(Box::new(slow))).unwrap();
        assert!(w.log_in_pap("ann@example.org", b"wrong").is_none());
        let pool =
            vec![HomeServerPool { name: "homes".into(), servers: vec![0], balance: PoolBalance::Failover }];
        let mut config = server_of(&["bob"], NAS, "nas");
        let realms = RealmTable::new(vec![pool_realm("example.org", AccountingMode::Forward)], None).unwrap();
        config.proxy = Some(proxy::ProxyConfig::new(realms, vec![homes[1].clone()], pool));
        assert_eq!(w[0].pending_request_count(), 1);
        w.net.send_command(w.servers[0], AaaServerCommand::Reload(Box::new(config))).unwrap();
        // New requests go to the other server. Earlier ones are still answered.
        assert_eq!(w.log_in_pap("ann@example.org", PASSWORD).unwrap().code, PacketCode::ACCESS_ACCEPT);
        assert_eq!((w[2].counters().accepted_pap, w[0].pending_request_count()), (1, 1));
        w.run_until_second(3);
        assert_eq!(w.answers.pop().map(|r| r.code), Some(PacketCode::ACCESS_REJECT));
        assert_eq!((w[0].pending_request_count(), w[1].counters().accepted_pap), (0, 1));
    }
}

#[test]
fn other_realms_and_other_servers_are_taken_while_running() {
    let mut w = proxy_network(&[radsec_home(1), radsec_home(2)], |_| {});
    assert!(w.log_in_pap("ann@example.org", PASSWORD).is_some());
    assert_eq!(w[1].counters().accepted_pap, 1);
    // Only the realms differ: the connection stays.
    let pool =
        |servers| vec![HomeServerPool { name: "homes".into(), servers, balance: PoolBalance::Failover }];
    let change = |realms: Vec<Realm>, servers| {
        let realms = RealmTable::new(realms, None).unwrap();
        let mut config = server_of(&["bob"], NAS, "nas");
        config.proxy =
            Some(proxy::ProxyConfig::new(realms, vec![radsec_home(1), radsec_home(2)], pool(servers)));
        AaaServerCommand::Reload(Box::new(config))
    };
    let wider = vec![Realm { strip: true, ..pool_realm("new.example", AccountingMode::Forward) }];
    w.net.send_command(w.servers[0], change(wider.clone(), vec![0, 1])).unwrap();
    assert_eq!(w.log_in_pap("ann@new.example", PASSWORD).unwrap().code, PacketCode::ACCESS_ACCEPT);
    let opened = |w: &ProxyTestNetwork| w[0].home_servers().unwrap().client().connection_ids().1;
    assert_eq!((w[1].counters().accepted_pap, opened(&w)), (2, 1));
    // A realm without a target changes nothing.
    let nowhere = Realm::new("x.example", RealmTarget::Pool { pool: 3, accounting: AccountingMode::Local });
    assert!(w.net.send_command(w.servers[0], change(vec![nowhere], vec![0, 1])).is_err());
    // Other servers: the connection to the former one is closed.
    w.net.send_command(w.servers[0], change(wider, vec![1])).unwrap();
    assert_eq!(w.log_in_pap("ann@new.example", PASSWORD).unwrap().code, PacketCode::ACCESS_ACCEPT);
    assert_eq!((w[2].counters().accepted_pap, opened(&w)), (1, 2));
    assert_eq!(w[1].radius_counters().unwrap().connections, 1);
    // Without a proxy the name is unknown.
    w.net
        .send_command(w.servers[0], AaaServerCommand::Reload(Box::new(server_of(&["bob"], NAS, "nas"))))
        .unwrap();
    assert_eq!(w.log_in_pap("ann@new.example", PASSWORD).unwrap().code, PacketCode::ACCESS_REJECT);
}

/// RFC 6614 §2.5: accounting that a home server does not support is not acknowledged.
#[test]
fn accounting_a_home_server_does_not_serve_is_not_acknowledged() {
    let mut w = proxy_network(&[radsec_home(1)], |_| {});
    let mut home = server_of(&["ann@example.org"], server_address(0), "home");
    home.radius.as_mut().unwrap().streams = PortRole::Authentication;
    w.net.send_command(w.servers[1], AaaServerCommand::Reload(Box::new(home))).unwrap();
    assert!(w.request_reply(PacketCode::ACCOUNTING_REQUEST, start_attributes("ann@example.org")).is_none());
    assert_eq!((w[0].counters().proxy_unwanted, w[1].counters().accounting), (1, 0));
    assert_eq!(w.log_in_pap("ann@example.org", PASSWORD).unwrap().code, PacketCode::ACCESS_ACCEPT);
}

/// RFC 5176 §3, §3.2 and §6.3.
#[test]
fn a_change_is_asked_for_in_the_words_that_there_are() {
    type FillAttributes = fn(&mut AttributeList);
    const AUTHORIZE_ONLY: u32 = 17;
    let mut w = proxy_network(&[home_server(1)], |_| {});
    let nas = SocketAddr::new(NAS, 3799);
    let dynamic = |w: &mut ProxyTestNetwork, token, code, fill: FillAttributes| {
        let mut attributes = AttributeList::new();
        attributes.push_text(kind::USER_NAME, "ann").unwrap();
        fill(&mut attributes);
        w.net.send_command(w.servers[0], AaaServerCommand::Dynamic { token, to: nas, code, attributes })
    };
    let said: [(PacketCode, FillAttributes, bool); 4] = [
        (PacketCode::DISCONNECT_REQUEST, |a| _ = a.push_u32(kind::SESSION_TIMEOUT, 1), false),
        (PacketCode::DISCONNECT_REQUEST, |a| _ = a.push_text(kind::ACCT_SESSION_ID, "1").unwrap(), true),
        (PacketCode::COA_REQUEST, |a| _ = a.push_u32(kind::SERVICE_TYPE, AUTHORIZE_ONLY), false),
        (PacketCode::COA_REQUEST, |a| _ = a.push_u32(kind::SESSION_TIMEOUT, 1), true),
    ];
    for (token, (code, fill, taken)) in (1..).zip(said) {
        assert_eq!(dynamic(&mut w, token, code, fill).is_ok(), taken, "{token}");
    }
    // A late answer is dropped.
    w.run_due_events();
    w.nas_requests.clear();
    dynamic(&mut w, 9, PacketCode::COA_REQUEST, |_| ()).unwrap();
    w.run_due_events();
    let asked = w.nas_requests.pop().unwrap();
    let mut attributes = AttributeList::new();
    attributes.push_u32(kind::EVENT_TIMESTAMP, 1_767_225_600 - 301);
    let respond =
        server::RadiusServerCommand::Respond { token: asked.token, code: PacketCode::COA_ACK, attributes };
    w.net.send_command(w.nas_server, respond).unwrap();
    w.run_until_second(60);
    let told = w.events.iter().filter(|(_, e)| matches!(e, AaaServerEvent::Dynamic { token: 9, .. }));
    assert!(
        told.clone()
            .all(|(_, e)| matches!(e, AaaServerEvent::Dynamic { result: DynamicAuthResult::TimedOut, .. })),
        "{:?}",
        w.events
    );
    assert_eq!(told.count(), 1);
}
