//! Sessions over their lives: accounting records, and the AAA server's authorization.

use super::aaa::{AAA_GATEWAY, AaaTestNetwork, site_client};
use super::*;
use usher_aaa::DynamicAuthResult;
use usher_esp::plane::SaUsage;
use usher_esp::sa::TrafficVolume;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;

const PASSWORD: &str = "a long password";

/// A site where ann has been logged in for two seconds.
fn logged_in(mut site: AaaTestNetwork) -> (AaaTestNetwork, NetworkHostHandle<IkeGateway>) {
    let host = site.world.add_client(CLIENT, &site_client("md5", "ann", PASSWORD));
    site.world.connect(host, "home");
    site.world.run_for(secs(2));
    assert_eq!(site.world.sa_statuses(host).len(), 1, "{:?}", site.world.end_reasons(host));
    (site, host)
}
fn push_ann_name(a: &mut AttributeList) {
    a.push_text(kind::USER_NAME, "ann").unwrap();
}
fn used_addresses(site: &AaaTestNetwork) -> Vec<u64> {
    site.world.net[site.world.gateway].pool_usage().map(|pool| pool.addresses.0).collect()
}

#[test]
fn an_address_of_the_server_goes_before_every_pool() {
    let (mut site, host) = logged_in(AaaTestNetwork::new(AAA_GATEWAY, |reply| {
        reply.push_ipv4(kind::FRAMED_IP_ADDRESS, "10.77.0.9".parse().unwrap());
    }));
    let own: IpAddr = "10.77.0.9".parse().unwrap();
    assert_eq!(site.world.sa_statuses(host)[0].addresses, [own]);
    assert_eq!(used_addresses(&site), [0, 0]);
    assert_eq!(site.received_records.borrow()[0].framed_address, Some(own));
    // 255.255.255.254 lets the gateway choose (RFC 2865 §5.8).
    let (mut site, host) = logged_in(AaaTestNetwork::new(AAA_GATEWAY, |reply| {
        reply.push_ipv4(kind::FRAMED_IP_ADDRESS, "255.255.255.254".parse().unwrap());
    }));
    assert!(site.world.sa_statuses(host)[0].addresses[0].to_string().starts_with("10.9.0."));
    assert_eq!(used_addresses(&site), [1, 0]);
}

#[test]
fn an_unknown_pool_gives_no_address_despite_other_pools() {
    let (mut site, host) = logged_in(AaaTestNetwork::new(AAA_GATEWAY, |reply| {
        reply.push_text(kind::FRAMED_POOL, "nowhere").unwrap();
    }));
    assert!(site.world.sa_statuses(host)[0].addresses.is_empty());
    assert_eq!(site.world.login_failures(site.world.gateway), [LoginFailure::NoAddress]);
    assert_eq!((used_addresses(&site), site.world.installed_children(host).len()), (vec![0, 0], 0));
}

/// RFC 2866 §5.1: sessions of a killed gateway have ended.
#[test]
fn the_server_is_told_that_the_gateway_begins() {
    // The server starts after the gateway: the record is sent again.
    let told = |text: &str| {
        let (mut site, _) = logged_in(AaaTestNetwork::new(text, |_| {}));
        site.world.run_for(secs(60));
        (site.accounting_on_count.get(), site.record_kinds())
    };
    assert_eq!(told(AAA_GATEWAY), (1, vec!["Start".to_string()]));
    let quiet = AAA_GATEWAY.replace("accounting = true", "accounting = false");
    assert_eq!(told(&quiet), (0, vec![]));
}

/// A record after the first login would end that session too.
#[test]
fn the_server_gets_an_accounting_on_before_any_client_comes() {
    let mut site = AaaTestNetwork::new(AAA_GATEWAY, |_| {});
    site.world.run_for(secs(1));
    assert_eq!((site.accounting_on_count.get(), site.record_kinds().len()), (1, 0));
}

