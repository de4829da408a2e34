//! SCTP between simulated hosts, and hosts that fail and come back.

use super::Log;
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, Loss};
use usher_core::{AssocId, CloseReason, ConnId, Duration, Instant, Seed};
use usher_sim::sctp::Message;
use usher_sim::{
    Application, Builder, Context, Delivery, Fault, HostId, IpVersion, LinkConfig, MessageDelivery, Payload,
    Simulation, StreamDelivery, Transports, sctp,
};

/// Test applications; each tells what happened to it.
#[derive(Debug)]
enum App {
    /// Opens an association, and sends a message of its number every 100 ms; opens another when it is lost.
    Talker { to: HostId, next: u32, opened: u32, up: bool },
    /// Opens an association, says nothing, and aborts it after ten seconds.
    Quitter { to: HostId },
    /// Sends what comes back on the stream that it came on.
    Echo,
    /// Writes a byte every 100 ms on a TCP connection.
    Writer { to: HostId, open: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Started,
    Up(u16),
    Got(u32),
    Down(CloseReason),
}

const TICK: Duration = Duration::from_millis(100);

impl Application for App {
    type Report = Seen;
    fn handle(&mut self, ctx: &mut Context<'_, Seen>, delivery: Delivery) {
        match (self, delivery) {
            (Self::Talker { to, .. }, Delivery::Start) => {
                ctx.associate(AssocId::opened(0), *to, 9, 4);
                ctx.set_timer(Some(ctx.now() + TICK));
            }
            (Self::Quitter { to }, Delivery::Start) => {
                ctx.associate(AssocId::opened(0), *to, 9, 4);
                ctx.set_timer(Some(secs(10)));
            }
            (Self::Quitter { .. }, Delivery::Timer) => ctx.abort(AssocId::opened(0)),
            (Self::Talker { to, next, opened, up }, Delivery::Timer) => {
                if *up {
                    let payload = Payload::copied(&next.to_be_bytes());
                    let message = Message { stream: (*next % 4) as u16, ppid: 1, unordered: false, payload };
                    ctx.send_message(AssocId::opened(*opened), message);
                    *next += 1;
                } else if *opened > 0 {
                    ctx.associate(AssocId::opened(*opened), *to, 9, 4);
                    *up = true;
                }
                ctx.set_timer(Some(ctx.now() + TICK));
            }
            (Self::Talker { up, opened, .. }, Delivery::Message { event, .. }) => match event {
                MessageDelivery::Up { streams, .. } => {
                    *up = true;
                    ctx.report(Seen::Up(streams));
                }
                MessageDelivery::Data { payload, .. } => {
                    ctx.report(Seen::Got(u32::from_be_bytes(payload.as_slice().try_into().unwrap())));
                }
                MessageDelivery::Down(reason) => {
                    *up = false;
                    *opened += 1;
                    ctx.report(Seen::Down(reason));
                }
            },
            (
                Self::Echo,
                Delivery::Message { assoc, event: MessageDelivery::Data { stream, ppid, payload } },
            ) => {
                ctx.send_message(assoc, Message { stream, ppid, unordered: false, payload });
            }
            (Self::Echo, Delivery::Start) => ctx.report(Seen::Started),
            (Self::Writer { to, .. }, Delivery::Start) => {
                ctx.connect(ConnId::opened(0), *to, 7);
                ctx.set_timer(Some(ctx.now() + TICK));
            }
            (Self::Writer { open: true, .. }, Delivery::Timer) => {
                ctx.write(ConnId::opened(0), Payload::counted(1));
                ctx.set_timer(Some(ctx.now() + TICK));
            }
            (Self::Writer { open, .. }, Delivery::Stream { event, .. }) => match event {
                StreamDelivery::Connected { .. } => *open = true,
                StreamDelivery::Data(_) => {}
                StreamDelivery::Closed(reason) => {
                    *open = false;
                    ctx.report(Seen::Down(reason));
                }
            },
            _ => {}
        }
    }
}

fn secs(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}
fn channel(loss: Loss, from: u64) -> ChannelConfig {
    let delay = Duration::from_millis(10);
    ChannelConfig { delay, loss, impaired_from: secs(from), ..Default::default() }
}
fn link(channel: ChannelConfig) -> LinkConfig {
    LinkConfig { up: channel.clone(), down: channel, ..Default::default() }
}
fn settings(sctp: sctp::Config) -> Option<Arc<Transports>> {
    Some(Arc::new(Transports { sctp: Arc::new(sctp), ..Transports::default() }))
}
fn talker(to: HostId) -> App {
    App::Talker { to, next: 0, opened: 0, up: false }
}

/// What an application told, without the times.
fn said(sim: &Simulation<App, Log<Seen>>, app: u32) -> Vec<Seen> {
    sim.observer().0.iter().filter(|(_, a, _)| *a == app).map(|(.., s)| *s).collect()
}
fn got(said: &[Seen]) -> Vec<u32> {
    said.iter().filter_map(|s| if let Seen::Got(n) = s { Some(*n) } else { None }).collect()
}

#[test]
fn a_multihomed_association_outlives_its_first_link() {
    let mut b = Builder::<App>::new(IpVersion::V4, Seed::new(3));
    let [a, s] = [(); 2].map(|()| b.host(None).unwrap());
    // The first link loses everything from the fifth second on.
    let first = b.link(a, s, &link(channel(Loss::Bernoulli(1.0), 5)));
    let second = b.link(a, s, &link(channel(Loss::None, 0)));
    b.multihome(a, &[first, second]);
    b.multihome(s, &[first, second]);
    let client = b.app(a, talker(s), None);
    let server = b.app(s, App::Echo, None);
    b.listen_sctp(server, 9).unwrap();
    let mut sim = b.build(Log::default(), None);
    sim.run_until(secs(300));
    let said = said(&sim, client);
    assert!(!said.iter().any(|s| matches!(s, Seen::Down(_))), "the association went down");
    // What is sent again is counted while the association is up: what was on its way when the link went silent.
    let totals = sim.sctp_totals();
    assert!(totals.packets > 2000 && totals.control > 100 && totals.control < totals.packets, "{totals:?}");
    assert!(totals.retransmitted > 0 && totals.timeouts > 0, "{totals:?}");
    let got = got(&said);
    // Everything came back, each stream in its order.
    for stream in 0..4 {
        let of: Vec<u32> = got.iter().copied().filter(|n| n % 4 == stream).collect();
        assert!(of.len() > 700 && of.windows(2).all(|w| w[1] == w[0] + 4), "stream {stream}");
    }
    assert_eq!(sim.link_stats(second)[0].lost, 0);
    assert!(sim.link_stats(second)[0].offered > 2000, "{:?}", sim.link_stats(second));
}

#[test]
fn a_message_for_a_stream_that_is_not_there_ends_the_run() {
    let run = |server: sctp::Config| {
        let mut b = Builder::<App>::new(IpVersion::V4, Seed::new(3));
        let [a, s] = [(); 2].map(|()| b.host(None).unwrap());
        b.link(a, s, &link(channel(Loss::None, 0)));
        let client = b.app(a, talker(s), None);
        let echo = b.app(s, App::Echo, settings(server));
        b.listen_sctp(echo, 9).unwrap();
        let mut sim = b.build(Log::default(), None);
        sim.run_until(secs(1));
        sim.run_until(secs(10));
        (got(&said(&sim, client)), sim.fault(), sim.now(), s)
    };
    // The talker asks for four streams, and by default the other side has as many.
    let (heard, fault, now, _) = run(sctp::Config::default());
    assert_eq!((heard.len(), fault, now), (99, None, secs(10)));
    // With three, message 3 has no way back: it leaves with the fourth tick and is there 10 ms later.
    let (heard, fault, now, s) = run(sctp::Config { accepted_streams: Some(3), ..sctp::Config::default() });
    let at = Instant::ZERO + Duration::from_millis(410);
    assert_eq!(fault, Some(Fault::NoStream { at, host: s, streams: 3 }));
    assert_eq!((heard, now), (vec![0, 1, 2], at));
    let text =
        "at 410 ms: host 1 sent by a stream that its SCTP association does not have; it has 3 outbound";
    assert_eq!(fault.map(|f| f.to_string()).as_deref(), Some(text));
}

#[test]
fn nobody_listening_and_an_old_cookie_are_answered_and_counted() {
    let run = |listens: bool, sctp: sctp::Config| {
        let mut b = Builder::<App>::new(IpVersion::V6, Seed::new(3));
        let [a, s] = [(); 2].map(|()| b.host(None).unwrap());
        b.link(a, s, &link(channel(Loss::None, 0)));
        let client = b.app(a, talker(s), None);
        let server = b.app(s, App::Echo, settings(sctp));
        if listens {
            b.listen_sctp(server, 9).unwrap();
        }
        let mut sim = b.build(Log::default(), None);
        sim.run_until(secs(3));
        (said(&sim, client), sim.host_stats())
    };
    // INIT is answered too, but no cookie of it is stale.
    let (told, stats) = run(true, sctp::Config::default());
    assert!(told.contains(&Seen::Up(4)), "{told:?}");
    assert_eq!((stats.sctp_no_association, stats.sctp_stale_cookie, stats.sctp_bad_cookie), (0, 0, 0));
    let (told, stats) = run(false, sctp::Config::default());
    assert!(matches!(told.first(), Some(Seen::Down(_))), "{told:?}");
    assert!(stats.sctp_no_association > 0);
    assert_eq!((stats.sctp_stale_cookie, stats.sctp_bad_cookie), (0, 0));
    // A cookie that lives less than the round trip of 20 ms.
    let brief = sctp::Config { cookie_life: Duration::from_millis(1), ..sctp::Config::default() };
    let (told, stats) = run(true, brief);
    assert!(!told.iter().any(|s| matches!(s, Seen::Up(_))), "{told:?}");
    assert!(stats.sctp_stale_cookie > 0, "{stats:?}");
}

#[test]
fn a_host_that_fails_forgets_and_its_peers_learn_it() {
    let mut b = Builder::<App>::new(IpVersion::V4, Seed::new(3));
    let [a, s] = [(); 2].map(|()| b.host(None).unwrap());
    b.link(a, s, &link(channel(Loss::None, 0)));
    let client = b.app(a, talker(s), None);
    let writer = b.app(a, App::Writer { to: s, open: false }, None);
    let server = b.app(s, App::Echo, None);
    b.listen_sctp(server, 9).unwrap();
    b.listen(server, 7).unwrap();
    b.outage(s, secs(5), secs(8));
    let mut sim = b.build(Log::default(), None);
    sim.run_until(secs(7));
    assert!(sim.host_stats().host_down > 0);
    let before = got(&said(&sim, client)).len();
    sim.run_until(secs(60));
    // It starts anew; what it forgot is told to whoever still speaks of it: ABORT and RST.
    assert_eq!(said(&sim, server), [Seen::Started, Seen::Started]);
    let told = said(&sim, client);
    let downs: Vec<&Seen> = told.iter().filter(|s| matches!(s, Seen::Down(_))).collect();
    assert_eq!(downs, [&Seen::Down(CloseReason::Reset)]);
    assert_eq!(told.iter().filter(|s| matches!(s, Seen::Up(4))).count(), 2);
    assert!(got(&told).len() > before + 400);
    assert_eq!(said(&sim, writer), [Seen::Down(CloseReason::Reset)]);
    let down_at = sim.observer().0.iter().find(|(_, a, s)| *a == client && matches!(s, Seen::Down(_)));
    assert!(down_at.is_some_and(|(at, ..)| *at > secs(8)), "{down_at:?}");
}

#[test]
fn an_abort_of_what_is_forgotten_is_of_no_association_and_no_bad_cookie() {
    let mut b = Builder::<App>::new(IpVersion::V4, Seed::new(3));
    let [a, s] = [(); 2].map(|()| b.host(None).unwrap());
    b.link(a, s, &link(channel(Loss::None, 0)));
    b.app(a, App::Quitter { to: s }, None);
    let server = b.app(s, App::Echo, None);
    b.listen_sctp(server, 9).unwrap();
    b.outage(s, secs(5), secs(8));
    let mut sim = b.build(Log::default(), None);
    sim.run_until(secs(20));
    let stats = sim.host_stats();
    assert_eq!((stats.sctp_no_association, stats.sctp_bad_cookie, stats.host_down), (1, 0, 0));
}

#[test]
fn a_cookie_of_an_earlier_life_is_discarded() {
    let mut b = Builder::<App>::new(IpVersion::V4, Seed::new(3));
    let [a, s] = [(); 2].map(|()| b.host(None).unwrap());
    b.link(a, s, &link(channel(Loss::None, 0)));
    let client = b.app(a, talker(s), None);
    let server = b.app(s, App::Echo, None);
    b.listen_sctp(server, 9).unwrap();
    // INIT comes at 10 ms, COOKIE ECHO at 30: between them the host loses its memory, and so its key.
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    b.outage(s, at(15), at(25));
    let mut sim = b.build(Log::default(), None);
    sim.run_until(at(900));
    assert_eq!(sim.host_stats().sctp_bad_cookie, 1);
    // Silence is the answer (RFC 9260 section 5.1.5): the client repeats its cookie, after 1 s and twice as
    // long each time, until its eight retransmissions are spent. T1 began with COOKIE ECHO, at 20 ms.
    sim.run_until(secs(400));
    let told: Vec<_> = sim.observer().0.iter().filter(|(_, app, _)| *app == client).take(2).collect();
    let waited = 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60 + 60;
    assert_eq!(
        *told[0],
        (secs(waited) + Duration::from_millis(20), client, Seen::Down(CloseReason::TimedOut))
    );
    assert_eq!(sim.host_stats().sctp_bad_cookie, 9);
    // Its next attempt gets a cookie that this life gave.
    assert!(matches!(told[1], (_, _, Seen::Up(4))), "{told:?}");
}
