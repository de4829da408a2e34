//! `usher pppoe`: an access concentrator and a client; `usher who`: who had which address.

use crate::output::{CommandFailure, ConsoleOutput, format_columns, format_duration, format_octets};
use crate::service::{ConfigImportResult, import_foreign_file, invoking_user, report_config_check};
use crate::session_id::{SessionIdentifiers, find_session, shortest_unique_prefixes};
use clap::{Args, Subcommand};
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use usher_concentrator::config::{DEFAULT_PATH, ModeWord};
use usher_crypto::SecretValue;
use usher_ppp::auth::AuthenticationProtocol;
use usher_pppoe_daemon::{
    self as pppoe, AddressQuery, AddressQueryReply, PppoeConnectConfig, PppoeConnectError, PppoeControlReply,
    PppoeControlRequest, PppoeError, PppoeSessionStatus, PppoeStatus,
};

#[derive(Subcommand, Debug)]
pub(crate) enum PppoeCommand {
    /// Run the access concentrator on the configuration's interfaces, until stopped.
    #[command(after_help = "Examples:
  usher pppoe serve
  usher pppoe serve --config ./pppoe.toml

Needs root, or CAP_NET_ADMIN and CAP_NET_RAW, and /dev/net/tun. The interfaces carry only PPPoE meanwhile.
The hosts' packets leave by the device of [data], and the system routes them: set net.ipv4.ip_forward and
net.ipv6.conf.all.forwarding to 1.
SIGHUP reloads the configuration. SIGTERM ends all sessions and stops the concentrator.")]
    Serve {
        #[command(flatten)]
        config: PppoeConfigArgs,
    },
    /// Connect this host to a concentrator, until the session ends or the program is stopped.
    #[command(after_help = "Examples:
  usher pppoe connect eth1 --user ann --password-file ./password --network 0.0.0.0/0
  usher pppoe connect eth1 --user ann --password-file - --keep < password

The host gets a device of its own with an IPv4 address from the concentrator, and with --ipv6 an IPv6 address.
Needs root, or CAP_NET_ADMIN and CAP_NET_RAW, and /dev/net/tun. The interface carries only PPPoE meanwhile.
Exit code 1: no session was established.")]
    Connect(Box<PppoeConnectArgs>),
    /// Show the sessions of a running concentrator.
    #[command(after_help = "Examples:\n  usher pppoe sessions\n  usher pppoe sessions --json")]
    Sessions {
        #[command(flatten)]
        config: PppoeConfigArgs,
    },
    /// End sessions of a running concentrator.
    #[command(after_help = "Examples:
  usher pppoe disconnect ann
  usher pppoe disconnect 10.0.0.7
  usher pppoe disconnect '#3'
  usher pppoe disconnect --all")]
    Disconnect {
        /// A user, address, station (02:00:5e:10:00:01), session id of `usher pppoe sessions`, or #NUMBER.
        #[arg(required_unless_present = "all")]
        which: Option<String>,
        /// End all sessions.
        #[arg(long, conflicts_with = "which")]
        all: bool,
        #[command(flatten)]
        config: PppoeConfigArgs,
    },
    /// Convert accel-ppp.conf or pppoe-server-options into a configuration of this concentrator, and report each
    /// unsupported line.
    #[command(after_help = "Examples:
  usher pppoe import /etc/accel-ppp.conf > pppoe.toml
  usher pppoe import /etc/ppp/pppoe-server-options > pppoe.toml")]
    Import {
        /// The file to import.
        file: PathBuf,
    },
    /// Check a configuration file without serving, and report each fault with its line.
    #[command(after_help = "Examples:\n  usher pppoe check\n  usher pppoe check ./pppoe.toml")]
    Check {
        /// The configuration file [default: /etc/usher/pppoe.toml].
        file: Option<PathBuf>,
    },
}