/// RFC 2865 §5.27: the timeout is of the session, across all of its IKE_SAs.
#[test]
fn times_of_a_session_outlast_the_replacement_of_its_ike_sa() {
    let (mut site, host) = logged_in(AaaTestNetwork::new(AAA_GATEWAY, |reply| {
        reply.push_u32(kind::SESSION_TIMEOUT, 100);
        reply.push_u32(kind::ACCT_INTERIM_INTERVAL, 40);
    }));
    for _ in 0..3 {
        let rekey = GatewayCommand::Rekey { token: 1, selection: IkeSaSelector::All, children: false };
        let before = site.world.sa_statuses(host)[0].spis;
        site.world.net.send_command(host, rekey).unwrap();
        site.world.run_for(secs(10));
        assert_ne!(site.world.sa_statuses(host)[0].spis, before);
    }
    // 32 s, 38 s, 42 s.
    assert_eq!(site.record_kinds(), ["Start"]);
    site.world.run_for(secs(6));
    assert_eq!(site.record_kinds(), ["Start"]);
    site.world.run_for(secs(4));
    assert_eq!(site.record_kinds(), ["Start", "Interim"]);
    site.world.run_for(secs(57));
    assert_eq!((site.world.sa_statuses(host).len(), site.record_kinds().len()), (1, 3), "99 s");
    site.world.run_for(secs(3));
    assert_eq!((site.world.sa_statuses(host).len(), site.record_kinds().len()), (0, 4), "102 s");
    assert_eq!(used_addresses(&site), [0, 0]);
    site.world.run_for(secs(200));
    assert_eq!(site.record_kinds(), ["Start", "Interim", "Interim", "Stop"], "nothing of it is left");
    let told = site.received_records.borrow();
    assert_eq!(told[3].session_time, Some(100));
    assert!(told.iter().all(|record| record.session == told[0].session));
}

/// The server's interval precedes the file's. Without either, there are no interim records.
#[test]
fn how_often_the_server_is_told_is_its_own_word_or_the_files() {
    let text =
        |interim: &str| AAA_GATEWAY.replace("accounting = true", &format!("accounting = true\n{interim}"));
    for (file, said, kinds) in [
        ("", None, 0),
        ("interim = \"30 s\"", None, 3),
        ("interim = \"30 s\"", Some(50), 2),
        ("", Some(50), 2),
        ("interim = \"30 s\"", Some(0), 0),
    ] {
        let (mut site, _) = logged_in(AaaTestNetwork::new(&text(file), |reply| {
            if let Some(said) = said {
                reply.push_u32(kind::ACCT_INTERIM_INTERVAL, said);
            }
        }));
        site.world.run_for(secs(108));
        let interims = site.record_kinds().iter().filter(|kind| *kind == "Interim").count();
        assert_eq!(interims, kinds, "{file} {said:?}");
    }
    let (site, _) = logged_in(AaaTestNetwork::new(
        &AAA_GATEWAY.replace("accounting = true", "accounting = false"),
        |_| {},
    ));
    assert!(site.record_kinds().is_empty());
}

/// The stop record waits for the report of the last CHILD_SA, for a limited time.
#[test]
fn the_last_record_has_what_was_carried() {
    for says in [true, false] {
        let (mut site, host) =
            logged_in(AaaTestNetwork::in_world(GatewayTestNetwork::with_metering(AAA_GATEWAY), |_| {}));
        let gateway = site.world.gateway;
        let spi = *site.world.installed_children(gateway).keys().next().unwrap();
        let usage = |packets| {
            let volume = |packets| TrafficVolume { packets, octets: packets * 100 };
            SaUsage { received: volume(packets), sent: volume(2 * packets), last_received: None }
        };
        site.world.net.send_command(gateway, GatewayCommand::UsageReport(vec![(spi, usage(5))])).unwrap();
        site.world
            .net
            .send_command(host, GatewayCommand::Down { token: 1, selection: IkeSaSelector::All })
            .unwrap();
        site.world.run_for(millis(500));
        assert_eq!(site.record_kinds(), ["Start"], "its host has not spoken");
        // The address is free meanwhile.
        assert_eq!(used_addresses(&site), [0, 0]);
        if says {
            let removed = GatewayCommand::Removed { inbound: spi, usage: Some(usage(7)) };
            site.world.net.send_command(gateway, removed).unwrap();
            site.world.run_for(millis(100));
        } else {
            site.world.run_for(secs(4));
            assert_eq!(site.record_kinds(), ["Start"]);
            site.world.run_for(secs(1));
        }
        assert_eq!(site.record_kinds(), ["Start", "Stop"], "{says}");
        let told = site.received_records.borrow();
        let packets = if says { 7 } else { 5 };
        let last = &told[1];
        assert_eq!((last.input_packets, last.output_octets), (Some(packets), Some(packets * 200)));
        // The duration ends with the session, not with the report.
        assert_eq!(last.session_time, Some(1));
    }
}

