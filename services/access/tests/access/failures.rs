//! Silent, lost and faulty servers.

use crate::world::{
    AccessTestNetwork, CARRIERS, NAS, ServerScript, TestTransport, answer_avps, diameter_config,
    radius_config,
};
use std::num::NonZeroU16;
use usher_access::{
    AaaConfig, AaaRequestFailure, AccessClient, AccessClientCommand, AccessClientEvent, AccessRequest,
    ConfigError, DiameterConnections, NasIdentity, UserCredentials,
};
use usher_core::{CommandError, Seed};
use usher_diameter::ResultCode;
use usher_diameter::codes;
use usher_diameter::node::{DiameterNodeCommand as NodeCommand, DisconnectCause, PeerId};
use usher_radius::attribute::{kind, vendor};
use usher_radius::{AttributeList, PacketCode};

const LOGIN_REQUEST: AccessRequest<'_> = AccessRequest::new(b"ann", UserCredentials::Pap(b"secret"));
const ACCEPTS: ServerScript = ServerScript {
    radius: |_| Some((PacketCode::ACCESS_ACCEPT, AttributeList::new())),
    diameter: |message| Some((ResultCode::SUCCESS, answer_avps(message))),
};

#[test]
fn a_silent_server_is_given_up_and_another_is_asked_instead() {
    for carrier in CARRIERS {
        for servers in [1, 2] {
            let mut w = AccessTestNetwork::new(carrier, servers, ACCEPTS);
            let (radius, diameter) = (w.radius.first().copied(), w.diameter.first().copied());
            if let Some(first) = radius {
                w.net.set_silent(first, true);
            }
            if let Some(first) = diameter {
                w.net.set_silent(first, true);
            }
            let now = w.net.now();
            w.net[w.nas].send_request(now, 1, &LOGIN_REQUEST).unwrap();
            w.run_seconds(200);
            match w.take_event() {
                AccessClientEvent::Accept { token: 1, .. } if servers == 2 => {}
                // The watchdog detects a silent peer, and there is no other.
                AccessClientEvent::Failed { token: 1, failure: AaaRequestFailure::Timeout }
                    if servers == 1 => {}
                other => panic!("{carrier:?} {servers} {other:?}"),
            }
        }
    }
}

#[test]
fn a_server_that_is_gone_is_not_asked_again() {
    for carrier in [TestTransport::RadSec, TestTransport::Diameter] {
        let mut w = AccessTestNetwork::new(carrier, 2, ACCEPTS);
        let now = w.net.now();
        w.net[w.nas].send_request(now, 1, &LOGIN_REQUEST).unwrap();
        w.run_seconds(1);
        assert!(matches!(w.take_event(), AccessClientEvent::Accept { token: 1, .. }));
        match carrier {
            TestTransport::Diameter => {
                w.net.set_refusing_connections(w.diameter[0], true);
                w.net.reset_connections(w.diameter[0]);
            }
            _ => {
                w.net.set_refusing_connections(w.radius[0], true);
                w.net.reset_connections(w.radius[0]);
            }
        }
        w.run_seconds(1);
        let now = w.net.now();
        w.net[w.nas].send_request(now, 2, &LOGIN_REQUEST).unwrap();
        w.run_seconds(5);
        assert!(matches!(w.take_event(), AccessClientEvent::Accept { token: 2, .. }), "{carrier:?}");
    }
}

