//! The deviations of MIH messages between mobile nodes and points of service from the document's setting.

use super::handover;
use std::collections::BTreeSet;
use usher_core::Duration;
use usher_scenario::model::{
    ArrivalSettings, IpVersion, LinkLoss, LinkSide, MihMessage, MihWorkload, Scenario, TransportProtocol,
    WifiRate, Workload,
};

const RADIUS_M: f64 = 50.0;
const WIRED_RATE: u64 = 100_000_000;
const WIRED_DELAY: Duration = Duration::from_millis(10);
const MSS: u64 = 1280;
const RTO_MIN: Duration = Duration::from_millis(200);
const RTO_MAX: [u64; 5] = [200, 300, 500, 750, 1000];
/// The maximum loss.
const LOSS_MOST: f64 = 0.5;
const IMPAIRED_FROM: Duration = Duration::from_secs(5);
const MAX_MESSAGE: u64 = 1000;
/// The MIH timeout over TCP in maximum RTOs.
const TIMEOUT_RTOS: u64 = 3;
const SIZE: u64 = 200;
pub(super) const RETRANSMISSIONS: u32 = 2;
const PROCESSING: Duration = Duration::from_millis(200);
const INTERVAL: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_secs(5);
const DURATION: Duration = Duration::from_secs(4000);

/// The settings of all points of a study.
#[derive(Default)]
pub(super) struct MihPointSettings {
    pub(super) losses: Vec<f64>,
    /// Maximum RTOs of the points over TCP.
    pub(super) rto_max: BTreeSet<Duration>,
    /// Timeouts of the points over UDP, if the document states them.
    pub(super) timeouts: BTreeSet<Duration>,
}

/// Formats seconds for people.
pub(super) fn format_seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

impl MihPointSettings {
    /// Returns the deviations of all points together.
    fn list_deviations(&self, rto_max: &[u64], timeouts: &[u64]) -> Vec<String> {
        let mut wrong = Vec::new();
        let stated =
            [(&self.rto_max, rto_max, "largest RTOs"), (&self.timeouts, timeouts, "MIH timeouts over UDP")];
        for (run, stated, what) in stated {
            let stated: BTreeSet<Duration> = stated.iter().map(|ms| Duration::from_millis(*ms)).collect();
            if !run.is_empty() && *run != stated {
                let list = |set: &BTreeSet<Duration>| {
                    set.iter().map(|d| format_seconds(*d)).collect::<Vec<_>>().join(", ")
                };
                wrong.push(format!("the {what} are {}, not {}", list(run), list(&stated)));
            }
        }
        let least = self.losses.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.losses.iter().copied().fold(0.0, f64::max);
        if least != 0.0 || most != LOSS_MOST {
            wrong.push(format!("loss goes from {} to {} %, not from 0 to 50 %", least * 100.0, most * 100.0));
        }
        wrong
    }
}

/// Returns the deviations at any point, each once; `None` if no point has MIH messages or handovers.
pub(super) fn list_deviations<'a>(
    study: &str,
    scenarios: impl Iterator<Item = &'a Scenario>,
) -> Option<Vec<String>> {
    let mut found: Option<Vec<String>> = None;
    let (mut seen, mut rto_max, mut timeouts) = (MihPointSettings::default(), &RTO_MAX[..], &[][..]);
    for scenario in scenarios {
        let all = match &scenario.workload {
            Some(Workload::Mih(mih)) => at_point(scenario, mih, &mut seen),
            Some(Workload::Handover(handover)) => {
                (rto_max, timeouts) = (&handover::RTO_MAX[..], &handover::TIMEOUTS[..]);
                handover::at_point(study, scenario, handover, &mut seen)
            }
            _ => continue,
        };
        let list = found.get_or_insert_default();
        for text in all {
            if !list.contains(&text) {
                list.push(text);
            }
        }
    }
    found.map(|mut list| {
        list.extend(seen.list_deviations(rto_max, timeouts));
        list
    })
}

