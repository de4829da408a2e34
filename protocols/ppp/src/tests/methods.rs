//! Each authentication protocol, from discovery to addresses.

use super::*;
use crate::AddressFamily;
use crate::auth::AuthenticationProtocol;

#[test]
fn each_protocol_lets_a_host_in_that_knows_the_password() {
    for protocol in AuthenticationProtocol::ALL {
        let mut world = PppoeTestNetwork::with_protocol(protocol);
        let (session, number) = world.connect_first();
        let ipv4 = |local, remote| NegotiatedAddresses::Ipv4 { local, remote, dns: vec![DNS] };
        let (ours, theirs) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 10));
        let ours6 = InterfaceIdentifier(1).link_local();
        let client = world.client_networks(0);
        let Some(NegotiatedAddresses::Ipv6 { local, remote, .. }) =
            client.iter().find(|network| network.family() == AddressFamily::Ipv6).cloned()
        else {
            panic!("no IPv6 by {protocol}")
        };
        assert_eq!(remote, ours6);
        assert!(client.contains(&ipv4(theirs, ours)), "{protocol}: {client:?}");
        let mut installed = Vec::new();
        let mut asked = false;
        for (_, event) in world.net.recorded_events(world.ac) {
            match event {
                ConcentratorEvent::Authenticate { .. } => asked = true,
                ConcentratorEvent::Install { session: of, subscriber, mtu, network } => {
                    assert!(asked && *of == session && subscriber.number == number);
                    assert_eq!((subscriber.address, *mtu), (host_mac(1), 1492));
                    installed.push(network.clone());
                }
                _ => {}
            }
        }
        assert!(installed.contains(&ipv4(ours, theirs)));
        assert!(installed.contains(&NegotiatedAddresses::Ipv6 {
            local: ours6,
            remote: local,
            prefixes: test_prefixes()
        }));
        assert_eq!((world.end_reasons(), world.client_end_reasons(0)), (vec![], vec![]));
        assert_eq!(world.net[world.ac].unauthenticated_count(), 0);
        let authenticated = |(_, event): &(_, ClientEvent)| *event == ClientEvent::Authenticated;
        assert_eq!(
            world.net.recorded_events(world.clients[0]).iter().filter(|e| authenticated(e)).count(),
            1
        );
    }
}

#[test]
fn each_protocol_turns_a_host_away_that_does_not() {
    for protocol in AuthenticationProtocol::ALL {
        let mut client = client_config(1, &[protocol]);
        client.credentials = Arc::new(test_credentials(&[protocol], b"a guess"));
        let mut world = PppoeTestNetwork::new(concentrator_config(), vec![client]);
        world.connect_client(0);
        world.net.run_for(secs(5));
        assert_eq!(world.end_reasons(), [EndReason::AuthenticationFailed], "{protocol}");
        assert_eq!(world.client_end_reasons(0), [EndReason::Refused], "{protocol}");
        assert!(world.client_networks(0).is_empty());
        let events = world.net.recorded_events(world.ac);
        assert!(!events.iter().any(|(_, event)| matches!(event, ConcentratorEvent::Install { .. })));
        let told = world.net.recorded_events(world.clients[0]).iter().find_map(|(_, event)| match event {
            ClientEvent::RefusalMessage { message } => Some(message.clone()),
            _ => None,
        });
        let expected: &[u8] = match protocol {
            AuthenticationProtocol::Eap => b"",
            AuthenticationProtocol::MsChapV2 => b"Authentication failed",
            AuthenticationProtocol::Chap | AuthenticationProtocol::Pap => b"no",
        };
        assert_eq!(told.as_deref(), Some(expected), "{protocol}");
    }
}

/// A truncated name is another user's, and a truncated password is wrong. PAP's length fields have one octet each.
#[test]
fn what_pap_cannot_say_ends_the_session_with_its_cause() {
    for (name, password, ends) in [(5, 255, false), (256, 8, true), (5, 256, true)] {
        let mut client = client_config(1, &[AuthenticationProtocol::Pap]);
        let known = test_credentials(&[AuthenticationProtocol::Pap], &vec![b'x'; password]);
        client.credentials =
            Arc::new(PppCredentials { name: b"alice".iter().copied().cycle().take(name).collect(), ..known });
        let mut world = PppoeTestNetwork::new(concentrator_config(), vec![client]);
        world.connect_client(0);
        world.net.run_for(secs(5));
        let ended = if ends { EndReason::TooLong } else { EndReason::Refused };
        assert_eq!(world.client_end_reasons(0), [ended], "{name} {password}");
        let asked =
            |(_, event): &(_, ConcentratorEvent)| matches!(event, ConcentratorEvent::Authenticate { .. });
        assert_eq!(world.net.recorded_events(world.ac).iter().any(asked), !ends, "nobody else is named");
    }
}

