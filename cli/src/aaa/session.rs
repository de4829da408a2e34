//! `usher aaa session`.

use super::args::{Config, SessionCommand};
use super::{ask, place};
use crate::output::{Failure, Output, columns};
use serde_json::json;
use usher_control::{self as control, Answer, ControlError, Request, Session};
use usher_core::WallTime;
use usher_daemon::Installation;

pub(super) fn session(output: &Output, command: SessionCommand) -> Result<(), Failure> {
    match command {
        SessionCommand::List { user, config } => list(output, user, &config),
        SessionCommand::Show(named) => show(output, &named.name, &named.config),
        SessionCommand::Disconnect(named) => {
            ask(&place(&named.config)?, &Request::Disconnect { session: named.name.clone() })?;
            done(
                output,
                &named.name,
                "disconnect-acknowledged",
                "has ended, as its NAS says; it is listed until the NAS's Accounting-Stop comes",
            )
        }
        SessionCommand::Change { name, attributes, config } => {
            ask(&place(&config)?, &Request::Change { session: name.clone(), attributes })?;
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
            let mut store = place.store().map_err(Failure::failed)?;
            let mut all = Vec::new();
            store.open_sessions(&mut |row| all.push(Session::from(&row))).map_err(Failure::failed)?;
            all.retain(|s| user.as_ref().is_none_or(|user| s.user == *user));
            Ok(all)
        }
        Err(error) => Err(Failure::failed(error)),
    }
}

fn list(output: &Output, user: Option<String>, config: &Config) -> Result<(), Failure> {
    let all = sessions(output, &place(config)?, user)?;
    if output.json {
        return output.value(&json!(all));
    }
    let title = ["session", "user", "NAS", "port", "MAC", "address"].map(str::to_owned).to_vec();
    let row = |s: Session| vec![s.unique, s.user, s.nas, s.port, s.mac, s.address];
    let rows: Vec<_> = std::iter::once(title).chain(all.into_iter().map(row)).collect();
    output.text(&columns(&rows))
}

fn show(output: &Output, name: &str, config: &Config) -> Result<(), Failure> {
    let all = sessions(output, &place(config)?, None)?;
    let found = all.into_iter().find(|s| s.unique == name || s.id == name);
    let s = found.ok_or_else(|| Failure::failed(format!("there is no open session {name}")))?;
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

/// A moment to the second, in UTC, as RFC 3339 has it.
fn date(unix_secs: Option<u64>) -> String {
    let written = |secs| WallTime::from_unix_secs(secs).to_string().replace(".000000Z", "Z");
    unix_secs.map_or_else(|| "not known".to_owned(), written)
}
