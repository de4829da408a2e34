//! One `Attribute operator value` of a users file: its meaning in FreeRADIUS and its import.

use super::super::words::ImportValue;
use super::is_one_of;
use usher_aaa::User;
use usher_aaa::store::{AttributeRow, RowOperator, UserRows};
use usher_radius::attribute::AttributeDataType;
use usher_radius::dictionary::{AttributeDefinition, RadiusDictionary};

/// The import of a condition, or of a setting beside it.
#[derive(Debug)]
pub(super) enum CheckItem {
    /// Imported. The note needs to be reported with the user's name.
    Import { row: AttributeRow, note: Option<&'static str> },
    /// It has no effect in FreeRADIUS, and is left out.
    Pass(String),
    /// It never matches in FreeRADIUS.
    Never(String),
    /// It cannot be imported.
    Lose(String),
}

/// The import of a reply row.
#[derive(Debug)]
pub(super) enum ReplyRowImport {
    /// Imported. The note needs to be reported.
    Import {
        row: AttributeRow,
        note: Option<&'static str>,
    },
    FallThrough(bool),
    /// It cannot be imported.
    Leave(String),
}

/// Settings of the server that no request contains: in FreeRADIUS a comparison with them never matches.
const NEVER_IN_A_REQUEST: [&str; 5] =
    ["Cleartext-Password", "NT-Password", "Password-With-Header", "Simultaneous-Use", "Pool-Name"];

const PASSWORDS: [&str; 4] = ["Cleartext-Password", "NT-Password", "Crypt-Password", "Password-With-Header"];

/// Returns the subject of a setting. Settings of one subject are alternatives. `None`: a condition.
pub(super) fn control_attribute_name(attribute: &str) -> Option<&'static str> {
    match () {
        () if is_one_of(attribute, &PASSWORDS) => Some("password"),
        () if is_one_of(attribute, &["Auth-Type", "EAP-Type"]) => Some("method"),
        () if is_one_of(attribute, &["Simultaneous-Use"]) => Some("Simultaneous-Use"),
        () if is_one_of(attribute, &["Expiration"]) => Some("Expiration"),
        () if is_one_of(attribute, &["Pool-Name"]) => Some("Pool-Name"),
        () => None,
    }
}

pub(super) fn is_control(attribute: &str) -> bool {
    control_attribute_name(attribute).is_some()
}

/// True if two settings of an entry have the same subject.
pub(super) fn has_same_control_subject(a: &str, b: &str) -> bool {
    let both_passwords = is_one_of(a, &PASSWORDS) && is_one_of(b, &PASSWORDS);
    both_passwords || is_control(a) && is_one_of(a, &[b])
}

/// True for `Hint == ...`: FreeRADIUS adds hints to requests whose user name has a suffix. Users here have none.
pub(super) fn is_hint_row(attribute: &str, op: RowOperator, value: &ImportValue) -> bool {
    is_one_of(attribute, &["Hint"])
        && op == RowOperator::Equal
        && is_one_of(&value.text, &["PPP", "SLIP", "CSLIP"])
}

/// Returns the key of a reply attribute, regardless of tag and spelling.
pub(super) fn reply_attribute_key(attribute: &str, dictionary: &RadiusDictionary) -> String {
    match find_definition(attribute, dictionary) {
        Some(definition) => definition.oid.to_string(),
        None => attribute.split(':').next().unwrap_or(attribute).to_ascii_lowercase(),
    }
}

fn find_definition<'d>(attribute: &str, dictionary: &'d RadiusDictionary) -> Option<&'d AttributeDefinition> {
    let bare = attribute.split(':').next().unwrap_or(attribute);
    dictionary.by_name(bare).or_else(|| {
        RadiusDictionary::parse_unknown_attribute_name(bare).and_then(|oid| dictionary.by_oid(oid))
    })
}

/// Checks that the server can read a row from the store.
///
/// # Errors
/// Why it cannot.
fn check_row_readable(
    row: &AttributeRow,
    of: fn(AttributeRow) -> UserRows,
    dictionary: &RadiusDictionary,
) -> Result<(), String> {
    User::compile(&of(row.clone()), dictionary).map(drop).map_err(|c| {
        let instead =
            suggested_replacement(&c.attribute).map(|instead| format!("; {instead}")).unwrap_or_default();
        format!("{} {} {}: {}{instead}", c.attribute, c.op.as_str(), c.value, c.what)
    })
}

