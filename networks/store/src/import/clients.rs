//! The file `clients.conf`.

use super::ImportIssue;
use super::words::{ImportValue, NOT_UTF8, WordReader};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_aaa::store::{ClientRequirement, ClientRow};

/// Reads the text of a `clients.conf`. Returns its clients in the order of the file, each address or prefix once.
///
/// A client is left out without a secret or a numeric address, or if a setting cannot be read. So is one that
/// FreeRADIUS restricts beyond its address and UDP. If a wider client with another secret would then cover its
/// address, an issue stops the import.
#[must_use]
pub fn clients_conf(text: &str) -> (Vec<ClientRow>, Vec<ImportIssue>) {
    let mut reader = ClientsConfReader::default();
    let mut last = 1;
    let mut joined: Option<LogicalLine> = None;
    for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
        last = number;
        let joins = match &mut joined {
            Some(open) => open.append_continued_line(line),
            None if WordReader::new(line).is_at_end() => continue,
            None => joined.insert(LogicalLine::new(number)).append_continued_line(line),
        };
        if !joins && let Some(whole) = joined.take() {
            reader.read_line(&whole.text, whole.number);
        }
    }
    if let Some(open) = joined {
        reader.read_line(&open.text, open.number);
        reader.report_issue(last, "the last line ends with \\, but no line follows");
    }
    if let Some(open) = reader.sections.first() {
        let what = format!("the section from line {} has no closing }}: its content was left out", open.line);
        reader.report_issue(last, what);
        if let Some(ConfigSection { kind: SectionKind::Client(draft), .. }) = reader.sections.first() {
            let extent = draft.client_source_addresses();
            reader.left_out.push((reader.complaints.len() - 1, extent));
        }
    }
    reader.stop_if_client_is_covered();
    reader.complaints.sort_by_key(|c| c.line);
    (reader.clients, reader.complaints)
}

/// A line, with the lines that a `\` at its end joins to it.
#[derive(Debug)]
struct LogicalLine {
    number: usize,
    text: String,
    /// True if the first line ended in `"\`: the indent of the others is then dropped.
    without_indent: bool,
}

impl LogicalLine {
    fn new(number: usize) -> Self {
        Self { number, text: String::new(), without_indent: false }
    }
    /// Adds a line. True if another follows.
    fn append_continued_line(&mut self, line: &str) -> bool {
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
struct ConfigSection {
    line: usize,
    kind: SectionKind,
}

#[derive(Debug)]
enum SectionKind {
    Client(Box<PartialClientEntry>),
    /// Skipped.
    Other,
}

/// An incomplete client.
#[derive(Debug, Default)]
struct PartialClientEntry {
    name: String,
    address: Option<String>,
    /// The prefix length, which FreeRADIUS 2 had on its own line.
    netmask: Option<u8>,
    /// True if it uses RadSec. Its public secret proves nothing, so it must not become a UDP client.
    radsec: bool,
    /// True if it uses only TCP or TLS. FreeRADIUS distinguishes it from a UDP client at the same address.
    by_stream: bool,
    /// True if a line that may have its address was not read.
    has_unread_line: bool,
    /// The line and the reason that make it no client here.
    unfit: Option<(usize, String)>,
    /// The settings so far. The first of each name counts.
    names: BTreeSet<String>,
    row: ClientRow,
}

/// The source addresses of a client that was left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SkippedClientNetwork {
    Network(IpAddr, u8),
    /// Any: its address is unknown.
    Unknown,
    /// None: it sends no UDP packets.
    Nowhere,
}

/// The settings of its address.
const ADDRESSES: [&str; 3] = ["ipaddr", "ipv4addr", "ipv6addr"];

/// The settings whose loss would change a client's identity or admit any host.
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

/// The shared secret of all RadSec clients (RFC 6614 §2.3), which is public.
const RADSEC: &str = "radsec";

/// The characters that end the name of an entry.
const ENDS: [char; 7] = ['=', '{', '}', '#', '"', '\'', '`'];

#[derive(Debug, Default)]
struct ClientsConfReader {
    sections: Vec<ConfigSection>,
    clients: Vec<ClientRow>,
    /// The line of each address's client.
    address_lines: BTreeMap<String, usize>,
    /// The networks of the imported clients.
    imported_networks: BTreeSet<(IpAddr, u8)>,
    complaints: Vec<ImportIssue>,
    /// The clients that were left out, by the indexes of their issues.
    left_out: Vec<(usize, SkippedClientNetwork)>,
}

impl ClientsConfReader {
    fn report_issue(&mut self, line: usize, what: impl Into<String>) {
        self.complaints.push(ImportIssue { file: None, line, message: what.into(), stops: false });
    }

