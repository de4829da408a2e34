//! `usher aaa client`.

use super::args::{ClientCommand, Config};
use super::user::store;
use super::{secret, tell};
use crate::output::{Failure, Output, columns};
use serde_json::json;
use usher_aaa::store::{ClientRow, Demand};
use usher_config::Prefix;
use usher_control::Request;
use usher_daemon::admin;

pub(super) fn client(output: &Output, command: ClientCommand) -> Result<(), Failure> {
    match command {
        ClientCommand::Add { prefix, name, secret_file, no_message_authenticator, config } => {
            Prefix::parse(&prefix).map_err(Failure::usage)?;
            let (secret, made) = match &secret_file {
                Some(file) => (secret::read(Some(file), "secret")?, false),
                None => (admin::new_secret().map_err(Failure::failed)?, true),
            };
            let demand = if no_message_authenticator { Demand::No } else { Demand::Yes };
            let row = ClientRow {
                nasname: prefix.clone(),
                shortname: name.unwrap_or_else(|| prefix.clone()),
                kind: "other".to_owned(),
                secret: secret.clone(),
                require_message_authenticator: demand,
                ..ClientRow::default()
            };
            let (place, mut store) = store(&config)?;
            store.put_client(&row).map_err(Failure::failed)?;
            tell(output, &place, &Request::Reload);
            if output.json {
                let shown = made.then_some(&secret);
                return output.value(&json!({ "client": prefix, "done": "added", "secret": shown }));
            }
            let shown = if made { format!("its secret, shown once: {secret}\n") } else { String::new() };
            output.text(&format!("{prefix} added\n{shown}"))
        }
        ClientCommand::List(config) => list(output, &config),
        ClientCommand::Del(named) => {
            let (place, mut store) = store(&named.config)?;
            if !store.delete_client(&named.name).map_err(Failure::failed)? {
                return Err(Failure::failed(format!("there is no client {}", named.name)));
            }
            tell(output, &place, &Request::Reload);
            if output.json {
                return output.value(&json!({ "client": named.name, "done": "removed" }));
            }
            output.text(&format!("{} removed\n", named.name))
        }
        ClientCommand::Import(import) => super::import::clients(output, &import),
    }
}

/// Those of the file, then those of the store; secrets are not shown.
fn list(output: &Output, config: &Config) -> Result<(), Failure> {
    let (place, mut store) = store(config)?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    for client in &place.loaded.clients {
        rows.push(vec![client.prefix.to_string(), client.name.clone(), "file".to_owned()]);
    }
    for row in store.clients().map_err(Failure::failed)? {
        rows.push(vec![row.nasname, row.shortname, "store".to_owned()]);
    }
    if output.json {
        let all: Vec<_> =
            rows.iter().map(|r| json!({ "client": r[0], "name": r[1], "from": r[2] })).collect();
        return output.value(&json!(all));
    }
    output.text(&columns(&rows))
}
