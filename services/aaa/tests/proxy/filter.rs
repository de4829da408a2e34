//! A home server that sends attributes beyond its authority.

use crate::homes::{PASSWORD, home_server, pass_all, proxy_network, radsec_home, server_of};
use crate::translation::{NAME, enable_tls, front_config, home_config, realm_table, tls_station};
use crate::world::{ProxyTestNetwork, secret_for_name, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::proxy::{
    self, AccountingMode, AllowedExtraAttributes, HomeServer, HomeServerPool, PoolBalance, Realm,
    RealmFilter, RealmTable, RealmTarget,
};
use usher_aaa::{
    AaaServerCommand, AaaServerConfig, AaaServerEvent, LoginTraceFilter, User, UserDirectory, UserSource,
};
use usher_core::Seed;
use usher_radius::attribute::kind;
use usher_radius::dictionary::AttributeOid;
use usher_radius::{AttributeList, PacketCode};

/// VLAN 999 and router console privileges for another user, besides allowed attributes.
fn greedy_attributes() -> AttributeList {
    let mut a = AttributeList::new();
    a.push_tagged_u32(kind::TUNNEL_TYPE, 0, 13).push_tagged_u32(kind::TUNNEL_MEDIUM_TYPE, 0, 6);
    a.push_bytes(kind::TUNNEL_PRIVATE_GROUP_ID, b"999").unwrap();
    a.push_vendor(9, 1, b"shell:priv-lvl=15").unwrap();
    a.push_u32(kind::SERVICE_TYPE, 6).push_text(11, "open").unwrap();
    a.push_text(kind::USER_NAME, "root").unwrap();
    a.push_u32(kind::SESSION_TIMEOUT, 600).push_bytes(kind::CLASS, b"class").unwrap();
    a
}

/// Returns the attribute kinds of an accept, without those of the hop itself.
fn accepted_kinds(reply: &AttributeList) -> Vec<u8> {
    let hop = [kind::EAP_MESSAGE, kind::MESSAGE_AUTHENTICATOR, kind::PROXY_STATE, kind::VENDOR_SPECIFIC];
    let mut all: Vec<u8> = reply.iter().map(|a| a.kind).filter(|k| !hop.contains(k)).collect();
    all.sort_unstable();
    all
}

fn users_of(config: &mut AaaServerConfig, name: &str) {
    let mut all = UserDirectory::new(&mut Seed::new(2).derive_secure_rng("users", 0));
    all.insert(name.as_bytes(), User { reply: greedy_attributes(), ..User::with_password(PASSWORD) });
    config.users = UserSource::Memory(Arc::new(all));
}

/// A proxy before a home server of ann@example.org with such answers.
fn proxied_network(home: HomeServer, change: impl FnOnce(&mut proxy::ProxyConfig)) -> ProxyTestNetwork {
    let mut front = server_of(&["bob"], crate::world::NAS, "nas");
    let route = RealmTarget::Pool { pool: 0, accounting: AccountingMode::Local };
    let pool = HomeServerPool { name: "homes".into(), servers: vec![0], balance: PoolBalance::Failover };
    let mut proxy = proxy::ProxyConfig::new(realm_table(route), vec![home], vec![pool]);
    change(&mut proxy);
    front.proxy = Some(proxy);
    let mut behind = server_of(&[], server_address(0), "home");
    users_of(&mut behind, NAME);
    ProxyTestNetwork::new(vec![front, behind])
}

const EVERYTHING: [u8; 8] = [1, 6, 11, 25, 27, 64, 65, 81];

#[test]
fn a_home_server_gives_neither_vlans_nor_privileges_nor_names() {
    for home in [home_server(1), radsec_home(1)] {
        let mut w = proxied_network(home.clone(), |_| {});
        let reply = w.log_in_pap(NAME, PASSWORD).unwrap();
        assert_eq!(
            (reply.code, accepted_kinds(&reply.attributes)),
            (PacketCode::ACCESS_ACCEPT, vec![25, 27])
        );
        assert!(reply.attributes.get_vendor(9, 1).is_none());
        assert_eq!(w[0].counters().filtered_answers, 7);
        // Unless its realm allows it.
        let mut w = proxied_network(home, pass_all);
        let reply = w.log_in_pap(NAME, PASSWORD).unwrap();
        assert_eq!(accepted_kinds(&reply.attributes), EVERYTHING);
        assert!(reply.attributes.get_vendor(9, 1).is_some());
        assert_eq!(w[0].counters().filtered_answers, 0);
    }
}

#[test]
fn what_a_realm_may_say_is_named() {
    let these = [vec![81], vec![26, 9, 1], vec![1]].map(|oid| AttributeOid::new(&oid).unwrap());
    let mut w = proxied_network(home_server(1), |proxy| {
        let answers = AllowedExtraAttributes::These(these.into());
        let filter = Arc::new(RealmFilter { answers, requests: AllowedExtraAttributes::default() });
        let realm = Realm { filter, ..proxy.realms.entries()[0].clone() };
        proxy.realms = RealmTable::new(vec![realm], None).unwrap();
    });
    let reply = w.log_in_pap(NAME, PASSWORD).unwrap().attributes;
    assert_eq!((accepted_kinds(&reply), reply.get_vendor(9, 1).is_some()), (vec![1, 25, 27, 81], true));
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
        let mut w = proxy_network(&[home_server(1)], |_| {});
        let mut all = UserDirectory::new(&mut Seed::new(2).derive_secure_rng("users", 0));
        let mut user = User::with_password(PASSWORD);
        user.reply.push_text(kind::USER_NAME, said).unwrap();
        for name in [NAME, "ann"] {
            all.insert(name.as_bytes(), user.clone());
        }
        let mut behind = server_of(&[], server_address(0), "home");
        behind.users = UserSource::Memory(Arc::new(all));
        w.net.send_command(w.servers[1], AaaServerCommand::Reload(Box::new(behind))).unwrap();
        let reply = w.log_in_pap(given, PASSWORD).unwrap();
        assert_eq!(reply.code, PacketCode::ACCESS_ACCEPT);
        let named = reply.attributes.get(kind::USER_NAME);
        assert_eq!(named, passes.then_some(said.as_bytes()), "{given} is called {said}");
    }
}

