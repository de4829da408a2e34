//! `usher aaa test`: runs one login and explains its result.

use super::args::LoginTestArgs;
use super::{open_installation, secret};
use crate::load::realm_of_host;
use crate::output::{CommandFailure, ConsoleOutput};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use usher_aaa::AuthMethod;
use usher_aaa_daemon::ServerInstallation;
use usher_aaa_daemon::control::{self, ControlError, ControlReply, ControlRequest};
use usher_aaa_daemon::probe::{
    self, ProbeDiameterTransport, ProbeLogin, ProbeOutcome, ProbeResult, ProbeTransport,
};
use usher_crypto::fault::TlsFault;

/// The timeout of a login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest wait for the server's trace lines after a login has ended.
const WORDS: Duration = Duration::from_millis(300);
/// The same after a login without a reply: the server tries home servers for half a minute.
const LAST_WORDS: Duration = Duration::from_secs(30);

pub(super) fn run_login_test(output: &ConsoleOutput, test: &LoginTestArgs) -> Result<(), CommandFailure> {
    let Some(method) = probe::probe_methods().find(|method| method.name() == test.method) else {
        let known: Vec<&str> = probe::probe_methods().map(AuthMethod::name).collect();
        return Err(CommandFailure::usage_error(format!(
            "unknown method \"{}\"; the methods are {}",
            test.method,
            known.join(", ")
        )));
    };
    let password = if method == AuthMethod::EapTls {
        String::new()
    } else {
        secret::read_secret(test.password_file.as_deref(), "password")?
    };
    let local = open_installation(&test.config);
    let server = match test.server {
        Some(server) => server,
        None => {
            first_server_address(local.as_ref().map_err(|f| CommandFailure::usage_error(&f.message))?, test)?
        }
    };
    let heard = match &local {
        Ok(place) if server.ip().is_loopback() => follow_login_trace(place, &test.name),
        _ => None,
    };
    let carrier = match (&test.peer, &test.secret_file) {
        (Some(peer), _) => ProbeTransport::Diameter {
            peer: peer.clone(),
            identity: test.identity.clone(),
            realm: test.realm.clone().unwrap_or_else(|| realm_of_host(&test.identity)),
            destination: test.destination.clone().unwrap_or_else(|| realm_of_host(peer)),
            transport: match (test.over_tls, test.over_sctp) {
                (true, _) => ProbeDiameterTransport::Tls,
                (false, true) => ProbeDiameterTransport::Sctp,
                (false, false) => ProbeDiameterTransport::Tcp,
            },
        },
        (None, _) if test.over_tls => ProbeTransport::RadSec,
        (None, Some(file)) => {
            ProbeTransport::Udp { secret: secret::read_secret(Some(file), "secret")?.into_bytes().into() }
        }
        (None, None) => {
            ProbeTransport::Udp { secret: local_shared_secret(&local?, server)?.into_bytes().into() }
        }
    };
    if test.outside.is_some() && !matches!(method, AuthMethod::Peap | AuthMethod::Ttls) {
        return Err(CommandFailure::usage_error("--outside needs a method with a tunnel: peap or ttls"));
    }
    if let Some(key) = &test.key {
        secret::require_private_file(key)?;
    }
    let login = ProbeLogin {
        server,
        carrier,
        name: test.name.clone(),
        outside: test.outside.clone(),
        password: password.into_bytes(),
        method,
        ca: test.ca.clone(),
        certificate: test.certificate.clone().zip(test.key.clone()),
        server_name: test.server_name.clone(),
        mac: test.mac.clone(),
        timeout: LOGIN_TIMEOUT,
    };
    let mut steps = Vec::new();
    let outcome = probe::run_probe(&login, &mut |step| {
        if output.json {
            steps.push(step.to_owned());
        } else {
            // A write error is ignored: a closed pipe must not affect the login.
            let _ = output.print_text(&format!("{step}\n"));
        }
    });
    let ProbeResult { outcome, tls } = outcome.map_err(CommandFailure::runtime_error)?;
    let mut said: Vec<ServerTraceLine> = Vec::new();
    while let Some(lines) = &heard
        && said.last().is_none_or(|line| line.cause.is_none())
    {
        // The server has received the request but not replied. It logs the cause only when it gives up, so wait longer.
        let owes = outcome == ProbeOutcome::Silence && !said.is_empty();
        let Ok(line) = lines.recv_timeout(if owes { LAST_WORDS } else { WORDS }) else { break };
        said.push(line);
    }
    // The server receives this side's TLS alerts too, so the cause that it logs covers faults of both sides.
    let cause = said.iter().rev().find_map(|line| line.cause.as_deref());
    let seen = tls.map(TlsFault::name);
    if !output.json {
        for line in &said {
            let _ = output.print_text(&format!("server: {}\n", line.text));
        }
        if outcome != ProbeOutcome::Accepted && heard.is_none() {
            let _ = output.print_text(&format!(
                "For the server's reason, see its log, or run on its machine: usher aaa trace {}\n",
                test.name
            ));
        }
        match (cause, seen) {
            (Some(cause), _) => drop(output.print_text(&format!("cause: {cause}\n"))),
            (None, Some(seen)) => drop(output.print_text(&format!("cause, as seen by the client: {seen}\n"))),
            (None, None) => {}
        }
    }
    let name = match outcome {
        ProbeOutcome::Accepted => "accepted",
        ProbeOutcome::Rejected => "rejected",
        ProbeOutcome::Silence => "silence",
    };
    if output.json {
        let texts: Vec<&str> = said.iter().map(|line| line.text.as_str()).collect();
        output.print_json(&json!({ "user": test.name, "method": test.method, "server": server, "outcome": name, "cause": cause, "tls": seen, "steps": steps, "server_said": texts }))?;
    }
    match outcome {
        ProbeOutcome::Accepted => Ok(()),
        _ => Err(CommandFailure::runtime_error(format!("the login failed: {name}"))),
    }
}

