//! A store's rows made into a user.

mod value;

use super::{
    AuthMethod, ControlSetting, GroupControl, PasswordAttribute, PasswordSetting, ReplyAttribute,
    RequestCheck, RowError, StoredPassword, User, UserGroup,
};
use crate::store::{AttributeRow, RowOperator, UserRows};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_crypto::password::check_argon2;
use usher_radius::attribute::{AttributeList, DataType, kind};
use usher_radius::dictionary::{
    AttributeDefinition, AttributeEncryption, AttributeNumber, AttributeOid, RadiusDictionary,
};
use value::{decode_hex, encode_value, parse_date};

impl User {
    /// A user as the rows of the tables say, in FreeRADIUS's words and meaning.
    ///
    /// # Errors
    /// The first row that cannot be understood, and what to do: a user of whom a part was left out could be let in
    /// where nobody meant it.
    pub fn compile(rows: &UserRows, dictionary: &RadiusDictionary) -> Result<Self, RowError> {
        Self::compile_rows(rows, dictionary, None)
    }

    /// The same, but a row of a reply that cannot be understood is left out, and told of in [`Self::left_out`].
    ///
    /// # Errors
    /// The first check that cannot be understood: without it the user could be let in where nobody meant it.
    pub fn compile_leaving_out(rows: &UserRows, dictionary: &RadiusDictionary) -> Result<Self, RowError> {
        let mut left_out = Vec::new();
        let mut user = Self::compile_rows(rows, dictionary, Some(&mut left_out))?;
        user.left_out = left_out.into();
        Ok(user)
    }

    fn compile_rows(
        rows: &UserRows,
        dictionary: &RadiusDictionary,
        mut left_out: Option<&mut Vec<RowError>>,
    ) -> Result<Self, RowError> {
        let (checks, control) = rows_of(&rows.check, "radcheck", dictionary)?;
        let (reply, fall_through) =
            parse_replies(&rows.reply, "radreply", dictionary, left_out.as_deref_mut())?;
        let mut user = Self { checks, ..Self::default() };
        user.apply_control(&control);
        for item in &reply {
            item.apply_to(&mut user.reply);
        }
        if fall_through == Some(false) {
            return Ok(user);
        }
        for group in &rows.groups {
            let table = format!("radgroupcheck of {}", group.name);
            let (checks, control) = rows_of(&group.check, &table, dictionary)?;
            check_password_attributes(&group.check, &table, dictionary)?;
            let table = format!("radgroupreply of {}", group.name);
            let (reply, fall_through) =
                parse_replies(&group.reply, &table, dictionary, left_out.as_deref_mut())?;
            user.groups.push(Arc::new(UserGroup {
                name: group.name.clone(),
                checks,
                control,
                reply,
                fall_through: fall_through == Some(true),
            }));
        }
        Ok(user)
    }
}

/// What is shown in place of a secret's value.
const HIDDEN: &str = "(hidden)";

/// What rows say to the server itself beside passwords: no dictionary need know it.
const FOR_THE_SERVER: [&str; 18] = [
    "auth-type",
    "client-ip-address",
    "current-time",
    "eap-type",
    "expiration",
    "fall-through",
    "group",
    "hint",
    "huntgroup-name",
    "ldap-group",
    "login-time",
    "max-all-session",
    "max-daily-session",
    "max-monthly-session",
    "pool-name",
    "realm",
    "simultaneous-use",
    "sql-group",
];

/// The attribute of a name, or of a number written as one.
fn find_definition<'d>(name: &str, dictionary: &'d RadiusDictionary) -> Option<&'d AttributeDefinition> {
    let by_number = || RadiusDictionary::number_in_name(name).and_then(|oid| dictionary.by_oid(oid));
    dictionary.by_name(name).or_else(by_number)
}

/// Whether an attribute's values are never shown: those of secrets, and of names that nobody knows, since one may be a
/// secret's that is misspelt.
fn is_secret(name: &str, dictionary: &RadiusDictionary) -> bool {
    let name = name.split(':').next().unwrap_or(name).to_ascii_lowercase();
    if name.ends_with("password") || name == "password-with-header" {
        return true;
    }
    match find_definition(&name, dictionary) {
        Some(definition) => {
            definition.encryption != AttributeEncryption::None || definition.name.ends_with("Password")
        }
        None => !FOR_THE_SERVER.contains(&name.as_str()),
    }
}

