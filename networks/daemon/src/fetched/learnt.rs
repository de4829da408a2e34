//! Distribution points that users' certificates name (RFC 5280 §4.2.1.13): learnt from logins, kept over a restart. A
//! certificate says of itself where it is to be looked up, and whoever issues it below `ca` may write there what they like:
//! so its URL is asked of hosts alone that the configuration names, each authority below `ca` has a share of the room, and a
//! list is believed of the issuer alone that was verified when its place was learnt.

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
use usher_pki::is_namesake;

/// Points that are known, and those of one authority right below a root.
const MOST: usize = 32;
const MAX_PER_AUTHORITY: usize = 8;
/// Points of one certificate that are looked at.
const MAX_PER_CERTIFICATE: usize = 4;
/// Octets of the file that they are kept in.
const LONGEST_FILE: u64 = 1 << 20;
/// How exactly it is known when a point was last named: it is written down no more often. As long is one kept in its place.
const DAY: Duration = Duration::from_secs(86_400);
/// One that no login named for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(90 * 86_400);

/// Where a list is that users' certificates name, and who must have signed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DistributionPoint {
    pub(crate) url: String,
    /// The issuer of the certificates that name it, DER, verified up to a root.
    pub(crate) issuer: Vec<u8>,
    /// Digest of that root.
    root: [u8; 32],
    /// Of whose share it is: digest of the authority right below the root that the issuer stands below, or of the root.
    share: [u8; 32],
    /// When a login last named it, to a day.
    last_named_at: WallTime,
}

impl DistributionPoint {
    /// What tells it from others: issuers may name the same URL, and not each of them has signed what is there.
    fn identity_digest(&self) -> [u8; 32] {
        sha256_fingerprint(&[self.url.as_bytes(), &[0], &self.issuer].concat())
    }
    /// Where its list is kept.
    pub(crate) fn list_path(&self, state_dir: &Path) -> PathBuf {
        state_dir.join("crl").join(format!("user-{}.crl", encode_hex(&self.identity_digest())))
    }
    fn to_line(&self) -> String {
        let [issuer, root, share] = [&self.issuer[..], &self.root, &self.share].map(encode_hex);
        format!("{} {} {issuer} {root} {share}\n", self.last_named_at.unix_secs(), self.url)
    }
    fn of_line(line: &str) -> Option<Self> {
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
        // Writing into a text does not fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair.filter(|pair| pair.len() == 2)?, 16).ok()).collect()
}

/// The points that are known, in the order in which they were learnt: of two issuers of one name the first is believed.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct LearnedPoints {
    pub(crate) points: Vec<DistributionPoint>,
}

/// What became of what a login named.
#[derive(Default, Debug)]
pub(crate) struct LearningOutcome {
    /// There is something to be written down.
    pub(crate) changed: bool,
    pub(crate) new: Vec<DistributionPoint>,
    pub(crate) removed: Vec<DistributionPoint>,
    /// URLs for which there is no room.
    pub(crate) refused: Vec<String>,
}

fn points_file(state_dir: &Path) -> PathBuf {
    state_dir.join("crl").join("users")
}

impl LearnedPoints {
    /// Those that are kept in the state directory, as far as the configuration still has their hosts and their roots.
    pub(crate) fn load_from(state_dir: &Path, tls: &TlsTable, roots: &[Vec<u8>]) -> Self {
        let mut text = String::new();
        let read = fs::File::open(points_file(state_dir))
            .and_then(|f| f.take(LONGEST_FILE).read_to_string(&mut text));
        if read.is_err() {
            return Self::default();
        }
        let roots: Vec<_> = roots.iter().map(|root| sha256_fingerprint(root)).collect();
        let here =
            |point: &DistributionPoint| is_of(&point.url, &tls.crl_from_users) && roots.contains(&point.root);
        Self { points: text.lines().filter_map(DistributionPoint::of_line).filter(here).take(MOST).collect() }
    }

    /// Writes them down in the state directory.
    ///
    /// # Errors
    /// They could not be.
    pub(crate) fn save_to(&self, state_dir: &Path) -> io::Result<()> {
        let text: String = self.points.iter().map(DistributionPoint::to_line).collect();
        usher_pki::write_private_file(&points_file(state_dir), text.as_bytes())
    }

    /// Learns what the certificates of a verified path name, but for its root: what that names is the configuration's to
    /// say. `known` are URLs that are asked anyway.
    pub(crate) fn learn_from_path(
        &mut self,
        path: &[Vec<u8>],
        roots: &[Vec<u8>],
        hosts: &[String],
        known: impl Fn(&str) -> bool,
        now: WallTime,
    ) -> LearningOutcome {
        let mut learning = LearningOutcome::default();
        let (Some(root), below) = (path.last(), path.len().saturating_sub(2)) else { return learning };
        for (n, pair) in path.windows(2).enumerate() {
            let [certificate, issuer] = pair else { continue };
            if is_namesake(issuer, roots) {
                continue;
            }
            let Ok(said) = CertificateInfo::of_der(certificate) else { continue };
            let asked = said.crl.into_iter().filter(|url| is_of(url, hosts) && !known(url));
            for url in asked.take(MAX_PER_CERTIFICATE) {
                // Whoever has an authority right below the root can make any number of others below it.
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

    fn add_point(&mut self, point: DistributionPoint, now: WallTime, learning: &mut LearningOutcome) {
        let known = self.points.iter_mut().find(|p| p.url == point.url && p.issuer == point.issuer);
        if let Some(known) = known {
            // A clock that was set back, too.
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
        if let Some(share) = self.crowded_share(&point.share) {
            let theirs = self.points.iter().enumerate().filter(|(_, p)| p.share == share);
            let oldest = theirs.min_by_key(|(_, p)| p.last_named_at).map(|(n, p)| (n, p.last_named_at));
            match oldest {
                // Otherwise each login could bring a new one, which would be fetched.
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

    /// Whose share has to make room for one more of this share; `None`: there is room.
    fn crowded_share(&self, share: &[u8; 32]) -> Option<[u8; 32]> {
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
        let mut learnt = LearnedPoints::default();
        let mut add = |point: DistributionPoint, now: WallTime| {
            let mut learning = LearningOutcome::default();
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
        // All room is taken: who has less than others takes of theirs.
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
        let mut learnt = LearnedPoints::default();
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
        assert_eq!(LearnedPoints::load_from(&folder, &known, &[b"x".to_vec(), root.clone()]), learnt);
        assert_eq!(LearnedPoints::load_from(&folder, &known, &[b"x".to_vec()]).points, []);
        assert_eq!(LearnedPoints::load_from(&folder, &settings(""), std::slice::from_ref(&root)).points, []);
        // What is no line of it is passed over.
        let text = fs::read_to_string(points_file(&folder)).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        fs::write(points_file(&folder), format!("{}\n\n1 2 3\n{rest}", &first[..first.len() - 1])).unwrap();
        assert_eq!(LearnedPoints::load_from(&folder, &known, &[root]).points, learnt.points[1..]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
