//! Whom the server knows, and what it says to them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::SecureRng;
use usher_core::collections::{HashMap, hash_state};
use usher_radius::attribute::Attributes;

/// A way to prove who one is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Method {
    /// The password itself (RFC 2865 §5.2), outside EAP.
    Pap,
    /// EAP-MD5-Challenge (RFC 3748 §5.4); proves the password and gives no key.
    EapMd5,
    /// EAP-TLS (RFC 5216, RFC 9190); proves possession of a certificate's key.
    EapTls,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pap, Self::EapMd5, Self::EapTls];
    /// As it is written: `pap`, `eap-md5`, `eap-tls`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pap => "pap",
            Self::EapMd5 => "eap-md5",
            Self::EapTls => "eap-tls",
        }
    }
}

/// One user.
#[derive(Clone, Default)]
pub struct User {
    /// In clear, as EAP-MD5 needs it; `None`: this user cannot prove a password.
    pub password: Option<Vec<u8>>,
    /// The only methods that may admit this user; empty: whatever the server offers.
    pub methods: Vec<Method>,
    /// What an Access-Accept says besides. Over Diameter each attribute becomes the AVP of its number
    /// (RFC 6733 §4.1), a vendor's attribute the vendor's AVP.
    pub reply: Attributes,
}

impl User {
    /// A user with a password, of no further distinction.
    #[must_use]
    pub fn with_password(password: &[u8]) -> Self {
        Self { password: Some(password.to_vec()), ..Self::default() }
    }
    /// Whether a method may admit this user.
    #[must_use]
    pub fn may_use(&self, method: Method) -> bool {
        let has_secret = self.password.is_some() || method == Method::EapTls;
        has_secret && (self.methods.is_empty() || self.methods.contains(&method))
    }
}

impl fmt::Debug for User {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("methods", &self.methods)
            .field("reply", &self.reply)
            .finish_non_exhaustive()
    }
}

/// Users in memory, by name. Names are compared octet by octet.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: HashMap<Vec<u8>, Arc<User>>,
}

impl Users {
    /// Nobody. The order in which names are hashed is drawn from `rng`.
    #[must_use]
    pub fn new(rng: &mut SecureRng) -> Self {
        Self { by_name: HashMap::with_hasher(hash_state(rng)) }
    }
    /// Adds a user, or puts another in place of the one of that name.
    pub fn insert(&mut self, name: &[u8], user: User) {
        self.by_name.insert(name.to_vec(), Arc::new(user));
    }
    /// Forgets a user; false where there was none.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.by_name.remove(name).is_some()
    }
    /// The user of this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }
    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    #[test]
    fn a_method_needs_its_secret_and_its_permission() {
        let mut user = User::with_password(b"x");
        assert!(Method::ALL.iter().all(|&m| user.may_use(m)));
        user.methods = [Method::EapMd5].into();
        assert!(user.may_use(Method::EapMd5) && !user.may_use(Method::Pap) && !user.may_use(Method::EapTls));
        let certificate_only = User::default();
        assert!(certificate_only.may_use(Method::EapTls) && !certificate_only.may_use(Method::EapMd5));
    }

    #[test]
    fn users_are_replaced_and_forgotten_by_name() {
        let mut users = Users::new(&mut Seed::new(1).secure("users", 0));
        users.insert(b"ann", User::with_password(b"1"));
        users.insert(b"ann", User::with_password(b"2"));
        assert_eq!(users.len(), 1);
        assert_eq!(users.find(b"ann").and_then(|u| u.password.as_deref()), Some(&b"2"[..]));
        assert!(users.find(b"Ann").is_none());
        assert!(users.remove(b"ann") && !users.remove(b"ann") && users.is_empty());
    }

    #[test]
    fn a_password_is_not_printed() {
        assert!(!std::format!("{:?}", User::with_password(b"hunter2")).contains("hunter2"));
    }
}
