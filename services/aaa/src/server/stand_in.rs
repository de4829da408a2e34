//! Stand-ins: an unknown name, or a user who may not log in, gets the same dialogue as a real user, up to the same
//! reject. Otherwise the methods, the requests, the kind of reject or the time of the check would reveal which
//! names exist.
//!
//! A stand-in is a user with an unknown password. The password has the form of this server's users (clear text, NT
//! hash, Argon2 hash of the same cost), and the stand-in has their methods. The name alone decides which kind of
//! user its stand-in resembles, in the proportions seen so far. So repeated requests reveal no more.

use super::config::UserSource;
use super::shard::InterShardKey;
use crate::users::{AuthMethod, StoredPassword, User, UserDirectory, canonical_name, mac_address};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use usher_core::collections::SeededHashState;
use usher_crypto::password::unmatchable_argon2_hash;

/// Number of users whose kinds are kept.
const KIND_SLOTS: usize = 64;

/// The properties of a user that a peer can observe.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ObservableUserProperties {
    form: PasswordForm,
    /// [`User::methods`].
    methods: Vec<AuthMethod>,
}

/// The form of a stored password.
#[derive(Clone, PartialEq, Eq, Debug)]
enum PasswordForm {
    /// None: the user has a certificate.
    None,
    Clear,
    NtHash,
    /// A hash of no password, which takes as long to check.
    Argon2(String),
}

impl ObservableUserProperties {
    /// Returns the form of a stored user, without regard to groups.
    fn from_user(user: &User) -> Self {
        let groups = || user.groups.iter().map(|group| &group.control);
        let password = user.password.as_ref().or_else(|| {
            groups().find_map(|control| control.password.as_ref().map(|set| &set.value.password))
        });
        let form = match password {
            None => PasswordForm::None,
            Some(StoredPassword::Clear(_)) => PasswordForm::Clear,
            Some(StoredPassword::NtHash(_)) => PasswordForm::NtHash,
            Some(StoredPassword::Argon2(hash)) => {
                unmatchable_argon2_hash(hash).map_or(PasswordForm::Clear, PasswordForm::Argon2)
            }
        };
        let own = Some(&user.methods).filter(|methods| !methods.is_empty());
        let methods =
            own.or_else(|| groups().find_map(|control| control.methods.as_ref().map(|set| &set.value)));
        Self { form, methods: methods.cloned().unwrap_or_default() }
    }
}

/// Makes stand-ins; see the [module](self).
#[derive(Debug)]
pub(super) struct StandInUserFactory {
    hash: SeededHashState,
    /// Octets that are the password of no user.
    secret: [u8; 16],
    /// Kinds of users with their names' hashes. The hash chooses the index.
    observed_kinds: Vec<Option<(u64, ObservableUserProperties)>>,
    /// True if the users in memory have been read.
    read: bool,
}

impl StandInUserFactory {
    /// Derives secrets from the key, which is unknown outside.
    pub(super) fn new(key: &InterShardKey) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = key.derive_octets(b"kinds of users");
        Self {
            hash: SeededHashState::with_seed(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            secret: key.derive_octets(b"stand-in's password"),
            observed_kinds: Vec::new(),
            read: false,
        }
    }

    /// Records the kind of a user that the store has.
    pub(super) fn record_user_kind(&mut self, name: &[u8], user: &User) {
        // A stand-in takes the place of a guessed name, which does not look like a device without a password.
        if user.unreadable.is_some() || mac_address(name).is_some() && user.password.is_none() {
            return;
        }
        let hash = self.canonical_name_hash(name);
        let kind = ObservableUserProperties::from_user(user);
        match self.user_kind_slot(hash) {
            Some((first, seen)) if *first == hash => *seen = kind,
            Some(_) => {}
            empty => *empty = Some((hash, kind)),
        }
    }

