//! Revocation lists of a configuration: which are used, and when they expire.

use crate::model::TlsTable;
use crate::{DistributionPointCrl, LoadedAaaConfig, TlsFiles};
use alloc::collections::BTreeSet;
use usher_core::{Duration, WallTime};
use usher_crypto::tls::TrustRoots;
use usher_crypto::x509::{CertificateInfo, RevocationList};
use x509_parser::pem::Pem;

const DAY: Duration = Duration::from_secs(86_400);

/// Returns the seconds from one time to a later one.
#[must_use]
pub fn seconds_between(from: WallTime, to: WallTime) -> u64 {
    to.unix_secs().saturating_sub(from.unix_secs())
}

/// A list in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedCrlInfo {
    /// File, or URL of a fetched list.
    pub from: String,
    /// Issuer in the form of RFC 4514.
    pub issuer: String,
    /// Issue time.
    pub this_update: WallTime,
    /// Expiry.
    pub next_update: Option<WallTime>,
    /// cRLNumber in hexadecimal. Empty: none.
    pub number: String,
}

impl LoadedCrlInfo {
    fn new(from: &str, list: &RevocationList) -> Self {
        Self {
            from: from.to_owned(),
            issuer: list.issuer.clone(),
            this_update: list.this_update,
            next_update: list.next_update,
            number: list.crl_number(),
        }
    }
    /// Returns the stage of expiry. For a list that lives a month, the warning comes a week before. For a list that
    /// lives a day, it comes when a quarter is left.
    #[must_use]
    pub fn revocation_list_expiry_stage(&self, now: WallTime) -> CrlExpiryStage {
        let Some(end) = self.next_update else { return CrlExpiryStage::Good };
        let lifetime = seconds_between(self.this_update, end);
        let left = |at_most: u64, part: u64| seconds_between(now, end) <= at_most.min(lifetime / part);
        if now >= end {
            CrlExpiryStage::Expired
        } else if left(DAY.as_secs(), 8) {
            CrlExpiryStage::Urgent
        } else if left(7 * DAY.as_secs(), 4) {
            CrlExpiryStage::Soon
        } else {
            CrlExpiryStage::Good
        }
    }
    /// Returns the warning of a stage.
    #[must_use]
    pub fn revocation_list_expiry_warning(&self, now: WallTime) -> Option<String> {
        let Self { from, issuer, .. } = self;
        let end = self.next_update?;
        let hours = seconds_between(now, end) as f64 / 3600.0;
        match self.revocation_list_expiry_stage(now) {
            CrlExpiryStage::Good => None,
            CrlExpiryStage::Expired => Some(format!(
                "the revocation list {from} of {issuer} has expired: certificates of this issuer are rejected"
            )),
            CrlExpiryStage::Soon | CrlExpiryStage::Urgent => Some(format!(
                "the revocation list {from} of {issuer} expires in {hours:.1} hours: certificates of this issuer are \
                 rejected from then on"
            )),
        }
    }
}

/// The stage of a list's expiry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CrlExpiryStage {
    /// Not soon.
    Good,
    /// At most a week and a quarter of its life is left.
    Soon,
    /// At most a day and an eighth of its life is left.
    Urgent,
    /// Expired.
    Expired,
}

/// Returns the lists of a configuration with their DER, the newest first. Only the newest of several
/// lists for the same certificates is included, from a file or fetched, since TLS uses the first match.
///
/// # Errors
/// The file without a valid list.
pub fn effective_revocation_lists(
    tls: &TlsTable,
    files: &TlsFiles,
) -> Result<Vec<(LoadedCrlInfo, Vec<u8>)>, String> {
    let named = files.crls.iter().zip(tls.crl.iter().map(|path| path.display().to_string()));
    let fetched = files.fetched.iter().map(|(url, octets)| (octets, url.clone()));
    let authorities = files.ca.as_deref().map(parse_certificates).unwrap_or_default();
    let signed = |list: &RevocationList| list.is_signed_by(authorities.iter().map(Vec::as_slice));
    let mut latest: Vec<(String, RevocationList)> = Vec::new();
    let mut add = |octets: &[u8], from: String, better: &dyn Fn(&RevocationList, &RevocationList) -> bool| {
        for list in
            RevocationList::parse_revocation_lists(octets).map_err(|error| format!("{from}: {error}"))?
        {
            match latest.iter_mut().find(|(_, other)| other.has_same_issuer_and_scope(&list)) {
                None => latest.push((from.clone(), list)),
                Some(before) if better(&list, &before.1) => *before = (from.clone(), list),
                Some(_) => {}
            }
        }
        Ok::<_, String>(())
    };
    for (octets, from) in named.chain(fetched) {
        add(octets, from, &|list, other| supersedes_revocation_list(list, other, signed))?;
    }
    for DistributionPointCrl { url, issuer, octets } in &files.learnt {
        // Two authorities below `ca` may have the same name. The list of one must not replace the other's, so
        // signatures are checked by the issuer's key.
        let by_issuer = |list: &RevocationList| list.is_signed_by([&issuer[..]]);
        add(octets, url.clone(), &|list, other| {
            by_issuer(other) && supersedes_revocation_list(list, other, by_issuer)
        })?;
    }
    latest.sort_by_key(|(_, list)| core::cmp::Reverse(list.this_update));
    Ok(latest
        .into_iter()
        .map(|(from, list)| (LoadedCrlInfo::new(&from, &list), list.der().to_vec()))
        .collect())
}

