//! Each way of showing who one is, from discovery to addresses.

use super::*;
use crate::Family;
use crate::auth::AuthenticationProtocol as P;

#[test]
fn each_protocol_lets_a_host_in_that_knows_the_password() {
    for protocol in P::ALL {
        let mut world = World::with(protocol);
        let (session, number) = world.up();
        let ipv4 = |local, remote| Network::Ipv4 { local, remote, dns: vec![DNS] };
        let (ours, theirs) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 10));
        let ours6 = InterfaceIdentifier(1).link_local();
        let client = world.client_networks(0);
        let Some(Network::Ipv6 { local, remote, .. }) =
            client.iter().find(|network| network.family() == Family::Ipv6).cloned()
        else {
            panic!("no IPv6 by {protocol}")
        };
        assert_eq!(remote, ours6);
        assert!(client.contains(&ipv4(theirs, ours)), "{protocol}: {client:?}");
        let mut installed = Vec::new();
        let mut asked = false;
        for (_, event) in world.net.events(world.ac) {
            match event {
                ConcentratorEvent::Authenticate { .. } => asked = true,
                ConcentratorEvent::Install { session: of, subscriber, mtu, network } => {
                    assert!(asked && *of == session && subscriber.number == number);
                    assert_eq!((subscriber.address, *mtu), (host(1), 1492));
                    installed.push(network.clone());
                }
                _ => {}
            }
        }
        assert!(installed.contains(&ipv4(ours, theirs)));
        assert!(installed.contains(&Network::Ipv6 { local: ours6, remote: local, prefixes: prefixes() }));
        assert_eq!((world.ended(), world.client_ended(0)), (vec![], vec![]));
        assert_eq!(world.net[world.ac].outside(), 0);
        let authenticated = |(_, event): &(_, ClientEvent)| *event == ClientEvent::Authenticated;
        assert_eq!(world.net.events(world.clients[0]).iter().filter(|e| authenticated(e)).count(), 1);
    }
}

#[test]
fn each_protocol_turns_a_host_away_that_does_not() {
    for protocol in P::ALL {
        let mut client = client(1, &[protocol]);
        client.credentials = Arc::new(credentials(&[protocol], b"a guess"));
        let mut world = World::new(config(), vec![client]);
        world.connect(0);
        world.net.run(secs(5));
        assert_eq!(world.ended(), [EndReason::AuthenticationFailed], "{protocol}");
        assert_eq!(world.client_ended(0), [EndReason::Refused], "{protocol}");
        assert!(world.client_networks(0).is_empty());
        let events = world.net.events(world.ac);
        assert!(!events.iter().any(|(_, event)| matches!(event, ConcentratorEvent::Install { .. })));
        let told = world.net.events(world.clients[0]).iter().find_map(|(_, event)| match event {
            ClientEvent::Told { message } => Some(message.clone()),
            _ => None,
        });
        let expected: &[u8] = match protocol {
            P::Eap => b"",
            P::MsChapV2 => b"Authentication failed",
            P::Chap | P::Pap => b"no",
        };
        assert_eq!(told.as_deref(), Some(expected), "{protocol}");
    }
}

/// A cut name is another user's, and a cut password proves something else. PAP has an octet for each length.
#[test]
fn what_pap_cannot_say_ends_the_session_with_its_cause() {
    for (name, password, ends) in [(5, 255, false), (256, 8, true), (5, 256, true)] {
        let mut client = client(1, &[P::Pap]);
        let known = credentials(&[P::Pap], &vec![b'x'; password]);
        client.credentials =
            Arc::new(Credentials { name: b"alice".iter().copied().cycle().take(name).collect(), ..known });
        let mut world = World::new(config(), vec![client]);
        world.connect(0);
        world.net.run(secs(5));
        let ended = if ends { EndReason::TooLong } else { EndReason::Refused };
        assert_eq!(world.client_ended(0), [ended], "{name} {password}");
        let asked =
            |(_, event): &(_, ConcentratorEvent)| matches!(event, ConcentratorEvent::Authenticate { .. });
        assert_eq!(world.net.events(world.ac).iter().any(asked), !ends, "nobody else is named");
    }
}

