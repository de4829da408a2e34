//! Realms and their targets.

use super::filter::RealmFilter;
use super::nai::{Nai, is_valid_realm};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Where the accounting of a realm's users goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AccountingMode {
    /// To this server only.
    Local,
    /// To the home servers only. Their reply goes to the access server.
    #[default]
    Forward,
    /// To both: this server stores each record, acknowledges it, and forwards it.
    StoreAndForward,
}

/// The target of a realm's logins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RealmTarget {
    /// This server.
    Local,
    /// None: the users are rejected.
    Refuse,
    /// RADIUS home servers.
    Pool {
        /// Index into [`super::ProxyConfig::pools`].
        pool: u16,
        /// Where their accounting goes.
        accounting: AccountingMode,
    },
    /// A Diameter peer, found by this realm in the Diameter node's routes. Only EAP is translated (RFC 4072). Other
    /// proofs are rejected, and accounting stays here.
    Diameter {
        /// Destination-Realm.
        realm: String,
    },
}

/// A realm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Realm {
    /// Name, without regard to ASCII case. `*`: any realm without an entry. Empty: names without a realm.
    pub name: String,
    /// True if it includes subdomains. The longest matching name counts.
    pub subrealms: bool,
    /// Target of its logins.
    pub route: RealmTarget,
    /// True if the realm is removed from User-Name before lookup or proxying. Never with EAP, where User-Name must
    /// equal the method's identity (RFC 3579 §2.1).
    pub strip: bool,
    /// Filter between its home servers and their clients.
    pub filter: Arc<RealmFilter>,
    /// Reaction if none of its home servers answers.
    pub unanswered: NoAnswerPolicy,
}

/// The reaction to home servers that do not answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum NoAnswerPolicy {
    /// No reply: the access server may fail over, and a reject would be wrong about the user.
    #[default]
    Silence,
    /// Access-Reject. Over Diameter it is always DIAMETER_UNABLE_TO_DELIVER (RFC 6733 §7.1.3).
    Reject,
}

/// The settings of a realm for a proxied request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RealmForwardingPolicy {
    /// [`Realm::filter`].
    pub(crate) filter: Arc<RealmFilter>,
    /// [`Realm::unanswered`].
    pub(crate) unanswered: NoAnswerPolicy,
}

impl Realm {
    /// This realm without subdomains, unstripped, with the standard [`RealmFilter`], and no reply without an
    /// answer.
    #[must_use]
    pub fn new(name: &str, route: RealmTarget) -> Self {
        Self {
            name: name.into(),
            subrealms: false,
            route,
            strip: false,
            filter: Arc::default(),
            unanswered: NoAnswerPolicy::default(),
        }
    }
}

/// An error in the realms.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RealmError {
    /// Invalid name.
    #[error("{0:?} is not a realm name (RFC 7542 section 2.2)")]
    Name(String),
    /// Two entries of one name.
    #[error("realm {0:?} occurs twice")]
    Twice(String),
}

/// All realms.
#[derive(Clone, Debug, Default)]
pub struct RealmTable {
    realms: Vec<Realm>,
    by_name: BTreeMap<Vec<u8>, u32>,
    any: Option<u32>,
    none: Option<u32>,
    prefix: Option<u8>,
}

/// The route of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RealmMatch<'r, 'n> {
    /// Target.
    pub route: &'r RealmTarget,
    /// Name to look up or to forward: without the realm if that is stripped.
    pub name: &'n [u8],
    /// Realm as in the name.
    pub realm: Option<&'n [u8]>,
    /// Matching entry.
    pub entry: Option<&'r Realm>,
}

impl RealmMatch<'_, '_> {
    pub(crate) fn realm_forwarding_policy(&self) -> RealmForwardingPolicy {
        let terms = |realm: &Realm| RealmForwardingPolicy {
            filter: realm.filter.clone(),
            unanswered: realm.unanswered,
        };
        self.entry.map(terms).unwrap_or_default()
    }
}

