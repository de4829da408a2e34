//! Compiles a store's rows into a user.

mod value;

use super::{
    AuthMethod, ControlItemValue, GroupControlValues, PasswordAttribute, PasswordSetting, ReplyAttribute,
    RequestCheck, RowError, StoredPassword, User, UserGroup,
};
use crate::operator::RowOperator;
use crate::store::{AttributeRow, UserRows};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_crypto::password::check_argon2;
use usher_radius::attribute::{AttributeDataType, AttributeList, kind};
use usher_radius::dictionary::{
    AttributeDefinition, AttributeEncryption, AttributeNumber, AttributeOid, RadiusDictionary,
};
use value::{decode_hex, encode_value, parse_date};

impl User {
    /// Compiles rows with the syntax and meaning of FreeRADIUS.
    ///
    /// # Errors
    /// The first row that cannot be parsed, and how to fix it. Without this row the user could be accepted by
    /// mistake.
    pub fn compile(rows: &UserRows, dictionary: &RadiusDictionary) -> Result<Self, RowError> {
        Self::compile_rows(rows, dictionary, None)
    }

    /// Compiles rows like [`Self::compile`], but leaves reply rows that cannot be parsed out and lists them in
    /// [`Self::left_out`].
    ///
    /// # Errors
    /// The first check that cannot be parsed. Without this check the user could be accepted by mistake.
    pub fn compile_skipping_bad_replies(
        rows: &UserRows,
        dictionary: &RadiusDictionary,
    ) -> Result<Self, RowError> {
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
        let (checks, control) = parse_check_rows(&rows.check, "radcheck", dictionary)?;
        let (reply, fall_through) =
            parse_replies(&rows.reply, "radreply", dictionary, left_out.as_deref_mut())?;
        let mut user = Self { checks, ..Self::default() };
        user.apply_user_control(&control);
        for item in &reply {
            item.apply_to(&mut user.reply);
        }
        if fall_through == Some(false) {
            return Ok(user);
        }
        for group in &rows.groups {
            let table = format!("radgroupcheck of {}", group.name);
            let (checks, control) = parse_check_rows(&group.check, &table, dictionary)?;
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

/// Shown instead of a secret.
const HIDDEN: &str = "(hidden)";

/// Attributes for the server itself, besides passwords. They need not be in the dictionary.
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

/// Returns the attribute of a name, or of a number in text form.
fn find_definition<'d>(name: &str, dictionary: &'d RadiusDictionary) -> Option<&'d AttributeDefinition> {
    let by_number =
        || RadiusDictionary::parse_unknown_attribute_name(name).and_then(|oid| dictionary.by_oid(oid));
    dictionary.by_name(name).or_else(by_number)
}

/// True if the values of an attribute are never shown: secrets, and unknown names, which may be misspelt secrets.
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

/// Formats a row, without the value of a secret.
fn display_row(row: &AttributeRow, dictionary: &RadiusDictionary) -> Box<str> {
    let value = if is_secret(&row.attribute, dictionary) { HIDDEN } else { &row.value };
    let text = format!("{} {} {value}", row.attribute, row.op.as_str());
    text.trim_end().into()
}

fn parse_check_rows(
    rows: &[AttributeRow],
    table: &str,
    dictionary: &RadiusDictionary,
) -> Result<(Vec<RequestCheck>, GroupControlValues), RowError> {
    let (mut checks, mut control) = (Vec::new(), GroupControlValues::default());
    for row in rows {
        check_operator(row).map_err(|what| row_error(table, row, dictionary, what))?;
        let done = match apply_control_row(row, &mut control) {
            Err(NotControlAttribute) => parse_check(row, dictionary).map(|check| checks.push(check)),
            Ok(done) => done,
        };
        done.map_err(|what| row_error(table, row, dictionary, what))?;
    }
    Ok((checks, control))
}

/// Checks the password attributes of a user's groups. A group's password replaces its users' password of the same
/// attribute only. With two attributes it is undefined which applies.
fn check_password_attributes(
    rows: &[AttributeRow],
    table: &str,
    dictionary: &RadiusDictionary,
) -> Result<(), RowError> {
    let mut first = None;
    for row in rows {
        let Some(attribute) = password_attribute(&row.attribute) else { continue };
        if *first.get_or_insert(attribute) != attribute {
            let what = "the group already has a password in another attribute; remove one of them".into();
            return Err(row_error(table, row, dictionary, what));
        }
    }
    Ok(())
}

/// Returns the supported password attribute of a name.
fn password_attribute(name: &str) -> Option<PasswordAttribute> {
    let all = [
        ("Cleartext-Password", PasswordAttribute::Cleartext),
        ("NT-Password", PasswordAttribute::NtHash),
        ("Crypt-Password", PasswordAttribute::Crypt),
        ("Password-With-Header", PasswordAttribute::WithHeader),
    ];
    all.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, attribute)| attribute)
}