#[test]
fn an_answer_that_makes_no_sense_lets_nobody_in() {
    type RadiusScript = fn(&usher_radius::server::RadiusRequest) -> Option<(PacketCode, AttributeList)>;
    let radius: [RadiusScript; 5] = [
        |_| Some((PacketCode::ACCESS_ACCEPT, single_attribute(kind::SESSION_TIMEOUT, &[1, 2, 3]))),
        |_| Some((PacketCode::ACCESS_ACCEPT, single_attribute(kind::FRAMED_IP_ADDRESS, &[192, 0, 2]))),
        |_| Some((PacketCode::ACCESS_ACCEPT, single_attribute(kind::DELEGATED_IPV6_PREFIX, &[0, 129]))),
        |_| Some((PacketCode::ACCESS_ACCEPT, single_attribute(kind::TUNNEL_TYPE, &[0, 0, 13]))),
        |_| Some((PacketCode::ACCESS_CHALLENGE, single_attribute(kind::SESSION_TIMEOUT, &[]))),
    ];
    for script in radius {
        for carrier in [TestTransport::Udp, TestTransport::RadSec] {
            let mut w =
                AccessTestNetwork::new(carrier, 1, ServerScript { radius: script, diameter: |_| None });
            let now = w.net.now();
            w.net[w.nas].send_request(now, 1, &LOGIN_REQUEST).unwrap();
            w.run_seconds(1);
            assert_eq!(
                w.take_event(),
                AccessClientEvent::Failed { token: 1, failure: AaaRequestFailure::BadAnswer }
            );
        }
    }
    type DiameterScript =
        fn(&usher_diameter::DiameterMessage) -> Option<(ResultCode, usher_diameter::AvpBuf)>;
    let diameter: [(DiameterScript, AaaRequestFailure); 4] = [
        // Without Auth-Request-Type.
        (|_| Some((ResultCode::SUCCESS, usher_diameter::AvpBuf::new())), AaaRequestFailure::BadAnswer),
        (
            |m| Some((ResultCode::SUCCESS, answer_with_avp(m, codes::SESSION_TIMEOUT))),
            AaaRequestFailure::BadAnswer,
        ),
        (
            |m| Some((ResultCode::MULTI_ROUND_AUTH, answer_with_avp(m, codes::IDLE_TIMEOUT))),
            AaaRequestFailure::BadAnswer,
        ),
        (|m| Some((ResultCode::TOO_BUSY, answer_avps(m))), AaaRequestFailure::Fault(3002)),
    ];
    for (script, failure) in diameter {
        let mut w = AccessTestNetwork::new(
            TestTransport::Diameter,
            1,
            ServerScript { radius: |_| None, diameter: script },
        );
        let now = w.net.now();
        w.net[w.nas].send_request(now, 1, &LOGIN_REQUEST).unwrap();
        w.run_seconds(1);
        assert_eq!(w.take_event(), AccessClientEvent::Failed { token: 1, failure });
    }
}

fn single_attribute(kind: u8, value: &[u8]) -> AttributeList {
    let mut a = AttributeList::new();
    a.push_bytes(kind, value).unwrap();
    a
}
fn answer_with_avp(
    message: &usher_diameter::DiameterMessage,
    id: usher_diameter::AvpId,
) -> usher_diameter::AvpBuf {
    let mut avps = answer_avps(message);
    avps.push(id, &[1, 2, 3]);
    avps
}

#[test]
fn keys_that_cannot_be_read_are_an_error() {
    let script = |_: &usher_radius::server::RadiusRequest| {
        let mut a = AttributeList::new();
        for kind in [vendor::MS_MPPE_RECV_KEY, vendor::MS_MPPE_SEND_KEY] {
            a.push_vendor(vendor::MICROSOFT, kind, &[0x80, 1, 2, 3]).unwrap();
        }
        Some((PacketCode::ACCESS_ACCEPT, a))
    };
    let mut w =
        AccessTestNetwork::new(TestTransport::Udp, 1, ServerScript { radius: script, diameter: |_| None });
    let now = w.net.now();
    w.net[w.nas].send_request(now, 1, &LOGIN_REQUEST).unwrap();
    w.run_seconds(1);
    let AccessClientEvent::Accept { reply, .. } = w.take_event() else { panic!() };
    assert!(reply.mppe_keys().is_err() && reply.msk().is_err());
}

