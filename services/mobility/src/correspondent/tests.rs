use super::*;
use usher_core::bench::TestMachine;
use usher_mip::{BindingLifetime, BindingStatus, BindingUpdate};

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const CARE_OF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));

fn at_millis(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

fn test_correspondent(packets: Option<u32>) -> TestMachine<CorrespondentNode> {
    TestMachine::new(CorrespondentNode::new(CorrespondentConfig {
        station: SocketAddr::new(HOME, 5000),
        size: 40,
        interval: Duration::from_millis(500),
        packets,
        longest_binding: Duration::from_secs(100),
        proof: None,
    }))
}

fn binding_update(from: IpAddr, home: IpAddr, sequence: u16, acknowledge: bool) -> (DatagramPath, Vec<u8>) {
    let message = MobilityMessage::Update(BindingUpdate {
        sequence,
        acknowledge,
        home_registration: true,
        link_local: false,
        key_management: false,
        lifetime: BindingLifetime(20),
        options: Vec::new(),
    });
    let mut octets = Vec::new();
    let destination = usher_mip::to_inner_address([10, 0, 9, 9].into());
    MobilityPacket { source: usher_mip::to_inner_address(home), destination, message }.emit(&mut octets);
    let path =
        DatagramPath { socket: BINDING_SOCKET, local: ANY, remote: SocketAddr::new(from, usher_mip::PORT) };
    (path, octets)
}

/// Returns the destinations and octets of the sent datagrams.
fn drain_datagrams(machine: &mut TestMachine<CorrespondentNode>) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut sent = Vec::new();
    let mut buf = Vec::new();
    while let Some(transmit) = machine.poll_transmit(&mut buf) {
        let Transmit::Datagram { path } = transmit else { panic!("{transmit:?}") };
        sent.push((path.remote, buf.clone()));
    }
    sent
}

#[test]
fn the_flow_keeps_its_rate_and_follows_the_binding() {
    let mut machine = test_correspondent(None);
    machine.handle_command(at_millis(0), CorrespondentCommand::Start).unwrap();
    assert!(machine.handle_command(at_millis(0), CorrespondentCommand::Start).is_err());
    assert_eq!(machine.poll_timeout(), Some(at_millis(500)));
    // The host calls late: two packets are due.
    machine.handle_input(at_millis(1100), MachineInput::Timeout);
    let sent = drain_datagrams(&mut machine);
    let numbers: Vec<_> =
        sent.iter().map(|(to, data)| (to.ip(), flow::sequence_number(data), data.len())).collect();
    assert_eq!(numbers, [(HOME, Some(0), 40), (HOME, Some(1), 40), (HOME, Some(2), 40)]);
    let (path, data) = binding_update(CARE_OF, HOME, 7, true);
    machine.handle_input(at_millis(1200), MachineInput::Datagram { path, data: &data });
    let answer = drain_datagrams(&mut machine);
    assert_eq!(answer[0].0, path.remote);
    let MobilityMessage::Acknowledgement(ack) = MobilityPacket::parse(&answer[0].1).unwrap().message else {
        panic!()
    };
    assert_eq!((ack.status, ack.sequence, ack.lifetime), (BindingStatus::ACCEPTED, 7, BindingLifetime(20)));
    machine.handle_input(at_millis(1500), MachineInput::Timeout);
    assert_eq!(drain_datagrams(&mut machine)[0].0, SocketAddr::new(CARE_OF, 5000));
    let events: Vec<CorrespondentEvent> = core::iter::from_fn(|| machine.poll_event()).collect();
    let sent = |sequence, to| CorrespondentEvent::Sent { sequence, to };
    let redirected = CorrespondentEvent::Redirected { to: CARE_OF };
    assert_eq!(events, [sent(0, HOME), sent(1, HOME), sent(2, HOME), redirected, sent(3, CARE_OF)]);
}

#[test]
fn updates_that_change_nothing_are_no_redirection() {
    let mut machine = test_correspondent(None);
    for (from, home, sequence, acknowledge, answers) in [
        (CARE_OF, HOME, 1, false, 0),
        // A repeated update is rejected, with an acknowledgement although it requests none.
        (CARE_OF, HOME, 1, false, 1),
        (CARE_OF, HOME, 2, true, 1),
        (CARE_OF, CARE_OF, 3, true, 1),
    ] {
        let (path, data) = binding_update(from, home, sequence, acknowledge);
        machine.handle_input(at_millis(0), MachineInput::Datagram { path, data: &data });
        assert_eq!(drain_datagrams(&mut machine).len(), answers, "{sequence}");
    }
    assert_eq!((machine.counters().bound, machine.counters().refused), (2, 2));
    assert_eq!(machine.poll_event(), Some(CorrespondentEvent::Redirected { to: CARE_OF }));
    assert_eq!(machine.poll_event(), None);
}

