//! Revocation checks of the peers' certificates: the table `[revocation]`.

#[cfg(feature = "tls")]
use super::build::GatewayConfigBuilder;
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

/// Where what was fetched is kept unless somebody says otherwise.
pub const DEFAULT_STATE: &str = "/var/lib/usher/ike";

usher_core::named! {
    "a policy of asking";
    /// Whether an authority is asked if a certificate still holds.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum OcspPolicy {
        /// Never.
        Off = "off",
        /// Asked; where there is no answer, the certificate is taken.
        Soft = "soft",
        /// Asked; where there is no answer, the certificate is refused.
        Hard = "hard",
    }
}

/// Whether certificates by which the other sides prove who they are still hold. It is about IKE itself: users of EAP-TLS are their
/// AAA server's affair. In a study nobody is asked.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevocationTable {
    /// Certificate revocation lists, files of PEM or DER.
    pub crl: Vec<PathBuf>,
    /// Where lists of authorities in `ca` are fetched: `http://` URLs.
    pub crl_url: Vec<String>,
    /// Whether they are fetched, too, from where the certificates of `ca` say (CRL distribution points).
    pub crl_distribution_points: bool,
    /// How often it is looked whether there is a later list, and whether a file of `crl` is another: 1 s to a day.
    pub crl_interval: TimeSpan,
    /// Whether the authority is asked if the other side's certificate still holds (OCSP).
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<OcspPolicy>")]
    pub ocsp: OcspPolicy,
    /// Hosts from which they are fetched, too, where the other sides' certificates, and those between them and `ca`, say so: names
    /// (`crl.example.org`, `*.example.org`), with a port where it is not 80. None: those certificates are not asked. A list is fetched
    /// when somebody first shows such a certificate, who waits 3 s for it at most; 16 are kept, in memory.
    pub crl_from_peers: Vec<String>,
    /// Whether a certificate is refused where no list of its issuer is known, or of an issuer above it.
    pub crl_required: bool,
    /// Whether the other side is shown a response of OCSP about this side's certificate where it asks for that (RFC 4806). With `ocsp` this
    /// side asks for one, and asks the responder itself where it is shown none.
    pub ocsp_response: bool,
    /// Where OCSP is asked, in place of what the certificate says.
    pub ocsp_url: Option<String>,
    /// The folder in which lists that were fetched are kept.
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
        !self.crl.is_empty() || self.fetches_lists() || self.needs_lookup()
    }
    /// Whether somebody is asked, or something fetched, for the certificate of one who proves itself by it.
    #[must_use]
    pub fn needs_lookup(&self) -> bool {
        self.ocsp != OcspPolicy::Off || !self.crl_from_peers.is_empty() || self.crl_required
    }
    /// Whether lists are fetched.
    #[must_use]
    pub fn fetches_lists(&self) -> bool {
        !self.crl_url.is_empty() || self.crl_distribution_points
    }
}

#[cfg(feature = "tls")]
pub(super) fn check_revocation(
    builder: &mut GatewayConfigBuilder<'_>,
    table: &RevocationTable,
    certified: bool,
    certifies: bool,
) {
    let by_http = |url: &str| {
        url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) && url.len() > 7
    };
    let wrong =
        |url: &str| format!("\"{url}\" is no http:// URL: what is fetched is signed, and needs no TLS");
    for (i, url) in table.crl_url.iter().enumerate().filter(|(_, url)| !by_http(url)) {
        builder.report_error(&["revocation", "crl_url", &i.to_string()], wrong(url));
    }
    if let Some(url) = table.ocsp_url.as_ref().filter(|url| !by_http(url)) {
        builder.report_error(&["revocation", "ocsp_url"], wrong(url));
    }
    let hosts = table.crl_from_peers.iter().enumerate();
    for (i, fault) in hosts.filter_map(|(i, host)| Some((i, usher_config::hosts::host_entry_error(host)?))) {
        builder.report_error(&["revocation", "crl_from_peers", &i.to_string()], fault);
    }
    let interval = table.crl_interval.get();
    if interval < Duration::from_secs(1) || interval > Duration::from_secs(86_400) {
        builder.report_error(
            &["revocation", "crl_interval"],
            "lists are looked at each second at most, and each day at least",
        );
    }
    let shows = table.ocsp_response && certifies;
    if table.ocsp_url.is_some() && table.ocsp == OcspPolicy::Off && !shows {
        builder
            .report_error(&["revocation", "ocsp_url"], "nobody is asked: write ocsp = \"soft\" or \"hard\"");
    }
    if table.is_used() && !certified {
        builder.report_error(
            &["revocation"],
            "no connection has remote_auth = \"certificate\": there are no certificates to look at",
        );
    }
}
