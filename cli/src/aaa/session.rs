//! `usher aaa session`.

use super::args::{Config, SessionCommand};
use super::{ask, place};
use crate::output::{Failure, Output, columns};
use crate::service::asker;
use crate::session_id::{SessionNames, find_session, short_ids};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use usher_aaa::canonical_name;
use usher_aaa::ledger::{Ledger, LedgerConfig, Unique};
use usher_aaa::store::SessionRow;
use usher_config::Prefix;
use usher_control::{self as control, Answer, ControlError, Request, Session};
use usher_core::{Instant, WallTime};
use usher_daemon::Installation;

pub(super) fn session(output: &Output, command: SessionCommand) -> Result<(), Failure> {
    match command {
        SessionCommand::List { user, config } => list(output, user, &config),
        SessionCommand::Show(named) => show(output, &named.name, &named.config),
        SessionCommand::Forget { ids, nas, user, dry_run, config } => {
            let meant = SessionSelection { ids, nas, user };
            forget(output, &meant, dry_run, &config)
        }
        SessionCommand::Disconnect(named) => {
            let place = place(&named.config)?;
            let session = running_session(&place, &named.name)?;
            ask(&place, &Request::Disconnect { session })?;
            done(
                output,
                &named.name,
                "disconnect-acknowledged",
                "has ended, as its NAS says; it is listed until the NAS's Accounting-Stop comes",
            )
        }
        SessionCommand::Change { name, attributes, config } => {
            let place = place(&config)?;
            let session = running_session(&place, &name)?;
            ask(&place, &Request::Change { session, attributes })?;
            done(output, &name, "changed", "is changed, as its NAS says")
        }
    }
}

fn done(output: &Output, session: &str, what: &str, text: &str) -> Result<(), Failure> {
    if output.json {
        return output.value(&json!({ "session": session, "done": what }));
    }
    output.text(&format!("{session} {text}\n"))
}

/// From the running server, or, where none runs, from the store.
fn sessions(output: &Output, place: &Installation, user: Option<String>) -> Result<Vec<Session>, Failure> {
    match control::ask(&place.control_socket(), &Request::Sessions { user: user.clone() }) {
        Ok(Answer::Sessions { sessions }) => Ok(sessions),
        Ok(other) => Err(Failure::failed(format!("the server says what was not asked: {other:?}"))),
        Err(ControlError::NotRunning { .. }) => {
            if !place.has_store() {
                return Err(Failure::failed(format!(
                    "no server runs here, and {} keeps no sessions: there is nothing to look at (begin with: usher aaa serve)",
                    place.state_dir.display()
                )));
            }
            output.note("no server runs here; this is what the store has of its sessions");
            let mut all: Vec<Session> = stored(place)?.iter().map(Session::from).collect();
            all.retain(|s| user.as_ref().is_none_or(|user| s.user == *user));
            Ok(all)
        }
        Err(error) => Err(Failure::failed(error)),
    }
}

fn list(output: &Output, user: Option<String>, config: &Config) -> Result<(), Failure> {
    let all = sessions(output, &place(config)?, user)?;
    let short = short_ids(all.iter().map(|s| &*s.unique));
    if output.json {
        return output.value(&json!(all.iter().zip(&short).map(shown).collect::<Vec<_>>()));
    }
    let title = ["session", "user", "NAS", "port", "MAC", "address"].map(str::to_owned).to_vec();
    let row = |(s, short): (Session, String)| vec![short, s.user, s.nas, s.port, s.mac, s.address];
    let rows: Vec<_> = std::iter::once(title).chain(all.into_iter().zip(short).map(row)).collect();
    output.text(&columns(&rows))
}

fn show(output: &Output, name: &str, config: &Config) -> Result<(), Failure> {
    let all = sessions(output, &place(config)?, None)?;
    let found = find_session(&names(&all), name)?.and_then(|n| all.into_iter().nth(n));
    let s = found.ok_or_else(|| no_session(name))?;
    if output.json {
        return output.value(&json!(s));
    }
    let rows = [
        ("session", s.unique),
        ("Acct-Session-Id", s.id),
        ("user", s.user),
        ("NAS", s.nas),
        ("port", s.port),
        ("MAC", s.mac),
        ("address", s.address),
        ("started", date(s.started)),
        ("octets from the user", s.input_octets.to_string()),
        ("octets to the user", s.output_octets.to_string()),
    ];
    output.text(&columns(&rows.map(|(what, value)| vec![what.to_owned(), value])))
}

/// The open sessions of the store.
fn stored(place: &Installation) -> Result<Vec<SessionRow>, Failure> {
    let (mut store, mut all) = (place.store().map_err(Failure::failed)?, Vec::new());
    store.open_sessions(&mut |row| all.push(row)).map_err(Failure::failed)?;
    Ok(all)
}

fn no_session(name: &str) -> Failure {
    Failure::failed(format!("there is no open session {name}; see: usher aaa session list"))
}

/// What is told of a session, with its short id.
fn shown((session, short): (&Session, &String)) -> Value {
    let mut value = json!(session);
    value["short"] = json!(short);
    value
}

/// By what sessions are named.
fn names(all: &[Session]) -> Vec<SessionNames> {
    let names = |s: &Session| {
        let about = format!("{}  NAS {}  port {}  {}", s.user, s.nas, s.port, s.mac);
        SessionNames { id: s.unique.clone(), others: vec![s.id.clone()], about }
    };
    all.iter().map(names).collect()
}

