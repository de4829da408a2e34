//! `usher ident`: who stands behind a connection.

use crate::output::{CommandFailure, ConsoleOutput};
use crate::service::report_config_check;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use usher_config::units::TimeSpan;
use usher_ident::{ClientConfig, ErrorType, IdentPortPair, IdentQuery, PORT, QueryFailure, ResponseBody};
use usher_ident_daemon::{self as ident, IdentError};
use usher_ident_service::config::DEFAULT_PATH;

#[derive(Subcommand, Debug)]
pub(crate) enum IdentCommand {
    /// Answer IDENT queries for the users of this host's TCP connections, until stopped.
    #[command(after_help = "Examples:
  usher ident serve
  usher ident serve --config ./ident.toml
  usher ident serve --listen 127.0.0.1:1113

Without a configuration, the server serves loopback and reveals user names. Port 113 needs root or
CAP_NET_BIND_SERVICE. SIGHUP reloads the configuration; SIGTERM stops the server.")]
    Serve {
        #[command(flatten)]
        config: IdentConfigArgs,
        /// An address and port to serve, in place of the configuration's; may be repeated.
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Vec<SocketAddr>,
    },
    /// Check a configuration file without serving, and report each fault with its line.
    #[command(after_help = "Examples:\n  usher ident check\n  usher ident check ./ident.toml")]
    Check {
        /// The configuration file [default: /etc/usher/ident.toml].
        file: Option<PathBuf>,
    },
    /// Ask another host for the user of its end of a connection.
    #[command(after_help = "Examples:
  usher ident ask 192.0.2.7 40022,22
  usher ident ask --connection 198.51.100.1:22,192.0.2.7:40022
  usher ident ask 192.0.2.7 40022,22 --json

If this host is 198.51.100.1, the first two examples ask the same: which user of 192.0.2.7 owns the
connection from its port 40022 to our port 22? The answer is only as trustworthy as the host.
Exit code 1: the host names no user.")]
    Ask(IdentQueryArgs),
    /// Decode a token of this server into its user, connection and time.
    #[command(after_help = "Example:\n  usher ident reveal TOKEN --config ./ident.toml")]
    Reveal {
        /// The token, as in the server's response.
        #[arg(allow_hyphen_values = true)]
        token: String,
        #[command(flatten)]
        config: IdentConfigArgs,
    },
}

/// The configuration.
#[derive(Args, Clone, Debug)]
pub(crate) struct IdentConfigArgs {
    /// The configuration file [default: /etc/usher/ident.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct IdentQueryArgs {
    /// The host to query, by name or address.
    #[arg(required_unless_present = "connection", requires = "ports")]
    host: Option<String>,
    /// The connection's port on that host, a comma, and its port on this host.
    #[arg(value_name = "THERE,HERE", value_parser = parse_port_pair, conflicts_with = "connection")]
    ports: Option<IdentPortPair>,
    /// The connection: address and port of this host, a comma, address and port of the other.
    #[arg(long, value_name = "HERE,THERE", value_parser = parse_connection, conflicts_with_all = ["host", "from"])]
    connection: Option<(SocketAddr, SocketAddr)>,
    /// The local address for the query: this host's end of the connection [default: chosen by the system].
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// The other host's IDENT port.
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// The longest wait for the response. RFC 1413 asks for at least 30 s.
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, default_value = "30 s")]
    timeout: TimeSpan,
}

fn parse_port_pair(text: &str) -> Result<IdentPortPair, String> {
    let pair = IdentPortPair::parse(text.as_bytes()).ok().filter(|pair| pair.valid_ports().is_some());
    pair.ok_or_else(|| "expected two ports from 1 to 65535, such as 40022,22".to_owned())
}

fn parse_connection(text: &str) -> Result<(SocketAddr, SocketAddr), String> {
    let ends = text.split_once(',').and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    ends.ok_or_else(|| {
        "expected two addresses with ports, such as 198.51.100.1:22,192.0.2.7:40022".to_owned()
    })
}

pub(crate) fn run_ident_command(output: &ConsoleOutput, command: IdentCommand) -> Result<(), CommandFailure> {
    match command {
        IdentCommand::Serve { config, listen } => {
            ident::serve_ident(config.config, &listen).map_err(|error| match error {
                IdentError::Config(_) | IdentError::Nowhere => CommandFailure::usage_error(error),
                IdentError::Serve(_) => CommandFailure::runtime_error(error),
            })
        }
        IdentCommand::Check { file } => {
            let file = file.unwrap_or_else(|| DEFAULT_PATH.into());
            report_config_check(output, &file, ident::check_config(&file))
        }
        IdentCommand::Ask(asked) => query_ident(output, &asked),
        IdentCommand::Reveal { token, config } => reveal_token(output, &token, &config),
    }
}

