//! The deviations of IKEv2 authentications from the document's setting.

use usher_core::Duration;
use usher_scenario::model::{ArrivalSettings, IkeWorkload, Scenario, WifiRate, Workload};

const RATE: u64 = 100_000_000;
const LIFETIME: Duration = Duration::from_secs(6);
const INTERVAL: Duration = Duration::from_secs(12);
const TIMES: u64 = 20;
const RUNS: u32 = 5;

/// Returns the deviations at any point, each once; `None` if no point is of this kind.
pub(super) fn list_deviations<'a>(
    study: &str,
    scenarios: impl Iterator<Item = &'a Scenario>,
) -> Option<Vec<String>> {
    if study != "ike-auth" {
        return None;
    }
    let mut found: Option<Vec<String>> = None;
    for scenario in scenarios {
        let Some(Workload::Ike(ike)) = &scenario.workload else { continue };
        // Skip resumption: the study adds it to the document's methods.
        if ike.resumption.get().is_some() {
            continue;
        }
        let found = found.get_or_insert_default();
        for what in at_point(scenario, ike) {
            if !found.contains(&what) {
                found.push(what);
            }
        }
    }
    found
}

fn at_point(scenario: &Scenario, ike: &IkeWorkload) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut require = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    let ofdm = scenario.bss_in_use().any(|(_, bss)| bss.rate == WifiRate::FiftyFour);
    require(ofdm, "there is no 802.11g link");
    let wired = scenario.links.iter().filter(|(name, _)| *name != "air");
    let rates: Vec<_> = wired
        .map(|(_, link)| link.channel_config(usher_scenario::model::ChannelDirection::Up).rate)
        .collect();
    require(rates == [Some(RATE), Some(RATE)], "the two wired links do not have 100 Mb/s");
    require(ike.child == "3des-sha1", "packets are not protected by 3DES and HMAC-SHA1");
    require(ike.lifetime.get().is_some_and(|time| time.get() == LIFETIME), "IKE_SAs do not last 6 s");
    let each = |interval: Duration| scenario.run.duration.get().as_nanos() / interval.as_nanos();
    let often = match &ike.arrivals {
        ArrivalSettings::Constant { interval, .. } => {
            interval.get() == INTERVAL && each(interval.get()) == TIMES
        }
        _ => false,
    };
    require(often, "a run does not have twenty authentications, one every 12 s");
    require(scenario.run.replications.min.get() == RUNS, "the study does not have five runs");
    if ike.method.has_tls() {
        require(
            ike.certificates.version.name() != "1.2",
            "TLS has version 1.2, not 1.0 as at the time of the document",
        );
    }
    wrong
}
