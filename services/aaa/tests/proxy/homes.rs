//! Home servers that speak RADIUS.

use crate::world::{NAS, World, address, secret};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::proxy::{
    self, Accounting, Balance, Beside, Filter, HomeServer, Pool, Realm, Realms, Route, Unanswered,
};
use usher_aaa::{
    Command, Config, DynamicResult, Event, HomeServerState, Method, Reason, User, UserSource, Users,
};
use usher_core::{Duration, Seed, WallTime};
use usher_eap::method::PeerOffer;
use usher_eap::method::md5::Password;
use usher_eap::peer;
use usher_radius::attribute::{error_cause, kind};
use usher_radius::client::{Failover, Health, HealthCause};
use usher_radius::server::{self, ClientConfig, Role};
use usher_radius::{Attributes, Code};

pub(crate) const PASSWORD: &[u8] = b"a password of more than sixteen octets";

/// A server that knows these users, asked by RADIUS from an address.
pub(crate) fn server_of(users: &[&str], from: std::net::IpAddr, name: &str) -> Config {
    let mut all = Users::new(&mut Seed::new(2).secure("users", 0));
    for user in users {
        let mut u = User::with_password(PASSWORD);
        u.reply.push_u32(kind::SESSION_TIMEOUT, 600).push_tunnel_password(1, b"for the tunnel").unwrap();
        all.insert(user.as_bytes(), u);
    }
    let mut config = Config::new(UserSource::Memory(Arc::new(all)));
    let mut radius = server::Config::new(vec![ClientConfig::new(from, 32, secret(name))]);
    radius.clients.push(ClientConfig::radsec(from, 32, Vec::new()));
    config.radius = Some(radius);
    config
}
pub(crate) fn home(n: usize) -> HomeServer {
    HomeServer::new(&format!("home{n}"), SocketAddr::new(address(n), 1812), secret("home"))
}
pub(crate) fn radsec_home(n: usize) -> HomeServer {
    HomeServer::radsec(&format!("home{n}"), SocketAddr::new(address(n), 2083))
}
fn realm(name: &str, accounting: Accounting) -> Realm {
    Realm::new(name, Route::Pool { pool: 0, accounting })
}
/// Has everything pass to and from the home servers of every realm.
pub(crate) fn pass_all(proxy: &mut proxy::Config) {
    let filter = Arc::new(Filter { answers: Beside::All, requests: Beside::All });
    let open = |r: &Realm| Realm { filter: filter.clone(), ..r.clone() };
    proxy.realms = Realms::new(proxy.realms.entries().iter().map(open).collect(), None).unwrap();
}
/// A proxy that knows bob itself, and homes that know ann, behind it.
pub(crate) fn world(homes: &[HomeServer], change: impl FnOnce(&mut proxy::Config)) -> World {
    let servers = (0..homes.len() as u16).collect();
    let pool = Pool { name: "homes".into(), servers, balance: Balance::Failover };
    let realms = vec![
        realm("example.org", Accounting::Forward),
        realm("both.example", Accounting::StoreAndForward),
        realm("here.example", Accounting::Local),
        Realm { strip: true, ..realm("short.example", Accounting::Forward) },
        Realm { strip: true, ..Realm::new("local.example", Route::Local) },
        Realm::new("nowhere.example", Route::Refuse),
    ];
    let realms = Realms::new(realms, None).unwrap();
    let mut proxy = proxy::Config::new(realms, homes.to_vec(), vec![pool]);
    change(&mut proxy);
    let mut front = server_of(&["bob"], NAS, "nas");
    front.proxy = Some(proxy);
    let mut all = vec![front];
    for _ in homes {
        all.push(server_of(&["ann@example.org", "ann"], address(0), "home"));
    }
    World::new(all)
}

