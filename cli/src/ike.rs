//! `usher ike`: an IKEv2 gateway and client.

use crate::output::{CommandFailure, ConsoleOutput, format_columns, format_duration, format_octets};
use crate::service::{ConfigImportResult, import_foreign_file, read_included_files, report_config_check};
use crate::session_id::{SessionIdentifiers, find_session, shortest_unique_prefixes};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use usher_gateway::config::DEFAULT_PATH;
use usher_ike_daemon::{
    self as ike, IkeControlReply, IkeControlRequest, IkeError, IkeRunMode, IkeSa, IkeStatus,
};

#[derive(Subcommand, Debug)]
pub(crate) enum IkeCommand {
    /// Run the gateway until stopped: admit initiators, and start the connections that the configuration starts.
    #[command(after_help = "Examples:
  usher ike serve
  usher ike serve --config ./ike.toml

Without a configuration, the gateway admits no initiator. Ports 500 and 4500 need root or
CAP_NET_BIND_SERVICE. The tunnel device needs root or CAP_NET_ADMIN, and ESP without UDP needs root or
CAP_NET_RAW. SIGHUP reloads connections, users, keys and certificates. SIGTERM ends all IKE_SAs and stops
the gateway.")]
    Serve {
        #[command(flatten)]
        config: IkeConfigArgs,
    },
    /// Start one connection of the configuration.
    #[command(after_help = "Examples:
  usher ike connect home
  usher ike connect home --keep --config ./ike.toml

If a gateway runs with the same configuration, it starts the connection and keeps it. Otherwise this program
starts the connection, and runs until the connection ends or you interrupt it.
Exit code 1: the connection was not established.")]
    Connect {
        /// The connection's name.
        connection: String,
        /// Start the connection again whenever it ends.
        #[arg(long)]
        keep: bool,
        #[command(flatten)]
        config: IkeConfigArgs,
    },
    /// Show the IKE_SAs and CHILD_SAs of a running gateway.
    #[command(after_help = "Examples:\n  usher ike status\n  usher ike status --json")]
    Status {
        #[command(flatten)]
        config: IkeConfigArgs,
    },
    /// Rekey IKE_SAs of a running gateway, or their CHILD_SAs.
    #[command(after_help = "Examples:
  usher ike rekey
  usher ike rekey ann@example.org
  usher ike rekey '#3' --children")]
    Rekey {
        /// A connection, identity, user, virtual address, session id of `usher ike status`, or #NUMBER [default:
        /// all].
        which: Option<String>,
        /// Rekey their CHILD_SAs instead.
        #[arg(long)]
        children: bool,
        #[command(flatten)]
        config: IkeConfigArgs,
    },
    /// End IKE_SAs of a running gateway.
    #[command(after_help = "Examples:
  usher ike down --all
  usher ike down home
  usher ike down '#3'

The gateway does not restart a connection of the configuration until `usher ike connect` starts it.")]
    Down {
        /// A connection, identity, user, virtual address, session id of `usher ike status`, or #NUMBER.
        #[arg(required_unless_present = "all")]
        which: Option<String>,
        /// End all IKE_SAs.
        #[arg(long, conflicts_with = "which")]
        all: bool,
        #[command(flatten)]
        config: IkeConfigArgs,
    },
    /// Convert strongSwan's swanctl.conf into a configuration of this gateway, and report each unsupported line.
    #[command(after_help = "Example:\n  usher ike import /etc/swanctl/swanctl.conf > ike.toml")]
    Import {
        /// The swanctl.conf file.
        file: PathBuf,
    },
    /// Check a configuration file without serving, and report each fault with its line.
    #[command(after_help = "Examples:\n  usher ike check\n  usher ike check ./ike.toml")]
    Check {
        /// The configuration file [default: /etc/usher/ike.toml].
        file: Option<PathBuf>,
    },
}

