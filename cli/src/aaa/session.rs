//! `usher aaa session`.

use super::args::{AaaConfigArgs, SessionCommand};
use super::{open_installation, query_aaa_server};
use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use crate::service::invoking_user;
use crate::session_id::{SessionIdentifiers, find_session, shortest_unique_prefixes};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use usher_aaa::canonical_name;
use usher_aaa::ledger::{Ledger, LedgerConfig, UniqueSessionId};
use usher_aaa::store::SessionRow;
use usher_aaa_daemon::ServerInstallation;
use usher_aaa_daemon::control::{self, ControlError, ControlReply, ControlRequest, SessionSummary};
use usher_config::Prefix;
use usher_core::{Instant, WallTime};

pub(super) fn run_session_command(
    output: &ConsoleOutput,
    command: SessionCommand,
) -> Result<(), CommandFailure> {
    match command {
        SessionCommand::List { user, config } => list_sessions(output, user, &config),
        SessionCommand::Show(named) => show_session(output, &named.name, &named.config),
        SessionCommand::Forget { ids, nas, user, dry_run, config } => {
            let meant = SessionSelection { ids, nas, user };
            close_sessions(output, &meant, dry_run, &config)
        }
        SessionCommand::Disconnect(named) => {
            let place = open_installation(&named.config)?;
            let session = find_running_session_id(&place, &named.name)?;
            query_aaa_server(&place, &ControlRequest::Disconnect { session })?;
            report_session_change(
                output,
                &named.name,
                "disconnect-acknowledged",
                "has ended, as its NAS confirms; it is listed until the NAS sends its Accounting-Stop",
            )
        }
        SessionCommand::Change { name, attributes, config } => {
            let place = open_installation(&config)?;
            let session = find_running_session_id(&place, &name)?;
            query_aaa_server(&place, &ControlRequest::Change { session, attributes })?;
            report_session_change(output, &name, "changed", "is changed, as its NAS confirms")
        }
    }
}

fn report_session_change(
    output: &ConsoleOutput,
    session: &str,
    what: &str,
    text: &str,
) -> Result<(), CommandFailure> {
    if output.json {
        return output.print_json(&json!({ "session": session, "done": what }));
    }
    output.print_text(&format!("{session} {text}\n"))
}

/// Fetches the sessions from the running server, or from the store if none runs.
fn fetch_sessions(
    output: &ConsoleOutput,
    place: &ServerInstallation,
    user: Option<String>,
) -> Result<Vec<SessionSummary>, CommandFailure> {
    match control::request_reply(&place.control_socket(), &ControlRequest::Sessions { user: user.clone() }) {
        Ok(ControlReply::Sessions { sessions }) => Ok(sessions),
        Ok(other) => {
            Err(CommandFailure::runtime_error(format!("unexpected reply from the server: {other:?}")))
        }
        Err(ControlError::NotRunning { .. }) => {
            if !place.has_store() {
                return Err(CommandFailure::runtime_error(format!(
                    "no server is running, and {} has no sessions; start the server with: usher aaa serve",
                    place.state_dir.display()
                )));
            }
            output.print_note("no server is running; these are the sessions of the store");
            let mut all: Vec<SessionSummary> =
                load_stored_sessions(place)?.iter().map(SessionSummary::from).collect();
            all.retain(|s| user.as_ref().is_none_or(|user| s.user == *user));
            Ok(all)
        }
        Err(error) => Err(CommandFailure::runtime_error(error)),
    }
}

fn list_sessions(
    output: &ConsoleOutput,
    user: Option<String>,
    config: &AaaConfigArgs,
) -> Result<(), CommandFailure> {
    let all = fetch_sessions(output, &open_installation(config)?, user)?;
    let short = shortest_unique_prefixes(all.iter().map(|s| &*s.unique));
    if output.json {
        return output.print_json(&json!(all.iter().zip(&short).map(session_json).collect::<Vec<_>>()));
    }
    let title = ["session", "user", "NAS", "port", "MAC", "address"].map(str::to_owned).to_vec();
    let row = |(s, short): (SessionSummary, String)| vec![short, s.user, s.nas, s.port, s.mac, s.address];
    let rows: Vec<_> = std::iter::once(title).chain(all.into_iter().zip(short).map(row)).collect();
    output.print_text(&format_columns(&rows))
}

