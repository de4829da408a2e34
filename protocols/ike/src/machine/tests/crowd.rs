//! Many real addresses that begin and do not go on: what is left for others.

use super::flood::{octets, template};
use super::*;
use crate::Message;

/// Initiators at so many networks of 24 bits, each at a hundred hosts, who send back the cookies that they are asked for.
struct Crowd {
    template: Message,
    networks: u32,
    sent: u64,
}

impl Crowd {
    fn new(world: &mut World, networks: u32) -> Self {
        Self { template: template(world), networks, sent: 0 }
    }
    /// As many more begin, of each network in its turn.
    fn begin(&mut self, world: &mut World, count: u32) {
        for _ in 0..count {
            let n = self.sent as u32;
            self.sent += 1;
            let (network, host) = (n % self.networks, n / self.networks % 100);
            let from =
                SocketAddr::new(IpAddr::from((0x0a00_0001 + (network << 8) + host).to_be_bytes()), 500);
            self.template.header.initiator_spi = crate::Spi(self.sent.to_be_bytes());
            if let Some(cookie) = self.send(world, from) {
                self.template.payloads.insert(0, Payload::Notify(cookie));
                assert_eq!(self.send(world, from), None, "the cookie is right");
                self.template.payloads.remove(0);
            }
        }
    }
    /// Gives the cookie that it is asked for.
    fn send(&self, world: &mut World, from: SocketAddr) -> Option<Notify> {
        let before = world.net.sent().len();
        let responder = world.responder;
        world.forge(responder, from, at(RESPONDER, 500), &octets(&self.template));
        let answer = world.net.sent().get(before).and_then(|sent| Message::parse(&sent.bytes).ok())?;
        answer.notify(crate::code::NotifyType::COOKIE).cloned()
    }
}

fn established(world: &World) -> usize {
    world.events(world.responder).iter().filter(|event| matches!(event, Event::Established { .. })).count()
}

/// Eight networks have an eighth of the table each, and 64 fill it as well: who is elsewhere gets in at once.
#[test]
fn networks_that_have_filled_the_table_keep_nobody_elsewhere_out() {
    for networks in [8, 64, 400] {
        let config = Config { half_open: 400, cookies_from: 40, ..config() };
        let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
        let mut crowd = Crowd::new(&mut world, networks);
        let responder = world.responder;
        crowd.begin(&mut world, 500);
        let counters = world.counters(responder);
        assert_eq!((world.net[responder].half_open(), counters.full), (400, 100), "{networks} networks");
        world.net.run(millis(2100));
        let before = world.net.sent().len();
        world.initiate();
        world.net.run(millis(30));
        let (now, endpoint) = (world.net.now(), &mut world.net[responder]);
        assert_eq!(endpoint.counters.gave_way, 1);
        // Nothing is held against whoever was put out: of a hundred that come to nothing one is still missing.
        let of = |n: u32| IpAddr::from((0x0a00_0001 + (n << 8)).to_be_bytes());
        for n in 0..8 {
            (0..99).for_each(|_| endpoint.pressure.refused(now, of(n)));
            assert!(!endpoint.pressure.is_pressed(now, of(n)), "{networks} networks");
        }
        world.net.run(millis(70));
        assert_eq!(established(&world), 1, "{networks} networks");
        // A cookie, IKE_SA_INIT and IKE_AUTH, each asked once and answered.
        assert_eq!(world.net.sent().len() - before, 6);
        let counters = world.counters(responder);
        assert_eq!((counters.gave_way, world.net[responder].half_open()), (1, 399));
        assert_eq!(world.ended(responder), [EndReason::HalfOpen]);
        // Nothing is left of any of them.
        world.net.run(secs(40));
        let endpoint = &world.net[responder];
        assert_eq!((endpoint.half_open(), endpoint.half_open.counted()), (0, (0, 0, 0)));
        // The template's comes again meanwhile.
        assert_eq!(endpoint.living(), established(&world));
    }
}

