//! CRL distribution points of users' certificates (RFC 5280 §4.2.1.13), learnt at logins and kept over restarts.
//!
//! An issuer below `ca` can write any URL into a certificate. So only hosts of the configuration are contacted,
//! and each authority below `ca` has a share of the entries. A list is accepted only from the issuer that was
//! verified when its distribution point was learnt.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use usher_aaa_config::model::TlsTable;
use usher_config::hosts::is_of;
use usher_core::{Duration, WallTime};
use usher_crypto::fingerprint::sha256_fingerprint;
use usher_crypto::x509::CertificateInfo;
use usher_pki::shares_name_with_root;

/// Maximum number of distribution points, and of those of one authority directly below a root.
const MOST: usize = 32;
const MAX_PER_AUTHORITY: usize = 8;
/// Maximum number of distribution points of a certificate.
const MAX_PER_CERTIFICATE: usize = 4;
/// Maximum octets of their file.
const LONGEST_FILE: u64 = 1 << 20;
/// Resolution of [`DistributionPoint::last_named_at`], and the minimum lifetime of an entry.
const DAY: Duration = Duration::from_secs(86_400);
/// Lifetime of an entry after the last login that named it.
const FORGOTTEN: Duration = Duration::from_secs(90 * 86_400);

/// A distribution point of users' certificates, and the issuer of its list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DistributionPoint {
    pub(crate) url: String,
    /// Issuer of these certificates in DER, verified up to a root.
    pub(crate) issuer: Vec<u8>,
    /// Digest of the root.
    root: [u8; 32],
    /// Share of the entry: digest of the authority directly below the root, or of the root.
    share: [u8; 32],
    /// Time of the last login that named it, to a day.
    last_named_at: WallTime,
}

impl DistributionPoint {
    /// Returns the digest of URL and issuer. Several issuers may name the same URL, and not all have signed its
    /// list.
    fn identity_digest(&self) -> [u8; 32] {
        sha256_fingerprint(&[self.url.as_bytes(), &[0], &self.issuer].concat())
    }
    /// Returns the path of its list.
    pub(crate) fn point_list_path(&self, state_dir: &Path) -> PathBuf {
        state_dir.join("crl").join(format!("user-{}.crl", encode_hex(&self.identity_digest())))
    }
    fn to_line(&self) -> String {
        let [issuer, root, share] = [&self.issuer[..], &self.root, &self.share].map(encode_hex);
        format!("{} {} {issuer} {root} {share}\n", self.last_named_at.unix_secs(), self.url)
    }
    fn parse_point_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut word = || words.next();
        let (seen, url) = (word()?.parse().ok()?, word()?.to_owned());
        let mut octets = || decode_hex(word()?);
        let (issuer, root, share) = (octets()?, octets()?, octets()?);
        let seen = WallTime::from_unix_secs(seen);
        Some(Self {
            url,
            issuer,
            root: root.try_into().ok()?,
            share: share.try_into().ok()?,
            last_named_at: seen,
        })
    }
}

