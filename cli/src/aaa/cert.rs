//! `usher aaa cert`: the authority in a folder, its certificates and its revocation list.

use super::args::AaaConfigArgs;
use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use usher_control::{self as control, ControlError, ControlReply, ListStatus};
use usher_core::{Duration, WallTime};
use usher_crypto::x509::{CertificateInfo, RevocationList};
use usher_daemon::ServerLocation;
use usher_pki::{
    CertificateAuthority, CertificateKind, CertificateRequest, IndexEntry, InitOptions, IssuedCertificate,
    KeyKind, PkiError, RevokeReason,
};

/// Where the authority is unless something else is said: in the folder of the configuration, which is root's.
const FOLDER: &str = "/etc/usher/pki";
/// Where version 0.1.0 had it: in the folder of the service, whose user could have led root's files elsewhere.
const EARLIER: &str = "/var/lib/usher/pki";

#[derive(Args, Debug)]
struct AuthorityFolder {
    /// The authority's folder.
    #[arg(long, global = true, value_name = "DIR", default_value = FOLDER)]
    dir: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CertArgs {
    #[command(flatten)]
    place: AuthorityFolder,
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(Subcommand, Debug)]
enum CertCommand {
    /// Make an authority, and with --server a certificate for this server.
    #[command(after_help = "Example:
  usher aaa cert init --server radius.example.org

What EAP clients have to trust is DIR/ca.crt. Keep DIR/ca.key safe: who has it can be anybody.")]
    Init {
        /// Its common name.
        #[arg(long, default_value = "Usher AAA")]
        name: String,
        /// Issue a certificate for a server of this DNS name too.
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
        /// Under the authority in this folder: one more certificate in every chain.
        #[arg(long, value_name = "DIR")]
        under: Option<PathBuf>,
        #[command(flatten)]
        key: KeyArgs,
        /// How long the authority holds.
        #[arg(long, default_value_t = 3650)]
        days: u32,
    },
    /// Issue a certificate for a user, or with --server for a server.
    #[command(after_help = "Examples:
  usher aaa cert issue ann@example.org
  usher aaa cert issue radius2.example.org --server --also 192.0.2.7 --days 90")]
    Issue {
        /// The user's name, or the server's DNS name.
        name: String,
        /// It is for a server.
        #[arg(long)]
        server: bool,
        /// A further DNS name or address of a server; may be repeated.
        #[arg(long, value_name = "NAME", requires = "server")]
        also: Vec<String>,
        #[command(flatten)]
        key: KeyArgs,
        /// How long it holds.
        #[arg(long, default_value_t = 365)]
        days: u32,
        /// Where its status can be asked by OCSP.
        #[arg(long, value_name = "URL")]
        ocsp: Option<String>,
        /// Where the revocation list can be fetched.
        #[arg(long, value_name = "URL")]
        crl: Option<String>,
    },
    /// Issue a certificate anew, with a new key; the earlier one holds until it expires.
    #[command(after_help = "Examples:
  usher aaa cert renew radius.example.org && systemctl reload usher-aaa
  usher aaa cert renew --expiring 30")]
    Renew {
        /// Its name.
        #[arg(required_unless_present = "expiring")]
        name: Option<String>,
        /// Every one that expires within so many days instead.
        #[arg(long, value_name = "DAYS", conflicts_with = "name")]
        expiring: Option<u32>,
        /// How long it holds [default: as before].
        #[arg(long)]
        days: Option<u32>,
    },
    /// Take a certificate back; the revocation list says so from then on, and the server that runs here reads it.
    #[command(after_help = "Example:\n  usher aaa cert revoke ann@example.org --reason key-compromise")]
    Revoke {
        /// Its name.
        name: String,
        /// Why.
        #[arg(long, value_enum, default_value_t = RevocationReasonArg::Unspecified)]
        reason: RevocationReasonArg,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
    /// List what was issued.
    List,
    /// Show what certificates say.
    Show {
        /// Files in PEM.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Write the revocation list anew, and have the server that runs here read it; it holds for 30 days.
    #[command(after_help = "Examples:
  usher aaa cert crl
  usher aaa cert crl --expiring 10     once a day: only where it is out of date within ten days")]
    Crl {
        /// Only where the one that there is is out of date within so many days.
        #[arg(long, value_name = "DAYS")]
        expiring: Option<u32>,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
}

#[derive(Args, Debug)]
struct KeyArgs {
    /// The kind of key.
    #[arg(long, value_enum, default_value_t = KeyName::EcdsaP256)]
    key: KeyName,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum KeyName {
    EcdsaP256,
    #[value(name = "rsa-2048")]
    Rsa2048,
    #[value(name = "rsa-3072")]
    Rsa3072,
    Ed25519,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum RevocationReasonArg {
    Unspecified,
    KeyCompromise,
    Superseded,
    CessationOfOperation,
}

impl KeyArgs {
    const fn key_kind(&self) -> KeyKind {
        match self.key {
            KeyName::EcdsaP256 => KeyKind::EcdsaP256,
            KeyName::Rsa2048 => KeyKind::Rsa2048,
            KeyName::Rsa3072 => KeyKind::Rsa3072,
            KeyName::Ed25519 => KeyKind::Ed25519,
        }
    }
}

fn now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_secs(since.as_secs())
}

impl From<PkiError> for CommandFailure {
    fn from(e: PkiError) -> Self {
        Self::runtime_error(e)
    }
}

pub(crate) fn run_cert_command(output: &ConsoleOutput, arguments: &CertArgs) -> Result<(), CommandFailure> {
    let dir = &arguments.place.dir;
    match &arguments.command {
        CertCommand::Init { name, server, under, key, days } => {
            init_authority(output, dir, name, server.as_deref(), under.as_deref(), key.key_kind(), *days)
        }
        CertCommand::Issue { name, server, also, key, days, ocsp, crl } => {
            let request = CertificateRequest {
                name: name.clone(),
                kind: if *server { CertificateKind::Server } else { CertificateKind::Client },
                names: also.clone(),
                key: key.key_kind(),
                days: *days,
                ocsp: ocsp.clone(),
                crl: crl.clone(),
            };
            let mut authority = open_authority(dir)?;
            give_server_keys(dir, &mut authority);
            let issued = authority.issue(&request, now())?;
            print_issued(output, &[(name.clone(), issued)])
        }
        CertCommand::Renew { name, expiring, days } => {
            let mut authority = open_authority(dir)?;
            give_server_keys(dir, &mut authority);
            let names = match name {
                Some(name) => vec![name.clone()],
                None => find_expiring_certificates(&authority, expiring.unwrap_or(0)),
            };
            let mut issued = Vec::new();
            for name in names {
                let renewed = authority.renew(&name, *days, now())?;
                issued.push((name, renewed));
            }
            print_issued(output, &issued)
        }
        CertCommand::Revoke { name, reason, config } => {
            let reason = match reason {
                RevocationReasonArg::Unspecified => RevokeReason::Unspecified,
                RevocationReasonArg::KeyCompromise => RevokeReason::KeyCompromise,
                RevocationReasonArg::Superseded => RevokeReason::Superseded,
                RevocationReasonArg::CessationOfOperation => RevokeReason::CessationOfOperation,
            };
            open_authority(dir)?.revoke(name, reason, now())?;
            let list = dir.join("ca.crl");
            output.print_note(&format!("{name} is in {}", list.display()));
            reload_revocation_list(output, config, &list, true)
                .map_err(|error| CommandFailure::runtime_error(format!("{name} is revoked, but {error}")))
        }
        CertCommand::List => list_certificates(output, &open_authority(dir)?),
        CertCommand::Show { files } => show_certificates(output, files),
        CertCommand::Crl { expiring, config } => {
            let list = dir.join("ca.crl");
            let holds = expiring.filter(|days| {
                let until = now() + Duration::from_secs(u64::from(*days) * 86_400);
                end_of(&list).is_some_and(|end| end > until)
            });
            let is = if let Some(days) = holds {
                output.print_note(&format!("{} holds for more than {days} days yet", list.display()));
                "holds"
            } else {
                open_authority(dir)?.publish_list(now())?;
                output.print_note(&format!("{} holds for 30 days from now", list.display()));
                "is new"
            };
            reload_revocation_list(output, config, &list, holds.is_none()).map_err(|error| {
                CommandFailure::runtime_error(format!("{} {is}, but {error}", list.display()))
            })
        }
    }
}

/// When a list is out of date; `None` where it is none, or does not say so.
fn end_of(list: &Path) -> Option<WallTime> {
    read_revocation_list(list)?.next_update
}

fn read_revocation_list(list: &Path) -> Option<RevocationList> {
    RevocationList::read_lists(&std::fs::read(list).ok()?).ok()?.pop()
}

/// Has the server that runs here, if one does, read a revocation list, where that is new or the server does not have it yet:
/// it may have been told in vain when the list was made.
fn reload_revocation_list(
    output: &ConsoleOutput,
    config: &AaaConfigArgs,
    list: &Path,
    new: bool,
) -> Result<(), String> {
    // Secrets of the configuration may be there for the server alone.
    let location = ServerLocation::from_config(config.config.as_deref())
        .map_err(|error| format!("the configuration cannot be read: {error}"))?;
    let Some(ours) = read_revocation_list(list) else { return Err("it is no revocation list".to_owned()) };
    let same = |path: &PathBuf| path == list || path.canonicalize().ok() == list.canonicalize().ok();
    let named = location.crl.iter().any(same);
    let unread = "the running server does not read this list; name it in crl of [tls]";
    if !new {
        match has_loaded_list(&location, &ours) {
            Err(ControlError::NotRunning { .. }) => return Ok(()),
            Err(error) => return Err(format!("the running server does not say whether it has it: {error}")),
            Ok(true) => return Ok(()),
            Ok(false) if !named => {
                output.print_note(unread);
                return Ok(());
            }
            Ok(false) => output.print_note("the running server does not have it yet"),
        }
    }
    match control::request_reply(&location.control_socket, &control::ControlRequest::Reload) {
        Err(ControlError::NotRunning { .. }) => {
            output.print_note("no server runs here; one reads the list when it starts");
            return Ok(());
        }
        Err(error) => return Err(format!("the running server was not reloaded: {error}")),
        Ok(_) => {}
    }
    match has_loaded_list(&location, &ours) {
        Ok(true) => {
            output.print_note("the running server has read it; no earlier TLS session lets anybody in")
        }
        Ok(false) if named => return Err("the running server does not use it; see its log".to_owned()),
        Ok(false) => output.print_note(unread),
        Err(error) => return Err(format!("the running server does not say whether it has it: {error}")),
    }
    Ok(())
}

/// Whether the running server uses this list, or a later one of its authority.
fn has_loaded_list(location: &ServerLocation, ours: &RevocationList) -> Result<bool, ControlError> {
    let made = ours.this_update.unix_secs();
    let at_least = |l: &ListStatus| l.made > made || (l.made == made && l.number == ours.crl_number());
    Ok(match control::request_reply(&location.control_socket, &control::ControlRequest::Status)? {
        ControlReply::Status(status) => status.lists.iter().any(|l| l.issuer == ours.issuer && at_least(l)),
        _ => false,
    })
}

fn init_authority(
    output: &ConsoleOutput,
    dir: &Path,
    name: &str,
    server: Option<&str>,
    under: Option<&Path>,
    key: KeyKind,
    days: u32,
) -> Result<(), CommandFailure> {
    let options = InitOptions { name: name.to_owned(), key, days, now: now() };
    let mut authority = match under {
        Some(above) => open_authority(above)?.create_subordinate(dir, &options)?,
        None => CertificateAuthority::init(dir, &options)?,
    };
    output.print_note(&format!("{} is what clients have to trust", authority.certificate_path().display()));
    let Some(server) = server else { return Ok(()) };
    let request = CertificateRequest {
        name: server.to_owned(),
        kind: CertificateKind::Server,
        names: Vec::new(),
        key,
        days: days.min(825),
        ocsp: None,
        crl: None,
    };
    give_server_keys(dir, &mut authority);
    let issued = authority.issue(&request, now())?;
    print_issued(output, &[(server.to_owned(), issued)])
}

/// The authority in a folder.
fn open_authority(dir: &Path) -> Result<CertificateAuthority, CommandFailure> {
    CertificateAuthority::open(dir).map_err(|error| match error {
        PkiError::Missing(_) if dir == Path::new(FOLDER) && Path::new(EARLIER).join("ca.key").exists() => {
            CommandFailure::runtime_error(format!(
                "the authority is now expected in {FOLDER}, which only root can change; move the one of the earlier \
                 version: mv {EARLIER} {FOLDER} && chown -R root: {FOLDER} && chgrp usher {FOLDER}/issued/SERVER.key && \
                 chmod 0640 {FOLDER}/issued/SERVER.key, and name the new paths in [tls] of /etc/usher/aaa.toml"
            ))
        }
        error => error.into(),
    })
}

/// Lets the service read servers' keys that root makes in /etc/usher, whose group is the service's; the authority's own
/// key and its users' stay root's.
fn give_server_keys(dir: &Path, authority: &mut CertificateAuthority) {
    if let Some(above) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
        let above = above.to_owned();
        authority.prepare_server_keys(move |key| usher_store::let_group_read(&above, key));
    }
}

/// The names whose newest certificate expires within so many days and was not taken back.
fn find_expiring_certificates(authority: &CertificateAuthority, days: u32) -> Vec<String> {
    let until = now().unix_secs() + u64::from(days) * 86_400;
    let mut seen: Vec<&str> = Vec::new();
    let mut names = Vec::new();
    for entry in authority.entries().iter().rev().filter(|e| e.revoked.is_none()) {
        let name = entry.request.name.as_str();
        if !seen.contains(&name) {
            seen.push(name);
            if entry.not_after <= until && entry.request.kind != CertificateKind::Authority {
                names.push(name.to_owned());
            }
        }
    }
    names
}

fn print_issued(
    output: &ConsoleOutput,
    issued: &[(String, IssuedCertificate)],
) -> Result<(), CommandFailure> {
    if output.json {
        let rows: Vec<_> = issued
            .iter()
            .map(|(name, i)| {
                json!({ "name": name, "certificate": i.certificate, "key": i.key, "not_after": i.not_after.unix_secs() })
            })
            .collect();
        return output.print_json(&json!(rows));
    }
    let rows: Vec<Vec<String>> = issued
        .iter()
        .map(|(name, i)| {
            vec![
                name.clone(),
                i.certificate.display().to_string(),
                i.key.display().to_string(),
                remaining_validity(i.not_after),
            ]
        })
        .collect();
    output.print_text(&format_columns(&rows))
}

/// How long a certificate holds yet.
fn remaining_validity(not_after: WallTime) -> String {
    match not_after.unix_secs().checked_sub(now().unix_secs()) {
        Some(seconds) => format!("{} days left", seconds / 86_400),
        None => "expired".to_owned(),
    }
}

fn list_certificates(output: &ConsoleOutput, authority: &CertificateAuthority) -> Result<(), CommandFailure> {
    let entries = authority.entries();
    if output.json {
        return output.print_json(&json!(entries));
    }
    let state = |e: &IndexEntry| match e.revoked {
        Some(_) => "revoked".to_owned(),
        None => remaining_validity(WallTime::from_unix_secs(e.not_after)),
    };
    let kind = |e: &IndexEntry| match e.request.kind {
        CertificateKind::Server => "server",
        CertificateKind::Client => "client",
        CertificateKind::Authority => "authority",
    };
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|e| vec![e.request.name.clone(), kind(e).to_owned(), e.serial.clone(), state(e)])
        .collect();
    output.print_text(&format_columns(&rows))
}

fn show_certificates(output: &ConsoleOutput, files: &[PathBuf]) -> Result<(), CommandFailure> {
    let mut said = Vec::new();
    for file in files {
        let text = std::fs::read(file)
            .map_err(|e| CommandFailure::runtime_error(format!("{}: {e}", file.display())))?;
        let i = CertificateInfo::of_pem(&text)
            .map_err(|e| CommandFailure::runtime_error(format!("{}: {e}", file.display())))?;
        said.push((file, i));
    }
    if output.json {
        let rows: Vec<_> = said
            .iter()
            .map(|(file, i)| {
                json!({ "file": file, "subject": i.subject, "names": i.names, "issuer": i.issuer, "serial": i.serial,
                        "not_before": i.not_before.unix_secs(), "not_after": i.not_after.unix_secs(),
                        "authority": i.authority, "ocsp": i.ocsp })
            })
            .collect();
        return output.print_json(&json!(rows));
    }
    for (file, i) in said {
        let rows = [
            ("file", file.display().to_string()),
            ("subject", i.subject),
            ("names", i.names.join(", ")),
            ("issuer", i.issuer),
            ("serial", i.serial),
            ("holds", remaining_validity(i.not_after)),
            ("OCSP", i.ocsp.join(", ")),
        ];
        output.print_text(&format_columns(&rows.map(|(what, value)| vec![what.to_owned(), value])))?;
    }
    Ok(())
}