#[test]
fn a_password_and_what_it_brings_pass_the_proxy() {
    for homes in [[home(1)], [radsec_home(1)]] {
        let mut w = world(&homes, pass_all);
        let r = w.pap("ann@example.org", PASSWORD).unwrap();
        assert_eq!((r.code, r.attributes.get_u32(kind::SESSION_TIMEOUT)), (Code::ACCESS_ACCEPT, Some(600)));
        assert_eq!(r.tunnel_password().unwrap().unwrap(), b"for the tunnel");
        assert_eq!(r.attributes.get(kind::PROXY_STATE), None, "the NAS sent none");
        let r = w.pap("ann@example.org", b"wrong").unwrap();
        assert_eq!(r.code, Code::ACCESS_REJECT);
        assert_eq!(w[1].counters().accepted_pap, 1);
        let c = w[0].counters();
        assert_eq!((c.proxied, c.accepted_elsewhere, c.rejected_elsewhere, c.sessions), (2, 1, 1, 0));
        let told: Vec<_> = w.events.iter().filter(|(s, _)| *s == 0).map(|(_, e)| e).collect();
        assert!(matches!(told[0], Event::Accepted(l) if l.name == b"ann@example.org" && l.method.is_none()));
        assert!(matches!(told[1], Event::Rejected(l) if l.reason == Some(Reason::HomeServer)));
    }
}

#[test]
fn each_realm_goes_its_way() {
    let mut w = world(&[home(1)], |_| {});
    for (name, code, at) in [
        ("bob", Code::ACCESS_ACCEPT, 0),
        ("bob@local.example", Code::ACCESS_ACCEPT, 0),
        ("ann@short.example", Code::ACCESS_ACCEPT, 1),
        ("ann@EXAMPLE.org", Code::ACCESS_REJECT, 1),
        ("ann@nowhere.example", Code::ACCESS_REJECT, 9),
        ("bob@other.example", Code::ACCESS_REJECT, 0),
    ] {
        let before: Vec<u64> = (0..w.servers.len()).map(|s| w[s].counters().sessions).collect();
        assert_eq!(w.pap(name, PASSWORD).unwrap().code, code, "{name}");
        for (s, before) in before.into_iter().enumerate() {
            let asked = w[s].counters().sessions - before;
            assert_eq!(asked, u64::from(s == at), "{name} at {s}");
        }
    }
}

fn chap(response: &[u8; 17]) -> Attributes {
    let mut a = Attributes::new();
    a.push_text(kind::USER_NAME, "ann@example.org")
        .unwrap()
        .push_bytes(kind::CHAP_PASSWORD, response)
        .unwrap();
    a
}

#[test]
fn a_challenge_that_was_the_authenticator_is_put_in() {
    let mut w = world(&[home(1)], |_| {});
    w.send(Code::ACCESS_REQUEST, chap(&[1; 17]));
    assert_eq!(w[0].counters().proxied, 1);
    assert_eq!(w.datagrams()[1], 1);
}

fn md5(name: &str) -> peer::Config {
    let offer: Box<dyn PeerOffer> = Box::new(Password::new(PASSWORD));
    peer::Config {
        identity: name.as_bytes().to_vec(),
        methods: [offer].into(),
        timeout: usher_core::Duration::MAX,
        wall: WallTime::from_unix_secs(0),
    }
}

/// RFC 3579 §2.6.3 and §3: whoever logs in by EAP and is refused by its name alone hears a Failure, signed as every answer to EAP is.
#[test]
fn a_name_that_is_refused_is_told_so_by_eap() {
    let mut w = world(&[home(1)], |_| {});
    for name in
        ["x@nowhere.example", "x@unknown.example", "", "a@b@c", "x@", "@", "host/", "\\", "CORP\\", "nobody"]
    {
        let (reply, event, rounds) = w.eap(md5(name), |_, _| {});
        let reply = reply.unwrap();
        let mut packet = Vec::new();
        assert!(reply.attributes.eap(&mut packet), "{name:?} after {rounds}");
        assert_eq!((reply.code, packet[0], packet.len()), (Code::ACCESS_REJECT, 4, 4), "{name:?}");
        assert_eq!(reply.attributes.iter().map(|a| a.kind).collect::<Vec<_>>(), [80, kind::EAP_MESSAGE]);
        assert!(!matches!(event, Some(peer::Event::Success { .. })), "{name:?}");
    }
    assert_eq!(w[1].counters().sessions, 0);
}

