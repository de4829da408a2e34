//! Servers that are silent, gone, or make no sense.

use crate::world::{CARRIERS, Carrier, NAS, Script, World, answer, diameter_config, radius_config};
use std::num::NonZeroU16;
use usher_access::{
    AaaConfig, AccessClient, Command, ConfigError, Connections, Event, Failure, NasIdentity, Proof, Request,
};
use usher_core::{CommandError, Seed};
use usher_diameter::ResultCode;
use usher_diameter::codes;
use usher_diameter::node::{Command as NodeCommand, DisconnectCause, PeerId};
use usher_radius::attribute::{kind, vendor};
use usher_radius::{Attributes, Code};

const ASK: Request<'_> = Request::new(b"ann", Proof::Pap(b"secret"));
const ACCEPTS: Script = Script {
    radius: |_| Some((Code::ACCESS_ACCEPT, Attributes::new())),
    diameter: |message| Some((ResultCode::SUCCESS, answer(message))),
};

#[test]
fn a_silent_server_is_given_up_and_another_is_asked_instead() {
    for carrier in CARRIERS {
        for servers in [1, 2] {
            let mut w = World::new(carrier, servers, ACCEPTS);
            let (radius, diameter) = (w.radius.first().copied(), w.diameter.first().copied());
            if let Some(first) = radius {
                w.net.silence(first, true);
            }
            if let Some(first) = diameter {
                w.net.silence(first, true);
            }
            let now = w.net.now();
            w.net[w.nas].ask(now, 1, &ASK).unwrap();
            w.run(200);
            match w.event() {
                Event::Accept { token: 1, .. } if servers == 2 => {}
                // The watchdog finds a silent peer out, and there is no other.
                Event::Failed { token: 1, failure: Failure::Timeout } if servers == 1 => {}
                other => panic!("{carrier:?} {servers} {other:?}"),
            }
        }
    }
}

#[test]
fn a_server_that_is_gone_is_not_asked_again() {
    for carrier in [Carrier::RadSec, Carrier::Diameter] {
        let mut w = World::new(carrier, 2, ACCEPTS);
        let now = w.net.now();
        w.net[w.nas].ask(now, 1, &ASK).unwrap();
        w.run(1);
        assert!(matches!(w.event(), Event::Accept { token: 1, .. }));
        match carrier {
            Carrier::Diameter => {
                w.net.refuse(w.diameter[0], true);
                w.net.cut(w.diameter[0]);
            }
            _ => {
                w.net.refuse(w.radius[0], true);
                w.net.cut(w.radius[0]);
            }
        }
        w.run(1);
        let now = w.net.now();
        w.net[w.nas].ask(now, 2, &ASK).unwrap();
        w.run(5);
        assert!(matches!(w.event(), Event::Accept { token: 2, .. }), "{carrier:?}");
    }
}

#[test]
fn an_answer_that_makes_no_sense_lets_nobody_in() {
    type Radius = fn(&usher_radius::server::Request) -> Option<(Code, Attributes)>;
    let radius: [Radius; 5] = [
        |_| Some((Code::ACCESS_ACCEPT, one(kind::SESSION_TIMEOUT, &[1, 2, 3]))),
        |_| Some((Code::ACCESS_ACCEPT, one(kind::FRAMED_IP_ADDRESS, &[192, 0, 2]))),
        |_| Some((Code::ACCESS_ACCEPT, one(kind::DELEGATED_IPV6_PREFIX, &[0, 129]))),
        |_| Some((Code::ACCESS_ACCEPT, one(kind::TUNNEL_TYPE, &[0, 0, 13]))),
        |_| Some((Code::ACCESS_CHALLENGE, one(kind::SESSION_TIMEOUT, &[]))),
    ];
    for script in radius {
        for carrier in [Carrier::Udp, Carrier::RadSec] {
            let mut w = World::new(carrier, 1, Script { radius: script, diameter: |_| None });
            let now = w.net.now();
            w.net[w.nas].ask(now, 1, &ASK).unwrap();
            w.run(1);
            assert_eq!(w.event(), Event::Failed { token: 1, failure: Failure::BadAnswer });
        }
    }
    type Diameter = fn(&usher_diameter::Message) -> Option<(ResultCode, usher_diameter::AvpBuf)>;
    let diameter: [(Diameter, Failure); 4] = [
        // Without Auth-Request-Type.
        (|_| Some((ResultCode::SUCCESS, usher_diameter::AvpBuf::new())), Failure::BadAnswer),
        (|m| Some((ResultCode::SUCCESS, with(m, codes::SESSION_TIMEOUT))), Failure::BadAnswer),
        (|m| Some((ResultCode::MULTI_ROUND_AUTH, with(m, codes::IDLE_TIMEOUT))), Failure::BadAnswer),
        (|m| Some((ResultCode::TOO_BUSY, answer(m))), Failure::Fault(3002)),
    ];
    for (script, failure) in diameter {
        let mut w = World::new(Carrier::Diameter, 1, Script { radius: |_| None, diameter: script });
        let now = w.net.now();
        w.net[w.nas].ask(now, 1, &ASK).unwrap();
        w.run(1);
        assert_eq!(w.event(), Event::Failed { token: 1, failure });
    }
}