/// A line of the server's trace of a login.
struct ServerTraceLine {
    text: String,
    cause: Option<String>,
}

/// Follows the running server's trace of this user's logins, line by line. Returns `None` if the server does not run,
/// belongs to another user, or has the maximum number of traces.
fn follow_login_trace(place: &ServerInstallation, user: &str) -> Option<Receiver<ServerTraceLine>> {
    let (path, user) = (place.control_socket(), user.to_owned());
    let (sender, lines) = channel();
    let (ready, begun) = channel();
    std::thread::spawn(move || {
        let request = ControlRequest::Trace { user: Some(user), mac: None };
        let mut each = |answer| match answer {
            ControlReply::Done => ready.send(()).is_ok(),
            ControlReply::Line { text, cause, .. } => sender.send(ServerTraceLine { text, cause }).is_ok(),
            _ => true,
        };
        // The server notices within half a second that a trace has ended. Without a trace, only this side explains
        // the login.
        for _ in 0..5 {
            match control::follow_replies(&path, &request, &mut each) {
                Err(ControlError::Failed(_)) => std::thread::sleep(WORDS),
                _ => return,
            }
        }
    });
    begun.recv_timeout(LOGIN_TIMEOUT).ok()?;
    Some(lines)
}

/// Returns the local server's first address for this transport.
fn first_server_address(
    place: &ServerInstallation,
    test: &LoginTestArgs,
) -> Result<SocketAddr, CommandFailure> {
    let listen = &place.loaded.file.listen;
    let all = match (&test.peer, test.over_tls) {
        (None, false) => &listen.auth,
        (None, true) => &listen.radsec,
        (Some(_), false) if test.over_sctp => &listen.diameter_sctp,
        (Some(_), false) => &listen.diameter,
        (Some(_), true) => &listen.diameter_tls,
    };
    let first = all.first().copied();
    let mut address = first.ok_or_else(|| {
        CommandFailure::usage_error(
            "the local server does not listen for this transport; give another server by --server",
        )
    })?;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        });
    }
    Ok(address)
}

/// Returns the shared secret for this machine from the local configuration.
fn local_shared_secret(place: &ServerInstallation, server: SocketAddr) -> Result<String, CommandFailure> {
    if !server.ip().is_loopback() {
        return Err(CommandFailure::usage_error(
            "the shared secret of that server is missing; give --secret-file FILE",
        ));
    }
    place.loopback_secret(server.ip()).map_err(CommandFailure::runtime_error)?.ok_or_else(|| {
        CommandFailure::usage_error(
            "the configuration has no client for this machine; add one for loopback, or give --secret-file \
             FILE",
        )
    })
}