    fn read_line(&mut self, line: &str, number: usize) {
        let mut words = WordReader::new(line);
        while !words.is_at_end() {
            if words.take_char('}') {
                self.close_section(number);
                continue;
            }
            if words.take_char(',') || words.take_char(';') {
                continue;
            }
            let name = words.take_bare_word(&ENDS).to_owned();
            if ["$INCLUDE", "$-INCLUDE"].iter().any(|include| name.eq_ignore_ascii_case(include)) {
                let file = words.remaining_text().trim();
                self.report_issue(number, format!("{name} {file}: import that file separately"));
                if self.sections.is_empty() {
                    self.left_out.push((self.complaints.len() - 1, SkippedClientNetwork::Unknown));
                }
                return self.reject_open_client(number, "it includes a file");
            }
            if words.take_char('{') {
                self.open_section(&name, String::new(), number);
            } else if words.take_operator().is_some() {
                match words.take_setting() {
                    Ok(value) => self.apply_setting(&name, &value, number),
                    Err(why) => {
                        self.report_issue(number, format!("{name} was left out: {why}"));
                        return self.reject_open_client(number, "one of its lines cannot be read");
                    }
                }
            } else {
                match words.take_value(&ENDS) {
                    Ok(second) if words.take_char('{') => self.open_section(&name, second.text, number),
                    _ => {
                        self.report_issue(
                            number,
                            "the line was left out: it is neither `name = value` nor the beginning or end of a section",
                        );
                        return self.reject_open_client(number, "one of its lines cannot be read");
                    }
                }
            }
        }
    }

    /// Marks the open client, if any, as no client here.
    fn reject_open_client(&mut self, line: usize, why: &str) {
        if let Some(ConfigSection { kind: SectionKind::Client(draft), .. }) = self.sections.last_mut() {
            draft.unfit.get_or_insert_with(|| (line, why.to_owned()));
            draft.has_unread_line = true;
        }
    }

    /// Leaves a client out and reports it.
    fn leave_out(&mut self, draft: &PartialClientEntry, line: usize, why: &str) {
        let name = if draft.name.is_empty() { "without a name" } else { &draft.name };
        self.report_issue(line, format!("client {name} was left out: {why}"));
        self.left_out.push((self.complaints.len() - 1, draft.client_source_addresses()));
    }

    /// Stops the import if a wider imported client covers one that was left out: its secret or its rules differ.
    fn stop_if_client_is_covered(&mut self) {
        let wide = self.imported_networks.iter().find(|(address, bits)| *bits < address_bits(*address));
        for (place, extent) in &self.left_out {
            let wider = match *extent {
                SkippedClientNetwork::Network(address, bits) => (0..=bits)
                    .filter_map(|bits| self.imported_networks.get(&(clear_host_bits(address, bits), bits)))
                    .next_back(),
                SkippedClientNetwork::Unknown => wide,
                SkippedClientNetwork::Nowhere => None,
            };
            let Some((address, bits)) = wider else { continue };
            let complaint = &mut self.complaints[*place];
            complaint.stops = true;
            complaint.message.push_str(&format!(
                "; the file was not imported, since the wider client {address}/{bits} would match it with another \
                 secret: correct this client, or remove the wider one"
            ));
        }
    }

    fn open_section(&mut self, name: &str, second: String, line: usize) {
        let within = self.sections.last().map(|s| &s.kind);
        let kind = match (name, within) {
            (_, Some(SectionKind::Other)) => SectionKind::Other,
            ("client", None) => SectionKind::Client(Box::new(PartialClientEntry {
                name: second,
                ..PartialClientEntry::default()
            })),
            ("clients", None) => {
                self.report_issue(line, format!("clients {second} was left out: it applies only to sockets that name \
                                                 it, and there are none here; move clients for all sockets out of \
                                                 it"));
                SectionKind::Other
            }
            (_, Some(SectionKind::Client(_))) => {
                self.report_issue(
                    line,
                    format!(
                        "section {name} of a client was ignored: the server's own configuration limits connections"
                    ),
                );
                SectionKind::Other
            }
            _ => {
                self.report_issue(line, format!("section {name} was ignored: it is not a client"));
                SectionKind::Other
            }
        };
        self.sections.push(ConfigSection { line, kind });
    }