/// The acctuniqueid of a session of the running server.
fn running_session(place: &Installation, name: &str) -> Result<String, Failure> {
    let Answer::Sessions { sessions } = ask(place, &Request::Sessions { user: None })? else {
        return Err(no_session(name));
    };
    let found = find_session(&names(&sessions), name)?;
    found.map(|n| sessions[n].unique.clone()).ok_or_else(|| no_session(name))
}

/// Which sessions are to be forgotten.
struct SessionSelection {
    ids: Vec<String>,
    nas: Option<String>,
    user: Option<String>,
}

impl SessionSelection {
    fn find(&self, place: &Installation, all: Vec<Session>) -> Result<Vec<Session>, Failure> {
        if !self.ids.is_empty() {
            let names = names(&all);
            let mut found = BTreeSet::new();
            for id in &self.ids {
                found.insert(find_session(&names, id)?.ok_or_else(|| no_session(id))?);
            }
            return Ok(found.into_iter().map(|n| all[n].clone()).collect());
        }
        let networks = self.nas.as_ref().map(|nas| networks_of(place, nas)).transpose()?;
        let at = |s: &Session| {
            let address = s.nas.parse().ok();
            networks.as_ref().is_none_or(|all| {
                address.is_some_and(|address| all.iter().any(|network| network.holds(address)))
            })
        };
        let of = |s: &Session| {
            let same = |user: &String| canonical_name(user.as_bytes()) == canonical_name(s.user.as_bytes());
            self.user.as_ref().is_none_or(same)
        };
        Ok(all.into_iter().filter(|s| at(s) && of(s)).collect())
    }
}

/// The addresses of a NAS: itself, or those of the client of this name, in the configuration or the store.
fn networks_of(place: &Installation, nas: &str) -> Result<Vec<Prefix>, Failure> {
    if let Ok(address) = nas.parse::<IpAddr>() {
        let address = address.to_canonical();
        return Ok(vec![Prefix { network: address, bits: if address.is_ipv4() { 32 } else { 128 } }]);
    }
    let configured = place.loaded.clients.iter().filter(|client| client.name == nas);
    let mut networks: Vec<Prefix> = configured.map(|client| client.prefix).collect();
    if place.has_store() {
        let rows = place.store().and_then(|mut store| store.clients()).map_err(Failure::failed)?;
        let named = rows.iter().filter(|row| row.shortname == nas);
        networks.extend(named.filter_map(|row| Prefix::parse(&row.nasname).ok()));
    }
    if networks.is_empty() {
        let message = format!("{nas} is no address and no client's name; see: usher aaa client list");
        return Err(Failure::failed(message));
    }
    Ok(networks)
}

fn forget(output: &Output, meant: &SessionSelection, dry_run: bool, config: &Config) -> Result<(), Failure> {
    let place = place(config)?;
    let mut found = meant.find(&place, sessions(output, &place, None)?)?;
    if !dry_run && !found.is_empty() {
        let uniques = found.iter().map(|s| s.unique.clone()).collect();
        let request = Request::ForgetSessions { sessions: uniques, by: asker() };
        let (forgotten, durable) = match control::ask(&place.control_socket(), &request) {
            Ok(Answer::Forgotten { sessions, durable }) => (sessions, durable),
            Ok(other) => {
                return Err(Failure::failed(format!("the server says what was not asked: {other:?}")));
            }
            Err(ControlError::NotRunning { .. }) => (forget_stored(&place, &found)?, true),
            Err(error) => return Err(Failure::failed(error)),
        };
        if !durable {
            output.note("the store does not answer: the records are closed as soon as it does");
        }
        found.retain(|s| forgotten.contains(&s.unique));
    }
    if found.is_empty() {
        return Err(Failure::failed("no such session is open; see: usher aaa session list"));
    }
    let short = short_ids(found.iter().map(|s| &*s.unique));
    if output.json {
        let all: Vec<_> = found.iter().zip(&short).map(shown).collect();
        return output.value(&json!({ "forgotten": all, "dry_run": dry_run }));
    }
    let what = if dry_run { "would be forgotten" } else { "forgotten" };
    let row = |(s, short): (&Session, &String)| {
        vec![short.clone(), s.user.clone(), s.nas.clone(), s.address.clone(), what.to_owned()]
    };
    output.text(&columns(&found.iter().zip(&short).map(row).collect::<Vec<_>>()))
}

/// Closes sessions in the store of a server that does not run; which were open.
fn forget_stored(place: &Installation, found: &[Session]) -> Result<Vec<String>, Failure> {
    let mut ledger = Ledger::new(LedgerConfig { max_sessions: usize::MAX, ..LedgerConfig::default() });
    for row in stored(place)? {
        ledger.restore(Instant::ZERO, &row);
    }
    let mut ends = |s: &&Session| Unique::parse(&s.unique).and_then(|unique| ledger.forget(unique)).is_some();
    let ended: Vec<String> = found.iter().filter(|s| ends(s)).map(|s| s.unique.clone()).collect();
    let mut store = place.store().map_err(Failure::failed)?;
    while ledger.unwritten() > 0 {
        if let Some(error) = ledger.commit(&mut *store, 1024).error {
            return Err(Failure::failed(error));
        }
    }
    Ok(ended)
}

/// A moment to the second, in UTC, as RFC 3339 has it.
fn date(unix_secs: Option<u64>) -> String {
    let written = |secs| WallTime::from_unix_secs(secs).to_string().replace(".000000Z", "Z");
    unix_secs.map_or_else(|| "not known".to_owned(), written)
}
