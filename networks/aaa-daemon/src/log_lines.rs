//! Log lines about the machine's decisions.

use usher_aaa::ledger::{LedgerRecord, storable_text};
use usher_aaa::{AuthMethod, FinishedLogin};
use usher_aaa_config::ClientDirectory;

/// Logs a login. `decided`: it has a verdict.
pub(crate) fn log_login(login: &FinishedLogin, decided: bool, micros: u64, clients: &ClientDirectory) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let user = storable_text(&login.name);
    let inner = login.inner.as_deref().map(storable_text).filter(|inner| *inner != user);
    let method = login.method.map_or("none", AuthMethod::name);
    let inner_method = login.inner_method.map(|inner| inner.to_string());
    let client = login.client.and_then(|c| clients.name(c)).unwrap_or("diameter");
    let nas = match (login.nas_identifier(), login.nas_address()) {
        (Some(name), _) => Some(storable_text(name)),
        (None, address) => address.map(|a| a.to_string()),
    };
    let mac = login.calling_station_id().map(storable_text);
    let port = login.nas_port();
    let ms = micros as f64 / 1000.0;
    let resumed = login.resumed.then_some(true);
    let Some(reason) = &login.reason else {
        tracing::info!(user, inner, method, inner_method, client, nas, port, mac, resumed, ms, "accept");
        return;
    };
    let (cause, detail) = (reason.name(), login.detail.as_deref());
    if decided {
        tracing::info!(
            user, inner, method, inner_method, client, nas, port, mac, ms, cause, reason = %reason, detail, "reject"
        );
    } else {
        tracing::info!(
            user, inner, method, inner_method, client, nas, port, mac, ms, cause, reason = %reason, detail, "no verdict"
        );
    }
}

/// Logs an accounting record.
pub(crate) fn log_record(record: &LedgerRecord) {
    tracing::debug!(
        status = ?record.status,
        user = record.session.user,
        session = record.session.id,
        nas = %record.session.nas,
        mac = record.calling_station_id,
        seconds = record.session_time,
        input = record.input_octets,
        output = record.output_octets,
        "accounting"
    );
}
