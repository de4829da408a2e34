//! A station that walks from an 802.11 basic service set into an 802.16 cell, and the flow that follows it.

use super::{ReportLog, at_secs};
use usher_core::{Duration, Instant, Seed};
use usher_sim::radio::motion::{Position, Trajectory};
use usher_sim::radio::wifi::{self, WifiConfig};
use usher_sim::radio::wimax::{Modulation, NetworkEntryTrigger, WimaxConfig};
use usher_sim::radio::{LinkCommand, LinkDownReason, LinkEvent};
use usher_sim::{
    AppContext, AppDelivery, Application, CellId, HostId, IpVersion, LinkConfig, LinkId, Payload, SimError,
    Simulation, SimulationBuilder,
};

/// Test applications.
#[derive(Debug)]
enum HandoverApp {
    /// Scans for the second network before it loses the first, enters it, and redirects the flow there.
    Mobile { wifi: HostId, wimax: HostId, server: HostId },
    /// Receives link events of an access point's or base station's stations.
    Network,
    /// Sends a numbered datagram every 100 ms to the last requested address.
    Server { to: HostId, next: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandoverReport {
    Link { host: HostId, station: HostId, event: LinkEvent },
    Got { host: HostId, number: u32 },
}

const TICK: Duration = Duration::from_millis(100);

impl Application for HandoverApp {
    type Report = HandoverReport;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, HandoverReport>, delivery: AppDelivery) {
        if let AppDelivery::Link { host: at, station, event } = delivery {
            ctx.report(HandoverReport::Link { host: at, station, event });
        }
        match (self, delivery) {
            (Self::Mobile { wifi, wimax, server }, AppDelivery::Link { host: at, event, .. }) => {
                match event {
                    LinkEvent::GoingDown { .. } if at == *wifi => ctx.link_command(*wimax, LinkCommand::Scan),
                    LinkEvent::Scanned { found: true } => ctx.link_command(at, LinkCommand::Connect),
                    LinkEvent::Up if at == *wimax => {
                        ctx.send_datagram(1, *server, 5, Payload::copy_from_slice(b"here"))
                    }
                    _ => {}
                }
            }
            (Self::Mobile { .. }, AppDelivery::Datagram { destination: at, payload, .. }) => {
                let number = u32::from_be_bytes(payload.as_slice().try_into().unwrap());
                ctx.report(HandoverReport::Got { host: at, number });
            }
            (Self::Server { to, next }, AppDelivery::Start | AppDelivery::Timer) => {
                ctx.send_datagram(0, *to, 5, Payload::copy_from_slice(&next.to_be_bytes()));
                *next += 1;
                ctx.set_timer(Some(ctx.now() + TICK));
            }
            (Self::Server { to, .. }, AppDelivery::Datagram { from, .. }) => *to = from,
            _ => {}
        }
    }
}

struct HandoverNetwork {
    sim: Simulation<HandoverApp, ReportLog<HandoverReport>>,
    wifi: HostId,
    wimax: HostId,
    cells: [CellId; 2],
    wifi_link: LinkId,
}

const MOBILE: u32 = 0;
const ACCESS_POINT: u32 = 1;
const BASE_STATION: u32 = 2;

/// A walk at 1 m/s, from 30 m on, away from the access point; the base station stands 200 m farther on.
fn handover_network(seed: u64, wifi_config: WifiConfig, descriptors: Duration) -> HandoverNetwork {
    let mut b = SimulationBuilder::new(IpVersion::V6, Seed::new(seed));
    let [server, router, ap, bs, mobile] = [(); 5].map(|()| b.add_host(None).unwrap());
    let [wifi, wimax] = [(); 2].map(|()| b.add_interface(mobile).unwrap());
    for host in [server, ap, bs] {
        let mut link = LinkConfig::default();
        for channel in [&mut link.up, &mut link.down] {
            (channel.delay, channel.rate) = (Duration::from_millis(10), Some(100_000_000));
        }
        b.add_link(host, router, &link);
    }
    b.set_host_trajectory(bs, Trajectory::fixed_at(Position { x: 230.0, y: 0.0 }));
    let start = Position { x: 30.0, y: 0.0 };
    for interface in [wifi, wimax] {
        b.set_host_trajectory(interface, Trajectory { start, velocity: (1.0, 0.0), departs: Instant::ZERO });
    }
    let (bss, links) = b.add_wifi_bss(ap, &[wifi], &wifi_config, 1500).unwrap();
    let config = WimaxConfig {
        entry: NetworkEntryTrigger::OnCommand,
        radius: Some(500.0),
        modulation: (Modulation::Qam64R34, Modulation::Qam64R34),
        descriptor_interval: descriptors,
        ..WimaxConfig::default()
    };
    let (cell, _) = b.add_wimax_cell(bs, &[wimax], &config, 1500).unwrap();
    let app = b.add_application(mobile, HandoverApp::Mobile { wifi, wimax, server }, None);
    for (socket, at) in (0..).zip([wifi, wimax]) {
        b.bind_udp_at(app, socket, at, 5).unwrap();
        b.link_events(app, at);
    }
    for at in [ap, bs] {
        let app = b.add_application(at, HandoverApp::Network, None);
        b.link_events(app, at);
    }
    let app = b.add_application(server, HandoverApp::Server { to: wifi, next: 0 }, None);
    b.bind_udp(app, 0, 5).unwrap();
    HandoverNetwork {
        sim: b.build(ReportLog::default(), None),
        wifi,
        wimax,
        cells: [bss, cell],
        wifi_link: links[0],
    }
}

/// Returns an application's link events, without the times.
fn link_events(w: &HandoverNetwork, app: u32) -> Vec<(HostId, LinkEvent)> {
    let link = |&(_, by, said): &(Instant, u32, HandoverReport)| match said {
        HandoverReport::Link { station, event, .. } if by == app => Some((station, event)),
        _ => None,
    };
    w.sim.observer().0.iter().filter_map(link).collect()
}
fn time_of(w: &HandoverNetwork, station: HostId, wanted: LinkEvent) -> Instant {
    let is = |said| matches!(said, HandoverReport::Link { station: s, event, .. } if (s, event) == (station, wanted));
    w.sim.observer().0.iter().find(|l| l.1 == MOBILE && is(l.2)).unwrap().0
}

#[test]
fn a_flow_follows_its_station_into_another_network() {
    let mut w = handover_network(1, WifiConfig::default(), Duration::ZERO);
    w.sim.run_until(at_secs(30));
    let (wifi, wimax) = (w.wifi, w.wimax);
    // 41 m at 11 s, 50 m at 20 s.
    let going = LinkEvent::GoingDown { time_left: Duration::from_secs(9) };
    let gone = LinkEvent::Down(LinkDownReason::OutOfReach);
    let found = [LinkEvent::Detected, LinkEvent::Scanned { found: true }];
    let expected = [
        (wifi, LinkEvent::Up),
        (wifi, going),
        (wimax, found[0]),
        (wimax, found[1]),
        (wimax, LinkEvent::Up),
        (wifi, gone),
    ];
    assert_eq!(link_events(&w, MOBILE), expected);
    assert_eq!(link_events(&w, ACCESS_POINT), [(wifi, LinkEvent::Up), (wifi, going), (wifi, gone)]);
    assert_eq!(link_events(&w, BASE_STATION), [(wimax, LinkEvent::Up)]);
    assert_eq!(time_of(&w, wifi, going), at_secs(11));
    // The preamble after one empty channel, in the frame at 11.02 s.
    let preamble = at_secs(11) + Duration::from_millis(20);
    assert_eq!(time_of(&w, wimax, found[1]), preamble + Duration::from_nanos(29 * 102_857));
    let up = time_of(&w, wimax, LinkEvent::Up);
    assert!(up > preamble && up < at_secs(12), "{up:?}");
    // Three beacons missed, of 102.4 ms.
    let gone = time_of(&w, wifi, gone);
    assert!(gone > at_secs(20) + Duration::from_millis(204) && gone < at_secs(21), "{gone:?}");

    let got = |at: HostId| {
        let number = move |l: &(Instant, u32, HandoverReport)| match l.2 {
            HandoverReport::Got { host: a, number } if a == at => Some((l.0, number)),
            _ => None,
        };
        w.sim.observer().0.iter().filter_map(number).collect::<Vec<_>>()
    };
    let (before, after) = (got(wifi), got(wimax));
    let (last, switched) = (before.last().unwrap().0, after[0].0);
    assert!(last < up + TICK * 2 && switched > up && switched < last + TICK * 2, "{last:?} {switched:?}");
    // No packet is lost: both radios are up during the handover.
    let numbers: Vec<u32> = before.iter().chain(&after).map(|g| g.1).collect();
    assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>());
    assert!(numbers.len() >= 299, "{}", numbers.len());
    let [bss, cell] = w.cells;
    assert_eq!(w.sim.bss_counters(bss).unwrap().packets_down, before.len() as u64);
    assert_eq!(w.sim.cell_counters(cell).unwrap().packets_down, after.len() as u64);
    assert_eq!(w.sim.cell_counters(cell).unwrap().scans, 1);
    assert!(w.sim.cell_counters(bss).is_none() && w.sim.bss_counters(cell).is_none());
    assert_eq!(w.sim.host_stats(), Default::default());
}

