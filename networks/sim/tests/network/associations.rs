//! SCTP between simulated hosts, and hosts that fail and recover.

use super::ReportLog;
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, LossModel};
use usher_core::{AssocId, CloseReason, ConnId, Duration, Instant, Seed};
use usher_sim::sctp::UserMessage;
use usher_sim::{
    AppContext, AppDelivery, Application, HostId, IpVersion, LinkConfig, Payload, SctpAssociationEvent,
    SimRunError, Simulation, SimulationBuilder, TcpStreamEvent, TransportConfig, sctp,
};

/// Test applications; each reports its events.
#[derive(Debug)]
enum SctpApp {
    /// Opens an association, and sends a message with its number every 100 ms; opens another after a loss.
    Talker { to: HostId, next: u32, opened: u32, up: bool },
    /// Opens an association, sends nothing, and aborts it after ten seconds.
    Quitter { to: HostId },
    /// Echoes each message on its stream.
    Echo,
    /// Writes a byte every 100 ms on a TCP connection.
    Writer { to: HostId, open: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SctpReport {
    Started,
    Up(u16),
    Got(u32),
    Down(CloseReason),
}

const TICK: Duration = Duration::from_millis(100);

impl Application for SctpApp {
    type Report = SctpReport;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, SctpReport>, delivery: AppDelivery) {
        match (self, delivery) {
            (Self::Talker { to, .. }, AppDelivery::Start) => {
                ctx.associate(AssocId::nth_opened_connection(0), *to, 9, 4);
                ctx.set_timer(Some(ctx.now() + TICK));
            }
            (Self::Quitter { to }, AppDelivery::Start) => {
                ctx.associate(AssocId::nth_opened_connection(0), *to, 9, 4);
                ctx.set_timer(Some(at_secs(10)));
            }
            (Self::Quitter { .. }, AppDelivery::Timer) => ctx.abort(AssocId::nth_opened_connection(0)),
            (Self::Talker { to, next, opened, up }, AppDelivery::Timer) => {
                if *up {
                    let payload = Payload::copy_from_slice(&next.to_be_bytes());
                    let message =
                        UserMessage { stream: (*next % 4) as u16, ppid: 1, unordered: false, payload };
                    ctx.send_message(AssocId::nth_opened_connection(*opened), message);
                    *next += 1;
                } else if *opened > 0 {
                    ctx.associate(AssocId::nth_opened_connection(*opened), *to, 9, 4);
                    *up = true;
                }
                ctx.set_timer(Some(ctx.now() + TICK));
            }
            (Self::Talker { up, opened, .. }, AppDelivery::Message { event, .. }) => match event {
                SctpAssociationEvent::Up { streams, .. } => {
                    *up = true;
                    ctx.report(SctpReport::Up(streams));
                }
                SctpAssociationEvent::Data { payload, .. } => {
                    ctx.report(SctpReport::Got(u32::from_be_bytes(payload.as_slice().try_into().unwrap())));
                }
                SctpAssociationEvent::Down(reason) => {
                    *up = false;
                    *opened += 1;
                    ctx.report(SctpReport::Down(reason));
                }
            },
            (
                Self::Echo,
                AppDelivery::Message { assoc, event: SctpAssociationEvent::Data { stream, ppid, payload } },
            ) => {
                ctx.send_message(assoc, UserMessage { stream, ppid, unordered: false, payload });
            }
            (Self::Echo, AppDelivery::Start) => ctx.report(SctpReport::Started),
            (Self::Writer { to, .. }, AppDelivery::Start) => {
                ctx.connect(ConnId::nth_opened_connection(0), *to, 7);
                ctx.set_timer(Some(ctx.now() + TICK));
            }
            (Self::Writer { open: true, .. }, AppDelivery::Timer) => {
                ctx.write(ConnId::nth_opened_connection(0), Payload::with_length(1));
                ctx.set_timer(Some(ctx.now() + TICK));
            }
            (Self::Writer { open, .. }, AppDelivery::Stream { event, .. }) => match event {
                TcpStreamEvent::Connected { .. } => *open = true,
                TcpStreamEvent::Data(_) => {}
                TcpStreamEvent::Closed(reason) => {
                    *open = false;
                    ctx.report(SctpReport::Down(reason));
                }
            },
            _ => {}
        }
    }
}

fn at_secs(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}
fn lossy_channel(loss: LossModel, from: u64) -> ChannelConfig {
    let delay = Duration::from_millis(10);
    ChannelConfig { delay, loss, impaired_from: at_secs(from), ..Default::default() }
}
fn symmetric_link(channel: ChannelConfig) -> LinkConfig {
    LinkConfig { up: channel.clone(), down: channel, ..Default::default() }
}
fn sctp_settings(sctp: sctp::SctpConfig) -> Option<Arc<TransportConfig>> {
    Some(Arc::new(TransportConfig { sctp: Arc::new(sctp), ..TransportConfig::default() }))
}
fn talker_app(to: HostId) -> SctpApp {
    SctpApp::Talker { to, next: 0, opened: 0, up: false }
}

/// Returns an application's reports, without the times.
fn reports_of(sim: &Simulation<SctpApp, ReportLog<SctpReport>>, app: u32) -> Vec<SctpReport> {
    sim.observer().0.iter().filter(|(_, a, _)| *a == app).map(|(.., s)| *s).collect()
}
fn received_numbers(said: &[SctpReport]) -> Vec<u32> {
    said.iter().filter_map(|s| if let SctpReport::Got(n) = s { Some(*n) } else { None }).collect()
}

#[test]
fn a_multihomed_association_outlives_its_first_link() {
    let mut b = SimulationBuilder::<SctpApp>::new(IpVersion::V4, Seed::new(3));
    let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
    // The first link loses all packets from the fifth second on.
    let first = b.add_link(a, s, &symmetric_link(lossy_channel(LossModel::Bernoulli(1.0), 5)));
    let second = b.add_link(a, s, &symmetric_link(lossy_channel(LossModel::None, 0)));
    b.make_multihomed(a, &[first, second]);
    b.make_multihomed(s, &[first, second]);
    let client = b.add_application(a, talker_app(s), None);
    let server = b.add_application(s, SctpApp::Echo, None);
    b.listen_sctp(server, 9).unwrap();
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at_secs(300));
    let said = reports_of(&sim, client);
    assert!(!said.iter().any(|s| matches!(s, SctpReport::Down(_))), "the association went down");
    // Retransmissions counted while the association is up: the packets in flight when the link failed.
    let totals = sim.sctp_totals();
    assert!(totals.packets > 2000 && totals.control > 100 && totals.control < totals.packets, "{totals:?}");
    assert!(totals.retransmitted > 0 && totals.timeouts > 0, "{totals:?}");
    let got = received_numbers(&said);
    // All messages return, each stream in order.
    for stream in 0..4 {
        let of: Vec<u32> = got.iter().copied().filter(|n| n % 4 == stream).collect();
        assert!(of.len() > 700 && of.windows(2).all(|w| w[1] == w[0] + 4), "stream {stream}");
    }
    assert_eq!(sim.link_stats(second)[0].lost, 0);
    assert!(sim.link_stats(second)[0].offered > 2000, "{:?}", sim.link_stats(second));
}

