//! A session for tests.

use usher_aaa::store::SessionRow;
use usher_core::WallTime;

/// Returns the open session of this number, with a value in every column.
pub(crate) fn test_session(number: u32) -> SessionRow {
    SessionRow {
        acctsessionid: format!("{number:08x}"),
        acctuniqueid: format!("{number:032x}"),
        username: "kaya".to_owned(),
        realm: "example.org".to_owned(),
        nasipaddress: "192.0.2.7".parse().unwrap(),
        nasportid: "17".to_owned(),
        nasporttype: "Wireless-802.11".to_owned(),
        acctstarttime: Some(WallTime::from_unix_secs(1_700_000_000)),
        acctupdatetime: Some(WallTime::from_unix_secs(1_700_000_060)),
        acctstoptime: None,
        acctsessiontime: 60,
        acctauthentic: "RADIUS".to_owned(),
        acctinputoctets: 6_000_000_000,
        acctoutputoctets: 70_000_000_000,
        calledstationid: "02-00-00-00-00-01:house".to_owned(),
        callingstationid: "02-00-00-00-00-02".to_owned(),
        acctterminatecause: String::new(),
        servicetype: "Framed-User".to_owned(),
        framedprotocol: "PPP".to_owned(),
        framedipaddress: Some("198.51.100.3".parse().unwrap()),
        framedipv6prefix: "2001:db8:1::/64".to_owned(),
        class: "0102ff".to_owned(),
        interims: 3,
        diameter_origin: String::new(),
    }
}
