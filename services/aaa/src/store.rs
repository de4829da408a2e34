//! What a store keeps, in the terms of FreeRADIUS's tables, so that its users can move over.
//!
//! A [`Store`] blocks; it stands behind a thread of its host and never inside a machine. What it says about a user
//! ([`UserRows`]) is compiled into a [`crate::User`] once and kept for a bounded time.

mod memory;

pub use memory::MemoryStore;

use crate::ledger::storable_text;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use usher_core::WallTime;

/// How a row's value is meant: the operators of FreeRADIUS's `users` file and of its tables' column `op`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RowOperator {
    /// `=`: set, where nothing of that name is there yet.
    Set,
    /// `:=`: put in place of whatever is there.
    Replace,
    /// `+=`: add.
    Add,
    /// `==`: the request has this value.
    Equal,
    /// `!=`: the request has not this value.
    NotEqual,
    /// `<`: the request's value is less.
    Less,
    /// `<=`: the request's value is not greater.
    LessOrEqual,
    /// `>`: the request's value is greater.
    Greater,
    /// `>=`: the request's value is not less.
    GreaterOrEqual,
    /// `=~`: the request's value matches the expression.
    Matches,
    /// `!~`: the request's value does not match the expression.
    MatchesNot,
    /// `=*`: the request has such an attribute.
    Present,
    /// `!*`: the request has no such attribute.
    Absent,
    /// What a table has there is none of these: nobody can say what the row means.
    Unknown,
}

impl RowOperator {
    /// Each that means something, with the way it is written.
    pub const ALL: [(Self, &'static str); 13] = [
        (Self::Set, "="),
        (Self::Replace, ":="),
        (Self::Add, "+="),
        (Self::Equal, "=="),
        (Self::NotEqual, "!="),
        (Self::Less, "<"),
        (Self::LessOrEqual, "<="),
        (Self::Greater, ">"),
        (Self::GreaterOrEqual, ">="),
        (Self::Matches, "=~"),
        (Self::MatchesNot, "!~"),
        (Self::Present, "=*"),
        (Self::Absent, "!*"),
    ];
    /// The operator that is written so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, t)| *t == text).map(|(op, _)| *op)
    }
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(op, _)| *op == self).map_or("(no operator)", |(_, t)| t)
    }
}

/// One row of radcheck, radreply, radgroupcheck or radgroupreply.
#[derive(Clone, PartialEq, Eq)]
pub struct AttributeRow {
    /// The attribute's name: `Cleartext-Password`, `Session-Timeout`.
    pub attribute: String,
    /// What is done with the value.
    pub op: RowOperator,
    /// The value as text.
    pub value: String,
}

impl fmt::Debug for AttributeRow {
    /// Without the value of a password or secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.attribute.to_ascii_lowercase();
        let hidden = name.contains("password") || name.contains("secret");
        let value = if hidden { "<hidden>" } else { &self.value };
        write!(f, "{} {} {value:?}", self.attribute, self.op.as_str())
    }
}

/// A group that a user is in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupRows {
    /// Its name.
    pub name: String,
    /// What must hold for the group to apply (radgroupcheck).
    pub check: Vec<AttributeRow>,
    /// What it adds (radgroupreply).
    pub reply: Vec<AttributeRow>,
}

/// All that the tables say about one user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserRows {
    /// radcheck, in the order of its ids.
    pub check: Vec<AttributeRow>,
    /// radreply, in the order of its ids.
    pub reply: Vec<AttributeRow>,
    /// radusergroup, in the order of its priority.
    pub groups: Vec<GroupRows>,
}

/// What is asked of a client's packets: columns require_ma and limit_proxy_state of table nas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ClientRequirement {
    /// `auto`: yes, once the client was seen to do it.
    #[default]
    Auto,
    /// `yes`.
    Yes,
    /// `no`.
    No,
}

impl ClientRequirement {
    /// What is written so; `None` for any other text.
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
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Yes => "yes",
            Self::No => "no",
        }
    }
}

