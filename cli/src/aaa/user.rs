//! `usher aaa user`.

use super::args::{
    AaaConfigArgs, PasswordArgs, PasswordStorage, SessionDisconnectArgs, UserCommand, UserRows as RowArgs,
    UserUpdateArgs,
};
use super::{open_installation, secret};
use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use serde_json::{Value, json};
use usher_aaa::store::{AttributeRow, GroupRows, Store, UserRows};
use usher_aaa_daemon::control::{self, ControlError, ControlReply, ControlRequest};
use usher_aaa_daemon::{ServerInstallation, admin};

/// Names per query.
const PAGE: u32 = 1000;

pub(super) fn run_user_command(output: &ConsoleOutput, command: UserCommand) -> Result<(), CommandFailure> {
    match command {
        UserCommand::Add(typed) => add_user(output, &typed),
        UserCommand::Set { changes, open } => change_user(output, &changes, open),
        UserCommand::List(config) => list_users(output, &config),
        UserCommand::Show(named) => show_user(output, &named.name, &named.config),
        UserCommand::Del { named, open } => delete_user(output, &named.name, &named.config, open),
        UserCommand::Import(import) => super::import::import_users(output, &import),
    }
}

/// Opens the store. Creates its folder if needed.
pub(super) fn open_store(
    config: &AaaConfigArgs,
) -> Result<(ServerInstallation, Box<dyn Store>), CommandFailure> {
    let place = open_installation(config)?;
    let store = open_user_store(&place)?;
    Ok((place, store))
}

/// Opens the store of an installation. Creates its folder if needed. Callers validate their arguments first.
pub(super) fn open_user_store(place: &ServerInstallation) -> Result<Box<dyn Store>, CommandFailure> {
    place.create_state_dir().map_err(CommandFailure::runtime_error)?;
    place.open_store().map_err(CommandFailure::runtime_error)
}

pub(super) fn parse_rows(texts: &[String]) -> Result<Vec<AttributeRow>, CommandFailure> {
    let read = |text: &String| {
        usher_aaa_config::parse_row(text).ok_or_else(|| {
            CommandFailure::usage_error(format!(
                "\"{text}\" is not ATTRIBUTE OPERATOR VALUE, such as 'Session-Timeout = 3600'"
            ))
        })
    };
    texts.iter().map(read).collect()
}

/// Returns the form of a user name that the store uses.
fn canonical_user_name(name: &str) -> String {
    usher_aaa::name_spellings(name).into_iter().next().unwrap_or_else(|| name.to_owned())
}

fn empty_group_rows(names: &[String]) -> Vec<GroupRows> {
    names.iter().map(|name| GroupRows { name: name.clone(), ..GroupRows::default() }).collect()
}

fn read_password_row(typed: &PasswordArgs) -> Result<AttributeRow, CommandFailure> {
    let password = secret::read_secret(typed.password_file.as_deref(), "password")?;
    let kept = match typed.hash.unwrap_or_default() {
        PasswordStorage::Clear => admin::PasswordForm::Clear,
        PasswordStorage::Nt => admin::PasswordForm::Nt,
        PasswordStorage::Argon2 => admin::PasswordForm::Argon2,
    };
    admin::password_row(&password, kept).map_err(CommandFailure::runtime_error)
}

fn add_user(output: &ConsoleOutput, typed: &RowArgs) -> Result<(), CommandFailure> {
    let place = open_installation(&typed.config)?;
    let (mut check, reply) = (parse_rows(&typed.check)?, parse_rows(&typed.reply)?);
    let typed_rows = UserRows { check: check.clone(), reply: reply.clone(), groups: Vec::new() };
    admin::check_rows(&typed_rows, &place.loaded.dictionary).map_err(CommandFailure::usage_error)?;
    let mut store = open_user_store(&place)?;
    let name = canonical_user_name(&typed.name);
    if usher_aaa::store::user_of(store.as_mut(), &name).map_err(CommandFailure::runtime_error)?.is_some() {
        return Err(CommandFailure::usage_error(format!(
            "user {name} already exists; change it with: usher aaa user set"
        )));
    }
    if !typed.password.no_password {
        check.insert(0, read_password_row(&typed.password)?);
    }
    let user = UserRows { check, reply, groups: empty_group_rows(&typed.group) };
    put_user_rows(&place, store.as_mut(), &name, user)?;
    propagate_user_change(output, &place, &name, "added", SessionDisconnectArgs { disconnect: false })
}

