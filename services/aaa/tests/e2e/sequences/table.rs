//! Reads `sequences.toml`, whose head describes its format. Shared with the program's test against FreeRADIUS.

use std::fmt;
use std::net::Ipv4Addr;
use usher_radius::AttributeList;
use usher_radius::attribute::kind;

/// The records of a NAS in order, and the expected rows.
pub(crate) struct AccountingSequence {
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) steps: Vec<SequenceStep>,
    pub(crate) usher: Vec<String>,
    pub(crate) freeradius: Vec<String>,
    pub(crate) why: Option<String>,
    /// Records, counted from 1, that are not acknowledged.
    pub(crate) silent: Vec<usize>,
    /// Why RADIUS, Diameter or FreeRADIUS cannot run it.
    pub(crate) no_radius: Option<String>,
    pub(crate) no_diameter: Option<String>,
    pub(crate) no_freeradius: Option<String>,
}

impl fmt::Display for AccountingSequence {
    /// Prints the sequence as written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.section, self.name)?;
        for step in &self.steps {
            match step {
                SequenceStep::Record(record) => writeln!(f, "    {}", record.text)?,
                SequenceStep::Restart => writeln!(f, "    server restarts")?,
            }
        }
        let reasons = [
            ("RADIUS", &self.no_radius),
            ("Diameter", &self.no_diameter),
            ("FreeRADIUS", &self.no_freeradius),
        ];
        for (who, why) in reasons {
            if let Some(why) = why {
                writeln!(f, "  not by {who}: {why}")?;
            }
        }
        let why = self.why.as_deref().unwrap_or("as here");
        writeln!(f, "  here {:?}, without an answer {:?}", self.usher, self.silent)?;
        writeln!(f, "  FreeRADIUS {:?}: {why}", self.freeradius)
    }
}

pub(crate) enum SequenceStep {
    Record(SequenceRecord),
    /// The server restarts.
    Restart,
}

/// A record.
pub(crate) struct SequenceRecord {
    /// The record as written.
    pub(crate) text: String,
    /// Arrival in seconds.
    pub(crate) arrives_at: u64,
    /// Kind of the record.
    pub(crate) status: String,
    fields: Vec<(String, String)>,
}

/// An Event-Timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventStamp {
    None,
    /// Seconds since 1970.
    Unset(u32),
    /// Seconds since the sequence began.
    SinceStart(u64),
}

const KEYS: [&str; 18] = [
    "user", "id", "nas", "from", "stamp", "delay", "time", "in", "out", "cause", "port", "portid", "station",
    "class", "address", "prefix", "multi", "name",
];
/// The time of a clock that was never set.
const UNSET: u32 = 1970;