#[test]
fn a_cancelled_question_has_no_answer() {
    for carrier in CARRIERS {
        let mut w = AccessTestNetwork::new(carrier, 1, ACCEPTS);
        let now = w.net.now();
        w.net[w.nas].send_request(now, 1, &LOGIN_REQUEST).unwrap();
        w.net.send_command(w.nas, AccessClientCommand::Cancel { token: 1 }).unwrap();
        w.run_seconds(60);
        assert_eq!(w.take_events(), []);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let client = |nas: NasIdentity| {
        let aaa = AaaConfig::Radius(radius_config(TestTransport::Udp, 1));
        AccessClient::new(nas, aaa, Seed::new(1).derive_secure_rng("nas", 0)).map(|_| ()).unwrap_err()
    };
    assert_eq!(client(NasIdentity::for_ethernet("")), ConfigError::Nameless);
    assert_eq!(client(NasIdentity::for_ethernet(&"x".repeat(254))), ConfigError::Identifier(254));
    let named = NasIdentity { address: Some(NAS), ..NasIdentity::default() };
    let mut aaa = radius_config(TestTransport::Udp, 1);
    aaa.client.servers.clear();
    let error = AccessClient::new(named, AaaConfig::Radius(aaa), Seed::new(1).derive_secure_rng("nas", 0))
        .unwrap_err();
    assert!(matches!(error, ConfigError::Radius(_)), "{error}");

    let mut w = AccessTestNetwork::new(TestTransport::Udp, 1, ACCEPTS);
    let now = w.net.now();
    let invalid = |done| matches!(done, Err(CommandError::Invalid(_)));
    assert!(invalid(w.net[w.nas].send_request(now, 1, &AccessRequest::new(b"", LOGIN_REQUEST.proof))));
    assert!(invalid(w.net[w.nas].send_request(
        now,
        1,
        &AccessRequest::new(b"ann", UserCredentials::Pap(&[0; 129]))
    )));
    let connect = NodeCommand::Connect { peer: PeerId(0) };
    assert!(invalid(w.net.send_command(w.nas, AccessClientCommand::Diameter(connect))));
    let unknown = AccessClientCommand::AnswerDynamic { token: 0, answer: Ok(()) };
    assert_eq!(w.net.send_command(w.nas, unknown), Err(CommandError::UnknownToken));
    w.run_seconds(60);
    assert_eq!(w.take_events(), []);
}

#[test]
fn a_question_that_is_refused_leaves_no_connection() {
    let mut config = diameter_config(1).with_connections(DiameterConnections::PerSession);
    (config.max_connections, config.node.max_pending) = (1, 0);
    let mut w = AccessTestNetwork::with_config(
        AaaConfig::Diameter(Box::new(config)),
        TestTransport::Diameter,
        1,
        ACCEPTS,
    );
    for token in 0..2 {
        let now = w.net.now();
        let refused = w.net[w.nas].send_request(now, token, &LOGIN_REQUEST);
        assert_eq!(refused, Err(CommandError::Full("pending requests")));
    }
}

/// With two connections to each of two peers, peer `p` of connection `c` is number `2 * c + p`.
#[test]
fn a_connection_of_several_is_closed_and_opened_by_its_number() {
    let config =
        diameter_config(2).with_connections(DiameterConnections::Shared(NonZeroU16::new(2).unwrap()));
    let mut w = AccessTestNetwork::with_config(
        AaaConfig::Diameter(Box::new(config)),
        TestTransport::Diameter,
        2,
        ACCEPTS,
    );
    let mut told = |command| {
        w.net.send_command(w.nas, AccessClientCommand::Diameter(command))?;
        w.run_seconds(1);
        let told = w.net.take_events(w.nas).into_iter().filter_map(|(_, event)| match event {
            AccessClientEvent::Peer { peer, up } => Some((peer, up)),
            _ => None,
        });
        Ok(told.collect::<Vec<_>>())
    };
    for peer in (0..4).map(PeerId) {
        let cause = DisconnectCause::Busy;
        assert_eq!(told(NodeCommand::Disconnect { peer, cause }), Ok(vec![(peer, false)]));
        assert_eq!(told(NodeCommand::Connect { peer }), Ok(vec![(peer, true)]));
    }
    assert_eq!(told(NodeCommand::Connect { peer: PeerId(4) }), Err(CommandError::UnknownToken));
}
