//! Whom the server knows, and what it says to them.

mod compile;
mod policy;

pub(crate) use policy::{canonical_station, mac_address, mac_bypass_address};

pub use compile::{is_expanded, tag_number};
pub use policy::{canonical_name, name_spellings};

use crate::store::RowOperator;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::collections::{HashMap, hash_state};
use usher_core::{SecureRng, WallTime};
use usher_crypto::SecretValue;
use usher_eap::method::InnerMethod;
use usher_eap::packet::EapType;
use usher_radius::attribute::{AttributeList, DataType};
use usher_radius::dictionary::AttributeNumber;

usher_core::named! {
    "a method";
    /// A way to prove who one is.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum AuthMethod {
        /// The password itself (RFC 2865), outside EAP.
        Pap = "pap",
        /// CHAP (RFC 2865, RFC 1994), outside EAP.
        Chap = "chap",
        /// MS-CHAP (RFC 2433, RFC 2548), outside EAP.
        MsChap = "mschap",
        /// MS-CHAPv2 (RFC 2759, RFC 2548), outside EAP.
        MsChapV2 = "mschapv2",
        /// EAP-MD5-Challenge (RFC 3748): a challenge and its digest; proves the password and gives no key.
        EapMd5 = "eap-md5",
        /// EAP-GTC (RFC 3748): the password itself.
        EapGtc = "eap-gtc",
        /// EAP-MSCHAPv2.
        EapMsChapV2 = "eap-mschapv2",
        /// EAP-TLS (RFC 5216, RFC 9190): a TLS handshake with certificates on both sides.
        EapTls = "eap-tls",
        /// PEAP version 0: a TLS tunnel and EAP within.
        Peap = "peap",
        /// EAP-TTLS (RFC 5281): a TLS tunnel and any proof within.
        Ttls = "ttls",
        /// MAC authentication bypass: no proof at all but the address that the NAS saw.
        Mab = "mab",
    }
}

impl AuthMethod {
    /// The type of its EAP packets; `None` outside EAP.
    #[must_use]
    pub const fn eap_type(self) -> Option<EapType> {
        match self {
            Self::EapMd5 => Some(EapType::MD5),
            Self::EapTls => Some(EapType::TLS),
            Self::EapGtc => Some(EapType(6)),
            Self::Ttls => Some(EapType(21)),
            Self::Peap => Some(EapType(25)),
            Self::EapMsChapV2 => Some(EapType(26)),
            Self::Pap | Self::Chap | Self::MsChap | Self::MsChapV2 | Self::Mab => None,
        }
    }
}

/// What is known of a user's password; never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredPassword {
    /// In clear, as CHAP and EAP-MD5 need it; every method can do with it.
    Clear(Arc<SecretValue>),
    /// Its NT hash, the MD4 digest of its UTF-16 form: PAP, GTC, MS-CHAP and MS-CHAPv2 can do with it.
    NtHash(SecretValue<[u8; 16]>),
    /// Its Argon2 hash, in text form (`$argon2id$…`): PAP and GTC can do with it.
    Argon2(SecretValue<String>),
}

impl StoredPassword {
    /// One that is known in clear.
    #[must_use]
    pub fn from_clear(password: &[u8]) -> Self {
        Self::Clear(Arc::new(password.into()))
    }
    /// Whether a method can compare with it.
    #[must_use]
    pub const fn supports_method(&self, method: AuthMethod) -> bool {
        match method {
            AuthMethod::Pap
            | AuthMethod::EapGtc
            | AuthMethod::EapTls
            | AuthMethod::Peap
            | AuthMethod::Ttls
            | AuthMethod::Mab => true,
            AuthMethod::Chap | AuthMethod::EapMd5 => matches!(self, Self::Clear(_)),
            AuthMethod::MsChap | AuthMethod::MsChapV2 | AuthMethod::EapMsChapV2 => {
                !matches!(self, Self::Argon2(_))
            }
        }
    }
}

impl fmt::Debug for StoredPassword {
    /// Its kind alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear(_) => "Clear(..)",
            Self::NtHash(_) => "NtHash(..)",
            Self::Argon2(_) => "Argon2(..)",
        })
    }
}