/// The configuration.
#[derive(Args, Clone, Debug)]
pub(crate) struct PppoeConfigArgs {
    /// The configuration file [default: /etc/usher/pppoe.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct PppoeConnectArgs {
    /// The interface towards the concentrator.
    interface: String,
    /// The user name.
    #[arg(long, value_name = "NAME")]
    user: String,
    /// A file that holds the password; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    password_file: PathBuf,
    /// Accepted authentication protocols, the preferred one first: eap, mschapv2, chap, pap [default:
    /// eap,mschapv2,chap; with --ca eap]. With this option, the concentrator must use one of them. PAP reveals the
    /// password to eavesdroppers.
    #[arg(long, value_name = "PROTOCOL", value_parser = parse_protocol, value_delimiter = ',')]
    protocols: Vec<AuthenticationProtocol>,
    /// The service to request [default: any].
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    service: String,
    /// The concentrator's name [default: any].
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    concentrator: String,
    /// The data plane: `user` is this program, `ebpf` are programs that it loads into the kernel.
    #[arg(long, value_name = "MODE", value_parser = parse_mode, default_value = "user")]
    mode: ModeWord,
    /// The name of the session's network device.
    #[arg(long, value_name = "NAME", default_value = "pppoe%d")]
    device: String,
    /// PEM file: the authorities of the AAA server's certificate. EAP then uses PEAP or EAP-TTLS, or with
    /// --certificate EAP-TLS. The client leaves a concentrator that does not ask for it.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file: the user's certificate.
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    certificate: Option<PathBuf>,
    /// PEM file: the private key of --certificate, readable only by its owner.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// The name that the AAA server's certificate must have.
    #[arg(long, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,
    /// A network to route through the session, such as 0.0.0.0/0 or ::/0 for everything; may be repeated.
    #[arg(long, value_name = "PREFIX", value_parser = pppoe::parse_network)]
    network: Vec<(IpAddr, u8)>,
    /// Also request IPv6: an address of the prefix that the concentrator advertises.
    #[arg(long)]
    ipv6: bool,
    /// Request an IPv6 prefix for the network behind this host (DHCPv6). The log shows the prefix.
    #[arg(long)]
    delegation: bool,
    /// Start a new session whenever one ends.
    #[arg(long)]
    keep: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SubscriberLookupArgs {
    /// The address, with a port if hosts share the address: 10.0.0.7, 192.0.2.1:40022, 2001:db8::1,
    /// [2001:db8::1]:443.
    #[arg(value_name = "ADDRESS[:PORT]", value_parser = parse_address)]
    address: (IpAddr, Option<u16>),
    /// The time, such as 2026-11-26T12:00:00Z, or with an offset 2026-11-26T21:00:00+09:00 [default: now].
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    #[command(flatten)]
    config: PppoeConfigArgs,
}

fn parse_protocol(text: &str) -> Result<AuthenticationProtocol, String> {
    AuthenticationProtocol::from_name(text).ok_or_else(|| {
        format!("\"{text}\" is not an authentication protocol; write eap, mschapv2, chap or pap")
    })
}

/// Parses the data plane of a client. The kernel's own PPPoE is for pppd.
fn parse_mode(text: &str) -> Result<ModeWord, String> {
    match ModeWord::from_name(text) {
        Some(mode @ (ModeWord::User | ModeWord::Ebpf)) => Ok(mode),
        _ => Err(format!("\"{text}\" is not a data plane of a client; write user or ebpf")),
    }
}

fn parse_address(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok((address, None));
    }
    match text.parse::<SocketAddr>() {
        Ok(address) => Ok((address.ip(), Some(address.port()))),
        Err(_) => {
            Err(format!("\"{text}\" is not an address; write 10.0.0.7, 192.0.2.1:40022 or [2001:db8::1]:443"))
        }
    }
}

pub(crate) fn run_pppoe_command(output: &ConsoleOutput, command: PppoeCommand) -> Result<(), CommandFailure> {
    match command {
        PppoeCommand::Serve { config } => {
            pppoe::serve_pppoe(config.config, usher_aaa_daemon::start_embedded).map_err(map_pppoe_error)
        }
        PppoeCommand::Connect(told) => connect_client(*told),
        PppoeCommand::Sessions { config } => match query_concentrator(&config, &PppoeControlRequest::Status)?
        {
            PppoeControlReply::Status(status) => show_concentrator_status(output, &status),
            other => Err(unexpected_answer(&other)),
        },
        PppoeCommand::Disconnect { which, all: _, config } => {
            let named = session_meant(&config, which.as_deref())?;
            let answer = query_concentrator(&config, &PppoeControlRequest::Disconnect { which: named })?;
            report_ended_sessions(output, which.as_deref(), &answer)
        }
        PppoeCommand::Import { file } => import_foreign_file(output, &file, |text| {
            let usher_concentrator::ImportedConfig { text, left, stops } =
                usher_concentrator::import_config(text);
            Ok::<_, String>(ConfigImportResult { text, left, stops })
        }),
        PppoeCommand::Check { file } => {
            let file = file.unwrap_or_else(|| DEFAULT_PATH.into());
            report_config_check(
                output,
                &file,
                pppoe::check_config(&file, usher_aaa_daemon::check_embedded_config),
            )
        }
    }
}