/// Error for a value in backquotes.
const EXPANDED: &str =
    "FreeRADIUS expands a value between backquotes for each request, but this server does not; write it out";

/// True if FreeRADIUS expands this value of its tables. A store reads such a row with [`RowOperator::Unknown`].
#[must_use]
pub fn is_expanded(value: &str) -> bool {
    value.len() > 1 && value.starts_with('`') && value.ends_with('`')
}

/// Checks that a row has a known operator and a literal value.
fn check_operator(row: &AttributeRow) -> Result<(), String> {
    match row.op {
        RowOperator::Unknown if is_expanded(&row.value) => Err(EXPANDED.into()),
        RowOperator::Unknown => Err("its operator (op) is unknown; write one such as :=, == or +=".into()),
        _ => Ok(()),
    }
}

/// The row sets no value of the server itself.
struct NotControlAttribute;

/// Applies a row that sets a value of the server itself.
fn apply_control_row(
    row: &AttributeRow,
    control: &mut GroupControlValues,
) -> Result<Result<(), String>, NotControlAttribute> {
    let name = row.attribute.to_ascii_lowercase();
    let value = row.value.as_str();
    let done = match name.as_str() {
        "cleartext-password" => set_control_password(control, row, parse_clear_password(value)),
        "nt-password" => set_control_password(control, row, nt_hash(value)),
        "password-with-header" => set_control_password(control, row, parse_password_with_header(value)),
        "crypt-password" => set_control_password(control, row, parse_argon2(value)),
        "user-password" => Err("write Cleartext-Password := instead".into()),
        "ssha-password" | "sha-password" | "sha1-password" | "sha2-password" | "smd5-password"
        | "md5-password" | "lm-password" | "pbkdf2-password" | "ssha2-password" => {
            Err("this hash is not supported; store Cleartext-Password, NT-Password or an Argon2 hash in Crypt-Password"
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
                _ => Err("this server has no such EAP method".to_string()),
            };
            method.and_then(|m| restrict_methods(control, row, &[m]))
        }
        "simultaneous-use" => {
            let number = value.parse().map_err(|_| "the value is not a number of sessions".to_string());
            set_control(&mut control.simultaneous, row, number)
        }
        "expiration" => {
            let time =
                parse_date(value).ok_or_else(|| "write a date as `31 Dec 2026 23:59:59` (UTC)".to_string());
            // FreeRADIUS stores this date in 32 bits, so a later date would wrap around to 1970.
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
        | "hint" => Err("this check is not supported; remove the row".into()),
        _ => return Err(NotControlAttribute),
    };
    Ok(done)
}

fn eap_methods() -> Vec<AuthMethod> {
    AuthMethod::ALL.into_iter().filter(|m| m.eap_type().is_some()).collect()
}

/// Error for an operator other than `:=` and `+=`.
const NOT_IN_A_REQUEST: &str = "write := to set it; no request has this attribute";

/// True if a row replaces an existing value.
///
/// # Errors
/// Its operator compares. FreeRADIUS looks for the attribute in the request, does not find it, and rejects
/// everybody.
fn row_replaces_value(row: &AttributeRow) -> Result<bool, String> {
    match row.op {
        RowOperator::Replace => Ok(true),
        RowOperator::Add => Ok(false),
        _ => Err(NOT_IN_A_REQUEST.into()),
    }
}

/// Sets a value according to the operator.
fn set_control<T: Clone>(
    place: &mut Option<ControlItemValue<T>>,
    row: &AttributeRow,
    value: Result<T, String>,
) -> Result<(), String> {
    add_setting(place, value?, row_replaces_value(row)?);
    Ok(())
}

/// Merges a row with earlier ones: the first counts, and the first with `:=`.
fn add_setting<T: Clone>(place: &mut Option<ControlItemValue<T>>, value: T, replaces: bool) {
    match place {
        None => *place = Some(ControlItemValue::new(value, replaces)),
        Some(setting) if replaces => drop(setting.replacement.get_or_insert(value)),
        Some(_) => {}
    }
}

fn set_control_password(
    control: &mut GroupControlValues,
    row: &AttributeRow,
    password: Result<StoredPassword, String>,
) -> Result<(), String> {
    let attribute = password_attribute(&row.attribute).unwrap_or_default();
    let replaces = match row.op {
        // FreeRADIUS looks for every password attribute in the request, except Crypt-Password.
        RowOperator::Set if attribute == PasswordAttribute::Crypt => false,
        _ => row_replaces_value(row)?,
    };
    let value = PasswordSetting { attribute, password: password? };
    let yields =
        |set: &ControlItemValue<PasswordSetting>| set.value.attribute == PasswordAttribute::WithHeader;
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

fn auth_type(control: &mut GroupControlValues, row: &AttributeRow) -> Result<(), String> {
    if !matches!(row.op, RowOperator::Set | RowOperator::Replace | RowOperator::Add) {
        return Err(
            "write := to set it; a request has no method to compare, and FreeRADIUS ignores this row".into(),
        );
    }
    let methods: &[AuthMethod] = match row.value.to_ascii_lowercase().as_str() {
        "reject" | "4" => {
            control.rejected = true;
            return Ok(());
        }
        "accept" | "254" => {
            control.methods =
                Some(ControlItemValue::new([AuthMethod::Mab].into(), row.op != RowOperator::Set));
            return Ok(());
        }
        "local" | "pap" => &[AuthMethod::Pap],
        "chap" => &[AuthMethod::Chap],
        "ms-chap" | "mschap" => &[AuthMethod::MsChap, AuthMethod::MsChapV2],
        "eap" => {
            // If an EAP-Type row has limited the methods already, they are all EAP methods, and this row limits them no
            // further.
            let narrower =
                |set: &ControlItemValue<Vec<AuthMethod>>| set.value.iter().all(|m| m.eap_type().is_some());
            if row.op != RowOperator::Add && control.methods.as_ref().is_some_and(narrower) {
                return Ok(());
            }
            return restrict_methods(control, row, &eap_methods());
        }
        _ => {
            return Err(
                "unknown method; Reject, Accept (MAC authentication bypass), PAP, CHAP, MS-CHAP and EAP are supported"
                    .into(),
            );
        }
    };
    restrict_methods(control, row, methods)
}

fn restrict_methods(
    control: &mut GroupControlValues,
    row: &AttributeRow,
    methods: &[AuthMethod],
) -> Result<(), String> {
    let before = control.methods.take();
    let mut all: Vec<AuthMethod> = match row.op {
        RowOperator::Replace | RowOperator::Set => Vec::new(),
        RowOperator::Add => before.map(|set| set.value).unwrap_or_default(),
        _ => return Err("write := to set it, += to add to it; a request has no method to compare".into()),
    };
    all.extend_from_slice(methods);
    control.methods = Some(ControlItemValue::new(all, row.op != RowOperator::Set));
    Ok(())
}

/// Error for the empty password.
const EMPTY: &str =
    "the password is empty, so everybody knows it; set another, or remove the row if the user needs none";

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

fn parse_password_with_header(value: &str) -> Result<StoredPassword, String> {
    let Some((header, rest)) = value.strip_prefix('{').and_then(|v| v.split_once('}')) else {
        return parse_argon2(value);
    };
    match header.to_ascii_lowercase().as_str() {
        "clear" | "cleartext" => parse_clear_password(rest),
        "nt" | "nthash" | "x-nthash" | "md4" => nt_hash(rest),
        "crypt" | "argon2" => parse_argon2(rest),
        _ => Err("only {clear}, {nt} and Argon2 hashes are supported".into()),
    }
}

/// Parses a condition on the request.
fn parse_check(row: &AttributeRow, dictionary: &RadiusDictionary) -> Result<RequestCheck, String> {
    let ResolvedAttribute { definition, number: place, tag } = resolve_attribute(&row.attribute, dictionary)?;
    let op = match row.op {
        // FreeRADIUS compares for equality if the operator is no comparison.
        RowOperator::Set => RowOperator::Equal,
        RowOperator::Replace | RowOperator::Add => {
            return Err("a check compares an attribute of the request (==) and cannot set it; write attributes of the \
                        reply into the reply table"
                .into());
        }
        RowOperator::Matches | RowOperator::MatchesNot => {
            return Err("regular expressions are not supported; write a comparison for each value".into());
        }
        op => op,
    };
    if definition.encryption != AttributeEncryption::None {
        return Err("an encrypted attribute cannot be compared".into());
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

/// Checks that an operator compares values of the attribute as FreeRADIUS does.
///
/// # Errors
/// FreeRADIUS compares differently, or depending on the encoding of the value.
fn check_comparable(definition: &AttributeDefinition, op: RowOperator) -> Result<(), String> {
    if matches!(op, RowOperator::Present | RowOperator::Absent | RowOperator::Equal) {
        return Ok(());
    }
    match definition.data_type {
        AttributeDataType::Ipv4Prefix | AttributeDataType::Ipv6Prefix | AttributeDataType::Ether => {
            Err("a prefix or a MAC address can be compared by == only; write a comparison for each".into())
        }
        _ if op == RowOperator::NotEqual => Ok(()),
        AttributeDataType::Signed => {
            Err("a number that may be negative can be compared by == and != only".into())
        }
        data_type if data_type.is_number() || data_type == AttributeDataType::Text => Ok(()),
        _ => Err("octets and addresses can be compared by == and != only".into()),
    }
}

/// The attribute of a row.
struct ResolvedAttribute<'d> {
    definition: Cow<'d, AttributeDefinition>,
    number: AttributeNumber,
    /// Tag after its name (`Tunnel-Type:1`). 0: none.
    tag: u8,
}

/// Returns an attribute by name, or by number as FreeRADIUS writes an unknown one (`Attr-26.9.1`).
fn resolve_attribute<'d>(
    name: &str,
    dictionary: &'d RadiusDictionary,
) -> Result<ResolvedAttribute<'d>, String> {
    let (bare, tag) = match name.rsplit_once(':') {
        Some((bare, tag)) => {
            (bare, parse_tunnel_tag(tag).ok_or("a tag is a number up to 31, without leading zeros")?)
        }
        None => (name, 0),
    };
    let definition = match (dictionary.by_name(bare), RadiusDictionary::parse_unknown_attribute_name(bare)) {
        (Some(definition), _) => Cow::Borrowed(definition),
        (None, Some(oid)) => Cow::Owned(by_number(oid, dictionary)),
        (None, None) => {
            return Err(
                "no such attribute in the dictionaries; correct the name, add the vendor's dictionary with dictionary \
                 = [\"FILE\"], or write it by number: Attr-26.VENDOR.TYPE = 0x..."
                    .into(),
            );
        }
    };
    if definition.data_type.contains_attributes() {
        return Err("this attribute contains others; name one of them".into());
    }
    let place = dictionary
        .attribute_number(definition.oid)
        .ok_or("no packet can have an attribute of this number")?;
    Ok(ResolvedAttribute { definition, number: place, tag })
}

/// Parses a tag (RFC 2868 §3.1) in decimal. Leading zeros are an error: FreeRADIUS would read octal.
#[must_use]
pub fn parse_tunnel_tag(text: &str) -> Option<u8> {
    let is_plain = text == "0" || text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|tag| is_plain && *tag <= 0x1f)
}