/// One user.
#[derive(Clone, Default, Debug)]
pub struct User {
    /// `None`: this user cannot prove a password.
    pub password: Option<StoredPassword>,
    /// The attribute that [`Self::password`] was given by.
    pub password_attribute: PasswordAttribute,
    /// The only methods that may admit this user, also inside a tunnel where others than tunnels are among them; empty:
    /// whatever the server offers.
    pub methods: Vec<AuthMethod>,
    /// What a request must say for this user to be let in.
    pub checks: Vec<RequestCheck>,
    /// What an Access-Accept says besides. Over Diameter each attribute becomes the AVP of its number
    /// (RFC 6733 §4.1), a vendor's attribute the vendor's AVP.
    pub reply: AttributeList,
    /// The groups, in the order in which they are looked at: the first one that applies does, and those after it as
    /// long as each says [`UserGroup::fall_through`].
    pub groups: Vec<Arc<UserGroup>>,
    /// At most so many sessions at once (Simultaneous-Use).
    pub simultaneous: Option<u32>,
    /// Let in until then (Expiration).
    pub expires: Option<WallTime>,
    /// Gets an address of this pool (Pool-Name).
    pub pool: Option<String>,
    /// Never let in (Auth-Type := Reject).
    pub rejected: bool,
    /// Not let in by an address alone, unless [`Self::methods`] says so, though there is no password: one that does not
    /// hold for the request, or groups of which none applies ([`Self::resolve_for_request`]).
    pub no_bypass: bool,
    /// Never let in: this row that the store has cannot be understood ([`Self::from_unreadable`]).
    pub unreadable: Option<Arc<RowError>>,
    /// Rows of replies that cannot be understood and were left out ([`Self::compile_leaving_out`]).
    pub left_out: Arc<[RowError]>,
}

impl User {
    /// A user with a password, of no further distinction.
    #[must_use]
    pub fn with_password(password: &[u8]) -> Self {
        Self { password: Some(StoredPassword::from_clear(password)), ..Self::default() }
    }
    /// A user of whom the store has a row that cannot be understood ([`Self::compile`]).
    #[must_use]
    pub fn from_unreadable(complaint: RowError) -> Self {
        Self { unreadable: Some(Arc::new(complaint)), ..Self::default() }
    }
    /// Whether a method may admit this user. MAC authentication bypass asks no password, so a user who has one is
    /// let in by it only where [`Self::methods`] says so.
    #[must_use]
    pub fn may_use(&self, method: AuthMethod) -> bool {
        let listed = self.methods.contains(&method);
        match (method, &self.password) {
            (AuthMethod::EapTls | AuthMethod::Peap | AuthMethod::Ttls, _) => {
                self.methods.is_empty() || listed
            }
            (AuthMethod::Mab, None) if !self.no_bypass => self.methods.is_empty() || listed,
            (AuthMethod::Mab, _) => listed,
            (_, Some(password)) => password.supports_method(method) && (self.methods.is_empty() || listed),
            (_, None) => false,
        }
    }
}

impl User {
    /// What alone may admit this user inside a tunnel that may. `None`: [`Self::methods`] names tunnels at most, and
    /// anything may that the tunnel offers.
    #[must_use]
    pub fn inner_methods(&self) -> Option<Vec<InnerMethod>> {
        let inner = |method: &AuthMethod| match method {
            AuthMethod::Pap => Some(InnerMethod::Pap),
            AuthMethod::Chap => Some(InnerMethod::Chap),
            AuthMethod::MsChap => Some(InnerMethod::MsChap),
            AuthMethod::MsChapV2 => Some(InnerMethod::MsChapV2),
            AuthMethod::EapMd5 | AuthMethod::EapGtc | AuthMethod::EapMsChapV2 => {
                method.eap_type().map(InnerMethod::Eap)
            }
            AuthMethod::EapTls | AuthMethod::Peap | AuthMethod::Ttls | AuthMethod::Mab => None,
        };
        let all: Vec<InnerMethod> = self.methods.iter().filter_map(inner).collect();
        (!all.is_empty()).then_some(all)
    }
}