/// The configuration.
#[derive(Args, Clone, Debug)]
pub(crate) struct IkeConfigArgs {
    /// The configuration file [default: /etc/usher/ike.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run_ike_command(output: &ConsoleOutput, command: IkeCommand) -> Result<(), CommandFailure> {
    match command {
        IkeCommand::Serve { config } => {
            ike::run_ike(config.config, &IkeRunMode::Serve, usher_aaa_daemon::start_embedded)
                .map_err(map_ike_error)
        }
        IkeCommand::Connect { connection, keep, config } => {
            start_connection(output, connection, keep, config)
        }
        IkeCommand::Status { config } => match query_gateway(&config, &IkeControlRequest::Status)? {
            IkeControlReply::Status(status) => show_gateway_status(output, &status),
            other => Err(unexpected_answer(&other)),
        },
        IkeCommand::Rekey { which, children, config } => {
            let named = session_meant(&config, which.as_deref())?;
            let answer = query_gateway(&config, &IkeControlRequest::Rekey { which: named, children })?;
            report_affected_ike_sas(output, which.as_deref(), &answer, "replaced")
        }
        IkeCommand::Down { which, all: _, config } => {
            let named = session_meant(&config, which.as_deref())?;
            let answer = query_gateway(&config, &IkeControlRequest::Down { which: named })?;
            report_affected_ike_sas(output, which.as_deref(), &answer, "ended")
        }
        IkeCommand::Import { file } => {
            let include = &mut |by: Option<&str>, pattern: &str| {
                read_included_files(by.map_or(&*file, Path::new), pattern)
            };
            import_foreign_file(output, &file, |text| {
                let usher_gateway::SwanctlImport { text, left, stops } =
                    usher_gateway::import_swanctl(text, include)?;
                Ok::<_, usher_gateway::SwanctlError>(ConfigImportResult { text, left, stops })
            })
        }
        IkeCommand::Check { file } => {
            let file = file.unwrap_or_else(|| DEFAULT_PATH.into());
            report_config_check(
                output,
                &file,
                ike::check_config(&file, usher_aaa_daemon::check_embedded_config),
            )
        }
    }
}

fn map_ike_error(error: IkeError) -> CommandFailure {
    match error {
        IkeError::Serve(_)
        | IkeError::NotConnected(_)
        | IkeError::Plane(_)
        | IkeError::PlaneFailed
        | IkeError::EmbeddedServerFailed => CommandFailure::runtime_error(error),
        other => CommandFailure::usage_error(other),
    }
}

fn unexpected_answer(answer: &IkeControlReply) -> CommandFailure {
    match answer {
        IkeControlReply::Failed { message } => CommandFailure::runtime_error(message),
        _ => CommandFailure::runtime_error(
            "unexpected reply from the gateway; check that it has the version of this program",
        ),
    }
}

fn query_gateway(
    config: &IkeConfigArgs,
    request: &IkeControlRequest,
) -> Result<IkeControlReply, CommandFailure> {
    let path = ike::control_path(config.config.as_deref());
    ike::request_gateway(&path, request).map_err(CommandFailure::runtime_error)
}

/// The subject of a query to a running gateway: the full id where the text begins a session's id.
fn session_meant(config: &IkeConfigArgs, which: Option<&str>) -> Result<Option<String>, CommandFailure> {
    let Some(which) = which else { return Ok(None) };
    let IkeControlReply::Status(status) = query_gateway(config, &IkeControlRequest::Status)? else {
        return Ok(Some(which.to_owned()));
    };
    let called = |sa: &IkeSa| [&*sa.connection, &*sa.identity, &*sa.user].contains(&which);
    if which.starts_with('#') || status.sas.iter().any(called) {
        return Ok(Some(which.to_owned()));
    }
    let names = |sa: &IkeSa| SessionIdentifiers {
        id: sa.session.clone(),
        other_ids: Vec::new(),
        description: format!("#{}  {}  {}", sa.id, sa.connection, sa.identity),
    };
    let names: Vec<_> = status.sas.iter().map(names).collect();
    let found = find_session(&names, which)?;
    Ok(Some(found.map_or_else(|| which.to_owned(), |n| names[n].id.clone())))
}

