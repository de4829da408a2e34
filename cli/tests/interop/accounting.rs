//! The table of accounting sequences against FreeRADIUS with its own queries. It confirms FreeRADIUS's rows in
//! docs/reference/accounting.md.
//!
//! The test does not wait for the seconds of a sequence, which ends at the present time. A record without
//! Event-Timestamp gets the one that FreeRADIUS would assign. A record with Acct-Delay-Time gets a greater one,
//! by its lateness. FreeRADIUS computes with the second of its arrival; if a busy machine lets that second
//! pass, the test sends the sequence again.

#[path = "../../../services/aaa/tests/e2e/sequences/table.rs"]
mod table;

use crate::place::{RunningProgram, SECRET, TEST_TIMEOUT, TempDir, find_program, udp_ports};
use rusqlite::{Connection, OpenFlags, Row};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use table::{
    AccountingSequence, EventStamp, ObservedRow, SequenceRecord, SequenceStep, load_sequences, row_difference,
};
use usher_radius::SharedSecret;
use usher_radius::attribute::kind;
use usher_radius::packet::{OwnedPacket, PacketCode};

/// A FreeRADIUS that keeps accounting in SQLite, as its default site does.
struct AccountingServer {
    _running: RunningProgram,
    port: u16,
    database: std::path::PathBuf,
}

/// Returns a file of FreeRADIUS's configuration, which only its group may read.
fn shipped_config(name: &str) -> String {
    let path = format!("/etc/freeradius/3.0/{name}");
    if let Ok(text) = std::fs::read_to_string(&path) {
        return text;
    }
    let output = Command::new("sudo").args(["-n", "cat", &path]).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        _ => panic!(
            "{path} cannot be read: run this test as root, as one who may use sudo, or as one of group freerad; \
             `scripts/setup test` installs it"
        ),
    }
}

/// The outcome of a sent record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RecordOutcome {
    Acknowledged,
    Silence,
    /// FreeRADIUS may have received it in another second than its Acct-Delay-Time assumes.
    TooLate,
}

/// The outcome of a sent sequence.
enum SequenceVerdict {
    Right,
    Wrong(String),
    TooLate,
}

/// The network of the NAS of a sequence; each attempt has another.
#[derive(Clone, Copy)]
struct NasNetwork {
    number: usize,
    attempt: u8,
}

impl NasNetwork {
    fn nas_address(self, nas: char) -> Ipv4Addr {
        Ipv4Addr::new(127, 9 + self.attempt, self.number as u8, nas as u8 - b'a' + 1)
    }
    /// Returns its addresses as a SQL pattern.
    fn address_pattern(self) -> String {
        format!("127.{}.{}.%", 9 + self.attempt, self.number)
    }
}

impl AccountingServer {
    fn start(place: &TempDir) -> Self {
        let (port, folder) = (udp_ports(), place.path_text("freeradius"));
        for (name, copy) in [
            ("mods-config/sql/main/sqlite/queries.conf", "queries.conf"),
            ("mods-config/sql/main/sqlite/schema.sql", "schema.sql"),
            ("policy.d/accounting", "accounting.policy"),
        ] {
            place.write_private(&format!("freeradius/{copy}"), &shipped_config(name));
        }
        place.write_private("freeradius/dictionary", "");
        let text = CONFIGURATION
            .replace("FOLDER", &folder)
            .replace("PORT", &port.to_string())
            .replace("SECRET", SECRET);
        place.write_private("freeradius/radiusd.conf", &text);
        let mut command = find_program("freeradius");
        command.args(["-d", &folder, "-f", "-l", "stdout"]);
        let running = place.start_program("freeradius", &mut command, "Ready to process requests");
        Self { _running: running, port, database: place.path("freeradius/radius.db") }
    }

