//! Silly windows: the form of `docs/explanation/silly-window.md` for a scenario.

use super::round_trip;
use usher_config::units::{Bound, PositiveCount};
use usher_scenario::model::{
    AckTimer, DialogueConnection, IpVersion, NagleVariant, Scenario, TimeDistribution, TransportProtocol,
    Workload,
};

/// Octets of a TCP header without options.
const TCP_HEADER: f64 = 20.0;

/// An application that reads or writes `octets` at a time, every `every` seconds.
struct SlowApplication {
    octets: f64,
    every: f64,
}

impl SlowApplication {
    /// Returns the octets that it handles in a time, in the long run.
    fn application_octets_in_time(&self, time: f64) -> f64 {
        self.octets / self.every * time
    }
}

/// Returns the share of data in the packets with data, of both directions.
pub(super) fn mean_data_fraction(scenario: &Scenario) -> Option<f64> {
    let Some(Workload::Dialogue(dialogue)) = scenario.sole_workload() else { return None };
    let tcp = &scenario.transport.tcp;
    let on_streams =
        (dialogue.transport, dialogue.connection) == (TransportProtocol::Tcp, DialogueConnection::Persistent);
    let [round] = dialogue.rounds.as_slice() else { return None };
    let at_once = dialogue.turnaround == TimeDistribution::default()
        && dialogue.per_host == PositiveCount::ONE
        && tcp.nagle_variant == NagleVariant::Rfc896;
    let (trip, [there, back]) = round_trip(scenario, &dialogue.clients, &dialogue.server)?;
    let delayed = tcp.delayed_ack.get().map_or(0.0, |time| time.get().as_secs_f64());
    let ticks = delayed > 0.0 && tcp.delayed_ack_timer != AckTimer::FromArrival;
    if !on_streams || !at_once || ticks || there < 1.0 || back < 1.0 || tcp.timestamps {
        return None;
    }
    let ip = match scenario.run.ip {
        IpVersion::V4 => 20.0,
        IpVersion::V6 => 40.0,
    };
    let headers = ip + TCP_HEADER;
    let mtu = scenario.links.iter().map(|(_, link)| link.mtu.bytes()).min()? as f64;
    let full = tcp.mss.map_or(mtu - headers, |mss| mss.bytes() as f64);
    let segment = match (dialogue.write_rate, tcp.read_rate) {
        (Bound::Limited(rate), Bound::Unlimited) => {
            let octets = dialogue.write_size.bytes() as f64;
            let writer = SlowApplication { octets, every: octets * 8.0 / rate.bits_per_second() as f64 };
            match tcp.nagle {
                true => octets.max(writer.application_octets_in_time(trip + delayed)),
                false => octets,
            }
        }
        (Bound::Unlimited, Bound::Limited(rate)) => {
            let octets = tcp.read_size.map_or(full, |size| size.bytes() as f64);
            // Round the rate down to whole bytes per second, as the simulator's readers do.
            let every = octets / (rate.bits_per_second() / 8).max(1) as f64;
            let reader = SlowApplication { octets, every };
            let buffer = tcp.receive_buffer.bytes().min(65_535) as f64;
            match (tcp.silly_window_avoidance, delayed > 0.0) {
                (true, _) => full.min(libm::floor(buffer / 2.0)),
                // A delayed acknowledgement starts its timer at the first read after the last one, before new data can
                // arrive.
                (false, true) if every < trip => octets * (1.0 + libm::floor(delayed / every)),
                (false, true) => return None,
                (false, false) if tcp.nagle => octets.max(reader.application_octets_in_time(trip)),
                (false, false) => octets,
            }
        }
        _ => return None,
    };
    let (request, answer) =
        (round.request.constant_size()?.bytes() as f64, round.answer.constant_size()?.bytes() as f64);
    let segments = request / segment.min(full) + libm::ceil(answer / full);
    Some((request + answer) / (request + answer + headers * segments))
}