#[test]
fn a_message_for_a_stream_that_is_not_there_ends_the_run() {
    let run = |server: sctp::SctpConfig| {
        let mut b = SimulationBuilder::<SctpApp>::new(IpVersion::V4, Seed::new(3));
        let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
        b.add_link(a, s, &symmetric_link(lossy_channel(LossModel::None, 0)));
        let client = b.add_application(a, talker_app(s), None);
        let echo = b.add_application(s, SctpApp::Echo, sctp_settings(server));
        b.listen_sctp(echo, 9).unwrap();
        let mut sim = b.build(ReportLog::default(), None);
        sim.run_until(at_secs(1));
        sim.run_until(at_secs(10));
        (received_numbers(&reports_of(&sim, client)), sim.fault(), sim.now(), s)
    };
    // The talker requests four streams, and by default the peer has the same number.
    let (heard, fault, now, _) = run(sctp::SctpConfig::default());
    assert_eq!((heard.len(), fault, now), (99, None, at_secs(10)));
    // With three, message 3 has no return stream: it is sent at the fourth tick and arrives 10 ms later.
    let (heard, fault, now, s) =
        run(sctp::SctpConfig { accepted_streams: Some(3), ..sctp::SctpConfig::default() });
    let at = Instant::ZERO + Duration::from_millis(410);
    assert_eq!(fault, Some(SimRunError::NoStream { at, host: s, streams: 3 }));
    assert_eq!((heard, now), (vec![0, 1, 2], at));
    let text = "at 410 ms: host 1 sent on a stream that its SCTP association does not have; it has 3 outbound \
                streams";
    assert_eq!(fault.map(|f| f.to_string()).as_deref(), Some(text));
}

#[test]
fn nobody_listening_and_an_old_cookie_are_answered_and_counted() {
    let run = |listens: bool, sctp: sctp::SctpConfig| {
        let mut b = SimulationBuilder::<SctpApp>::new(IpVersion::V6, Seed::new(3));
        let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
        b.add_link(a, s, &symmetric_link(lossy_channel(LossModel::None, 0)));
        let client = b.add_application(a, talker_app(s), None);
        let server = b.add_application(s, SctpApp::Echo, sctp_settings(sctp));
        if listens {
            b.listen_sctp(server, 9).unwrap();
        }
        let mut sim = b.build(ReportLog::default(), None);
        sim.run_until(at_secs(3));
        (reports_of(&sim, client), sim.host_stats())
    };
    // INIT is answered too, but its cookie never becomes stale.
    let (told, stats) = run(true, sctp::SctpConfig::default());
    assert!(told.contains(&SctpReport::Up(4)), "{told:?}");
    assert_eq!((stats.sctp_no_association, stats.sctp_stale_cookie, stats.sctp_bad_cookie), (0, 0, 0));
    let (told, stats) = run(false, sctp::SctpConfig::default());
    assert!(matches!(told.first(), Some(SctpReport::Down(_))), "{told:?}");
    assert!(stats.sctp_no_association > 0);
    assert_eq!((stats.sctp_stale_cookie, stats.sctp_bad_cookie), (0, 0));
    // A cookie that lives less than the round trip of 20 ms.
    let brief = sctp::SctpConfig { cookie_life: Duration::from_millis(1), ..sctp::SctpConfig::default() };
    let (told, stats) = run(true, brief);
    assert!(!told.iter().any(|s| matches!(s, SctpReport::Up(_))), "{told:?}");
    assert!(stats.sctp_stale_cookie > 0, "{stats:?}");
}