fn row_error(table: &str, row: &AttributeRow, dictionary: &RadiusDictionary, what: String) -> RowError {
    let hide = is_secret(&row.attribute, dictionary);
    let value = if hide { HIDDEN.into() } else { row.value.clone() };
    RowError { table: table.into(), attribute: row.attribute.clone(), op: row.op, value, what }
}

/// A row as it is written, of a secret no value.
fn display_row(row: &AttributeRow, dictionary: &RadiusDictionary) -> Box<str> {
    let value = if is_secret(&row.attribute, dictionary) { HIDDEN } else { &row.value };
    let text = format!("{} {} {value}", row.attribute, row.op.as_str());
    text.trim_end().into()
}

fn rows_of(
    rows: &[AttributeRow],
    table: &str,
    dictionary: &RadiusDictionary,
) -> Result<(Vec<RequestCheck>, GroupControl), RowError> {
    let (mut checks, mut control) = (Vec::new(), GroupControl::default());
    for row in rows {
        check_operator(row).map_err(|what| row_error(table, row, dictionary, what))?;
        let done = match apply_control_row(row, &mut control) {
            Err(NotControl) => parse_check(row, dictionary).map(|check| checks.push(check)),
            Ok(done) => done,
        };
        done.map_err(|what| row_error(table, row, dictionary, what))?;
    }
    Ok((checks, control))
}

/// A group's password of one attribute takes the place of its users', one of another does not: of two, nobody can say which one holds.
fn check_password_attributes(
    rows: &[AttributeRow],
    table: &str,
    dictionary: &RadiusDictionary,
) -> Result<(), RowError> {
    let mut first = None;
    for row in rows {
        let Some(attribute) = password_attribute(&row.attribute) else { continue };
        if *first.get_or_insert(attribute) != attribute {
            let what = "the group has a password of another attribute already; remove one of them".into();
            return Err(row_error(table, row, dictionary, what));
        }
    }
    Ok(())
}

/// The attributes of passwords that are served.
fn password_attribute(name: &str) -> Option<PasswordAttribute> {
    let all = [
        ("Cleartext-Password", PasswordAttribute::Cleartext),
        ("NT-Password", PasswordAttribute::NtHash),
        ("Crypt-Password", PasswordAttribute::Crypt),
        ("Password-With-Header", PasswordAttribute::WithHeader),
    ];
    all.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, attribute)| attribute)
}

/// What is said of a value between backquotes.
const EXPANDED: &str =
    "FreeRADIUS expands a value between backquotes for each request, which is not done here; write it out";

/// Whether FreeRADIUS puts something else in place of a value of its tables. A store reads such a row with [`RowOperator::Unknown`].
#[must_use]
pub fn is_expanded(value: &str) -> bool {
    value.len() > 1 && value.starts_with('`') && value.ends_with('`')
}

/// Whether a row says what is to be done with its value.
fn check_operator(row: &AttributeRow) -> Result<(), String> {
    match row.op {
        RowOperator::Unknown if is_expanded(&row.value) => Err(EXPANDED.into()),
        RowOperator::Unknown => Err("its operator (op) is none; :=, ==, += and the like are".into()),
        _ => Ok(()),
    }
}

/// A row is none that sets something for the server itself.
struct NotControl;

