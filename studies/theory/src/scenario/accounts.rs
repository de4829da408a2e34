//! Accounting beside logins (RFC 2866): the number of records, their packets and their delay.

use super::{round_trip, transmission_times};
use usher_aaa::AuthMethod;
use usher_scenario::model::{EapWorkload, NasAaaProtocol, Scenario, TimeDistribution, Workload};

fn eap_workload(scenario: &Scenario) -> Option<&EapWorkload> {
    match scenario.sole_workload() {
        Some(Workload::Eap(eap)) => Some(eap),
        _ => None,
    }
}

/// Returns the mean number of records of a session: Start, Stop, and an Interim after each interval. If sessions are
/// exponential with mean m, k intervals of t pass with probability e^(-kt/m).
pub(super) fn records_per_session(scenario: &Scenario) -> Option<f64> {
    let accounting = &eap_workload(scenario)?.accounting;
    if !accounting.used {
        return None;
    }
    let Some(every) = accounting.interim.get() else { return Some(2.0) };
    let every = every.get().as_secs_f64();
    let told = match accounting.session {
        // If an Interim and Stop are due at the same time, only Stop is sent.
        TimeDistribution::Constant(lasts) => (libm::ceil(lasts.get().as_secs_f64() / every) - 1.0).max(0.0),
        TimeDistribution::Exponential { mean } => 1.0 / libm::expm1(every / mean.get().as_secs_f64()),
        TimeDistribution::Uniform { .. } => return None,
    };
    Some(2.0 + told)
}

/// Returns the packets between NAS and server per login by EAP-MD5 over RADIUS without loss: two requests and replies,
/// and one request and reply per record.
pub(super) fn packets_per_login(scenario: &Scenario) -> Option<f64> {
    let eap = eap_workload(scenario)?;
    let ways = round_trip(scenario, &eap.nas, &eap.server)?.1;
    let plain = eap.aaa == NasAaaProtocol::Radius && eap.method == AuthMethod::EapMd5;
    if !plain || ways != [1.0; 2] || eap.wrong_credentials.get() > 0.0 {
        return None;
    }
    let records = if eap.accounting.used { records_per_session(scenario)? } else { 0.0 };
    Some(4.0 + 2.0 * records)
}

/// Returns the time from a record's due time to its acknowledgement, over acknowledged records: a round trip and, over
/// RADIUS, the time of retransmissions. Over Diameter, where the transport retransmits, it applies without loss only.
pub(super) fn accounting_record_delay(scenario: &Scenario) -> Option<f64> {
    let eap = eap_workload(scenario).filter(|eap| eap.accounting.used)?;
    let (trip, [there, back]) = round_trip(scenario, &eap.nas, &eap.server)?;
    let survives = there * back;
    if eap.aaa == NasAaaProtocol::Diameter {
        return (survives == 1.0).then_some(trip);
    }
    let (mut waits, mut kept, mut missing) = (0.0, 0.0, 1.0);
    for (at, chance) in transmission_times(&eap.radius.retransmission) {
        let first = missing * survives * chance;
        waits += at * first;
        kept += first;
        missing *= 1.0 - survives * chance;
    }
    (kept > 0.0).then(|| trip + waits / kept)
}

#[cfg(test)]
mod tests {
    use crate::closed_form_value;
    use usher_scenario::{ClosedFormName, PlanOverrides, Study, StudyMode};

    fn value_at(name: ClosedFormName, settings: &[&str]) -> Option<f64> {
        let mut overrides = PlanOverrides::default();
        settings.iter().for_each(|setting| overrides.add_setting(setting).unwrap());
        let plan = Study::open("aaa-accounting").unwrap().build_plan(StudyMode::Quick, &overrides).unwrap();
        closed_form_value(name, &plan.points[0].scenario)
    }

    const RADIUS: &str = "protocol=RADIUS/UDP, RFC 5080";

    #[test]
    fn a_session_has_a_start_a_stop_and_what_is_between() {
        let of = |accounting: &str| {
            value_at(ClosedFormName::AccountingRecords, &[RADIUS, &format!("accounting={accounting}")])
        };
        assert_eq!(of("none"), None);
        assert_eq!(of("Start and Stop"), Some(2.0));
        // A mean of four intervals.
        let told = 1.0 / (0.25f64.exp() - 1.0);
        assert!((of("Interim every 2 s").unwrap() - 2.0 - told).abs() < 1e-12);
        let constant = |lasts: &str| {
            let session = format!("workload.accounting.session={lasts}");
            value_at(ClosedFormName::AccountingRecords, &[RADIUS, "accounting=Interim every 2 s", &session])
        };
        assert_eq!([constant("7 s"), constant("8 s"), constant("1 s")], [Some(5.0), Some(5.0), Some(2.0)]);
    }

    #[test]
    fn a_login_is_four_packets_and_a_record_two() {
        let of = |more: &[&str]| value_at(ClosedFormName::RadiusPackets, more);
        assert_eq!(of(&[RADIUS, "accounting=none"]), Some(4.0));
        assert_eq!(of(&[RADIUS, "accounting=Start and Stop"]), Some(8.0));
        assert_eq!(of(&["protocol=Diameter/TCP", "accounting=none"]), None);
        assert_eq!(of(&[RADIUS, "accounting=none", "links.core.loss=1 %"]), None);
    }

    #[test]
    fn a_record_takes_a_round_trip_and_what_was_lost_before() {
        let both = "accounting=Start and Stop";
        // 2 ms and 10 ms, in each direction.
        for protocol in [RADIUS, "protocol=Diameter/TCP"] {
            let delay = value_at(ClosedFormName::AccountingDelay, &[protocol, both]).unwrap();
            assert!((delay - 0.024).abs() < 1e-12, "{protocol}: {delay}");
        }
        assert_eq!(value_at(ClosedFormName::AccountingDelay, &[RADIUS, "accounting=none"]), None);
        assert_eq!(
            value_at(
                ClosedFormName::AccountingDelay,
                &["protocol=Diameter/TCP", both, "links.core.loss=1 %"]
            ),
            None
        );
        // Half of the packets are lost in each direction. Attempts are at 0, 2, 6, 14 s and, half the time, at 30 s. A
        // quarter of them succeed, as in the form of a login's delay.
        let last = 81.0 / 8.0;
        let wait = (2.0 * 48.0 + 6.0 * 36.0 + 14.0 * 27.0 + 30.0 * last) / (64.0 + 48.0 + 36.0 + 27.0 + last);
        let delay =
            value_at(ClosedFormName::AccountingDelay, &[RADIUS, both, "links.core.loss=50 %"]).unwrap();
        assert!((delay - 0.024 - wait).abs() < 1e-9, "{delay}");
    }
}