#[test]
fn packets_to_a_departed_host_are_lost_and_runs_are_repeatable() {
    // The threshold is the edge, so the loss is known too late for the scan.
    let late = WifiConfig { going_down: 50.0, frame_loss: 0.1, ..WifiConfig::default() };
    let run = |seed| {
        let mut w = handover_network(seed, late, Duration::from_secs(5));
        w.sim.run_until(at_secs(30));
        let [_, stats] = w.sim.link_stats(w.wifi_link);
        (w.sim.observer().0.clone(), stats, w.sim.event_count())
    };
    let (log, stats, events) = run(1);
    let got = log.iter().filter(|l| matches!(l.2, HandoverReport::Got { .. })).count() as u64;
    // Out of reach at 20 s, in the cell after the base station's descriptors.
    assert!(stats.lost >= 8, "{stats:?}");
    assert!(got + stats.lost <= 300 && got + stats.lost >= 298, "{got} {stats:?}");
    // IPv6, UDP, the number, and MAC header, LLC, SNAP and check sequence.
    assert_eq!(stats.offered_bytes, stats.offered * (40 + 8 + 4 + 36));
    assert_eq!(stats.dropped_bytes, stats.lost * (40 + 8 + 4 + 36));
    assert_eq!(run(1), (log.clone(), stats, events));
    assert_ne!(run(2).0, log);
}