/// True if the lists of `after` revoke only certificates that those of `before` revoke.
#[must_use]
pub fn revokes_no_new_certificates(before: &LoadedAaaConfig, after: &LoadedAaaConfig) -> bool {
    let lists = |loaded: &LoadedAaaConfig| -> Option<Vec<RevocationList>> {
        let (Some(tls), Some(files)) = (&loaded.file.tls, &loaded.tls) else { return Some(Vec::new()) };
        let used = effective_revocation_lists(tls, files).ok()?;
        used.iter().map(|(_, der)| RevocationList::of_der(der).ok()).collect()
    };
    let (Some(before), Some(after)) = (lists(before), lists(after)) else { return false };
    after.iter().all(|list| before.iter().any(|before| list.revokes_only_certificates_of(before)))
}

/// True if a list replaces another one for the same certificates. A list signed by an authority precedes an
/// unsigned one, such as one of a former authority with the same name. Then the newer one counts.
fn supersedes_revocation_list(
    list: &RevocationList,
    other: &RevocationList,
    signed: impl Fn(&RevocationList) -> bool,
) -> bool {
    match (signed(list), signed(other)) {
        (true, false) => true,
        (false, true) => false,
        // If dates and numbers disagree about which list is later, the dates decide.
        _ => {
            list.supersedes_list(other)
                || (!other.supersedes_list(list) && list.this_update > other.this_update)
        }
    }
}

/// Returns the URLs of lists.
#[must_use]
pub fn list_urls(tls: &TlsTable, files: &TlsFiles) -> BTreeSet<String> {
    let mut urls: BTreeSet<String> = tls.crl_url.iter().cloned().collect();
    if tls.crl_distribution_points {
        for text in [Some(&files.certificate), files.ca.as_ref()].into_iter().flatten() {
            for der in parse_certificates(text) {
                let said = CertificateInfo::of_der(&der).map(|said| said.crl).unwrap_or_default();
                urls.extend(said.into_iter().filter(|url| url.starts_with("http://")));
            }
        }
    }
    urls
}

/// Returns the certificates of a PEM text in DER.
#[must_use]
pub fn parse_certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    Pem::iter_from_buffer(pem).flatten().map(|pem| pem.contents).collect()
}

/// Checks that TLS accepts a list.
///
/// # Errors
/// The cause.
pub fn validate_revocation_list(list: &RevocationList) -> Result<(), String> {
    TrustRoots::default().with_revocation_lists([list.der()]).map(drop).map_err(|e| e.to_string())
}

/// Returns why the contents of a file are no usable list.
#[must_use]
pub fn find_revocation_list_fault(octets: &[u8]) -> Option<String> {
    match RevocationList::parse_revocation_lists(octets) {
        Ok(lists) => lists.iter().find_map(|list| validate_revocation_list(list).err()),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall_at(seconds: u64) -> WallTime {
        WallTime::from_unix_secs(1_800_000_000 + seconds)
    }

    #[test]
    fn the_end_of_a_list_is_told_in_time() {
        let of = |lifetime| LoadedCrlInfo {
            from: "ca.crl".into(),
            issuer: "CN=A".into(),
            this_update: wall_at(0),
            next_update: Some(wall_at(lifetime)),
            number: String::new(),
        };
        let day = 86_400;
        let month = of(30 * day);
        for (now, stage) in [
            (0, CrlExpiryStage::Good),
            (23 * day - 1, CrlExpiryStage::Good),
            (23 * day, CrlExpiryStage::Soon),
            (29 * day, CrlExpiryStage::Urgent),
            (30 * day, CrlExpiryStage::Expired),
        ] {
            assert_eq!(month.revocation_list_expiry_stage(wall_at(now)), stage, "{now}");
        }
        // A list that lives a day does not warn all day.
        let short = of(day);
        let stages = [0, 18 * 3600 - 1, 18 * 3600, 21 * 3600, day]
            .map(|now| short.revocation_list_expiry_stage(wall_at(now)));
        assert_eq!(
            stages,
            [
                CrlExpiryStage::Good,
                CrlExpiryStage::Good,
                CrlExpiryStage::Soon,
                CrlExpiryStage::Urgent,
                CrlExpiryStage::Expired
            ]
        );
        assert!(
            short.revocation_list_expiry_warning(wall_at(0)).is_none()
                && short.revocation_list_expiry_warning(wall_at(20 * 3600)).unwrap().contains("4.0 hours")
        );
        assert!(short.revocation_list_expiry_warning(wall_at(day)).unwrap().contains("has expired"));
        let endless = LoadedCrlInfo { next_update: None, ..of(1) };
        assert_eq!(endless.revocation_list_expiry_stage(wall_at(1 << 40)), CrlExpiryStage::Good);
    }
}