/// Takes a row that sets something for the server itself.
fn apply_control_row(
    row: &AttributeRow,
    control: &mut GroupControl,
) -> Result<Result<(), String>, NotControl> {
    let name = row.attribute.to_ascii_lowercase();
    let value = row.value.as_str();
    let done = match name.as_str() {
        "cleartext-password" => put_password(control, row, parse_clear_password(value)),
        "nt-password" => put_password(control, row, nt_hash(value)),
        "password-with-header" => put_password(control, row, with_header(value)),
        "crypt-password" => put_password(control, row, parse_argon2(value)),
        "user-password" => Err("write Cleartext-Password := instead".into()),
        "ssha-password" | "sha-password" | "sha1-password" | "sha2-password" | "smd5-password"
        | "md5-password" | "lm-password" | "pbkdf2-password" | "ssha2-password" => {
            Err("this hash is not served; store Cleartext-Password, NT-Password or an Argon2 hash in \
                 Crypt-Password"
                .into())
        }
        "auth-type" => auth_type(control, row),
        "eap-type" => {
            let method = match value.to_ascii_lowercase().as_str() {
                "md5-challenge" | "eap-md5" | "md5" | "4" => Ok(AuthMethod::EapMd5),
                "generic-token-card" | "gtc" | "eap-gtc" | "6" => Ok(AuthMethod::EapGtc),
                "eap-tls" | "tls" | "13" => Ok(AuthMethod::EapTls),
                "eap-ttls" | "ttls" | "21" => Ok(AuthMethod::Ttls),
                "peap" | "eap-peap" | "25" => Ok(AuthMethod::Peap),
                "eap-mschap-v2" | "eap-mschapv2" | "mschap-v2" | "mschapv2" | "26" => {
                    Ok(AuthMethod::EapMsChapV2)
                }
                _ => Err("no EAP method of this server".to_string()),
            };
            method.and_then(|m| restrict_methods(control, row, &[m]))
        }
        "simultaneous-use" => {
            let number = value.parse().map_err(|_| "not a number of sessions".to_string());
            set_control(&mut control.simultaneous, row, number)
        }
        "expiration" => {
            let time =
                parse_date(value).ok_or_else(|| "write a date as `31 Dec 2026 23:59:59` (UTC)".to_string());
            // FreeRADIUS has 32 bits for it, and begins again from 1970.
            let within = time.and_then(|time| match u32::try_from(time.unix_secs()) {
                Ok(_) => Ok(time),
                Err(_) => Err("the date is after 7 Feb 2106 06:28:15; write an earlier one".to_string()),
            });
            set_control(&mut control.expires, row, within)
        }
        "pool-name" => set_control(&mut control.pool, row, Ok(value.into())),
        "login-time"
        | "max-daily-session"
        | "max-monthly-session"
        | "max-all-session"
        | "group"
        | "huntgroup-name"
        | "realm"
        | "current-time"
        | "sql-group"
        | "ldap-group"
        | "client-ip-address"
        | "hint" => Err("this check is not served; remove the row".into()),
        _ => return Err(NotControl),
    };
    Ok(done)
}

fn eap_methods() -> Vec<AuthMethod> {
    AuthMethod::ALL.into_iter().filter(|m| m.eap_type().is_some()).collect()
}

/// What is said of another operator than `:=` and `+=`.
const NOT_IN_A_REQUEST: &str = "write := to set it; it is nothing that a request has";

/// Whether a row takes the place of what there is.
///
/// # Errors
/// Its operator compares: FreeRADIUS looks for the attribute in the request, finds none, and lets nobody in by this row.
fn is_replacing(row: &AttributeRow) -> Result<bool, String> {
    match row.op {
        RowOperator::Replace => Ok(true),
        RowOperator::Add => Ok(false),
        _ => Err(NOT_IN_A_REQUEST.into()),
    }
}

/// Sets a value as the operator says.
fn set_control<T: Clone>(
    place: &mut Option<ControlSetting<T>>,
    row: &AttributeRow,
    value: Result<T, String>,
) -> Result<(), String> {
    add_setting(place, value?, is_replacing(row)?);
    Ok(())
}

/// Adds a row to what the rows before it set: the first one counts, and of those by `:=` the first.
fn add_setting<T: Clone>(place: &mut Option<ControlSetting<T>>, value: T, replaces: bool) {
    match place {
        None => *place = Some(ControlSetting::new(value, replaces)),
        Some(setting) if replaces => drop(setting.replacement.get_or_insert(value)),
        Some(_) => {}
    }
}

fn put_password(
    control: &mut GroupControl,
    row: &AttributeRow,
    password: Result<StoredPassword, String>,
) -> Result<(), String> {
    let attribute = password_attribute(&row.attribute).unwrap_or_default();
    let replaces = match row.op {
        // The one attribute of a password that FreeRADIUS does not look for in the request.
        RowOperator::Set if attribute == PasswordAttribute::Crypt => false,
        _ => is_replacing(row)?,
    };
    let value = PasswordSetting { attribute, password: password? };
    let yields = |set: &ControlSetting<PasswordSetting>| set.value.attribute == PasswordAttribute::WithHeader;
    if attribute != PasswordAttribute::WithHeader && control.password.as_ref().is_some_and(yields) {
        control.password = None;
    }
    if let Some(first) = &control.password
        && first.value.attribute != attribute
    {
        return Ok(());
    }
    add_setting(&mut control.password, value, replaces);
    Ok(())
}