    /// Forgets a user who was removed or changed.
    pub(super) fn remove_user(&mut self, name: &[u8]) {
        let hash = self.canonical_name_hash(name);
        let place = self.user_kind_slot(hash);
        if place.as_ref().is_some_and(|(first, _)| *first == hash) {
            *place = None;
        }
    }

    /// Reads the kinds again after a change of users.
    pub(super) fn invalidate_user_kinds(&mut self) {
        self.read = false;
    }

    /// Hashes a name. All notations of a MAC address have the same hash.
    fn canonical_name_hash(&self, name: &[u8]) -> u64 {
        self.hash.hash_one(&*canonical_name(name))
    }
    fn user_kind_slot(&mut self, hash: u64) -> &mut Option<(u64, ObservableUserProperties)> {
        self.observed_kinds.resize(KIND_SLOTS, None);
        &mut self.observed_kinds[hash as usize % KIND_SLOTS]
    }

    /// Reads the users in memory. The smallest hash of users with the same index counts, so that their order does
    /// not matter.
    fn read_users(&mut self, users: &UserDirectory) {
        self.observed_kinds.clear();
        for (name, user) in users.iter() {
            if mac_address(name).is_some() && user.password.is_none() {
                continue;
            }
            let hash = self.canonical_name_hash(name);
            let place = self.user_kind_slot(hash);
            if place.as_ref().is_none_or(|(least, _)| hash < *least) {
                *place = Some((hash, ObservableUserProperties::from_user(user)));
            }
        }
    }

