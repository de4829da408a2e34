use super::*;
use usher_core::bench::Tap;
use usher_mip::{BindingUpdate, Lifetime, Status};

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const CARE_OF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));

fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

fn correspondent(packets: Option<u32>) -> Tap<Correspondent> {
    Tap::new(Correspondent::new(Config {
        station: SocketAddr::new(HOME, 5000),
        size: 40,
        interval: Duration::from_millis(500),
        packets,
        longest_binding: Duration::from_secs(100),
        proof: None,
    }))
}

fn update(from: IpAddr, home: IpAddr, sequence: u16, acknowledge: bool) -> (Path, Vec<u8>) {
    let message = Message::Update(BindingUpdate {
        sequence,
        acknowledge,
        home_registration: true,
        link_local: false,
        key_management: false,
        lifetime: Lifetime(20),
        options: Vec::new(),
    });
    let mut octets = Vec::new();
    let destination = usher_mip::inner([10, 0, 9, 9].into());
    Packet { source: usher_mip::inner(home), destination, message }.emit(&mut octets);
    let path = Path { socket: BINDING_SOCKET, local: ANY, remote: SocketAddr::new(from, usher_mip::PORT) };
    (path, octets)
}

/// Where datagrams go, with their octets.
fn drain(machine: &mut Tap<Correspondent>) -> Vec<(SocketAddr, Vec<u8>)> {
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
    let mut machine = correspondent(None);
    machine.command(ms(0), Command::Start).unwrap();
    assert!(machine.command(ms(0), Command::Start).is_err());
    assert_eq!(machine.poll_timeout(), Some(ms(500)));
    // The host comes late: two packets are due.
    machine.handle(ms(1100), Input::Timeout);
    let sent = drain(&mut machine);
    let numbers: Vec<_> = sent.iter().map(|(to, data)| (to.ip(), flow::sequence(data), data.len())).collect();
    assert_eq!(numbers, [(HOME, Some(0), 40), (HOME, Some(1), 40), (HOME, Some(2), 40)]);
    let (path, data) = update(CARE_OF, HOME, 7, true);
    machine.handle(ms(1200), Input::Datagram { path, data: &data });
    let answer = drain(&mut machine);
    assert_eq!(answer[0].0, path.remote);
    let Message::Acknowledgement(ack) = Packet::parse(&answer[0].1).unwrap().message else { panic!() };
    assert_eq!((ack.status, ack.sequence, ack.lifetime), (Status::ACCEPTED, 7, Lifetime(20)));
    machine.handle(ms(1500), Input::Timeout);
    assert_eq!(drain(&mut machine)[0].0, SocketAddr::new(CARE_OF, 5000));
    let events: Vec<Event> = core::iter::from_fn(|| machine.poll_event()).collect();
    let sent = |sequence, to| Event::Sent { sequence, to };
    let redirected = Event::Redirected { to: CARE_OF };
    assert_eq!(events, [sent(0, HOME), sent(1, HOME), sent(2, HOME), redirected, sent(3, CARE_OF)]);
}

#[test]
fn updates_that_change_nothing_are_no_redirection() {
    let mut machine = correspondent(None);
    for (from, home, sequence, acknowledge, answers) in [
        (CARE_OF, HOME, 1, false, 0),
        // The same again is refused, which is said although nobody asked.
        (CARE_OF, HOME, 1, false, 1),
        (CARE_OF, HOME, 2, true, 1),
        (CARE_OF, CARE_OF, 3, true, 1),
    ] {
        let (path, data) = update(from, home, sequence, acknowledge);
        machine.handle(ms(0), Input::Datagram { path, data: &data });
        assert_eq!(drain(&mut machine).len(), answers, "{sequence}");
    }
    assert_eq!((machine.counters().bound, machine.counters().refused), (2, 2));
    assert_eq!(machine.poll_event(), Some(Event::Redirected { to: CARE_OF }));
    assert_eq!(machine.poll_event(), None);
}

#[test]
fn a_flow_may_have_an_end() {
    let mut machine = correspondent(Some(2));
    machine.command(ms(0), Command::Start).unwrap();
    machine.handle(ms(500), Input::Timeout);
    assert_eq!((machine.poll_timeout(), machine.counters().sent), (None, 2));
    let mut none = correspondent(Some(0));
    none.command(ms(0), Command::Start).unwrap();
    assert_eq!((none.poll_timeout(), none.counters().sent), (None, 0));
    let mut still = correspondent(None);
    still.config.interval = Duration::ZERO;
    assert!(still.command(ms(0), Command::Start).is_err());
}

#[test]
fn odd_input_is_dropped() {
    let mut machine = correspondent(None);
    let (path, mut data) = update(CARE_OF, HOME, 1, true);
    machine.handle(ms(0), Input::Datagram { path, data: &data[1..] });
    machine.handle(ms(0), Input::Datagram { path: Path { socket: FLOW_SOCKET, ..path }, data: &data });
    data.clear();
    let message = Message::Acknowledgement(usher_mip::BindingAcknowledgement {
        status: Status::ACCEPTED,
        key_management: false,
        sequence: 1,
        lifetime: Lifetime(1),
        options: Vec::new(),
    });
    let any = usher_mip::inner(HOME);
    Packet { source: any, destination: any, message }.emit(&mut data);
    machine.handle(ms(0), Input::Datagram { path, data: &data });
    let counters = machine.counters();
    assert_eq!((counters.malformed, counters.unexpected, counters.not_an_update), (1, 1, 1));
    assert_eq!(drain(&mut machine), []);
}

/// Who says that the station is elsewhere, and does not receive there, moves nothing.
#[test]
fn a_flow_moves_when_its_new_address_has_answered() {
    let mut machine = Tap::new(Correspondent::new(Config {
        station: SocketAddr::new(HOME, 5000),
        size: 40,
        interval: Duration::from_millis(500),
        packets: None,
        longest_binding: Duration::from_secs(100),
        proof: Some(CareOfProof { networks: Vec::new(), rng: usher_core::SecureRng::from_seed([1; 32]) }),
    }));
    machine.command(ms(0), Command::Start).unwrap();
    drain(&mut machine);
    let mut give = |at, sequence| {
        let (path, data) = update(CARE_OF, HOME, sequence, true);
        machine.handle(at, Input::Datagram { path, data: &data });
        let answers = drain(&mut machine);
        let answer = answers.first().and_then(|(_, octets)| match Packet::parse(octets).unwrap().message {
            Message::Acknowledgement(ack) => Some((ack.status, ack.sequence)),
            _ => None,
        });
        (answer, machine.counters().bound)
    };
    let (Some((Status::SEQUENCE_OUT_OF_WINDOW, number)), 0) = give(ms(1), 7) else { panic!() };
    assert_eq!(give(ms(2), number.wrapping_add(2)), (None, 0), "a wrong guess is not answered");
    assert_eq!(give(ms(3), 7), (None, 0), "a copy");
    let next = number.wrapping_add(1);
    assert_eq!(give(ms(4), next), (Some((Status::ACCEPTED, next)), 1), "the guess has not spent the number");
    let next = next.wrapping_add(1);
    assert_eq!(give(ms(5), next), (Some((Status::ACCEPTED, next)), 2), "a refreshment moves nothing");
    assert_eq!(machine.counters().unproven, 2);
}