    /// Sends a record of a sequence.
    fn send_record(
        &self,
        site: NasNetwork,
        identifier: u8,
        record: &SequenceRecord,
        base: u64,
    ) -> RecordOutcome {
        let mut attributes = record.to_attributes(|nas| site.nas_address(nas));
        let delay = record.number_value("delay").map(|d| d as u32);
        match (record.event_stamp(), delay) {
            (EventStamp::Unset(stamp), _) => {
                attributes.push_u32(kind::EVENT_TIMESTAMP, stamp);
            }
            (EventStamp::SinceStart(stamp), _) => {
                attributes.push_u32(kind::EVENT_TIMESTAMP, (base + stamp) as u32);
            }
            (EventStamp::None, None) => {
                attributes.push_u32(kind::EVENT_TIMESTAMP, (base + record.arrives_at) as u32);
            }
            (EventStamp::None, Some(_)) => {}
        }
        let second = (record.event_stamp() == EventStamp::None && delay.is_some()).then(early_in_a_second);
        if let Some(delay) = delay {
            let later = second.map_or(0, |second| second - base - record.arrives_at);
            attributes.push_u32(kind::ACCT_DELAY_TIME, delay + later as u32);
        }
        let code = PacketCode::ACCOUNTING_REQUEST;
        let packet = OwnedPacket { code, identifier, authenticator: [0; 16], attributes };
        let mut data = Vec::new();
        packet.encode_into(&mut data).unwrap();
        let secret = SharedSecret::new(SECRET.as_bytes());
        let authenticator = usher_radius::auth::accounting_request_authenticator(&data, &secret);
        data[4..20].copy_from_slice(&authenticator);
        let socket = UdpSocket::bind((site.nas_address(record.source_nas()), 0)).unwrap();
        socket.connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        // FreeRADIUS answers within a second or never; only silence takes this time.
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket.send(&data).unwrap();
        let mut answer = [0; 4096];
        let length = socket.recv(&mut answer).unwrap_or_default();
        if length < 20 || answer[0] != PacketCode::ACCOUNTING_RESPONSE.0 {
            RecordOutcome::Silence
        } else if second.is_some_and(|second| second != now().as_secs()) {
            RecordOutcome::TooLate
        } else {
            RecordOutcome::Acknowledged
        }
    }

    fn session_rows(&self, site: NasNetwork) -> Vec<ObservedRow> {
        let connection =
            Connection::open_with_flags(&self.database, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut rows = connection
            .prepare(
                "SELECT username, acctsessionid, nasipaddress, acctstarttime, acctstoptime, acctsessiontime, \
                 acctinputoctets, acctoutputoctets, acctterminatecause, nasportid, callingstationid, class, \
                 framedipaddress, framedipv6prefix FROM radacct WHERE nasipaddress LIKE ?1",
            )
            .unwrap();
        let found = |row: &Row<'_>| -> rusqlite::Result<ObservedRow> {
            let text = |n| Ok::<_, rusqlite::Error>(row.get::<_, Option<String>>(n)?.unwrap_or_default());
            let nas: Ipv4Addr = text(2)?.parse().unwrap();
            Ok(ObservedRow {
                user: text(0)?,
                id: text(1)?,
                nas: char::from(b'a' + nas.octets()[3] - 1),
                begin: row.get(3)?,
                end: row.get(4)?,
                seconds: row.get(5)?,
                octets: (row.get(6)?, row.get(7)?),
                cause: text(8)?,
                more: vec![
                    ("port", text(9)?),
                    ("station", text(10)?),
                    ("class", text(11)?),
                    ("address", text(12)?),
                    ("prefix", text(13)?),
                ],
            })
        };
        rows.query_map([site.address_pattern()], found).unwrap().map(Result::unwrap).collect()
    }

    /// Returns how a sequence ends differently here; `None` if it does not.
    fn find_mismatch(&self, number: usize, sequence: &AccountingSequence) -> Option<String> {
        for attempt in 0..100 {
            match self.attempt_sequence(NasNetwork { number, attempt }, sequence) {
                SequenceVerdict::Right => return None,
                SequenceVerdict::Wrong(why) => return Some(why),
                SequenceVerdict::TooLate => {}
            }
        }
        Some("this machine never tells a record within a second".to_owned())
    }