#[test]
fn a_conversation_stays_with_its_server_though_a_better_one_comes_back() {
    let mut w = world(&[home(1), home(2)], |p| p.servers[0].liveness.answers = 1);
    w.off(1, true);
    w.pap("ann@example.org", PASSWORD);
    w.until(100);
    assert!(!w[0].home_servers().unwrap().client().usable(0), "the first is dead");
    let (reply, event, rounds) = w.eap(md5("ann@example.org"), |w, round| {
        if round == 1 {
            // Between two rounds the first server comes back.
            w.off(1, false);
            w.until(110);
            assert!(w[0].home_servers().unwrap().client().usable(0));
        }
    });
    assert_eq!((reply.unwrap().code, rounds), (Code::ACCESS_ACCEPT, 2));
    assert!(matches!(event, Some(peer::Event::Success { .. })));
    assert_eq!((w[1].counters().sessions, w[2].counters().accepted_eap_md5), (0, 1));
    assert_eq!(w.pap("ann@example.org", PASSWORD).unwrap().code, Code::ACCESS_ACCEPT);
    assert_eq!(w[1].counters().accepted_pap, 1, "new ones go to the first again");
}

#[test]
fn load_is_spread_and_each_station_meets_one_server() {
    let mut w = world(&[home(1), home(2), home(3)], |p| p.pools[0].balance = Balance::Spread);
    let ask = |w: &mut World, station: usize| {
        let mut a = Attributes::new();
        a.push_text(kind::USER_NAME, "ann@example.org").unwrap().push_user_password(PASSWORD).unwrap();
        a.push_text(kind::CALLING_STATION_ID, &format!("02-00-00-00-00-{station:02x}")).unwrap();
        assert_eq!(w.ask(Code::ACCESS_REQUEST, a).unwrap().code, Code::ACCESS_ACCEPT);
    };
    (0..60).for_each(|s| ask(&mut w, s));
    let first: Vec<usize> = w.datagrams()[1..].to_vec();
    assert!(first.iter().all(|&n| (8..=35).contains(&n)), "{first:?}");
    (0..60).for_each(|s| ask(&mut w, s));
    assert_eq!(w.datagrams()[1..], first.iter().map(|n| n * 2).collect::<Vec<_>>(), "the same again");
}

#[test]
fn requests_move_on_from_a_server_that_dies() {
    for homes in [[home(1), home(2)], [radsec_home(1), radsec_home(2)]] {
        let mut w = world(&homes, |p| p.failover = Failover { after: 1, ..Failover::default() });
        assert!(w.pap("ann@example.org", PASSWORD).is_some());
        w.switch_off(1);
        w.pap("ann@example.org", PASSWORD);
        w.until(9);
        assert_eq!(w[2].counters().accepted_pap, 1);
        let n = w[0].counters();
        assert_eq!((n.proxy_answered, n.proxy_unanswered), (2, 0));
    }
}

