//! A home server that says what is not its to say.

use crate::homes::{PASSWORD, home, pass_all, radsec_home, server_of, world};
use crate::translation::{NAME, behind, front, realms, station, tls};
use crate::world::{World, address, secret};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::proxy::{self, Accounting, Balance, Beside, Filter, HomeServer, Pool, Realm, Realms, Route};
use usher_aaa::{Command, Config, Event, TraceFilter, User, UserSource, Users};
use usher_core::Seed;
use usher_radius::attribute::kind;
use usher_radius::dictionary::Oid;
use usher_radius::{Attributes, Code};

/// VLAN 999 and a router's console as another user, beside what a home server may say.
fn greedy() -> Attributes {
    let mut a = Attributes::new();
    a.push_tagged_u32(kind::TUNNEL_TYPE, 0, 13).push_tagged_u32(kind::TUNNEL_MEDIUM_TYPE, 0, 6);
    a.push_bytes(kind::TUNNEL_PRIVATE_GROUP_ID, b"999").unwrap();
    a.push_vendor(9, 1, b"shell:priv-lvl=15").unwrap();
    a.push_u32(kind::SERVICE_TYPE, 6).push_text(11, "open").unwrap();
    a.push_text(kind::USER_NAME, "root").unwrap();
    a.push_u32(kind::SESSION_TIMEOUT, 600).push_bytes(kind::CLASS, b"class").unwrap();
    a
}

/// Kinds of an accept, without what the hop itself adds.
fn said(reply: &Attributes) -> Vec<u8> {
    let hop = [kind::EAP_MESSAGE, kind::MESSAGE_AUTHENTICATOR, kind::PROXY_STATE, kind::VENDOR_SPECIFIC];
    let mut all: Vec<u8> = reply.iter().map(|a| a.kind).filter(|k| !hop.contains(k)).collect();
    all.sort_unstable();
    all
}

fn users_of(config: &mut Config, name: &str) {
    let mut all = Users::new(&mut Seed::new(2).secure("users", 0));
    all.insert(name.as_bytes(), User { reply: greedy(), ..User::with_password(PASSWORD) });
    config.users = UserSource::Memory(Arc::new(all));
}

/// A proxy before a greedy home server of ann@example.org.
fn proxied(home: HomeServer, change: impl FnOnce(&mut proxy::Config)) -> World {
    let mut front = server_of(&["bob"], crate::world::NAS, "nas");
    let route = Route::Pool { pool: 0, accounting: Accounting::Local };
    let pool = Pool { name: "homes".into(), servers: vec![0], balance: Balance::Failover };
    let mut proxy = proxy::Config::new(realms(route), vec![home], vec![pool]);
    change(&mut proxy);
    front.proxy = Some(proxy);
    let mut behind = server_of(&[], address(0), "home");
    users_of(&mut behind, NAME);
    World::new(vec![front, behind])
}

const EVERYTHING: [u8; 8] = [1, 6, 11, 25, 27, 64, 65, 81];

#[test]
fn a_home_server_gives_neither_vlans_nor_privileges_nor_names() {
    for home in [home(1), radsec_home(1)] {
        let mut w = proxied(home.clone(), |_| {});
        let reply = w.pap(NAME, PASSWORD).unwrap();
        assert_eq!((reply.code, said(&reply.attributes)), (Code::ACCESS_ACCEPT, vec![25, 27]));
        assert!(reply.attributes.get_vendor(9, 1).is_none());
        assert_eq!(w[0].counters().filtered_answers, 7);
        // Unless its realm may.
        let mut w = proxied(home, pass_all);
        let reply = w.pap(NAME, PASSWORD).unwrap();
        assert_eq!(said(&reply.attributes), EVERYTHING);
        assert!(reply.attributes.get_vendor(9, 1).is_some());
        assert_eq!(w[0].counters().filtered_answers, 0);
    }
}

#[test]
fn what_a_realm_may_say_is_named() {
    let these = [vec![81], vec![26, 9, 1], vec![1]].map(|oid| Oid::new(&oid).unwrap());
    let mut w = proxied(home(1), |proxy| {
        let answers = Beside::These(these.into());
        let filter = Arc::new(Filter { answers, requests: Beside::default() });
        let realm = Realm { filter, ..proxy.realms.entries()[0].clone() };
        proxy.realms = Realms::new(vec![realm], None).unwrap();
    });
    let reply = w.pap(NAME, PASSWORD).unwrap().attributes;
    assert_eq!((said(&reply), reply.get_vendor(9, 1).is_some()), (vec![1, 25, 27, 81], true));
}

#[test]
fn a_home_server_names_its_own_users() {
    for (given, said, passes) in [
        (NAME, "other@Example.ORG", true),
        (NAME, "other@example.com", false),
        (NAME, "ann", false),
        ("ann@short.example", "ann", false),
        ("ann@short.example", "ann@short.example", true),
    ] {
        let mut w = world(&[home(1)], |_| {});
        let mut all = Users::new(&mut Seed::new(2).secure("users", 0));
        let mut user = User::with_password(PASSWORD);
        user.reply.push_text(kind::USER_NAME, said).unwrap();
        for name in [NAME, "ann"] {
            all.insert(name.as_bytes(), user.clone());
        }
        let mut behind = server_of(&[], address(0), "home");
        behind.users = UserSource::Memory(Arc::new(all));
        w.net.command(w.servers[1], Command::Reload(Box::new(behind))).unwrap();
        let reply = w.pap(given, PASSWORD).unwrap();
        assert_eq!(reply.code, Code::ACCESS_ACCEPT);
        let named = reply.attributes.get(kind::USER_NAME);
        assert_eq!(named, passes.then_some(said.as_bytes()), "{given} is called {said}");
    }
}