impl SequenceRecord {
    fn parse(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let at = words.next().and_then(|t| t.parse().ok()).unwrap_or_else(|| panic!("when? {text:?}"));
        let status = words.next().unwrap_or_else(|| panic!("what? {text:?}")).to_owned();
        let pair = |word: &str| {
            let (key, value) = word.split_once('=').unwrap_or_else(|| panic!("{word:?} in {text:?}"));
            assert!(KEYS.contains(&key), "{key:?} in {text:?}");
            (key.to_owned(), value.to_owned())
        };
        Self { text: text.to_owned(), arrives_at: at, status, fields: words.map(pair).collect() }
    }
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
    pub(crate) fn number_value(&self, key: &str) -> Option<u64> {
        self.get(key).map(|v| v.parse().unwrap_or_else(|_| panic!("{key}={v}")))
    }
    fn value_or<'a>(&'a self, key: &str, default: &'a str) -> Option<&'a str> {
        Some(self.get(key).unwrap_or(default)).filter(|v| *v != "-")
    }
    pub(crate) fn of_nas(&self) -> bool {
        matches!(&*self.status, "On" | "Off")
    }
    pub(crate) fn user(&self) -> Option<&str> {
        self.value_or("user", "anna").filter(|_| !self.of_nas())
    }
    pub(crate) fn id(&self) -> Option<&str> {
        self.value_or("id", "1")
    }
    /// Returns the NAS of its NAS-IP-Address.
    pub(crate) fn nas(&self) -> Option<char> {
        self.value_or("nas", "a").and_then(|n| n.chars().next())
    }
    /// Returns the NAS that sends it.
    pub(crate) fn source_nas(&self) -> char {
        self.get("from").and_then(|n| n.chars().next()).or(self.nas()).unwrap_or('a')
    }
    pub(crate) fn event_stamp(&self) -> EventStamp {
        match self.get("stamp") {
            None => EventStamp::SinceStart(self.arrives_at),
            Some("none") => EventStamp::None,
            Some("unset") => EventStamp::Unset(UNSET),
            Some(_) => EventStamp::SinceStart(self.number_value("stamp").unwrap()),
        }
    }
    pub(crate) fn prefix_octets(&self) -> Option<Vec<u8>> {
        let (prefix, length) = self.get("prefix")?.split_once('/')?;
        let prefix: std::net::Ipv6Addr = prefix.parse().unwrap();
        let mut octets = vec![0, length.parse().unwrap()];
        octets.extend(prefix.octets());
        Some(octets)
    }
    /// Returns its attributes without those of the event time.
    pub(crate) fn to_attributes(&self, address: impl Fn(char) -> Ipv4Addr) -> AttributeList {
        let mut a = AttributeList::new();
        let status = match &*self.status {
            "Start" => 1,
            "Stop" => 2,
            "Interim" => 3,
            "On" => 7,
            "Off" => 8,
            number => number.parse().unwrap_or_else(|_| panic!("{number:?} is no Acct-Status-Type")),
        };
        a.push_u32(kind::ACCT_STATUS_TYPE, status);
        let texts = [
            (kind::USER_NAME, self.user()),
            (kind::ACCT_SESSION_ID, self.id()),
            (kind::NAS_IDENTIFIER, self.get("name")),
            (kind::NAS_PORT_ID, self.get("portid")),
            (kind::CALLING_STATION_ID, self.get("station")),
            (kind::CLASS, self.get("class")),
            (ACCT_MULTI_SESSION_ID, self.get("multi")),
        ];
        for (kind, text) in texts {
            if let Some(text) = text {
                a.push_text(kind, text).unwrap();
            }
        }
        if let Some(nas) = self.nas() {
            a.push_ipv4(kind::NAS_IP_ADDRESS, address(nas));
        }
        let numbers = [
            (kind::NAS_PORT, "port"),
            (kind::ACCT_SESSION_TIME, "time"),
            (kind::ACCT_TERMINATE_CAUSE, "cause"),
        ];
        for (kind, key) in numbers {
            if let Some(number) = self.number_value(key) {
                a.push_u32(kind, u32::try_from(number).unwrap());
            }
        }
        for (low, high, key) in [
            (kind::ACCT_INPUT_OCTETS, ACCT_INPUT_GIGAWORDS, "in"),
            (kind::ACCT_OUTPUT_OCTETS, ACCT_OUTPUT_GIGAWORDS, "out"),
        ] {
            if let Some(octets) = self.number_value(key) {
                a.push_u32(low, octets as u32);
                if octets >> 32 > 0 {
                    a.push_u32(high, (octets >> 32) as u32);
                }
            }
        }
        if let Some(address) = self.get("address") {
            a.push_ipv4(kind::FRAMED_IP_ADDRESS, address.parse().unwrap());
        }
        if let Some(prefix) = self.prefix_octets() {
            a.push_bytes(kind::FRAMED_IPV6_PREFIX, &prefix).unwrap();
        }
        a
    }
}

const ACCT_MULTI_SESSION_ID: u8 = 50;
const ACCT_INPUT_GIGAWORDS: u8 = 52;
const ACCT_OUTPUT_GIGAWORDS: u8 = 53;

