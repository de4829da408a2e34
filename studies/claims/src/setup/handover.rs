//! The setting of handovers from 802.11 to 802.16, as far as it is not as the document states.

use super::mih::{RETRANSMISSIONS, Seen, access, seconds, tcp, wired};
use usher_core::Duration;
use usher_scenario::model::{Handover, Initiator, LossFrom, MihTransport, Modulation, Scenario};

const RADIUS_M: f64 = 500.0;
const MAC_RETRANSMISSIONS: u32 = 6;
const PROCESSING: Duration = Duration::from_millis(200);
const INTERVAL: Duration = Duration::from_millis(500);
const WHOLE: Duration = Duration::from_secs(30);
/// The timeouts over UDP and the largest RTOs over TCP, in milliseconds.
pub(super) const TIMEOUTS: [u64; 2] = [100, 300];
pub(super) const RTO_MAX: [u64; 3] = [200, 500, 1000];

/// Who leads in each of the document's two cases.
fn leader(study: &str) -> Option<Initiator> {
    match study {
        "handover-mn" => Some(Initiator::Station),
        "handover-net" => Some(Initiator::Network),
        _ => None,
    }
}

pub(super) fn at_point(
    study: &str,
    scenario: &Scenario,
    handover: &Handover,
    seen: &mut Seen,
) -> Vec<String> {
    let mut wrong = access(scenario, &handover.wlan);
    if let Some((_, bss)) = scenario.bss_in_use().find(|(_, bss)| bss.stations == handover.wlan) {
        if bss.retransmissions != MAC_RETRANSMISSIONS {
            wrong.push(format!("{} retransmissions of the 802.11 MAC, not 6", bss.retransmissions));
        }
        seen.losses.push(bss.packet_loss.get());
        if bss.packet_loss.get() > 0.0 && bss.packet_loss_from != LossFrom::GoingDown {
            wrong.push("packets are lost in the 802.11 cell from the start".to_owned());
        }
    }
    wrong.extend(cell(scenario, &handover.wimax));
    let speed =
        scenario.hosts.get(&handover.mn).map_or([0.0; 2], |h| h.velocity.map(|v| v.metres_per_second()));
    if speed[0] * speed[0] + speed[1] * speed[1] != 1.0 {
        wrong.push("stations do not move at 1 m/s".to_owned());
    }
    wrong.extend(wired(scenario));
    let timing = &handover.timing;
    match handover.transport {
        MihTransport::Udp => {
            seen.timeouts.insert(timing.retransmission.get());
            if !handover.ack {
                wrong.push("over UDP no MIH acknowledgement".to_owned());
            }
        }
        MihTransport::Tcp => wrong.extend(tcp(scenario, seen)),
        MihTransport::Sctp => wrong.push("messages go over SCTP".to_owned()),
    }
    if timing.retransmissions != RETRANSMISSIONS {
        wrong.push(format!("{} MIH retransmissions, not {RETRANSMISSIONS}", timing.retransmissions));
    }
    if !timing.by_message.is_empty() || timing.by_service.iter().any(|(_, change)| change.is_some()) {
        wrong.push("some messages have a timing of their own".to_owned());
    }
    if handover.processing.get() != PROCESSING {
        wrong.push(format!("a request is processed in {}, not in 0.2 s", seconds(handover.processing.get())));
    }
    if handover.application.interval.get() != INTERVAL {
        let interval = seconds(handover.application.interval.get());
        wrong.push(format!("the application sends each {interval}, not each 0.5 s"));
    }
    if leader(study).is_some_and(|leader| leader != handover.initiated_by) {
        wrong.push("the other side leads".to_owned());
    }
    let whole = scenario.run.warmup.get() + scenario.run.duration.get();
    if whole != WHOLE {
        wrong.push(format!("{} of traffic, not 30 s", seconds(whole)));
    }
    wrong
}

/// The 802.16 cell that a mobile node goes to.
fn cell(scenario: &Scenario, wimax: &str) -> Vec<String> {
    let Some((_, cell)) = scenario.cells_in_use().find(|(_, cell)| cell.stations == wimax) else {
        return vec!["the mobile node does not go to 802.16".to_owned()];
    };
    let mut wrong = Vec::new();
    let [down, up] = [cell.downlink_modulation, cell.uplink_modulation].map(|m| m.unwrap_or(cell.modulation));
    if [down, up] != [Modulation::Qam64R34; 2] {
        wrong.push("802.16 has not 64-QAM 3/4".to_owned());
    }
    if cell.radius.get().is_none_or(|r| r.metres() != RADIUS_M) {
        wrong.push("the 802.16 cell has not a radius of 500 m".to_owned());
    }
    wrong
}
