//! The key exchange of an 802.16 cell.

use usher_aaa::AuthMethod;
use usher_scenario::model::{Scenario, Workload};

/// Messages from a station between EAP's success and its keys: SA-TEK-Request and Key-Request.
const MESSAGES_UP: u32 = 2;

/// Returns the time from EAP's success to a station's traffic keys, on an idle cell.
pub(super) fn traffic_key_delay(scenario: &Scenario) -> Option<f64> {
    let Some(Workload::Eap(eap)) = scenario.sole_workload() else { return None };
    let (_, cell) = scenario
        .cells_in_use()
        .find(|(_, cell)| cell.base_station == eap.nas && cell.stations == eap.stations)?;
    // The formula needs requests sent at once and answers without delay. A window larger than a frame's opportunities
    // delays requests, and a processor delays answers.
    let at_once =
        1u64.checked_shl(cell.requests.backoff_start)? <= u64::from(cell.requests.opportunities.get());
    let charged = [&eap.nas, &eap.stations]
        .into_iter()
        .filter_map(|name| scenario.hosts.get(name)?.cpu.as_ref())
        .any(|cpu| cpu.service.names().any(|label| label.starts_with("pkm.")));
    let sound = cell.keys.used && eap.method == AuthMethod::EapTls && cell.loss.get() == 0.0;
    // Each message is requested in one frame and granted in the next. It is sent `uplink_lead` frames later, and
    // answered in the frame after that.
    let frames = MESSAGES_UP * (2 + cell.frame.uplink_lead);
    (sound && at_once && !charged).then(|| f64::from(frames) * cell.frame.duration.get().as_secs_f64())
}