/// RFC 5176 §3.5 and RFC 2865 §5.27: a session is selected by its user, and ends at once if its new end has passed.
#[test]
fn a_change_that_lies_in_the_past_ends_the_session_now() {
    let (mut site, host) = logged_in(AaaTestNetwork::new(AAA_GATEWAY, |_| {}));
    site.world.run_for(secs(50));
    let shorter = |a: &mut AttributeList| {
        push_ann_name(a);
        a.push_u32(kind::SESSION_TIMEOUT, 20);
    };
    assert_eq!(site.send_dynamic_request(PacketCode::COA_REQUEST, shorter), DynamicAuthResult::Ack);
    assert_eq!(site.world.sa_statuses(host).len(), 0);
    // Session-Timeout (RFC 2866 §5.10).
    assert_eq!(site.received_records.borrow()[1].terminate_cause, Some(5));
}

#[test]
fn a_new_interim_interval_holds_at_once_and_zero_is_ignored() {
    let (mut site, _) = logged_in(AaaTestNetwork::new(AAA_GATEWAY, |reply| {
        reply.push_u32(kind::ACCT_INTERIM_INTERVAL, 60);
    }));
    let every = |seconds: u32| {
        move |a: &mut AttributeList| {
            push_ann_name(a);
            a.push_u32(kind::ACCT_INTERIM_INTERVAL, seconds);
        }
    };
    assert_eq!(site.send_dynamic_request(PacketCode::COA_REQUEST, every(70)), DynamicAuthResult::Ack);
    assert_eq!(site.send_dynamic_request(PacketCode::COA_REQUEST, every(0)), DynamicAuthResult::Ack);
    site.world.run_for(secs(65));
    assert_eq!(site.record_kinds(), ["Start"], "the first time is given up");
    site.world.run_for(secs(5));
    assert_eq!(site.record_kinds(), ["Start", "Interim"]);
}

#[test]
fn somebody_else_is_neither_changed_nor_ended() {
    let (mut site, host) = logged_in(AaaTestNetwork::new(AAA_GATEWAY, |_| {}));
    let bob = |a: &mut AttributeList| {
        a.push_text(kind::USER_NAME, "bob").unwrap();
    };
    let changed = |a: &mut AttributeList| {
        bob(a);
        a.push_u32(kind::SESSION_TIMEOUT, 1);
    };
    assert_eq!(
        site.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, bob),
        DynamicAuthResult::Nak(Some(503))
    );
    assert_eq!(
        site.send_dynamic_request(PacketCode::COA_REQUEST, changed),
        DynamicAuthResult::Nak(Some(503))
    );
    site.world.run_for(secs(5));
    assert_eq!(site.world.sa_statuses(host).len(), 1);
    assert_eq!(
        site.send_dynamic_request(PacketCode::DISCONNECT_REQUEST, push_ann_name),
        DynamicAuthResult::Ack
    );
    assert_eq!(site.world.sa_statuses(host).len(), 0);
}

