//! The file `clients.conf`.

use super::Complaint;
use super::words::{NOT_UTF8, Value, Words};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_aaa::store::{ClientRow, Demand};

/// Reads the text of a `clients.conf`: its clients in the order of the file, each address or prefix once.
///
/// A client without a secret or without an address that stands there in figures is left out, and so is one that FreeRADIUS does not take
/// from everybody at this address by UDP, or of which a setting cannot be read. Where a wider client would then speak for it, by another
/// secret, a complaint stops the import.
#[must_use]
pub fn clients_conf(text: &str) -> (Vec<ClientRow>, Vec<Complaint>) {
    let mut reader = Reader::default();
    let mut last = 1;
    let mut joined: Option<JoinedLine> = None;
    for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
        last = number;
        let joins = match &mut joined {
            Some(open) => open.join(line),
            None if Words::new(line).is_at_end() => continue,
            None => joined.insert(JoinedLine::new(number)).join(line),
        };
        if !joins && let Some(whole) = joined.take() {
            reader.line(&whole.text, whole.number);
        }
    }
    if let Some(open) = joined {
        reader.line(&open.text, open.number);
        reader.complain(last, "a \\ at the end of a line joins the next one, and none follows");
    }
    if let Some(open) = reader.sections.first() {
        let what = format!(
            "the section that begins at line {} is not closed: a }} is missing, and what it holds was left out",
            open.line
        );
        reader.complain(last, what);
        if let Some(Section { kind: Kind::Client(draft), .. }) = reader.sections.first() {
            let extent = draft.extent();
            reader.left_out.push((reader.complaints.len() - 1, extent));
        }
    }
    reader.stop_where_wider_clients_speak();
    reader.complaints.sort_by_key(|c| c.line);
    (reader.clients, reader.complaints)
}

/// A line, and those that a `\` at its end joins to it.
#[derive(Debug)]
struct JoinedLine {
    number: usize,
    text: String,
    /// The first ended in `"\`: spaces at the beginning of the others are no part of them.
    without_indent: bool,
}

impl JoinedLine {
    fn new(number: usize) -> Self {
        Self { number, text: String::new(), without_indent: false }
    }
    /// Adds a line; whether another follows.
    fn join(&mut self, line: &str) -> bool {
        let line = line.trim_end_matches('\r');
        let line = if self.without_indent { line.trim_start() } else { line };
        let (text, joins) = line.strip_suffix('\\').map_or((line, false), |text| (text, true));
        self.without_indent |= joins && text.len() > 1 && text.ends_with('"');
        self.text.push_str(text);
        joins
    }
}

/// An open section.
#[derive(Debug)]
struct Section {
    line: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Client(Box<Draft>),
    /// Passed over.
    Other,
}

/// A client so far.
#[derive(Debug, Default)]
struct Draft {
    name: String,
    address: Option<String>,
    /// Bits of the network, as FreeRADIUS 2 had them on a line of their own.
    netmask: Option<u8>,
    /// Comes by RadSec: its secret proves nothing there, so that it must be no client by UDP.
    radsec: bool,
    /// Comes by TCP or TLS alone: FreeRADIUS tells it from a client by UDP at the same address.
    by_stream: bool,
    /// A line of it that may name its address was not read.
    has_unread_line: bool,
    /// Why it is no client here, by its line.
    unfit: Option<(usize, String)>,
    /// Its settings so far, of which the first counts.
    names: BTreeSet<String>,
    row: ClientRow,
}

/// From where the packets of a client come that is none here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientExtent {
    Network(IpAddr, u8),
    /// Anywhere: its address is not known here.
    Unknown,
    /// No UDP packet is its.
    Nowhere,
}

/// Settings that give its address.
const ADDRESSES: [&str; 3] = ["ipaddr", "ipv4addr", "ipv6addr"];

/// Settings without which a client would be another, or one of everybody's.
const DECISIVE: [&str; 10] = [
    "ipaddr",
    "ipv4addr",
    "ipv6addr",
    "netmask",
    "proto",
    "virtual_server",
    "dynamic_clients",
    "secret",
    "require_message_authenticator",
    "limit_proxy_state",
];

/// The secret that RFC 6614 §2.3 gives to all who speak RadSec, so that everybody knows it.
const RADSEC: &str = "radsec";

