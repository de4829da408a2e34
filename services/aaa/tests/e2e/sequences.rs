//! Runs the table of accounting sequences over RADIUS and Diameter in virtual time, and writes the page that shows
//! it.

mod table;

use crate::accounting::{DiameterTestClient, TestHost, instant_at};
use crate::build::{aaa_config, shared_secret, test_users};
use crate::world::{nas_address, server_address};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path as FilePath;
use table::{
    AccountingSequence, EventStamp, ObservedRow, SequenceRecord, SequenceStep, load_sequences, row_difference,
};
use usher_aaa::ledger::LedgerConfig;
use usher_aaa::store::SessionRow;
use usher_core::bench::EPOCH;
use usher_core::{DatagramPath, Duration, Machine, MachineInput, Seed, WallTime};
use usher_diameter::accounting::{AccountingRecordType, AccountingRequest};
use usher_diameter::data::AvpTime;
use usher_radius::PacketCode;
use usher_radius::attribute::kind;
use usher_radius::packet::OwnedPacket;
use usher_radius::server::ClientConfig;

/// Seconds of virtual time before a sequence, so that a clock may be behind.
const BEFORE: u64 = 10_000;

fn ledger_config() -> LedgerConfig {
    LedgerConfig { stale_after: Some(Duration::from_secs(86_400)), ..LedgerConfig::default() }
}
fn nas_ipv4_address(nas: char) -> Ipv4Addr {
    let IpAddr::V4(address) = nas_address(nas as usize - 'a' as usize) else { panic!("it is IPv4") };
    address
}
fn nas_of(row: &SessionRow) -> char {
    ('a'..='c').find(|n| row.nasipaddress == nas_ipv4_address(*n)).unwrap()
}

fn observed_rows(host: &TestHost) -> Vec<ObservedRow> {
    let secs = |t: WallTime| t.unix_secs() as i64;
    let of = |row: SessionRow| ObservedRow {
        nas: nas_of(&row),
        // Diameter's id is a Session-Id.
        id: row.acctsessionid.rsplit(';').next().unwrap_or_default().to_owned(),
        user: row.username,
        begin: row.acctstarttime.map(secs),
        end: row.acctstoptime.map(secs),
        seconds: Some(row.acctsessiontime),
        octets: (row.acctinputoctets, row.acctoutputoctets),
        cause: row.acctterminatecause,
        more: vec![
            ("port", row.nasportid),
            ("station", row.callingstationid),
            ("class", row.class),
            ("address", row.framedipaddress.map(|a| a.to_string()).unwrap_or_default()),
            ("prefix", row.framedipv6prefix),
            ("interims", row.interims.to_string()),
        ],
    };
    host.rows().into_iter().map(of).collect()
}

/// Sends the records of a sequence by `tell`. Returns those that are not acknowledged.
fn unacknowledged_records(
    sequence: &AccountingSequence,
    mut restart: impl FnMut(u64),
    mut tell: impl FnMut(usize, &SequenceRecord) -> bool,
) -> Vec<usize> {
    let mut silent = Vec::new();
    let (mut count, mut last) = (0, 0);
    for step in &sequence.steps {
        match step {
            SequenceStep::Restart => restart(last),
            SequenceStep::Record(record) => {
                count += 1;
                assert!(
                    last <= record.arrives_at,
                    "{}: {:?} is not in its order",
                    sequence.name,
                    record.text
                );
                last = record.arrives_at;
                if !tell(count, record) {
                    silent.push(count);
                }
            }
        }
    }
    silent
}