#[test]
fn a_home_server_is_not_told_of_vlans_and_vendors() {
    for (change, told) in
        [(None, vec![1, 32]), (Some(pass_all as fn(&mut proxy::ProxyConfig)), vec![1, 32, 81])]
    {
        let mut w = proxied_network(home_server(1), |proxy| {
            if let Some(change) = change {
                change(proxy);
            }
        });
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, NAME).unwrap().push_user_password(PASSWORD).unwrap();
        a.push_text(kind::NAS_IDENTIFIER, "switch").unwrap();
        a.push_bytes(kind::TUNNEL_PRIVATE_GROUP_ID, b"30").unwrap().push_vendor(9, 1, b"secret").unwrap();
        assert_eq!(w.request_reply(PacketCode::ACCESS_REQUEST, a).unwrap().code, PacketCode::ACCESS_ACCEPT);
        let seen = w.events.iter().find_map(|(s, e)| match e {
            AaaServerEvent::Accepted(login) if *s == 1 => Some(&login.request),
            _ => None,
        });
        let seen = seen.unwrap();
        let mut all = accepted_kinds(seen);
        all.retain(|k| *k != kind::USER_PASSWORD);
        assert_eq!((all, seen.get_vendor(9, 1).is_some()), (told, change.is_some()));
        assert_eq!(w[0].counters().filtered_requests, if change.is_some() { 0 } else { 2 });
    }
}

#[test]
fn what_is_left_out_is_traced() {
    let mut w = proxied_network(home_server(1), |_| {});
    w.net
        .send_command(
            w.servers[0],
            AaaServerCommand::Trace { slot: 0, filter: Some(LoginTraceFilter::User(NAME.into())) },
        )
        .unwrap();
    let mut a = AttributeList::new();
    a.push_text(kind::USER_NAME, NAME).unwrap().push_user_password(PASSWORD).unwrap();
    a.push_text(11, "in").unwrap();
    w.request_reply(PacketCode::ACCESS_REQUEST, a).unwrap();
    let lines: Vec<_> = w
        .events
        .iter()
        .filter_map(|(_, e)| match e {
            AaaServerEvent::Trace(line) => Some((line.session, line.text.as_str())),
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

fn has_vlan(reply: &AttributeList) -> bool {
    reply.get(kind::TUNNEL_PRIVATE_GROUP_ID).is_some() || reply.get_vendor(9, 1).is_some()
}

/// A realm with this target whose filter passes everything.
fn open_filter(config: &mut AaaServerConfig) {
    if let Some(proxy) = &mut config.proxy {
        pass_all(proxy);
    }
}

#[test]
fn a_diameter_home_server_gives_no_more() {
    for passes in [false, true] {
        let (mut near, mut far) = (front_config(true), home_config());
        if passes {
            open_filter(&mut near);
        }
        users_of(&mut far, NAME);
        let mut w = ProxyTestNetwork::new(vec![near, far]);
        w.run_until_second(1);
        let reply = w.log_in_eap(tls_station(), |_, _| {}).0.unwrap();
        assert_eq!((reply.code, has_vlan(&reply.attributes)), (PacketCode::ACCESS_ACCEPT, passes));
        assert_eq!(reply.attributes.get(kind::USER_NAME).is_some(), passes);
        assert_eq!(reply.attributes.get_u32(kind::SESSION_TIMEOUT), Some(600));
        assert!(reply.mppe_keys().unwrap().unwrap().msk().is_some(), "the keys pass");
        assert_eq!(w[0].counters().filtered_answers, if passes { 0 } else { 7 });
    }
}

#[test]
fn nor_does_one_that_is_asked_for_a_diameter_peer() {
    for passes in [false, true] {
        let (mut near, mut middle) = (front_config(true), home_config());
        open_filter(&mut near);
        let home = HomeServer::new("home", SocketAddr::new(server_address(2), 1812), secret_for_name("home"));
        let pool = HomeServerPool { name: "homes".into(), servers: vec![0], balance: PoolBalance::Failover };
        let route = RealmTarget::Pool { pool: 0, accounting: AccountingMode::Local };
        middle.proxy = Some(proxy::ProxyConfig::new(realm_table(route), vec![home], vec![pool]));
        if passes {
            open_filter(&mut middle);
        }
        let mut last = server_of(&[], server_address(1), "home");
        enable_tls(&mut last);
        users_of(&mut last, NAME);
        let mut w = ProxyTestNetwork::new(vec![near, middle, last]);
        w.run_until_second(1);
        let reply = w.log_in_eap(tls_station(), |_, _| {}).0.unwrap();
        assert_eq!((reply.code, has_vlan(&reply.attributes)), (PacketCode::ACCESS_ACCEPT, passes));
        assert!(reply.mppe_keys().unwrap().unwrap().msk().is_some(), "the keys pass");
    }
}
