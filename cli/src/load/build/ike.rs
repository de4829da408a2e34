//! Initiators of IKEv2.

use super::{
    PreparedLoad, anonymous_identity, assemble_load, build_eap_method, describe_mix, local_address,
    method_share, now, read_certificates, read_file, read_users, resolve_load_target, tls_failure,
    weighted_methods,
};
use crate::load::args::{EapMethodName, IkeLoadArgs};
use crate::output::CommandFailure;
use clap::ValueEnum;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use usher_config::disk::DiskEnvironment;
use usher_config::secret;
use usher_crypto::SecretValue;
use usher_crypto::tls::TrustRoots;
use usher_ike::payload::{Identification, Proposal};
use usher_load::{IkeConfig, IkeGatewayAuth, IkeLogin, LoadProtocolConfig, UserCredentialTable};

const PORT: u16 = 500;

/// A method, before its certificates are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IkeLoadMethod {
    Psk,
    Certificate,
    Eap(EapMethodName),
}

impl IkeLoadMethod {
    const METHOD_NAMES: &str =
        "psk, certificate, eap-md5, eap-gtc, eap-mschapv2, eap-tls, peap-mschapv2, peap-gtc and ttls-...";

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "psk" => Some(Self::Psk),
            "certificate" => Some(Self::Certificate),
            name => {
                EapMethodName::from_str(name.strip_prefix("eap-").unwrap_or(name), true).ok().map(Self::Eap)
            }
        }
    }
}

fn parse_proposals(words: &[String]) -> Result<Vec<Proposal>, CommandFailure> {
    let one = |words: &String| {
        Proposal::parse_ike_proposal(words)
            .map_err(|e| CommandFailure::usage_error(format!("--proposal {words}: {e}")))
    };
    words.iter().map(one).collect()
}

/// How the gateway proves who it is.
fn gateway_auth(ca: Option<&Path>) -> Result<IkeGatewayAuth, CommandFailure> {
    let Some(ca) = ca else { return Ok(IkeGatewayAuth::Psk) };
    let roots = TrustRoots::from_pem(&read_file(ca, "the authorities")?).map_err(|e| tls_failure(ca, e))?;
    Ok(IkeGatewayAuth::Certificate(roots, now()))
}

/// Users' certificates, of which one is enough for one user alone: an identity has to be in it.
fn load_user_certificates(i: &IkeLoadArgs, users: &UserCredentialTable) -> Result<IkeLogin, CommandFailure> {
    let (one, each) = read_certificates(&i.tls, &i.load, users)?;
    let all: Vec<_> = match one {
        Some(one) => vec![one],
        None => each,
    };
    match all.len() {
        0 => Err(CommandFailure::usage_error(
            "certificate needs --certificate and --key for each user: {} or {name} in the file names, or the \
             columns CERTIFICATE,KEY of --users-file",
        )),
        1 if users.len() > 1 => Err(CommandFailure::usage_error(
            "one certificate has one name: give a certificate for each user ({} or {name} in the file \
             names), or --users 1",
        )),
        _ => Ok(IkeLogin::Certificate(all.into())),
    }
}

pub(super) fn prepare_ike(i: &IkeLoadArgs) -> Result<PreparedLoad, CommandFailure> {
    let load = &i.load;
    let one = || match IkeLoadMethod::from_name(&i.method) {
        Some(method) => Ok((i.method.clone(), method)),
        None => Err(CommandFailure::usage_error(format!(
            "--method: unknown method {:?}; the methods are {}",
            i.method,
            IkeLoadMethod::METHOD_NAMES
        ))),
    };
    let all = weighted_methods(load, one, IkeLoadMethod::METHOD_NAMES, IkeLoadMethod::from_name)?;
    let by_key = all.iter().any(|(_, _, method)| *method == IkeLoadMethod::Psk);
    let numbered = all.iter().all(|(_, _, method)| *method == IkeLoadMethod::Psk);
    let given = [("--user", load.user.is_some()), ("--users-file", load.users_file.is_some())];
    if let Some((option, _)) = given.iter().find(|(_, given)| numbered && *given) {
        return Err(CommandFailure::usage_error(format!(
            "{option} does not apply to psk: --id names the initiators, and they share one key"
        )));
    }
    let address = resolve_load_target(&load.server, PORT)?;
    let proposals = parse_proposals(&i.proposal)?;
    let secret = match &i.secret_file {
        Some(file) => SecretValue::from(
            secret::from_file(file, &DiskEnvironment).map_err(CommandFailure::usage_error)?.0.as_bytes(),
        ),
        None if by_key => {
            return Err(CommandFailure::usage_error(
                "psk needs --secret-file: the shared key of the initiators and the gateway",
            ));
        }
        None => SecretValue::from(&b""[..]),
    };
    if by_key && load.threads > i.initiators {
        return Err(CommandFailure::usage_error(format!(
            "{} threads cannot share {} initiators: --initiators must be at least --threads",
            load.threads, i.initiators
        )));
    }
    let passwords =
        all.iter().any(|(_, _, m)| matches!(m, IkeLoadMethod::Eap(name) if *name != EapMethodName::Tls));
    let users = Arc::new(match numbered {
        true => UserCredentialTable::from_template("initiator", "", 1)
            .map_err(|e| CommandFailure::usage_error(format!("{e}")))?,
        false => read_users(load, passwords)?,
    });
    let mut tls = None;
    let mut logins = Vec::new();
    let mut mix = Vec::new();
    for (name, share, method) in all {
        let login = match method {
            IkeLoadMethod::Psk => IkeLogin::Psk,
            IkeLoadMethod::Certificate => load_user_certificates(i, &users)?,
            IkeLoadMethod::Eap(eap) => IkeLogin::Eap(build_eap_method(eap, &i.tls, load, &users, &mut tls)?),
        };
        mix.push(method_share(&name, share, login.is_deniable()));
        logins.push(login);
    }
    let tunnel = logins.iter().any(|login| matches!(login, IkeLogin::Eap(eap) if eap.has_tunnel()));
    let what = format!("{} with {}", describe_mix(load, &mix), i.proposal.join(", "));
    let front = LoadProtocolConfig::Ike(IkeConfig {
        address,
        local: SocketAddr::new(local_address(address)?, 0),
        gateway: Identification::of_text(&i.gateway_id),
        identity: i.id.clone(),
        initiators: i.initiators.get(),
        first: 0,
        logins,
        gateway_auth: gateway_auth(i.gateway_ca.as_deref())?,
        secret,
        anonymous: anonymous_identity(&i.tls, tunnel)?,
        proposals,
        keeps_sa: i.keep,
        probes: 0,
        retransmission: i.retransmission.0,
        retransmissions: i.retransmissions,
    });
    let mut job = assemble_load("ike", what, load, front, mix, users, vec![address], None)?;
    if by_key {
        job.settings.insert("initiators".to_owned(), i.initiators.to_string());
    }
    let proof = if i.gateway_ca.is_some() { "certificate" } else { "psk" };
    job.settings.insert("gateway proves itself by".to_owned(), proof.to_owned());
    job.settings.insert("IKE_SAs".to_owned(), if i.keep { "stay" } else { "are deleted" }.to_owned());
    Ok(job)
}