/// One row of table nas: a client of the server.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ClientRow {
    /// Column nasname: an address, a prefix (`192.0.2.0/24`).
    pub nasname: String,
    /// What people call it.
    pub shortname: String,
    /// Column type: `other`, `cisco`, …
    pub kind: String,
    /// The shared secret.
    pub secret: String,
    /// For people.
    pub description: String,
    /// Whether its Access-Requests must have a Message-Authenticator.
    pub require_message_authenticator: ClientRequirement,
    /// Whether its Access-Requests with Proxy-State must have one all the more.
    pub limit_proxy_state: ClientRequirement,
    /// Column server: FreeRADIUS's virtual server for its packets. Stores read it, and leave it as it is when they put a client.
    pub server: String,
}

impl ClientRow {
    /// The virtual server of FreeRADIUS whose client it is, with rules of its own. `None`: it is everybody's, and served here.
    #[must_use]
    pub fn virtual_server(&self) -> Option<&str> {
        Some(self.server.trim()).filter(|server| !matches!(*server, "" | "default"))
    }
}

impl fmt::Debug for ClientRow {
    /// Without the secret.
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

/// One row of table radacct: a session as accounting tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRow {
    /// Acct-Session-Id.
    pub acctsessionid: String,
    /// What makes it unique among all NASs (column acctuniqueid): 32 hexadecimal digits.
    pub acctuniqueid: String,
    /// User-Name.
    pub username: String,
    /// Its realm; empty without one.
    pub realm: String,
    /// The NAS.
    pub nasipaddress: IpAddr,
    /// NAS-Port-Id, or NAS-Port in decimal.
    pub nasportid: String,
    /// NAS-Port-Type by name; empty where unknown.
    pub nasporttype: String,
    /// When it began.
    pub acctstarttime: Option<WallTime>,
    /// When the NAS last spoke of it.
    pub acctupdatetime: Option<WallTime>,
    /// When it ended; `None`: it goes on.
    pub acctstoptime: Option<WallTime>,
    /// Acct-Session-Time, seconds.
    pub acctsessiontime: u64,
    /// Acct-Authentic by name; empty where unknown.
    pub acctauthentic: String,
    /// Octets from the user (Acct-Input-Octets and its gigawords).
    pub acctinputoctets: u64,
    /// Octets to the user.
    pub acctoutputoctets: u64,
    /// Called-Station-Id.
    pub calledstationid: String,
    /// Calling-Station-Id.
    pub callingstationid: String,
    /// Acct-Terminate-Cause by name; empty while it goes on.
    pub acctterminatecause: String,
    /// Service-Type by name; empty where unknown.
    pub servicetype: String,
    /// Framed-Protocol by name; empty where unknown.
    pub framedprotocol: String,
    /// Framed-IP-Address.
    pub framedipaddress: Option<IpAddr>,
    /// Framed-IPv6-Prefix as text; empty without one.
    pub framedipv6prefix: String,
    /// Class, as the server gave it; hexadecimal.
    pub class: String,
    /// How many Interim-Updates came.
    pub interims: u32,
    /// Of a session that is reported by Diameter, whose it is ([`LedgerRecord::diameter_origin`](crate::LedgerRecord::diameter_origin)); empty by RADIUS,
    /// and where that is not known.
    pub diameter_origin: String,
}

/// A change to be made durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreChange {
    /// The row as it is now, under its `acctuniqueid`: inserted or put in place of the one there.
    Session(alloc::boxed::Box<SessionRow>),
    /// A NAS has begun anew or ends: all its open sessions that had begun by then (or nobody knows when) ended then
    /// (Accounting-On, Accounting-Off), but those that are reported by Diameter ([`SessionRow::diameter_origin`]). Their
    /// times become that time, their length what has passed from their beginning, and no less than it was.
    NasRestarted {
        /// The NAS.
        nas: IpAddr,
        /// When.
        restarted_at: WallTime,
        /// Acct-Terminate-Cause by name: `NAS-Reboot`, `Admin-Reset`.
        cause: String,
    },
    /// A login was decided (table radpostauth).
    Login {
        /// Who.
        username: String,
        /// `Access-Accept` or `Access-Reject`.
        reply: &'static str,
        /// When.
        decided_at: WallTime,
        /// Calling-Station-Id; empty where unknown.
        callingstationid: String,
    },
}