fn change_user(
    output: &ConsoleOutput,
    changes: &UserUpdateArgs,
    open: SessionDisconnectArgs,
) -> Result<(), CommandFailure> {
    let anew = changes.password || changes.new.password_file.is_some();
    if changes.new.hash.is_some() && !anew {
        return Err(CommandFailure::usage_error(
            "--hash needs a new password; add --password or --password-file FILE",
        ));
    }
    let (place, mut store) = open_store(&changes.config)?;
    let name = canonical_user_name(&changes.name);
    let found = usher_aaa::store::user_of(store.as_mut(), &name).map_err(CommandFailure::runtime_error)?;
    let mut user = found.ok_or_else(|| {
        CommandFailure::usage_error(format!("there is no user {name}; add it with: usher aaa user add"))
    })?;
    // Drop the rows of the user's groups, because they belong to the groups and not to the user.
    user.groups
        .iter_mut()
        .for_each(|group| *group = GroupRows { name: group.name.clone(), ..GroupRows::default() });
    for attribute in &changes.remove {
        let rows = user.check.len() + user.reply.len();
        let stays = |row: &AttributeRow| !row.attribute.eq_ignore_ascii_case(attribute);
        user.check.retain(stays);
        user.reply.retain(stays);
        if user.check.len() + user.reply.len() == rows {
            return Err(CommandFailure::usage_error(format!(
                "{name} has no row of {attribute}; see: usher aaa user show {name}"
            )));
        }
    }
    replace_attribute_rows(&mut user.check, parse_rows(&changes.check)?);
    replace_attribute_rows(&mut user.reply, parse_rows(&changes.reply)?);
    if anew || changes.new.no_password {
        user.check.retain(|row| !admin::is_secret(&row.attribute, &place.loaded.dictionary));
    }
    if anew {
        user.check.insert(0, read_password_row(&changes.new)?);
    }
    if !changes.group.is_empty() {
        user.groups = empty_group_rows(&changes.group);
    }
    put_user_rows(&place, store.as_mut(), &name, user)?;
    propagate_user_change(output, &place, &name, "changed", open)
}

/// Replaces the rows of the new rows' attributes.
fn replace_attribute_rows(rows: &mut Vec<AttributeRow>, new: Vec<AttributeRow>) {
    rows.retain(|row| !new.iter().any(|new| new.attribute.eq_ignore_ascii_case(&row.attribute)));
    rows.extend(new);
}

/// Stores a user, and removes the entry of the other spelling.
fn put_user_rows(
    place: &ServerInstallation,
    store: &mut dyn Store,
    name: &str,
    mut user: UserRows,
) -> Result<(), CommandFailure> {
    if user.check.is_empty() && user.reply.is_empty() && user.groups.is_empty() {
        // A user exists in the tables only if it has a row. This row states the default, so it changes nothing.
        user.reply.extend(usher_aaa_config::parse_row("Fall-Through = Yes"));
    }
    admin::check_rows(&user, &place.loaded.dictionary).map_err(CommandFailure::usage_error)?;
    store.put_user(name, &user).map_err(CommandFailure::runtime_error)?;
    for other in usher_aaa::name_spellings(name).iter().filter(|other| *other != name) {
        store.delete_user(other).map_err(CommandFailure::runtime_error)?;
    }
    Ok(())
}

