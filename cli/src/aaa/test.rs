//! `usher aaa test`: one login, explained.

use super::args::Test;
use super::{place, secret};
use crate::load::realm_of;
use crate::output::{Failure, Output};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use usher_aaa::Method;
use usher_control::{self as control, Answer, ControlError, Request};
use usher_crypto::fault::TlsFault;
use usher_daemon::Installation;
use usher_daemon::probe::{self, Carrier, DiameterBy, Ended, Login, Outcome};

/// How long a login may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the server may take to say what it made of a login that is over.
const WORDS: Duration = Duration::from_millis(300);
/// The same of a login that it did not answer: home servers are asked for half a minute.
const LAST_WORDS: Duration = Duration::from_secs(30);

pub(super) fn test(output: &Output, test: &Test) -> Result<(), Failure> {
    let Some(method) = probe::methods().find(|method| method.name() == test.method) else {
        let known: Vec<&str> = probe::methods().map(Method::name).collect();
        return Err(Failure::usage(format!(
            "there is no method \"{}\"; known are {}",
            test.method,
            known.join(", ")
        )));
    };
    let password = if method == Method::EapTls {
        String::new()
    } else {
        secret::read(test.password_file.as_deref(), "password")?
    };
    let local = place(&test.config);
    let server = match test.server {
        Some(server) => server,
        None => reachable(local.as_ref().map_err(|f| Failure::usage(&f.message))?, test)?,
    };
    let heard = match &local {
        Ok(place) if server.ip().is_loopback() => listen(place, &test.name),
        _ => None,
    };
    let carrier = match (&test.peer, &test.secret_file) {
        (Some(peer), _) => Carrier::Diameter {
            peer: peer.clone(),
            identity: test.identity.clone(),
            realm: test.realm.clone().unwrap_or_else(|| realm_of(&test.identity)),
            destination: test.destination.clone().unwrap_or_else(|| realm_of(peer)),
            by: match (test.over_tls, test.over_sctp) {
                (true, _) => DiameterBy::Tls,
                (false, true) => DiameterBy::Sctp,
                (false, false) => DiameterBy::Tcp,
            },
        },
        (None, _) if test.over_tls => Carrier::RadSec,
        (None, Some(file)) => {
            Carrier::Udp { secret: secret::read(Some(file), "secret")?.into_bytes().into() }
        }
        (None, None) => Carrier::Udp { secret: shared(&local?, server)?.into_bytes().into() },
    };
    if test.outside.is_some() && !matches!(method, Method::Peap | Method::Ttls) {
        return Err(Failure::usage("--outside is for the methods with a tunnel: peap and ttls"));
    }
    if let Some(key) = &test.key {
        secret::private(key)?;
    }
    let login = Login {
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
        patience: PATIENCE,
    };
    let mut steps = Vec::new();
    let outcome = probe::run(&login, &mut |step| {
        if output.json {
            steps.push(step.to_owned());
        } else {
            // A reader that went away is no fault of the login.
            let _ = output.text(&format!("{step}\n"));
        }
    });
    let Ended { outcome, tls } = outcome.map_err(Failure::failed)?;
    let mut said: Vec<Line> = Vec::new();
    while let Some(lines) = &heard
        && said.last().is_none_or(|line| line.cause.is_none())
    {
        // A server that has the request and does not answer says why when it gives up itself.
        let owes = outcome == Outcome::Silence && !said.is_empty();
        let Ok(line) = lines.recv_timeout(if owes { LAST_WORDS } else { WORDS }) else { break };
        said.push(line);
    }
    // The server hears what this side complains of, and so knows both sides' reasons.
    let cause = said.iter().rev().find_map(|line| line.cause.as_deref());
    let seen = tls.map(TlsFault::name);
    if !output.json {
        for line in &said {
            let _ = output.text(&format!("server: {}\n", line.text));
        }
        if outcome != Outcome::Accepted && heard.is_none() {
            let _ = output.text(&format!(
                "What the server makes of it is in its log, and on its machine told by: usher aaa trace {}\n",
                test.name
            ));
        }
        match (cause, seen) {
            (Some(cause), _) => drop(output.text(&format!("cause: {cause}\n"))),
            (None, Some(seen)) => drop(output.text(&format!("cause, as this side sees it: {seen}\n"))),
            (None, None) => {}
        }
    }
    let name = match outcome {
        Outcome::Accepted => "accepted",
        Outcome::Rejected => "rejected",
        Outcome::Silence => "silence",
    };
    if output.json {
        let texts: Vec<&str> = said.iter().map(|line| line.text.as_str()).collect();
        output.value(&json!({ "user": test.name, "method": test.method, "server": server, "outcome": name, "cause": cause, "tls": seen, "steps": steps, "server_said": texts }))?;
    }
    match outcome {
        Outcome::Accepted => Ok(()),
        _ => Err(Failure::failed(format!("the login ended with: {name}"))),
    }
}

/// What the server says of a login.
struct Line {
    text: String,
    cause: Option<String>,
}

/// What the running server makes of this user's logins, line by line; `None` where it cannot be asked: it does not run, it
/// is another user's, or as many trace already as may.
fn listen(place: &Installation, user: &str) -> Option<Receiver<Line>> {
    let (path, user) = (place.control_socket(), user.to_owned());
    let (sender, lines) = channel();
    let (ready, begun) = channel();
    std::thread::spawn(move || {
        let request = Request::Trace { user: Some(user), mac: None };
        let mut each = |answer| match answer {
            Answer::Done => ready.send(()).is_ok(),
            Answer::Line { text, cause, .. } => sender.send(Line { text, cause }).is_ok(),
            _ => true,
        };
        // A trace that has just ended is noticed within half a second. Without one the login is explained from this side
        // alone.
        for _ in 0..5 {
            match control::follow(&path, &request, &mut each) {
                Err(ControlError::Failed(_)) => std::thread::sleep(WORDS),
                _ => return,
            }
        }
    });
    begun.recv_timeout(PATIENCE).ok()?;
    Some(lines)
}

/// The first address at which the local server can be asked so.
fn reachable(place: &Installation, test: &Test) -> Result<SocketAddr, Failure> {
    let listen = &place.loaded.file.listen;
    let all = match (&test.peer, test.over_tls) {
        (None, false) => &listen.auth,
        (None, true) => &listen.radsec,
        (Some(_), false) if test.over_sctp => &listen.diameter_sctp,
        (Some(_), false) => &listen.diameter,
        (Some(_), true) => &listen.diameter_tls,
    };
    let first = all.first().copied();
    let mut address = first
        .ok_or_else(|| Failure::usage("the local server cannot be asked so; name another by --server"))?;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        });
    }
    Ok(address)
}

/// The secret that the local configuration has for this machine.
fn shared(place: &Installation, server: SocketAddr) -> Result<String, Failure> {
    if !server.ip().is_loopback() {
        return Err(Failure::usage("name the secret shared with that server by --secret-file"));
    }
    place.loopback_secret(server.ip()).map_err(Failure::failed)?.ok_or_else(|| {
        Failure::usage(
            "no client of the configuration is this machine; add one for loopback, or name --secret-file",
        )
    })
}
