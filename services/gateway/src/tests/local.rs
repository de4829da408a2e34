//! Logins with local users.

use super::*;

pub(super) const PSK_GATEWAY: &str = r#"
[[connection]]
name = "site"
local_id = "gw.test"
remote_id = "ini.test"
local_auth = "psk"
remote_auth = "psk"
secret = "a shared secret"
pools = ["inner"]
dns = ["10.9.0.1"]
domains = ["corp.test"]
[[connection.child]]
name = "net"
local = ["10.2.0.0/16"]
[[pool]]
name = "inner"
ranges = ["10.9.0.10-10.9.0.11"]
"#;

pub(super) const PSK_CLIENT: &str = r#"
[[connection]]
name = "home"
local_id = "ini.test"
remote_id = "gw.test"
local_auth = "psk"
remote_auth = "psk"
secret = "a shared secret"
remote_address = "192.0.2.1"
address = true
start = true
[[connection.child]]
name = "net"
remote = ["10.2.0.0/16"]
"#;

#[test]
fn a_psk_client_has_address_and_child_sa_before_the_response() {
    let mut world = GatewayTestNetwork::new(PSK_GATEWAY);
    let client = world.add_client(CLIENT, PSK_CLIENT);
    world.run_for(secs(1));
    let (gateway, own) = (world.sa_statuses(world.gateway), world.sa_statuses(client));
    assert_eq!((gateway.len(), own.len()), (1, 1));
    let (gateway, own) = (&gateway[0], &own[0]);
    assert_eq!((gateway.identity.as_str(), own.identity.as_str()), ("ini.test", "gw.test"));
    assert_eq!((gateway.initiator, own.initiator, gateway.spis == own.spis), (false, true, true));
    assert_eq!(gateway.addresses, own.addresses);
    assert!(["10.9.0.10", "10.9.0.11"].contains(&gateway.addresses[0].to_string().as_str()));
    let told = world.events(client).into_iter().find_map(|event| match event {
        GatewayEvent::Ike(IkeEvent::Configured { attributes, .. }) => Some(attributes),
        _ => None,
    });
    let told: Vec<_> = told.unwrap().into_iter().map(|one| (one.kind.0, one.value)).collect();
    assert!(told.contains(&(3, vec![10, 9, 0, 1])), "a name server");
    assert!(told.contains(&(25, b"corp.test".to_vec())), "and the domain that it is for");
    let (here, there) = (world.installed_children(world.gateway), world.installed_children(client));
    let (here, there) = (here.values().next().unwrap(), there.values().next().unwrap());
    assert_eq!((here.inbound, &here.inbound_keys), (there.outbound, &there.outbound_keys));
    let inner = usher_ike::payload::TrafficSelector::from_address(own.addresses[0]);
    assert_eq!(here.remote, [inner]);
    // The events that the IKE_AUTH response depends on come before it.
    let events = world.net.recorded_events(world.gateway);
    let (installed, _) = events
        .iter()
        .find(|(_, event)| matches!(event, GatewayEvent::Ike(IkeEvent::Install { .. })))
        .unwrap();
    assert!(installed.as_nanos() <= world.net.now().as_nanos());
    assert_eq!(world.net[world.gateway].counters().0.sessions, 1);
}

#[test]
fn an_exhausted_pool_gives_no_address_until_a_lease_ends() {
    let gateway = PSK_GATEWAY.replace("remote_id = \"ini.test\"\n", "");
    let mut world = GatewayTestNetwork::new(&gateway);
    let named = |n: u8| PSK_CLIENT.replace("ini.test", &format!("ini{n}.test"));
    let [a, b, c] = [1, 2, 3].map(|n| world.add_client(&format!("198.51.100.{n}"), &named(n)));
    world.run_for(secs(2));
    assert_eq!(world.sa_statuses(world.gateway).len(), 3, "an IKE_SA is there without an address too");
    let given: Vec<_> = [a, b, c].map(|host| world.sa_statuses(host)[0].addresses.len()).into();
    assert_eq!(given.iter().sum::<usize>(), 2);
    assert_eq!(world.login_failures(world.gateway), [LoginFailure::NoAddress]);
    assert_eq!(world.net[world.gateway].counters().0.addresses_exhausted, 1);
    // One of the two with an address leaves: the next client gets it.
    let goes = [a, b, c].into_iter().find(|host| !world.sa_statuses(*host)[0].addresses.is_empty()).unwrap();
    let freed = world.sa_statuses(goes)[0].addresses[0];
    world.net.send_command(goes, GatewayCommand::Down { token: 2, selection: IkeSaSelector::All }).unwrap();
    world.run_for(secs(2));
    let next = world.add_client("198.51.100.9", &named(9));
    world.run_for(secs(2));
    assert_eq!(world.sa_statuses(next)[0].addresses, [freed]);
}

