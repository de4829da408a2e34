//! The interface to the database, in the terms of FreeRADIUS's tables, so that existing tables can be used.
//!
//! A [`Store`] blocks. It runs in a thread of the host, never inside a machine. The rows of a user ([`UserRows`])
//! are compiled into a [`crate::User`] once and cached for a bounded time.

mod memory;

pub use crate::operator::RowOperator;
pub use memory::MemoryStore;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use usher_core::WallTime;

/// A row of radcheck, radreply, radgroupcheck or radgroupreply.
#[derive(Clone, PartialEq, Eq)]
pub struct AttributeRow {
    /// The attribute's name: `Cleartext-Password`, `Session-Timeout`.
    pub attribute: String,
    /// Operator.
    pub op: RowOperator,
    /// The value as text.
    pub value: String,
}

impl fmt::Debug for AttributeRow {
    /// Omits the value of a password or secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.attribute.to_ascii_lowercase();
        let hidden = name.contains("password") || name.contains("secret");
        let value = if hidden { "<hidden>" } else { &self.value };
        write!(f, "{} {} {value:?}", self.attribute, self.op.as_str())
    }
}

/// A group of a user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupRows {
    /// Its name.
    pub name: String,
    /// Conditions of the group (radgroupcheck).
    pub check: Vec<AttributeRow>,
    /// Reply items of the group (radgroupreply).
    pub reply: Vec<AttributeRow>,
}

/// All rows of a user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserRows {
    /// radcheck, ordered by id.
    pub check: Vec<AttributeRow>,
    /// radreply, ordered by id.
    pub reply: Vec<AttributeRow>,
    /// radusergroup, ordered by priority.
    pub groups: Vec<GroupRows>,
}

/// A requirement on a client's packets: columns require_ma and limit_proxy_state of table nas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ClientRequirement {
    /// `auto`: required once the client has met it.
    #[default]
    Auto,
    /// `yes`.
    Yes,
    /// `no`.
    No,
}

impl ClientRequirement {
    /// Parses a requirement. `None`: any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is = |names: &[&str]| names.iter().any(|n| text.eq_ignore_ascii_case(n));
        match () {
            () if is(&["auto", ""]) => Some(Self::Auto),
            () if is(&["yes", "true", "on", "1"]) => Some(Self::Yes),
            () if is(&["no", "false", "off", "0"]) => Some(Self::No),
            () => None,
        }
    }
    /// Returns its text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Yes => "yes",
            Self::No => "no",
        }
    }
}

/// A row of table nas: a client.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ClientRow {
    /// Column nasname: an address or a prefix (`192.0.2.0/24`).
    pub nasname: String,
    /// Name for people.
    pub shortname: String,
    /// Column type: `other`, `cisco`, …
    pub kind: String,
    /// The shared secret.
    pub secret: String,
    /// Description for people.
    pub description: String,
    /// Whether its Access-Requests must have a Message-Authenticator.
    pub require_message_authenticator: ClientRequirement,
    /// Whether its Access-Requests with Proxy-State must have a Message-Authenticator.
    pub limit_proxy_state: ClientRequirement,
    /// Column server: FreeRADIUS's virtual server for its packets. A store reads it, and keeps it when it writes a
    /// client.
    pub server: String,
}

impl ClientRow {
    /// Returns FreeRADIUS's virtual server of the client, which has its own rules. `None`: the client is served
    /// here.
    #[must_use]
    pub fn virtual_server(&self) -> Option<&str> {
        Some(self.server.trim()).filter(|server| !matches!(*server, "" | "default"))
    }
}