/// The beginning of an entry, before `=` or `{`.
const ENDS: [char; 7] = ['=', '{', '}', '#', '"', '\'', '`'];

#[derive(Debug, Default)]
struct Reader {
    sections: Vec<Section>,
    clients: Vec<ClientRow>,
    /// Addresses with the line of their client.
    seen: BTreeMap<String, usize>,
    /// Networks of the clients that are taken over.
    taken: BTreeSet<(IpAddr, u8)>,
    complaints: Vec<Complaint>,
    /// Complaints, by their place, of clients that are left out.
    left_out: Vec<(usize, ClientExtent)>,
}

impl Reader {
    fn complain(&mut self, line: usize, what: impl Into<String>) {
        self.complaints.push(Complaint { file: None, line, what: what.into(), stops: false });
    }

    fn line(&mut self, line: &str, number: usize) {
        let mut words = Words::new(line);
        while !words.is_at_end() {
            if words.take('}') {
                self.close(number);
                continue;
            }
            if words.take(',') || words.take(';') {
                continue;
            }
            let name = words.bare(&ENDS).to_owned();
            if ["$INCLUDE", "$-INCLUDE"].iter().any(|include| name.eq_ignore_ascii_case(include)) {
                let file = words.rest().trim();
                self.complain(number, format!("{name} {file}: import that file by itself"));
                if self.sections.is_empty() {
                    self.left_out.push((self.complaints.len() - 1, ClientExtent::Unknown));
                }
                return self.make_unfit(number, "it includes a file");
            }
            if words.take('{') {
                self.open(&name, String::new(), number);
            } else if words.operator().is_some() {
                match words.setting() {
                    Ok(value) => self.set(&name, &value, number),
                    Err(why) => {
                        self.complain(number, format!("{name}: {why}: it was left out"));
                        return self.make_unfit(number, "a line of it cannot be read");
                    }
                }
            } else {
                match words.value(&ENDS) {
                    Ok(second) if words.take('{') => self.open(&name, second.text, number),
                    _ => {
                        self.complain(number, "this is neither `name = value` nor the beginning or end of a section: the line was left out");
                        return self.make_unfit(number, "a line of it cannot be read");
                    }
                }
            }
        }
    }

    /// The client that is open, if one is, is none here.
    fn make_unfit(&mut self, line: usize, why: &str) {
        if let Some(Section { kind: Kind::Client(draft), .. }) = self.sections.last_mut() {
            draft.unfit.get_or_insert_with(|| (line, why.to_owned()));
            draft.has_unread_line = true;
        }
    }

    /// A client is none here.
    fn leave_out(&mut self, draft: &Draft, line: usize, why: &str) {
        let name = if draft.name.is_empty() { "without a name" } else { &draft.name };
        self.complain(line, format!("client {name}: {why}: it was left out"));
        self.left_out.push((self.complaints.len() - 1, draft.extent()));
    }

    /// Nothing is taken over where a wider client that is taken would speak for one that is not: it has another secret, or other rules.
    fn stop_where_wider_clients_speak(&mut self) {
        let wide = self.taken.iter().find(|(address, bits)| *bits < longest(*address));
        for (place, extent) in &self.left_out {
            let wider = match *extent {
                ClientExtent::Network(address, bits) => {
                    (0..=bits).filter_map(|bits| self.taken.get(&(cleared(address, bits), bits))).next_back()
                }
                ClientExtent::Unknown => wide,
                ClientExtent::Nowhere => None,
            };
            let Some((address, bits)) = wider else { continue };
            let complaint = &mut self.complaints[*place];
            complaint.stops = true;
            complaint.what.push_str(&format!(
                "; {address}/{bits} is a client whose secret would let it in: the file was not taken over; write this one so that it can be \
                 taken over, or take the wider one away"
            ));
        }
    }

    fn open(&mut self, name: &str, second: String, line: usize) {
        let within = self.sections.last().map(|s| &s.kind);
        let kind = match (name, within) {
            (_, Some(Kind::Other)) => Kind::Other,
            ("client", None) => Kind::Client(Box::new(Draft { name: second, ..Draft::default() })),
            ("clients", None) => {
                self.complain(line, format!("clients {second}: a list is of those sockets alone that name it, and none does here: its clients were left out; move those that are everybody's out of it"));
                Kind::Other
            }
            (_, Some(Kind::Client(_))) => {
                self.complain(line, format!("section {name} of a client was passed over: connections are bounded in the server's own configuration"));
                Kind::Other
            }
            _ => {
                self.complain(line, format!("section {name} is no client: it was passed over"));
                Kind::Other
            }
        };
        self.sections.push(Section { line, kind });
    }