/// Two minutes, in which each second more come than go: those who have as many do not put out each other.
#[test]
fn a_crowd_that_goes_on_keeps_nobody_elsewhere_out() {
    for networks in [8, 64] {
        let config = Config { half_open: 400, cookies_from: 40, ..config() };
        let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
        let mut crowd = Crowd::new(&mut world, networks);
        let responder = world.responder;
        let mut honest = 1;
        for second in 0..120 {
            for _ in 0..5 {
                crowd.begin(&mut world, 20);
                world.net.run(millis(200));
            }
            if second % 4 == 0 {
                honest += 1;
                world.initiate();
            }
            assert!(world.net[responder].half_open() <= 400);
        }
        world.net.run(secs(20));
        assert_eq!(established(&world), honest, "{networks} networks");
        let counters = world.counters(responder);
        // Of 12,000 that come no more than the places have room for in the time, each of which changes hands once by that.
        assert!(counters.begun <= 2 * 400 * 5, "{} key exchanges", counters.begun);
        assert!(counters.gave_way >= honest as u64 / 2, "{} gave way", counters.gave_way);
    }
}

/// From as many networks as there are places, each of which is new: whoever has begun has two seconds to prove who it is.
#[test]
fn who_has_just_begun_is_not_put_out() {
    let config = Config { half_open: 100, cookies_from: 10, ..config() };
    let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
    let mut crowd = Crowd::new(&mut world, 60_000);
    let responder = world.responder;
    crowd.begin(&mut world, 100);
    world.net.run(millis(1900));
    crowd.begin(&mut world, 50);
    assert_eq!((world.counters(responder).full, world.counters(responder).gave_way), (50, 0));
    world.net.run(millis(200));
    crowd.begin(&mut world, 150);
    assert_eq!((world.counters(responder).full, world.counters(responder).gave_way), (100, 100));
}

/// Half-open IKE_SAs take no place of what has been established, and give way where there is no other.
#[test]
fn a_gateway_with_as_many_ike_sas_as_may_be_lets_somebody_in_in_the_place_of_who_does_not_go_on() {
    let config = Config { sas: 20, half_open: 400, cookies_from: 5, ..config() };
    let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
    let mut crowd = Crowd::new(&mut world, 4);
    crowd.begin(&mut world, 30);
    let responder = world.responder;
    assert_eq!((world.net[responder].half_open(), world.counters(responder).full), (20, 10));
    world.net.run(millis(2100));
    world.initiate();
    world.net.run(millis(200));
    assert_eq!((established(&world), world.net[responder].living()), (1, 20));
}

/// An AAA server that takes 5 s for each of three packets, while others begin at more networks than there are places, without end: who
/// waits is not put out for them, whatever they have less.
#[test]
fn a_login_that_waits_for_an_aaa_server_is_not_put_out() {
    let config = Config { half_open: 100, cookies_from: 10, ..config() };
    let ours = Connection { local_auth: peer_auth(Method::MsChapV2, PASSWORD), ..connection(true) };
    let theirs = Connection { remote_auth: RemoteAuth::Eap { ask_identity: false }, ..connection(false) };
    let theirs = Connection { remote: None, ..theirs };
    let mut world = World::with(config, ours, theirs, Method::MsChapV2);
    let (responder, eap) = (world.responder, RefCell::new(EapHost::default()));
    world.net.on_event(responder, move |event| match event {
        Event::Eap { sa, packet, .. } => {
            let answer = eap.borrow_mut().answer(*sa, packet, Method::MsChapV2);
            Some((secs(5), Command::Eap { sa: *sa, answer }))
        }
        _ => None,
    });
    let mut crowd = Crowd::new(&mut world, 60_000);
    // The template's initiator is the honest one: its request comes again after 4 s.
    for _ in 0..50 {
        crowd.begin(&mut world, 10);
        world.net.run(millis(500));
    }
    assert!(world.counters(responder).gave_way > 300, "{}", world.counters(responder).gave_way);
    assert_eq!(established(&world), 1);
    assert!(!world.ended(world.initiator).contains(&EndReason::Refused));
}