#[test]
fn certificates_prove_who_both_are() {
    let gateway = r#"
[[connection]]
name = "site"
local_id = "aaa.usher.test"
local_auth = "certificate"
remote_auth = "certificate"
certificate = "gw.pem"
key = "gw.key"
ca = "ca.pem"
childless = "allow"
"#;
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
start = true
"#;
    let mut world = GatewayTestNetwork::new(gateway);
    let host = world.add_client(CLIENT, client);
    world.run_for(secs(2));
    assert_eq!(world.sa_statuses(world.gateway)[0].identity, "station@usher.test");
    assert_eq!(world.sa_statuses(host)[0].identity, "aaa.usher.test");
    // A client whose certificate does not have its claimed identity is rejected.
    let liar = client.replace("local_id = \"station@usher.test\"", "local_id = \"boss@usher.test\"");
    let liar = world.add_client("198.51.100.8", &liar);
    world.run_for(secs(2));
    assert_eq!(world.sa_statuses(liar).len(), 0);
    assert_eq!(world.end_reasons(liar), [EndReason::Refused]);
}

/// A gateway with a certificate, and local users that authenticate by EAP.
const EAP_GATEWAY: &str = r#"
[[connection]]
name = "users"
local_id = "aaa.usher.test"
local_auth = "certificate"
remote_auth = "eap-local"
certificate = "gw.pem"
key = "gw.key"
[eap]
methods = ["tls", "mschapv2", "md5"]
tls = { certificate = "gw.pem", key = "gw.key", ca = "ca.pem" }
[[user]]
name = "ann"
password = "a long password"
"#;

/// A client that authenticates by EAP.
pub(super) fn eap_client(method: &str, name: &str, password: &str) -> String {
    format!(
        r#"
[[connection]]
name = "home"
local_id = "{name}"
remote_id = "aaa.usher.test"
local_auth = "eap"
remote_auth = "certificate"
ca = "ca.pem"
certificate = "user.pem"
key = "user.key"
eap_identity = "{name}"
eap_methods = ["{method}"]
password = "{password}"
remote_address = "192.0.2.1"
"#
    )
}

#[test]
fn users_of_the_gateway_itself_log_in_by_each_method() {
    let mut world = GatewayTestNetwork::new(EAP_GATEWAY);
    for (n, (method, name)) in
        [("md5", "ann"), ("mschapv2", "ann"), ("tls", "station@usher.test")].into_iter().enumerate()
    {
        let client =
            world.add_client(&format!("198.51.100.{}", n + 1), &eap_client(method, name, "a long password"));
        world.connect(client, "home");
        world.run_for(secs(2));
        let status = world.sa_statuses(client);
        assert_eq!(status.len(), 1, "{method}: {:?}", world.end_reasons(client));
        let gateway = world.sa_statuses(world.gateway);
        assert_eq!(gateway.last().unwrap().user, name, "{method}");
    }
    assert_eq!(world.net[world.gateway].counters().0.logins_accepted, 3);
    let wrong = [("md5", "ann"), ("mschapv2", "nobody"), ("tls", "boss@usher.test")];
    for (n, (method, name)) in wrong.into_iter().enumerate() {
        let client = world
            .add_client(&format!("198.51.100.{}", n + 11), &eap_client(method, name, "a wrong password"));
        world.connect(client, "home");
        world.run_for(secs(2));
        assert_eq!(world.sa_statuses(client).len(), 0, "{method}");
        // After the end of TLS, a peer ignores EAP-Failure (RFC 4137, UNCOND_SUCC), and IKE ends instead.
        let reason = if method == "tls" { EndReason::Protocol } else { EndReason::Refused };
        assert_eq!(world.end_reasons(client), [reason], "{method}");
    }
    assert_eq!(world.login_failures(world.gateway), [LoginFailure::Rejected; 3]);
}