/// Drops a user from the running server's cache, if a server runs, and reports the result.
fn propagate_user_change(
    output: &ConsoleOutput,
    place: &ServerInstallation,
    name: &str,
    done: &str,
    SessionDisconnectArgs { disconnect }: SessionDisconnectArgs,
) -> Result<(), CommandFailure> {
    let request = ControlRequest::Forget { user: Some(name.to_owned()), disconnect };
    let told = match control::request_reply(&place.control_socket(), &request) {
        Err(ControlError::NotRunning { .. }) if disconnect => {
            Err("no server is running to ask the NASs to end the sessions; see: usher aaa session list"
                .to_owned())
        }
        Err(ControlError::NotRunning { .. }) | Ok(ControlReply::Done) => Ok(None),
        Ok(ControlReply::Disconnected { ended, failures }) if failures.is_empty() => Ok(Some(ended)),
        Ok(ControlReply::Disconnected { ended, failures }) => {
            Err(format!("sessions ended, as their NASs confirm: {ended}; not ended: {}", failures.join("; ")))
        }
        Ok(other) => Err(format!("unexpected reply from the server: {other:?}")),
        Err(error) => Err(format!("the running server cannot be notified: {error}")),
    };
    let ended = told.map_err(|what| CommandFailure::runtime_error(format!("{name} {done}, but {what}")))?;
    let text = ended.map_or_else(
        || format!("{name} {done}\n"),
        |n| format!("{name} {done}; sessions ended, as their NASs confirm: {n}\n"),
    );
    print_result(output, &json!({ "user": name, "done": done, "disconnected": ended }), &text)
}

pub(super) fn print_result(output: &ConsoleOutput, value: &Value, text: &str) -> Result<(), CommandFailure> {
    if output.json { output.print_json(value) } else { output.print_text(text) }
}

fn list_users(output: &ConsoleOutput, config: &AaaConfigArgs) -> Result<(), CommandFailure> {
    let (_, mut store) = open_store(config)?;
    let mut names: Vec<String> = Vec::new();
    loop {
        let page = store
            .user_names(names.last().map(String::as_str), PAGE)
            .map_err(CommandFailure::runtime_error)?;
        let last = page.len() < PAGE as usize;
        names.extend(page);
        if last {
            break;
        }
    }
    let text: String = names.iter().map(|n| format!("{n}\n")).collect();
    print_result(output, &json!(names), &text)
}

fn show_user(output: &ConsoleOutput, name: &str, config: &AaaConfigArgs) -> Result<(), CommandFailure> {
    let (place, mut store) = open_store(config)?;
    let user = usher_aaa::store::user_of(store.as_mut(), name).map_err(CommandFailure::runtime_error)?;
    let user = user.ok_or_else(|| CommandFailure::runtime_error(format!("there is no user {name}")))?;
    let mut lines: Vec<[String; 4]> = Vec::new();
    let mut add = |table: &str, rows: &[AttributeRow]| {
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
        return output.print_json(&json!({ "user": name, "groups": groups, "rows": rows }));
    }
    let mut table: Vec<Vec<String>> = lines.into_iter().map(Vec::from).collect();
    table.extend(groups.iter().map(|g| vec!["group".to_owned(), (*g).to_owned()]));
    output.print_text(&format_columns(&table))
}

fn delete_user(
    output: &ConsoleOutput,
    name: &str,
    config: &AaaConfigArgs,
    open: SessionDisconnectArgs,
) -> Result<(), CommandFailure> {
    let (place, mut store) = open_store(config)?;
    let mut known = false;
    for spelt in usher_aaa::name_spellings(name) {
        known |= store.delete_user(&spelt).map_err(CommandFailure::runtime_error)?;
    }
    if !known {
        return Err(CommandFailure::runtime_error(format!("there is no user {name}")));
    }
    propagate_user_change(output, &place, name, "removed", open)
}