#[test]
fn a_home_server_is_not_told_of_vlans_and_vendors() {
    for (change, told) in [(None, vec![1, 32]), (Some(pass_all as fn(&mut proxy::Config)), vec![1, 32, 81])] {
        let mut w = proxied(home(1), |proxy| {
            if let Some(change) = change {
                change(proxy);
            }
        });
        let mut a = Attributes::new();
        a.push_text(kind::USER_NAME, NAME).unwrap().push_user_password(PASSWORD).unwrap();
        a.push_text(kind::NAS_IDENTIFIER, "switch").unwrap();
        a.push_bytes(kind::TUNNEL_PRIVATE_GROUP_ID, b"30").unwrap().push_vendor(9, 1, b"secret").unwrap();
        assert_eq!(w.ask(Code::ACCESS_REQUEST, a).unwrap().code, Code::ACCESS_ACCEPT);
        let seen = w.events.iter().find_map(|(s, e)| match e {
            Event::Accepted(login) if *s == 1 => Some(&login.request),
            _ => None,
        });
        let seen = seen.unwrap();
        let mut all = said(seen);
        all.retain(|k| *k != kind::USER_PASSWORD);
        assert_eq!((all, seen.get_vendor(9, 1).is_some()), (told, change.is_some()));
        assert_eq!(w[0].counters().filtered_requests, if change.is_some() { 0 } else { 2 });
    }
}

#[test]
fn what_is_left_out_is_traced() {
    let mut w = proxied(home(1), |_| {});
    w.net
        .command(w.servers[0], Command::Trace { slot: 0, filter: Some(TraceFilter::User(NAME.into())) })
        .unwrap();
    let mut a = Attributes::new();
    a.push_text(kind::USER_NAME, NAME).unwrap().push_user_password(PASSWORD).unwrap();
    a.push_text(11, "in").unwrap();
    w.ask(Code::ACCESS_REQUEST, a).unwrap();
    let lines: Vec<_> = w
        .events
        .iter()
        .filter_map(|(_, e)| match e {
            Event::Trace(line) => Some((line.session, line.text.as_str())),
            _ => None,
        })
        .collect();
    let has = |text: &str| lines.iter().any(|(_, line)| line.contains(text));
    assert!(has("left out of the request by the realm's filter: Filter-Id"), "{lines:?}");
    assert!(has("left out of its answer by the realm's filter: Tunnel-Private-Group-Id"), "{lines:?}");
    assert!(has("left out of its answer by the realm's filter: User-Name"), "{lines:?}");
    assert!(has("  Session-Timeout = 600") && !has("filter: Session-Timeout"), "{lines:?}");
    assert!(lines.iter().all(|(session, _)| *session == lines[0].0));
}

fn vlan(reply: &Attributes) -> bool {
    reply.get(kind::TUNNEL_PRIVATE_GROUP_ID).is_some() || reply.get_vendor(9, 1).is_some()
}

/// A realm of this route between whose ends everything passes.
fn open(config: &mut Config) {
    if let Some(proxy) = &mut config.proxy {
        pass_all(proxy);
    }
}

#[test]
fn a_diameter_home_server_gives_no_more() {
    for passes in [false, true] {
        let (mut near, mut far) = (front(true), behind());
        if passes {
            open(&mut near);
        }
        users_of(&mut far, NAME);
        let mut w = World::new(vec![near, far]);
        w.until(1);
        let reply = w.eap(station(), |_, _| {}).0.unwrap();
        assert_eq!((reply.code, vlan(&reply.attributes)), (Code::ACCESS_ACCEPT, passes));
        assert_eq!(reply.attributes.get(kind::USER_NAME).is_some(), passes);
        assert_eq!(reply.attributes.get_u32(kind::SESSION_TIMEOUT), Some(600));
        assert!(reply.mppe_keys().unwrap().unwrap().msk().is_some(), "the keys pass");
        assert_eq!(w[0].counters().filtered_answers, if passes { 0 } else { 7 });
    }
}

#[test]
fn nor_does_one_that_is_asked_for_a_diameter_peer() {
    for passes in [false, true] {
        let (mut near, mut middle) = (front(true), behind());
        open(&mut near);
        let home = HomeServer::new("home", SocketAddr::new(address(2), 1812), secret("home"));
        let pool = Pool { name: "homes".into(), servers: vec![0], balance: Balance::Failover };
        let route = Route::Pool { pool: 0, accounting: Accounting::Local };
        middle.proxy = Some(proxy::Config::new(realms(route), vec![home], vec![pool]));
        if passes {
            open(&mut middle);
        }
        let mut last = server_of(&[], address(1), "home");
        tls(&mut last);
        users_of(&mut last, NAME);
        let mut w = World::new(vec![near, middle, last]);
        w.until(1);
        let reply = w.eap(station(), |_, _| {}).0.unwrap();
        assert_eq!((reply.code, vlan(&reply.attributes)), (Code::ACCESS_ACCEPT, passes));
        assert!(reply.mppe_keys().unwrap().unwrap().msk().is_some(), "the keys pass");
    }
}