/// A group key does not prove a user's name.
#[test]
fn a_guest_under_a_users_name_takes_neither_sa_nor_address() {
    let guests = PSK_GATEWAY.replace("remote_id = \"ini.test\"\n", "");
    let mut world = GatewayTestNetwork::new(&format!(
        "{}{guests}",
        EAP_GATEWAY.replace("[eap]", "pools = [\"inner\"]\n[eap]")
    ));
    let more = "address = true\n[[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\n";
    let ann =
        world.add_client("198.51.100.1", &format!("{}{more}", eap_client("md5", "ann", "a long password")));
    world.connect(ann, "home");
    world.run_for(secs(2));
    let guest =
        world.add_client(CLIENT, &PSK_CLIENT.replace("local_id = \"ini.test\"", "local_id = \"ann\""));
    world.run_for(secs(2));
    let (ann, guest) = (world.sa_statuses(ann), world.sa_statuses(guest));
    assert_eq!((ann.len(), guest.len()), (1, 1));
    assert_ne!(ann[0].addresses, guest[0].addresses);
    assert_eq!(world.sa_statuses(world.gateway).len(), 2);
}

#[test]
fn a_step_of_eap_tls_is_a_helpers_and_delays_nobody_else() {
    let mut world = GatewayTestNetwork::new(&format!("{EAP_GATEWAY}{PSK_GATEWAY}"));
    let slow = world.add_client("198.51.100.1", &eap_client("tls", "station@usher.test", "of no use"));
    let quick = world.add_client(CLIENT, &PSK_CLIENT.replace("start = true\n", ""));
    world.connect(slow, "home");
    // Its handshake is with the workers.
    world.run_for(millis(150));
    world.connect(quick, "home");
    world.run_for(millis(100));
    assert_eq!((world.sa_statuses(quick).len(), world.sa_statuses(slow).len()), (1, 0));
    world.run_for(secs(2));
    assert_eq!(world.sa_statuses(slow).len(), 1);
    let established = world.net.recorded_events(slow).iter().find_map(|(at, event)| match event {
        GatewayEvent::Ike(IkeEvent::Established { .. }) => Some(*at),
        _ => None,
    });
    // At least the peer's ClientHello and its Finished are steps of 100 ms.
    assert!(established.unwrap().as_nanos() > 2 * JUDGING.as_nanos());
    // A client that leaves during a step is removed.
    let gone = world.add_client("198.51.100.2", &eap_client("tls", "station@usher.test", "of no use"));
    world.connect(gone, "home");
    world.run_for(millis(130));
    world.net.set_silent(gone, true);
    world.run_for(secs(60));
    assert_eq!((world.net[world.gateway].half_open(), world.net[world.gateway].logins.len()), (0, 0));
}

#[test]
fn overload_rejects_a_login_and_a_gone_client_costs_no_work() {
    let mut world = GatewayTestNetwork::new(EAP_GATEWAY);
    let asked = Rc::new(RefCell::new(Vec::new()));
    let (jobs, gateway) = (asked.clone(), world.gateway);
    let credentials = load_config(EAP_GATEWAY).credentials;
    world.net.on_job(gateway, move |job| match job.job {
        GatewayJob::Ike(what) => {
            Some((millis(2), GatewayCommand::Done(credentials.answer_job(&JobRequest::new(job.token, what)))))
        }
        what => {
            let refused = job.origin.host() == Some(CLIENT.parse().unwrap());
            jobs.borrow_mut().push(job.origin);
            refused.then(|| (millis(1), what.dropped_job_command(job.token)))
        }
    });
    let client = eap_client("tls", "station@usher.test", "of no use");
    let refused = world.add_client(CLIENT, &client);
    world.connect(refused, "home");
    world.run_for(secs(2));
    let why = |event: &GatewayEvent| match event {
        GatewayEvent::LoginFailed { why, .. } => Some(*why),
        _ => None,
    };
    let told = |world: &GatewayTestNetwork| -> Vec<_> {
        world.net.recorded_events(world.gateway).iter().filter_map(|(_, event)| why(event)).collect()
    };
    assert_eq!(told(&world), [LoginFailure::Overload]);
    assert_eq!(asked.borrow().len(), 1);
    let gone = world.add_client("198.51.100.2", &client);
    world.connect(gone, "home");
    world.run_for(millis(130));
    assert!(asked.borrow().last().unwrap().is_result_needed());
    world.net.set_silent(gone, true);
    world.run_for(secs(60));
    assert!(asked.borrow().iter().all(|origin| !origin.is_result_needed()));
    assert_eq!(world.net[world.gateway].logins.len(), 0);
}

