//! `usher aaa status`, `reload` and `trace`: requests to the running server.

use super::args::{AaaConfigArgs, ServerTraceArgs};
use super::{open_installation, query_aaa_server};
use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};
use usher_aaa_daemon::control::{self, ControlReply, ControlRequest, HomeServerStatus, RevocationListStatus};
use usher_core::{Duration, WallTime};

pub(super) fn show_status(output: &ConsoleOutput, config: &AaaConfigArgs) -> Result<(), CommandFailure> {
    let ControlReply::Status(s) = query_aaa_server(&open_installation(config)?, &ControlRequest::Status)?
    else {
        return Err(CommandFailure::runtime_error(
            "unexpected reply from the server; check that it has the version of this program",
        ));
    };
    if output.json {
        return output.print_json(&json!(s));
    }
    let mut rows = vec![
        ("version", s.version),
        ("configuration", s.config.unwrap_or_else(|| "none".to_owned())),
        ("uptime", format!("{} s", s.uptime)),
        ("shards", s.shards.to_string()),
        ("logins accepted", s.accepted.to_string()),
        ("logins rejected", s.rejected.to_string()),
        ("logins in progress", s.half_open.to_string()),
        ("open sessions", s.sessions.to_string()),
        ("Diameter peers", s.diameter_peers.to_string()),
        ("reloads done, failed", format!("{}, {}", s.reloads.0, s.reloads.1)),
    ];
    rows.extend(s.home_servers.iter().map(|home| ("home server", home_server(home))));
    for (name, okay) in s.diameter_servers {
        let state = if okay { "connected" } else { "not connected, or not answering" };
        rows.push(("Diameter peer", format!("{name}: {state}")));
    }
    rows.extend(s.tls_faults.iter().map(|(name, why)| ("not reached by TLS", format!("{name}: {why}"))));
    rows.extend(s.lists.iter().map(|list| ("revocation list", revocation_list(list))));
    let ends: Vec<_> = s
        .certificates
        .iter()
        .map(|(whose, days)| format!("{whose} certificate expires in {days:.1} days"))
        .collect();
    rows.extend(ends.into_iter().map(|text| ("certificates", text)));
    output.print_text(&format_columns(
        &rows.into_iter().map(|(what, value)| vec![what.to_owned(), value]).collect::<Vec<_>>(),
    ))
}

/// Formats a revocation list's validity, in a line.
fn revocation_list(list: &RevocationListStatus) -> String {
    let RevocationListStatus { from, issuer, ends, .. } = list;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let end = match ends.map(|end| (end as f64 - since) / 86_400.0) {
        Some(days) if days < 0.0 => "has expired".to_owned(),
        Some(days) => format!("expires in {days:.1} days"),
        None => "has no expiry time".to_owned(),
    };
    format!("{from} of {issuer} {end}")
}

/// Formats a home server's state, in a line.
fn home_server(home: &HomeServerStatus) -> String {
    let HomeServerStatus { name, service, address, state, requests, timeouts, round_trip } = home;
    let took = round_trip.map(|ms| format!(", {ms:.1} ms round trip")).unwrap_or_default();
    format!("{name} ({service}, {address}): {state}; {requests} requests, {timeouts} timeouts{took}")
}

pub(super) fn reload_server(output: &ConsoleOutput, config: &AaaConfigArgs) -> Result<(), CommandFailure> {
    let restart = match query_aaa_server(&open_installation(config)?, &ControlRequest::Reload)? {
        ControlReply::Reloaded { restart } => restart,
        _ => Vec::new(),
    };
    if output.json {
        return output.print_json(&json!({ "done": "reloaded", "restart": restart }));
    }
    match restart.as_slice() {
        [] => output.print_text("reloaded\n"),
        parts => output
            .print_text(&format!("reloaded; changes of {} take effect after a restart\n", parts.join(", "))),
    }
}

/// True if the text has twelve hexadecimal digits, with any separators.
fn is_mac(text: &str) -> bool {
    let digits = text.chars().filter(char::is_ascii_hexdigit).count();
    digits == 12 && text.chars().all(|c| c.is_ascii_hexdigit() || ":-.".contains(c))
}

pub(super) fn follow_trace(output: &ConsoleOutput, trace: &ServerTraceArgs) -> Result<(), CommandFailure> {
    let place = open_installation(&trace.config)?;
    let (user, mac) = match &trace.who {
        Some(who) if is_mac(who) => (None, Some(who.clone())),
        who => (who.clone(), None),
    };
    let mut failed = None;
    let mut each = |answer| {
        let ControlReply::Line { session, at, text, cause } = &answer else {
            output.print_note("tracing until interrupted");
            return true;
        };
        let at = WallTime::from_unix_secs(0) + Duration::from_micros(*at);
        let said = if output.json {
            let line = json!({ "session": session, "time": at.to_string(), "text": text, "cause": cause });
            output.print_text(&format!("{line}\n"))
        } else {
            output.print_text(&format!("{at} {session:016x}  {text}\n"))
        };
        failed = said.err();
        failed.is_none()
    };
    control::follow_replies(&place.control_socket(), &ControlRequest::Trace { user, mac }, &mut each)
        .map_err(CommandFailure::runtime_error)?;
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::is_mac;

    #[test]
    fn a_mac_address_is_known_in_any_notation() {
        for mac in ["00-11-22-33-44-55", "00:11:22:33:44:aA", "0011.2233.4455", "001122334455"] {
            assert!(is_mac(mac), "{mac}");
        }
        for name in ["ann", "00-11-22-33-44", "001122334455@x", ""] {
            assert!(!is_mac(name), "{name}");
        }
    }
}