#[test]
fn a_concentrator_that_does_not_know_the_password_is_not_believed() {
    let mut world = World::with(P::MsChapV2);
    world.judge.lock().unwrap().impostor = true;
    world.connect(0);
    world.net.run(secs(5));
    assert_eq!(world.client_ended(0), [EndReason::Impostor]);
    assert!(world.client_networks(0).is_empty());
    assert_eq!(world.installed(), 0);
}

#[test]
fn both_agree_on_what_both_take() {
    for (server, client_takes, agreed) in [
        (vec![P::Eap, P::MsChapV2, P::Chap], vec![P::Pap, P::Chap], Some(P::Chap)),
        (vec![P::Pap, P::Chap], vec![P::Chap, P::Pap], Some(P::Pap)),
        (vec![P::Eap], vec![P::MsChapV2, P::Eap], Some(P::Eap)),
        (vec![P::Eap, P::MsChapV2], vec![P::Pap], None),
        (vec![P::Chap], vec![], None),
    ] {
        let config = ConcentratorConfig { authentication: server.into(), ..config() };
        let mut world = World::new(config, vec![client(1, &client_takes)]);
        world.connect(0);
        world.net.run(secs(5));
        let asked = world.net.events(world.ac).iter().find_map(|(_, event)| match event {
            ConcentratorEvent::Authenticate { proof, .. } => Some(match proof {
                Proof::Pap(_) => P::Pap,
                Proof::Chap { .. } => P::Chap,
                Proof::MsChapV2 { .. } => P::MsChapV2,
                Proof::Eap(_) => P::Eap,
            }),
            _ => None,
        });
        assert_eq!(asked, agreed);
        match agreed {
            Some(_) => assert_eq!(world.installed(), 2),
            None => assert_eq!((world.ended(), world.installed()), (vec![EndReason::NoAuthentication], 0)),
        }
    }
}

#[test]
fn nobody_is_let_in_while_nobody_judges() {
    let mut world = World::with(P::Chap);
    world.judge.lock().unwrap().silent = true;
    world.connect(0);
    world.net.run(secs(120));
    let ends = (world.ended(), world.client_ended(0));
    assert_eq!(
        ends,
        (vec![EndReason::PeerClosed], vec![EndReason::Unreachable]),
        "the client gives up first"
    );
    assert_eq!((world.installed(), world.client_networks(0).len()), (0, 0));
    // It asks for another session; somebody answers that there is no answer.
    let mut world = World::with(P::Chap);
    world.judge.lock().unwrap().silent = true;
    world.connect(0);
    world.net.run(secs(2));
    let session = SessionId(0);
    let answer = Answer::Unanswered;
    world.net.command(world.ac, ConcentratorCommand::Answer { session, answer }).unwrap();
    world.net.run(secs(5));
    assert_eq!(world.ended(), [EndReason::Unjudged]);
}

#[test]
fn an_answer_to_nothing_is_refused() {
    use usher_core::CommandError;
    let mut world = World::with(P::Pap);
    let (session, _) = world.up();
    let command = |session| ConcentratorCommand::Answer { session, answer: Answer::Unanswered };
    assert!(matches!(world.net.command(world.ac, command(session)), Err(CommandError::WrongState(_))));
    let unknown = world.net.command(world.ac, command(SessionId(99)));
    assert_eq!(unknown, Err(CommandError::UnknownToken));
    let close = world.net.command(world.ac, ConcentratorCommand::Close(SessionId(99)));
    assert_eq!(close, Err(CommandError::UnknownToken));
    let client = world.clients[0];
    assert!(matches!(world.net.command(client, ClientCommand::Connect), Err(CommandError::WrongState(_))));
    assert_eq!(world.installed(), 2, "none of it changed anything");
}
