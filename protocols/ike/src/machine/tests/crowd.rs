//! Many real addresses that begin and do not continue, and the resources left for others.

use super::flood::{first_request_template, message_octets};
use super::*;
use crate::IkeMessage;

/// Initiators in this number of /24 networks, each at a hundred hosts. They return their cookies.
struct InitiatorCrowd {
    template: IkeMessage,
    networks: u32,
    sent: u64,
}

impl InitiatorCrowd {
    fn new(world: &mut IkeTestNetwork, networks: u32) -> Self {
        Self { template: first_request_template(world), networks, sent: 0 }
    }
    /// Starts this many more, round-robin over the networks.
    fn start_initiators(&mut self, world: &mut IkeTestNetwork, count: u32) {
        for _ in 0..count {
            let n = self.sent as u32;
            self.sent += 1;
            let (network, host) = (n % self.networks, n / self.networks % 100);
            let from =
                SocketAddr::new(IpAddr::from((0x0a00_0001 + (network << 8) + host).to_be_bytes()), 500);
            self.template.header.initiator_spi = crate::Spi(self.sent.to_be_bytes());
            if let Some(cookie) = self.send_first_request(world, from) {
                self.template.payloads.insert(0, Payload::Notify(cookie));
                assert_eq!(self.send_first_request(world, from), None, "the cookie is right");
                self.template.payloads.remove(0);
            }
        }
    }
    /// Returns the cookie that it gets.
    fn send_first_request(&self, world: &mut IkeTestNetwork, from: SocketAddr) -> Option<NotifyPayload> {
        let before = world.net.sent_transmits().len();
        let responder = world.responder;
        world.forge_datagram(
            responder,
            from,
            socket_address(RESPONDER, 500),
            &message_octets(&self.template),
        );
        let answer =
            world.net.sent_transmits().get(before).and_then(|sent| IkeMessage::parse(&sent.bytes).ok())?;
        answer.find_notify(crate::code::NotifyType::COOKIE).cloned()
    }
}

fn established_count(world: &IkeTestNetwork) -> usize {
    world.events(world.responder).iter().filter(|event| matches!(event, IkeEvent::Established { .. })).count()
}

/// Eight networks have an eighth of the table each; 64 fill it as well. An initiator of another network gets in at
/// once.
#[test]
fn networks_that_fill_the_table_block_no_other_network() {
    for networks in [8, 64, 400] {
        let config = IkeEndpointConfig { half_open: 400, cookies_from: 40, ..default_config() };
        let mut world = IkeTestNetwork::with_config(
            config,
            psk_connection(true),
            psk_connection(false),
            TestEapMethod::MsChapV2,
        );
        let mut crowd = InitiatorCrowd::new(&mut world, networks);
        let responder = world.responder;
        crowd.start_initiators(&mut world, 500);
        let counters = world.counters(responder);
        assert_eq!((world.net[responder].half_open(), counters.full), (400, 100), "{networks} networks");
        world.net.run_for(millis(2100));
        let before = world.net.sent_transmits().len();
        world.initiate();
        world.net.run_for(millis(30));
        let (now, endpoint) = (world.net.now(), &mut world.net[responder]);
        assert_eq!(endpoint.cx.counters.half_open_evicted, 1);
        // An eviction is not charged to the evicted network: one more refusal is missing from a hundred.
        let of = |n: u32| IpAddr::from((0x0a00_0001 + (n << 8)).to_be_bytes());
        for n in 0..8 {
            (0..99).for_each(|_| endpoint.pressure.record_refusal(now, of(n)));
            assert!(!endpoint.pressure.network_requires_cookies(now, of(n)), "{networks} networks");
        }
        world.net.run_for(millis(70));
        assert_eq!(established_count(&world), 1, "{networks} networks");
        // A cookie, IKE_SA_INIT and IKE_AUTH, each with one request and one response.
        assert_eq!(world.net.sent_transmits().len() - before, 6);
        let counters = world.counters(responder);
        assert_eq!((counters.half_open_evicted, world.net[responder].half_open()), (1, 399));
        assert_eq!(world.end_reasons(responder), [EndReason::HalfOpen]);
        // No state of them is left.
        world.net.run_for(secs(40));
        let endpoint = &world.net[responder];
        assert_eq!((endpoint.half_open(), endpoint.half_open.index_sizes()), (0, (0, 0, 0)));
        // The template's request has come again meanwhile.
        assert_eq!(endpoint.active_sa_count(), established_count(&world));
    }
}

