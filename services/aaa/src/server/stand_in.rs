//! Stand-ins: under a name that nobody has, or whose user may not log in, a login goes the way of a user's, up to the
//! same reject. What a peer is offered, what it is asked, how it is turned away and how much work that is would else tell
//! it which names are users'.
//!
//! A stand-in is a user with a password that nobody knows, kept in the form (in clear, NT hash, Argon2 hash of the same
//! cost) in which users of this server have theirs, and admitted by the methods that admit them. Which of several kinds
//! of users a name's stand-in is like depends on the name alone, in the proportion in which the kinds were seen, so that
//! asking again tells nothing.

use super::config::UserSource;
use super::shard::ShardKey;
use crate::users::{Method, Password, User, Users, canonical_name, mac_address};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use usher_core::collections::HashState;
use usher_crypto::password::argon2_like;

/// Users whose kinds are remembered.
const SEEN: usize = 64;

/// What of a user a peer can notice.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Kind {
    form: Form,
    /// [`User::methods`].
    methods: Vec<Method>,
}

/// How a password is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    /// There is none: the user has a certificate.
    None,
    Clear,
    NtHash,
    /// A hash that takes as long to check and is no password's.
    Argon2(String),
}

impl Kind {
    /// Of a user as the store has it: whichever groups may apply.
    fn of(user: &User) -> Self {
        let groups = || user.groups.iter().map(|group| &group.control);
        let password = user.password.as_ref().or_else(|| {
            groups().find_map(|control| control.password.as_ref().map(|set| &set.value.password))
        });
        let form = match password {
            None => Form::None,
            Some(Password::Clear(_)) => Form::Clear,
            Some(Password::NtHash(_)) => Form::NtHash,
            Some(Password::Argon2(hash)) => argon2_like(hash).map_or(Form::Clear, Form::Argon2),
        };
        let own = Some(&user.methods).filter(|methods| !methods.is_empty());
        let methods =
            own.or_else(|| groups().find_map(|control| control.methods.as_ref().map(|set| &set.value)));
        Self { form, methods: methods.cloned().unwrap_or_default() }
    }
}

/// Makes stand-ins; see the [module](self).
#[derive(Debug)]
pub(super) struct StandIns {
    hash: HashState,
    /// What no password is.
    secret: [u8; 16],
    /// Kinds of users, each at the place of the name's hash, with that hash.
    seen: Vec<Option<(u64, Kind)>>,
    /// Users in memory were looked through.
    read: bool,
}

impl StandIns {
    /// Secrets are derived from the key, which nobody outside knows.
    pub(super) fn new(key: &ShardKey) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = key.derive(b"kinds of users");
        Self {
            hash: HashState::with_seed(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            secret: key.derive(b"stand-in's password"),
            seen: Vec::new(),
            read: false,
        }
    }

    /// A user was found in the store.
    pub(super) fn saw(&mut self, name: &[u8], user: &User) {
        // A device without a password is not what a guessed name is.
        if user.unreadable.is_some() || mac_address(name).is_some() && user.password.is_none() {
            return;
        }
        let hash = self.hash_of(name);
        let kind = Kind::of(user);
        match self.place(hash) {
            Some((first, seen)) if *first == hash => *seen = kind,
            Some(_) => {}
            empty => *empty = Some((hash, kind)),
        }
    }

    /// A user is no more, or another.
    pub(super) fn forget(&mut self, name: &[u8]) {
        let hash = self.hash_of(name);
        let place = self.place(hash);
        if place.as_ref().is_some_and(|(first, _)| *first == hash) {
            *place = None;
        }
    }

    /// Goes on with other users.
    pub(super) fn reconfigure(&mut self) {
        self.read = false;
    }

    /// However a MAC address is written, it is one name.
    fn hash_of(&self, name: &[u8]) -> u64 {
        self.hash.hash_one(&*canonical_name(name))
    }
    fn place(&mut self, hash: u64) -> &mut Option<(u64, Kind)> {
        self.seen.resize(SEEN, None);
        &mut self.seen[hash as usize % SEEN]
    }

    /// Looks through users in memory. Of those of one place the one of the least hash counts, in whatever order they come.
    fn read(&mut self, users: &Users) {
        self.seen.clear();
        for (name, user) in users.iter() {
            if mac_address(name).is_some() && user.password.is_none() {
                continue;
            }
            let hash = self.hash_of(name);
            let place = self.place(hash);
            if place.as_ref().is_none_or(|(least, _)| hash < *least) {
                *place = Some((hash, Kind::of(user)));
            }
        }
    }

