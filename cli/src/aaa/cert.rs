//! `usher aaa cert`: the authority in a folder, its certificates and its revocation list.

use super::args::AaaConfigArgs;
use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use usher_aaa_daemon::ServerControlPaths;
use usher_aaa_daemon::control::{self, ControlError, ControlReply, RevocationListStatus};
use usher_core::{Duration, WallTime};
use usher_crypto::x509::{CertificateInfo, RevocationList};
use usher_pki::{
    AuthorityInitOptions, CertificateAuthority, CertificateKind, CertificateRequest, IndexEntry,
    IssuedCertificate, KeyKind, PkiError, RevokeReason,
};

/// The default folder of the authority: below the folder of the configuration, which belongs to root.
const FOLDER: &str = "/etc/usher/pki";
/// The default folder of version 0.1.0: below the service's folder, where its user could redirect root's files.
const EARLIER: &str = "/var/lib/usher/pki";

#[derive(Args, Debug)]
struct AuthorityFolderArgs {
    /// The authority's folder.
    #[arg(long, global = true, value_name = "DIR", default_value = FOLDER)]
    dir: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CertArgs {
    #[command(flatten)]
    place: AuthorityFolderArgs,
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(Subcommand, Debug)]
enum CertCommand {
    /// Create a certificate authority, and with --server a server certificate.
    #[command(after_help = "Example:
  usher aaa cert init --server radius.example.org

EAP clients must trust DIR/ca.crt. Keep DIR/ca.key secret: its holder can pose as any user or server.")]
    Init {
        /// The authority's common name.
        #[arg(long, default_value = "Usher AAA")]
        name: String,
        /// Also issue a certificate for a server with this DNS name.
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
        /// Create the authority under the one in this folder. Every chain then has one more certificate.
        #[arg(long, value_name = "DIR")]
        under: Option<PathBuf>,
        #[command(flatten)]
        key: CertificateKeyArgs,
        /// The authority's validity in days.
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
        /// Issue a server certificate.
        #[arg(long)]
        server: bool,
        /// A further DNS name or address of the server; may be repeated.
        #[arg(long, value_name = "NAME", requires = "server")]
        also: Vec<String>,
        #[command(flatten)]
        key: CertificateKeyArgs,
        /// The certificate's validity in days.
        #[arg(long, default_value_t = 365)]
        days: u32,
        /// The URL of the OCSP responder, for the certificate.
        #[arg(long, value_name = "URL")]
        ocsp: Option<String>,
        /// The URL of the revocation list, for the certificate.
        #[arg(long, value_name = "URL")]
        crl: Option<String>,
    },
    /// Renew a certificate, with a new key. The earlier one stays valid until it expires.
    #[command(after_help = "Examples:
  usher aaa cert renew radius.example.org && systemctl reload usher-aaa
  usher aaa cert renew --expiring 30")]
    Renew {
        /// The name of the user or server.
        #[arg(required_unless_present = "expiring")]
        name: Option<String>,
        /// Renew every certificate that expires within DAYS days.
        #[arg(long, value_name = "DAYS", conflicts_with = "name")]
        expiring: Option<u32>,
        /// The validity in days [default: as before].
        #[arg(long)]
        days: Option<u32>,
    },
    /// Revoke a certificate: add it to the revocation list, and make the running server read the list.
    #[command(after_help = "Example:\n  usher aaa cert revoke ann@example.org --reason key-compromise")]
    Revoke {
        /// The name of the user or server.
        name: String,
        /// The reason.
        #[arg(long, value_enum, default_value_t = RevocationReasonArg::Unspecified)]
        reason: RevocationReasonArg,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
    /// List the issued certificates.
    List,
    /// Show the contents of certificates.
    Show {
        /// PEM files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Write a new revocation list, valid for 30 days, and make the running server read it.
    #[command(after_help = "Examples:
  usher aaa cert crl
  usher aaa cert crl --expiring 10     once a day: only if the list expires within ten days")]
    Crl {
        /// Only if the present list expires within DAYS days.
        #[arg(long, value_name = "DAYS")]
        expiring: Option<u32>,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
}

#[derive(Args, Debug)]
struct CertificateKeyArgs {
    /// The kind of key.
    #[arg(long, value_enum, default_value_t = CertificateKeyType::EcdsaP256)]
    key: CertificateKeyType,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum CertificateKeyType {
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

impl CertificateKeyArgs {
    const fn key_kind(&self) -> KeyKind {
        match self.key {
            CertificateKeyType::EcdsaP256 => KeyKind::EcdsaP256,
            CertificateKeyType::Rsa2048 => KeyKind::Rsa2048,
            CertificateKeyType::Rsa3072 => KeyKind::Rsa3072,
            CertificateKeyType::Ed25519 => KeyKind::Ed25519,
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
            let mut authority = open_certificate_authority(dir)?;
            grant_server_key_access(dir, &mut authority);
            let issued = authority.issue(&request, now())?;
            print_issued_certificates(output, &[(name.clone(), issued)])
        }
        CertCommand::Renew { name, expiring, days } => {
            let mut authority = open_certificate_authority(dir)?;
            grant_server_key_access(dir, &mut authority);
            let names = match name {
                Some(name) => vec![name.clone()],
                None => find_expiring_certificates(&authority, expiring.unwrap_or(0)),
            };
            let mut issued = Vec::new();
            for name in names {
                let renewed = authority.renew(&name, *days, now())?;
                issued.push((name, renewed));
            }
            print_issued_certificates(output, &issued)
        }
        CertCommand::Revoke { name, reason, config } => {
            let reason = match reason {
                RevocationReasonArg::Unspecified => RevokeReason::Unspecified,
                RevocationReasonArg::KeyCompromise => RevokeReason::KeyCompromise,
                RevocationReasonArg::Superseded => RevokeReason::Superseded,
                RevocationReasonArg::CessationOfOperation => RevokeReason::CessationOfOperation,
            };
            open_certificate_authority(dir)?.revoke(name, reason, now())?;
            let list = dir.join("ca.crl");
            output.print_note(&format!("{name} is revoked in {}", list.display()));
            reload_revocation_list(output, config, &list, true)
                .map_err(|error| CommandFailure::runtime_error(format!("{name} is revoked, but {error}")))
        }
        CertCommand::List => list_certificates(output, &open_certificate_authority(dir)?),
        CertCommand::Show { files } => show_certificates(output, files),
        CertCommand::Crl { expiring, config } => {
            let list = dir.join("ca.crl");
            let holds = expiring.filter(|days| {
                let until = now() + Duration::from_secs(u64::from(*days) * 86_400);
                revocation_list_expiry(&list).is_some_and(|end| end > until)
            });
            let is = if let Some(days) = holds {
                output.print_note(&format!("{} is valid for more than {days} days", list.display()));
                "is valid"
            } else {
                open_certificate_authority(dir)?.publish_list(now())?;
                output.print_note(&format!("{} is valid for 30 days from now", list.display()));
                "is new"
            };
            reload_revocation_list(output, config, &list, holds.is_none()).map_err(|error| {
                CommandFailure::runtime_error(format!("{} {is}, but {error}", list.display()))
            })
        }
    }
}

/// When a list is out of date; `None` where it is none, or does not say so.
fn revocation_list_expiry(list: &Path) -> Option<WallTime> {
    read_revocation_list(list)?.next_update
}

fn read_revocation_list(list: &Path) -> Option<RevocationList> {
    RevocationList::parse_revocation_lists(&std::fs::read(list).ok()?).ok()?.pop()
}

/// Makes a running server read a revocation list that is new or not yet loaded. An earlier request, when the list was
/// made, may have failed.
fn reload_revocation_list(
    output: &ConsoleOutput,
    config: &AaaConfigArgs,
    list: &Path,
    new: bool,
) -> Result<(), String> {
    // Read only the control paths: the configuration's secret files may be readable by the server's user only.
    let location = ServerControlPaths::from_config(config.config.as_deref())
        .map_err(|error| format!("cannot read the configuration: {error}"))?;
    let Some(ours) = read_revocation_list(list) else {
        return Err("the file is not a revocation list".to_owned());
    };
    let same = |path: &PathBuf| path == list || path.canonicalize().ok() == list.canonicalize().ok();
    let named = location.crl.iter().any(same);
    let unread = "the running server does not use this list; add it to crl in [tls]";
    if !new {
        match server_has_revocation_list(&location, &ours) {
            Err(ControlError::NotRunning { .. }) => return Ok(()),
            Err(error) => {
                return Err(format!("cannot ask the running server for its revocation lists: {error}"));
            }
            Ok(true) => return Ok(()),
            Ok(false) if !named => {
                output.print_note(unread);
                return Ok(());
            }
            Ok(false) => output.print_note("the running server has not read it yet"),
        }
    }
    match control::request_reply(&location.control_socket, &control::ControlRequest::Reload) {
        Err(ControlError::NotRunning { .. }) => {
            output.print_note("no server is running; it reads the list at its start");
            return Ok(());
        }
        Err(error) => return Err(format!("cannot reload the running server: {error}")),
        Ok(_) => {}
    }
    match server_has_revocation_list(&location, &ours) {
        Ok(true) => output.print_note("the running server has read it, and resumes no earlier TLS session"),
        Ok(false) if named => {
            return Err("the running server does not use it; see the server's log".to_owned());
        }
        Ok(false) => output.print_note(unread),
        Err(error) => return Err(format!("cannot ask the running server for its revocation lists: {error}")),
    }
    Ok(())
}

/// Whether the running server uses this list, or a later one of its authority.
fn server_has_revocation_list(
    location: &ServerControlPaths,
    ours: &RevocationList,
) -> Result<bool, ControlError> {
    let made = ours.this_update.unix_secs();
    let at_least =
        |l: &RevocationListStatus| l.made > made || (l.made == made && l.number == ours.crl_number());
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
    let options = AuthorityInitOptions { name: name.to_owned(), key, days, now: now() };
    let mut authority = match under {
        Some(above) => open_certificate_authority(above)?.create_subordinate(dir, &options)?,
        None => CertificateAuthority::init(dir, &options)?,
    };
    output.print_note(&format!("clients must trust {}", authority.certificate_path().display()));
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
    grant_server_key_access(dir, &mut authority);
    let issued = authority.issue(&request, now())?;
    print_issued_certificates(output, &[(server.to_owned(), issued)])
}

/// The authority in a folder.
fn open_certificate_authority(dir: &Path) -> Result<CertificateAuthority, CommandFailure> {
    CertificateAuthority::open(dir).map_err(|error| match error {
        PkiError::Missing(_) if dir == Path::new(FOLDER) && Path::new(EARLIER).join("ca.key").exists() => {
            CommandFailure::runtime_error(format!(
                "the authority's folder is now {FOLDER}, which only root can change. Move the earlier \
                 folder: mv {EARLIER} {FOLDER} && chown -R root: {FOLDER} && chgrp usher \
                 {FOLDER}/issued/SERVER.key && chmod 0640 {FOLDER}/issued/SERVER.key. Then change the paths \
                 in [tls] of /etc/usher/aaa.toml"
            ))
        }
        error => error.into(),
    })
}

/// Lets the service read servers' keys that root makes in /etc/usher: the folder's group is the service's. The keys
/// of the authority and of users stay root's.
fn grant_server_key_access(dir: &Path, authority: &mut CertificateAuthority) {
    if let Some(above) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
        let above = above.to_owned();
        authority.set_server_key_preparation(move |key| usher_store::allow_group_read(&above, key));
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

fn print_issued_certificates(
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
            .map_err(|e| CommandFailure::runtime_error(format!("cannot read {}: {e}", file.display())))?;
        let i = CertificateInfo::from_first_pem_certificate(&text)
            .map_err(|e| CommandFailure::runtime_error(format!("cannot read {}: {e}", file.display())))?;
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
            ("validity", remaining_validity(i.not_after)),
            ("OCSP", i.ocsp.join(", ")),
        ];
        output.print_text(&format_columns(&rows.map(|(what, value)| vec![what.to_owned(), value])))?;
    }
    Ok(())
}
