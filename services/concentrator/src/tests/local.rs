//! Local users of a concentrator.

use super::hostile::pppoe_frame;
use super::*;
use crate::SessionUsage;
use crate::track::{AddressSearch, SessionLogIndex};
use usher_ppp::pppoe::PppoeStage;

#[test]
fn users_are_let_in_by_each_protocol_and_get_addresses() {
    for protocol in AuthenticationProtocol::ALL {
        let mut world =
            ConcentratorTestNetwork::new(LOCAL, vec![client_config(1, protocol, "ann", "a long password")]);
        world.connect_and_wait(0);
        let installed = world.installed_sessions();
        assert_eq!(
            installed.len(),
            1,
            "{protocol}: {:?} {:?}",
            world.login_failures(),
            world.client_end_reasons(0)
        );
        let entry = installed.values().next().unwrap();
        let inside = u32::from(entry.ipv4.unwrap()) - u32::from(Ipv4Addr::new(10, 0, 0, 0));
        assert!((2..15).contains(&inside), "of the pool, and not the concentrator's own: {inside}");
        assert_eq!(
            (entry.gateway, entry.peer, entry.mtu),
            (Some(Ipv4Addr::new(10, 0, 0, 1)), host_mac(1), 1492)
        );
        assert_eq!((entry.rate_up, entry.rate_down, entry.clamp_mss), (None, Some(100_000_000), true));
        let lengths: Vec<u8> = entry.ipv6.iter().map(|(_, bits)| *bits).collect();
        assert_eq!((lengths, entry.link_local.is_some()), (vec![64, 56], true));
        let status = world.session_statuses();
        assert_eq!((status.len(), status[0].user.as_str(), status[0].port.as_str()), (1, "ann", "eth1"));
        assert_eq!((status[0].ipv4, status[0].station.as_str()), (entry.ipv4, "02:00:00:01:00:01"));
        assert_eq!(world.client_networks(0).len(), 2, "the host has both families");
    }
}

#[test]
fn who_is_not_known_or_does_not_know_the_password_stays_outside() {
    for protocol in AuthenticationProtocol::ALL {
        for (name, password) in [("ann", "wrong"), ("eve", "a long password"), ("", "a long password")] {
            let mut world =
                ConcentratorTestNetwork::new(LOCAL, vec![client_config(1, protocol, name, password)]);
            world.connect_and_wait(0);
            assert!(
                world.installed_sessions().is_empty() && world.client_networks(0).is_empty(),
                "{protocol} {name}"
            );
            let why = if name.is_empty() { LoginFailure::NoName } else { LoginFailure::Rejected };
            assert_eq!(world.login_failures().first(), Some(&why), "{protocol} {name}");
            assert_eq!(
                (world.session_statuses().len(), world.disk.borrow().lines.len()),
                (0, 1),
                "nothing is kept of it"
            );
        }
    }
}

