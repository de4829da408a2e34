//! The setting of MIH messages between mobile nodes and points of service, as far as it is not as the document states.

use usher_core::Duration;
use usher_scenario::model::{
    Arrivals, IpVersion, Mih, MihMessage, MihTransport, Scenario, WifiRate, Workload,
};

const RADIUS_M: f64 = 50.0;
const WIRED_RATE: u64 = 100_000_000;
const WIRED_DELAY: Duration = Duration::from_millis(10);
const MSS: u64 = 1280;
const RTO_MIN: Duration = Duration::from_millis(200);
const RTO_MAX: [u64; 5] = [200, 300, 500, 750, 1000];
const SIZE: u64 = 200;
const RETRANSMISSIONS: u32 = 2;
const PROCESSING: Duration = Duration::from_millis(200);
const INTERVAL: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_secs(5);
const DURATION: Duration = Duration::from_secs(4000);

/// What is not as stated at some point, each thing once; `None` where no point is of MIH messages.
pub(super) fn otherwise<'a>(scenarios: impl Iterator<Item = &'a Scenario>) -> Option<Vec<String>> {
    let mut found: Option<Vec<String>> = None;
    for scenario in scenarios {
        let Workload::Mih(mih) = &scenario.workload else { continue };
        let list = found.get_or_insert_default();
        for text in at_point(scenario, mih) {
            if !list.contains(&text) {
                list.push(text);
            }
        }
    }
    found
}

fn at_point(scenario: &Scenario, mih: &Mih) -> Vec<String> {
    let mut wrong = access(scenario, &mih.mn);
    wrong.extend(wired(scenario));
    if mih.transport == MihTransport::Tcp {
        wrong.extend(tcp(scenario));
    }
    if mih.size.bytes() != SIZE {
        wrong.push(format!("MIH messages have {} B, not {SIZE}", mih.size.bytes()));
    }
    if mih.timing.retransmissions != RETRANSMISSIONS {
        wrong.push(format!("{} MIH retransmissions, not {RETRANSMISSIONS}", mih.timing.retransmissions));
    }
    if mih.message == MihMessage::Request && mih.processing.get() != PROCESSING {
        wrong.push(format!("a request is processed in {}, not in 0.2 s", mih.processing.get()));
    }
    match &mih.arrivals {
        Arrivals::Constant { interval, .. } if interval.get() == INTERVAL => {}
        _ => wrong.push("messages do not come evenly, twice a second".to_owned()),
    }
    let (warm_up, duration) = (scenario.run.warmup.get(), scenario.run.duration.get());
    if warm_up != WARM_UP {
        wrong.push(format!("counting begins after {warm_up}, not after 5 s"));
    }
    if duration != DURATION {
        wrong.push(format!("traffic is counted for {duration}, not for 4000 s"));
    }
    wrong
}

/// The 802.11 cell that a mobile node is in.
pub(super) fn access(scenario: &Scenario, mn: &str) -> Vec<String> {
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

/// Links and addresses.
pub(super) fn wired(scenario: &Scenario) -> Vec<String> {
    let mut wrong = Vec::new();
    let stated = |l: &usher_scenario::model::Link| {
        l.rate.get().is_some_and(|r| r.bits_per_second() == WIRED_RATE) && l.delay.get() == WIRED_DELAY
    };
    for (name, _) in scenario.links.iter().filter(|(_, l)| !stated(l)) {
        wrong.push(format!("the link \"{name}\" has not 100 Mb/s and 10 ms"));
    }
    if scenario.run.ip != IpVersion::V6 {
        wrong.push("IPv4, not IPv6".to_owned());
    }
    wrong
}

pub(super) fn tcp(scenario: &Scenario) -> Vec<String> {
    let tcp = &scenario.transport.tcp;
    let mut wrong = Vec::new();
    if tcp.mss.map(|s| s.bytes()) != Some(MSS) {
        wrong.push(format!("the MSS is not {MSS} B"));
    }
    if tcp.rto_min.get() != RTO_MIN {
        wrong.push(format!("the smallest RTO is {}, not 0.2 s", tcp.rto_min.get()));
    }
    if !RTO_MAX.iter().any(|ms| tcp.rto_max.get() == Duration::from_millis(*ms)) {
        wrong.push(format!("a largest RTO of {}", tcp.rto_max.get()));
    }
    if tcp.retransmissions.get().is_some() {
        wrong.push("TCP's retransmissions have a limit".to_owned());
    }
    wrong
}
