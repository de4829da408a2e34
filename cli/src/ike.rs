//! `usher ike`: an IKEv2 gateway and client.

use crate::output::{Failure, Output, columns, duration, octets};
use crate::service::{ImportedFile, check, import, included};
use crate::session_id::{SessionNames, find_session, short_ids};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use usher_gateway::config::DEFAULT_PATH;
use usher_host::ike::{self, Answer, IkeError, IkeSa, Mode, Request, Status};

#[derive(Subcommand, Debug)]
pub(crate) enum IkeCommand {
    /// Let others in, and begin what the configuration begins, until told to end.
    #[command(after_help = "Examples:
  usher ike serve
  usher ike serve --config ./ike.toml

Without a configuration nobody is let in. Ports 500 and 4500 need root or CAP_NET_BIND_SERVICE, the device that packets go by needs
root or CAP_NET_ADMIN, and ESP without UDP root or CAP_NET_RAW. SIGHUP has connections, users, keys
and certificates read again, SIGTERM ends all IKE_SAs and the gateway.")]
    Serve {
        #[command(flatten)]
        config: Config,
    },
    /// Begin one connection of the configuration.
    #[command(after_help = "Examples:
  usher ike connect home
  usher ike connect home --keep --config ./ike.toml

Where a gateway runs by the same configuration it is asked to begin the connection, and goes on with it. Otherwise this program
begins it and stays until it has ended, or until it is interrupted. Ends with code 1 when the connection does not come to be.")]
    Connect {
        /// The connection's name.
        connection: String,
        /// Begin it again whenever it ends.
        #[arg(long)]
        keep: bool,
        #[command(flatten)]
        config: Config,
    },
    /// Show which IKE_SAs and CHILD_SAs a running gateway has.
    #[command(after_help = "Examples:\n  usher ike status\n  usher ike status --json")]
    Status {
        #[command(flatten)]
        config: Config,
    },
    /// Have IKE_SAs of a running gateway, or their CHILD_SAs, replaced by new ones.
    #[command(after_help = "Examples:
  usher ike rekey
  usher ike rekey ann@example.org
  usher ike rekey '#3' --children")]
    Rekey {
        /// A connection, an identity, a user, an inner address, a session's id as status shows it, or # with its number [default: all].
        which: Option<String>,
        /// Their CHILD_SAs.
        #[arg(long)]
        children: bool,
        #[command(flatten)]
        config: Config,
    },
    /// End IKE_SAs of a running gateway.
    #[command(after_help = "Examples:
  usher ike down --all
  usher ike down home
  usher ike down '#3'

What the configuration begins at the start is not begun again until `usher ike connect` says so.")]
    Down {
        /// A connection, an identity, a user, an inner address, a session's id as status shows it, or # with its number.
        #[arg(required_unless_present = "all")]
        which: Option<String>,
        /// All of them.
        #[arg(long, conflicts_with = "which")]
        all: bool,
        #[command(flatten)]
        config: Config,
    },
    /// Print a configuration of this gateway's made of strongSwan's swanctl.conf; what cannot be taken is told with its line.
    #[command(after_help = "Example:\n  usher ike import /etc/swanctl/swanctl.conf > ike.toml")]
    Import {
        /// The swanctl.conf.
        file: PathBuf,
    },
    /// Check a configuration file without serving: every fault with its line.
    #[command(after_help = "Examples:\n  usher ike check\n  usher ike check ./ike.toml")]
    Check {
        /// The file [default: /etc/usher/ike.toml].
        file: Option<PathBuf>,
    },
}

/// Which configuration.
#[derive(Args, Clone, Debug)]
pub(crate) struct Config {
    /// The configuration file [default: /etc/usher/ike.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn ike(output: &Output, command: IkeCommand) -> Result<(), Failure> {
    match command {
        IkeCommand::Serve { config } => {
            ike::run(config.config, &Mode::Serve, usher_daemon::within).map_err(failure)
        }
        IkeCommand::Connect { connection, keep, config } => connect(output, connection, keep, config),
        IkeCommand::Status { config } => match ask(&config, &Request::Status)? {
            Answer::Status(status) => show(output, &status),
            other => Err(strange(&other)),
        },
        IkeCommand::Rekey { which, children, config } => {
            let named = session_meant(&config, which.as_deref())?;
            let answer = ask(&config, &Request::Rekey { which: named, children })?;
            told(output, which.as_deref(), &answer, "replaced")
        }
        IkeCommand::Down { which, all: _, config } => {
            let named = session_meant(&config, which.as_deref())?;
            let answer = ask(&config, &Request::Down { which: named })?;
            told(output, which.as_deref(), &answer, "ended")
        }
        IkeCommand::Import { file } => {
            let include =
                &mut |by: Option<&str>, pattern: &str| included(by.map_or(&*file, Path::new), pattern);
            import(output, &file, |text| {
                let usher_gateway::Imported { text, left, stops } = usher_gateway::import(text, include)?;
                Ok::<_, usher_gateway::SwanctlError>(ImportedFile { text, left, stops })
            })
        }
        IkeCommand::Check { file } => {
            let file = file.unwrap_or_else(|| DEFAULT_PATH.into());
            check(output, &file, ike::check(&file, usher_daemon::check_within))
        }
    }
}