#[test]
fn a_flow_may_have_an_end() {
    let mut machine = test_correspondent(Some(2));
    machine.handle_command(at_millis(0), CorrespondentCommand::Start).unwrap();
    machine.handle_input(at_millis(500), MachineInput::Timeout);
    assert_eq!((machine.poll_timeout(), machine.counters().sent), (None, 2));
    let mut none = test_correspondent(Some(0));
    none.handle_command(at_millis(0), CorrespondentCommand::Start).unwrap();
    assert_eq!((none.poll_timeout(), none.counters().sent), (None, 0));
    let mut still = test_correspondent(None);
    still.config.interval = Duration::ZERO;
    assert!(still.handle_command(at_millis(0), CorrespondentCommand::Start).is_err());
}

#[test]
fn odd_input_is_dropped() {
    let mut machine = test_correspondent(None);
    let (path, mut data) = binding_update(CARE_OF, HOME, 1, true);
    machine.handle_input(at_millis(0), MachineInput::Datagram { path, data: &data[1..] });
    machine.handle_input(
        at_millis(0),
        MachineInput::Datagram { path: DatagramPath { socket: FLOW_SOCKET, ..path }, data: &data },
    );
    data.clear();
    let message = MobilityMessage::Acknowledgement(usher_mip::BindingAcknowledgement {
        status: BindingStatus::ACCEPTED,
        key_management: false,
        sequence: 1,
        lifetime: BindingLifetime(1),
        options: Vec::new(),
    });
    let any = usher_mip::to_inner_address(HOME);
    MobilityPacket { source: any, destination: any, message }.emit(&mut data);
    machine.handle_input(at_millis(0), MachineInput::Datagram { path, data: &data });
    let counters = machine.counters();
    assert_eq!((counters.malformed, counters.unexpected, counters.not_an_update), (1, 1, 1));
    assert_eq!(drain_datagrams(&mut machine), []);
}

/// An update for a care-of address that does not receive packets moves no flow.
#[test]
fn a_flow_moves_when_its_new_address_has_answered() {
    let mut machine = TestMachine::new(CorrespondentNode::new(CorrespondentConfig {
        station: SocketAddr::new(HOME, 5000),
        size: 40,
        interval: Duration::from_millis(500),
        packets: None,
        longest_binding: Duration::from_secs(100),
        proof: Some(CareOfVerificationConfig {
            networks: Vec::new(),
            rng: usher_core::SecureRng::from_seed([1; 32]),
        }),
    }));
    machine.handle_command(at_millis(0), CorrespondentCommand::Start).unwrap();
    drain_datagrams(&mut machine);
    let mut give = |at, sequence| {
        let (path, data) = binding_update(CARE_OF, HOME, sequence, true);
        machine.handle_input(at, MachineInput::Datagram { path, data: &data });
        let answers = drain_datagrams(&mut machine);
        let answer =
            answers.first().and_then(|(_, octets)| match MobilityPacket::parse(octets).unwrap().message {
                MobilityMessage::Acknowledgement(ack) => Some((ack.status, ack.sequence)),
                _ => None,
            });
        (answer, machine.counters().bound)
    };
    let (Some((BindingStatus::SEQUENCE_OUT_OF_WINDOW, number)), 0) = give(at_millis(1), 7) else { panic!() };
    assert_eq!(give(at_millis(2), number.wrapping_add(2)), (None, 0), "a wrong guess is not answered");
    assert_eq!(give(at_millis(3), 7), (None, 0), "a copy");
    let next = number.wrapping_add(1);
    assert_eq!(
        give(at_millis(4), next),
        (Some((BindingStatus::ACCEPTED, next)), 1),
        "the guess has not spent the number"
    );
    let next = next.wrapping_add(1);
    assert_eq!(
        give(at_millis(5), next),
        (Some((BindingStatus::ACCEPTED, next)), 2),
        "a refreshment moves nothing"
    );
    assert_eq!(machine.counters().unproven, 2);
}
