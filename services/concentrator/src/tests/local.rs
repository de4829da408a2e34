//! Users that a concentrator knows itself.

use super::hostile::frame;
use super::*;
use crate::Usage;
use crate::track::{Index, Search};
use AuthenticationProtocol as P;
use usher_ppp::pppoe::Stage;

#[test]
fn users_are_let_in_by_each_protocol_and_get_addresses() {
    for protocol in P::ALL {
        let mut world = World::new(LOCAL, vec![client(1, protocol, "ann", "a long password")]);
        world.up(0);
        let installed = world.installed();
        assert_eq!(installed.len(), 1, "{protocol}: {:?} {:?}", world.failures(), world.client_ended(0));
        let entry = installed.values().next().unwrap();
        let inside = u32::from(entry.ipv4.unwrap()) - u32::from(Ipv4Addr::new(10, 0, 0, 0));
        assert!((2..15).contains(&inside), "of the pool, and not the concentrator's own: {inside}");
        assert_eq!((entry.gateway, entry.peer, entry.mtu), (Some(Ipv4Addr::new(10, 0, 0, 1)), host(1), 1492));
        assert_eq!((entry.rate_up, entry.rate_down, entry.clamp_mss), (None, Some(100_000_000), true));
        let lengths: Vec<u8> = entry.ipv6.iter().map(|(_, bits)| *bits).collect();
        assert_eq!((lengths, entry.link_local.is_some()), (vec![64, 56], true));
        let status = world.status();
        assert_eq!((status.len(), status[0].user.as_str(), status[0].port.as_str()), (1, "ann", "eth1"));
        assert_eq!((status[0].ipv4, status[0].station.as_str()), (entry.ipv4, "02:00:00:01:00:01"));
        assert_eq!(world.networks(0).len(), 2, "the host has both families");
    }
}

#[test]
fn who_is_not_known_or_does_not_know_the_password_stays_outside() {
    for protocol in P::ALL {
        for (name, password) in [("ann", "wrong"), ("eve", "a long password"), ("", "a long password")] {
            let mut world = World::new(LOCAL, vec![client(1, protocol, name, password)]);
            world.up(0);
            assert!(world.installed().is_empty() && world.networks(0).is_empty(), "{protocol} {name}");
            let why = if name.is_empty() { LoginFailure::NoName } else { LoginFailure::Rejected };
            assert_eq!(world.failures().first(), Some(&why), "{protocol} {name}");
            assert_eq!(
                (world.status().len(), world.disk.borrow().lines.len()),
                (0, 1),
                "nothing is kept of it"
            );
        }
    }
}