    fn attempt_sequence(&self, site: NasNetwork, sequence: &AccountingSequence) -> SequenceVerdict {
        let records: Vec<_> = sequence
            .steps
            .iter()
            .filter_map(|step| match step {
                // FreeRADIUS keeps all state in its database, which survives a restart.
                SequenceStep::Restart => None,
                SequenceStep::Record(record) => Some(record),
            })
            .collect();
        let base = now().as_secs() - 10 - records.last().unwrap().arrives_at;
        for (n, record) in records.iter().enumerate() {
            match self.send_record(site, n as u8, record, base) {
                RecordOutcome::Acknowledged => {}
                RecordOutcome::Silence => {
                    return SequenceVerdict::Wrong(format!("not acknowledged: {}", n + 1));
                }
                RecordOutcome::TooLate => return SequenceVerdict::TooLate,
            }
        }
        // FreeRADIUS has no column for interim updates.
        let expected = sequence.freeradius.iter().map(|row| match row.split_once(" interims=") {
            Some((row, _)) => row.to_owned(),
            None => row.clone(),
        });
        row_difference(&expected.collect::<Vec<_>>(), self.session_rows(site), base as i64)
            .map_or(SequenceVerdict::Right, SequenceVerdict::Wrong)
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Returns the current second, in its first half: a record sent now arrives in the same second.
fn early_in_a_second() -> u64 {
    while now().subsec_millis() > 500 {
        std::thread::sleep(Duration::from_millis(20));
    }
    now().as_secs()
}

#[test]
fn sequences_end_in_their_rows_with_freeradius() {
    let place = TempDir::new();
    let server = AccountingServer::start(&place);
    let all = load_sequences();
    let can: Vec<_> = all.iter().filter(|s| s.no_freeradius.is_none()).collect();
    assert!(can.len() >= 70 && all.len() - can.len() <= 3, "{} of {}", can.len(), all.len());
    let faults: Vec<_> = can
        .iter()
        .enumerate()
        .filter_map(|(n, s)| Some(format!("{s}  {}", server.find_mismatch(n + 1, s)?)))
        .collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), can.len(), faults.join("\n"));
}

/// As the default site: preacct and accounting in its order, without the modules that write other logs.
const CONFIGURATION: &str = r#"
name = radiusd
libdir = /usr/lib/freeradius
raddbdir = FOLDER
run_dir = FOLDER
db_dir = FOLDER
pidfile = FOLDER/radiusd.pid
max_requests = 4096
security {
	max_attributes = 200
	reject_delay = 0
}
thread pool {
	start_servers = 1
	max_servers = 1
	min_spare_servers = 1
	max_spare_servers = 1
}
client nases {
	ipaddr = 127.0.0.0/8
	secret = SECRET
}
modules {
	expr {
	}
	preprocess {
	}
	detail {
		filename = FOLDER/detail
	}
	sql {
		dialect = "sqlite"
		driver = "rlm_sql_sqlite"
		sqlite {
			filename = "FOLDER/radius.db"
			bootstrap = "FOLDER/schema.sql"
		}
		radius_db = "radius"
		acct_table1 = "radacct"
		acct_table2 = "radacct"
		postauth_table = "radpostauth"
		authcheck_table = "radcheck"
		groupcheck_table = "radgroupcheck"
		authreply_table = "radreply"
		groupreply_table = "radgroupreply"
		usergroup_table = "radusergroup"
		delete_stale_sessions = yes
		pool {
			start = 1
			min = 1
			max = 1
			spare = 1
			uses = 0
			lifetime = 0
			idle_timeout = 60
		}
		client_table = "nas"
		group_attribute = "SQL-Group"
		$INCLUDE FOLDER/queries.conf
	}
}
policy {
	$INCLUDE FOLDER/accounting.policy
}
server default {
	listen {
		type = acct
		ipaddr = 127.0.0.1
		port = PORT
	}
	preacct {
		preprocess
		acct_unique
	}
	accounting {
		detail
		sql
	}
}
"#;