fn show_session(output: &ConsoleOutput, name: &str, config: &AaaConfigArgs) -> Result<(), CommandFailure> {
    let all = fetch_sessions(output, &open_installation(config)?, None)?;
    let found = find_session(&session_names(&all), name)?.and_then(|n| all.into_iter().nth(n));
    let s = found.ok_or_else(|| no_session(name))?;
    if output.json {
        return output.print_json(&json!(s));
    }
    let rows = [
        ("session", s.unique),
        ("Acct-Session-Id", s.id),
        ("user", s.user),
        ("NAS", s.nas),
        ("port", s.port),
        ("MAC", s.mac),
        ("address", s.address),
        ("started", format_date(s.started)),
        ("octets from the user", s.input_octets.to_string()),
        ("octets to the user", s.output_octets.to_string()),
    ];
    output.print_text(&format_columns(&rows.map(|(what, value)| vec![what.to_owned(), value])))
}

/// Loads the open sessions of the store.
fn load_stored_sessions(place: &ServerInstallation) -> Result<Vec<SessionRow>, CommandFailure> {
    let (mut store, mut all) = (place.open_store().map_err(CommandFailure::runtime_error)?, Vec::new());
    store.open_sessions(&mut |row| all.push(row)).map_err(CommandFailure::runtime_error)?;
    Ok(all)
}

fn no_session(name: &str) -> CommandFailure {
    CommandFailure::runtime_error(format!("there is no open session {name}; see: usher aaa session list"))
}

/// Converts a session to JSON, with its short id.
fn session_json((session, short): (&SessionSummary, &String)) -> Value {
    let mut value = json!(session);
    value["short"] = json!(short);
    value
}

/// Returns the ids of each session.
fn session_names(all: &[SessionSummary]) -> Vec<SessionIdentifiers> {
    let names = |s: &SessionSummary| {
        let about = format!("{}  NAS {}  port {}  {}", s.user, s.nas, s.port, s.mac);
        SessionIdentifiers { id: s.unique.clone(), other_ids: vec![s.id.clone()], description: about }
    };
    all.iter().map(names).collect()
}

/// Finds a session of the running server and returns its acctuniqueid.
fn find_running_session_id(place: &ServerInstallation, name: &str) -> Result<String, CommandFailure> {
    let ControlReply::Sessions { sessions } =
        query_aaa_server(place, &ControlRequest::Sessions { user: None })?
    else {
        return Err(no_session(name));
    };
    let found = find_session(&session_names(&sessions), name)?;
    found.map(|n| sessions[n].unique.clone()).ok_or_else(|| no_session(name))
}

/// The sessions to forget.
struct SessionSelection {
    ids: Vec<String>,
    nas: Option<String>,
    user: Option<String>,
}

impl SessionSelection {
    fn find_sessions(
        &self,
        place: &ServerInstallation,
        all: Vec<SessionSummary>,
    ) -> Result<Vec<SessionSummary>, CommandFailure> {
        if !self.ids.is_empty() {
            let names = session_names(&all);
            let mut found = BTreeSet::new();
            for id in &self.ids {
                found.insert(find_session(&names, id)?.ok_or_else(|| no_session(id))?);
            }
            return Ok(found.into_iter().map(|n| all[n].clone()).collect());
        }
        let networks = self.nas.as_ref().map(|nas| networks_of(place, nas)).transpose()?;
        let at = |s: &SessionSummary| {
            let address = s.nas.parse().ok();
            networks.as_ref().is_none_or(|all| {
                address.is_some_and(|address| all.iter().any(|network| network.contains(address)))
            })
        };
        let of = |s: &SessionSummary| {
            let same = |user: &String| canonical_name(user.as_bytes()) == canonical_name(s.user.as_bytes());
            self.user.as_ref().is_none_or(same)
        };
        Ok(all.into_iter().filter(|s| at(s) && of(s)).collect())
    }
}