#[test]
fn a_client_that_starts_again_leaves_nothing_of_itself_behind() {
    let mut world = GatewayTestNetwork::new(PSK_GATEWAY);
    let client = world.add_client(CLIENT, PSK_CLIENT);
    world.run_for(secs(1));
    let before = world.sa_statuses(world.gateway)[0].clone();
    // It dies silently, and returns from another address without its state.
    world.net.set_silent(client, true);
    let again = world.add_client("198.51.100.8", PSK_CLIENT);
    world.run_for(secs(1));
    let after = world.sa_statuses(world.gateway);
    assert_eq!(after.len(), 1, "INITIAL_CONTACT has ended the old IKE_SA");
    assert_ne!(after[0].spis, before.spis);
    assert_eq!(after[0].addresses, before.addresses, "whoever comes again keeps its address");
    assert_eq!(world.installed_children(world.gateway).len(), 1);
    assert_eq!(world.end_reasons(world.gateway), [EndReason::Replaced]);
    assert_eq!(
        world.net[world.gateway].pool_usage().next().map(|pool| (pool.name, pool.addresses)),
        Some(("inner", (1, 2)))
    );
    assert_eq!(world.sa_statuses(again).len(), 1);
}

#[test]
fn a_start_connection_is_retried_until_an_operator_ends_it() {
    let mut world = GatewayTestNetwork::new(PSK_GATEWAY);
    let client = world.add_client(CLIENT, &PSK_CLIENT.replace("a shared secret", "another secret"));
    world.run_for(secs(25));
    assert_eq!(world.end_reasons(client), [EndReason::Refused; 3], "after each end it waits for 10 s");
    world
        .net
        .send_command(
            client,
            GatewayCommand::Down { token: 3, selection: IkeSaSelector::Named("home".into()) },
        )
        .unwrap();
    world.run_for(secs(60));
    assert_eq!(world.end_reasons(client).len(), 3);
    world.connect(client, "home");
    world.run_for(secs(1));
    assert_eq!(world.end_reasons(client).len(), 4, "but where somebody wants it");
    world.connect(client, "nowhere");
    let said = world.events(client).into_iter().rev().find_map(|event| match event {
        GatewayEvent::ConnectResult { result, .. } => Some(result),
        _ => None,
    });
    assert!(said.unwrap().unwrap_err().contains("no connection \"nowhere\""));
}

#[test]
fn commands_rekey_and_end_sas_and_all_end_with_the_host() {
    let mut world = GatewayTestNetwork::new(PSK_GATEWAY);
    let client = world.add_client(CLIENT, PSK_CLIENT);
    world.run_for(secs(1));
    let before = world.sa_statuses(client)[0].clone();
    let rekey = |children| GatewayCommand::Rekey {
        token: 4,
        selection: IkeSaSelector::Named("gw.test".into()),
        children,
    };
    world.net.send_command(client, rekey(false)).unwrap();
    world.run_for(secs(1));
    let after = world.sa_statuses(client)[0].clone();
    assert_ne!(after.spis, before.spis);
    assert_eq!(
        (after.session.as_str(), &after.children),
        (before.session.as_str(), &children_at(&before, &after))
    );
    assert_eq!(
        world.sa_statuses(world.gateway)[0].spis,
        after.spis,
        "the session goes on under its new SPIs"
    );
    world.net.send_command(client, rekey(true)).unwrap();
    world.run_for(secs(1));
    assert_ne!(world.sa_statuses(client)[0].children[0].inbound, after.children[0].inbound);
    assert_eq!(world.installed_children(world.gateway).len(), 1);
    world.net.send_command(world.gateway, GatewayCommand::Leave).unwrap();
    world.run_for(secs(1));
    assert_eq!((world.sa_statuses(client).len(), world.sa_statuses(world.gateway).len()), (0, 0));
    assert_eq!(world.installed_children(world.gateway).len() + world.installed_children(client).len(), 0);
}

/// The CHILD_SAs of one moment, with the ages of another.
fn children_at(before: &IkeSaStatus, after: &IkeSaStatus) -> Vec<crate::ChildSaStatus> {
    let passed = after.lasted.as_nanos() - before.lasted.as_nanos();
    let later = |child: &crate::ChildSaStatus| {
        let lasted = Duration::from_nanos(child.lasted.as_nanos() + passed);
        crate::ChildSaStatus { lasted, ..child.clone() }
    };
    before.children.iter().map(later).collect()
}