#[test]
fn nobody_answers_and_what_is_said_then_is_a_setting() {
    for unanswered in [Unanswered::Silence, Unanswered::Reject] {
        let mut w = world(&[home(1)], |p| {
            let of = |r: &Realm| Realm { unanswered, ..r.clone() };
            p.realms = Realms::new(p.realms.entries().iter().map(of).collect(), None).unwrap();
        });
        w.off(1, true);
        w.pap("ann@example.org", PASSWORD);
        w.until(17);
        assert_eq!(w[0].counters().proxy_unanswered, 1, "with the home server's death");
        assert_eq!(w.answers.len(), usize::from(unanswered == Unanswered::Reject));
        w.answers.clear();
        w.until(100);
        assert_eq!(turns(&w, 0), ["home1 Authentication Suspect", "home1 Authentication Dead"]);
        // It is known to be dead now: the answer, if any, comes at once.
        let answer = w.pap("ann@example.org", PASSWORD).map(|r| r.code);
        assert_eq!(answer, (unanswered == Unanswered::Reject).then_some(Code::ACCESS_REJECT));
        w.off(1, false);
        w.until(200);
        assert_eq!(w.pap("ann@example.org", PASSWORD).unwrap().code, Code::ACCESS_ACCEPT, "it is back");
    }
}

/// How a server finds home servers to be, each change once.
fn turns(w: &World, server: usize) -> Vec<String> {
    let turn = |(s, event): &(usize, Event)| match event {
        Event::HomeServer(state) if *s == server => {
            Some(format!("{} {:?} {:?}", state.name, state.service, state.health))
        }
        _ => None,
    };
    let mut turns: Vec<String> = w.events.iter().filter_map(turn).collect();
    turns.dedup();
    turns
}

#[test]
fn one_login_waits_for_a_silent_home_server_and_those_after_it_go_to_the_next() {
    for balance in [Balance::Failover, Balance::Spread] {
        let mut w = world(&[home(1), home(2)], |p| p.pools[0].balance = balance);
        assert!(w.pap("ann@example.org", PASSWORD).is_some());
        let first = 1 + usize::from(w[2].counters().accepted_pap == 1);
        let second = 3 - first;
        w.off(first, true);
        let token = w.pap("ann@example.org", PASSWORD).map(|r| r.token);
        assert_eq!(token, None);
        w.until(3);
        assert!(w.answers.is_empty());
        w.until(4);
        assert_eq!(w.answers.pop().map(|r| r.code), Some(Code::ACCESS_ACCEPT), "after the window");
        for seconds in [4, 10, 60, 200] {
            w.until(seconds);
            assert_eq!(
                w.pap("ann@example.org", PASSWORD).unwrap().code,
                Code::ACCESS_ACCEPT,
                "at {seconds} s"
            );
        }
        assert_eq!(w[second].counters().accepted_pap, 5);
        let reports: Vec<_> = w[0].home_servers().unwrap().reports().collect();
        let of = |n: usize| reports.iter().find(|r| r.name == format!("home{n}")).unwrap();
        assert_eq!((of(first).health, of(second).health), (Health::Dead, Health::Alive));
        assert_eq!((of(first).asked.timeouts, of(second).asked.answers), (1, 5));
        w.off(first, false);
        w.until(400);
        assert_eq!(w.pap("ann@example.org", PASSWORD).unwrap().code, Code::ACCESS_ACCEPT);
        assert_eq!(w[second].counters().accepted_pap, 5, "it is back");
    }
}

/// A login goes on at the server where it began, though that owes somebody an answer.
#[test]
fn a_conversation_stays_with_a_suspect_server() {
    let mut w = world(&[home(1), home(2)], |_| {});
    let (reply, ..) = w.eap(md5("ann@example.org"), |w, round| {
        if round == 1 {
            let state = HomeServerState {
                name: "home1".into(),
                service: proxy::Service::Authentication,
                health: Health::Suspect,
                cause: HealthCause::Answered,
            };
            w.net.command(w.servers[0], Command::HomeServer(state)).unwrap();
            assert_eq!(w.pap("ann@example.org", PASSWORD).unwrap().code, Code::ACCESS_ACCEPT);
            assert_eq!(w[2].counters().accepted_pap, 1, "a new one begins elsewhere");
        }
    });
    assert_eq!(reply.unwrap().code, Code::ACCESS_ACCEPT);
    assert_eq!(w[1].counters().accepted_eap_md5, 1);
    assert_eq!(w.pap("ann@example.org", PASSWORD).unwrap().code, Code::ACCESS_ACCEPT);
    assert_eq!(w[1].counters().accepted_pap, 1, "its first word brought it back");
}

