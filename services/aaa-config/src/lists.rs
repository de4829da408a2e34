//! Revocation lists of a configuration: which are used, and when they expire.

use crate::model::TlsTable;
use crate::{LearntList, LoadedConfig, TlsFiles};
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
pub struct RevocationListInfo {
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

impl RevocationListInfo {
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
    pub fn expiry_stage(&self, now: WallTime) -> ExpiryStage {
        let Some(end) = self.next_update else { return ExpiryStage::Good };
        let lifetime = seconds_between(self.this_update, end);
        let left = |at_most: u64, part: u64| seconds_between(now, end) <= at_most.min(lifetime / part);
        if now >= end {
            ExpiryStage::Expired
        } else if left(DAY.as_secs(), 8) {
            ExpiryStage::Urgent
        } else if left(7 * DAY.as_secs(), 4) {
            ExpiryStage::Soon
        } else {
            ExpiryStage::Good
        }
    }
    /// Returns the warning of a stage.
    #[must_use]
    pub fn expiry_warning(&self, now: WallTime) -> Option<String> {
        let Self { from, issuer, .. } = self;
        let end = self.next_update?;
        let hours = seconds_between(now, end) as f64 / 3600.0;
        match self.expiry_stage(now) {
            ExpiryStage::Good => None,
            ExpiryStage::Expired => Some(format!(
                "the revocation list {from} of {issuer} is out of date: nobody with a certificate of it gets in"
            )),
            ExpiryStage::Soon | ExpiryStage::Urgent => Some(format!(
                "the revocation list {from} of {issuer} is out of date in {hours:.1} hours: nobody with a certificate of it gets in then"
            )),
        }
    }
}

/// The stage of a list's expiry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ExpiryStage {
    /// Not soon.
    Good,
    /// At most a week and a quarter of its life is left.
    Soon,
    /// At most a day and an eighth of its life is left.
    Urgent,
    /// Expired.
    Expired,
}

/// Returns the lists of a configuration with their DER, the newest first. Of lists for the same certificates only
/// the newest is included, whether from a file or fetched, since TLS uses the first match.
///
/// # Errors
/// The file without a valid list.
pub fn lists_in_use(tls: &TlsTable, files: &TlsFiles) -> Result<Vec<(RevocationListInfo, Vec<u8>)>, String> {
    let named = files.crls.iter().zip(tls.crl.iter().map(|path| path.display().to_string()));
    let fetched = files.fetched.iter().map(|(url, octets)| (octets, url.clone()));
    let authorities = files.ca.as_deref().map(parse_certificates).unwrap_or_default();
    let signed = |list: &RevocationList| list.is_signed_by(authorities.iter().map(Vec::as_slice));
    let mut latest: Vec<(String, RevocationList)> = Vec::new();
    let mut add = |octets: &[u8], from: String, better: &dyn Fn(&RevocationList, &RevocationList) -> bool| {
        for list in RevocationList::read_lists(octets).map_err(|error| format!("{from}: {error}"))? {
            match latest.iter_mut().find(|(_, other)| other.is_about_those_of(&list)) {
                None => latest.push((from.clone(), list)),
                Some(before) if better(&list, &before.1) => *before = (from.clone(), list),
                Some(_) => {}
            }
        }
        Ok::<_, String>(())
    };
    for (octets, from) in named.chain(fetched) {
        add(octets, from, &|list, other| is_better(list, other, signed))?;
    }
    for LearntList { url, issuer, octets } in &files.learnt {
        // Below `ca`, an authority may have the same name as another. Its list must not replace the other's.
        let by_issuer = |list: &RevocationList| list.is_signed_by([&issuer[..]]);
        add(octets, url.clone(), &|list, other| by_issuer(other) && is_better(list, other, by_issuer))?;
    }
    latest.sort_by_key(|(_, list)| core::cmp::Reverse(list.this_update));
    Ok(latest
        .into_iter()
        .map(|(from, list)| (RevocationListInfo::new(&from, &list), list.der().to_vec()))
        .collect())
}

/// True if the lists of `after` revoke only certificates that those of `before` revoke.
#[must_use]
pub fn add_nothing(before: &LoadedConfig, after: &LoadedConfig) -> bool {
    let lists = |loaded: &LoadedConfig| -> Option<Vec<RevocationList>> {
        let (Some(tls), Some(files)) = (&loaded.file.tls, &loaded.tls) else { return Some(Vec::new()) };
        let used = lists_in_use(tls, files).ok()?;
        used.iter().map(|(_, der)| RevocationList::of_der(der).ok()).collect()
    };
    let (Some(before), Some(after)) = (lists(before), lists(after)) else { return false };
    after.iter().all(|list| before.iter().any(|before| list.adds_nothing_to(before)))
}

/// True if a list replaces another one for the same certificates. A list signed by an authority precedes an
/// unsigned one, such as one of a former authority with the same name. Then the newer one counts.
fn is_better(
    list: &RevocationList,
    other: &RevocationList,
    signed: impl Fn(&RevocationList) -> bool,
) -> bool {
    match (signed(list), signed(other)) {
        (true, false) => true,
        (false, true) => false,
        // If date and number disagree, the date counts.
        _ => {
            list.is_later_than(other) || (!other.is_later_than(list) && list.this_update > other.this_update)
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
pub fn check_list(list: &RevocationList) -> Result<(), String> {
    TrustRoots::default().with_revocation_lists([list.der()]).map(drop).map_err(|e| e.to_string())
}

/// Returns why the contents of a file are no usable list.
#[must_use]
pub fn find_list_fault(octets: &[u8]) -> Option<String> {
    match RevocationList::read_lists(octets) {
        Ok(lists) => lists.iter().find_map(|list| check_list(list).err()),
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
        let of = |lifetime| RevocationListInfo {
            from: "ca.crl".into(),
            issuer: "CN=A".into(),
            this_update: wall_at(0),
            next_update: Some(wall_at(lifetime)),
            number: String::new(),
        };
        let day = 86_400;
        let month = of(30 * day);
        for (now, stage) in [
            (0, ExpiryStage::Good),
            (23 * day - 1, ExpiryStage::Good),
            (23 * day, ExpiryStage::Soon),
            (29 * day, ExpiryStage::Urgent),
            (30 * day, ExpiryStage::Expired),
        ] {
            assert_eq!(month.expiry_stage(wall_at(now)), stage, "{now}");
        }
        // A list that lives a day does not warn all day.
        let short = of(day);
        let stages =
            [0, 18 * 3600 - 1, 18 * 3600, 21 * 3600, day].map(|now| short.expiry_stage(wall_at(now)));
        assert_eq!(
            stages,
            [
                ExpiryStage::Good,
                ExpiryStage::Good,
                ExpiryStage::Soon,
                ExpiryStage::Urgent,
                ExpiryStage::Expired
            ]
        );
        assert!(
            short.expiry_warning(wall_at(0)).is_none()
                && short.expiry_warning(wall_at(20 * 3600)).unwrap().contains("4.0 hours")
        );
        assert!(short.expiry_warning(wall_at(day)).unwrap().contains("is out of date"));
        let endless = RevocationListInfo { next_update: None, ..of(1) };
        assert_eq!(endless.expiry_stage(wall_at(1 << 40)), ExpiryStage::Good);
    }
}
