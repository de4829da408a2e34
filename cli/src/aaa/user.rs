//! `usher aaa user`.

use super::args::{Config, Kept, OpenSessions, Password, UserChanges, UserCommand, UserRows as Typed};
use super::{place, secret};
use crate::output::{Failure, Output, columns};
use serde_json::{Value, json};
use usher_aaa::store::{GroupRows, Row, Store, UserRows};
use usher_control::{self as control, Answer, ControlError, Request};
use usher_daemon::{Installation, admin};

/// Names that are asked for at once.
const PAGE: u32 = 1000;

pub(super) fn user(output: &Output, command: UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Add(typed) => add(output, &typed),
        UserCommand::Set { changes, open } => set(output, &changes, open),
        UserCommand::List(config) => list(output, &config),
        UserCommand::Show(named) => show(output, &named.name, &named.config),
        UserCommand::Del { named, open } => del(output, &named.name, &named.config, open),
        UserCommand::Import(import) => super::import::users(output, &import),
    }
}

/// The store, with its folder made where there is none.
pub(super) fn store(config: &Config) -> Result<(Installation, Box<dyn Store>), Failure> {
    let place = place(config)?;
    let store = store_of(&place)?;
    Ok((place, store))
}

/// The store of a place, with its folder made where there is none: what is typed is looked at before.
pub(super) fn store_of(place: &Installation) -> Result<Box<dyn Store>, Failure> {
    place.prepare().map_err(Failure::failed)?;
    place.store().map_err(Failure::failed)
}

pub(super) fn rows(texts: &[String]) -> Result<Vec<Row>, Failure> {
    let read = |text: &String| {
        usher_aaa_config::row(text).ok_or_else(|| {
            Failure::usage(format!(
                "\"{text}\" is not ATTRIBUTE OPERATOR VALUE, such as 'Session-Timeout = 3600'"
            ))
        })
    };
    texts.iter().map(read).collect()
}

/// The name that a user is kept by.
fn canonical(name: &str) -> String {
    usher_aaa::spellings(name).into_iter().next().unwrap_or_else(|| name.to_owned())
}

fn groups(names: &[String]) -> Vec<GroupRows> {
    names.iter().map(|name| GroupRows { name: name.clone(), ..GroupRows::default() }).collect()
}

fn password(typed: &Password) -> Result<Row, Failure> {
    let password = secret::read(typed.password_file.as_deref(), "password")?;
    let kept = match typed.hash.unwrap_or_default() {
        Kept::Clear => admin::Kept::Clear,
        Kept::Nt => admin::Kept::Nt,
        Kept::Argon2 => admin::Kept::Argon2,
    };
    admin::password_row(&password, kept).map_err(Failure::failed)
}

fn add(output: &Output, typed: &Typed) -> Result<(), Failure> {
    let place = place(&typed.config)?;
    let (mut check, reply) = (rows(&typed.check)?, rows(&typed.reply)?);
    let typed_rows = UserRows { check: check.clone(), reply: reply.clone(), groups: Vec::new() };
    admin::understood(&typed_rows, &place.loaded.dictionary).map_err(Failure::usage)?;
    let mut store = store_of(&place)?;
    let name = canonical(&typed.name);
    if usher_aaa::store::user_of(store.as_mut(), &name).map_err(Failure::failed)?.is_some() {
        return Err(Failure::usage(format!(
            "there is a user {name} already; change it with: usher aaa user set"
        )));
    }
    if !typed.password.no_password {
        check.insert(0, password(&typed.password)?);
    }
    let user = UserRows { check, reply, groups: groups(&typed.group) };
    put(&place, store.as_mut(), &name, user)?;
    forgotten(output, &place, &name, "added", OpenSessions { disconnect: false })
}

fn set(output: &Output, changes: &UserChanges, open: OpenSessions) -> Result<(), Failure> {
    let anew = changes.password || changes.new.password_file.is_some();
    if changes.new.hash.is_some() && !anew {
        return Err(Failure::usage(
            "--hash says how a new password is kept; add --password or --password-file FILE",
        ));
    }
    let (place, mut store) = store(&changes.config)?;
    let name = canonical(&changes.name);
    let found = usher_aaa::store::user_of(store.as_mut(), &name).map_err(Failure::failed)?;
    let mut user = found
        .ok_or_else(|| Failure::usage(format!("there is no user {name}; add it with: usher aaa user add")))?;
    // The rows of groups are the groups' own.
    user.groups
        .iter_mut()
        .for_each(|group| *group = GroupRows { name: group.name.clone(), ..GroupRows::default() });
    for attribute in &changes.remove {
        let rows = user.check.len() + user.reply.len();
        let stays = |row: &Row| !row.attribute.eq_ignore_ascii_case(attribute);
        user.check.retain(stays);
        user.reply.retain(stays);
        if user.check.len() + user.reply.len() == rows {
            return Err(Failure::usage(format!(
                "{name} has no row of {attribute}; see: usher aaa user show {name}"
            )));
        }
    }
    replace(&mut user.check, rows(&changes.check)?);
    replace(&mut user.reply, rows(&changes.reply)?);
    if anew || changes.new.no_password {
        user.check.retain(|row| !admin::is_secret(&row.attribute, &place.loaded.dictionary));
    }
    if anew {
        user.check.insert(0, password(&changes.new)?);
    }
    if !changes.group.is_empty() {
        user.groups = groups(&changes.group);
    }
    put(&place, store.as_mut(), &name, user)?;
    forgotten(output, &place, &name, "changed", open)
}

