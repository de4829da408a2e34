//! Revocation checks of the peers' certificates: the table `[revocation]`.

use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "tls")]
use alloc::{format, string::ToString};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use usher_config::named;
use usher_config::units::TimeSpan;
#[cfg(feature = "tls")]
use usher_core::Duration;

/// The default folder for fetched lists.
pub const DEFAULT_STATE: &str = "/var/lib/usher/ike";

usher_core::named! {
    "an OCSP policy";
    /// Whether OCSP checks certificates.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum OcspPolicy {
        /// OCSP is off.
        Off = "off",
        /// OCSP is on. Without a response, the certificate is accepted.
        Soft = "soft",
        /// OCSP is on. Without a response, the certificate is rejected.
        Hard = "hard",
    }
}

/// Revocation checks of the certificates by which peers authenticate in IKE. The AAA server checks those of EAP-TLS. A
/// study makes none of these checks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevocationTable {
    /// Files with certificate revocation lists, in PEM or DER.
    pub crl: Vec<PathBuf>,
    /// The `http://` URLs of lists of the authorities in `ca`.
    pub crl_url: Vec<String>,
    /// Whether lists are also fetched from the CRL distribution points of the certificates in `ca`.
    pub crl_distribution_points: bool,
    /// The interval at which lists are fetched, and files of `crl` checked for changes: 1 s to 1 day.
    pub crl_interval: TimeSpan,
    /// Whether OCSP checks the peer's certificate.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<OcspPolicy>")]
    pub ocsp: OcspPolicy,
    /// Hosts from which lists are also fetched if the peer's certificate, or one between it and `ca`, names them. A
    /// host is a name (`crl.example.org`, `*.example.org`), with a port if it is not 80. Without hosts, lists that
    /// these certificates name are not fetched. A list is fetched when a peer first shows such a certificate, which
    /// delays the peer by at most 3 s. Up to 16 lists are kept, in memory.
    pub crl_from_peers: Vec<String>,
    /// Whether a certificate is rejected if the list of its issuer, or of an issuer above, is unknown.
    pub crl_required: bool,
    /// Whether this side sends an OCSP response for its certificate if the peer requests one (RFC 4806). With `ocsp`,
    /// this side requests one from the peer, and asks the responder itself if the peer sends none.
    pub ocsp_response: bool,
    /// The URL of the OCSP responder, instead of that in the certificate.
    pub ocsp_url: Option<String>,
    /// The folder for fetched lists.
    pub state_dir: PathBuf,
}

impl Default for RevocationTable {
    fn default() -> Self {
        Self {
            crl: Vec::new(),
            crl_url: Vec::new(),
            crl_distribution_points: false,
            crl_interval: TimeSpan::from_secs(3600),
            crl_from_peers: Vec::new(),
            crl_required: false,
            ocsp: OcspPolicy::Off,
            ocsp_response: true,
            ocsp_url: None,
            state_dir: DEFAULT_STATE.into(),
        }
    }
}

impl RevocationTable {
    /// Whether anything is looked at.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.crl.is_empty() || self.fetches_revocation_lists() || self.needs_revocation_lookup()
    }
    /// Whether somebody is asked, or something fetched, for the certificate of one who proves itself by it.
    #[must_use]
    pub fn needs_revocation_lookup(&self) -> bool {
        self.ocsp != OcspPolicy::Off || !self.crl_from_peers.is_empty() || self.crl_required
    }
    /// Whether lists are fetched.
    #[must_use]
    pub fn fetches_revocation_lists(&self) -> bool {
        !self.crl_url.is_empty() || self.crl_distribution_points
    }
}

#[cfg(feature = "tls")]
pub(super) fn check_revocation(
    report: &mut dyn FnMut(&[&str], String),
    table: &RevocationTable,
    certified: bool,
    certifies: bool,
) {
    let by_http = |url: &str| {
        url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) && url.len() > 7
    };
    let wrong = |url: &str| {
        format!("\"{url}\" is not an http:// URL; lists and OCSP responses are signed and need no TLS")
    };
    for (i, url) in table.crl_url.iter().enumerate().filter(|(_, url)| !by_http(url)) {
        report(&["revocation", "crl_url", &i.to_string()], wrong(url));
    }
    if let Some(url) = table.ocsp_url.as_ref().filter(|url| !by_http(url)) {
        report(&["revocation", "ocsp_url"], wrong(url));
    }
    let hosts = table.crl_from_peers.iter().enumerate();
    for (i, fault) in hosts.filter_map(|(i, host)| Some((i, usher_config::hosts::host_entry_error(host)?))) {
        report(&["revocation", "crl_from_peers", &i.to_string()], fault);
    }
    let interval = table.crl_interval.get();
    if interval < Duration::from_secs(1) || interval > Duration::from_secs(86_400) {
        report(&["revocation", "crl_interval"], "the interval must be from 1 s to 1 d".into());
    }
    let shows = table.ocsp_response && certifies;
    if table.ocsp_url.is_some() && table.ocsp == OcspPolicy::Off && !shows {
        report(
            &["revocation", "ocsp_url"],
            "OCSP is off, so the URL has no effect; write ocsp = \"soft\" or \"hard\"".into(),
        );
    }
    if table.is_used() && !certified {
        report(
            &["revocation"],
            "no connection has remote_auth = \"certificate\", so there are no certificates to check".into(),
        );
    }
}
