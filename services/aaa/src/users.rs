//! Users: their credentials, checks and reply items.

mod compile;
mod policy;

pub(crate) use policy::{
    canonical_station_id, canonical_user_name, is_same_station_id, mac_address, mac_bypass_address,
};

pub use compile::{is_expanded, parse_tunnel_tag};
pub use policy::{canonical_name, name_spellings};

use crate::operator::RowOperator;
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
use usher_radius::attribute::{AttributeDataType, AttributeList};
use usher_radius::dictionary::AttributeNumber;

usher_core::named! {
    "a method";
    /// An authentication method.
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
        /// MAC authentication bypass: the only proof is the device's MAC address, as the NAS reports it.
        Mab = "mab",
    }
}

impl AuthMethod {
    /// Returns the type of its EAP packets. `None` outside EAP.
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

/// A stored password. Debug output omits it.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredPassword {
    /// Clear text, which CHAP and EAP-MD5 need. All methods support it.
    Clear(Arc<SecretValue>),
    /// NT hash, the MD4 digest of its UTF-16 form. PAP, GTC, MS-CHAP and MS-CHAPv2 support it.
    NtHash(SecretValue<[u8; 16]>),
    /// Argon2 hash in text form (`$argon2id$…`). PAP and GTC support it.
    Argon2(SecretValue<String>),
}

impl StoredPassword {
    /// Creates a password in clear text.
    #[must_use]
    pub fn from_clear(password: &[u8]) -> Self {
        Self::Clear(Arc::new(password.into()))
    }
    /// True if a method can use this form.
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
    /// Shows the form only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear(_) => "Clear(..)",
            Self::NtHash(_) => "NtHash(..)",
            Self::Argon2(_) => "Argon2(..)",
        })
    }
}

/// A user.
#[derive(Clone, Default, Debug)]
pub struct User {
    /// Password. `None`: the user cannot use a method with a password.
    pub password: Option<StoredPassword>,
    /// Attribute that set [`Self::password`].
    pub password_attribute: PasswordAttribute,
    /// Methods that may accept this user. If they include methods other than tunnels, they also limit the inner
    /// methods. Empty: all methods of the server.
    pub methods: Vec<AuthMethod>,
    /// Conditions on the request. All must hold.
    pub checks: Vec<RequestCheck>,
    /// Reply items of an Access-Accept. Over Diameter each attribute becomes the AVP of its number (RFC 6733 §4.1),
    /// a vendor's attribute the vendor's AVP.
    pub reply: AttributeList,
    /// Groups in their order. The first group that matches applies. Later ones apply as long as each has
    /// [`UserGroup::fall_through`].
    pub groups: Vec<Arc<UserGroup>>,
    /// Maximum simultaneous sessions (Simultaneous-Use).
    pub simultaneous: Option<u32>,
    /// Time after which the user is rejected (Expiration).
    pub expires: Option<WallTime>,
    /// Address pool of the user (Pool-Name).
    pub pool: Option<String>,
    /// True if the user is always rejected (Auth-Type := Reject).
    pub rejected: bool,
    /// True if MAC authentication bypass is not allowed, unless [`Self::methods`] names it, although there is no
    /// password. The password does not apply to the request, or none of the groups applies
    /// ([`Self::resolve_for_request`]).
    pub no_bypass: bool,
    /// A row of the store that cannot be parsed ([`Self::with_unreadable_row`]). The user is always rejected.
    pub unreadable: Option<Arc<RowError>>,
    /// Reply rows that could not be parsed and were left out ([`Self::compile_skipping_bad_replies`]).
    pub left_out: Arc<[RowError]>,
}

impl User {
    /// Creates a user with a password only.
    #[must_use]
    pub fn with_password(password: &[u8]) -> Self {
        Self { password: Some(StoredPassword::from_clear(password)), ..Self::default() }
    }
    /// Creates a user with a row that cannot be parsed ([`Self::compile`]).
    #[must_use]
    pub fn with_unreadable_row(complaint: RowError) -> Self {
        Self { unreadable: Some(Arc::new(complaint)), ..Self::default() }
    }
    /// True if a method may accept this user. MAC authentication bypass needs no password, so a user with a
    /// password must have it in [`Self::methods`].
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
    /// Returns the allowed inner methods. `None`: [`Self::methods`] is empty or names only tunnels, so all inner
    /// methods are allowed.
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

/// A condition on the request. It holds if one attribute of its kind matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestCheck {
    /// The attribute.
    pub attribute: AttributeNumber,
    /// Comparison: [`RowOperator::Equal`] or a later operator, without regular expressions.
    pub op: RowOperator,
    /// Expected value in wire format.
    pub value: Vec<u8>,
    /// Type of the values. Order applies to numbers and octets; a prefix has several encodings.
    pub data_type: AttributeDataType,
    /// Tag of the value (RFC 2868), if the attribute has tags. 0: any.
    pub tag: Option<u8>,
    /// The row for people, without the value of a secret.
    pub row: Box<str>,
}