/// Puts rows in the place of those of the same attributes.
fn replace(rows: &mut Vec<Row>, new: Vec<Row>) {
    rows.retain(|row| !new.iter().any(|new| new.attribute.eq_ignore_ascii_case(&row.attribute)));
    rows.extend(new);
}

/// Puts a user into the store, in one spelling alone.
fn put(place: &Installation, store: &mut dyn Store, name: &str, mut user: UserRows) -> Result<(), Failure> {
    if user.check.is_empty() && user.reply.is_empty() && user.groups.is_empty() {
        // The tables know only whoever has a row; this one says what holds without it.
        user.reply.extend(usher_aaa_config::row("Fall-Through = Yes"));
    }
    admin::understood(&user, &place.loaded.dictionary).map_err(Failure::usage)?;
    store.put_user(name, &user).map_err(Failure::failed)?;
    for other in usher_aaa::spellings(name).iter().filter(|other| *other != name) {
        store.delete_user(other).map_err(Failure::failed)?;
    }
    Ok(())
}

/// Has the running server, where there is one, forget a user, and says what was done.
fn forgotten(
    output: &Output,
    place: &Installation,
    name: &str,
    done: &str,
    OpenSessions { disconnect }: OpenSessions,
) -> Result<(), Failure> {
    let request = Request::Forget { user: Some(name.to_owned()), disconnect };
    let told = match control::ask(&place.control_socket(), &request) {
        Err(ControlError::NotRunning { .. }) if disconnect => {
            Err("no server runs here that could ask the NASs to end sessions; see: usher aaa session list"
                .to_owned())
        }
        Err(ControlError::NotRunning { .. }) | Ok(Answer::Done) => Ok(None),
        Ok(Answer::Disconnected { ended, failures }) if failures.is_empty() => Ok(Some(ended)),
        Ok(Answer::Disconnected { ended, failures }) => Err(format!(
            "sessions that have ended, as their NASs say: {ended}; not ended: {}",
            failures.join("; ")
        )),
        Ok(other) => Err(format!("the server says what was not asked: {other:?}")),
        Err(error) => Err(format!("the running server was not told: {error}")),
    };
    let ended = told.map_err(|what| Failure::failed(format!("{name} {done}, but {what}")))?;
    let text = ended.map_or_else(
        || format!("{name} {done}\n"),
        |n| format!("{name} {done}; sessions that have ended, as their NASs say: {n}\n"),
    );
    said(output, &json!({ "user": name, "done": done, "disconnected": ended }), &text)
}

pub(super) fn said(output: &Output, value: &Value, text: &str) -> Result<(), Failure> {
    if output.json { output.value(value) } else { output.text(text) }
}

fn list(output: &Output, config: &Config) -> Result<(), Failure> {
    let (_, mut store) = store(config)?;
    let mut names: Vec<String> = Vec::new();
    loop {
        let page = store.user_names(names.last().map(String::as_str), PAGE).map_err(Failure::failed)?;
        let last = page.len() < PAGE as usize;
        names.extend(page);
        if last {
            break;
        }
    }
    let text: String = names.iter().map(|n| format!("{n}\n")).collect();
    said(output, &json!(names), &text)
}

fn show(output: &Output, name: &str, config: &Config) -> Result<(), Failure> {
    let (place, mut store) = store(config)?;
    let user = usher_aaa::store::user_of(store.as_mut(), name).map_err(Failure::failed)?;
    let user = user.ok_or_else(|| Failure::failed(format!("there is no user {name}")))?;
    let mut lines: Vec<[String; 4]> = Vec::new();
    let mut add = |table: &str, rows: &[Row]| {
        for row in rows {
            let value = if admin::is_secret(&row.attribute, &place.loaded.dictionary) {
                "(not shown)"
            } else {
                &row.value
            };
            lines.push([
                table.to_owned(),
                row.attribute.clone(),
                row.op.as_str().to_owned(),
                value.to_owned(),
            ]);
        }
    };
    add("check", &user.check);
    add("reply", &user.reply);
    for group in &user.groups {
        add(&format!("check of {}", group.name), &group.check);
        add(&format!("reply of {}", group.name), &group.reply);
    }
    let groups: Vec<&str> = user.groups.iter().map(|g| g.name.as_str()).collect();
    if output.json {
        let rows: Vec<Value> = lines
            .iter()
            .map(|[t, a, o, v]| json!({ "table": t, "attribute": a, "op": o, "value": v }))
            .collect();
        return output.value(&json!({ "user": name, "groups": groups, "rows": rows }));
    }
    let mut table: Vec<Vec<String>> = lines.into_iter().map(Vec::from).collect();
    table.extend(groups.iter().map(|g| vec!["group".to_owned(), (*g).to_owned()]));
    output.text(&columns(&table))
}

fn del(output: &Output, name: &str, config: &Config, open: OpenSessions) -> Result<(), Failure> {
    let (place, mut store) = store(config)?;
    let mut known = false;
    for spelt in usher_aaa::spellings(name) {
        known |= store.delete_user(&spelt).map_err(Failure::failed)?;
    }
    if !known {
        return Err(Failure::failed(format!("there is no user {name}")));
    }
    forgotten(output, &place, name, "removed", open)
}