/// What a request must say: a comparison with its attributes of one kind, of which one that fits is enough.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestCheck {
    /// The attribute.
    pub attribute: AttributeNumber,
    /// How it is compared: one of the operators from [`RowOperator::Equal`] on, without expressions.
    pub op: RowOperator,
    /// With what: the value as it would stand in a request.
    pub value: Vec<u8>,
    /// What its values are: greater and less are those of numbers or of octets, and a prefix may be written in several ways.
    pub data_type: DataType,
    /// Where the attribute has a tag (RFC 2868): the one that a value must have; 0: any.
    pub tag: Option<u8>,
    /// The row as it is written, for people; of a secret no value.
    pub row: Box<str>,
}

/// A check that does not hold for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedCheck<'a> {
    /// Which.
    pub check: &'a RequestCheck,
    /// Whether the request has an attribute of its kind.
    pub has_attribute: bool,
}

impl fmt::Display for FailedCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = match (self.has_attribute, self.check.op) {
            (false, _) => "no such attribute",
            (true, RowOperator::Absent) => "one",
            (true, _) => "none whose value is so",
        };
        write!(f, "`{}` does not hold: the request has {has}", self.check.row)
    }
}

/// One attribute that a group adds to an Access-Accept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyAttribute {
    /// Which.
    pub attribute: AttributeNumber,
    /// [`RowOperator::Set`], [`RowOperator::Replace`] or [`RowOperator::Add`].
    pub op: RowOperator,
    /// It alone.
    pub value: AttributeList,
}

/// The attribute that gives a password. Rows of one attribute take each other's place; of two attributes the first one counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PasswordAttribute {
    /// Cleartext-Password.
    #[default]
    Cleartext,
    /// NT-Password.
    NtHash,
    /// Crypt-Password.
    Crypt,
    /// Password-With-Header: every other attribute goes before it.
    WithHeader,
}

/// A password as a row gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PasswordSetting {
    /// By which attribute.
    pub attribute: PasswordAttribute,
    /// The password.
    pub password: StoredPassword,
}

/// What the check rows of a user or group set. Of several rows of one attribute the first one counts, as in FreeRADIUS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlSetting<T> {
    /// The value for a user who has none.
    pub value: T,
    /// The value for a user who has one: that of `:=`, which takes its place. `None`: the user's stays.
    pub replacement: Option<T>,
}

impl<T: Clone> ControlSetting<T> {
    /// What a row sets.
    #[must_use]
    pub fn new(value: T, replaces: bool) -> Self {
        let replacement = replaces.then(|| value.clone());
        Self { value, replacement }
    }
    /// Sets what a user has.
    pub fn apply_to(&self, place: &mut Option<T>) {
        match (&*place, &self.replacement) {
            (None, _) => *place = Some(self.value.clone()),
            (Some(_), Some(replacement)) => *place = Some(replacement.clone()),
            (Some(_), None) => {}
        }
    }
}

/// What a group's checks set for its users: `:=` takes the place of what a user has, `+=` and `=` do not.
#[derive(Clone, Default, Debug)]
pub struct GroupControl {
    /// [`User::password`].
    pub password: Option<ControlSetting<PasswordSetting>>,
    /// [`User::methods`].
    pub methods: Option<ControlSetting<Vec<AuthMethod>>>,
    /// [`User::simultaneous`].
    pub simultaneous: Option<ControlSetting<u32>>,
    /// [`User::expires`].
    pub expires: Option<ControlSetting<WallTime>>,
    /// [`User::pool`].
    pub pool: Option<ControlSetting<String>>,
    /// [`User::rejected`]: whoever else says something else, it stays.
    pub rejected: bool,
}

/// Users who share attributes.
#[derive(Clone, Default, Debug)]
pub struct UserGroup {
    /// Its name.
    pub name: String,
    /// What a request must say for the group to apply.
    pub checks: Vec<RequestCheck>,
    /// What it says of its users.
    pub control: GroupControl,
    /// What it adds to an Access-Accept.
    pub reply: Vec<ReplyAttribute>,
    /// Where it applies, the next group is looked at too (Fall-Through).
    pub fall_through: bool,
}

