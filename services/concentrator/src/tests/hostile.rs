//! Hosts that mean harm.

use super::*;
use usher_ppp::pppoe::{Code, Discovery, Frame, Stage};

pub(super) fn frame(
    from: MacAddress,
    to: MacAddress,
    stage: Stage,
    code: Code,
    session: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    Frame { destination: to, source: from, stage, code, session, payload }.emit(&mut out);
    out
}

impl World {
    pub(super) fn give(&mut self, frame: &[u8]) {
        self.net.give(self.ac, Input::Frame { port: PORT, data: frame });
    }
}

#[test]
fn nobody_else_ends_a_session() {
    let mut world = World::new(LOCAL, vec![ann(1)]);
    world.up(0);
    let number = world.status()[0].number;
    for number in [number, number ^ 1, 0] {
        world.give(&frame(host(9), AC, Stage::Discovery, Code::PADT, number, &[]));
    }
    // LCP's Terminate-Request of another station.
    world.give(&frame(host(9), AC, Stage::Session, Code::SESSION, number, &[0xc0, 0x21, 5, 1, 0, 4]));
    world.net.run(secs(1));
    assert_eq!((world.status().len(), world.installed().len()), (1, 1));
    assert!(world.counted("spoofed") >= 2);
    // Its own station may.
    world.give(&frame(host(1), AC, Stage::Discovery, Code::PADT, number, &[]));
    assert_eq!((world.status().len(), world.ended()), (0, vec!["padt".to_owned()]));
}

#[test]
fn who_has_not_shown_who_it_is_gets_nothing_through() {
    let mut world = World::new(LOCAL, vec![ann(1)]);
    let since = world.net.sent().len();
    let any = Discovery { services: vec![b""], ..Discovery::default() };
    let mut tags = Vec::new();
    any.emit(&mut tags);
    world.give(&frame(host(9), MacAddress::BROADCAST, Stage::Discovery, Code::PADI, 0, &tags));
    let offer = world.net.sent()[since..].iter().find(|sent| sent.from == 0).unwrap().bytes.clone();
    let cookie = Discovery::parse(Frame::parse(&offer).unwrap().payload).unwrap().cookie.unwrap().to_vec();
    let mut tags = Vec::new();
    Discovery { services: vec![b""], cookie: Some(&cookie), ..Discovery::default() }.emit(&mut tags);
    let since = world.net.sent().len();
    world.give(&frame(host(9), AC, Stage::Discovery, Code::PADR, 0, &tags));
    let number = world.net.sent()[since..].iter().filter_map(|sent| Frame::parse(&sent.bytes).ok());
    let number = number.filter(|frame| frame.code == Code::PADS).map(|frame| frame.session).next().unwrap();
    // IPCP and packets of IPv4 and IPv6, before anything was agreed to.
    for payload in [&[0x80, 0x21, 1, 1, 0, 4][..], &[0, 0x21, 0x45, 0, 0, 20], &[0, 0x57, 0x60, 0, 0, 0]] {
        world.give(&frame(host(9), AC, Stage::Session, Code::SESSION, number, payload));
    }
    world.net.run(secs(90));
    assert!(world.installed().is_empty() && world.status().is_empty());
    assert_eq!(world.disk.borrow().lines.len(), 1, "the log names nobody");
    assert!(world.events().any(|event| matches!(event, Event::GaveUp { .. })));
}

#[test]
fn a_flood_of_logins_costs_what_it_may() {
    let text = format!("{LOCAL}[limits]\nhalf_open = 20\ndiscovery = 50\n");
    let mut world = World::new(&text, vec![ann(1)]);
    let any = Discovery { services: vec![b""], ..Discovery::default() };
    let mut tags = Vec::new();
    any.emit(&mut tags);
    for n in 100..5000 {
        world.give(&frame(host(n), MacAddress::BROADCAST, Stage::Discovery, Code::PADI, 0, &tags));
    }
    assert!(world.counted("limited_all") > 4000);
    assert!(world.net[world.ac].sessions() == 0 && world.counted("sessions") == 0);
    world.net.run(secs(10));
    world.up(0);
    assert_eq!(world.installed().len(), 1, "and others come in when it is over");
}

#[test]
fn octets_of_any_kind_do_no_harm() {
    let mut world = World::new(LOCAL, vec![ann(1)]);
    world.up(0);
    let number = world.status()[0].number;
    let mut rng = SecureRng::from_seed([3; 32]);
    for n in 0..3000_usize {
        let mut payload: Vec<u8> = (0..n % 80).map(|_| rng.next_u32() as u8).collect();
        if let Some(first) = payload.first_mut() {
            *first = [0xc0, 0x80, 0xc2, 0][n % 4];
        }
        let stage = if n % 5 == 0 { Stage::Discovery } else { Stage::Session };
        world.give(&frame(host(9), AC, stage, Code(rng.next_u32() as u8), number, &payload));
    }
    world.net.run(secs(1));
    assert_eq!((world.status().len(), world.installed().len()), (1, 1), "who is there stays");
}