#[test]
fn a_host_that_fails_forgets_and_its_peers_learn_it() {
    let mut b = SimulationBuilder::<SctpApp>::new(IpVersion::V4, Seed::new(3));
    let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
    b.add_link(a, s, &symmetric_link(lossy_channel(LossModel::None, 0)));
    let client = b.add_application(a, talker_app(s), None);
    let writer = b.add_application(a, SctpApp::Writer { to: s, open: false }, None);
    let server = b.add_application(s, SctpApp::Echo, None);
    b.listen_sctp(server, 9).unwrap();
    b.listen_tcp(server, 7).unwrap();
    b.add_outage(s, at_secs(5), at_secs(8));
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at_secs(7));
    assert!(sim.host_stats().host_down > 0);
    let before = received_numbers(&reports_of(&sim, client)).len();
    sim.run_until(at_secs(60));
    // It restarts without state, and answers packets of lost connections: ABORT and RST.
    assert_eq!(reports_of(&sim, server), [SctpReport::Started, SctpReport::Started]);
    let told = reports_of(&sim, client);
    let downs: Vec<&SctpReport> = told.iter().filter(|s| matches!(s, SctpReport::Down(_))).collect();
    assert_eq!(downs, [&SctpReport::Down(CloseReason::Reset)]);
    assert_eq!(told.iter().filter(|s| matches!(s, SctpReport::Up(4))).count(), 2);
    assert!(received_numbers(&told).len() > before + 400);
    assert_eq!(reports_of(&sim, writer), [SctpReport::Down(CloseReason::Reset)]);
    let down_at = sim.observer().0.iter().find(|(_, a, s)| *a == client && matches!(s, SctpReport::Down(_)));
    assert!(down_at.is_some_and(|(at, ..)| *at > at_secs(8)), "{down_at:?}");
}

#[test]
fn an_abort_of_a_forgotten_association_is_no_bad_cookie() {
    let mut b = SimulationBuilder::<SctpApp>::new(IpVersion::V4, Seed::new(3));
    let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
    b.add_link(a, s, &symmetric_link(lossy_channel(LossModel::None, 0)));
    b.add_application(a, SctpApp::Quitter { to: s }, None);
    let server = b.add_application(s, SctpApp::Echo, None);
    b.listen_sctp(server, 9).unwrap();
    b.add_outage(s, at_secs(5), at_secs(8));
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at_secs(20));
    let stats = sim.host_stats();
    assert_eq!((stats.sctp_no_association, stats.sctp_bad_cookie, stats.host_down), (1, 0, 0));
}

#[test]
fn a_cookie_of_an_earlier_life_is_discarded() {
    let mut b = SimulationBuilder::<SctpApp>::new(IpVersion::V4, Seed::new(3));
    let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
    b.add_link(a, s, &symmetric_link(lossy_channel(LossModel::None, 0)));
    let client = b.add_application(a, talker_app(s), None);
    let server = b.add_application(s, SctpApp::Echo, None);
    b.listen_sctp(server, 9).unwrap();
    // INIT arrives at 10 ms, COOKIE ECHO at 30: between them the host loses its state and its key.
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    b.add_outage(s, at(15), at(25));
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at(900));
    assert_eq!(sim.host_stats().sctp_bad_cookie, 1);
    // The host is silent (RFC 9260 section 5.1.5). The client repeats its cookie after 1 s and then doubled
    // intervals, until its eight retransmissions are spent. T1 started with COOKIE ECHO, at 20 ms.
    sim.run_until(at_secs(400));
    let told: Vec<_> = sim.observer().0.iter().filter(|(_, app, _)| *app == client).take(2).collect();
    let waited = 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60 + 60;
    assert_eq!(
        *told[0],
        (at_secs(waited) + Duration::from_millis(20), client, SctpReport::Down(CloseReason::TimedOut))
    );
    assert_eq!(sim.host_stats().sctp_bad_cookie, 9);
    // Its next attempt gets a cookie of the restarted host.
    assert!(matches!(told[1], (_, _, SctpReport::Up(4))), "{told:?}");
}