/// Returns a NAS's addresses: its own address, or the networks of the client of this name in the configuration or the
/// store.
fn networks_of(place: &ServerInstallation, nas: &str) -> Result<Vec<Prefix>, CommandFailure> {
    if let Ok(address) = nas.parse::<IpAddr>() {
        let address = address.to_canonical();
        return Ok(vec![Prefix { network: address, bits: if address.is_ipv4() { 32 } else { 128 } }]);
    }
    let configured = place.loaded.clients.iter().filter(|client| client.name == nas);
    let mut networks: Vec<Prefix> = configured.map(|client| client.prefix).collect();
    if place.has_store() {
        let rows = place
            .open_store()
            .and_then(|mut store| store.list_clients())
            .map_err(CommandFailure::runtime_error)?;
        let named = rows.iter().filter(|row| row.shortname == nas);
        networks.extend(named.filter_map(|row| Prefix::parse(&row.nasname).ok()));
    }
    if networks.is_empty() {
        let message =
            format!("{nas} is neither an address nor the name of a client; see: usher aaa client list");
        return Err(CommandFailure::runtime_error(message));
    }
    Ok(networks)
}

fn close_sessions(
    output: &ConsoleOutput,
    meant: &SessionSelection,
    dry_run: bool,
    config: &AaaConfigArgs,
) -> Result<(), CommandFailure> {
    let place = open_installation(config)?;
    let mut found = meant.find_sessions(&place, fetch_sessions(output, &place, None)?)?;
    if !dry_run && !found.is_empty() {
        let uniques = found.iter().map(|s| s.unique.clone()).collect();
        let request = ControlRequest::ForgetSessions { sessions: uniques, by: invoking_user() };
        let (forgotten, durable) = match control::request_reply(&place.control_socket(), &request) {
            Ok(ControlReply::Forgotten { sessions, durable }) => (sessions, durable),
            Ok(other) => {
                return Err(CommandFailure::runtime_error(format!(
                    "unexpected reply from the server: {other:?}"
                )));
            }
            Err(ControlError::NotRunning { .. }) => (close_stored_sessions(&place, &found)?, true),
            Err(error) => return Err(CommandFailure::runtime_error(error)),
        };
        if !durable {
            output.print_note("the store does not answer; the server closes the records as soon as it does");
        }
        found.retain(|s| forgotten.contains(&s.unique));
    }
    if found.is_empty() {
        return Err(CommandFailure::runtime_error("no such session is open; see: usher aaa session list"));
    }
    let short = shortest_unique_prefixes(found.iter().map(|s| &*s.unique));
    if output.json {
        let all: Vec<_> = found.iter().zip(&short).map(session_json).collect();
        return output.print_json(&json!({ "forgotten": all, "dry_run": dry_run }));
    }
    let what = if dry_run { "would be forgotten" } else { "forgotten" };
    let row = |(s, short): (&SessionSummary, &String)| {
        vec![short.clone(), s.user.clone(), s.nas.clone(), s.address.clone(), what.to_owned()]
    };
    output.print_text(&format_columns(&found.iter().zip(&short).map(row).collect::<Vec<_>>()))
}

/// Closes sessions in the store while no server runs. Returns the sessions that were open.
fn close_stored_sessions(
    place: &ServerInstallation,
    found: &[SessionSummary],
) -> Result<Vec<String>, CommandFailure> {
    let mut ledger = Ledger::new(LedgerConfig { max_sessions: usize::MAX, ..LedgerConfig::default() });
    for row in load_stored_sessions(place)? {
        ledger.restore_session(Instant::ZERO, &row);
    }
    let mut ends = |s: &&SessionSummary| {
        UniqueSessionId::parse(&s.unique).and_then(|unique| ledger.close_session(unique)).is_some()
    };
    let ended: Vec<String> = found.iter().filter(|s| ends(s)).map(|s| s.unique.clone()).collect();
    let mut store = place.open_store().map_err(CommandFailure::runtime_error)?;
    while ledger.unwritten_change_count() > 0 {
        if let Some(error) = ledger.commit_changes(&mut *store, 1024).error {
            return Err(CommandFailure::runtime_error(error));
        }
    }
    Ok(ended)
}

/// Formats a time in UTC, to the second (RFC 3339).
fn format_date(unix_secs: Option<u64>) -> String {
    let written = |secs| WallTime::from_unix_secs(secs).to_string().replace(".000000Z", "Z");
    unix_secs.map_or_else(|| "unknown".to_owned(), written)
}
