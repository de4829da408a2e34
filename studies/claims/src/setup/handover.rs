//! The deviations of 802.11 to 802.16 handovers from the document's setting.

use super::mih::{
    MihPointSettings, RETRANSMISSIONS, format_seconds, tcp_deviations, wifi_deviations, wired_deviations,
};
use usher_core::Duration;
use usher_scenario::model::{
    HandoverInitiator, HandoverWorkload, LossFrom, Modulation, Scenario, TransportProtocol,
};

const RADIUS_M: f64 = 500.0;
const MAC_RETRANSMISSIONS: u32 = 6;
const PROCESSING: Duration = Duration::from_millis(200);
const INTERVAL: Duration = Duration::from_millis(500);
const WHOLE: Duration = Duration::from_secs(30);
/// The timeouts over UDP and the maximum RTOs over TCP, in milliseconds.
pub(super) const TIMEOUTS: [u64; 2] = [100, 300];
pub(super) const RTO_MAX: [u64; 3] = [200, 500, 1000];

/// Returns the leader in each of the document's two cases.
fn expected_initiator(study: &str) -> Option<HandoverInitiator> {
    match study {
        "handover-mn" => Some(HandoverInitiator::Station),
        "handover-net" => Some(HandoverInitiator::Network),
        _ => None,
    }
}

pub(super) fn at_point(
    study: &str,
    scenario: &Scenario,
    handover: &HandoverWorkload,
    seen: &mut MihPointSettings,
) -> Vec<String> {
    let mut wrong = wifi_deviations(scenario, &handover.wlan);
    if let Some((_, bss)) = scenario.bss_in_use().find(|(_, bss)| bss.stations == handover.wlan) {
        if bss.retransmissions != MAC_RETRANSMISSIONS {
            wrong.push(format!("{} retransmissions of the 802.11 MAC, not 6", bss.retransmissions));
        }
        // The document states the loss of frames. Points that lose packets instead belong to the other reading of it.
        seen.losses.push(bss.frame_loss.get());
        for (loss, from, what) in [
            (bss.frame_loss, bss.frame_loss_from, "frames"),
            (bss.packet_loss, bss.packet_loss_from, "packets"),
        ] {
            if loss.get() > 0.0 && from != LossFrom::GoingDown {
                wrong.push(format!("{what} are lost in the 802.11 cell from the start"));
            }
        }
        if bss.frame_loss.get() > 0.0 && bss.packet_loss.get() > 0.0 {
            wrong.push("both frames and packets are lost in the 802.11 cell".to_owned());
        }
    }
    wrong.extend(wimax_deviations(scenario, &handover.wimax));
    let speed =
        scenario.hosts.get(&handover.mn).map_or([0.0; 2], |h| h.velocity.map(|v| v.metres_per_second()));
    if speed[0] * speed[0] + speed[1] * speed[1] != 1.0 {
        wrong.push("stations do not move at 1 m/s".to_owned());
    }
    wrong.extend(wired_deviations(scenario));
    let timing = &handover.timing;
    match handover.transport {
        TransportProtocol::Udp => {
            seen.timeouts.insert(timing.retransmission.get());
            if !handover.ack {
                wrong.push("there is no MIH acknowledgement over UDP".to_owned());
            }
        }
        TransportProtocol::Tcp => wrong.extend(tcp_deviations(scenario, seen)),
        other => wrong.push(format!("messages go over {other}")),
    }
    if timing.retransmissions != RETRANSMISSIONS {
        wrong.push(format!("{} MIH retransmissions, not {RETRANSMISSIONS}", timing.retransmissions));
    }
    if !timing.by_message.is_empty() || timing.by_service.iter().any(|(_, change)| change.is_some()) {
        wrong.push("some messages have their own timing".to_owned());
    }
    if let Some(timeout) = handover.transaction.get() {
        wrong.push(format!("a transaction times out after {}, not never", format_seconds(timeout.get())));
    }
    if handover.processing.get() != PROCESSING {
        wrong.push(format!(
            "a request is processed in {}, not in 0.2 s",
            format_seconds(handover.processing.get())
        ));
    }
    if handover.application.interval.get() != INTERVAL {
        let interval = format_seconds(handover.application.interval.get());
        wrong.push(format!("the application sends every {interval}, not every 0.5 s"));
    }
    if expected_initiator(study).is_some_and(|leader| leader != handover.initiated_by) {
        wrong.push("the other side initiates the handover".to_owned());
    }
    let whole = scenario.run.warmup.get() + scenario.run.duration.get();
    if whole != WHOLE {
        wrong.push(format!("traffic lasts {}, not 30 s", format_seconds(whole)));
    }
    wrong
}