fn auth_type(control: &mut GroupControl, row: &AttributeRow) -> Result<(), String> {
    if !matches!(row.op, RowOperator::Set | RowOperator::Replace | RowOperator::Add) {
        return Err("write := to set it; no method is compared, and FreeRADIUS passes this row over".into());
    }
    let methods: &[AuthMethod] = match row.value.to_ascii_lowercase().as_str() {
        "reject" | "4" => {
            control.rejected = true;
            return Ok(());
        }
        "accept" | "254" => {
            control.methods = Some(ControlSetting::new([AuthMethod::Mab].into(), row.op != RowOperator::Set));
            return Ok(());
        }
        "local" | "pap" => &[AuthMethod::Pap],
        "chap" => &[AuthMethod::Chap],
        "ms-chap" | "mschap" => &[AuthMethod::MsChap, AuthMethod::MsChapV2],
        "eap" => {
            // Those of EAP-Type, where a row has it, are of EAP already.
            let narrower =
                |set: &ControlSetting<Vec<AuthMethod>>| set.value.iter().all(|m| m.eap_type().is_some());
            if row.op != RowOperator::Add && control.methods.as_ref().is_some_and(narrower) {
                return Ok(());
            }
            return restrict_methods(control, row, &eap_methods());
        }
        _ => {
            return Err(
                "Reject, Accept (MAC authentication bypass), PAP, CHAP, MS-CHAP and EAP are served".into()
            );
        }
    };
    restrict_methods(control, row, methods)
}

fn restrict_methods(
    control: &mut GroupControl,
    row: &AttributeRow,
    methods: &[AuthMethod],
) -> Result<(), String> {
    let before = control.methods.take();
    let mut all: Vec<AuthMethod> = match row.op {
        RowOperator::Replace | RowOperator::Set => Vec::new(),
        RowOperator::Add => before.map(|set| set.value).unwrap_or_default(),
        _ => return Err("write := to set it, += to add to it; a request's method is not compared".into()),
    };
    all.extend_from_slice(methods);
    control.methods = Some(ControlSetting::new(all, row.op != RowOperator::Set));
    Ok(())
}

/// What is said of the empty password.
const EMPTY: &str =
    "the password is empty, so that everybody has it; give another, or none where the user needs none";

fn parse_clear_password(value: &str) -> Result<StoredPassword, String> {
    if value.is_empty() { Err(EMPTY.into()) } else { Ok(StoredPassword::from_clear(value.as_bytes())) }
}

fn nt_hash(value: &str) -> Result<StoredPassword, String> {
    let hash: Option<[u8; 16]> = decode_hex(value).and_then(|h| h.try_into().ok());
    match hash.ok_or("an NT hash has 32 hexadecimal digits")? {
        hash if hash == usher_crypto::legacy::nt_hash(b"") => Err(EMPTY.into()),
        hash => Ok(StoredPassword::NtHash(hash.into())),
    }
}

fn parse_argon2(value: &str) -> Result<StoredPassword, String> {
    check_argon2(value).map(|()| StoredPassword::Argon2(value.into())).map_err(|fault| fault.to_string())
}

fn with_header(value: &str) -> Result<StoredPassword, String> {
    let Some((header, rest)) = value.strip_prefix('{').and_then(|v| v.split_once('}')) else {
        return parse_argon2(value);
    };
    match header.to_ascii_lowercase().as_str() {
        "clear" | "cleartext" => parse_clear_password(rest),
        "nt" | "nthash" | "x-nthash" | "md4" => nt_hash(rest),
        "crypt" | "argon2" => parse_argon2(rest),
        _ => Err("only {clear}, {nt} and Argon2 hashes are served".into()),
    }
}

/// A request's attribute that is compared.
fn parse_check(row: &AttributeRow, dictionary: &RadiusDictionary) -> Result<RequestCheck, String> {
    let ResolvedAttribute { definition, number: place, tag } = resolve_attribute(&row.attribute, dictionary)?;
    let op = match row.op {
        // As FreeRADIUS does with an operator that compares nothing.
        RowOperator::Set => RowOperator::Equal,
        RowOperator::Replace | RowOperator::Add => {
            return Err("a request's attribute is compared (==), not set; what the answer says is in the \
                        reply table"
                .into());
        }
        RowOperator::Matches | RowOperator::MatchesNot => {
            return Err("expressions are not served; write a comparison for each value".into());
        }
        op => op,
    };
    if definition.encryption != AttributeEncryption::None {
        return Err("a hidden attribute cannot be compared".into());
    }
    check_comparable(&definition, op)?;
    let mut bytes = Vec::new();
    if !matches!(op, RowOperator::Present | RowOperator::Absent) {
        encode_value(&definition, &row.value, dictionary, &mut bytes)?;
    }
    let tag = definition.tagged.then_some(tag);
    let data_type = definition.data_type;
    Ok(RequestCheck { attribute: place, op, value: bytes, data_type, tag, row: display_row(row, dictionary) })
}