#[test]
fn octets_of_a_session_count_once_though_its_number_is_reused() {
    let mut loaded = load_config(LOCAL);
    loaded.config.subscribers.is_metered = true;
    let mut world = ConcentratorTestNetwork::on_one_ethernet(loaded, vec![ann_client(1)]);
    world.connect_and_wait(0);
    let first = world.session_statuses().remove(0);
    let usage = |octets_in| SessionUsage { octets_in, packets_in: 1, ..SessionUsage::default() };
    let carried = |world: &mut ConcentratorTestNetwork, octets| {
        world
            .net
            .send_command(
                world.ac,
                AccessConcentratorCommand::UsageReport(vec![(first.number, usage(octets))]),
            )
            .unwrap();
    };
    carried(&mut world, 60);
    // The host renegotiates its link: LCP's Configure-Request.
    world.deliver_frame(&pppoe_frame(
        host_mac(1),
        AC,
        PppoeStage::Session,
        usher_ppp::pppoe::PppoeCode::SESSION,
        first.number,
        &[0xc0, 0x21, 1, 99, 0, 4],
    ));
    world.net.run_for(secs(4));
    let second = world.session_statuses().remove(0);
    assert_eq!((second.number, second.id > first.id), (first.number, true), "{:?}", world.end_reasons());
    // A report in transit concerns the first session.
    carried(&mut world, 100);
    assert_eq!((world.counter_value("octets_in"), world.session_statuses()[0].usage.octets_in), (100, 0));
    let removed = AccessConcentratorCommand::Removed { id: first.id, usage: Some(usage(150)) };
    world.net.send_command(world.ac, removed).unwrap();
    carried(&mut world, 20);
    assert_eq!((world.counter_value("octets_in"), world.session_statuses()[0].usage.octets_in), (170, 20));
    let ends: Vec<u64> = world
        .log_records()
        .iter()
        .filter_map(|record| match record {
            SessionLogRecord::End(end) => Some(end.octets_in),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [150]);
}

#[test]
fn a_name_that_is_no_text_is_nobodys() {
    // A name with a line feed could fake a line of another user.
    for name in [&b"ann\xff"[..], b"ann\nbob", b"ann\t", b"\x1b[2Jann"] {
        let credentials = PppCredentials {
            name: name.to_vec(),
            password: b"a long password"[..].into(),
            protocols: vec![AuthenticationProtocol::Chap],
            eap_methods: Arc::new([]),
        };
        let mut world =
            ConcentratorTestNetwork::new(LOCAL, vec![ClientConfig::new(PORT, host_mac(1), credentials)]);
        world.connect_and_wait(0);
        assert_eq!(
            (world.login_failures(), world.session_statuses().len()),
            (vec![LoginFailure::BadName], 0)
        );
    }
}

/// A Windows user with a domain, and a name of maximum length, are recorded in full.
#[test]
fn a_user_is_known_by_the_whole_name() {
    let long = "x".repeat(200);
    for name in ["CORP\\bob", "bob@example.org", "host/pc1.example.org", &long] {
        for protocol in AuthenticationProtocol::ALL {
            let text = LOCAL.replace("name = \"bob\"", &format!("name = '{name}'"));
            let short = name.rsplit(['\\', '/']).next().unwrap().split('@').next().unwrap();
            let hosts = vec![
                client_config(1, protocol, name, "another password"),
                client_config(2, protocol, name, "a long password"),
                client_config(3, protocol, if short == name { "x" } else { short }, "another password"),
            ];
            let mut world = ConcentratorTestNetwork::new(&text, hosts);
            (0..3).for_each(|n| world.connect_and_wait(n));
            let users: Vec<String> = world.session_statuses().into_iter().map(|one| one.user).collect();
            assert_eq!(users, [name], "{protocol}");
            assert_eq!(world.login_failures(), [LoginFailure::Rejected; 2], "{protocol} {name}");
        }
    }
}

/// Parallel attempts are limited by each protocol. A user known at a station can log in there meanwhile.
#[test]
fn whoever_guesses_is_held_back_by_name_and_by_station() {
    for protocol in AuthenticationProtocol::ALL {
        let limited = "[authentication]\nfailures = 3\nfailure_window = \"60 s\"\nlockout_time = \"100 s\"\n";
        let text = LOCAL.replace("[authentication]\n", limited);
        let guess = |n, name| client_config(n, protocol, name, "a guess");
        let at_home = client_config(1, protocol, "ann", "a long password");
        let elsewhere = client_config(2, protocol, "ann", "a long password");
        let of_bob = client_config(2, protocol, "bob", "another password");
        let mut hosts = vec![at_home, elsewhere, of_bob];
        // Five stations try one name, and one station tries four.
        hosts.extend((10..15).map(|n| guess(n, "ann")));
        hosts.extend(["eve", "otto", "bob", "nobody"].map(|name| guess(20, name)));
        let mut world = ConcentratorTestNetwork::new(&text, hosts);
        world.connect_and_wait(0);
        let counted = |world: &ConcentratorTestNetwork| {
            ["logins_rejected", "logins_locked_out"].map(|name| world.counter_value(name))
        };
        for n in 3..8 {
            world.connect_and_wait(n);
            world.net.set_silent(world.clients[n], true);
        }
        assert_eq!(counted(&world), [5, 2], "{protocol}");
        assert_eq!(world.login_failures().last(), Some(&LoginFailure::LockedOut));
        world.connect_and_wait(1);
        assert_eq!((counted(&world), world.session_statuses().len()), ([6, 3], 1), "{protocol}: not weighed");
        world.net.set_silent(world.clients[1], true);
        world.connect_and_wait(2);
        assert_eq!(world.session_statuses().len(), 2, "{protocol}: another user is");
        for n in 8..12 {
            world.connect_and_wait(n);
            world.net.set_silent(world.clients[n], true);
        }
        assert_eq!(counted(&world), [10, 4], "{protocol}");
        // A user who has logged in at a station can do so again during failed attempts elsewhere.
        world.net.send_command(world.clients[0], ClientCommand::Disconnect).unwrap();
        world.net.run_for(secs(1));
        world.connect_and_wait(0);
        assert_eq!(world.session_statuses().iter().filter(|one| one.user == "ann").count(), 1, "{protocol}");
        // The lockout of the name expires.
        world.net.run_for(secs(110));
        world.net.set_silent(world.clients[1], false);
        world.connect_and_wait(1);
        assert_eq!(world.session_statuses().iter().filter(|one| one.user == "ann").count(), 2, "{protocol}");
    }
}

#[test]
fn a_host_that_lost_its_power_has_its_users_place_again() {
    let text = format!("{LOCAL}[limits]\nsessions_per_user = 1\nexcess = \"refuse\"\n");
    let mut world = ConcentratorTestNetwork::new(&text, vec![ann_client(1), ann_client(1), ann_client(2)]);
    world.connect_and_wait(0);
    let first = world.session_statuses()[0].id;
    world.net.set_silent(world.clients[0], true);
    world.connect_and_wait(1);
    assert_eq!(
        (world.session_statuses().len(), world.counter_value("hosts_replaced")),
        (1, 1),
        "{:?}",
        world.login_failures()
    );
    assert!(world.session_statuses()[0].id > first);
    world.connect_and_wait(2);
    assert_eq!(
        world.login_failures(),
        [LoginFailure::TooManySessions],
        "at another place it is one too many"
    );
    assert_eq!(world.session_statuses().len(), 1);
}

#[test]
fn a_session_is_on_the_disk_before_its_first_packet_passes() {
    let mut world = ConcentratorTestNetwork::new(LOCAL, vec![ann_client(1)]);
    world.disk.borrow_mut().line_delay = secs(2);
    world.connect_client(0);
    world.net.run_for(millis(1900));
    assert!(world.installed_sessions().is_empty() && world.client_networks(0).is_empty(), "the disk is slow");
    assert_eq!(
        world.events().filter(|event| matches!(event, AccessConcentratorEvent::LoginAccepted(_))).count(),
        0
    );
    world.net.run_for(secs(5));
    assert_eq!(world.installed_sessions().len(), 1);
    assert!(world.line_counts_at_install.borrow().iter().all(|begun| *begun == 1));
    let log = world.log_records();
    let Some(SessionLogRecord::Begin(begin)) =
        log.iter().find(|record| matches!(record, SessionLogRecord::Begin(_)))
    else {
        panic!("{log:?}")
    };
    let entry = world.installed_sessions().into_values().next().unwrap();
    assert_eq!((begin.ipv4, &begin.ipv6, begin.user.as_str()), (entry.ipv4, &entry.ipv6, "ann"));
}

#[test]
fn nobody_is_let_in_while_the_log_cannot_be_written() {
    let mut world = ConcentratorTestNetwork::new(LOCAL, vec![ann_client(1)]);
    world.disk.borrow_mut().full = true;
    world.connect_and_wait(0);
    assert!(world.installed_sessions().is_empty() && world.client_networks(0).is_empty());
    assert_eq!(
        (world.login_failures()[0], world.counter_value("not_logged") > 0),
        (LoginFailure::NotLogged, true)
    );
    assert_eq!(world.session_statuses().len(), 0, "its addresses are free again");
    // The disk may have stored the begin despite the error. An end follows, without a Stop, since no Start was sent.
    let log = world.log_records();
    let Some(SessionLogRecord::End(end)) = log.last() else { panic!("{log:?}") };
    assert_eq!((end.reason.as_str(), end.stop), ("not-logged", None));
    world.disk.borrow_mut().full = false;
    world.net.run_for(secs(30));
    world.connect_and_wait(0);
    assert_eq!(world.installed_sessions().len(), 1, "and it is let in when it can be");
}

#[test]
fn an_end_during_the_write_of_its_begin_is_logged_behind_it() {
    let mut world = ConcentratorTestNetwork::new(LOCAL, vec![ann_client(1)]);
    world.disk.borrow_mut().line_delay = secs(3);
    world.connect_client(0);
    world.net.run_for(secs(1));
    assert_eq!(world.close_sessions(PppoeSessionSelector::All), 1);
    world.net.run_for(secs(10));
    let kinds: Vec<_> =
        world.log_records().iter().map(|record| matches!(record, SessionLogRecord::End(_))).collect();
    assert_eq!(kinds, [false, false, true], "{:?}", world.log_records());
    assert!(world.installed_sessions().is_empty());
}

#[test]
fn the_log_says_who_had_an_address_when() {
    let mut world = ConcentratorTestNetwork::new(
        LOCAL,
        vec![ann_client(1), client_config(2, AuthenticationProtocol::MsChapV2, "bob", "another password")],
    );
    world.connect_and_wait(0);
    let address = IpAddr::V4(world.session_statuses()[0].ipv4.unwrap());
    let prefix = world.session_statuses()[0].ipv6[0].0;
    world.connect_and_wait(1);
    world.net.send_command(world.clients[0], ClientCommand::Disconnect).unwrap();
    world.net.run_for(secs(20));
    let mut index = SessionLogIndex::default();
    world.disk.borrow().lines.iter().for_each(|line| index.read_lines(line));
    let epoch = usher_core::bench::EPOCH;
    let who = |address: IpAddr, secs: u64| {
        let mut search = AddressSearch::new(epoch + Duration::from_secs(secs), [(address, None)]);
        world.disk.borrow().lines.iter().for_each(|line| search.read_lines(line));
        search.holders().iter().map(|whose| whose.begin.user.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (who(address, 2), who(IpAddr::V6(prefix), 2)),
        (vec!["ann".to_owned()], vec!["ann".to_owned()])
    );
    assert!(who(address, 15).is_empty(), "it had ended");
    assert_eq!(index.open_sessions().map(|lost| lost.begin.user).collect::<Vec<_>>(), ["bob"]);
    assert_eq!(index.unreadable_count(), 0);
}

#[test]
fn a_user_has_as_many_sessions_as_it_may() {
    for (excess, sessions, ends) in [("replace", vec![2], vec!["replaced"]), ("refuse", vec![1], vec![])] {
        let text = format!("{LOCAL}[limits]\nsessions_per_user = 1\nexcess = \"{excess}\"\n");
        let mut world = ConcentratorTestNetwork::new(&text, vec![ann_client(1), ann_client(2)]);
        world.connect_and_wait(0);
        world.connect_and_wait(1);
        let stations: Vec<u64> = world.session_statuses().iter().map(|one| one.number.into()).collect();
        assert_eq!(stations.len(), 1);
        assert_eq!(world.installed_sessions().keys().copied().collect::<Vec<_>>(), sessions, "{excess}");
        assert_eq!(world.end_reasons(), ends, "{excess}");
        if excess == "refuse" {
            assert_eq!(world.login_failures()[0], LoginFailure::TooManySessions);
        }
    }
}

#[test]
fn pools_give_each_address_once_and_tell_when_they_are_empty() {
    let text = LOCAL.replace("10.0.0.0/28", "10.0.0.2-10.0.0.3");
    let mut world = ConcentratorTestNetwork::new(&text, vec![ann_client(1), ann_client(2), ann_client(3)]);
    (0..3).for_each(|n| world.connect_and_wait(n));
    let addresses: std::collections::BTreeSet<_> =
        world.session_statuses().iter().map(|one| one.ipv4).collect();
    assert_eq!(addresses.len(), 2);
    assert_eq!(
        (world.login_failures()[0], world.counter_value("addresses_exhausted") > 0),
        (LoginFailure::NoAddress, true)
    );
    world.net.send_command(world.clients[0], ClientCommand::Disconnect).unwrap();
    world.net.run_for(secs(20));
    world.connect_and_wait(2);
    assert_eq!(world.session_statuses().len(), 2, "what is free is given");
}

#[test]
fn sessions_end_at_their_time_and_when_they_carry_nothing() {
    let text = format!("{LOCAL}[limits]\nsession_timeout = \"60 s\"\n");
    let mut world = ConcentratorTestNetwork::new(&text, vec![ann_client(1)]);
    world.connect_and_wait(0);
    world.net.run_for(secs(55));
    assert_eq!(world.session_statuses().len(), 1);
    world.net.run_for(secs(10));
    assert_eq!(
        (world.end_reasons(), world.installed_sessions().len()),
        (vec!["session-timeout".to_owned()], 0)
    );
    assert_eq!(world.client_end_reasons(0).len(), 1, "the host is told");

    let text = format!("{LOCAL}[limits]\nidle_timeout = \"60 s\"\n");
    let mut loaded = load_config(&text);
    loaded.config.subscribers.is_metered = true;
    let mut world = ConcentratorTestNetwork::on_one_ethernet(loaded, vec![ann_client(1)]);
    world.connect_and_wait(0);
    let number = world.session_statuses()[0].number;
    for n in 1..=5 {
        world.net.run_for(secs(40));
        let usage = SessionUsage { octets_in: n * 1000, packets_in: n, ..SessionUsage::default() };
        world
            .net
            .send_command(world.ac, AccessConcentratorCommand::UsageReport(vec![(number, usage)]))
            .unwrap();
    }
    assert_eq!(
        (world.session_statuses().len(), world.session_statuses()[0].usage.octets_in),
        (1, 5000),
        "it carries something"
    );
    world.net.run_for(secs(70));
    assert_eq!((world.end_reasons(), world.session_statuses().len()), (vec!["idle-timeout".to_owned()], 0));
}

#[test]
fn what_was_carried_is_whole_when_a_session_is_installed_again() {
    let mut loaded = load_config(LOCAL);
    loaded.config.subscribers.is_metered = true;
    let mut world = ConcentratorTestNetwork::on_one_ethernet(loaded, vec![ann_client(1)]);
    world.connect_and_wait(0);
    let (id, number) = (world.session_statuses()[0].id, world.session_statuses()[0].number);
    let usage = |octets_in| SessionUsage { octets_in, packets_in: 1, ..SessionUsage::default() };
    world
        .net
        .send_command(world.ac, AccessConcentratorCommand::UsageReport(vec![(number, usage(700))]))
        .unwrap();
    world
        .net
        .send_command(world.ac, AccessConcentratorCommand::UsageReport(vec![(number ^ 1, usage(9999))]))
        .unwrap();
    // The data plane has removed and reinstalled the session, and counts from zero.
    world
        .net
        .send_command(world.ac, AccessConcentratorCommand::Removed { id, usage: Some(usage(1000)) })
        .unwrap();
    world
        .net
        .send_command(world.ac, AccessConcentratorCommand::UsageReport(vec![(number, usage(50))]))
        .unwrap();
    assert_eq!((world.session_statuses()[0].usage.octets_in, world.counter_value("octets_in")), (1050, 1050));
    world.close_sessions(PppoeSessionSelector::Session(id));
    assert!(world.end_reasons().is_empty(), "the last word is awaited");
    world
        .net
        .send_command(world.ac, AccessConcentratorCommand::Removed { id, usage: Some(usage(60)) })
        .unwrap();
    let end = world.log_records().into_iter().find_map(|record| match record {
        SessionLogRecord::End(end) => Some(end),
        _ => None,
    });
    assert_eq!(end.unwrap().octets_in, 1060);
    // Without a report, the wait for the usage ends.
    world.net.run_for(secs(60));
    world.connect_and_wait(0);
    world.close_sessions(PppoeSessionSelector::Named("ann".to_owned()));
    world.net.run_for(secs(6));
    assert_eq!(world.end_reasons(), ["disconnected", "disconnected"]);
}

#[test]
fn sessions_are_named_by_user_address_station_and_number() {
    let mut world = ConcentratorTestNetwork::new(LOCAL, vec![ann_client(1)]);
    for name in ["ann", "02:00:00:01:00:01", "address", "prefix", "session"] {
        world.connect_and_wait(0);
        let status = world.session_statuses().remove(0);
        let name = match name {
            "address" => status.ipv4.unwrap().to_string(),
            "prefix" => format!("{}1", status.ipv6[0].0),
            "session" => status.session.clone(),
            other => other.to_owned(),
        };
        assert_eq!(world.close_sessions(PppoeSessionSelector::Named("bob".to_owned())), 0);
        assert_eq!(world.close_sessions(PppoeSessionSelector::Named(name.clone())), 1, "{name}");
        world.net.run_for(secs(40));
    }
}

#[test]
fn a_data_plane_that_cannot_install_ends_the_session() {
    let mut world = ConcentratorTestNetwork::new(LOCAL, vec![ann_client(1)]);
    world.connect_and_wait(0);
    let id = world.session_statuses()[0].id;
    world.net.send_command(world.ac, AccessConcentratorCommand::NotInstalled { id }).unwrap();
    world.net.run_for(secs(3));
    assert_eq!(
        (world.end_reasons(), world.counter_value("not_installed")),
        (vec!["not-installed".to_owned()], 1)
    );
}

#[test]
fn all_end_when_the_host_ends() {
    let mut world = ConcentratorTestNetwork::new(
        LOCAL,
        vec![ann_client(1), client_config(2, AuthenticationProtocol::Pap, "bob", "another password")],
    );
    (0..2).for_each(|n| world.connect_and_wait(n));
    world.net.send_command(world.ac, AccessConcentratorCommand::Leave).unwrap();
    assert!(matches!(world.events().last(), Some(AccessConcentratorEvent::Left)));
    assert_eq!((world.session_statuses().len(), world.installed_sessions().len()), (0, 0));
    assert!(matches!(world.log_records().last(), Some(SessionLogRecord::Stopped(_))));
    let ends = world.log_records().iter().filter(|record| matches!(record, SessionLogRecord::End(_))).count();
    assert_eq!(ends, 2);
    world.net.run_for(secs(5));
    assert!((0..2).all(|n| !world.client_end_reasons(n).is_empty()), "the hosts are told");
}

#[test]
fn a_file_that_is_read_again_holds_for_those_who_come() {
    let mut world = ConcentratorTestNetwork::new(LOCAL, vec![ann_client(1), ann_client(2)]);
    world.connect_and_wait(0);
    let text = LOCAL.replace("100 Mb/s", "5 Mb/s").replace("a long password", "changed since");
    let again = load_config(&text);
    world.net.send_command(world.ac, AccessConcentratorCommand::Configure(Box::new(again.config))).unwrap();
    world.connect_and_wait(1);
    assert_eq!(
        world.session_statuses().len(),
        1,
        "the old password is none any more, and who is there stays"
    );
    assert_eq!(world.installed_sessions().into_values().next().unwrap().rate_down, Some(100_000_000));
}

#[test]
fn a_pool_with_the_concentrators_own_address_blocks_no_host() {
    // A pool of two addresses, the first of which is this side's.
    let text = LOCAL.replace("10.0.0.0/28", "10.0.0.1-10.0.0.2");
    for first in [1_u16, 2] {
        let mut world = ConcentratorTestNetwork::new(&text, vec![ann_client(first)]);
        for _ in 0..2 {
            world.connect_and_wait(0);
            assert_eq!(
                world.session_statuses()[0].ipv4,
                Some(Ipv4Addr::new(10, 0, 0, 2)),
                "{:?}",
                world.login_failures()
            );
            world.close_sessions(PppoeSessionSelector::All);
            world.net.run_for(secs(5));
        }
    }
}
