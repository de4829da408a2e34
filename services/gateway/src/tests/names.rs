//! Addresses of both families, and the selection of IKE_SAs by name.

use super::local::{PSK_CLIENT, PSK_GATEWAY};
use super::*;
use usher_ike::code::ConfigurationType;
use usher_ike::payload::ConfigurationAttribute;

const DUAL_STACK_GATEWAY: &str = r#"
[[connection]]
name = "site"
local_id = "gw.test"
local_auth = "psk"
remote_auth = "psk"
secret = "a shared secret"
pools = ["six", "four"]
dns = ["2001:db8::53", "10.9.0.53", "10.9.0.54"]
[[connection.child]]
name = "net"
local = ["10.2.0.0/16"]
[[pool]]
name = "four"
ranges = ["10.9.0.10-10.9.0.11"]
[[pool]]
name = "six"
ranges = ["2001:db8:9::a-2001:db8:9::b"]
"#;

#[test]
fn a_dual_stack_client_gets_an_address_and_dns_of_each_family() {
    let mut world = GatewayTestNetwork::new(DUAL_STACK_GATEWAY);
    let client = world.add_client(CLIENT, PSK_CLIENT);
    world.run_for(secs(1));
    let given = world.events(client).into_iter().find_map(|event| match event {
        GatewayEvent::Ike(IkeEvent::Configured { attributes, .. }) => Some(attributes),
        _ => None,
    });
    let given = given.unwrap();
    let of = |kind| -> Vec<&ConfigurationAttribute> { given.iter().filter(|one| one.kind == kind).collect() };
    let four = of(ConfigurationType::INTERNAL_IP4_ADDRESS);
    let six = of(ConfigurationType::INTERNAL_IP6_ADDRESS);
    assert_eq!((four.len(), six.len()), (1, 1), "{given:?}");
    assert_eq!(four[0].value[..3], [10, 9, 0]);
    // RFC 7296 §3.15.1: an IPv6 address is followed by its prefix length.
    assert_eq!((six[0].value.len(), six[0].value[16]), (17, 128));
    assert_eq!(of(ConfigurationType::INTERNAL_IP4_DNS).len(), 2);
    assert_eq!(of(ConfigurationType::INTERNAL_IP6_DNS).len(), 1);
    let status = world.sa_statuses(world.gateway).remove(0);
    assert_eq!(status.addresses.len(), 2);
    assert!(status.addresses[0].is_ipv4() && status.addresses[1].is_ipv6());
    let counters = world.net[world.gateway].counters().0;
    assert_eq!((counters.addresses_given, counters.addresses_exhausted), (2, 0));
    let used: Vec<_> = world.net[world.gateway].pool_usage().map(|pool| pool.addresses.0).collect();
    assert_eq!(used, [1, 1]);
    // A family without free addresses gives none; the other still does.
    let mut given = Vec::new();
    for n in 0..2u8 {
        let text = PSK_CLIENT.replace("ini.test", &format!("ini{n}.test"));
        let client = world.add_client(&format!("198.51.100.{}", 20 + n), &text);
        world.run_for(secs(1));
        given.push(world.sa_statuses(client)[0].addresses.len());
    }
    assert_eq!(given, [2, 0]);
}

/// Two clients of one connection, and one of another.
fn three_clients() -> (GatewayTestNetwork, [NetworkHostHandle<IkeGateway>; 3]) {
    let other = PSK_GATEWAY.split("[[pool]]").next().unwrap().replace("\"site\"", "\"second\"");
    let other = other.replace("ini.test", "other.test");
    let first = PSK_GATEWAY.replace("remote_id = \"ini.test\"\n", "").replace("10.9.0.11", "10.9.0.19");
    let mut world = GatewayTestNetwork::new(&format!("{other}{first}"));
    let clients = [("1", "a.test"), ("2", "b.test"), ("3", "other.test")].map(|(n, identity)| {
        let text = PSK_CLIENT.replace("ini.test", identity).replace("start = true\n", "");
        let client = world.add_client(&format!("198.51.100.{n}"), &text);
        world.connect(client, "home");
        world.run_for(secs(1));
        client
    });
    (world, clients)
}