/// Whether an operator compares the values of an attribute as FreeRADIUS does.
///
/// # Errors
/// It means something else there, or something that depends on how the value was sent.
fn check_comparable(definition: &AttributeDefinition, op: RowOperator) -> Result<(), String> {
    if matches!(op, RowOperator::Present | RowOperator::Absent | RowOperator::Equal) {
        return Ok(());
    }
    match definition.data_type {
        DataType::Ipv4Prefix | DataType::Ipv6Prefix | DataType::Ether => {
            Err("a prefix or a MAC address is compared by == alone; write a comparison for each".into())
        }
        _ if op == RowOperator::NotEqual => Ok(()),
        DataType::Signed => Err("a number that may be negative is compared by == and != alone".into()),
        data_type if data_type.is_number() || data_type == DataType::Text => Ok(()),
        _ => Err("octets and addresses are compared by == and != alone".into()),
    }
}

/// What a row's attribute is.
struct ResolvedAttribute<'d> {
    definition: Cow<'d, AttributeDefinition>,
    number: AttributeNumber,
    /// The tag after its name (`Tunnel-Type:1`); 0 where there is none.
    tag: u8,
}

/// An attribute by name, or by number as FreeRADIUS writes one that it does not know (`Attr-26.9.1`).
fn resolve_attribute<'d>(
    name: &str,
    dictionary: &'d RadiusDictionary,
) -> Result<ResolvedAttribute<'d>, String> {
    let (bare, tag) = match name.rsplit_once(':') {
        Some((bare, tag)) => {
            (bare, tag_number(tag).ok_or("a tag is a number up to 31, without zeros in front")?)
        }
        None => (name, 0),
    };
    let definition = match (dictionary.by_name(bare), RadiusDictionary::number_in_name(bare)) {
        (Some(definition), _) => Cow::Borrowed(definition),
        (None, Some(oid)) => Cow::Owned(by_number(oid, dictionary)),
        (None, None) => {
            return Err(
                "no such attribute in the dictionaries; mend the name, add the vendor's dictionary by \
                        dictionary = [\"FILE\"], or write it by number: Attr-26.VENDOR.TYPE = 0x..."
                    .into(),
            );
        }
    };
    if definition.data_type.contains_attributes() {
        return Err("this attribute holds others; name one of those".into());
    }
    let place =
        dictionary.attribute_number(definition.oid).ok_or("no packet has an attribute of this number")?;
    Ok(ResolvedAttribute { definition, number: place, tag })
}

/// A tag (RFC 2868 §3.1) in decimal. One with a zero in front is octal to FreeRADIUS, and decimal to its reader.
#[must_use]
pub fn tag_number(text: &str) -> Option<u8> {
    let is_plain = text == "0" || text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|tag| is_plain && *tag <= 0x1f)
}

/// An attribute that is written by its number, its value as octets: what goes hidden goes so by whatever name.
fn by_number(oid: AttributeOid, dictionary: &RadiusDictionary) -> AttributeDefinition {
    let mut definition = AttributeDefinition::for_unknown(oid);
    if let Some(known) = dictionary.by_oid(oid).filter(|known| known.encryption != AttributeEncryption::None)
    {
        (definition.encryption, definition.tagged) = (known.encryption, known.tagged);
    }
    definition
}