/// A guessing attack: of many concurrent logins, only as many as the limit are checked. Meanwhile, even the right
/// password is rejected.
#[test]
fn whoever_guesses_is_held_back_by_name_and_by_host() {
    let limited = "[eap]\nfailures = 3\nfailure_window = \"60 s\"\nlockout_time = \"100 s\"\n";
    let gateway = EAP_GATEWAY.replace("[eap]\n", limited);
    let gateway = format!("{gateway}[[user]]\nname = \"bob\"\npassword = \"bobs password\"\n");
    let mut world = GatewayTestNetwork::new(&gateway);
    let tries = |world: &mut GatewayTestNetwork, address: &str, name: &str, password: &str| {
        let client = world.add_client(address, &eap_client("mschapv2", name, password));
        world.connect(client, "home");
        client
    };
    // Five hosts guess at once. Each leaves as soon as its guess is rejected.
    let guessing: Vec<_> =
        (1..=5).map(|n| tries(&mut world, &format!("198.51.100.{n}"), "ann", "a guess")).collect();
    world.run_for(secs(2));
    let counted = |world: &GatewayTestNetwork| {
        let (own, subscribers, _) = world.net[world.gateway].counters();
        (own.logins_accepted, subscribers.logins_rejected, subscribers.logins_locked_out)
    };
    assert_eq!(counted(&world), (0, 5, 2));
    assert!(guessing.iter().all(|host| world.net[*host].session_count() == 0));
    let failures = world.login_failures(world.gateway);
    assert_eq!(failures.iter().filter(|why| **why == LoginFailure::LockedOut).count(), 2);
    // The right password is not checked either. Another user gets in.
    let ann = tries(&mut world, "198.51.100.20", "ann", "a long password");
    let bob = tries(&mut world, "198.51.100.21", "bob", "bobs password");
    world.run_for(secs(2));
    assert_eq!((world.sa_statuses(ann).len(), world.sa_statuses(bob).len()), (0, 1));
    // A host that tries many names is locked out for every name.
    for n in 0..4 {
        let client = world.add_client("203.0.113.9", &eap_client("md5", &format!("nobody{n}"), "a guess"));
        world.connect(client, "home");
        world.run_for(secs(2));
        world.net.set_silent(client, true);
    }
    assert_eq!(counted(&world), (1, 10, 4), "the right password of ann was the third");
    // After the lockout, the name is checked again.
    world.run_for(secs(100));
    let ann = tries(&mut world, "198.51.100.22", "ann", "a long password");
    world.run_for(secs(2));
    assert_eq!(world.sa_statuses(ann).len(), 1);
    // At a host of an earlier success the user gets in, despite attacks elsewhere. At other hosts she is locked out.
    for n in 1..=3 {
        tries(&mut world, &format!("203.0.114.{n}"), "ann", "a guess");
    }
    world.run_for(secs(2));
    world.net.set_silent(ann, true);
    let elsewhere = tries(&mut world, "198.51.100.23", "ann", "a long password");
    let there = tries(&mut world, "198.51.100.22", "ann", "a long password");
    world.run_for(secs(2));
    assert_eq!((world.sa_statuses(elsewhere).len(), world.sa_statuses(there).len()), (0, 1));
}

/// The EAP server's certificate has to have the peer's name, or the configured one.
#[test]
fn with_eap_only_the_server_certificate_names_the_gateway() {
    let gateway = |id: &str| {
        format!(
            "[[connection]]\nname = \"users\"\nlocal_id = \"{id}\"\nlocal_auth = \"eap-only\"\nremote_auth = \"eap-local\"\n\
             [eap]\nmethods = [\"tls\"]\ntls = {{ certificate = \"gw.pem\", key = \"gw.key\", ca = \"ca.pem\" }}\n"
        )
    };
    let client = |id: &str, more: &str| {
        eap_client("tls", "station@usher.test", "of no use")
            .replace("remote_id = \"aaa.usher.test\"", &format!("remote_id = \"{id}\"\n{more}"))
            .replace("remote_auth = \"certificate\"", "remote_auth = \"eap-only\"")
    };
    for (id, more, lets_in) in [
        ("aaa.usher.test", "", true),
        // Any certificate of that authority would do.
        ("gw.test", "", false),
        ("gw.test", "eap_server_name = \"aaa.usher.test\"", true),
        ("aaa.usher.test", "eap_server_name = \"radius.usher.test\"", false),
    ] {
        let mut world = GatewayTestNetwork::new(&gateway(id));
        let host = world.add_client(CLIENT, &client(id, more));
        world.connect(host, "home");
        world.run_for(secs(3));
        assert_eq!(
            world.sa_statuses(host).len(),
            usize::from(lets_in),
            "{id} {more}: {:?}",
            world.end_reasons(host)
        );
    }
}
