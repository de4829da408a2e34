//! `usher aaa group`.

use super::args::GroupCommand;
use super::user::{rows, said, store_of};
use super::{place, tell};
use crate::output::{Failure, Output};
use serde_json::json;
use usher_aaa::store::{GroupRows, UserRows};
use usher_control::Request;
use usher_daemon::admin;

pub(super) fn group(output: &Output, command: GroupCommand) -> Result<(), Failure> {
    let GroupCommand::Set { name, check, reply, config } = command;
    let group = GroupRows { name: name.clone(), check: rows(&check)?, reply: rows(&reply)? };
    let place = place(&config)?;
    let rows = UserRows { groups: vec![group.clone()], ..UserRows::default() };
    admin::understood(&rows, &place.loaded.dictionary).map_err(Failure::usage)?;
    store_of(&place)?.put_group(&group).map_err(Failure::failed)?;
    // Whoever is of it may be remembered with what it said before.
    tell(output, &place, &Request::Forget { user: None, disconnect: false });
    said(output, &json!({ "group": name, "done": "set" }), &format!("{name} set\n"))
}