    fn close_section(&mut self, line: usize) {
        match self.sections.pop() {
            None => self.report_issue(line, "this } closes no section"),
            Some(ConfigSection { line, kind: SectionKind::Client(draft) }) => {
                self.finish_client_section(*draft, line)
            }
            Some(_) => {}
        }
    }

    fn apply_setting(&mut self, name: &str, value: &ImportValue, line: usize) {
        let Some(section) = self.sections.last_mut() else {
            return self.report_issue(line, format!("{name} was left out: it is in no section"));
        };
        let SectionKind::Client(draft) = &mut section.kind else { return };
        if !draft.names.insert(name.to_owned()) {
            return self.report_issue(
                line,
                format!("{name} was left out: it occurs twice, and the first one counts"),
            );
        }
        match draft.apply_setting(name, value) {
            Ok(None) => {}
            Ok(Some(note)) => self.report_issue(line, note),
            Err(why) => {
                if DECISIVE.contains(&name) {
                    let unfit = format!("its {name} cannot be imported");
                    draft.unfit.get_or_insert((line, unfit));
                }
                self.report_issue(line, format!("{name}: {why}"));
            }
        }
    }

    /// Handles the end of a client's section. `line` is its beginning.
    fn finish_client_section(&mut self, mut draft: PartialClientEntry, line: usize) {
        if let Some((at, why)) = &draft.unfit {
            let why = format!("{why} (line {at})");
            return self.leave_out(&draft, line, &why);
        }
        let (address, bits) = match draft.client_network() {
            Ok(network) => network,
            Err(fault) => return self.leave_out(&draft, line, &fault.message),
        };
        if draft.radsec || draft.row.secret == RADSEC {
            let why = "it uses RadSec, with a certificate instead of a secret; add a [[client]] with its prefix and \
                       certificate (or fingerprint) to the server's own configuration";
            return self.leave_out(&draft, line, why);
        }
        if draft.row.secret.is_empty() {
            return self.leave_out(&draft, line, "it has no secret that can be imported");
        }
        let nasname = match bits == address_bits(address) {
            true => address.to_string(),
            false => format!("{address}/{bits}"),
        };
        if let Some(first) = self.address_lines.get(&nasname) {
            // FreeRADIUS does not start if two different clients have the same address, so only the first is imported.
            let what =
                format!("client {} was left out: {nasname} already has a client at line {first}", draft.name);
            return self.report_issue(line, what);
        }
        let mut row = std::mem::take(&mut draft.row);
        if row.shortname.is_empty() {
            row.shortname = draft.name;
        }
        if row.kind.is_empty() {
            "other".clone_into(&mut row.kind);
        }
        self.address_lines.insert(nasname.clone(), line);
        self.imported_networks.insert((address, bits));
        self.clients.push(ClientRow { nasname, ..row });
    }
}

impl PartialClientEntry {
    /// Returns its network. FreeRADIUS ignores `netmask` if the client's name is its address.
    fn client_network(&self) -> Result<(IpAddr, u8), NetworkParseError> {
        match &self.address {
            Some(address) => parse_network(address, self.netmask),
            None => parse_network(&self.name, None),
        }
    }

    /// Returns its source addresses.
    fn client_source_addresses(&self) -> SkippedClientNetwork {
        let addresses = ADDRESSES.iter().filter(|name| self.names.contains(**name)).count();
        let is_unread = addresses > 1 || self.address.is_none() && (addresses > 0 || self.has_unread_line);
        match self.client_network() {
            _ if self.by_stream => SkippedClientNetwork::Nowhere,
            _ if is_unread => SkippedClientNetwork::Unknown,
            Ok((address, bits)) => SkippedClientNetwork::Network(address, bits),
            Err(fault) if fault.is_nowhere => SkippedClientNetwork::Nowhere,
            Err(_) => SkippedClientNetwork::Unknown,
        }
    }

