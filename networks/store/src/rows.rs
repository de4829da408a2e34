//! Conversion between rows and values of both databases.

use crate::import::resolve_escapes;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;
use usher_aaa::store::{AttributeRow, RowOperator, SessionRow, StoreError};
use usher_core::WallTime;
use usher_radius::attribute::AttributeDataType;
use usher_radius::dictionary::RadiusDictionary;

/// The type of a radacct column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ColumnKind {
    /// Text. Empty text stands for NULL.
    Text,
    /// An integer.
    Number,
    /// Unix seconds. Each database has its own form.
    Time,
    /// An address.
    Address,
    /// An address with a prefix length.
    Prefix,
}

/// The columns of radacct that are read and written, in the order of [`session_cells`].
pub(crate) const SESSION: [(&str, ColumnKind); 25] = [
    ("acctsessionid", ColumnKind::Text),
    ("acctuniqueid", ColumnKind::Text),
    ("username", ColumnKind::Text),
    ("realm", ColumnKind::Text),
    ("nasipaddress", ColumnKind::Address),
    ("nasportid", ColumnKind::Text),
    ("nasporttype", ColumnKind::Text),
    ("acctstarttime", ColumnKind::Time),
    ("acctupdatetime", ColumnKind::Time),
    ("acctstoptime", ColumnKind::Time),
    ("acctsessiontime", ColumnKind::Number),
    ("acctauthentic", ColumnKind::Text),
    ("acctinputoctets", ColumnKind::Number),
    ("acctoutputoctets", ColumnKind::Number),
    ("calledstationid", ColumnKind::Text),
    ("callingstationid", ColumnKind::Text),
    ("acctterminatecause", ColumnKind::Text),
    ("servicetype", ColumnKind::Text),
    ("framedprotocol", ColumnKind::Text),
    ("framedipaddress", ColumnKind::Address),
    ("framedipv6address", ColumnKind::Address),
    ("framedipv6prefix", ColumnKind::Prefix),
    ("class", ColumnKind::Text),
    ("usher_interims", ColumnKind::Number),
    ("usher_diameter_origin", ColumnKind::Text),
];

/// Joins the column names with `between`.
pub(crate) fn column_names(between: &str) -> String {
    SESSION.map(|(name, _)| name).join(between)
}

/// `a = excluded.a, …`: the update clause for an existing session.
pub(crate) fn session_update_clause() -> String {
    let set = |(name, _): (&str, ColumnKind)| format!("{name} = excluded.{name}");
    SESSION.into_iter().filter(|(name, _)| *name != "acctuniqueid").map(set).collect::<Vec<_>>().join(", ")
}

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CellValue<'a> {
    /// NULL.
    Null,
    /// Text without NUL.
    Text(Cow<'a, str>),
    /// An integer.
    Number(i64),
}

/// Removes NUL from a text: a NAS can send it, and PostgreSQL rejects it.
pub(crate) fn storable_text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Checks that a user name can be looked up unchanged: a replaced character could match another user.
pub(crate) fn check_name(name: &str) -> Result<&str, StoreError> {
    if name.contains('\0') {
        return Err(StoreError::Unstorable("a name cannot contain the character NUL".to_owned()));
    }
    Ok(name)
}

fn number_cell(n: u64) -> CellValue<'static> {
    CellValue::Number(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Returns Unix seconds.
pub(crate) fn unix_seconds(time: WallTime) -> i64 {
    i64::try_from(time.unix_secs()).unwrap_or(i64::MAX)
}

fn time_cell(time: Option<WallTime>) -> CellValue<'static> {
    time.map_or(CellValue::Null, |t| CellValue::Number(unix_seconds(t)))
}

fn address_cell(address: IpAddr) -> CellValue<'static> {
    CellValue::Text(Cow::Owned(address.to_string()))
}

/// Returns a prefix in canonical form. NULL if the text is not a prefix, so that one bad value does not fail a whole
/// batch.
fn prefix_cell(text: &str) -> CellValue<'static> {
    let parts = text.split_once('/').unwrap_or((text, "128"));
    match (parts.0.parse::<Ipv6Addr>(), parts.1.parse::<u8>()) {
        (Ok(address), Ok(length @ 0..=128)) => CellValue::Text(Cow::Owned(format!("{address}/{length}"))),
        _ => CellValue::Null,
    }
}