#[test]
fn commands_for_what_is_no_station_are_counted() {
    #[derive(Debug)]
    struct LinkCommander(HostId);
    impl Application for LinkCommander {
        type Report = HandoverReport;
        fn handle_delivery(&mut self, ctx: &mut AppContext<'_, HandoverReport>, delivery: AppDelivery) {
            if let AppDelivery::Start = delivery {
                ctx.link_command(self.0, LinkCommand::Scan);
            }
        }
    }
    let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
    let [ap, other] = [(); 2].map(|()| b.add_host(None).unwrap());
    let station = b.add_interface(other).unwrap();
    b.add_wifi_bss(ap, &[station], &WifiConfig::default(), 1500).unwrap();
    // An access point, and the station of another host.
    b.add_application(ap, LinkCommander(ap), None);
    b.add_application(ap, LinkCommander(station), None);
    let mut sim = b.build(ReportLog::default(), None);
    sim.run_until(at_secs(1));
    assert_eq!(sim.host_stats().stale_operation, 2);
}

#[test]
fn a_basic_service_set_that_cannot_be_is_refused() {
    let mut b: SimulationBuilder<HandoverApp> = SimulationBuilder::new(IpVersion::V4, Seed::new(3));
    let [ap, station] = [(); 2].map(|()| b.add_host(None).unwrap());
    let config = WifiConfig { radius: 0.0, ..WifiConfig::default() };
    let error = b.add_wifi_bss(ap, &[station], &config, 1500).unwrap_err();
    assert_eq!(error, SimError::Bss(wifi::ConfigError::Coverage));
}