    /// Who stands in for the user of a name. `devices`: names that are MAC addresses are those of devices, which have no
    /// passwords.
    pub(super) fn of(&mut self, name: &[u8], users: &UserSource, devices: bool) -> Arc<User> {
        if let UserSource::Memory(users) = users
            && !core::mem::replace(&mut self.read, true)
        {
            self.read(users);
        }
        if devices && mac_address(name).is_some() {
            return Arc::default();
        }
        let first = self.hash_of(name) as usize % SEEN;
        let (before, from) = self.seen.split_at(first.min(self.seen.len()));
        let kind = from.iter().chain(before).flatten().map(|(_, kind)| kind).next();
        let password = match kind.map_or(&Form::Clear, |kind| &kind.form) {
            Form::None => None,
            Form::Clear => Some(Password::clear(&self.secret)),
            Form::NtHash => Some(Password::NtHash(self.secret.into())),
            Form::Argon2(hash) => Some(Password::Argon2(hash.clone().into())),
        };
        let methods = kind.map(|kind| kind.methods.clone()).unwrap_or_default();
        Arc::new(User { password, methods, ..User::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::CacheConfig;
    use usher_core::Seed;
    use usher_crypto::password::argon2_hash;

    const HOST: UserSource = UserSource::Host(CacheConfig {
        entries: 0,
        ttl: usher_core::Duration::ZERO,
        unknown_ttl: usher_core::Duration::ZERO,
    });

    fn stand_ins() -> StandIns {
        StandIns::new(&ShardKey::new(&[7; 16]))
    }

    fn with(password: Password) -> User {
        User { password: Some(password), ..User::default() }
    }

    #[test]
    fn a_stand_in_is_like_the_users_that_there_are() {
        let mut all = stand_ins();
        let like = |all: &mut StandIns| all.of(b"nobody", &HOST, false).password.clone();
        assert!(matches!(like(&mut all), Some(Password::Clear(_))), "before anybody was seen");
        all.saw(b"ann", &with(Password::NtHash([1; 16].into())));
        assert!(matches!(like(&mut all), Some(Password::NtHash(hash)) if *hash != [1; 16]));
        let hash = argon2_hash(b"x", &[1; 16]);
        all.saw(b"ann", &with(Password::Argon2(hash.clone().into())));
        assert_eq!(like(&mut all), argon2_like(&hash).map(|hash| Password::Argon2(hash.into())));
        all.forget(b"ann");
        assert!(matches!(like(&mut all), Some(Password::Clear(_))));
        all.saw(b"bob", &User { methods: [Method::Peap].into(), ..User::default() });
        let stand_in = all.of(b"nobody", &HOST, false);
        assert_eq!((stand_in.password.clone(), &stand_in.methods[..]), (None, &[Method::Peap][..]));
    }

    #[test]
    fn an_address_is_one_name_however_it_is_written() {
        let mut all = stand_ins();
        all.saw(b"00-11-22-AA-BB-CC", &with(Password::NtHash([1; 16].into())));
        assert!(matches!(all.of(b"nobody", &HOST, false).password, Some(Password::NtHash(_))));
        all.forget(b"001122aabbcc");
        assert!(matches!(all.of(b"nobody", &HOST, false).password, Some(Password::Clear(_))));
    }

    #[test]
    fn a_name_s_stand_in_stays_and_kinds_are_in_proportion() {
        let mut all = stand_ins();
        for n in 0..1000_u32 {
            let password = if n % 4 == 0 { Password::NtHash([1; 16].into()) } else { Password::clear(b"x") };
            all.saw(&n.to_be_bytes(), &with(password));
        }
        let is_nt = |all: &mut StandIns, n: u32| {
            let stand_in = all.of(&n.to_be_bytes(), &HOST, false);
            matches!(stand_in.password, Some(Password::NtHash(_)))
        };
        let before: Vec<bool> = (5000..9000).map(|n| is_nt(&mut all, n)).collect();
        let share = before.iter().filter(|nt| **nt).count();
        assert!((300..1700).contains(&share), "a quarter of 4000, of 64 seen: {share}");
        for n in 0..3000_u32 {
            all.saw(&n.to_be_bytes()[..3], &with(Password::clear(b"x")));
        }
        let after: Vec<bool> = (5000..9000).map(|n| is_nt(&mut all, n)).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn users_in_memory_are_read_once_and_in_no_order() {
        let mut rng = Seed::new(1).secure("users", 0);
        let made = |names: &[u32], rng: &mut usher_core::SecureRng| {
            let mut users = Users::new(rng);
            for n in names {
                let password =
                    Some(if n % 2 == 0 { Password::NtHash([1; 16].into()) } else { Password::clear(&[1]) });
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
            assert_eq!(a.of(&name, &one, false).password, b.of(&name, &other, false).password);
        }
    }

    #[test]
    fn devices_have_no_passwords() {
        let mut all = stand_ins();
        all.saw(b"001122aabbcc", &User::default());
        assert!(all.of(b"nobody", &HOST, false).password.is_some());
        assert!(all.of(b"00-11-22-aa-bb-cd", &HOST, true).password.is_none());
        assert!(all.of(b"00-11-22-aa-bb-cd", &HOST, false).password.is_some());
    }
}