/// Returns the form here that corresponds to a FreeRADIUS check.
fn suggested_replacement(attribute: &str) -> Option<&'static str> {
    match () {
        () if is_one_of(attribute, &["Huntgroup-Name"]) => {
            Some("for a huntgroup of one access server write NAS-IP-Address == ITS-ADDRESS")
        }
        () if is_one_of(attribute, &["Group", "Ldap-Group", "SQL-Group"]) => {
            Some("add members to a group here with: usher aaa user set NAME --group GROUP")
        }
        () => None,
    }
}

fn expansion_message(attribute: &str) -> String {
    format!(
        "{attribute}: FreeRADIUS expands its value for each request, but this server does not: write the value itself"
    )
}

/// Builds a row with the value as FreeRADIUS reads it. Octets have no escapes, and `:1:20` of a tunnel attribute is a
/// tag and a value.
///
/// # Errors
/// A tag that is not plain decimal: FreeRADIUS reads it in several ways, as octal, any tag or none.
fn build_attribute_row(
    attribute: &str,
    op: RowOperator,
    value: &ImportValue,
    dictionary: &RadiusDictionary,
) -> Result<AttributeRow, String> {
    let definition = find_definition(attribute, dictionary);
    let octets = definition.is_some_and(|d| d.data_type == AttributeDataType::String);
    let text = if octets { &value.raw } else { &value.text };
    let tagged = text.strip_prefix(':').filter(|_| definition.is_some_and(|d| d.tagged));
    let Some(tagged) = tagged else {
        return Ok(AttributeRow { attribute: attribute.to_owned(), op, value: text.clone() });
    };
    match tagged.split_once(':') {
        Some((tag, rest)) if !attribute.contains(':') && usher_aaa::parse_tunnel_tag(tag).is_some() => {
            Ok(AttributeRow { attribute: format!("{attribute}:{tag}"), op, value: rest.to_owned() })
        }
        _ => Err(format!(
            "{attribute} {} {text}: a tag is a number up to 31 between colons, without leading zeros",
            op.as_str()
        )),
    }
}

/// The note for a date.
const LOCAL_TIME: &str =
    "FreeRADIUS reads the date in local time, this server in UTC: check whether the difference matters";

/// The note for the order of dates, which has both problems.
const LOCAL_TIME_THAT_WRAPS: &str = "FreeRADIUS reads the date in local time, this server in UTC, and FreeRADIUS takes \
     a time 68 years later for an earlier one: check whether that matters";

/// The note for a comparison of 32-bit numbers.
const WRAPS: &str = "FreeRADIUS takes a number that is greater by 2,147,483,648 or more for a smaller one, and this \
     server does not: check whether requests have such numbers";

/// True if an attribute's value is a date that is not a number of seconds.
fn is_textual_date(attribute: &str, value: &str, dictionary: &RadiusDictionary) -> bool {
    let is_date = is_one_of(attribute, &["Expiration"])
        || find_definition(attribute, dictionary).is_some_and(|d| d.data_type == AttributeDataType::Time);
    is_date && !value.is_empty() && value.parse::<u64>().is_err()
}

/// Returns why FreeRADIUS 3.2 compares an attribute differently from this server, if so.
fn comparison_difference(
    attribute: &str,
    op: RowOperator,
    dictionary: &RadiusDictionary,
) -> Option<&'static str> {
    let bare = attribute.split(':').next().unwrap_or(attribute);
    if dictionary.by_name(bare).is_none() && RadiusDictionary::parse_unknown_attribute_name(bare).is_some() {
        return Some("FreeRADIUS does not compare an attribute that is named by number: write its name");
    }
    match find_definition(attribute, dictionary)?.data_type {
        _ if matches!(op, RowOperator::Present | RowOperator::Absent) => None,
        AttributeDataType::Ether | AttributeDataType::Filter => {
            Some("FreeRADIUS does not compare values of this type: any value matches there")
        }
        AttributeDataType::Ipv4Prefix | AttributeDataType::Ipv6Prefix if op == RowOperator::Set => {
            Some("any prefix matches in FreeRADIUS: write ==")
        }
        _ => None,
    }
}