#[test]
fn a_client_rejects_a_concentrator_without_the_password() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::MsChapV2);
    world.judge.lock().unwrap().is_impostor = true;
    world.connect_client(0);
    world.net.run_for(secs(5));
    assert_eq!(world.client_end_reasons(0), [EndReason::Impostor]);
    assert!(world.client_networks(0).is_empty());
    assert_eq!(world.installed_count(), 0);
}

#[test]
fn both_agree_on_what_both_take() {
    for (server, client_takes, agreed) in [
        (
            vec![AuthenticationProtocol::Eap, AuthenticationProtocol::MsChapV2, AuthenticationProtocol::Chap],
            vec![AuthenticationProtocol::Pap, AuthenticationProtocol::Chap],
            Some(AuthenticationProtocol::Chap),
        ),
        (
            vec![AuthenticationProtocol::Pap, AuthenticationProtocol::Chap],
            vec![AuthenticationProtocol::Chap, AuthenticationProtocol::Pap],
            Some(AuthenticationProtocol::Pap),
        ),
        (
            vec![AuthenticationProtocol::Eap],
            vec![AuthenticationProtocol::MsChapV2, AuthenticationProtocol::Eap],
            Some(AuthenticationProtocol::Eap),
        ),
        (
            vec![AuthenticationProtocol::Eap, AuthenticationProtocol::MsChapV2],
            vec![AuthenticationProtocol::Pap],
            None,
        ),
        (vec![AuthenticationProtocol::Chap], vec![], None),
    ] {
        let config = ConcentratorConfig { authentication: server.into(), ..concentrator_config() };
        let mut world = PppoeTestNetwork::new(config, vec![client_config(1, &client_takes)]);
        world.connect_client(0);
        world.net.run_for(secs(5));
        let asked = world.net.recorded_events(world.ac).iter().find_map(|(_, event)| match event {
            ConcentratorEvent::Authenticate { proof, .. } => Some(match proof {
                AuthenticationProof::Pap(_) => AuthenticationProtocol::Pap,
                AuthenticationProof::Chap { .. } => AuthenticationProtocol::Chap,
                AuthenticationProof::MsChapV2 { .. } => AuthenticationProtocol::MsChapV2,
                AuthenticationProof::Eap(_) => AuthenticationProtocol::Eap,
            }),
            _ => None,
        });
        assert_eq!(asked, agreed);
        match agreed {
            Some(_) => assert_eq!(world.installed_count(), 2),
            None => assert_eq!(
                (world.end_reasons(), world.installed_count()),
                (vec![EndReason::NoAuthentication], 0)
            ),
        }
    }
}

#[test]
fn nobody_is_let_in_while_nobody_judges() {
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    world.judge.lock().unwrap().silent = true;
    world.connect_client(0);
    world.net.run_for(secs(120));
    let ends = (world.end_reasons(), world.client_end_reasons(0));
    assert_eq!(
        ends,
        (vec![EndReason::PeerClosed], vec![EndReason::Unreachable]),
        "the client gives up first"
    );
    assert_eq!((world.installed_count(), world.client_networks(0).len()), (0, 0));
    // The client starts another session, and the AAA server reports that it has no reply.
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Chap);
    world.judge.lock().unwrap().silent = true;
    world.connect_client(0);
    world.net.run_for(secs(2));
    let session = PppoeSessionId(0);
    let answer = AuthenticationReply::Unanswered;
    world.net.send_command(world.ac, ConcentratorCommand::Answer { session, answer }).unwrap();
    world.net.run_for(secs(5));
    assert_eq!(world.end_reasons(), [EndReason::Unjudged]);
}

#[test]
fn an_answer_to_nothing_is_refused() {
    use usher_core::CommandError;
    let mut world = PppoeTestNetwork::with_protocol(AuthenticationProtocol::Pap);
    let (session, _) = world.connect_first();
    let command = |session| ConcentratorCommand::Answer { session, answer: AuthenticationReply::Unanswered };
    assert!(matches!(world.net.send_command(world.ac, command(session)), Err(CommandError::WrongState(_))));
    let unknown = world.net.send_command(world.ac, command(PppoeSessionId(99)));
    assert_eq!(unknown, Err(CommandError::UnknownToken));
    let close = world.net.send_command(world.ac, ConcentratorCommand::Close(PppoeSessionId(99)));
    assert_eq!(close, Err(CommandError::UnknownToken));
    let client = world.clients[0];
    assert!(matches!(
        world.net.send_command(client, ClientCommand::Connect),
        Err(CommandError::WrongState(_))
    ));
    assert_eq!(world.installed_count(), 2, "none of it changed anything");
}