    fn close(&mut self, line: usize) {
        match self.sections.pop() {
            None => self.complain(line, "this } closes nothing"),
            Some(Section { line, kind: Kind::Client(draft) }) => self.finish(*draft, line),
            Some(_) => {}
        }
    }

    fn set(&mut self, name: &str, value: &Value, line: usize) {
        let Some(section) = self.sections.last_mut() else {
            return self.complain(line, format!("{name} stands in no section: it was left out"));
        };
        let Kind::Client(draft) = &mut section.kind else { return };
        if !draft.names.insert(name.to_owned()) {
            return self.complain(
                line,
                format!("{name} is there twice: the first counts, and this one was left out"),
            );
        }
        match draft.set(name, value) {
            Ok(None) => {}
            Ok(Some(note)) => self.complain(line, note),
            Err(why) => {
                if DECISIVE.contains(&name) {
                    let unfit = format!("its {name} cannot be taken over");
                    draft.unfit.get_or_insert((line, unfit));
                }
                self.complain(line, format!("{name}: {why}"));
            }
        }
    }

    /// A client's section has ended; `line` is its beginning.
    fn finish(&mut self, mut draft: Draft, line: usize) {
        if let Some((at, why)) = &draft.unfit {
            let why = format!("{why} (line {at})");
            return self.leave_out(&draft, line, &why);
        }
        let (address, bits) = match draft.network() {
            Ok(network) => network,
            Err(fault) => return self.leave_out(&draft, line, &fault.what),
        };
        if draft.radsec || draft.row.secret == RADSEC {
            let why = "it comes by RadSec, by its certificate and not by a secret; add a [[client]] with its prefix and \
                       certificate (or fingerprint) to the server's own configuration";
            return self.leave_out(&draft, line, why);
        }
        if draft.row.secret.is_empty() {
            return self.leave_out(&draft, line, "it has no secret that can be taken over");
        }
        let nasname = match bits == longest(address) {
            true => address.to_string(),
            false => format!("{address}/{bits}"),
        };
        if let Some(first) = self.seen.get(&nasname) {
            // FreeRADIUS does not begin with two that differ.
            let what = format!(
                "client {}: {nasname} has a client at line {first} already: it was left out",
                draft.name
            );
            return self.complain(line, what);
        }
        let mut row = std::mem::take(&mut draft.row);
        if row.shortname.is_empty() {
            row.shortname = draft.name;
        }
        if row.kind.is_empty() {
            "other".clone_into(&mut row.kind);
        }
        self.seen.insert(nasname.clone(), line);
        self.taken.insert((address, bits));
        self.clients.push(ClientRow { nasname, ..row });
    }
}

impl Draft {
    /// Its network. Of a client whose address is its name FreeRADIUS passes `netmask` over.
    fn network(&self) -> Result<(IpAddr, u8), NetworkFault> {
        match &self.address {
            Some(address) => network(address, self.netmask),
            None => network(&self.name, None),
        }
    }

    /// From where its packets come.
    fn extent(&self) -> ClientExtent {
        let addresses = ADDRESSES.iter().filter(|name| self.names.contains(**name)).count();
        let is_unread = addresses > 1 || self.address.is_none() && (addresses > 0 || self.has_unread_line);
        match self.network() {
            _ if self.by_stream => ClientExtent::Nowhere,
            _ if is_unread => ClientExtent::Unknown,
            Ok((address, bits)) => ClientExtent::Network(address, bits),
            Err(fault) if fault.is_nowhere => ClientExtent::Nowhere,
            Err(_) => ClientExtent::Unknown,
        }
    }