#[test]
fn what_one_server_finds_out_is_told_to_another_by_the_name() {
    let mut w = world(&[home(1), home(2)], |_| {});
    w.off(1, true);
    w.pap("ann@example.org", PASSWORD);
    w.until(20);
    // The other has its home servers in another order, as behind a reload.
    let mut other = world(&[home(2), home(1)], |_| {});
    let known = |w: &World| {
        let reports = w[0].home_servers().unwrap().reports();
        let mut all: Vec<_> = reports.map(|r| (r.name, r.service, r.health)).collect();
        all.sort();
        all
    };
    for (_, event) in w.events.drain(..) {
        if let Event::HomeServer(state) = event {
            other.net.command(other.servers[0], Command::HomeServer(state)).unwrap();
        }
    }
    assert_eq!(known(&other), known(&w));
    assert_eq!(known(&w)[0].2, Health::Dead);
    assert_eq!(w[0].realms_of("home1").count(), 4);
    assert_eq!(w[0].realms_of("home3").count(), 0);
}

#[test]
fn a_request_that_went_in_a_circle_is_dropped() {
    let mut w = world(&[home(1)], |p| p.max_hops = 3);
    for (hops, passes) in [(3, true), (4, false)] {
        let mut a = Attributes::new();
        a.push_text(kind::USER_NAME, "ann@example.org").unwrap().push_user_password(PASSWORD).unwrap();
        for i in 0..hops {
            a.push_bytes(kind::PROXY_STATE, &[i]).unwrap();
        }
        let reply = w.ask(Code::ACCESS_REQUEST, a);
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
    let mut w = world(&[home(1)], pass_all);
    let named = || {
        let mut a = Attributes::new();
        a.push_text(kind::USER_NAME, "ann@example.org").unwrap();
        a
    };
    // It fills a packet, so that a proxy has no room for its Proxy-State.
    let mut long = named();
    long.push_user_password(PASSWORD).unwrap();
    while 20 + 18 + long.as_bytes().len() + 255 <= 4096 {
        long.push_bytes(kind::CLASS, &[7; 253]).unwrap();
    }
    let rest = 4096 - 20 - 18 - long.as_bytes().len() - 2;
    long.push_bytes(kind::CLASS, &vec![7; rest]).unwrap();
    let mut unreadable = named();
    unreadable.push_bytes(kind::USER_PASSWORD, &[1; 15]).unwrap();
    for (request, reason) in [(long, Reason::Busy), (unreadable, Reason::BadProof)] {
        w.events.clear();
        assert!(w.ask(Code::ACCESS_REQUEST, request).is_none());
        let [(0, Event::Undecided(login))] = &w.events[..] else { panic!("{reason:?}: {:?}", w.events) };
        assert_eq!((&login.name[..], login.reason), (&b"ann@example.org"[..], Some(reason)));
    }
    let c = w[0].counters();
    assert_eq!((c.proxy_overload, c.proxy_unreadable, c.proxied), (1, 1, 0));
}

fn start(name: &str) -> Attributes {
    let mut a = Attributes::new();
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
        for homes in [[home(1)], [radsec_home(1)]] {
            let mut w = world(&homes, |_| {});
            let reply = w.ask(Code::ACCOUNTING_REQUEST, start(name));
            assert_eq!(reply.map(|r| r.code), Some(Code::ACCOUNTING_RESPONSE), "{name}");
            assert_eq!(*w.kept.borrow(), kept_by, "{name}");
        }
    }
}