    /// Applies one `name = value`. Returns a note, if one is needed.
    ///
    /// # Errors
    /// Why it was left out.
    fn apply_setting(&mut self, name: &str, value: &ImportValue) -> Result<Option<String>, String> {
        let text = value.text.clone();
        if !value.is_whole() {
            return Err(format!("{NOT_UTF8}; left out"));
        }
        let variable = value.quote != Some('\'') && text.contains("${") || text.contains("$ENV{");
        if value.quote == Some('`') || variable {
            return Err("its value is a variable or a command: write the value itself".to_owned());
        }
        match name {
            "ipaddr" | "ipv4addr" | "ipv6addr" => {
                let any = if name == "ipv6addr" { "::/0" } else { "0.0.0.0/0" };
                let address = if text == "*" { any.to_owned() } else { text };
                match &self.address {
                    None => self.address = Some(address),
                    Some(first) => {
                        return Err(format!("a client has one address, and {first} comes first"));
                    }
                }
            }
            "netmask" => {
                self.netmask =
                    Some(text.parse().map_err(|_| "it is not a number of bits; left out".to_owned())?);
            }
            "secret" => {
                let known = text == "testing123";
                self.row.secret = text;
                return Ok(
                    known.then(|| "this secret is FreeRADIUS's public example: choose another".to_owned())
                );
            }
            "shortname" => self.row.shortname = text,
            "nas_type" | "nastype" => self.row.kind = text,
            "require_message_authenticator" => self.row.require_message_authenticator = parse_demand(&text)?,
            "limit_proxy_state" => self.row.limit_proxy_state = parse_demand(&text)?,
            "proto" if ["*", "udp"].contains(&text.as_str()) => {}
            "proto" if ["tls", "radsec"].contains(&text.as_str()) => {
                (self.radsec, self.by_stream) = (true, true);
            }
            "proto" => {
                self.by_stream = text == "tcp";
                return Err(format!("{text} is not supported"));
            }
            "virtual_server" if text == "default" => {}
            "virtual_server" => {
                return Err(format!(
                    "its logins belong to FreeRADIUS's virtual server {text}, which has rules of its own"
                ));
            }
            "dynamic_clients" => {
                return Err("FreeRADIUS looks up its clients and their secrets for each packet".to_owned());
            }
            "coa_server" | "response_window" | "login" | "password" | "max_connections" | "lifetime"
            | "idle_timeout" | "add_cui" | "rate_limit" => {
                return Err("a client has no such setting here; left out".to_owned());
            }
            _ => {
                return Err("unknown setting (case matters); left out".to_owned());
            }
        }
        Ok(None)
    }
}

fn parse_demand(text: &str) -> Result<ClientRequirement, String> {
    ClientRequirement::parse(text).ok_or_else(|| format!("{text:?} is neither yes, no nor auto; left out"))
}

/// Why a text is not a network.
#[derive(Debug)]
struct NetworkParseError {
    message: String,
    /// True if FreeRADIUS reads it as a network that contains no host.
    is_nowhere: bool,
}

impl From<String> for NetworkParseError {
    fn from(what: String) -> Self {
        Self { message: what, is_nowhere: false }
    }
}

/// The width of an address in bits.
const fn address_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Clears the host bits of an address.
fn clear_host_bits(address: IpAddr, bits: u8) -> IpAddr {
    let beyond = address_bits(address).saturating_sub(bits);
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

/// Parses an address or a prefix and clears the host bits.
fn parse_network(text: &str, netmask: Option<u8>) -> Result<(IpAddr, u8), NetworkParseError> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => {
            let bits: u8 =
                bits.parse().map_err(|_| format!("{text:?}: the part after / is not a number of bits"))?;
            if netmask.is_some_and(|netmask| netmask != bits) {
                return Err(format!("{text:?} has another netmask beside it").into());
            }
            (address, Some(bits))
        }
        None => (text, netmask),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        let what = format!(
            "{text:?} is not an address, and names are not looked up: write `ipaddr = ADDRESS` or ADDRESS/BITS"
        );
        return Err(what.into());
    };
    let longest = address_bits(address);
    match bits {
        // FreeRADIUS takes the unspecified address to mean any address.
        None if address.is_unspecified() => Ok((address, 0)),
        Some(bits) if bits == longest && address.is_unspecified() => Ok((address, 0)),
        None => Ok((address, longest)),
        Some(bits) if bits > longest => Err(format!("{text:?}: a prefix has at most {longest} bits").into()),
        Some(bits) => {
            let cleared = clear_host_bits(address, bits);
            // FreeRADIUS clears the host bits of a prefix in CIDR notation, but not with a netmask.
            if netmask.is_some() && !text.contains('/') && cleared != address {
                let what =
                    format!("{text} has bits beyond its netmask of {bits}: it matches no host in FreeRADIUS");
                return Err(NetworkParseError { message: what, is_nowhere: true });
            }
            Ok((cleared, bits))
        }
    }
}
