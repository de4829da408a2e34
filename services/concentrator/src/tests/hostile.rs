//! Attacks by hosts.

use super::*;
use usher_ppp::pppoe::{DiscoveryTags, PppoeCode, PppoeFrame, PppoeStage};

pub(super) fn pppoe_frame(
    from: MacAddress,
    to: MacAddress,
    stage: PppoeStage,
    code: PppoeCode,
    session: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    PppoeFrame { destination: to, source: from, stage, code, session, payload }.emit(&mut out);
    out
}

impl ConcentratorTestNetwork {
    pub(super) fn deliver_frame(&mut self, frame: &[u8]) {
        self.net.inject_input(self.ac, MachineInput::Frame { port: PORT, data: frame });
    }
}

#[test]
fn nobody_else_ends_a_session() {
    let mut world = ConcentratorTestNetwork::new(LOCAL, vec![ann_client(1)]);
    world.connect_and_wait(0);
    let number = world.session_statuses()[0].number;
    for number in [number, number ^ 1, 0] {
        world.deliver_frame(&pppoe_frame(
            host_mac(9),
            AC,
            PppoeStage::Discovery,
            PppoeCode::PADT,
            number,
            &[],
        ));
    }
    // LCP's Terminate-Request from another station.
    world.deliver_frame(&pppoe_frame(
        host_mac(9),
        AC,
        PppoeStage::Session,
        PppoeCode::SESSION,
        number,
        &[0xc0, 0x21, 5, 1, 0, 4],
    ));
    world.net.run_for(secs(1));
    assert_eq!((world.session_statuses().len(), world.installed_sessions().len()), (1, 1));
    assert!(world.counter_value("spoofed") >= 2);
    // The session's own station may end it.
    world.deliver_frame(&pppoe_frame(host_mac(1), AC, PppoeStage::Discovery, PppoeCode::PADT, number, &[]));
    assert_eq!((world.session_statuses().len(), world.end_reasons()), (0, vec!["padt".to_owned()]));
}

#[test]
fn who_has_not_shown_who_it_is_gets_nothing_through() {
    let mut world = ConcentratorTestNetwork::new(LOCAL, vec![ann_client(1)]);
    let since = world.net.sent_transmits().len();
    let any = DiscoveryTags { services: vec![b""], ..DiscoveryTags::default() };
    let mut tags = Vec::new();
    any.emit(&mut tags);
    world.deliver_frame(&pppoe_frame(
        host_mac(9),
        MacAddress::BROADCAST,
        PppoeStage::Discovery,
        PppoeCode::PADI,
        0,
        &tags,
    ));
    let offer = world.net.sent_transmits()[since..].iter().find(|sent| sent.from == 0).unwrap().bytes.clone();
    let cookie =
        DiscoveryTags::parse(PppoeFrame::parse(&offer).unwrap().payload).unwrap().cookie.unwrap().to_vec();
    let mut tags = Vec::new();
    DiscoveryTags { services: vec![b""], cookie: Some(&cookie), ..DiscoveryTags::default() }.emit(&mut tags);
    let since = world.net.sent_transmits().len();
    world.deliver_frame(&pppoe_frame(host_mac(9), AC, PppoeStage::Discovery, PppoeCode::PADR, 0, &tags));
    let number =
        world.net.sent_transmits()[since..].iter().filter_map(|sent| PppoeFrame::parse(&sent.bytes).ok());
    let number =
        number.filter(|frame| frame.code == PppoeCode::PADS).map(|frame| frame.session).next().unwrap();
    // IPCP and packets of IPv4 and IPv6 before any agreement.
    for payload in [&[0x80, 0x21, 1, 1, 0, 4][..], &[0, 0x21, 0x45, 0, 0, 20], &[0, 0x57, 0x60, 0, 0, 0]] {
        world.deliver_frame(&pppoe_frame(
            host_mac(9),
            AC,
            PppoeStage::Session,
            PppoeCode::SESSION,
            number,
            payload,
        ));
    }
    world.net.run_for(secs(90));
    assert!(world.installed_sessions().is_empty() && world.session_statuses().is_empty());
    assert_eq!(world.disk.borrow().lines.len(), 1, "the log names nobody");
    assert!(world.events().any(|event| matches!(event, AccessConcentratorEvent::LoginAborted { .. })));
}

#[test]
fn a_flood_of_logins_costs_what_it_may() {
    let text = format!("{LOCAL}[limits]\nhalf_open = 20\ndiscovery = 50\n");
    let mut world = ConcentratorTestNetwork::new(&text, vec![ann_client(1)]);
    let any = DiscoveryTags { services: vec![b""], ..DiscoveryTags::default() };
    let mut tags = Vec::new();
    any.emit(&mut tags);
    for n in 100..5000 {
        world.deliver_frame(&pppoe_frame(
            host_mac(n),
            MacAddress::BROADCAST,
            PppoeStage::Discovery,
            PppoeCode::PADI,
            0,
            &tags,
        ));
    }
    assert!(world.counter_value("limited_all") > 4000);
    assert!(world.net[world.ac].session_count() == 0 && world.counter_value("sessions") == 0);
    world.net.run_for(secs(10));
    world.connect_and_wait(0);
    assert_eq!(world.installed_sessions().len(), 1, "and others come in when it is over");
}

#[test]
fn octets_of_any_kind_do_no_harm() {
    let mut world = ConcentratorTestNetwork::new(LOCAL, vec![ann_client(1)]);
    world.connect_and_wait(0);
    let number = world.session_statuses()[0].number;
    let mut rng = SecureRng::from_seed([3; 32]);
    for n in 0..3000_usize {
        let mut payload: Vec<u8> = (0..n % 80).map(|_| rng.next_u32() as u8).collect();
        if let Some(first) = payload.first_mut() {
            *first = [0xc0, 0x80, 0xc2, 0][n % 4];
        }
        let stage = if n % 5 == 0 { PppoeStage::Discovery } else { PppoeStage::Session };
        world.deliver_frame(&pppoe_frame(
            host_mac(9),
            AC,
            stage,
            PppoeCode(rng.next_u32() as u8),
            number,
            &payload,
        ));
    }
    world.net.run_for(secs(1));
    assert_eq!(
        (world.session_statuses().len(), world.installed_sessions().len()),
        (1, 1),
        "who is there stays"
    );
}