#[test]
fn those_are_told_who_are_meant_and_nobody_else() {
    let (mut world, _) = three_clients();
    let all = world.sa_statuses(world.gateway);
    let of = |identity: &str| all.iter().find(|sa| sa.identity == identity).unwrap().clone();
    let (a, b) = (of("a.test"), of("b.test"));
    assert_eq!((a.connection.as_str(), of("other.test").connection.as_str()), ("site", "second"));
    let which = [
        (IkeSaSelector::Sa(a.id), vec!["a.test"]),
        (IkeSaSelector::Sa(u64::MAX), vec![]),
        (IkeSaSelector::Named("b.test".into()), vec!["b.test"]),
        (IkeSaSelector::Named(b.addresses[0].to_string()), vec!["b.test"]),
        (IkeSaSelector::Named("site".into()), vec!["a.test", "b.test"]),
        (IkeSaSelector::Named("second".into()), vec!["other.test"]),
        (IkeSaSelector::Named("sit".into()), vec![]),
        (IkeSaSelector::Named("10.9.0.200".into()), vec![]),
        (IkeSaSelector::All, vec!["a.test", "b.test", "other.test"]),
    ];
    for (which, meant) in which {
        let before = world.sa_statuses(world.gateway);
        let rekey = GatewayCommand::Rekey { token: 5, selection: which.clone(), children: true };
        world.net.send_command(world.gateway, rekey).unwrap();
        world.run_for(secs(1));
        let told = world.events(world.gateway).into_iter().rev().find_map(|event| match event {
            GatewayEvent::SasNotified { token: 5, sas } => Some(sas),
            _ => None,
        });
        assert_eq!(told, Some(meant.len()), "{which:?}");
        let after = world.sa_statuses(world.gateway);
        let spi = |all: &[IkeSaStatus], identity: &str| {
            all.iter().find(|sa| sa.identity == identity).unwrap().children[0].inbound
        };
        for sa in &after {
            let replaced = spi(&before, &sa.identity) != spi(&after, &sa.identity);
            assert_eq!(replaced, meant.contains(&sa.identity.as_str()), "{which:?} {}", sa.identity);
        }
    }
    // Ending ones are counted too.
    let down = GatewayCommand::Down { token: 6, selection: IkeSaSelector::Named("site".into()) };
    world.net.send_command(world.gateway, down).unwrap();
    world.run_for(secs(1));
    let left: Vec<_> = world.sa_statuses(world.gateway).into_iter().map(|sa| sa.identity).collect();
    assert_eq!(left, ["other.test"]);
}

#[test]
fn a_pending_connection_can_be_ended_by_number_or_name() {
    for by_number in [true, false] {
        let mut world = GatewayTestNetwork::new(PSK_GATEWAY);
        let client = world.add_client(CLIENT, &PSK_CLIENT.replace("start = true\n", ""));
        world.net.set_silent(world.gateway, true);
        world.connect(client, "home");
        world.run_for(secs(1));
        let begun = world.events(client).into_iter().find_map(|event| match event {
            GatewayEvent::ConnectResult { result, .. } => result.ok(),
            _ => None,
        });
        let begun = begun.unwrap();
        let other = GatewayCommand::Down { token: 7, selection: IkeSaSelector::Sa(begun + 1) };
        world.net.send_command(client, other).unwrap();
        assert!(world.end_reasons(client).is_empty());
        let which = if by_number { IkeSaSelector::Sa(begun) } else { IkeSaSelector::Named("home".into()) };
        world.net.send_command(client, GatewayCommand::Down { token: 8, selection: which }).unwrap();
        world.run_for(secs(1));
        assert_eq!(world.end_reasons(client), [EndReason::Deleted]);
        let told: Vec<usize> = world
            .events(client)
            .into_iter()
            .filter_map(
                |event| if let GatewayEvent::SasNotified { sas, .. } = event { Some(sas) } else { None },
            )
            .collect();
        assert_eq!(told, [0, 1]);
        let over = world
            .events(client)
            .into_iter()
            .filter(|event| matches!(event, GatewayEvent::ConnectionEnded { .. }))
            .count();
        assert_eq!(over, 1);
    }
}

/// Rekeying is no authentication, so it does not delay reauthentication.
#[test]
fn a_rekeying_does_not_postpone_the_reauthentication() {
    let mut world = GatewayTestNetwork::new(PSK_GATEWAY);
    let text = PSK_CLIENT.replace("address = true", "reauth_after = \"100 s\"\naddress = true");
    let client = world.add_client(CLIENT, &text);
    world.run_for(secs(60));
    let rekey = GatewayCommand::Rekey { token: 1, selection: IkeSaSelector::All, children: false };
    world.net.send_command(client, rekey).unwrap();
    world.run_for(secs(29));
    let counted = |world: &GatewayTestNetwork| world.net[client].counters().0.reauthentications;
    assert_eq!(counted(&world), 0, "a tenth sooner at most");
    world.run_for(secs(12));
    assert_eq!(counted(&world), 1);
    assert_eq!((world.sa_statuses(client).len(), world.sa_statuses(world.gateway).len()), (1, 1));
}

/// The peer did not replace its IKE_SA in time. When it responds again, the connection is initiated at once.
#[test]
fn an_ike_sa_that_nobody_has_replaced_ends_and_is_begun_anew() {
    let gateway = PSK_GATEWAY.replace("pools =", "rekey_after = \"0 s\"\npools =");
    let mut world = GatewayTestNetwork::new(&gateway);
    let never = "rekey_after = \"0 s\"\nlifetime = \"100 s\"\nretry = \"1000 s\"\naddress = true";
    let client = world.add_client(CLIENT, &PSK_CLIENT.replace("address = true", never));
    world.run_for(secs(99));
    let first = world.sa_statuses(client)[0].spis;
    world.run_for(secs(3));
    let second = world.sa_statuses(client);
    assert!(second.len() == 1 && second[0].spis != first);
    let counters = world.net[client].counters().0;
    assert_eq!((counters.expired, counters.initiated), (1, 2));
    assert_eq!(world.end_reasons(client), [EndReason::Deleted]);
}