impl fmt::Debug for ClientRow {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRow")
            .field("nasname", &self.nasname)
            .field("shortname", &self.shortname)
            .field("kind", &self.kind)
            .field("description", &self.description)
            .field("require_message_authenticator", &self.require_message_authenticator)
            .field("limit_proxy_state", &self.limit_proxy_state)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// A row of table radacct: a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRow {
    /// Acct-Session-Id.
    pub acctsessionid: String,
    /// Column acctuniqueid, unique among all NASs: 32 hexadecimal digits.
    pub acctuniqueid: String,
    /// User-Name.
    pub username: String,
    /// Realm. Empty: none.
    pub realm: String,
    /// The NAS.
    pub nasipaddress: IpAddr,
    /// NAS-Port-Id, or NAS-Port in decimal.
    pub nasportid: String,
    /// NAS-Port-Type by name. Empty: unknown.
    pub nasporttype: String,
    /// Start time.
    pub acctstarttime: Option<WallTime>,
    /// Time of the NAS's last record.
    pub acctupdatetime: Option<WallTime>,
    /// Stop time. `None`: the session is open.
    pub acctstoptime: Option<WallTime>,
    /// Acct-Session-Time, seconds.
    pub acctsessiontime: u64,
    /// Acct-Authentic by name. Empty: unknown.
    pub acctauthentic: String,
    /// Octets from the user (Acct-Input-Octets and its gigawords).
    pub acctinputoctets: u64,
    /// Octets to the user.
    pub acctoutputoctets: u64,
    /// Called-Station-Id.
    pub calledstationid: String,
    /// Calling-Station-Id.
    pub callingstationid: String,
    /// Acct-Terminate-Cause by name. Empty while the session is open.
    pub acctterminatecause: String,
    /// Service-Type by name. Empty: unknown.
    pub servicetype: String,
    /// Framed-Protocol by name. Empty: unknown.
    pub framedprotocol: String,
    /// Framed-IP-Address.
    pub framedipaddress: Option<IpAddr>,
    /// Framed-IPv6-Prefix as text. Empty: none.
    pub framedipv6prefix: String,
    /// Class of the Access-Accept in hexadecimal.
    pub class: String,
    /// Number of Interim-Updates.
    pub interims: u32,
    /// Diameter origin of the session ([`LedgerRecord::diameter_origin`](crate::LedgerRecord::diameter_origin)).
    /// Empty: RADIUS, or unknown.
    pub diameter_origin: String,
}

/// A change to be made durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreChange {
    /// The current row of a session. It is inserted, or replaces the row of its `acctuniqueid`.
    Session(alloc::boxed::Box<SessionRow>),
    /// A restart or shutdown of a NAS (Accounting-On, Accounting-Off). It ends all open sessions of the NAS that
    /// started earlier or at an unknown time, except sessions of Diameter ([`SessionRow::diameter_origin`]). They
    /// stop at the restart. Their length becomes the time since their start, and never decreases.
    NasRestarted {
        /// The NAS.
        nas: IpAddr,
        /// Time of the restart.
        restarted_at: WallTime,
        /// Acct-Terminate-Cause by name: `NAS-Reboot`, `Admin-Reset`.
        cause: String,
    },
    /// A decided login (table radpostauth).
    Login {
        /// User-Name.
        username: String,
        /// `Access-Accept` or `Access-Reject`.
        reply: &'static str,
        /// Time of the verdict.
        decided_at: WallTime,
        /// Calling-Station-Id. Empty: unknown.
        callingstationid: String,
    },
}

/// An error of a store.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store is unreachable or too busy; a later attempt may succeed. No change was made, with one exception:
    /// if the connection broke during the commit, all changes were made. Sessions can be written again without
    /// harm. A login may then be there twice.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Stored or given data are invalid. Another attempt fails too.
    #[error("the store refused: {0}")]
    Refused(String),
    /// The store cannot represent the data: characters outside its encoding, or a value too long for its column. So
    /// it has no such row.
    #[error("the store cannot hold it: {0}")]
    Unstorable(String),
}