impl RealmTable {
    /// Creates a table. `prefix` is a character that may also separate a leading realm (`\` or `/`).
    ///
    /// # Errors
    /// A name is invalid or duplicate.
    pub fn new(realms: Vec<Realm>, prefix: Option<u8>) -> Result<Self, RealmError> {
        let mut all = Self { prefix, ..Self::default() };
        for (i, realm) in realms.iter().enumerate() {
            let i = i as u32;
            let before = match realm.name.as_str() {
                "*" => all.any.replace(i),
                "" => all.none.replace(i),
                name if is_valid_realm(name.as_bytes()) || prefix.is_some() => {
                    all.by_name.insert(name.to_ascii_lowercase().into_bytes(), i)
                }
                name => return Err(RealmError::Name(name.into())),
            };
            if before.is_some() {
                return Err(RealmError::Twice(realm.name.clone()));
            }
        }
        all.realms = realms;
        Ok(all)
    }
    /// Returns the route of a name. Without a matching entry it is local. If a realm is stripped and the rest has
    /// another realm, that one counts.
    #[must_use]
    pub fn find_route<'r, 'n>(&'r self, name: &'n [u8]) -> RealmMatch<'r, 'n> {
        let mut found = self.find_route_of_outer_name(name);
        // Each pass shortens the name, so the loop ends.
        while *found.route == RealmTarget::Local && found.entry.is_some_and(|realm| realm.strip) {
            let inner = self.find_route_of_outer_name(found.name);
            if inner.realm.is_none() {
                break;
            }
            found = inner;
        }
        found
    }
    fn find_route_of_outer_name<'r, 'n>(&'r self, name: &'n [u8]) -> RealmMatch<'r, 'n> {
        let nai = Nai::parse(name, self.prefix);
        let index = match nai.realm {
            None => self.none,
            Some(realm) => self.find_realm_by_suffix(realm).or(self.any),
        };
        let realm = index.and_then(|i| self.realms.get(i as usize));
        let route = realm.map_or(&RealmTarget::Local, |r| &r.route);
        let name = if realm.is_some_and(|r| r.strip) { nai.user } else { name };
        RealmMatch { route, name, realm: nai.realm, entry: realm }
    }
    /// True if two names have the same realm without regard to ASCII case, or both none.
    #[must_use]
    pub fn have_same_realm(&self, a: &[u8], b: &[u8]) -> bool {
        match (Nai::parse(a, self.prefix).realm, Nai::parse(b, self.prefix).realm) {
            (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
    /// Realms in their order.
    #[must_use]
    pub fn entries(&self) -> &[Realm] {
        &self.realms
    }
    /// True if all names are local.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.realms.is_empty()
    }

    fn find_realm_by_suffix(&self, realm: &[u8]) -> Option<u32> {
        let mut lower = [0; 253];
        let lower = lower.get_mut(..realm.len())?;
        lower.copy_from_slice(realm);
        lower.make_ascii_lowercase();
        let mut rest: &[u8] = lower;
        if let Some(&i) = self.by_name.get(rest) {
            return Some(i);
        }
        while let Some(dot) = rest.iter().position(|&b| b == b'.') {
            rest = &rest[dot + 1..];
            if let Some(&i) = self.by_name.get(rest)
                && self.realms.get(i as usize).is_some_and(|r| r.subrealms)
            {
                return Some(i);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home_pool_target(pool: u16) -> RealmTarget {
        RealmTarget::Pool { pool, accounting: AccountingMode::Forward }
    }

    #[test]
    fn the_longest_realm_that_fits_is_taken() {
        let below = |name, route| Realm { subrealms: true, ..Realm::new(name, route) };
        let realms = RealmTable::new(
            vec![
                below("Example.org", home_pool_target(1)),
                below("cs.example.org", home_pool_target(2)),
                Realm::new("only.example.org", home_pool_target(3)),
                Realm { strip: true, ..Realm::new("here.example", RealmTarget::Local) },
                Realm::new("gone.example", RealmTarget::Refuse),
                Realm::new("*", home_pool_target(9)),
            ],
            Some(b'\\'),
        )
        .unwrap();
        for (name, route) in [
            ("a@example.org", &home_pool_target(1)),
            ("a@EXAMPLE.ORG", &home_pool_target(1)),
            ("a@x.example.org", &home_pool_target(1)),
            ("a@x.cs.example.org", &home_pool_target(2)),
            ("a@only.example.org", &home_pool_target(3)),
            ("a@x.only.example.org", &home_pool_target(1)),
            ("a@notexample.org", &home_pool_target(9)),
            ("example.org\\a", &home_pool_target(1)),
            ("a", &RealmTarget::Local),
            ("a@here.example", &RealmTarget::Local),
        ] {
            assert_eq!(realms.find_route(name.as_bytes()).route, route, "{name}");
        }
        assert_eq!(realms.find_route(b"a@here.example").name, b"a");
        for (name, route, left) in [
            ("a@example.org@here.example", home_pool_target(1), "a@example.org"),
            ("a@gone.example@HERE.example", RealmTarget::Refuse, "a@gone.example"),
            ("a@gone.example@here.example@here.example", RealmTarget::Refuse, "a@gone.example"),
            ("a@x.test@here.example", home_pool_target(9), "a@x.test"),
        ] {
            let found = realms.find_route(name.as_bytes());
            assert_eq!((found.route, found.name), (&route, left.as_bytes()), "{name}");
        }
        assert_eq!(realms.find_route(b"a@example.org").name, b"a@example.org");
    }

    #[test]
    fn names_are_of_one_realm_or_not() {
        let realms = RealmTable::new(Vec::new(), Some(b'\\')).unwrap();
        let same = |a: &str, b: &str| realms.have_same_realm(a.as_bytes(), b.as_bytes());
        assert!(same("a@example.org", "b@EXAMPLE.org") && same("a", "root") && same("X\\a", "b@x"));
        assert!(!same("a@example.org", "a") && !same("a", "a@example.org"));
        assert!(!same("a@example.org", "a@cs.example.org") && !same("a@example.org", "a@example.com"));
    }

    #[test]
    fn contradictions_are_refused() {
        let new = |names: &[&str]| {
            RealmTable::new(names.iter().map(|n| Realm::new(n, RealmTarget::Local)).collect(), None)
                .map(|_| ())
        };
        assert_eq!(new(&["a b"]), Err(RealmError::Name("a b".into())));
        assert_eq!(new(&["a.example", "A.Example"]), Err(RealmError::Twice("A.Example".into())));
        assert_eq!(new(&["*", "", "*"]), Err(RealmError::Twice("*".into())));
    }

    #[test]
    fn names_without_a_realm_have_a_route_too() {
        let realms = RealmTable::new(vec![Realm::new("", RealmTarget::Refuse)], None).unwrap();
        assert_eq!(realms.find_route(b"bob").route, &RealmTarget::Refuse);
        assert_eq!(realms.find_route(b"bob@example.org").route, &RealmTarget::Local);
    }
}
