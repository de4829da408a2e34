//! A cell seen by its applications: addresses, ports, frames and captures as over links.

use super::ReportLog;
use std::any::Any;
use usher_core::{Instant, Seed};
use usher_sim::radio::wimax::{ConfigError, ContentionBackoffConfig, NetworkEntryTrigger, WimaxConfig};
use usher_sim::{
    AppContext, AppDelivery, Application, CellId, HostId, IpVersion, LinkConfig, LinkId, PacketTap, Payload,
    SimError, Simulation, SimulationBuilder,
};

/// The numbers of the default frame, in nanoseconds.
const FRAME: u64 = 5_000_000;
const SYMBOL: u64 = 102_857;
const UPLINK_END: u64 = 47 * SYMBOL + 105_714;

#[derive(Debug)]
enum CellApp {
    /// Sends a datagram and a frame at the start, and reports the replies.
    Station { to: HostId },
    /// Echoes datagrams and frames.
    Echo,
}

impl Application for CellApp {
    type Report = Vec<u8>;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, Vec<u8>>, delivery: AppDelivery) {
        match (self, delivery) {
            (Self::Station { to }, AppDelivery::Start) => {
                ctx.send_datagram(0, *to, 7, Payload::copy_from_slice(b"datagram"));
                ctx.send_frame(0, Payload::copy_from_slice(&[b'f'; 60]));
            }
            (
                Self::Station { .. },
                AppDelivery::Datagram { payload, .. } | AppDelivery::Frame { payload, .. },
            ) => {
                ctx.report(payload.as_slice().to_vec());
            }
            (Self::Echo, AppDelivery::Datagram { from, from_port, payload, .. }) => {
                ctx.send_datagram(0, from, from_port, payload);
            }
            (Self::Echo, AppDelivery::Frame { port, payload }) => ctx.send_frame(port, payload),
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct CellPackets(Vec<(bool, usize)>);
impl PacketTap for CellPackets {
    fn capture_packet(&mut self, _: Instant, _: u16, outward: bool, bytes: &[u8]) {
        self.0.push((outward, bytes.len()));
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Builds stations, a base station that receives their frames, and a server behind it that echoes datagrams.
fn cell_network(
    stations: usize,
    config: WimaxConfig,
) -> (Simulation<CellApp, ReportLog<Vec<u8>>>, CellId, Vec<LinkId>) {
    let mut b: SimulationBuilder<CellApp> = SimulationBuilder::new(IpVersion::V4, Seed::new(3));
    let [base, server] = [(); 2].map(|()| b.add_host(None).unwrap());
    let hosts: Vec<HostId> = (0..stations).map(|_| b.add_host(None).unwrap()).collect();
    b.add_link(base, server, &LinkConfig::default());
    let (cell, links) = b.add_wimax_cell(base, &hosts, &config, 1500).unwrap();
    b.capture_link(links[0], true, 0);
    let echo = b.add_application(base, CellApp::Echo, None);
    b.take_frames(echo);
    let echo = b.add_application(server, CellApp::Echo, None);
    b.bind_udp(echo, 0, 7).unwrap();
    for host in hosts {
        let app = b.add_application(host, CellApp::Station { to: server }, None);
        b.take_frames(app);
    }
    (b.build(ReportLog::default(), Some(Box::<CellPackets>::default())), cell, links)
}

#[test]
fn packets_and_frames_cross_a_cell() {
    let at_once = ContentionBackoffConfig { start: 0, ..WimaxConfig::default().request };
    let config = WimaxConfig { entry: NetworkEntryTrigger::Done, request: at_once, ..WimaxConfig::default() };
    let (mut sim, cell, links) = cell_network(1, config);
    sim.run_until(Instant::from_nanos(1_000_000_000));
    // Both up in frame 2, back in frame 3, where the frame is first, since the datagram went on to the server: after 46
    // slots of maps 56 octets up to slot 55, in the second pair of symbols after the preamble, and 46 up to slot 62.
    let back = Instant::from_nanos(3 * FRAME + 5 * SYMBOL);
    let then = Instant::from_nanos(3 * FRAME + 7 * SYMBOL);
    assert_eq!(sim.observer().0, [(back, 2, vec![b'f'; 60]), (then, 2, b"datagram".to_vec())]);
    let c = sim.cell_counters(cell).unwrap();
    assert_eq!((c.requests, c.grants, c.packets_up, c.packets_down), (1, 1, 2, 2));
    // 36 octets of IP, 46 of a frame without its header, 10 of PDU each.
    assert_eq!(sim.link_stats(links[0]).map(|s| (s.offered, s.offered_bytes)), [(2, 102), (2, 102)]);
    assert_eq!(c.octets_up, 102);
    let packets = sim.take_tap().unwrap().into_any().downcast::<CellPackets>().unwrap();
    assert_eq!(packets.0, [(true, 50), (true, 60), (false, 60), (false, 50)]);
    assert_eq!(sim.packet_hops(), 6);
    const { assert!(UPLINK_END < FRAME) };
}

#[test]
fn stations_of_a_cell_share_it_and_every_run_is_the_same() {
    let run = |config| {
        let (mut sim, cell, links) = cell_network(150, config);
        sim.run_until(Instant::from_nanos(60_000_000_000));
        let counters = *sim.cell_counters(cell).unwrap();
        let lost: u64 = links.iter().flat_map(|l| sim.link_stats(*l)).map(|s| s.lost).sum();
        (sim.observer().0.clone(), counters, lost)
    };
    let (log, counters, lost) = run(WimaxConfig::default());
    assert_eq!((log.len(), counters.entered, lost), (300, 150, 0));
    assert!(counters.ranging_collisions > 100);
    assert_eq!(run(WimaxConfig::default()), (log, counters, lost));
    let (log, counters, lost) = run(WimaxConfig { loss: 0.2, ..WimaxConfig::default() });
    assert_eq!(counters.lost, lost);
    assert!((150..240).contains(&log.len()), "{} of 300 there and back with 20 % loss", log.len());
}

#[test]
fn a_cell_that_cannot_be_is_refused() {
    let mut b: SimulationBuilder<CellApp> = SimulationBuilder::new(IpVersion::V4, Seed::new(3));
    let [base, station] = [(); 2].map(|()| b.add_host(None).unwrap());
    let config = WimaxConfig { request_opportunities: 0, ..WimaxConfig::default() };
    let error = b.add_wimax_cell(base, &[station], &config, 1500).unwrap_err();
    assert_eq!(error, SimError::Cell(ConfigError::NoOpportunity("requests")));
}