fn start_connection(
    output: &ConsoleOutput,
    connection: String,
    keep: bool,
    config: IkeConfigArgs,
) -> Result<(), CommandFailure> {
    let path = ike::control_path(config.config.as_deref());
    match ike::request_gateway(&path, &IkeControlRequest::Connect { connection: connection.clone() }) {
        Ok(IkeControlReply::Begun { sa }) if output.json => {
            output.print_json(&json!({ "connection": connection, "sa": sa }))
        }
        Ok(IkeControlReply::Begun { sa }) => output
            .print_text(&format!("{connection}: the gateway starts it as #{sa}; see: usher ike status\n")),
        Ok(other) => Err(unexpected_answer(&other)),
        // No gateway runs: this program is the client.
        Err(_) => {
            let mode = IkeRunMode::Connect { connection, reconnects: keep };
            ike::run_ike(config.config, &mode, usher_aaa_daemon::start_embedded).map_err(map_ike_error)
        }
    }
}

fn report_affected_ike_sas(
    output: &ConsoleOutput,
    which: Option<&str>,
    answer: &IkeControlReply,
    what: &str,
) -> Result<(), CommandFailure> {
    match answer {
        IkeControlReply::Told { sas } if output.json => output.print_json(&json!({ "sas": sas })),
        IkeControlReply::Told { sas: 0 } => match which {
            Some(which) => Err(CommandFailure::runtime_error(format!(
                "no IKE_SA matches {which}; see: usher ike status"
            ))),
            None => output.print_text("no IKE_SA\n"),
        },
        IkeControlReply::Told { sas } => output.print_text(&format!("SAs to be {what}: {sas}\n")),
        other => Err(unexpected_answer(other)),
    }
}

fn show_gateway_status(output: &ConsoleOutput, status: &IkeStatus) -> Result<(), CommandFailure> {
    if output.json {
        let value = serde_json::to_value(status).map_err(CommandFailure::runtime_error)?;
        return output.print_json(&value);
    }
    let mut text = format!("{} IKE_SAs, {} half open", status.sas.len(), status.half_open);
    for pool in &status.pools {
        text.push_str(&format!("; pool {}: {} of {}", pool.name, pool.used, pool.addresses));
    }
    text.push('\n');
    let short = shortest_unique_prefixes(status.sas.iter().map(|sa| &*sa.session));
    let rows = status.sas.iter().zip(short).flat_map(|(sa, short)| sa_rows(sa, short));
    text.push_str(&format_columns(&rows.collect::<Vec<_>>()));
    output.print_text(&text)
}

/// An IKE_SA and its CHILD_SAs, a row each.
fn sa_rows(sa: &IkeSa, short: String) -> Vec<Vec<String>> {
    let lasted = |seconds: u64| format_duration(seconds as f64);
    let addresses: Vec<String> = sa.addresses.iter().map(ToString::to_string).collect();
    let first = vec![
        format!("#{} {short}", sa.id),
        sa.connection.clone(),
        sa.identity.clone(),
        sa.remote.to_string(),
        sa.role.clone(),
        lasted(sa.lasted),
        addresses.join(" "),
    ];
    let dns: Vec<String> = sa.dns.iter().map(ToString::to_string).collect();
    let told = (!dns.is_empty()).then(|| {
        let domains = if sa.domains.is_empty() { "everything".to_owned() } else { sa.domains.join(" ") };
        vec![String::new(), "  name servers".to_owned(), dns.join(" "), format!("for {domains}")]
    });
    let child = |child: &ike::ChildSa| {
        let within = if child.encapsulated { "ESP in UDP" } else { "ESP" };
        let mode = if child.mode == "transport" { ", transport mode" } else { "" };
        vec![
            String::new(),
            format!("  {}", child.name),
            format!("{} === {}", child.local.join(" "), child.remote.join(" ")),
            format!("{}_i {}_o", child.inbound, child.outbound),
            format!("{within}{mode}"),
            lasted(child.lasted),
            format!(
                "{} in {} received, {} in {} sent",
                format_octets(child.carried.received_octets),
                child.carried.received_packets,
                format_octets(child.carried.sent_octets),
                child.carried.sent_packets
            ),
        ]
    };
    std::iter::once(first).chain(told).chain(sa.children.iter().map(child)).collect()
}