/// RFC 2866 §5.10: the cause of the end.
#[test]
fn the_server_is_told_why_a_session_has_ended() {
    let (user, reset, reboot) = (Some(1), Some(6), Some(7));
    let down = || GatewayCommand::Down { token: 1, selection: IkeSaSelector::All };
    for (by_client, command, cause) in
        [(true, down(), user), (false, down(), reset), (false, GatewayCommand::Leave, reboot)]
    {
        let (mut site, host) = logged_in(AaaTestNetwork::new(AAA_GATEWAY, |_| {}));
        let told = if by_client { host } else { site.world.gateway };
        let leaves = matches!(command, GatewayCommand::Leave);
        site.world.net.send_command(told, command).unwrap();
        site.world.run_for(secs(1));
        let kinds: &[&str] = if leaves { &["Start", "Stop", "Off"] } else { &["Start", "Stop"] };
        assert_eq!(site.record_kinds(), kinds);
        assert_eq!(site.received_records.borrow()[1].terminate_cause, cause);
        assert_eq!((site.world.sa_statuses(host).len(), used_addresses(&site)), (0, vec![0, 0]));
    }
}

/// A session ends when its certificate is revoked, and the server gets a stop record.
#[test]
fn whose_certificate_is_revoked_has_no_session_any_more() {
    let by_certificate = "remote_auth = \"certificate\"\nca = \"ca.pem\"";
    let gateway = AAA_GATEWAY.replace("remote_auth = \"eap\"", by_certificate);
    let client = r#"
[[connection]]
name = "home"
local_id = "station@usher.test"
remote_id = "aaa.usher.test"
local_auth = "certificate"
remote_auth = "certificate"
certificate = "user.pem"
key = "user.key"
ca = "ca.pem"
remote_address = "192.0.2.1"
address = true
start = true
[[connection.child]]
name = "net"
remote = ["10.2.0.0/16"]
"#;
    let mut site = AaaTestNetwork::new(&gateway, |_| {});
    let host = site.world.add_client(CLIENT, client);
    site.world.run_for(secs(2));
    let own = &load_config(client).config.peers[0].connection.local_auth;
    let usher_ike::machine::LocalAuth::Certificate { chain, .. } = own else { unreachable!() };
    let name = usher_crypto::x509::certificate_name(&chain[0]).unwrap();
    let gateway = site.world.gateway;
    for (names, kinds) in [(vec![[1; 16]], &["Start"][..]), (vec![[1; 16], name], &["Start", "Stop"][..])] {
        let names = std::sync::Arc::new(names.into_iter().collect());
        site.world.net.send_command(gateway, GatewayCommand::Revoked(names)).unwrap();
        site.world.run_for(secs(1));
        assert_eq!(site.record_kinds(), kinds);
    }
    // Admin Reset.
    assert_eq!(site.received_records.borrow()[1].terminate_cause, Some(6));
    let ended = [gateway, host].map(|host| site.world.end_reasons(host));
    assert_eq!(ended, [[EndReason::Revoked], [EndReason::DeletedByPeer]]);
    assert_eq!((site.world.sa_statuses(host).len(), used_addresses(&site)), (0, vec![0, 0]));
}

/// A client that leaves during its login leaves no state: no AAA request, no address.
#[test]
fn who_goes_away_amid_a_login_is_forgotten() {
    let mut site = AaaTestNetwork::new(AAA_GATEWAY, |_| {});
    site.world.net.set_silent(site.server, true);
    let host = site.world.add_client(CLIENT, &site_client("md5", "ann", PASSWORD));
    site.world.connect(host, "home");
    site.world.run_for(millis(500));
    let gateway = site.world.gateway;
    let waiting = |site: &AaaTestNetwork| {
        (site.world.net[gateway].logins.len(), site.world.net[gateway].subscribers.pending_request_count())
    };
    assert_eq!(waiting(&site), (1, 1));
    site.world.net.set_silent(host, true);
    site.world.run_for(secs(120));
    assert_eq!((waiting(&site), site.world.net[gateway].half_open()), ((0, 0), 0));
    assert_eq!(site.world.login_failures(gateway), [LoginFailure::Unanswered]);
}