/// For two minutes, more arrive each second than leave. Networks with equal counts do not evict each other.
#[test]
fn a_crowd_that_goes_on_keeps_nobody_elsewhere_out() {
    for networks in [8, 64] {
        let config = IkeEndpointConfig { half_open: 400, cookies_from: 40, ..default_config() };
        let mut world = IkeTestNetwork::with_config(
            config,
            psk_connection(true),
            psk_connection(false),
            TestEapMethod::MsChapV2,
        );
        let mut crowd = InitiatorCrowd::new(&mut world, networks);
        let responder = world.responder;
        let mut honest = 1;
        for second in 0..120 {
            for _ in 0..5 {
                crowd.start_initiators(&mut world, 20);
                world.net.run_for(millis(200));
            }
            if second % 4 == 0 {
                honest += 1;
                world.initiate();
            }
            assert!(world.net[responder].half_open() <= 400);
        }
        world.net.run_for(secs(20));
        assert_eq!(established_count(&world), honest, "{networks} networks");
        let counters = world.counters(responder);
        // Of 12,000 arrivals, only as many get a key exchange as the table has room for in this time. Each place
        // changes hands once in it.
        assert!(counters.begun <= 2 * 400 * 5, "{} key exchanges", counters.begun);
        assert!(counters.half_open_evicted >= honest as u64 / 2, "{} gave way", counters.half_open_evicted);
    }
}

/// As many networks as places, each of them new: an initiator has two seconds to authenticate.
#[test]
fn who_has_just_begun_is_not_put_out() {
    let config = IkeEndpointConfig { half_open: 100, cookies_from: 10, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    let mut crowd = InitiatorCrowd::new(&mut world, 60_000);
    let responder = world.responder;
    crowd.start_initiators(&mut world, 100);
    world.net.run_for(millis(1900));
    crowd.start_initiators(&mut world, 50);
    assert_eq!((world.counters(responder).full, world.counters(responder).half_open_evicted), (50, 0));
    world.net.run_for(millis(200));
    crowd.start_initiators(&mut world, 150);
    assert_eq!((world.counters(responder).full, world.counters(responder).half_open_evicted), (100, 100));
}

/// Half-open IKE_SAs never evict established ones. They are evicted if there is no other place.
#[test]
fn a_full_gateway_evicts_a_stalled_login_for_a_new_one() {
    let config = IkeEndpointConfig { sas: 20, half_open: 400, cookies_from: 5, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    let mut crowd = InitiatorCrowd::new(&mut world, 4);
    crowd.start_initiators(&mut world, 30);
    let responder = world.responder;
    assert_eq!((world.net[responder].half_open(), world.counters(responder).full), (20, 10));
    world.net.run_for(millis(2100));
    world.initiate();
    world.net.run_for(millis(200));
    assert_eq!((established_count(&world), world.net[responder].active_sa_count()), (1, 20));
}

/// An AAA server takes 5 s for each of three packets. Meanwhile, initiators of more networks than places arrive
/// without end. The waiting login is not evicted.
#[test]
fn a_login_that_waits_for_an_aaa_server_is_not_put_out() {
    let config = IkeEndpointConfig { half_open: 100, cookies_from: 10, ..default_config() };
    let ours = IkeConnectionConfig {
        local_auth: peer_auth(TestEapMethod::MsChapV2, PASSWORD),
        ..psk_connection(true)
    };
    let theirs = IkeConnectionConfig {
        remote_auth: RemoteAuth::Eap { request_identity: false },
        ..psk_connection(false)
    };
    let theirs = IkeConnectionConfig { remote: None, ..theirs };
    let mut world = IkeTestNetwork::with_config(config, ours, theirs, TestEapMethod::MsChapV2);
    let (responder, eap) = (world.responder, RefCell::new(EapHost::default()));
    world.net.on_event(responder, move |event| match event {
        IkeEvent::Eap { sa, packet, .. } => {
            let answer = eap.borrow_mut().answer_packet(*sa, packet, TestEapMethod::MsChapV2);
            Some((secs(5), IkeCommand::Eap { sa: *sa, answer }))
        }
        _ => None,
    });
    let mut crowd = InitiatorCrowd::new(&mut world, 60_000);
    // The template's initiator is the honest one: it retransmits after 4 s.
    for _ in 0..50 {
        crowd.start_initiators(&mut world, 10);
        world.net.run_for(millis(500));
    }
    assert!(
        world.counters(responder).half_open_evicted > 300,
        "{}",
        world.counters(responder).half_open_evicted
    );
    assert_eq!(established_count(&world), 1);
    assert!(!world.end_reasons(world.initiator).contains(&EndReason::Refused));
}