#[test]
fn what_is_kept_here_is_acknowledged_though_the_home_server_is_away() {
    let mut w = world(&[home(1)], |_| {});
    w.off(1, true);
    let reply = w.ask(Code::ACCOUNTING_REQUEST, start("ann@both.example"));
    assert_eq!(reply.map(|r| r.code), Some(Code::ACCOUNTING_RESPONSE));
    w.off(1, false);
    w.until(5);
    assert!(w.kept.borrow().contains(&1), "sent again");
}

#[test]
fn access_servers_are_asked_for_changes() {
    let mut w = world(&[home(1)], |_| {});
    let nas = SocketAddr::new(NAS, 3799);
    let mut attributes = Attributes::new();
    attributes.push_text(kind::USER_NAME, "ann@example.org").unwrap();
    let command = |token, to, code| Command::Dynamic { token, to, code, attributes: attributes.clone() };
    assert!(
        w.net
            .command(w.servers[0], command(1, SocketAddr::new(address(7), 3799), Code::COA_REQUEST))
            .is_err()
    );
    assert!(w.net.command(w.servers[0], command(1, nas, Code::ACCESS_REQUEST)).is_err());
    for (token, code, answer, cause) in [
        (1, Code::DISCONNECT_REQUEST, Code::DISCONNECT_ACK, None),
        (2, Code::COA_REQUEST, Code::COA_NAK, Some(error_cause::UNSUPPORTED_ATTRIBUTE)),
    ] {
        w.net.command(w.servers[0], command(token, nas, code)).unwrap();
        w.settle();
        let asked = w.asked_nas.pop().unwrap();
        assert_eq!(asked.code, code);
        assert_eq!(asked.attributes.get_u32(kind::EVENT_TIMESTAMP), Some(1_767_225_600));
        let mut attributes = Attributes::new();
        if let Some(cause) = cause {
            attributes.push_u32(kind::ERROR_CAUSE, cause);
        }
        let respond = server::Command::Respond { token: asked.token, code: answer, attributes };
        w.net.command(w.nas_server, respond).unwrap();
        w.settle();
        let Some((0, Event::Dynamic { token: told, result })) = w.events.pop() else { panic!("not told") };
        let want = if answer == Code::COA_NAK { DynamicResult::Nak(cause) } else { DynamicResult::Ack };
        assert_eq!((told, result), (token, want));
    }
    w.net.command(w.servers[0], command(3, nas, Code::COA_REQUEST)).unwrap();
    w.until(60);
    let last = w.events.pop();
    assert!(
        matches!(last, Some((0, Event::Dynamic { token: 3, result: DynamicResult::TimedOut }))),
        "{last:?}"
    );
}

/// It is no client by UDP, whatever network its address is of: another's secret says nothing to it.
#[test]
fn an_access_server_by_radsec_is_not_asked_by_udp() {
    for (prefix, is_asked) in [(32, false), (24, true), (0, true)] {
        let mut config = server_of(&[], NAS, "nas");
        let clients =
            vec![ClientConfig::new(NAS, 24, secret("nas")), ClientConfig::radsec(NAS, prefix, Vec::new())];
        config.radius = Some(server::Config::new(clients));
        let mut w = World::new(vec![config]);
        let mut attributes = Attributes::new();
        attributes.push_text(kind::USER_NAME, "ann@example.org").unwrap();
        let (to, code) = (SocketAddr::new(NAS, 3799), Code::DISCONNECT_REQUEST);
        let asked = w.net.command(w.servers[0], Command::Dynamic { token: 1, to, code, attributes });
        assert_eq!(asked.is_ok(), is_asked, "{prefix}");
        w.settle();
        assert_eq!(w.asked_nas.len(), usize::from(is_asked), "{prefix}");
    }
}