fn at_point(scenario: &Scenario, mih: &MihWorkload, seen: &mut MihPointSettings) -> Vec<String> {
    let mut wrong = wifi_deviations(scenario, &mih.mn);
    wrong.extend(wired_deviations(scenario));
    wrong.extend(loss_deviations(scenario, seen));
    match mih.transport {
        TransportProtocol::Tcp => {
            wrong.extend(tcp_deviations(scenario, seen));
            let stated = scenario.transport.tcp.rto_max.get() * TIMEOUT_RTOS;
            if mih.ack && mih.timing.retransmission.get() != stated {
                wrong.push("the MIH timeout is not three times the largest RTO".to_owned());
            }
        }
        TransportProtocol::Udp if mih.max_message.bytes() != MAX_MESSAGE => {
            wrong.push(format!(
                "an MIH packet over UDP has up to {} B, not {MAX_MESSAGE}",
                mih.max_message.bytes()
            ));
        }
        TransportProtocol::Udp => {}
        other => wrong.push(format!("messages go over {other}")),
    }
    if mih.size.bytes() != SIZE {
        wrong.push(format!("MIH messages have {} B, not {SIZE}", mih.size.bytes()));
    }
    if mih.timing.retransmissions != RETRANSMISSIONS {
        wrong.push(format!("{} MIH retransmissions, not {RETRANSMISSIONS}", mih.timing.retransmissions));
    }
    if let Some(timeout) = mih.transaction.get() {
        wrong.push(format!("a transaction times out after {}, not never", format_seconds(timeout.get())));
    }
    if !matches!(mih.message, MihMessage::Indication | MihMessage::Request) || mih.response_size.is_some() {
        wrong.push("there are messages other than indications and requests for parameters".to_owned());
    }
    if mih.message == MihMessage::Request && mih.processing.get() != PROCESSING {
        wrong.push(format!(
            "a request is processed in {}, not in 0.2 s",
            format_seconds(mih.processing.get())
        ));
    }
    match &mih.arrivals {
        ArrivalSettings::Constant { interval, .. } if interval.get() == INTERVAL => {}
        _ => wrong.push("messages do not come every 0.5 s".to_owned()),
    }
    let (warm_up, duration) = (scenario.run.warmup.get(), scenario.run.duration.get());
    if warm_up != WARM_UP {
        wrong.push(format!("counting begins after {}, not after 5 s", format_seconds(warm_up)));
    }
    if duration != DURATION {
        wrong.push(format!("traffic is counted for {}, not for 4000 s", format_seconds(duration)));
    }
    wrong
}

/// Returns the deviations of the 802.11 cell of a mobile node.
pub(super) fn wifi_deviations(scenario: &Scenario, mn: &str) -> Vec<String> {
    let Some((_, bss)) = scenario.bss_in_use().find(|(_, bss)| bss.stations == mn) else {
        return vec!["the mobile node's access is not 802.11".to_owned()];
    };
    let mut wrong = Vec::new();
    if bss.rate != WifiRate::Eleven {
        wrong.push("802.11 is not at 11 Mb/s".to_owned());
    }
    if bss.radius.metres() != RADIUS_M {
        wrong.push(format!("the 802.11 cell has a radius of {} m, not 50", bss.radius.metres()));
    }
    wrong
}

/// Returns the deviations of links and addresses.
pub(super) fn wired_deviations(scenario: &Scenario) -> Vec<String> {
    let mut wrong = Vec::new();
    let stated = |l: &usher_scenario::model::LinkSettings| {
        l.rate.get().is_some_and(|r| r.bits_per_second() == WIRED_RATE) && l.delay.get() == WIRED_DELAY
    };
    for (name, _) in scenario.links.iter().filter(|(_, l)| !stated(l)) {
        wrong.push(format!("the link \"{name}\" does not have 100 Mb/s and 10 ms"));
    }
    if scenario.run.ip != IpVersion::V6 {
        wrong.push("IPv4, not IPv6".to_owned());
    }
    wrong
}