/// What of a store's rows cannot be understood, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{table}, `{attribute} {} {value}`: {what}", .op.as_str())]
pub struct RowError {
    /// Where: `radcheck`, `radreply`, `radgroupcheck of GROUP`, `radgroupreply of GROUP`.
    pub table: String,
    /// The row's attribute.
    pub attribute: String,
    /// Its operator.
    pub op: RowOperator,
    /// Its value; of a password nothing.
    pub value: String,
    /// What is wrong, and what to do.
    pub what: String,
}

/// Users in memory, by name. Names are compared octet by octet; that of a MAC address is known in every spelling of it
/// ([`canonical_name`]).
#[derive(Clone, Debug)]
pub struct UserDirectory {
    by_name: HashMap<Vec<u8>, Arc<User>>,
}

impl UserDirectory {
    /// Nobody. The order in which names are hashed is drawn from `rng`.
    #[must_use]
    pub fn new(rng: &mut SecureRng) -> Self {
        Self { by_name: HashMap::with_hasher(hash_state(rng)) }
    }
    /// Adds a user, or puts another in place of the one of that name.
    pub fn insert(&mut self, name: &[u8], user: User) {
        self.by_name.insert(canonical_name(name).into_owned(), Arc::new(user));
    }
    /// Forgets a user; false where there was none.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.by_name.remove(&*canonical_name(name)).is_some()
    }
    /// The user of this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(&*canonical_name(name))
    }
    /// All, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &User)> {
        self.by_name.iter().map(|(name, user)| (&name[..], &**user))
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
        assert!(AuthMethod::ALL.iter().all(|&m| user.may_use(m) != (m == AuthMethod::Mab)));
        user.methods = [AuthMethod::EapMd5].into();
        assert!(
            user.may_use(AuthMethod::EapMd5)
                && !user.may_use(AuthMethod::Pap)
                && !user.may_use(AuthMethod::EapTls)
        );
        let certificate_only = User::default();
        assert!(
            certificate_only.may_use(AuthMethod::EapTls) && !certificate_only.may_use(AuthMethod::EapMd5)
        );
    }

    #[test]
    fn inside_a_tunnel_a_method_needs_its_permission_too() {
        let mut user = User::with_password(b"x");
        assert_eq!(user.inner_methods(), None);
        user.methods = [AuthMethod::Peap, AuthMethod::Ttls].into();
        assert_eq!(user.inner_methods(), None, "the tunnels alone were named");
        user.methods = [AuthMethod::Peap, AuthMethod::EapMsChapV2, AuthMethod::Pap].into();
        assert_eq!(
            user.inner_methods(),
            Some([InnerMethod::Eap(EapType::MSCHAPV2), InnerMethod::Pap].into())
        );
    }

    #[test]
    fn users_are_replaced_and_forgotten_by_name() {
        let mut users = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
        users.insert(b"ann", User::with_password(b"1"));
        users.insert(b"ann", User::with_password(b"2"));
        assert_eq!(users.len(), 1);
        assert_eq!(
            users.find(b"ann").and_then(|u| u.password.clone()),
            Some(StoredPassword::from_clear(b"2"))
        );
        assert!(users.find(b"Ann").is_none());
        assert!(users.remove(b"ann") && !users.remove(b"ann") && users.is_empty());
    }

    #[test]
    fn a_device_is_known_by_every_spelling_of_its_address() {
        let mut users = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
        users.insert(b"00-11-22-AA-BB-CC", User::default());
        for name in ["001122aabbcc", "001122AABBCC", "00:11:22:aa:bb:cc", "0011.22aa.bbcc"] {
            assert!(users.find(name.as_bytes()).is_some(), "{name}");
        }
        assert!(
            users.find(b"001122aabbcd").is_none() && users.remove(b"00:11:22:AA:BB:CC") && users.is_empty()
        );
    }

    #[test]
    fn a_password_is_not_printed() {
        assert!(!std::format!("{:?}", User::with_password(b"hunter2")).contains("hunter2"));
    }
}