/// A row of radacct as found. Times in seconds since 1970.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedRow {
    pub(crate) user: String,
    pub(crate) id: String,
    pub(crate) nas: char,
    pub(crate) begin: Option<i64>,
    pub(crate) end: Option<i64>,
    pub(crate) seconds: Option<u64>,
    pub(crate) octets: (u64, u64),
    pub(crate) cause: String,
    /// Further columns.
    pub(crate) more: Vec<(&'static str, String)>,
}

impl ObservedRow {
    fn to_text(&self, base: i64, keys: &[&str]) -> String {
        let or = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let time = |t: Option<i64>| match t {
            None => String::new(),
            Some(t) if t == i64::from(UNSET) => "unset".to_owned(),
            Some(t) => (t - base).to_string(),
        };
        let nas = if self.nas == 'a' { String::new() } else { format!("@{}", self.nas) };
        let seconds = self.seconds.map_or("?".to_owned(), |s| s.to_string());
        let mut text = format!(
            "{}/{}{nas} {}..{} {seconds}s {}/{} {}",
            or(&self.user),
            or(&self.id),
            time(self.begin),
            time(self.end),
            self.octets.0,
            self.octets.1,
            or(&self.cause),
        );
        for key in keys {
            let found = self.more.iter().find(|(k, _)| k == key);
            let (_, value) = found.unwrap_or_else(|| panic!("no row says {key}"));
            text.push_str(&format!(" {key}={value}"));
        }
        text
    }
}

/// Compares rows with the expected ones. `None`: equal. Columns of the first expected row are shown.
pub(crate) fn row_difference(expected: &[String], mut found: Vec<ObservedRow>, base: i64) -> Option<String> {
    let first = expected.first().map_or("", String::as_str);
    let keys: Vec<_> = first.split_whitespace().filter_map(|w| Some(w.split_once('=')?.0)).collect();
    found.sort_by_key(|f| (f.begin, f.user.clone(), f.id.clone()));
    let found: Vec<_> = found.iter().map(|f| f.to_text(base, &keys)).collect();
    (found != expected).then(|| format!("expected {expected:#?}\nfound {found:#?}"))
}

/// Returns all sequences.
pub(crate) fn load_sequences() -> Vec<AccountingSequence> {
    let table: toml::Table = include_str!("sequences.toml").parse().unwrap();
    let mut section = String::new();
    let mut all = Vec::new();
    for entry in table["sequence"].as_array().unwrap() {
        let entry = entry.as_table().unwrap();
        let text = |key: &str| entry.get(key).map(|v| v.as_str().unwrap().to_owned());
        let list = |key: &str| {
            let list = entry.get(key)?.as_array().unwrap();
            Some(list.iter().map(|v| v.as_str().unwrap().to_owned()).collect::<Vec<_>>())
        };
        let numbers = |key: &str| {
            let list = entry.get(key).map_or(&[][..], |v| v.as_array().unwrap());
            list.iter().map(|v| v.as_integer().unwrap() as usize).collect::<Vec<_>>()
        };
        if let Some(begins) = text("section") {
            section = begins;
        }
        let name = text("name").unwrap();
        let step = |text: &String| match text.as_str() {
            "server restarts" => SequenceStep::Restart,
            text => SequenceStep::Record(SequenceRecord::parse(text)),
        };
        let usher = list("usher").unwrap();
        let freeradius = list("freeradius").unwrap_or_else(|| usher.clone());
        assert_eq!(freeradius != usher, text("why").is_some(), "{name}: a difference has a reason");
        all.push(AccountingSequence {
            section: section.clone(),
            steps: list("records").unwrap().iter().map(step).collect(),
            usher,
            freeradius,
            why: text("why"),
            silent: numbers("silent"),
            no_radius: text("no_radius"),
            no_diameter: text("no_diameter"),
            no_freeradius: text("no_freeradius"),
            name,
        });
    }
    all
}