    /// Returns the stand-in of a name. `devices`: names that are MAC addresses belong to devices without passwords.
    pub(super) fn stand_in_user(&mut self, name: &[u8], users: &UserSource, devices: bool) -> Arc<User> {
        if let UserSource::Memory(users) = users
            && !core::mem::replace(&mut self.read, true)
        {
            self.read_users(users);
        }
        if devices && mac_address(name).is_some() {
            return Arc::default();
        }
        let first = self.canonical_name_hash(name) as usize % KIND_SLOTS;
        let (before, from) = self.observed_kinds.split_at(first.min(self.observed_kinds.len()));
        let kind = from.iter().chain(before).flatten().map(|(_, kind)| kind).next();
        let password = match kind.map_or(&PasswordForm::Clear, |kind| &kind.form) {
            PasswordForm::None => None,
            PasswordForm::Clear => Some(StoredPassword::from_clear(&self.secret)),
            PasswordForm::NtHash => Some(StoredPassword::NtHash(self.secret.into())),
            PasswordForm::Argon2(hash) => Some(StoredPassword::Argon2(hash.clone().into())),
        };
        let methods = kind.map(|kind| kind.methods.clone()).unwrap_or_default();
        Arc::new(User { password, methods, ..User::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::UserCacheConfig;
    use usher_core::Seed;
    use usher_crypto::password::argon2_hash;

    const HOST: UserSource = UserSource::Host(UserCacheConfig {
        entries: 0,
        ttl: usher_core::Duration::ZERO,
        unknown_ttl: usher_core::Duration::ZERO,
    });

    fn stand_ins() -> StandInUserFactory {
        StandInUserFactory::new(&InterShardKey::new(&[7; 16]))
    }

    fn user_with_password(password: StoredPassword) -> User {
        User { password: Some(password), ..User::default() }
    }

    #[test]
    fn a_stand_in_is_like_the_users_that_there_are() {
        let mut all = stand_ins();
        let like = |all: &mut StandInUserFactory| all.stand_in_user(b"nobody", &HOST, false).password.clone();
        assert!(matches!(like(&mut all), Some(StoredPassword::Clear(_))), "before anybody was seen");
        all.record_user_kind(b"ann", &user_with_password(StoredPassword::NtHash([1; 16].into())));
        assert!(matches!(like(&mut all), Some(StoredPassword::NtHash(hash)) if *hash != [1; 16]));
        let hash = argon2_hash(b"x", &[1; 16]);
        all.record_user_kind(b"ann", &user_with_password(StoredPassword::Argon2(hash.clone().into())));
        assert_eq!(
            like(&mut all),
            unmatchable_argon2_hash(&hash).map(|hash| StoredPassword::Argon2(hash.into()))
        );
        all.remove_user(b"ann");
        assert!(matches!(like(&mut all), Some(StoredPassword::Clear(_))));
        all.record_user_kind(b"bob", &User { methods: [AuthMethod::Peap].into(), ..User::default() });
        let stand_in = all.stand_in_user(b"nobody", &HOST, false);
        assert_eq!((stand_in.password.clone(), &stand_in.methods[..]), (None, &[AuthMethod::Peap][..]));
    }

    #[test]
    fn an_address_is_one_name_however_it_is_written() {
        let mut all = stand_ins();
        all.record_user_kind(
            b"00-11-22-AA-BB-CC",
            &user_with_password(StoredPassword::NtHash([1; 16].into())),
        );
        assert!(matches!(
            all.stand_in_user(b"nobody", &HOST, false).password,
            Some(StoredPassword::NtHash(_))
        ));
        all.remove_user(b"001122aabbcc");
        assert!(matches!(
            all.stand_in_user(b"nobody", &HOST, false).password,
            Some(StoredPassword::Clear(_))
        ));
    }

    #[test]
    fn a_name_s_stand_in_stays_and_kinds_are_in_proportion() {
        let mut all = stand_ins();
        for n in 0..1000_u32 {
            let password = if n % 4 == 0 {
                StoredPassword::NtHash([1; 16].into())
            } else {
                StoredPassword::from_clear(b"x")
            };
            all.record_user_kind(&n.to_be_bytes(), &user_with_password(password));
        }
        let is_nt = |all: &mut StandInUserFactory, n: u32| {
            let stand_in = all.stand_in_user(&n.to_be_bytes(), &HOST, false);
            matches!(stand_in.password, Some(StoredPassword::NtHash(_)))
        };
        let before: Vec<bool> = (5000..9000).map(|n| is_nt(&mut all, n)).collect();
        let share = before.iter().filter(|nt| **nt).count();
        assert!((300..1700).contains(&share), "a quarter of 4000, of 64 seen: {share}");
        for n in 0..3000_u32 {
            all.record_user_kind(
                &n.to_be_bytes()[..3],
                &user_with_password(StoredPassword::from_clear(b"x")),
            );
        }
        let after: Vec<bool> = (5000..9000).map(|n| is_nt(&mut all, n)).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn users_in_memory_are_read_once_and_in_no_order() {
        let mut rng = Seed::new(1).derive_secure_rng("users", 0);
        let made = |names: &[u32], rng: &mut usher_core::SecureRng| {
            let mut users = UserDirectory::new(rng);
            for n in names {
                let password = Some(if n % 2 == 0 {
                    StoredPassword::NtHash([1; 16].into())
                } else {
                    StoredPassword::from_clear(&[1])
                });
                users.insert(&n.to_be_bytes(), User { password, ..User::default() });
            }
            UserSource::Memory(Arc::new(users))
        };
        let names: Vec<u32> = (0..500).collect();
        let reversed: Vec<u32> = names.iter().rev().copied().collect();
        let (one, other) = (made(&names, &mut rng), made(&reversed, &mut rng));
        let (mut a, mut b) = (stand_ins(), stand_ins());
        for n in 1000..2000_u32 {
            let name = n.to_be_bytes();
            assert_eq!(
                a.stand_in_user(&name, &one, false).password,
                b.stand_in_user(&name, &other, false).password
            );
        }
    }

    #[test]
    fn devices_have_no_passwords() {
        let mut all = stand_ins();
        all.record_user_kind(b"001122aabbcc", &User::default());
        assert!(all.stand_in_user(b"nobody", &HOST, false).password.is_some());
        assert!(all.stand_in_user(b"00-11-22-aa-bb-cd", &HOST, true).password.is_none());
        assert!(all.stand_in_user(b"00-11-22-aa-bb-cd", &HOST, false).password.is_some());
    }
}