#[test]
fn what_a_session_has_carried_is_counted_once_though_another_has_its_number() {
    let mut loaded = loaded(LOCAL);
    loaded.config.metered = true;
    let mut world = World::of(loaded, vec![ann(1)]);
    world.up(0);
    let first = world.status().remove(0);
    let usage = |octets_in| Usage { octets_in, packets_in: 1, ..Usage::default() };
    let carried = |world: &mut World, octets| {
        world.net.command(world.ac, Command::Carried(vec![(first.number, usage(octets))])).unwrap();
    };
    carried(&mut world, 60);
    // It negotiates its link anew: LCP's Configure-Request.
    world.give(&frame(
        host(1),
        AC,
        Stage::Session,
        usher_ppp::pppoe::Code::SESSION,
        first.number,
        &[0xc0, 0x21, 1, 99, 0, 4],
    ));
    world.net.run(secs(4));
    let second = world.status().remove(0);
    assert_eq!((second.number, second.id > first.id), (first.number, true), "{:?}", world.ended());
    // A report that was on its way is the first one's.
    carried(&mut world, 100);
    assert_eq!((world.counted("octets_in"), world.status()[0].usage.octets_in), (100, 0));
    let removed = Command::Removed { id: first.id, usage: Some(usage(150)) };
    world.net.command(world.ac, removed).unwrap();
    carried(&mut world, 20);
    assert_eq!((world.counted("octets_in"), world.status()[0].usage.octets_in), (170, 20));
    let ends: Vec<u64> = world
        .log()
        .iter()
        .filter_map(|record| match record {
            Record::End(end) => Some(end.octets_in),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [150]);
}

#[test]
fn a_name_that_is_no_text_is_nobodys() {
    // What has a line feed could be shown as a line of somebody else's.
    for name in [&b"ann\xff"[..], b"ann\nbob", b"ann\t", b"\x1b[2Jann"] {
        let credentials = Credentials {
            name: name.to_vec(),
            password: b"a long password"[..].into(),
            protocols: vec![P::Chap],
            eap_methods: Arc::new([]),
        };
        let mut world = World::new(LOCAL, vec![ClientConfig::new(PORT, host(1), credentials)]);
        world.up(0);
        assert_eq!((world.failures(), world.status().len()), (vec![LoginFailure::BadName], 0));
    }
}

/// A user of a domain, as Windows says it, and one of a name as long as a frame brings, is known by the whole name.
#[test]
fn a_user_is_known_by_the_whole_name() {
    let long = "x".repeat(200);
    for name in ["CORP\\bob", "bob@example.org", "host/pc1.example.org", &long] {
        for protocol in P::ALL {
            let text = LOCAL.replace("name = \"bob\"", &format!("name = '{name}'"));
            let short = name.rsplit(['\\', '/']).next().unwrap().split('@').next().unwrap();
            let hosts = vec![
                client(1, protocol, name, "another password"),
                client(2, protocol, name, "a long password"),
                client(3, protocol, if short == name { "x" } else { short }, "another password"),
            ];
            let mut world = World::new(&text, hosts);
            (0..3).for_each(|n| world.up(n));
            let users: Vec<String> = world.status().into_iter().map(|one| one.user).collect();
            assert_eq!(users, [name], "{protocol}");
            assert_eq!(world.failures(), [LoginFailure::Rejected; 2], "{protocol} {name}");
        }
    }
}

/// Of many guesses no more are weighed than the limit is, by each protocol; who is known at a station is let in there meanwhile.
#[test]
fn whoever_guesses_is_held_back_by_name_and_by_station() {
    for protocol in P::ALL {
        let limited =
            "[authentication]\nfailures = 3\nfailures_within = \"60 s\"\nfailures_hold = \"100 s\"\n";
        let text = LOCAL.replace("[authentication]\n", limited);
        let guess = |n, name| client(n, protocol, name, "a guess");
        let at_home = client(1, protocol, "ann", "a long password");
        let elsewhere = client(2, protocol, "ann", "a long password");
        let of_bob = client(2, protocol, "bob", "another password");
        let mut hosts = vec![at_home, elsewhere, of_bob];
        // Five stations guess at one name, and one station at four.
        hosts.extend((10..15).map(|n| guess(n, "ann")));
        hosts.extend(["eve", "otto", "bob", "nobody"].map(|name| guess(20, name)));
        let mut world = World::new(&text, hosts);
        world.up(0);
        let counted = |world: &World| ["logins_rejected", "logins_held_back"].map(|name| world.counted(name));
        for n in 3..8 {
            world.up(n);
            world.net.silence(world.clients[n], true);
        }
        assert_eq!(counted(&world), [5, 2], "{protocol}");
        assert_eq!(world.failures().last(), Some(&LoginFailure::HeldBack));
        world.up(1);
        assert_eq!((counted(&world), world.status().len()), ([6, 3], 1), "{protocol}: not weighed");
        world.net.silence(world.clients[1], true);
        world.up(2);
        assert_eq!(world.status().len(), 2, "{protocol}: another user is");
        for n in 8..12 {
            world.up(n);
            world.net.silence(world.clients[n], true);
        }
        assert_eq!(counted(&world), [10, 4], "{protocol}");
        // Who was let in at a station is so again, whatever others guess elsewhere.
        world.net.command(world.clients[0], ClientCommand::Disconnect).unwrap();
        world.net.run(secs(1));
        world.up(0);
        assert_eq!(world.status().iter().filter(|one| one.user == "ann").count(), 1, "{protocol}");
        // After its time a name is weighed again.
        world.net.run(secs(110));
        world.net.silence(world.clients[1], false);
        world.up(1);
        assert_eq!(world.status().iter().filter(|one| one.user == "ann").count(), 2, "{protocol}");
    }
}

#[test]
fn a_host_that_lost_its_power_has_its_users_place_again() {
    let text = format!("{LOCAL}[limits]\nsessions_per_user = 1\nexcess = \"refuse\"\n");
    let mut world = World::new(&text, vec![ann(1), ann(1), ann(2)]);
    world.up(0);
    let first = world.status()[0].id;
    world.net.silence(world.clients[0], true);
    world.up(1);
    assert_eq!((world.status().len(), world.counted("hosts_replaced")), (1, 1), "{:?}", world.failures());
    assert!(world.status()[0].id > first);
    world.up(2);
    assert_eq!(world.failures(), [LoginFailure::TooManySessions], "at another place it is one too many");
    assert_eq!(world.status().len(), 1);
}

#[test]
fn a_session_is_on_the_disk_before_its_first_packet_passes() {
    let mut world = World::new(LOCAL, vec![ann(1)]);
    world.disk.borrow_mut().takes = secs(2);
    world.connect(0);
    world.net.run(millis(1900));
    assert!(world.installed().is_empty() && world.networks(0).is_empty(), "the disk is slow");
    assert_eq!(world.events().filter(|event| matches!(event, Event::LetIn(_))).count(), 0);
    world.net.run(secs(5));
    assert_eq!(world.installed().len(), 1);
    assert!(world.kept_at_install.borrow().iter().all(|begun| *begun == 1));
    let log = world.log();
    let Some(Record::Begin(begin)) = log.iter().find(|record| matches!(record, Record::Begin(_))) else {
        panic!("{log:?}")
    };
    let entry = world.installed().into_values().next().unwrap();
    assert_eq!((begin.ipv4, &begin.ipv6, begin.user.as_str()), (entry.ipv4, &entry.ipv6, "ann"));
}

#[test]
fn nobody_is_let_in_while_the_log_cannot_be_written() {
    let mut world = World::new(LOCAL, vec![ann(1)]);
    world.disk.borrow_mut().full = true;
    world.up(0);
    assert!(world.installed().is_empty() && world.networks(0).is_empty());
    assert_eq!((world.failures()[0], world.counted("not_logged") > 0), (LoginFailure::NotLogged, true));
    assert_eq!(world.status().len(), 0, "its addresses are free again");
    // The disk may have kept the begin, and said otherwise: behind it is the end, and no Stop is owed for whom nobody was told of.
    let log = world.log();
    let Some(Record::End(end)) = log.last() else { panic!("{log:?}") };
    assert_eq!((end.reason.as_str(), end.stop), ("not-logged", None));
    world.disk.borrow_mut().full = false;
    world.net.run(secs(30));
    world.up(0);
    assert_eq!(world.installed().len(), 1, "and it is let in when it can be");
}

#[test]
fn a_session_that_ends_while_it_is_written_is_ended_in_the_log_behind_its_begin() {
    let mut world = World::new(LOCAL, vec![ann(1)]);
    world.disk.borrow_mut().takes = secs(3);
    world.connect(0);
    world.net.run(secs(1));
    assert_eq!(world.close(Which::All), 1);
    world.net.run(secs(10));
    let kinds: Vec<_> = world.log().iter().map(|record| matches!(record, Record::End(_))).collect();
    assert_eq!(kinds, [false, false, true], "{:?}", world.log());
    assert!(world.installed().is_empty());
}

#[test]
fn the_log_says_who_had_an_address_when() {
    let mut world = World::new(LOCAL, vec![ann(1), client(2, P::MsChapV2, "bob", "another password")]);
    world.up(0);
    let address = IpAddr::V4(world.status()[0].ipv4.unwrap());
    let prefix = world.status()[0].ipv6[0].0;
    world.up(1);
    world.net.command(world.clients[0], ClientCommand::Disconnect).unwrap();
    world.net.run(secs(20));
    let mut index = Index::default();
    world.disk.borrow().lines.iter().for_each(|line| index.read(line));
    let epoch = usher_core::bench::EPOCH;
    let who = |address: IpAddr, secs: u64| {
        let mut search = Search::new(epoch + Duration::from_secs(secs), [(address, None)]);
        world.disk.borrow().lines.iter().for_each(|line| search.read(line));
        search.found().iter().map(|whose| whose.begin.user.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (who(address, 2), who(IpAddr::V6(prefix), 2)),
        (vec!["ann".to_owned()], vec!["ann".to_owned()])
    );
    assert!(who(address, 15).is_empty(), "it had ended");
    assert_eq!(index.open().map(|lost| lost.begin.user).collect::<Vec<_>>(), ["bob"]);
    assert_eq!(index.unreadable(), 0);
}

#[test]
fn a_user_has_as_many_sessions_as_it_may() {
    for (excess, sessions, ends) in [("replace", vec![2], vec!["replaced"]), ("refuse", vec![1], vec![])] {
        let text = format!("{LOCAL}[limits]\nsessions_per_user = 1\nexcess = \"{excess}\"\n");
        let mut world = World::new(&text, vec![ann(1), ann(2)]);
        world.up(0);
        world.up(1);
        let stations: Vec<u64> = world.status().iter().map(|one| one.number.into()).collect();
        assert_eq!(stations.len(), 1);
        assert_eq!(world.installed().keys().copied().collect::<Vec<_>>(), sessions, "{excess}");
        assert_eq!(world.ended(), ends, "{excess}");
        if excess == "refuse" {
            assert_eq!(world.failures()[0], LoginFailure::TooManySessions);
        }
    }
}

#[test]
fn pools_give_each_address_once_and_tell_when_they_are_empty() {
    let text = LOCAL.replace("10.0.0.0/28", "10.0.0.2-10.0.0.3");
    let mut world = World::new(&text, vec![ann(1), ann(2), ann(3)]);
    (0..3).for_each(|n| world.up(n));
    let addresses: std::collections::BTreeSet<_> = world.status().iter().map(|one| one.ipv4).collect();
    assert_eq!(addresses.len(), 2);
    assert_eq!(
        (world.failures()[0], world.counted("addresses_exhausted") > 0),
        (LoginFailure::NoAddress, true)
    );
    world.net.command(world.clients[0], ClientCommand::Disconnect).unwrap();
    world.net.run(secs(20));
    world.up(2);
    assert_eq!(world.status().len(), 2, "what is free is given");
}

#[test]
fn sessions_end_at_their_time_and_when_they_carry_nothing() {
    let text = format!("{LOCAL}[limits]\nsession_timeout = \"60 s\"\n");
    let mut world = World::new(&text, vec![ann(1)]);
    world.up(0);
    world.net.run(secs(55));
    assert_eq!(world.status().len(), 1);
    world.net.run(secs(10));
    assert_eq!((world.ended(), world.installed().len()), (vec!["session-timeout".to_owned()], 0));
    assert_eq!(world.client_ended(0).len(), 1, "the host is told");

    let text = format!("{LOCAL}[limits]\nidle_timeout = \"60 s\"\n");
    let mut loaded = loaded(&text);
    loaded.config.metered = true;
    let mut world = World::of(loaded, vec![ann(1)]);
    world.up(0);
    let number = world.status()[0].number;
    for n in 1..=5 {
        world.net.run(secs(40));
        let usage = Usage { octets_in: n * 1000, packets_in: n, ..Usage::default() };
        world.net.command(world.ac, Command::Carried(vec![(number, usage)])).unwrap();
    }
    assert_eq!((world.status().len(), world.status()[0].usage.octets_in), (1, 5000), "it carries something");
    world.net.run(secs(70));
    assert_eq!((world.ended(), world.status().len()), (vec!["idle-timeout".to_owned()], 0));
}

#[test]
fn what_was_carried_is_whole_when_a_session_is_installed_again() {
    let mut loaded = loaded(LOCAL);
    loaded.config.metered = true;
    let mut world = World::of(loaded, vec![ann(1)]);
    world.up(0);
    let (id, number) = (world.status()[0].id, world.status()[0].number);
    let usage = |octets_in| Usage { octets_in, packets_in: 1, ..Usage::default() };
    world.net.command(world.ac, Command::Carried(vec![(number, usage(700))])).unwrap();
    world.net.command(world.ac, Command::Carried(vec![(number ^ 1, usage(9999))])).unwrap();
    // The data plane had it removed and installed again, and counts from nothing.
    world.net.command(world.ac, Command::Removed { id, usage: Some(usage(1000)) }).unwrap();
    world.net.command(world.ac, Command::Carried(vec![(number, usage(50))])).unwrap();
    assert_eq!((world.status()[0].usage.octets_in, world.counted("octets_in")), (1050, 1050));
    world.close(Which::Session(id));
    assert!(world.ended().is_empty(), "the last word is awaited");
    world.net.command(world.ac, Command::Removed { id, usage: Some(usage(60)) }).unwrap();
    let end = world.log().into_iter().find_map(|record| match record {
        Record::End(end) => Some(end),
        _ => None,
    });
    assert_eq!(end.unwrap().octets_in, 1060);
    // Where nobody says it, it is not waited for without end.
    world.net.run(secs(60));
    world.up(0);
    world.close(Which::Named("ann".to_owned()));
    world.net.run(secs(6));
    assert_eq!(world.ended(), ["disconnected", "disconnected"]);
}

#[test]
fn sessions_are_named_by_user_address_station_and_number() {
    let mut world = World::new(LOCAL, vec![ann(1)]);
    for name in ["ann", "02:00:00:01:00:01", "address", "prefix", "session"] {
        world.up(0);
        let status = world.status().remove(0);
        let name = match name {
            "address" => status.ipv4.unwrap().to_string(),
            "prefix" => format!("{}1", status.ipv6[0].0),
            "session" => status.session.clone(),
            other => other.to_owned(),
        };
        assert_eq!(world.close(Which::Named("bob".to_owned())), 0);
        assert_eq!(world.close(Which::Named(name.clone())), 1, "{name}");
        world.net.run(secs(40));
    }
}

#[test]
fn a_data_plane_that_cannot_install_ends_the_session() {
    let mut world = World::new(LOCAL, vec![ann(1)]);
    world.up(0);
    let id = world.status()[0].id;
    world.net.command(world.ac, Command::NotInstalled { id }).unwrap();
    world.net.run(secs(3));
    assert_eq!((world.ended(), world.counted("not_installed")), (vec!["not-installed".to_owned()], 1));
}

#[test]
fn all_end_when_the_host_ends() {
    let mut world = World::new(LOCAL, vec![ann(1), client(2, P::Pap, "bob", "another password")]);
    (0..2).for_each(|n| world.up(n));
    world.net.command(world.ac, Command::Leave).unwrap();
    assert!(matches!(world.events().last(), Some(Event::Left)));
    assert_eq!((world.status().len(), world.installed().len()), (0, 0));
    assert!(matches!(world.log().last(), Some(Record::Stopped(_))));
    let ends = world.log().iter().filter(|record| matches!(record, Record::End(_))).count();
    assert_eq!(ends, 2);
    world.net.run(secs(5));
    assert!((0..2).all(|n| !world.client_ended(n).is_empty()), "the hosts are told");
}

#[test]
fn a_file_that_is_read_again_holds_for_those_who_come() {
    let mut world = World::new(LOCAL, vec![ann(1), ann(2)]);
    world.up(0);
    let text = LOCAL.replace("100 Mb/s", "5 Mb/s").replace("a long password", "changed since");
    let again = loaded(&text);
    world.net.command(world.ac, Command::Configure(Box::new(again.config))).unwrap();
    world.up(1);
    assert_eq!(world.status().len(), 1, "the old password is none any more, and who is there stays");
    assert_eq!(world.installed().into_values().next().unwrap().rate_down, Some(100_000_000));
}

#[test]
fn a_pool_that_holds_the_concentrators_own_address_locks_nobody_out() {
    // Two addresses, of which the first is this side's.
    let text = LOCAL.replace("10.0.0.0/28", "10.0.0.1-10.0.0.2");
    for first in [1_u16, 2] {
        let mut world = World::new(&text, vec![ann(first)]);
        for _ in 0..2 {
            world.up(0);
            assert_eq!(world.status()[0].ipv4, Some(Ipv4Addr::new(10, 0, 0, 2)), "{:?}", world.failures());
            world.close(Which::All);
            world.net.run(secs(5));
        }
    }
}