/// Classifies a condition or a setting beside it.
pub(super) fn classify_check(
    attribute: &str,
    op: RowOperator,
    value: &ImportValue,
    dictionary: &RadiusDictionary,
) -> CheckItem {
    let sets = matches!(op, RowOperator::Replace | RowOperator::Add);
    let written = || format!("{attribute} {}", op.as_str());
    if is_one_of(attribute, &["Fall-Through"]) {
        return match sets {
            true => CheckItem::Pass(
                "Fall-Through has no effect on this line: write it on an indented line".to_owned(),
            ),
            false => CheckItem::Never(format!(
                "{} on this line is compared with the request, which never has it: write it on an indented line",
                written()
            )),
        };
    }
    if is_one_of(attribute, &NEVER_IN_A_REQUEST) && !sets && op != RowOperator::Absent {
        return CheckItem::Never(format!(
            "{} is compared with the request, which never has it: write := to set it",
            written()
        ));
    }
    if is_one_of(attribute, &["Auth-Type", "Crypt-Password"]) && !sets && op != RowOperator::Set {
        return match op {
            RowOperator::Matches | RowOperator::MatchesNot => {
                CheckItem::Lose(format!("{}: it is not a text", written()))
            }
            _ => CheckItem::Pass(format!("{} neither compares nor sets anything: write :=", written())),
        };
    }
    if value.is_expanded() {
        return CheckItem::Lose(expansion_message(attribute));
    }
    if is_one_of(attribute, &["User-Password", "Password"]) {
        // In FreeRADIUS 1 this attribute meant Cleartext-Password. Version 3 only compares it, and admits no user by
        // it.
        return CheckItem::Lose(format!(
            "{}: FreeRADIUS 3 accepts no user by it; write Cleartext-Password := instead",
            written()
        ));
    }
    if !sets && let Some(why) = comparison_difference(attribute, op, dictionary) {
        return CheckItem::Lose(format!("{}: {why}", written()));
    }
    let mut row = match build_attribute_row(attribute, op, value, dictionary) {
        Ok(row) => row,
        Err(why) => return CheckItem::Lose(why),
    };
    if row.attribute.contains(':') && !matches!(op, RowOperator::Equal | RowOperator::Set) {
        return CheckItem::Lose(format!(
            "{}: FreeRADIUS treats the tag differently; write == only",
            written()
        ));
    }
    let mut note = None;
    if is_one_of(attribute, &["Auth-Type"]) {
        // In FreeRADIUS the last value counts. The operator `:=` expresses this here.
        row.op = if op == RowOperator::Add { RowOperator::Replace } else { op };
        if is_one_of(&row.value, &["Accept", "254"]) {
            note = Some(
                "FreeRADIUS accepts every login with this name; this server accepts a device by its address alone \
                 (MAC authentication bypass)",
            );
        }
    }
    let is_order = matches!(
        op,
        RowOperator::Less | RowOperator::LessOrEqual | RowOperator::Greater | RowOperator::GreaterOrEqual
    );
    let wraps = [Some(AttributeDataType::Integer), Some(AttributeDataType::Time)];
    if is_order && wraps.contains(&find_definition(attribute, dictionary).map(|d| d.data_type)) {
        note = Some(WRAPS);
    }
    if !matches!(op, RowOperator::Present | RowOperator::Absent)
        && is_textual_date(attribute, &row.value, dictionary)
    {
        note = Some(if note.is_some() { LOCAL_TIME_THAT_WRAPS } else { LOCAL_TIME });
    }
    match check_row_readable(&row, |row| UserRows { check: vec![row], ..UserRows::default() }, dictionary) {
        Ok(()) => CheckItem::Import { row, note },
        Err(why) => CheckItem::Lose(why),
    }
}

/// Classifies a row of the reply.
pub(super) fn classify_reply(
    attribute: &str,
    op: RowOperator,
    value: &ImportValue,
    dictionary: &RadiusDictionary,
) -> ReplyRowImport {
    if is_one_of(attribute, &["Fall-Through"]) {
        return match () {
            // With such an operator, FreeRADIUS takes Fall-Through as 0 or absent, and the search ends.
            () if matches!(
                op,
                RowOperator::Present | RowOperator::Absent | RowOperator::Matches | RowOperator::MatchesNot
            ) =>
            {
                ReplyRowImport::Leave(format!(
                    "Fall-Through {}: write Fall-Through = Yes, or No",
                    op.as_str()
                ))
            }
            () if is_one_of(&value.text, &["Yes", "1"]) => ReplyRowImport::FallThrough(true),
            () if is_one_of(&value.text, &["No", "0"]) => ReplyRowImport::FallThrough(false),
            () => ReplyRowImport::Leave("Fall-Through: its value is neither Yes nor No".to_owned()),
        };
    }
    if value.is_expanded() {
        return ReplyRowImport::Leave(expansion_message(attribute));
    }
    let row = match build_attribute_row(attribute, op, value, dictionary) {
        Ok(row) => row,
        Err(why) => return ReplyRowImport::Leave(why),
    };
    let note = is_textual_date(attribute, &row.value, dictionary).then_some(LOCAL_TIME);
    match check_row_readable(&row, |row| UserRows { reply: vec![row], ..UserRows::default() }, dictionary) {
        Ok(()) => ReplyRowImport::Import { row, note },
        Err(why) => ReplyRowImport::Leave(why),
    }
}