/// A database of users, clients and sessions. Each method blocks.
pub trait Store: Send {
    /// Returns the rows of a user. `None`: there are none.
    ///
    /// # Errors
    /// The lookup failed. [`StoreError::Unstorable`]: the name cannot exist in this store.
    fn find_user(&mut self, name: &str) -> Result<Option<UserRows>, StoreError>;
    /// Makes changes durable in their order, all or none. After `Ok` they survive a power failure.
    ///
    /// # Errors
    /// No change was made, except as described at [`StoreError::Unavailable`]. If one of many changes is refused,
    /// write each by itself to find it.
    fn write_changes(&mut self, changes: &[StoreChange]) -> Result<(), StoreError>;
    /// Passes every open session (without stop time) to `each`, in any order.
    ///
    /// # Errors
    /// The store failed. `each` may have received some sessions.
    fn open_sessions(&mut self, each: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError>;
    /// Returns the session of this acctuniqueid, open or ended.
    ///
    /// # Errors
    /// The lookup failed.
    fn find_session(&mut self, acctuniqueid: &str) -> Result<Option<SessionRow>, StoreError>;
    /// Returns table nas, ordered by id.
    ///
    /// # Errors
    /// The lookup failed.
    fn list_clients(&mut self) -> Result<Vec<ClientRow>, StoreError>;
    /// Returns at most `most` names of users after `after`, in order.
    ///
    /// # Errors
    /// The lookup failed.
    fn user_names(&mut self, after: Option<&str>, most: u32) -> Result<Vec<String>, StoreError>;
    /// Replaces all rows of a user. The user joins the groups by name; rows of the groups do not change.
    ///
    /// # Errors
    /// No change was made.
    fn put_user(&mut self, name: &str, rows: &UserRows) -> Result<(), StoreError>;
    /// Replaces the rows of many users like [`Store::put_user`], and returns their number. Stores do this quickly
    /// for a million users.
    ///
    /// # Errors
    /// Some users may have been written.
    fn put_users(&mut self, users: &mut dyn Iterator<Item = (String, UserRows)>) -> Result<u64, StoreError> {
        let mut count = 0;
        for (name, rows) in users {
            self.put_user(&name, &rows)?;
            count += 1;
        }
        Ok(count)
    }
    /// Deletes a user. False if there was none.
    ///
    /// # Errors
    /// No change was made.
    fn delete_user(&mut self, name: &str) -> Result<bool, StoreError>;
    /// Replaces the rows of a group.
    ///
    /// # Errors
    /// No change was made.
    fn put_group(&mut self, group: &GroupRows) -> Result<(), StoreError>;
    /// Adds a client, or replaces the client of its nasname.
    ///
    /// # Errors
    /// No change was made.
    fn put_client(&mut self, client: &ClientRow) -> Result<(), StoreError>;
    /// Deletes a client. False if there was none.
    ///
    /// # Errors
    /// No change was made.
    fn delete_client(&mut self, nasname: &str) -> Result<bool, StoreError>;
}

/// Returns a user by any notation of the name in the store.
///
/// # Errors
/// The error of the store.
pub fn user_of(store: &mut dyn Store, name: &str) -> Result<Option<UserRows>, StoreError> {
    for name in crate::name_spellings(name) {
        if let Some(rows) = store.find_user(&name)? {
            return Ok(Some(rows));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn operators_and_demands_are_read_as_they_are_written() {
        for (op, text) in RowOperator::ALL {
            assert_eq!((RowOperator::parse(text), op.as_str()), (Some(op), text));
        }
        assert_eq!(RowOperator::parse("=>"), None);
        for demand in [ClientRequirement::Auto, ClientRequirement::Yes, ClientRequirement::No] {
            assert_eq!(ClientRequirement::parse(demand.as_str()), Some(demand));
        }
        assert_eq!(
            (ClientRequirement::parse("True"), ClientRequirement::parse("perhaps")),
            (Some(ClientRequirement::Yes), None)
        );
    }

    #[test]
    fn debug_output_has_no_secrets() {
        let row = AttributeRow {
            attribute: "Cleartext-Password".into(),
            op: RowOperator::Replace,
            value: "kiwi".into(),
        };
        let client = ClientRow { nasname: "192.0.2.1".into(), secret: "kiwi".into(), ..ClientRow::default() };
        let shown = format!("{row:?} {client:?}");
        assert!(!shown.contains("kiwi"), "{shown}");
        assert!(shown.contains("Cleartext-Password") && shown.contains("192.0.2.1"), "{shown}");
    }
}