/// A check that does not hold for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedCheck<'a> {
    /// The check.
    pub check: &'a RequestCheck,
    /// True if the request has an attribute of its kind.
    pub has_attribute: bool,
}

impl fmt::Display for FailedCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = match (self.has_attribute, self.check.op) {
            (false, _) => "no such attribute",
            (true, RowOperator::Absent) => "one",
            (true, _) => "no such value",
        };
        write!(f, "`{}` does not hold: the request has {has}", self.check.row)
    }
}

/// An attribute that a group adds to an Access-Accept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyAttribute {
    /// The attribute.
    pub attribute: AttributeNumber,
    /// [`RowOperator::Set`], [`RowOperator::Replace`] or [`RowOperator::Add`].
    pub op: RowOperator,
    /// A list of this attribute alone.
    pub value: AttributeList,
}

/// The attribute that sets a password. A later row of the same attribute replaces it. The first of two
/// attributes counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PasswordAttribute {
    /// Cleartext-Password.
    #[default]
    Cleartext,
    /// NT-Password.
    NtHash,
    /// Crypt-Password.
    Crypt,
    /// Password-With-Header. Every other attribute takes precedence.
    WithHeader,
}

/// A password and the attribute that sets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PasswordSetting {
    /// The attribute.
    pub attribute: PasswordAttribute,
    /// The password.
    pub password: StoredPassword,
}

/// A value that check rows of a user or group set. The first of several rows of one attribute counts, as in
/// FreeRADIUS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlItemValue<T> {
    /// Value for a user without one.
    pub value: T,
    /// Value of `:=`, which replaces the user's. `None`: the user's value stays.
    pub replacement: Option<T>,
}

impl<T: Clone> ControlItemValue<T> {
    /// Creates the setting of a row.
    #[must_use]
    pub fn new(value: T, replaces: bool) -> Self {
        let replacement = replaces.then(|| value.clone());
        Self { value, replacement }
    }
    /// Applies it to a user's value.
    pub fn apply_to(&self, place: &mut Option<T>) {
        match (&*place, &self.replacement) {
            (None, _) => *place = Some(self.value.clone()),
            (Some(_), Some(replacement)) => *place = Some(replacement.clone()),
            (Some(_), None) => {}
        }
    }
}

/// Values that a group's checks set for its users. `:=` replaces a user's value, `+=` and `=` do not.
#[derive(Clone, Default, Debug)]
pub struct GroupControlValues {
    /// [`User::password`].
    pub password: Option<ControlItemValue<PasswordSetting>>,
    /// [`User::methods`].
    pub methods: Option<ControlItemValue<Vec<AuthMethod>>>,
    /// [`User::simultaneous`].
    pub simultaneous: Option<ControlItemValue<u32>>,
    /// [`User::expires`].
    pub expires: Option<ControlItemValue<WallTime>>,
    /// [`User::pool`].
    pub pool: Option<ControlItemValue<String>>,
    /// [`User::rejected`]. Later rows cannot clear it.
    pub rejected: bool,
}

/// A group of users with shared attributes.
#[derive(Clone, Default, Debug)]
pub struct UserGroup {
    /// Its name.
    pub name: String,
    /// Conditions on the request. The group applies if all hold.
    pub checks: Vec<RequestCheck>,
    /// Values that it sets for its users.
    pub control: GroupControlValues,
    /// Reply items of an Access-Accept.
    pub reply: Vec<ReplyAttribute>,
    /// True if the next group is checked too (Fall-Through).
    pub fall_through: bool,
}

/// A row of the store that cannot be parsed, and how to fix it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{table}, `{attribute} {} {value}`: {what}", .op.as_str())]
pub struct RowError {
    /// Table: `radcheck`, `radreply`, `radgroupcheck of GROUP`, `radgroupreply of GROUP`.
    pub table: String,
    /// Attribute of the row.
    pub attribute: String,
    /// Operator of the row.
    pub op: RowOperator,
    /// Value of the row, empty for a password.
    pub value: String,
    /// The error, and how to fix it.
    pub what: String,
}

/// Users in memory by name. Names are compared octet by octet, MAC addresses in any notation ([`canonical_name`]).
#[derive(Clone, Debug)]
pub struct UserDirectory {
    by_name: HashMap<Vec<u8>, Arc<User>>,
}

impl UserDirectory {
    /// Creates an empty directory. `rng` keys the hash of names.
    #[must_use]
    pub fn new(rng: &mut SecureRng) -> Self {
        Self { by_name: HashMap::with_hasher(hash_state(rng)) }
    }
    /// Adds or replaces a user.
    pub fn insert(&mut self, name: &[u8], user: User) {
        self.by_name.insert(canonical_name(name).into_owned(), Arc::new(user));
    }
    /// Removes a user. False if there was none.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.by_name.remove(&*canonical_name(name)).is_some()
    }
    /// Returns the user of this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(&*canonical_name(name))
    }
    /// All users, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &User)> {
        self.by_name.iter().map(|(name, user)| (&name[..], &**user))
    }
    /// Number of users.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }
    /// True if there are no users.
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