/// The rows of a reply table, and what they say of Fall-Through. With `left_out` those that cannot be understood go there.
fn parse_replies(
    rows: &[AttributeRow],
    table: &str,
    dictionary: &RadiusDictionary,
    mut left_out: Option<&mut Vec<RowError>>,
) -> Result<(Vec<ReplyAttribute>, Option<bool>), RowError> {
    let (mut replies, mut fall_through) = (Vec::new(), None);
    for row in rows {
        let done = if let Err(what) = check_operator(row) {
            Err(what)
        } else if row.attribute.eq_ignore_ascii_case("fall-through") {
            let said = match row.value.to_ascii_lowercase().as_str() {
                "yes" | "1" => Some(true),
                "no" | "0" => Some(false),
                _ => None,
            };
            // FreeRADIUS gives such a row the value 0, or none.
            match row.op {
                RowOperator::Present
                | RowOperator::Absent
                | RowOperator::Matches
                | RowOperator::MatchesNot => Err("Fall-Through is set by =, := or +=".to_string()),
                _ => {
                    fall_through = fall_through.or(said);
                    said.map(drop).ok_or_else(|| "write Yes or No".to_string())
                }
            }
        } else {
            parse_reply(row, dictionary).map(|reply| replies.push(reply))
        };
        match (done.map_err(|what| row_error(table, row, dictionary, what)), &mut left_out) {
            (Err(complaint), Some(left_out)) => left_out.push(complaint),
            (done, _) => done?,
        }
    }
    Ok((replies, fall_through))
}

/// Attributes that no Access-Accept of a server may have (RFC 2865 §5.44, RFC 2869 §5.19), or that the server itself puts
/// in: State, Proxy-State, EAP-Message, Message-Authenticator.
const NOT_OF_A_REPLY: [u8; 18] = [2, 3, 4, 5, 24, 30, 31, 32, 33, 60, 61, 70, 75, 76, 77, 79, 80, 87];

/// The shortest Acct-Interim-Interval, seconds (RFC 2869 §5.16).
const SHORTEST_INTERVAL: u32 = 60;

fn parse_reply(row: &AttributeRow, dictionary: &RadiusDictionary) -> Result<ReplyAttribute, String> {
    let ResolvedAttribute { definition, number: place, tag } = resolve_attribute(&row.attribute, dictionary)?;
    if matches!(definition.oid.parts(), &[n] if NOT_OF_A_REPLY.iter().any(|&kind| u32::from(kind) == n)) {
        return Err("no Access-Accept has this attribute; remove the row".into());
    }
    if !matches!(row.op, RowOperator::Set | RowOperator::Replace | RowOperator::Add) {
        return Err("a reply's operators are =, := and +=".into());
    }
    let mut bytes = Vec::new();
    encode_value(&definition, &row.value, dictionary, &mut bytes)?;
    let mut value = AttributeList::new();
    if bytes.is_empty() {
        // RFC 2865 §5: what has no value is left out. It takes the place of others all the same.
        return Ok(ReplyAttribute { attribute: place, op: row.op, value });
    }
    if let (&[n], Some(seconds)) = (definition.oid.parts(), bytes.first_chunk::<4>())
        && n == u32::from(kind::ACCT_INTERIM_INTERVAL)
    {
        bytes = u32::from_be_bytes(*seconds).max(SHORTEST_INTERVAL).to_be_bytes().to_vec();
    }
    if let (true, &[number]) = (definition.concat, definition.oid.parts()) {
        value.push_concat(number as u8, &bytes);
        return Ok(ReplyAttribute { attribute: place, op: row.op, value });
    }
    let (tag, bytes) = encode_tag(&definition, tag, &bytes)?;
    let pushed = value.push_at(&place, tag, definition.encryption, bytes);
    if let Err(long) = pushed {
        return Err(format!(
            "the value is too long for its attribute: {} octets, at most {}",
            long.length, long.max
        ));
    }
    Ok(ReplyAttribute { attribute: place, op: row.op, value })
}

/// The octet of the tag in front of a value, and what of the value comes behind it (RFC 2868 §3).
fn encode_tag<'b>(
    definition: &AttributeDefinition,
    tag: u8,
    bytes: &'b [u8],
) -> Result<(Option<u8>, &'b [u8]), String> {
    if !definition.tagged {
        return match tag {
            0 => Ok((None, bytes)),
            _ => Err("this attribute has no tag; take it from the name".into()),
        };
    }
    match (definition.data_type, definition.encryption, bytes) {
        (DataType::Integer, AttributeEncryption::None, [0, number @ ..]) => Ok((Some(tag), number)),
        (DataType::Integer, AttributeEncryption::None, _) => {
            Err("the number of an attribute with a tag is at most 16,777,215".into())
        }
        // What begins like a tag would be taken for one.
        (_, AttributeEncryption::None, [first, ..]) if tag == 0 && *first > 0x1f => Ok((None, bytes)),
        _ => Ok((Some(tag), bytes)),
    }
}

#[cfg(test)]
mod tests;