fn failure(error: IkeError) -> Failure {
    match error {
        IkeError::Serve(_)
        | IkeError::NotConnected(_)
        | IkeError::Plane(_)
        | IkeError::PlaneFailed
        | IkeError::WithinFailed => Failure::failed(error),
        other => Failure::usage(other),
    }
}

fn strange(answer: &Answer) -> Failure {
    match answer {
        Answer::Failed { message } => Failure::failed(message),
        _ => Failure::failed("the gateway says what this program did not ask; are they of one version?"),
    }
}

fn ask(config: &Config, request: &Request) -> Result<Answer, Failure> {
    let path = ike::control_path(config.config.as_deref());
    ike::request(&path, request).map_err(Failure::failed)
}

/// What a running gateway is asked about: where it is the beginning of a session's id, that id.
fn session_meant(config: &Config, which: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(which) = which else { return Ok(None) };
    let Answer::Status(status) = ask(config, &Request::Status)? else { return Ok(Some(which.to_owned())) };
    let called = |sa: &IkeSa| [&*sa.connection, &*sa.identity, &*sa.user].contains(&which);
    if which.starts_with('#') || status.sas.iter().any(called) {
        return Ok(Some(which.to_owned()));
    }
    let names = |sa: &IkeSa| SessionNames {
        id: sa.session.clone(),
        others: Vec::new(),
        about: format!("#{}  {}  {}", sa.id, sa.connection, sa.identity),
    };
    let names: Vec<_> = status.sas.iter().map(names).collect();
    let found = find_session(&names, which)?;
    Ok(Some(found.map_or_else(|| which.to_owned(), |n| names[n].id.clone())))
}

fn connect(output: &Output, connection: String, keep: bool, config: Config) -> Result<(), Failure> {
    let path = ike::control_path(config.config.as_deref());
    match ike::request(&path, &Request::Connect { connection: connection.clone() }) {
        Ok(Answer::Begun { sa }) if output.json => {
            output.value(&json!({ "connection": connection, "sa": sa }))
        }
        Ok(Answer::Begun { sa }) => {
            output.text(&format!("{connection}: the gateway begins it as #{sa}; see: usher ike status\n"))
        }
        Ok(other) => Err(strange(&other)),
        // No gateway runs: this program is the client.
        Err(_) => {
            let mode = Mode::Connect { connection, keep };
            ike::run(config.config, &mode, usher_daemon::within).map_err(failure)
        }
    }
}

fn told(output: &Output, which: Option<&str>, answer: &Answer, what: &str) -> Result<(), Failure> {
    match answer {
        Answer::Told { sas } if output.json => output.value(&json!({ "sas": sas })),
        Answer::Told { sas: 0 } => match which {
            Some(which) => Err(Failure::failed(format!("nothing is called {which}; see: usher ike status"))),
            None => output.text("there is none\n"),
        },
        Answer::Told { sas } => output.text(&format!("{sas} to be {what}\n")),
        other => Err(strange(other)),
    }
}

fn show(output: &Output, status: &Status) -> Result<(), Failure> {
    if output.json {
        let value = serde_json::to_value(status).map_err(Failure::failed)?;
        return output.value(&value);
    }
    let mut text = format!("{} IKE_SAs, {} half open", status.sas.len(), status.half_open);
    for pool in &status.pools {
        text.push_str(&format!("; pool {}: {} of {}", pool.name, pool.used, pool.addresses));
    }
    text.push('\n');
    let short = short_ids(status.sas.iter().map(|sa| &*sa.session));
    let rows = status.sas.iter().zip(short).flat_map(|(sa, short)| rows(sa, short));
    text.push_str(&columns(&rows.collect::<Vec<_>>()));
    output.text(&text)
}

/// An IKE_SA and its CHILD_SAs, a row each.
fn rows(sa: &IkeSa, short: String) -> Vec<Vec<String>> {
    let lasted = |seconds: u64| duration(seconds as f64);
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
                octets(child.carried.received_octets),
                child.carried.received_packets,
                octets(child.carried.sent_octets),
                child.carried.sent_packets
            ),
        ]
    };
    std::iter::once(first).chain(told).chain(sa.children.iter().map(child)).collect()
}
