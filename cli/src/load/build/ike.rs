//! Initiators of IKEv2.

use super::{
    Job, anonymous, at, certificates, eap_method, finish, local, methods, named, now, part, read, resolve,
    users,
};
use crate::load::args::{EapName, Ike};
use crate::output::Failure;
use clap::ValueEnum;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use usher_config::disk::Disk;
use usher_config::secret;
use usher_crypto::Key;
use usher_crypto::tls::Roots;
use usher_ike::payload::{Identification, Proposal};
use usher_load::{FrontConfig, IkeConfig, IkeGatewayAuth, IkeLogin, Users};

const PORT: u16 = 500;

/// A method, before its certificates are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Psk,
    Certificate,
    Eap(EapName),
}

impl Method {
    const KNOWN: &str =
        "psk, certificate, eap-md5, eap-gtc, eap-mschapv2, eap-tls, peap-mschapv2, peap-gtc and ttls-...";

    fn named(name: &str) -> Option<Self> {
        match name {
            "psk" => Some(Self::Psk),
            "certificate" => Some(Self::Certificate),
            name => EapName::from_str(name.strip_prefix("eap-").unwrap_or(name), true).ok().map(Self::Eap),
        }
    }
}

fn proposals(words: &[String]) -> Result<Vec<Proposal>, Failure> {
    let one =
        |words: &String| Proposal::ike(words).map_err(|e| Failure::usage(format!("--proposal {words}: {e}")));
    words.iter().map(one).collect()
}

/// How the gateway proves who it is.
fn gateway(ca: Option<&Path>) -> Result<IkeGatewayAuth, Failure> {
    let Some(ca) = ca else { return Ok(IkeGatewayAuth::Psk) };
    let roots = Roots::from_pem(&read(ca, "the authorities")?).map_err(|e| at(ca, e))?;
    Ok(IkeGatewayAuth::Certificate(roots, now()))
}

/// Users' certificates, of which one is enough for one user alone: an identity has to be in it.
fn users_certificates(i: &Ike, users: &Users) -> Result<IkeLogin, Failure> {
    let (one, each) = certificates(&i.tls, &i.load, users)?;
    let all: Vec<_> = match one {
        Some(one) => vec![one],
        None => each,
    };
    match all.len() {
        0 => Err(Failure::usage(
            "certificate needs --certificate and --key, one a user ({} or {name} in the files' names, or the columns \
             CERTIFICATE,KEY of --users-file)",
        )),
        1 if users.len() > 1 => Err(Failure::usage(
            "one certificate bears one name: give one a user ({} or {name} in the files' names), or --users 1",
        )),
        _ => Ok(IkeLogin::Certificate(all.into())),
    }
}

pub(super) fn job(i: &Ike) -> Result<Job, Failure> {
    let load = &i.load;
    let one = || match Method::named(&i.method) {
        Some(method) => Ok((i.method.clone(), method)),
        None => Err(Failure::usage(format!(
            "--method: no method is named {:?}; there are {}",
            i.method,
            Method::KNOWN
        ))),
    };
    let all = methods(load, one, Method::KNOWN, Method::named)?;
    let by_key = all.iter().any(|(_, _, method)| *method == Method::Psk);
    let numbered = all.iter().all(|(_, _, method)| *method == Method::Psk);
    let given = [("--user", load.user.is_some()), ("--users-file", load.users_file.is_some())];
    if let Some((option, _)) = given.iter().find(|(_, given)| numbered && *given) {
        return Err(Failure::usage(format!(
            "{option}: initiators are named by --id, and have one key; --method has users"
        )));
    }
    let address = resolve(&load.server, PORT)?;
    let proposals = proposals(&i.proposal)?;
    let secret = match &i.secret_file {
        Some(file) => Key::from(secret::from_file(file, &Disk).map_err(Failure::usage)?.0.as_bytes()),
        None if by_key => {
            return Err(Failure::usage(
                "psk needs --secret-file: the key that initiators and the gateway have",
            ));
        }
        None => Key::from(&b""[..]),
    };
    if by_key && load.threads > i.initiators {
        return Err(Failure::usage(format!(
            "{} threads share {} initiators: give --initiators at least as many",
            load.threads, i.initiators
        )));
    }
    let passwords = all.iter().any(|(_, _, m)| matches!(m, Method::Eap(name) if *name != EapName::Tls));
    let users = Arc::new(match numbered {
        true => Users::template("initiator", "", 1).map_err(|e| Failure::usage(format!("{e}")))?,
        false => users(load, passwords)?,
    });
    let mut tls = None;
    let mut logins = Vec::new();
    let mut mix = Vec::new();
    for (name, share, method) in all {
        let login = match method {
            Method::Psk => IkeLogin::Psk,
            Method::Certificate => users_certificates(i, &users)?,
            Method::Eap(eap) => IkeLogin::Eap(eap_method(eap, &i.tls, load, &users, &mut tls)?),
        };
        mix.push(part(&name, share, login.is_deniable()));
        logins.push(login);
    }
    let tunnel = logins.iter().any(|login| matches!(login, IkeLogin::Eap(eap) if eap.has_tunnel()));
    let what = format!("{} with {}", named(load, &mix), i.proposal.join(", "));
    let front = FrontConfig::Ike(IkeConfig {
        address,
        local: SocketAddr::new(local(address)?, 0),
        gateway: Identification::of_text(&i.gateway_id),
        identity: i.id.clone(),
        initiators: i.initiators.get(),
        first: 0,
        logins,
        gateway_auth: gateway(i.gateway_ca.as_deref())?,
        secret,
        anonymous: anonymous(&i.tls, tunnel)?,
        proposals,
        keep: i.keep,
        probes: 0,
        retransmission: i.retransmission.0,
        retransmissions: i.retransmissions,
    });
    let mut job = finish("ike", what, load, front, mix, users, vec![address], None)?;
    if by_key {
        job.settings.insert("initiators".to_owned(), i.initiators.to_string());
    }
    let proof = if i.gateway_ca.is_some() { "certificate" } else { "psk" };
    job.settings.insert("gateway proves itself by".to_owned(), proof.to_owned());
    job.settings.insert("IKE_SAs".to_owned(), if i.keep { "stay" } else { "are deleted" }.to_owned());
    Ok(job)
}