/// Returns an attribute by number, with its value as octets. An encrypted attribute stays encrypted.
fn by_number(oid: AttributeOid, dictionary: &RadiusDictionary) -> AttributeDefinition {
    let mut definition = AttributeDefinition::unknown_attribute_definition(oid);
    if let Some(known) = dictionary.by_oid(oid).filter(|known| known.encryption != AttributeEncryption::None)
    {
        (definition.encryption, definition.tagged) = (known.encryption, known.tagged);
    }
    definition
}

/// Parses the rows of a reply table and its Fall-Through. With `left_out`, rows that cannot be parsed go there.
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
            // With any of these operators, FreeRADIUS sends Fall-Through with the value 0, or does not send it.
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

/// Attributes that an Access-Accept must not have (RFC 2865 §5.44, RFC 2869 §5.19), or that the server itself adds:
/// State, Proxy-State, EAP-Message, Message-Authenticator.
const NOT_OF_A_REPLY: [u8; 18] = [2, 3, 4, 5, 24, 30, 31, 32, 33, 60, 61, 70, 75, 76, 77, 79, 80, 87];

/// Minimum of Acct-Interim-Interval in seconds (RFC 2869 §5.16).
const SHORTEST_INTERVAL: u32 = 60;

fn parse_reply(row: &AttributeRow, dictionary: &RadiusDictionary) -> Result<ReplyAttribute, String> {
    let ResolvedAttribute { definition, number: place, tag } = resolve_attribute(&row.attribute, dictionary)?;
    if matches!(definition.oid.parts(), &[n] if NOT_OF_A_REPLY.iter().any(|&kind| u32::from(kind) == n)) {
        return Err("an Access-Accept cannot have this attribute; remove the row".into());
    }
    if !matches!(row.op, RowOperator::Set | RowOperator::Replace | RowOperator::Add) {
        return Err("a reply row has one of the operators =, := and +=".into());
    }
    let mut bytes = Vec::new();
    encode_value(&definition, &row.value, dictionary, &mut bytes)?;
    let mut value = AttributeList::new();
    if bytes.is_empty() {
        // RFC 2865, 5; RFC 2869, 5: an attribute without a value is not sent. It still replaces others.
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
    let (tag, bytes) = split_tag_octet(&definition, tag, &bytes)?;
    let pushed = value.push_by_number(&place, tag, definition.encryption, bytes);
    if let Err(long) = pushed {
        return Err(format!(
            "the value is too long for its attribute: {} octets, at most {}",
            long.length, long.max
        ));
    }
    Ok(ReplyAttribute { attribute: place, op: row.op, value })
}

/// Returns the tag octet of a value, and the rest of the value (RFC 2868 §3).
fn split_tag_octet<'b>(
    definition: &AttributeDefinition,
    tag: u8,
    bytes: &'b [u8],
) -> Result<(Option<u8>, &'b [u8]), String> {
    if !definition.tagged {
        return match tag {
            0 => Ok((None, bytes)),
            _ => Err("this attribute has no tag; remove it from the name".into()),
        };
    }
    match (definition.data_type, definition.encryption, bytes) {
        (AttributeDataType::Integer, AttributeEncryption::None, [0, number @ ..]) => Ok((Some(tag), number)),
        (AttributeDataType::Integer, AttributeEncryption::None, _) => {
            Err("the number of an attribute with a tag is at most 16,777,215".into())
        }
        // A first octet of at most 0x1f would be taken for a tag, so only such a text needs a tag of zero.
        (_, AttributeEncryption::None, [first, ..]) if tag == 0 && *first > 0x1f => Ok((None, bytes)),
        _ => Ok((Some(tag), bytes)),
    }
}

#[cfg(test)]
mod tests;