/// Converts a session to values in the order of [`SESSION`].
pub(crate) fn session_cells(row: &SessionRow) -> [CellValue<'_>; 25] {
    let said = |s| CellValue::Text(storable_text(s));
    let (v4, v6) = match row.framedipaddress {
        Some(ip @ IpAddr::V4(_)) => (address_cell(ip), CellValue::Null),
        Some(ip @ IpAddr::V6(_)) => (CellValue::Null, address_cell(ip)),
        None => (CellValue::Null, CellValue::Null),
    };
    [
        said(&row.acctsessionid),
        said(&row.acctuniqueid),
        said(&row.username),
        said(&row.realm),
        address_cell(row.nasipaddress),
        said(&row.nasportid),
        said(&row.nasporttype),
        time_cell(row.acctstarttime),
        time_cell(row.acctupdatetime),
        time_cell(row.acctstoptime),
        number_cell(row.acctsessiontime),
        said(&row.acctauthentic),
        number_cell(row.acctinputoctets),
        number_cell(row.acctoutputoctets),
        said(&row.calledstationid),
        said(&row.callingstationid),
        said(&row.acctterminatecause),
        said(&row.servicetype),
        said(&row.framedprotocol),
        v4,
        v6,
        prefix_cell(&row.framedipv6prefix),
        said(&row.class),
        CellValue::Number(i64::from(row.interims)),
        said(&row.diameter_origin),
    ]
}

/// Converts values to a session. Other programs may have written them. Missing values become empty, and a NAS without
/// a valid address gets `0.0.0.0`.
pub(crate) fn session_from_cells(cells: [CellValue<'_>; 25]) -> SessionRow {
    fn cell_text(cell: CellValue<'_>) -> String {
        match cell {
            CellValue::Null => String::new(),
            CellValue::Text(text) => text.into_owned(),
            CellValue::Number(n) => n.to_string(),
        }
    }
    fn cell_number(cell: CellValue<'_>) -> Option<i64> {
        match cell {
            CellValue::Null => None,
            CellValue::Text(text) => text.trim().parse().ok(),
            CellValue::Number(n) => Some(n),
        }
    }
    let number = |cell| cell_number(cell).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let time = |cell| cell_number(cell).and_then(|n| u64::try_from(n).ok()).map(WallTime::from_unix_secs);
    let ip = |cell| cell_text(cell).trim().parse::<IpAddr>().ok();
    let [
        acctsessionid,
        acctuniqueid,
        username,
        realm,
        nas,
        nasportid,
        nasporttype,
        start,
        update,
        stop,
        length,
        acctauthentic,
        input,
        output,
        calledstationid,
        callingstationid,
        cause,
        servicetype,
        framedprotocol,
        v4,
        v6,
        v6prefix,
        class,
        interims,
        diameter_origin,
    ] = cells;
    SessionRow {
        acctsessionid: cell_text(acctsessionid),
        acctuniqueid: cell_text(acctuniqueid),
        username: cell_text(username),
        realm: cell_text(realm),
        nasipaddress: ip(nas).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        nasportid: cell_text(nasportid),
        nasporttype: cell_text(nasporttype),
        acctstarttime: time(start),
        acctupdatetime: time(update),
        acctstoptime: time(stop),
        acctsessiontime: number(length),
        acctauthentic: cell_text(acctauthentic),
        acctinputoctets: number(input),
        acctoutputoctets: number(output),
        calledstationid: cell_text(calledstationid),
        callingstationid: cell_text(callingstationid),
        acctterminatecause: cell_text(cause),
        servicetype: cell_text(servicetype),
        framedprotocol: cell_text(framedprotocol),
        framedipaddress: ip(v4).or_else(|| ip(v6)),
        framedipv6prefix: cell_text(v6prefix),
        class: cell_text(class),
        interims: u32::try_from(number(interims)).unwrap_or(u32::MAX),
        diameter_origin: cell_text(diameter_origin),
    }
}

/// Parses a row of one of the four attribute tables. An invalid operator is reported when the row is read.
///
/// The value is read as FreeRADIUS reads it: without enclosing quotation marks, and in text with escapes resolved.
/// FreeRADIUS executes a value in backquotes for each request, so such a row is not understood here.
pub(crate) fn parse_row(attribute: String, op: &str, value: String) -> AttributeRow {
    if usher_aaa::is_expanded(&value) {
        return AttributeRow { attribute, op: RowOperator::Unknown, value };
    }
    let value = strip_quotation_marks(value);
    let resolved = match value.contains('\\') && !is_octets(&attribute) {
        true => String::from_utf8(resolve_escapes(&value)).ok().filter(|text| !text.contains('\0')),
        false => None,
    };
    AttributeRow {
        attribute,
        op: RowOperator::parse(op.trim()).unwrap_or(RowOperator::Unknown),
        value: resolved.unwrap_or(value),
    }
}

/// Escapes a value for the tables, so that it reads back unchanged. Quoted values get another pair of quotes, and
/// backslashes that would begin an escape are doubled.
pub(crate) fn escape_value<'v>(attribute: &str, value: &'v str) -> Cow<'v, str> {
    let marked = text_within_quotes(value).is_some() || usher_aaa::is_expanded(value);
    let octets = value.contains('\\') && is_octets(attribute);
    if !marked && (octets || resolve_escapes(value) == value.as_bytes()) {
        return storable_text(value);
    }
    let escaped = if octets { value.to_owned() } else { value.replace('\\', "\\\\") };
    let written = match marked {
        true => format!("\"{}\"", escaped.replace('"', "\\\"")),
        false => escaped,
    };
    Cow::Owned(storable_text(&written).into_owned())
}