fn encode_hex(octets: &[u8]) -> String {
    octets.iter().fold(String::with_capacity(2 * octets.len()), |mut text, octet| {
        // Writing to a String does not fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair.filter(|pair| pair.len() == 2)?, 16).ok()).collect()
}

/// The known distribution points, in the order of learning. The first of two issuers with one name counts.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct LearnedDistributionPoints {
    pub(crate) points: Vec<DistributionPoint>,
}

/// The result of learning from a login.
#[derive(Default, Debug)]
pub(crate) struct DistributionPointChanges {
    /// True if the file must be written.
    pub(crate) changed: bool,
    pub(crate) new: Vec<DistributionPoint>,
    pub(crate) removed: Vec<DistributionPoint>,
    /// URLs without room.
    pub(crate) refused: Vec<String>,
}

fn distribution_points_path(state_dir: &Path) -> PathBuf {
    state_dir.join("crl").join("users")
}

impl LearnedDistributionPoints {
    /// Loads the entries from the state directory whose hosts and roots are still in the configuration.
    pub(crate) fn load_from(state_dir: &Path, tls: &TlsTable, roots: &[Vec<u8>]) -> Self {
        let mut text = String::new();
        let read = fs::File::open(distribution_points_path(state_dir))
            .and_then(|f| f.take(LONGEST_FILE).read_to_string(&mut text));
        if read.is_err() {
            return Self::default();
        }
        let roots: Vec<_> = roots.iter().map(|root| sha256_fingerprint(root)).collect();
        let here =
            |point: &DistributionPoint| is_of(&point.url, &tls.crl_from_users) && roots.contains(&point.root);
        Self {
            points: text
                .lines()
                .filter_map(DistributionPoint::parse_point_line)
                .filter(here)
                .take(MOST)
                .collect(),
        }
    }

    /// Saves the entries to the state directory.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save_to(&self, state_dir: &Path) -> io::Result<()> {
        let text: String = self.points.iter().map(DistributionPoint::to_line).collect();
        usher_pki::write_private_file(&distribution_points_path(state_dir), text.as_bytes())
    }

    /// Learns the distribution points of a verified path, except the root's, which belong to the configuration.
    /// `known` are URLs that are fetched anyway.
    pub(crate) fn learn_distribution_points(
        &mut self,
        path: &[Vec<u8>],
        roots: &[Vec<u8>],
        hosts: &[String],
        known: impl Fn(&str) -> bool,
        now: WallTime,
    ) -> DistributionPointChanges {
        let mut learning = DistributionPointChanges::default();
        let (Some(root), below) = (path.last(), path.len().saturating_sub(2)) else { return learning };
        for (n, pair) in path.windows(2).enumerate() {
            let [certificate, issuer] = pair else { continue };
            if shares_name_with_root(issuer, roots) {
                continue;
            }
            let Ok(said) = CertificateInfo::of_der(certificate) else { continue };
            let asked = said.crl.into_iter().filter(|url| is_of(url, hosts) && !known(url));
            for url in asked.take(MAX_PER_CERTIFICATE) {
                // Each authority directly below the root gets one share, because it can create any number of
                // authorities below itself.
                let share = sha256_fingerprint(if n < below { &path[below] } else { root });
                let (root, issuer) = (sha256_fingerprint(root), issuer.clone());
                self.add_point(
                    DistributionPoint { url, issuer, root, share, last_named_at: now },
                    now,
                    &mut learning,
                );
            }
        }
        learning
    }

    fn add_point(
        &mut self,
        point: DistributionPoint,
        now: WallTime,
        learning: &mut DistributionPointChanges,
    ) {
        let known = self.points.iter_mut().find(|p| p.url == point.url && p.issuer == point.issuer);
        if let Some(known) = known {
            // The second condition holds if the clock was set back.
            if now >= known.last_named_at + DAY || now < known.last_named_at {
                known.last_named_at = now;
                learning.changed = true;
            }
            return;
        }
        let (gone, left) =
            self.points.drain(..).partition(|p: &DistributionPoint| p.last_named_at + FORGOTTEN <= now);
        self.points = left;
        learning.changed |= !gone.is_empty();
        learning.removed.extend(gone);
        if let Some(share) = self.authority_share_to_evict(&point.share) {
            let theirs = self.points.iter().enumerate().filter(|(_, p)| p.share == share);
            let oldest = theirs.min_by_key(|(_, p)| p.last_named_at).map(|(n, p)| (n, p.last_named_at));
            match oldest {
                // A point is replaced only by another share, or after a day. Otherwise each login could bring a new URL
                // to fetch.
                Some((n, seen)) if share != point.share || now >= seen + DAY => {
                    learning.removed.push(self.points.remove(n));
                }
                _ => return learning.refused.push(point.url),
            }
        }
        learning.changed = true;
        learning.new.push(point.clone());
        self.points.push(point);
    }

    /// Returns the share that loses an entry for a new one of this share. `None`: there is room.
    fn authority_share_to_evict(&self, share: &[u8; 32]) -> Option<[u8; 32]> {
        let mut counts: BTreeMap<[u8; 32], usize> = BTreeMap::new();
        for point in &self.points {
            *counts.entry(point.share).or_default() += 1;
        }
        let own = counts.get(share).copied().unwrap_or(0);
        if own >= MAX_PER_AUTHORITY {
            return Some(*share);
        }
        if self.points.len() < MOST {
            return None;
        }
        let most = counts.iter().max_by_key(|(_, count)| **count).filter(|(_, count)| **count > own + 1);
        Some(most.map_or(*share, |(most, _)| *most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall_at(seconds: u64) -> WallTime {
        WallTime::from_unix_secs(1_800_000_000 + seconds)
    }

    fn test_point(url: &str, share: u8) -> DistributionPoint {
        DistributionPoint {
            url: url.to_owned(),
            issuer: vec![share, 1],
            root: [7; 32],
            share: [share; 32],
            last_named_at: wall_at(0),
        }
    }

    #[test]
    fn points_are_few_and_each_authority_has_a_share() {
        let mut learnt = LearnedDistributionPoints::default();
        let mut add = |point: DistributionPoint, now: WallTime| {
            let mut learning = DistributionPointChanges::default();
            learnt.add_point(DistributionPoint { last_named_at: now, ..point }, now, &mut learning);
            assert!(learnt.points.len() <= MOST);
            (learning.new.len(), learning.removed.len(), learning.refused.len())
        };
        for n in 0..MAX_PER_AUTHORITY {
            assert_eq!(add(test_point(&format!("http://a/{n}"), 1), wall_at(0)), (1, 0, 0));
        }
        assert_eq!(add(test_point("http://a/0", 1), wall_at(5)), (0, 0, 0), "it is known");
        assert_eq!(
            add(test_point("http://a/new", 1), wall_at(5)),
            (0, 0, 1),
            "a share of its own, and no more"
        );
        assert_eq!(
            add(test_point("http://a/new", 1), wall_at(86_400)),
            (1, 1, 0),
            "in place of one not named for a day"
        );
        for share in 2..5 {
            for n in 0..MAX_PER_AUTHORITY {
                assert_eq!(add(test_point(&format!("http://b/{n}"), share), wall_at(86_400)).0, 1);
            }
        }
        // All entries are used: a smaller share takes entries from a larger one.
        for share in 5..10 {
            assert_eq!(add(test_point("http://c", share), wall_at(86_401)), (1, 1, 0), "{share}");
        }
        assert_eq!(
            add(test_point("http://d", 20), wall_at(91 * 86_400 + 1)),
            (1, MOST, 0),
            "none was named for long"
        );
    }

    #[test]
    fn what_is_learnt_is_kept_while_its_host_and_root_are() {
        let folder = std::env::temp_dir().join(format!("usher-learnt-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let root = b"root".to_vec();
        let mut learnt = LearnedDistributionPoints::default();
        for n in 0..3 {
            let point = DistributionPoint {
                root: sha256_fingerprint(&root),
                ..test_point(&format!("http://crl.example/{n}"), n)
            };
            learnt.points.push(point);
        }
        learnt.save_to(&folder).unwrap();
        let settings = |hosts: &str| -> TlsTable {
            toml::from_str(&format!("certificate = \"c\"\nkey = \"k\"\ncrl_from_users = [{hosts}]")).unwrap()
        };
        let known = settings("\"crl.example\"");
        assert_eq!(
            LearnedDistributionPoints::load_from(&folder, &known, &[b"x".to_vec(), root.clone()]),
            learnt
        );
        assert_eq!(LearnedDistributionPoints::load_from(&folder, &known, &[b"x".to_vec()]).points, []);
        assert_eq!(
            LearnedDistributionPoints::load_from(&folder, &settings(""), std::slice::from_ref(&root)).points,
            []
        );
        // An invalid line of the file is ignored.
        let text = fs::read_to_string(distribution_points_path(&folder)).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        fs::write(
            distribution_points_path(&folder),
            format!("{}\n\n1 2 3\n{rest}", &first[..first.len() - 1]),
        )
        .unwrap();
        assert_eq!(LearnedDistributionPoints::load_from(&folder, &known, &[root]).points, learnt.points[1..]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