#[test]
fn configurations_that_lead_nowhere_are_refused() {
    let broken = |realms: Vec<Realm>, servers: Vec<u16>| {
        let pool = Pool { name: "homes".into(), servers, balance: Balance::Failover };
        let mut config = server_of(&[], NAS, "nas");
        let realms = Realms::new(realms, None).unwrap();
        config.proxy = Some(proxy::Config::new(realms, vec![home(1)], vec![pool]));
        config.methods = vec![Method::Pap];
        usher_aaa::AaaServer::new(config, Seed::new(1).secure("aaa", 0)).map(|_| ()).unwrap_err().to_string()
    };
    let elsewhere = Realm::new("example.org", Route::Pool { pool: 1, accounting: Accounting::Forward });
    assert_eq!(
        broken(vec![elsewhere], vec![0]),
        "proxy: realm \"example.org\" leads to a pool that does not exist"
    );
    assert_eq!(
        broken(vec![], vec![0, 1]),
        "proxy: pool \"homes\" is empty or names a server that does not exist"
    );
}

#[test]
fn who_waits_for_a_former_home_server_gets_its_answer() {
    for homes in [[home(1), home(2)], [radsec_home(1), radsec_home(2)]] {
        let mut w = world(&homes, |_| {});
        // A connection stands, and the former home server takes its time.
        assert!(w.pap("ann@example.org", PASSWORD).is_some());
        let mut slow = server_of(&["ann@example.org"], address(0), "home");
        slow.reject_delay = Duration::from_secs(2);
        w.net.command(w.servers[1], Command::Reload(Box::new(slow))).unwrap();
        assert!(w.pap("ann@example.org", b"wrong").is_none());
        let pool = vec![Pool { name: "homes".into(), servers: vec![0], balance: Balance::Failover }];
        let mut config = server_of(&["bob"], NAS, "nas");
        let realms = Realms::new(vec![realm("example.org", Accounting::Forward)], None).unwrap();
        config.proxy = Some(proxy::Config::new(realms, vec![homes[1].clone()], pool));
        assert_eq!(w[0].owed(), 1);
        w.net.command(w.servers[0], Command::Reload(Box::new(config))).unwrap();
        // From now on the other one is asked; who asked before is answered all the same.
        assert_eq!(w.pap("ann@example.org", PASSWORD).unwrap().code, Code::ACCESS_ACCEPT);
        assert_eq!((w[2].counters().accepted_pap, w[0].owed()), (1, 1));
        w.until(3);
        assert_eq!(w.answers.pop().map(|r| r.code), Some(Code::ACCESS_REJECT));
        assert_eq!((w[0].owed(), w[1].counters().accepted_pap), (0, 1));
    }
}

#[test]
fn other_realms_and_other_servers_are_taken_while_running() {
    let mut w = world(&[radsec_home(1), radsec_home(2)], |_| {});
    assert!(w.pap("ann@example.org", PASSWORD).is_some());
    assert_eq!(w[1].counters().accepted_pap, 1);
    // Other realms alone: the connection stays.
    let pool = |servers| vec![Pool { name: "homes".into(), servers, balance: Balance::Failover }];
    let change = |realms: Vec<Realm>, servers| {
        let realms = Realms::new(realms, None).unwrap();
        let mut config = server_of(&["bob"], NAS, "nas");
        config.proxy = Some(proxy::Config::new(realms, vec![radsec_home(1), radsec_home(2)], pool(servers)));
        Command::Reload(Box::new(config))
    };
    let wider = vec![Realm { strip: true, ..realm("new.example", Accounting::Forward) }];
    w.net.command(w.servers[0], change(wider.clone(), vec![0, 1])).unwrap();
    assert_eq!(w.pap("ann@new.example", PASSWORD).unwrap().code, Code::ACCESS_ACCEPT);
    let opened = |w: &World| w[0].home_servers().unwrap().client().connections().1;
    assert_eq!((w[1].counters().accepted_pap, opened(&w)), (2, 1));
    // A realm that leads nowhere changes nothing.
    let nowhere = Realm::new("x.example", Route::Pool { pool: 3, accounting: Accounting::Local });
    assert!(w.net.command(w.servers[0], change(vec![nowhere], vec![0, 1])).is_err());
    // Other servers: the connection to the former one is given up.
    w.net.command(w.servers[0], change(wider, vec![1])).unwrap();
    assert_eq!(w.pap("ann@new.example", PASSWORD).unwrap().code, Code::ACCESS_ACCEPT);
    assert_eq!((w[2].counters().accepted_pap, opened(&w)), (1, 2));
    assert_eq!(w[1].radius_counters().unwrap().connections, 1);
    // And no proxy at all: the name is unknown here.
    w.net.command(w.servers[0], Command::Reload(Box::new(server_of(&["bob"], NAS, "nas")))).unwrap();
    assert_eq!(w.pap("ann@new.example", PASSWORD).unwrap().code, Code::ACCESS_REJECT);
}