fn query_ident(output: &ConsoleOutput, asked: &IdentQueryArgs) -> Result<(), CommandFailure> {
    let config = ClientConfig { response_timeout: asked.timeout.get(), ..ClientConfig::default() };
    let (servers, local, ports) = match (asked.connection, &asked.host, asked.ports) {
        (Some((here, there)), ..) => {
            let mut server = there;
            server.set_port(asked.port);
            (vec![server], Some(here.ip()), IdentPortPair::new(there.port(), here.port()))
        }
        (None, Some(host), Some(ports)) => (resolve_addresses(host, asked)?, asked.from, ports),
        _ => return Err(CommandFailure::usage_error("give a host and two ports, or --connection")),
    };
    let mut last = None;
    for server in servers {
        let question = IdentQuery { server, local, ports };
        let answer = ident::query_ident(question, config).map_err(CommandFailure::runtime_error)?;
        let unheard = matches!(answer, Err(QueryFailure::Refused | QueryFailure::Silence));
        last = Some((server, answer));
        if !unheard {
            break;
        }
    }
    let Some((server, answer)) = last else {
        return Err(CommandFailure::runtime_error("the host has no address of the same family as --from"));
    };
    if output.json {
        output.print_json(&answer_json(server, ports, &answer))?;
    }
    let unsaid = |why: String| {
        Err(CommandFailure::runtime_error(format!("{server} names no user for {ports}: {why}")))
    };
    match answer {
        Ok(answer @ ResponseBody::UserId { .. }) if !output.json => output.print_text(&format!("{answer}\n")),
        Ok(ResponseBody::UserId { .. }) => Ok(()),
        Ok(ResponseBody::Error(error)) => unsaid(format!("{error}: {}", explain_ident_error(&error))),
        Err(error) => unsaid(error.to_string()),
    }
}

/// The addresses of a host that can be asked from where it is to be.
fn resolve_addresses(host: &str, asked: &IdentQueryArgs) -> Result<Vec<SocketAddr>, CommandFailure> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let all = (host, asked.port).to_socket_addrs();
    let all =
        all.map_err(|error| CommandFailure::runtime_error(format!("cannot resolve {host}: {error}")))?;
    Ok(all.filter(|address| asked.from.is_none_or(|from| from.is_ipv4() == address.is_ipv4())).collect())
}

const fn explain_ident_error(error: &ErrorType) -> &'static str {
    match error {
        ErrorType::InvalidPort => "the host does not accept these ports",
        ErrorType::NoUser => "the host has no such connection, or no user to name",
        ErrorType::HiddenUser => "the host knows the user and does not reveal it to us",
        ErrorType::UnknownError => "the host cannot find the user, or does not reveal it",
        ErrorType::Extension(_) => "an error that no standard defines",
    }
}

/// An answer for programs. Identifiers that are no text are in hexadecimal.
fn answer_json(
    server: SocketAddr,
    ports: IdentPortPair,
    answer: &Result<ResponseBody, QueryFailure>,
) -> Value {
    let mut value = json!({ "server": server, "ports": ports.valid_ports() });
    let said = match answer {
        Ok(ResponseBody::UserId { opsys, charset, user }) => {
            let text = std::str::from_utf8(user.name()).is_ok();
            let charset = charset.as_ref().map(ToString::to_string);
            json!({
                "user": user.to_string(), "encoding": if text { "text" } else { "hex" },
                "opsys": opsys.as_str(), "charset": charset,
            })
        }
        Ok(ResponseBody::Error(error)) => json!({ "error": error.as_str() }),
        Err(error) => json!({ "failure": error.to_string() }),
    };
    if let (Some(all), Value::Object(said)) = (value.as_object_mut(), said) {
        all.extend(said);
    }
    value
}

fn reveal_token(output: &ConsoleOutput, token: &str, config: &IdentConfigArgs) -> Result<(), CommandFailure> {
    let loaded = ident::load_config(config.config.as_deref()).map_err(CommandFailure::usage_error)?;
    let Some(key) = loaded.config.policy.key else {
        return Err(CommandFailure::usage_error(
            "the configuration has no [token], so there is no key to decode tokens",
        ));
    };
    let Some(sealed) = key.decrypt_ident_token(token) else {
        return Err(CommandFailure::runtime_error(
            "this token does not fit the key: another key made it, or it was altered",
        ));
    };
    let name = sealed.user.name.as_ref().map(|name| String::from_utf8_lossy(name).into_owned());
    let (at, uid, connection) = (sealed.looked_up_at.to_string(), sealed.user.uid, sealed.connection);
    if output.json {
        let (local, remote) = (connection.local, connection.remote);
        return output
            .print_json(&json!({ "user": name, "uid": uid, "local": local, "remote": remote, "time": at }));
    }
    let user = match (name, uid) {
        (Some(name), Some(uid)) => format!("{name} ({uid})"),
        (Some(name), None) => name,
        (None, uid) => uid.map_or("no user".to_owned(), |uid| uid.to_string()),
    };
    output.print_text(&format!(
        "{user} had the connection {} to {} at {at}\n",
        connection.local, connection.remote
    ))
}