/// Runs a sequence over RADIUS. Returns the difference.
fn over_radius(sequence: &AccountingSequence) -> Option<String> {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    if let Some(radius) = &mut config.radius {
        radius.clients = (0..3).map(|n| ClientConfig::new(nas_address(n), 32, shared_secret())).collect();
    }
    let host = std::cell::RefCell::new(TestHost::new(config, ledger_config()));
    let silent = unacknowledged_records(
        sequence,
        |secs| host.borrow_mut().restart(instant_at(BEFORE + secs)),
        |count, record| {
            let mut host = host.borrow_mut();
            let now = instant_at(BEFORE + record.arrives_at);
            let mut attributes = record.to_attributes(nas_ipv4_address);
            let base = EPOCH.unix_secs() + BEFORE;
            match record.event_stamp() {
                EventStamp::None => {}
                EventStamp::Unset(stamp) => {
                    attributes.push_u32(kind::EVENT_TIMESTAMP, stamp);
                }
                EventStamp::SinceStart(stamp) => {
                    attributes.push_u32(kind::EVENT_TIMESTAMP, (base + stamp) as u32);
                }
            }
            if let Some(delay) = record.number_value("delay") {
                attributes.push_u32(kind::ACCT_DELAY_TIME, delay as u32);
            }
            let code = PacketCode::ACCOUNTING_REQUEST;
            let packet = OwnedPacket { code, identifier: count as u8, authenticator: [0; 16], attributes };
            let mut data = Vec::new();
            packet.encode_into(&mut data).unwrap();
            let authenticator = usher_radius::auth::accounting_request_authenticator(&data, &shared_secret());
            data[4..20].copy_from_slice(&authenticator);
            let remote = SocketAddr::new(nas_ipv4_address(record.source_nas()).into(), 50_000);
            let local = SocketAddr::new(server_address(0), 1812);
            host.service.handle_timeout(now);
            let path = DatagramPath { socket: usher_aaa::radius_socket(0), local, remote };
            host.server.handle_input(now, MachineInput::Datagram { path, data: &data });
            host.run_jobs(now);
            let answer = host.server.poll_transmit(&mut data).is_some();
            answer && data[0] == PacketCode::ACCOUNTING_RESPONSE.0
        },
    );
    let host = host.into_inner();
    assert_eq!(host.service.ledger().unwritten_change_count(), 0);
    if silent != sequence.silent {
        return Some(format!("not acknowledged: {silent:?}"));
    }
    row_difference(&sequence.usher, observed_rows(&host), (EPOCH.unix_secs() + BEFORE) as i64)
}

/// Runs a sequence over Diameter. Returns the difference.
fn over_diameter(sequence: &AccountingSequence) -> Option<String> {
    let diameter = std::cell::RefCell::new(DiameterTestClient::with_ledger(ledger_config()));
    let base = EPOCH.unix_secs() + BEFORE;
    let silent = unacknowledged_records(
        sequence,
        |secs| diameter.borrow_mut().host.service.restart(instant_at(BEFORE + secs)),
        |count, record| {
            let kind = match &*record.status {
                "Start" => AccountingRecordType::Start,
                "Interim" => AccountingRecordType::Interim,
                "Stop" => AccountingRecordType::Stop,
                "Event" => AccountingRecordType::Event,
                other => panic!("Diameter has no {other}"),
            };
            let mut acr = AccountingRequest::new(kind, count as u32);
            acr.user_name = record.user();
            acr.event_timestamp = match record.event_stamp() {
                EventStamp::None => None,
                EventStamp::Unset(stamp) => {
                    Some(AvpTime::avp_time_from_wall(WallTime::from_unix_secs(stamp.into())))
                }
                EventStamp::SinceStart(stamp) => {
                    Some(AvpTime::avp_time_from_wall(WallTime::from_unix_secs(base + stamp)))
                }
            };
            let number = |key| record.number_value(key).map(|n| n as u32);
            (acr.delay, acr.session_time) = (number("delay"), number("time"));
            (acr.input_octets, acr.output_octets) = (record.number_value("in"), record.number_value("out"));
            // RADIUS's causes, ten higher (RFC 4005, 9.3.5).
            acr.termination_cause = number("cause").map(|cause| cause + 10);
            acr.multi_session_id = record.get("multi");
            acr.class = record.get("class").map(str::as_bytes);
            acr.framed_ip = record.get("address").map(|a| a.parse().unwrap());
            let prefix = record.prefix_octets();
            acr.framed_ipv6_prefix = prefix.as_deref();
            acr.nas.address = record.nas().map(|n| nas_ipv4_address(n).into());
            acr.nas.port = number("port");
            acr.nas.port_id = record.get("portid");
            acr.nas.calling_station = record.get("station");
            let session =
                format!("switch.example.org;{};{}", record.source_nas() as u32, record.id().unwrap());
            let mut diameter = diameter.borrow_mut();
            diameter.wait_until(BEFORE + record.arrives_at);
            diameter.host.service.handle_timeout(instant_at(BEFORE + record.arrives_at));
            diameter.send_accounting(BEFORE + record.arrives_at, &session, &acr).0
                == usher_diameter::ResultCode::SUCCESS
        },
    );
    let diameter = diameter.into_inner();
    assert_eq!(diameter.host.service.ledger().unwritten_change_count(), 0);
    if !silent.is_empty() {
        return Some(format!("not answered with success: {silent:?}"));
    }
    row_difference(&sequence.usher, observed_rows(&diameter.host), base as i64)
}