/// Returns the deviations of packet losses: place, rates and start.
fn loss_deviations(scenario: &Scenario, seen: &mut MihPointSettings) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut most = scenario.bss_in_use().map(|(_, bss)| bss.packet_loss.get()).fold(0.0, f64::max);
    if most > 0.0 {
        wrong.push("packets are lost in the 802.11 cell from the start".to_owned());
    }
    for (name, link) in scenario.links.iter() {
        match &link.loss {
            LinkLoss::Independent(share)
                if [&link.up, &link.down].iter().all(|s| **s == LinkSide::default()) =>
            {
                most = most.max(share.get());
                if share.get() > 0.0 && link.impaired_from.get() != IMPAIRED_FROM {
                    let from = format_seconds(link.impaired_from.get());
                    wrong.push(format!("the link \"{name}\" loses packets from {from} on, not from 5 s"));
                }
            }
            _ => wrong
                .push(format!("the link \"{name}\" does not lose every packet with the same probability")),
        }
    }
    seen.losses.push(most);
    wrong
}

pub(super) fn tcp_deviations(scenario: &Scenario, seen: &mut MihPointSettings) -> Vec<String> {
    let tcp = &scenario.transport.tcp;
    let mut wrong = Vec::new();
    if tcp.mss.map(|s| s.bytes()) != Some(MSS) {
        wrong.push(format!("the MSS is not {MSS} B"));
    }
    if tcp.rto_min.get() != RTO_MIN {
        wrong.push(format!("the smallest RTO is {}, not 0.2 s", format_seconds(tcp.rto_min.get())));
    }
    seen.rto_max.insert(tcp.rto_max.get());
    if tcp.retransmissions.get().is_some() {
        wrong.push("TCP's retransmissions have a limit".to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use crate::ClaimStudySetup;
    use usher_scenario::model::{TransportProtocol, Workload};
    use usher_scenario::{PlanOverrides, Study, StudyMode, StudyPlan};

    fn test_plan(mode: StudyMode, set: &[&str]) -> StudyPlan {
        let mut overrides = PlanOverrides::default();
        set.iter().for_each(|s| overrides.add_setting(s).unwrap());
        Study::open("mih-tcp").unwrap().build_plan(mode, &overrides).unwrap()
    }

    fn listed_deviations(plan: &StudyPlan) -> Vec<String> {
        let Some(ClaimStudySetup::Listed(list)) = ClaimStudySetup::from_plan(plan) else { panic!("no list") };
        list
    }

    #[test]
    fn the_founding_study_is_as_stated_where_it_is_run_whole() {
        assert_eq!(listed_deviations(&test_plan(StudyMode::Default, &[])), Vec::<String>::new());
        assert_eq!(
            listed_deviations(&test_plan(StudyMode::Quick, &[])),
            [
                "traffic is counted for 1000 s, not for 4000 s",
                "the largest RTOs are 0.2 s, 0.5 s, 1 s, not 0.2 s, 0.3 s, 0.5 s, 0.75 s, 1 s"
            ]
        );
    }

    #[test]
    fn each_thing_that_is_otherwise_is_listed_once() {
        for (set, text) in [
            ("loss=0 %,20 %", "loss goes from 0 to 20 %, not from 0 to 50 %"),
            ("links.access.impaired_from=0 s", "the link \"access\" loses packets from 0 s on, not from 5 s"),
            ("workload.timing.retransmissions=4", "4 MIH retransmissions, not 2"),
            ("bss.wlan.rate=2 Mb/s", "802.11 is not at 11 Mb/s"),
            ("run.ip=v4", "IPv4, not IPv6"),
        ] {
            assert_eq!(listed_deviations(&test_plan(StudyMode::Default, &[set])), [text], "{set}");
        }
        let mut plan = test_plan(StudyMode::Default, &[]);
        for point in &mut plan.points {
            point.scenario.transport.tcp.rto_max = usher_scenario::units::TimeSpan::from_millis(500);
        }
        assert_eq!(
            listed_deviations(&plan),
            [
                "the MIH timeout is not three times the largest RTO",
                "the largest RTOs are 0.5 s, not 0.2 s, 0.3 s, 0.5 s, 0.75 s, 1 s"
            ]
        );
        for point in &mut plan.points {
            let Some(Workload::Mih(mih)) = &mut point.scenario.workload else { panic!("no MIH") };
            (mih.transport, mih.max_message) =
                (TransportProtocol::Udp, usher_scenario::units::ByteSize::from_bytes(1500));
        }
        assert_eq!(listed_deviations(&plan), ["an MIH packet over UDP has up to 1500 B, not 1000"]);
    }
}