    /// Takes one `name = value`; a note where something is to be said of it.
    ///
    /// # Errors
    /// Why it was left out.
    fn set(&mut self, name: &str, value: &Value) -> Result<Option<String>, String> {
        let text = value.text.clone();
        if !value.is_whole() {
            return Err(format!("{NOT_UTF8}: it was left out"));
        }
        let variable = value.quote != Some('\'') && text.contains("${") || text.contains("$ENV{");
        if value.quote == Some('`') || variable {
            return Err("its value stands elsewhere (a variable or a command): write it out".to_owned());
        }
        match name {
            "ipaddr" | "ipv4addr" | "ipv6addr" => {
                let any = if name == "ipv6addr" { "::/0" } else { "0.0.0.0/0" };
                let address = if text == "*" { any.to_owned() } else { text };
                match &self.address {
                    None => self.address = Some(address),
                    Some(first) => {
                        return Err(format!("a client has one address, and {first} stands before"));
                    }
                }
            }
            "netmask" => {
                self.netmask =
                    Some(text.parse().map_err(|_| "it is no number of bits: it was left out".to_owned())?);
            }
            "secret" => {
                let known = text == "testing123";
                self.row.secret = text;
                return Ok(known.then(|| {
                    "this secret is FreeRADIUS's example, which everybody knows: choose another".to_owned()
                }));
            }
            "shortname" => self.row.shortname = text,
            "nas_type" | "nastype" => self.row.kind = text,
            "require_message_authenticator" => self.row.require_message_authenticator = demand(&text)?,
            "limit_proxy_state" => self.row.limit_proxy_state = demand(&text)?,
            "proto" if ["*", "udp"].contains(&text.as_str()) => {}
            "proto" if ["tls", "radsec"].contains(&text.as_str()) => {
                (self.radsec, self.by_stream) = (true, true);
            }
            "proto" => {
                self.by_stream = text == "tcp";
                return Err(format!("{text} is not served"));
            }
            "virtual_server" if text == "default" => {}
            "virtual_server" => {
                return Err(format!(
                    "its logins are those of the server {text} there, which has rules of its own"
                ));
            }
            "dynamic_clients" => {
                return Err("its clients and their secrets are found out for each packet".to_owned());
            }
            "coa_server" | "response_window" | "login" | "password" | "max_connections" | "lifetime"
            | "idle_timeout" | "add_cui" | "rate_limit" => {
                return Err("a client has no such setting here: it was left out".to_owned());
            }
            _ => {
                return Err("this setting is not known (capitals count): it was left out".to_owned());
            }
        }
        Ok(None)
    }
}

fn demand(text: &str) -> Result<Demand, String> {
    Demand::parse(text).ok_or_else(|| format!("{text:?} is neither yes, no nor auto: it was left out"))
}

/// Why a text is no network.
#[derive(Debug)]
struct NetworkFault {
    what: String,
    /// FreeRADIUS has it for a network in which nobody is.
    is_nowhere: bool,
}

impl From<String> for NetworkFault {
    fn from(what: String) -> Self {
        Self { what, is_nowhere: false }
    }
}

/// The bits of an address.
const fn longest(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An address whose bits after a prefix are cleared.
fn cleared(address: IpAddr, bits: u8) -> IpAddr {
    let beyond = longest(address).saturating_sub(bits);
    match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(beyond.into()).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(beyond.into()).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// An address or a prefix, the bits after the prefix cleared.
fn network(text: &str, netmask: Option<u8>) -> Result<(IpAddr, u8), NetworkFault> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => {
            let bits: u8 =
                bits.parse().map_err(|_| format!("{text:?}: the part after / is no number of bits"))?;
            if netmask.is_some_and(|netmask| netmask != bits) {
                return Err(format!("{text:?} has another netmask beside it").into());
            }
            (address, Some(bits))
        }
        None => (text, netmask),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        let what = format!(
            "{text:?} is no address, and names are not looked up: write `ipaddr = ADDRESS` or ADDRESS/BITS"
        );
        return Err(what.into());
    };
    let longest = longest(address);
    match bits {
        // FreeRADIUS takes the address of nobody for that of everybody.
        None if address.is_unspecified() => Ok((address, 0)),
        Some(bits) if bits == longest && address.is_unspecified() => Ok((address, 0)),
        None => Ok((address, longest)),
        Some(bits) if bits > longest => Err(format!("{text:?}: a prefix has at most {longest} bits").into()),
        Some(bits) => {
            let cleared = cleared(address, bits);
            // It clears the bits behind a prefix that is written with the address, and not those behind a netmask.
            if netmask.is_some() && !text.contains('/') && cleared != address {
                let what =
                    format!("{text} has bits behind its netmask of {bits}, and is nobody to FreeRADIUS");
                return Err(NetworkFault { what, is_nowhere: true });
            }
            Ok((cleared, bits))
        }
    }
}