fn map_pppoe_error(error: PppoeError) -> CommandFailure {
    match error {
        PppoeError::Config(_) | PppoeError::New(_) | PppoeError::EmbeddedServer(_) => {
            CommandFailure::usage_error(error)
        }
        other => CommandFailure::runtime_error(other),
    }
}

fn unexpected_answer(answer: &PppoeControlReply) -> CommandFailure {
    match answer {
        PppoeControlReply::Failed { message } => CommandFailure::runtime_error(message),
        _ => CommandFailure::runtime_error(
            "unexpected reply from the concentrator; check that it has the version of this program",
        ),
    }
}

fn query_concentrator(
    config: &PppoeConfigArgs,
    request: &PppoeControlRequest,
) -> Result<PppoeControlReply, CommandFailure> {
    let path = pppoe::control_path(config.config.as_deref());
    pppoe::request_concentrator(&path, request).map_err(CommandFailure::runtime_error)
}

/// The subject of a query to a running concentrator: the full id where the text begins a session's id.
fn session_meant(config: &PppoeConfigArgs, which: Option<&str>) -> Result<Option<String>, CommandFailure> {
    let Some(which) = which else { return Ok(None) };
    let PppoeControlReply::Status(status) = query_concentrator(config, &PppoeControlRequest::Status)? else {
        return Ok(Some(which.to_owned()));
    };
    if which.starts_with('#') || status.sessions.iter().any(|one| one.user == which) {
        return Ok(Some(which.to_owned()));
    }
    let names = |one: &PppoeSessionStatus| SessionIdentifiers {
        id: one.session.clone(),
        other_ids: Vec::new(),
        description: format!("#{}  {}  {} {}", one.id, one.user, one.port, one.station),
    };
    let names: Vec<_> = status.sessions.iter().map(names).collect();
    let found = find_session(&names, which)?;
    Ok(Some(found.map_or_else(|| which.to_owned(), |n| names[n].id.clone())))
}

fn read_password(file: &Path) -> Result<SecretValue, CommandFailure> {
    let shown = file.display();
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| {
        CommandFailure::usage_error(format!("cannot read the password from {shown}: {error}"))
    })?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(SecretValue::from(text.as_bytes()))
}

fn connect_client(told: PppoeConnectArgs) -> Result<(), CommandFailure> {
    let password = read_password(&told.password_file)?;
    let PppoeConnectArgs {
        interface,
        user,
        protocols,
        service,
        concentrator,
        mode,
        device,
        network,
        keep,
        ipv6,
        delegation,
        ..
    } = told;
    let asked = told.ca.is_some() || !protocols.is_empty();
    let protocols = match (&told.ca, &protocols[..]) {
        (None, []) => Vec::from([
            AuthenticationProtocol::Eap,
            AuthenticationProtocol::MsChapV2,
            AuthenticationProtocol::Chap,
        ]),
        (Some(_), []) => Vec::from([AuthenticationProtocol::Eap]),
        (Some(_), named) if named.iter().any(|one| *one != AuthenticationProtocol::Eap) => {
            let why = "--ca checks the AAA server's certificate, which needs EAP: omit --protocols, or write \
                       --protocols eap";
            return Err(CommandFailure::usage_error(why));
        }
        _ => protocols,
    };
    let own = told.certificate.zip(told.key);
    let server_name = told.server_name;
    let certificates = told.ca.map(|ca| pppoe::EapCertificateFiles { ca, own, server_name });
    let told = PppoeConnectConfig {
        interface,
        user,
        password,
        protocols,
        requires_authentication: asked,
        service,
        concentrator,
        mode,
        device,
        certificates,
        networks: network,
        ipv6,
        delegation,
        reconnects: keep,
    };
    pppoe::run_client(told).map_err(|error: PppoeConnectError| CommandFailure::runtime_error(error))
}

fn report_ended_sessions(
    output: &ConsoleOutput,
    which: Option<&str>,
    answer: &PppoeControlReply,
) -> Result<(), CommandFailure> {
    match answer {
        PppoeControlReply::Told { sessions } if output.json => {
            output.print_json(&json!({ "sessions": sessions }))
        }
        PppoeControlReply::Told { sessions: 0 } => match which {
            Some(which) => Err(CommandFailure::runtime_error(format!(
                "no session matches {which}; see: usher pppoe sessions"
            ))),
            None => output.print_text("no session\n"),
        },
        PppoeControlReply::Told { sessions } => output.print_text(&format!("sessions to end: {sessions}\n")),
        other => Err(unexpected_answer(other)),
    }
}

