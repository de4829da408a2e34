//! `usher aaa group`.

use super::args::GroupCommand;
use super::user::{open_user_store, parse_rows, print_result};
use super::{notify_aaa_server, open_installation};
use crate::output::{CommandFailure, ConsoleOutput};
use serde_json::json;
use usher_aaa::store::{GroupRows, UserRows};
use usher_aaa_daemon::admin;
use usher_aaa_daemon::control::ControlRequest;

pub(super) fn run_group_command(output: &ConsoleOutput, command: GroupCommand) -> Result<(), CommandFailure> {
    let GroupCommand::Set { name, check, reply, config } = command;
    let group = GroupRows { name: name.clone(), check: parse_rows(&check)?, reply: parse_rows(&reply)? };
    let place = open_installation(&config)?;
    let rows = UserRows { groups: vec![group.clone()], ..UserRows::default() };
    admin::check_rows(&rows, &place.loaded.dictionary).map_err(CommandFailure::usage_error)?;
    open_user_store(&place)?.put_group(&group).map_err(CommandFailure::runtime_error)?;
    // The server caches the rows of the group's users, and these are now stale.
    notify_aaa_server(output, &place, &ControlRequest::Forget { user: None, disconnect: false });
    print_result(output, &json!({ "group": name, "done": "set" }), &format!("{name} set\n"))
}