fn all_end_in_their_rows(
    wrong: impl Fn(&AccountingSequence) -> Option<String>,
    can: impl Fn(&AccountingSequence) -> bool,
    least: usize,
) {
    let all = load_sequences();
    let said: Vec<_> = all.iter().filter(|s| can(s)).collect();
    assert!(said.len() >= least, "{} sequences", said.len());
    let faults: Vec<_> = said.iter().filter_map(|s| Some(format!("{s}  {}", wrong(s)?))).collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), said.len(), faults.join("\n"));
}

#[test]
fn sequences_end_in_their_rows_over_radius() {
    all_end_in_their_rows(over_radius, |s| s.no_radius.is_none(), 70);
}

#[test]
fn sequences_end_in_their_rows_over_diameter() {
    all_end_in_their_rows(over_diameter, |s| s.no_diameter.is_none(), 45);
}

const BEGIN: &str = "<!-- The rest is made of services/aaa/tests/e2e/sequences/sequences.toml: run the test \
                     docs_show_the_sequences with USHER_WRITE_ACCOUNTING=1. -->\n";

/// Returns the part of docs/reference/accounting.md that is generated from the table.
fn render_page() -> String {
    let code = |texts: &[String]| match texts {
        [] => "none".to_owned(),
        texts => texts.iter().map(|t| format!("`{t}`")).collect::<Vec<_>>().join("<br>"),
    };
    let (mut out, mut section) = (BEGIN.to_owned(), String::new());
    for s in load_sequences() {
        if s.section != section {
            section.clone_from(&s.section);
            out.push_str(&format!(
                "\n## {section}\n\n| sequence | records | rows here | rows with FreeRADIUS | Diameter |\n|---|---|---|---|---|\n"
            ));
        }
        let records: Vec<_> = s
            .steps
            .iter()
            .map(|step| match step {
                SequenceStep::Restart => "server restarts".to_owned(),
                SequenceStep::Record(record) => record.text.clone(),
            })
            .collect();
        let silence = if s.silent.is_empty() { "" } else { "; no record is acknowledged" };
        let theirs = match (&s.no_freeradius, &s.why) {
            (Some(reason), _) => reason.clone(),
            (None, Some(why)) => format!("{}<br>{why}", code(&s.freeradius)),
            (None, None) => "the same".to_owned(),
        };
        let diameter = match (&s.no_diameter, &s.no_radius) {
            (Some(reason), _) => reason.clone(),
            (None, Some(reason)) => format!("only there: {reason}"),
            (None, None) => "the same".to_owned(),
        };
        out.push_str(&format!(
            "| {} | {} | {}{silence} | {theirs} | {diameter} |\n",
            s.name,
            code(&records),
            code(&s.usher),
        ));
    }
    out
}

#[test]
fn docs_show_the_sequences() {
    let path = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/accounting.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, shown) = text.split_at(text.find(BEGIN).unwrap_or(text.len()));
    let page = render_page();
    if std::env::var_os("USHER_WRITE_ACCOUNTING").is_some() {
        std::fs::write(&path, format!("{head}{page}")).unwrap();
    } else {
        assert!(
            shown == page,
            "docs/reference/accounting.md is not what the table says; run this test with USHER_WRITE_ACCOUNTING=1"
        );
    }
}