fn show_concentrator_status(output: &ConsoleOutput, status: &PppoeStatus) -> Result<(), CommandFailure> {
    if output.json {
        let value = serde_json::to_value(status).map_err(CommandFailure::runtime_error)?;
        return output.print_json(&value);
    }
    let mut text = format!("{} sessions, {} half open", status.sessions.len(), status.half_open);
    for pool in &status.pools {
        text.push_str(&format!("; pool {}: {} of {}", pool.name, pool.used, pool.all));
    }
    if status.connections_held {
        text.push_str(
            "; new connections of hosts are dropped, since the translation log cannot record them: see the \
             concentrator's log",
        );
    }
    text.push('\n');
    let short = shortest_unique_prefixes(status.sessions.iter().map(|one| &*one.session));
    let row = |(one, short): (&PppoeSessionStatus, String)| {
        let ipv4 = one.ipv4.map(|address| address.to_string());
        let addresses: Vec<String> = ipv4.into_iter().chain(one.ipv6.iter().cloned()).collect();
        vec![
            format!("#{} {short}", one.id),
            one.user.clone(),
            format!("{} {}", one.port, one.station),
            addresses.join(" "),
            format_duration(one.lasted as f64),
            format!(
                "{} from the host, {} to the host",
                format_octets(one.carried.octets_in),
                format_octets(one.carried.octets_out)
            ),
        ]
    };
    text.push_str(&format_columns(&status.sessions.iter().zip(short).map(row).collect::<Vec<_>>()));
    output.print_text(&text)
}

pub(crate) fn find_subscriber(
    output: &ConsoleOutput,
    args: SubscriberLookupArgs,
) -> Result<(), CommandFailure> {
    let (address, port) = args.address;
    let asking = AddressQuery { address, port, at: args.at, by: invoking_user() };
    let path = pppoe::control_path(args.config.config.as_deref());
    let answer = match pppoe::request_concentrator(&path, &PppoeControlRequest::Who(asking.clone())) {
        Ok(PppoeControlReply::Who(who)) => who,
        Ok(other) => return Err(unexpected_answer(&other)),
        // No concentrator runs: this program reads the log itself.
        Err(_) => {
            let path = args.config.config.unwrap_or_else(|| DEFAULT_PATH.into());
            let loaded = pppoe::load_config(Some(&path)).map_err(CommandFailure::usage_error)?;
            let base = path.parent().unwrap_or(Path::new("")).to_owned();
            let tracking = loaded
                .file
                .tracking
                .ok_or(pppoe::AddressQueryError::Untracked)
                .map_err(CommandFailure::usage_error)?;
            pppoe::query_log_files(&(base, tracking), &asking).map_err(CommandFailure::runtime_error)?
        }
    };
    print_address_holders(output, &asking, &answer)
}

fn print_address_holders(
    output: &ConsoleOutput,
    asking: &AddressQuery,
    who: &AddressQueryReply,
) -> Result<(), CommandFailure> {
    if who.unreadable > 0 {
        output.print_note(&format!("{} lines of the log cannot be read", who.unreadable));
    }
    if output.json {
        let value = serde_json::to_value(who).map_err(CommandFailure::runtime_error)?;
        output.print_json(&value)?;
    } else {
        let row = |one: &pppoe::AddressHolder| {
            vec![
                one.user.clone(),
                format!("from {}", one.since),
                one.until.as_ref().map_or_else(|| "still".to_owned(), |until| format!("until {until}")),
                format!("{} {}", one.port, one.station),
                one.circuit.clone().unwrap_or_default(),
            ]
        };
        output.print_text(&format_columns(&who.found.iter().map(row).collect::<Vec<_>>()))?;
        output.print_note(&format!(
            "the log takes {:.0} octets per subscriber and day; a log of connections takes 5000000 (RFC \
             7422)",
            who.log_octets_per_subscriber_and_day
        ));
    }
    if who.found.is_empty() {
        return Err(CommandFailure::runtime_error(format!(
            "no subscriber had {} at {}",
            asking.address, who.at
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_ports() {
        let read = |text| parse_address(text).map(|(address, port)| (address.to_string(), port));
        for (text, expected) in [
            ("10.0.0.7", ("10.0.0.7", None)),
            ("192.0.2.1:40022", ("192.0.2.1", Some(40_022))),
            ("2001:db8::1", ("2001:db8::1", None)),
            ("[2001:db8::1]", ("2001:db8::1", None)),
            ("[2001:db8::1]:443", ("2001:db8::1", Some(443))),
        ] {
            assert_eq!(read(text), Ok((expected.0.to_owned(), expected.1)), "{text}");
        }
        assert!(read("192.0.2.1:99999").unwrap_err().contains("is not an address"));
    }
}