fn one(kind: u8, value: &[u8]) -> Attributes {
    let mut a = Attributes::new();
    a.push_bytes(kind, value).unwrap();
    a
}
fn with(message: &usher_diameter::Message, id: usher_diameter::AvpId) -> usher_diameter::AvpBuf {
    let mut avps = answer(message);
    avps.push(id, &[1, 2, 3]);
    avps
}

#[test]
fn keys_that_cannot_be_read_are_an_error() {
    let script = |_: &usher_radius::server::Request| {
        let mut a = Attributes::new();
        for kind in [vendor::MS_MPPE_RECV_KEY, vendor::MS_MPPE_SEND_KEY] {
            a.push_vendor(vendor::MICROSOFT, kind, &[0x80, 1, 2, 3]).unwrap();
        }
        Some((Code::ACCESS_ACCEPT, a))
    };
    let mut w = World::new(Carrier::Udp, 1, Script { radius: script, diameter: |_| None });
    let now = w.net.now();
    w.net[w.nas].ask(now, 1, &ASK).unwrap();
    w.run(1);
    let Event::Accept { reply, .. } = w.event() else { panic!() };
    assert!(reply.keys().is_err() && reply.msk().is_err());
}

#[test]
fn a_cancelled_question_has_no_answer() {
    for carrier in CARRIERS {
        let mut w = World::new(carrier, 1, ACCEPTS);
        let now = w.net.now();
        w.net[w.nas].ask(now, 1, &ASK).unwrap();
        w.net.command(w.nas, Command::Cancel { token: 1 }).unwrap();
        w.run(60);
        assert_eq!(w.events(), []);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let client = |nas: NasIdentity| {
        let aaa = AaaConfig::Radius(radius_config(Carrier::Udp, 1));
        AccessClient::new(nas, aaa, Seed::new(1).secure("nas", 0)).map(|_| ()).unwrap_err()
    };
    assert_eq!(client(NasIdentity::ethernet("")), ConfigError::Nameless);
    assert_eq!(client(NasIdentity::ethernet(&"x".repeat(254))), ConfigError::Identifier(254));
    let named = NasIdentity { address: Some(NAS), ..NasIdentity::default() };
    let mut aaa = radius_config(Carrier::Udp, 1);
    aaa.client.servers.clear();
    let error = AccessClient::new(named, AaaConfig::Radius(aaa), Seed::new(1).secure("nas", 0)).unwrap_err();
    assert!(matches!(error, ConfigError::Radius(_)), "{error}");

    let mut w = World::new(Carrier::Udp, 1, ACCEPTS);
    let now = w.net.now();
    let invalid = |done| matches!(done, Err(CommandError::Invalid(_)));
    assert!(invalid(w.net[w.nas].ask(now, 1, &Request::new(b"", ASK.proof))));
    assert!(invalid(w.net[w.nas].ask(now, 1, &Request::new(b"ann", Proof::Pap(&[0; 129])))));
    let connect = NodeCommand::Connect { peer: PeerId(0) };
    assert!(invalid(w.net.command(w.nas, Command::Diameter(connect))));
    let unknown = Command::AnswerDynamic { token: 0, answer: Ok(()) };
    assert_eq!(w.net.command(w.nas, unknown), Err(CommandError::UnknownToken));
    w.run(60);
    assert_eq!(w.events(), []);
}

#[test]
fn a_question_that_is_refused_leaves_no_connection() {
    let mut config = diameter_config(1).by(Connections::PerSession);
    (config.max_connections, config.node.max_pending) = (1, 0);
    let mut w = World::with(AaaConfig::Diameter(Box::new(config)), Carrier::Diameter, 1, ACCEPTS);
    for token in 0..2 {
        let now = w.net.now();
        let refused = w.net[w.nas].ask(now, token, &ASK);
        assert_eq!(refused, Err(CommandError::Full("pending requests")));
    }
}

/// Of two connections to each of two peers, peer `p` of connection `c` is number `2 * c + p`.
#[test]
fn a_connection_of_several_is_closed_and_opened_by_its_number() {
    let config = diameter_config(2).by(Connections::Shared(NonZeroU16::new(2).unwrap()));
    let mut w = World::with(AaaConfig::Diameter(Box::new(config)), Carrier::Diameter, 2, ACCEPTS);
    let mut told = |command| {
        w.net.command(w.nas, Command::Diameter(command))?;
        w.run(1);
        let told = w.net.take(w.nas).into_iter().filter_map(|(_, event)| match event {
            Event::Peer { peer, up } => Some((peer, up)),
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