/// Returns the deviations of the 802.16 cell that a mobile node enters.
fn wimax_deviations(scenario: &Scenario, wimax: &str) -> Vec<String> {
    let Some((_, cell)) = scenario.cells_in_use().find(|(_, cell)| cell.stations == wimax) else {
        return vec!["the mobile node does not move to 802.16".to_owned()];
    };
    let mut wrong = Vec::new();
    let [down, up] = [cell.downlink_modulation, cell.uplink_modulation].map(|m| m.unwrap_or(cell.modulation));
    if [down, up] != [Modulation::Qam64R34; 2] {
        wrong.push("802.16 does not use 64-QAM 3/4".to_owned());
    }
    if cell.radius.get().is_none_or(|r| r.metres() != RADIUS_M) {
        wrong.push("the radius of the 802.16 cell is not 500 m".to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use crate::ClaimStudySetup;
    use usher_scenario::{PlanOverrides, Study, StudyMode};

    fn listed_deviations(study: &str, set: &[&str]) -> Vec<String> {
        let mut overrides = PlanOverrides::default();
        set.iter().for_each(|s| overrides.add_setting(s).unwrap());
        let plan = Study::open(study).unwrap().build_plan(StudyMode::Default, &overrides).unwrap();
        let Some(ClaimStudySetup::Listed(list)) = ClaimStudySetup::from_plan(&plan) else {
            panic!("no list")
        };
        list
    }

    #[test]
    fn both_studies_are_as_stated() {
        for study in ["handover-mn", "handover-net"] {
            assert_eq!(listed_deviations(study, &[]), Vec::<String>::new(), "{study}");
        }
    }

    #[test]
    fn each_thing_that_is_otherwise_is_listed_once() {
        for (set, text) in [
            ("workload.initiated_by=network", "the other side initiates the handover"),
            ("bss.wlan.retransmissions=3", "3 retransmissions of the 802.11 MAC, not 6"),
            ("bss.wlan.packet_loss_from=always", "packets are lost in the 802.11 cell from the start"),
            ("bss.wlan.frame_loss_from=always", "frames are lost in the 802.11 cell from the start"),
            ("workload.transaction=60 s", "a transaction times out after 60 s, not never"),
            ("cells.wimax.modulation=16qam-3/4", "802.16 does not use 64-QAM 3/4"),
            ("cells.wimax.radius=400 m", "the radius of the 802.16 cell is not 500 m"),
            ("workload.timing.retransmissions=4", "4 MIH retransmissions, not 2"),
            ("workload.processing=0.1 s", "a request is processed in 0.1 s, not in 0.2 s"),
            ("workload.application.interval=1 s", "the application sends every 1 s, not every 0.5 s"),
            ("run.duration=20 s", "traffic lasts 25 s, not 30 s"),
            ("loss=0 %,20 %", "loss goes from 0 to 20 %, not from 0 to 50 %"),
        ] {
            assert_eq!(listed_deviations("handover-mn", &[set]), [text], "{set}");
        }
    }

    #[test]
    fn what_the_points_lack_together_is_listed() {
        let plan = Study::open("handover-mn")
            .unwrap()
            .build_plan(StudyMode::Default, &PlanOverrides::default())
            .unwrap();
        for (transport, texts) in [
            ("UDP, 0.1 s", ["the MIH timeouts over UDP are 0.1 s, not 0.1 s, 0.3 s"]),
            ("TCP, 1 s", ["the largest RTOs are 1 s, not 0.2 s, 0.5 s, 1 s"]),
        ] {
            let mut alone = plan.clone();
            alone.points.retain(|p| p.axis_setting("transport").is_some_and(|s| s.text == transport));
            assert_eq!(
                ClaimStudySetup::from_plan(&alone),
                Some(ClaimStudySetup::Listed(texts.map(str::to_owned).into()))
            );
        }
    }
}
