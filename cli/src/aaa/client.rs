//! `usher aaa client`.

use super::args::{AaaConfigArgs, ClientCommand};
use super::user::open_store;
use super::{notify_aaa_server, secret};
use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use serde_json::json;
use usher_aaa::store::{ClientRequirement, ClientRow};
use usher_aaa_daemon::admin;
use usher_aaa_daemon::control::ControlRequest;
use usher_config::Prefix;

pub(super) fn run_client_command(
    output: &ConsoleOutput,
    command: ClientCommand,
) -> Result<(), CommandFailure> {
    match command {
        ClientCommand::Add { prefix, name, secret_file, no_message_authenticator, config } => {
            Prefix::parse(&prefix).map_err(CommandFailure::usage_error)?;
            let (secret, made) = match &secret_file {
                Some(file) => (secret::read_secret(Some(file), "secret")?, false),
                None => (admin::generate_hex_secret().map_err(CommandFailure::runtime_error)?, true),
            };
            let demand =
                if no_message_authenticator { ClientRequirement::No } else { ClientRequirement::Yes };
            let row = ClientRow {
                nasname: prefix.clone(),
                shortname: name.unwrap_or_else(|| prefix.clone()),
                kind: "other".to_owned(),
                secret: secret.clone(),
                require_message_authenticator: demand,
                ..ClientRow::default()
            };
            let (place, mut store) = open_store(&config)?;
            store.put_client(&row).map_err(CommandFailure::runtime_error)?;
            notify_aaa_server(output, &place, &ControlRequest::Reload);
            if output.json {
                let shown = made.then_some(&secret);
                return output.print_json(&json!({ "client": prefix, "done": "added", "secret": shown }));
            }
            let shown = if made { format!("its secret, shown once: {secret}\n") } else { String::new() };
            output.print_text(&format!("{prefix} added\n{shown}"))
        }
        ClientCommand::List(config) => list_clients(output, &config),
        ClientCommand::Del(named) => {
            let (place, mut store) = open_store(&named.config)?;
            if !store.delete_client(&named.name).map_err(CommandFailure::runtime_error)? {
                return Err(CommandFailure::runtime_error(format!("there is no client {}", named.name)));
            }
            notify_aaa_server(output, &place, &ControlRequest::Reload);
            if output.json {
                return output.print_json(&json!({ "client": named.name, "done": "removed" }));
            }
            output.print_text(&format!("{} removed\n", named.name))
        }
        ClientCommand::Import(import) => super::import::import_clients(output, &import),
    }
}

/// Lists the clients of the file, then those of the store, without their secrets.
fn list_clients(output: &ConsoleOutput, config: &AaaConfigArgs) -> Result<(), CommandFailure> {
    let (place, mut store) = open_store(config)?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    for client in &place.loaded.clients {
        rows.push(vec![client.prefix.to_string(), client.name.clone(), "file".to_owned()]);
    }
    for row in store.list_clients().map_err(CommandFailure::runtime_error)? {
        rows.push(vec![row.nasname, row.shortname, "store".to_owned()]);
    }
    if output.json {
        let all: Vec<_> =
            rows.iter().map(|r| json!({ "client": r[0], "name": r[1], "from": r[2] })).collect();
        return output.print_json(&json!(all));
    }
    output.print_text(&format_columns(&rows))
}