/// RFC 6614 §2.5: what a home server says it does not keep is not acknowledged in its name.
#[test]
fn accounting_that_a_home_server_does_not_serve_is_not_acknowledged() {
    let mut w = world(&[radsec_home(1)], |_| {});
    let mut home = server_of(&["ann@example.org"], address(0), "home");
    home.radius.as_mut().unwrap().streams = Role::Authentication;
    w.net.command(w.servers[1], Command::Reload(Box::new(home))).unwrap();
    assert!(w.ask(Code::ACCOUNTING_REQUEST, start("ann@example.org")).is_none());
    assert_eq!((w[0].counters().proxy_unwanted, w[1].counters().accounting), (1, 0));
    assert_eq!(w.pap("ann@example.org", PASSWORD).unwrap().code, Code::ACCESS_ACCEPT);
}

/// RFC 5176 §3, §3.2 and §6.3.
#[test]
fn a_change_is_asked_for_in_the_words_that_there_are() {
    type Fill = fn(&mut Attributes);
    const AUTHORIZE_ONLY: u32 = 17;
    let mut w = world(&[home(1)], |_| {});
    let nas = SocketAddr::new(NAS, 3799);
    let dynamic = |w: &mut World, token, code, fill: Fill| {
        let mut attributes = Attributes::new();
        attributes.push_text(kind::USER_NAME, "ann").unwrap();
        fill(&mut attributes);
        w.net.command(w.servers[0], Command::Dynamic { token, to: nas, code, attributes })
    };
    let said: [(Code, Fill, bool); 4] = [
        (Code::DISCONNECT_REQUEST, |a| _ = a.push_u32(kind::SESSION_TIMEOUT, 1), false),
        (Code::DISCONNECT_REQUEST, |a| _ = a.push_text(kind::ACCT_SESSION_ID, "1").unwrap(), true),
        (Code::COA_REQUEST, |a| _ = a.push_u32(kind::SERVICE_TYPE, AUTHORIZE_ONLY), false),
        (Code::COA_REQUEST, |a| _ = a.push_u32(kind::SESSION_TIMEOUT, 1), true),
    ];
    for (token, (code, fill, taken)) in (1..).zip(said) {
        assert_eq!(dynamic(&mut w, token, code, fill).is_ok(), taken, "{token}");
    }
    // An answer of another time is none.
    w.settle();
    w.asked_nas.clear();
    dynamic(&mut w, 9, Code::COA_REQUEST, |_| ()).unwrap();
    w.settle();
    let asked = w.asked_nas.pop().unwrap();
    let mut attributes = Attributes::new();
    attributes.push_u32(kind::EVENT_TIMESTAMP, 1_767_225_600 - 301);
    let respond = server::Command::Respond { token: asked.token, code: Code::COA_ACK, attributes };
    w.net.command(w.nas_server, respond).unwrap();
    w.until(60);
    let told = w.events.iter().filter(|(_, e)| matches!(e, Event::Dynamic { token: 9, .. }));
    assert!(
        told.clone().all(|(_, e)| matches!(e, Event::Dynamic { result: DynamicResult::TimedOut, .. })),
        "{:?}",
        w.events
    );
    assert_eq!(told.count(), 1);
}