/// True if an attribute has octets, in which FreeRADIUS resolves no escapes.
fn is_octets(attribute: &str) -> bool {
    static DICTIONARY: LazyLock<RadiusDictionary> = LazyLock::new(RadiusDictionary::builtin);
    let bare = attribute.split(':').next().unwrap_or(attribute);
    match DICTIONARY.by_name(bare) {
        Some(definition) => definition.data_type == AttributeDataType::String,
        None => RadiusDictionary::parse_unknown_attribute_name(bare).is_some(),
    }
}

/// Returns the text between two equal marks.
fn text_within_quotes(value: &str) -> Option<(char, &str)> {
    let mark = value.chars().next().filter(|mark| matches!(mark, '"' | '\''))?;
    Some((mark, value.strip_prefix(mark)?.strip_suffix(mark)?))
}

/// Removes enclosing quotation marks, as FreeRADIUS does. Resolves only the escape of the mark.
fn strip_quotation_marks(value: String) -> String {
    let Some((mark, inside)) = text_within_quotes(&value) else { return value };
    let mut text = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped) if escaped == mark => text.push(escaped),
                Some(other) => text.extend(['\\', other]),
                // The text's last character is a backslash, so it escapes the closing mark and the value stays
                // unchanged.
                None => return value,
            },
            // A quotation mark within the value ends a first text, so there are several. The value stays unchanged.
            c if c == mark => return value,
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The cases before the comment are results of FreeRADIUS 3.2.1 with SQLite.
    #[test]
    fn marks_around_a_whole_value_are_no_part_of_it() {
        for (read, as_is) in [
            ("\"10M/10M\"", "10M/10M"),
            ("'guest'", "guest"),
            ("\"\"", ""),
            (r#""a \"b\" \\ \n""#, "a \"b\" \\ \n"),
            (r"'a\b'", r"a\b"),
            ("10M/10M", "10M/10M"),
            ("\"", "\""),
            ("\"a", "\"a"),
            ("\"a'", "\"a'"),
            // FreeRADIUS pairs the first mark with the last. Such a value is a mistake in any case.
            ("\"a\" or \"b\"", "\"a\" or \"b\""),
            (r#""a\""#, "\"a\""),
            ("`", "`"),
            ("\"`date`\"", "`date`"),
        ] {
            assert_eq!(parse_row("Filter-Id".to_owned(), "=", read.to_owned()).value, as_is, "{read}");
        }
    }

    /// Another test compares this with FreeRADIUS itself.
    #[test]
    fn escapes_are_those_of_text_whatever_the_marks() {
        for (read, text, octets) in [
            (r"a\101b", "aAb", r"a\101b"),
            (r"'a\101b'", "aAb", r"a\101b"),
            (r#""a\101b""#, "aAb", r"a\101b"),
            (r"a\\b", r"a\b", r"a\\b"),
            (r"'a\tb'", "a\tb", r"a\tb"),
            (r"DOMAIN\user", r"DOMAIN\user", r"DOMAIN\user"),
            (r"'it\'s'", "it's", "it's"),
        ] {
            let value = |attribute: &str| parse_row(attribute.to_owned(), "=", read.to_owned()).value;
            assert_eq!((value("Filter-Id").as_str(), value("Class").as_str()), (text, octets), "{read}");
        }
    }

    /// FreeRADIUS expands it for each request.
    #[test]
    fn a_value_between_backquotes_is_not_understood() {
        for (attribute, op) in [("Cleartext-Password", ":="), ("Filter-Id", "="), ("Class", "+=")] {
            for value in ["`date`", "`%{User-Name}`", "``"] {
                let row = parse_row(attribute.to_owned(), op, value.to_owned());
                assert_eq!((row.op, row.value.as_str()), (RowOperator::Unknown, value), "{attribute}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(text in "[ant01\"'`\\\\ ]{0,8}") {
            let written = escape_value("Filter-Id", &text).into_owned();
            let read = parse_row("Filter-Id".to_owned(), "=", written);
            prop_assert_eq!((read.op, read.value), (RowOperator::Set, text));
        }
    }
}