impl StoreChange {
    /// A decided login.
    #[must_use]
    pub fn of_login(login: &crate::FinishedLogin, at: WallTime) -> Self {
        Self::Login {
            username: storable_text(login.record_name()),
            reply: if login.reason.is_none() { "Access-Accept" } else { "Access-Reject" },
            decided_at: at,
            callingstationid: storable_text(login.calling_station_id().unwrap_or_default()),
        }
    }
}

/// Why a store did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or is too busy; the same may succeed later. Nothing was changed, unless the connection to
    /// a database broke in the very moment of its answer: then all was. So sessions are written again without harm,
    /// and a login of that moment may stand there twice.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// What it holds or was given does not fit; trying again does not help.
    #[error("the store refused: {0}")]
    Refused(String),
    /// It answers, and cannot hold what it was given: a name of characters that its encoding lacks, a value that its column has no room
    /// for. Nothing of that kind is there.
    #[error("the store cannot hold it: {0}")]
    Unstorable(String),
}

/// Users, clients and sessions, wherever they are kept. Each method blocks.
pub trait Store: Send {
    /// What is known of a user; `None`: nothing at all.
    ///
    /// # Errors
    /// The store could not say; [`StoreError::Unstorable`] where nobody can have that name there.
    fn find_user(&mut self, name: &str) -> Result<Option<UserRows>, StoreError>;
    /// Makes changes durable, in their order, all or none: when this answers `Ok` they outlast a power failure.
    ///
    /// # Errors
    /// None was made, except as [`StoreError::Unavailable`] tells. Where one change of many is refused, each may be
    /// written by itself to find it.
    fn write_changes(&mut self, changes: &[StoreChange]) -> Result<(), StoreError>;
    /// Gives every open session (no stop time) to `each`, in any order.
    ///
    /// # Errors
    /// The store failed on the way; some may have been given.
    fn open_sessions(&mut self, each: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError>;
    /// The session of this acctuniqueid, open or ended.
    ///
    /// # Errors
    /// The store could not say.
    fn find_session(&mut self, acctuniqueid: &str) -> Result<Option<SessionRow>, StoreError>;
    /// Table nas, in the order of its ids.
    ///
    /// # Errors
    /// The store could not say.
    fn list_clients(&mut self) -> Result<Vec<ClientRow>, StoreError>;
    /// Names of users, in order, those after `after`, at most `most`.
    ///
    /// # Errors
    /// The store could not say.
    fn user_names(&mut self, after: Option<&str>, most: u32) -> Result<Vec<String>, StoreError>;
    /// Puts a user in place of whatever the tables say of that name. Groups of a [`UserRows`] are joined by name;
    /// their own rows are not changed.
    ///
    /// # Errors
    /// Nothing was changed.
    fn put_user(&mut self, name: &str, rows: &UserRows) -> Result<(), StoreError>;
    /// Puts many users, each as [`Store::put_user`] does; how many. Stores make this quick for a million of them.
    ///
    /// # Errors
    /// Some may have been put.
    fn put_users(&mut self, users: &mut dyn Iterator<Item = (String, UserRows)>) -> Result<u64, StoreError> {
        let mut count = 0;
        for (name, rows) in users {
            self.put_user(&name, &rows)?;
            count += 1;
        }
        Ok(count)
    }
    /// Forgets a user; false where there was none.
    ///
    /// # Errors
    /// Nothing was changed.
    fn delete_user(&mut self, name: &str) -> Result<bool, StoreError>;
    /// Puts a group's rows in place of those there.
    ///
    /// # Errors
    /// Nothing was changed.
    fn put_group(&mut self, group: &GroupRows) -> Result<(), StoreError>;
    /// Adds a client, or puts it in place of the one of that nasname.
    ///
    /// # Errors
    /// Nothing was changed.
    fn put_client(&mut self, client: &ClientRow) -> Result<(), StoreError>;
    /// Forgets a client; false where there was none.
    ///
    /// # Errors
    /// Nothing was changed.
    fn delete_client(&mut self, nasname: &str) -> Result<bool, StoreError>;
}

/// A user by any spelling that the store may have of the name.
///
/// # Errors
/// What the store says.
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
