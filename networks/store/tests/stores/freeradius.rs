//! Compares the importer with FreeRADIUS itself: its reply must match the imported rows, or the importer must have
//! reported the difference.

use crate::folder::StoreTempDir;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use usher_aaa::store::ClientRow;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::auth::{SharedSecret, check_response};
use usher_radius::dictionary::RadiusDictionary;
use usher_radius::packet::{OwnedPacket, PacketCode, RadiusPacket};
use usher_store::import;

/// The number of generated entries of each kind.
const USERS: usize = 200;
const CLIENTS: u8 = 60;
pub(crate) const SECRET: &str = "testing123";

/// Generates a value: bare, or between either kind of quotation marks.
fn written_value() -> impl Strategy<Value = String> {
    let plain = "[A-Za-z0-9]{1,4}";
    let bare = (plain, r#"[A-Za-z0-9;{}#=<>:!?.'"%$&*+\\-]{0,4}"#).prop_map(|(head, tail)| head + &tail);
    // Unescaped, escaped as marks and backslashes require, or escaped without need.
    let part = prop_oneof![
        5 => "[A-Za-z0-9 ;{}#=,.&$-]{1,3}",
        1 => Just("%".to_owned()),
        1 => Just("é".to_owned()),
        1 => Just(r"\\".to_owned()),
        1 => Just(r#"\""#.to_owned()),
        1 => Just(r"\'".to_owned()),
        1 => Just(r"\n".to_owned()),
        1 => Just(r"\t".to_owned()),
        1 => Just(r"\101".to_owned()),
        1 => Just(r"\x".to_owned()),
        1 => Just("'".to_owned()),
        1 => Just("\"".to_owned()),
    ];
    let quoted = |mark: char| {
        proptest::collection::vec(part.clone(), 1..5).prop_map(move |parts| {
            let inner: String = parts.into_iter().filter(|part| *part != mark.to_string()).collect();
            format!("{mark}a{inner}{mark}")
        })
    };
    prop_oneof![2 => bare, 3 => quoted('"'), 2 => quoted('\'')]
}

/// Generates the same values each time, so that a failure can be reproduced.
fn sample_values(n: usize) -> Vec<String> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..n).map(|_| written_value().new_tree(&mut runner).unwrap().current()).collect()
}

/// A FreeRADIUS with these users and clients.
pub(crate) struct FreeRadius {
    child: Child,
    port: u16,
}

impl Drop for FreeRadius {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_config(folder: &StoreTempDir, users: &str, clients: &str, port: u16) {
    let at = folder.path().display();
    let text = format!(
        "name = radiusd\nlibdir = /usr/lib/freeradius\nraddbdir = {at}\nrun_dir = {at}\ndb_dir = {at}\npidfile = {at}/pid\n\
         max_requests = 4096\nproxy_requests = no\nsecurity {{\n reject_delay = 0\n}}\n\
         thread pool {{\n start_servers = 1\n max_servers = 1\n min_spare_servers = 1\n max_spare_servers = 1\n}}\n\
         $INCLUDE {at}/clients.conf\nmodules {{\n pap {{\n }}\n files {{\n  usersfile = {at}/users\n }}\n}}\n\
         server default {{\n listen {{\n  type = auth\n  ipaddr = 127.0.0.1\n  port = {port}\n }}\n\
         authorize {{\n  files\n  pap\n }}\n authenticate {{\n  Auth-Type PAP {{\n   pap\n  }}\n }}\n}}\n"
    );
    for (name, text) in [("radiusd.conf", text.as_str()), ("users", users), ("clients.conf", clients)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
}

fn freeradius_command(folder: &StoreTempDir) -> Command {
    let mut command = Command::new("freeradius");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).arg("-d").arg(folder.path());
    command
}

/// Removes entries that FreeRADIUS refuses to load, by the lines in its messages.
fn retain_loadable_entries(
    folder: &StoreTempDir,
    file: &str,
    entries: &mut Vec<String>,
    load: impl Fn(&[String]),
) {
    loop {
        load(entries);
        let done =
            freeradius_command(folder).arg("-XC").output().expect("freeradius: run scripts/setup test");
        if done.status.success() {
            return;
        }
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let named = said.lines().rev().find_map(|line| {
            if let Some((_, line)) = line.split_once("starting at line ") {
                return line.parse::<usize>().ok();
            }
            let (_, rest) =
                line.split_once(&format!("{file}[")).or_else(|| line.split_once(&format!("{file}:")))?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()
        });
        let line = named.unwrap_or_else(|| panic!("it names no line:\n{said}"));
        let mut end = 0;
        let at = entries.iter().position(|entry| {
            end += entry.lines().count();
            line <= end
        });
        entries.remove(at.unwrap_or_else(|| panic!("line {line}:\n{said}")));
    }
}

impl FreeRadius {
    pub(crate) fn start(folder: &StoreTempDir, port: u16) -> Self {
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child =
            freeradius_command(folder).args(["-f", "-l", "stdout"]).stdout(log).stderr(Stdio::null()).spawn();
        let this = Self { child: child.unwrap(), port };
        let log = folder.path().join("log");
        let until = Instant::now() + Duration::from_secs(60);
        while !std::fs::read_to_string(&log).unwrap().contains("Ready to process requests") {
            assert!(Instant::now() < until, "{}", std::fs::read_to_string(&log).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        this
    }
    /// Logs a user in. Returns the verdict and the Reply-Message, or `None` without a reply under this secret.
    fn log_in(
        &self,
        from: Ipv4Addr,
        secret: &str,
        name: &str,
        password: &str,
    ) -> Option<(PacketCode, String)> {
        let reply = self.send_access_request(from, secret, &pap_request(name, password))?;
        let message = reply.attributes.get(kind::REPLY_MESSAGE).unwrap_or_default();
        Some((reply.code, String::from_utf8_lossy(message).into_owned()))
    }

    /// True if a request from this address with this secret is a client's.
    fn is_client(&self, from: Ipv4Addr, secret: &str) -> bool {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        // FreeRADIUS ignores unknown clients, and answers known ones within milliseconds.
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let authenticator = [7; 16];
        let mut hidden = Vec::new();
        pap_request("ann", "right").encode_into(&mut hidden, secret.as_bytes(), &authenticator, 0);
        let attributes = AttributeList::parse_attribute_list(&hidden).unwrap();
        let request =
            OwnedPacket { code: PacketCode::ACCESS_REQUEST, identifier: 1, authenticator, attributes };
        let mut datagram = Vec::new();
        request.encode_into(&mut datagram).unwrap();
        socket.send_to(&datagram, SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).unwrap();
        let mut answer = [0; 4096];
        let Ok(length) = socket.recv(&mut answer) else { return false };
        let reply = RadiusPacket::parse(&answer[..length]).unwrap();
        check_response(&reply, &authenticator, &SharedSecret::new(secret.as_bytes()))
    }

    /// Returns the reply to these attributes, or `None` without a reply under this secret.
    pub(crate) fn send_access_request(
        &self,
        from: Ipv4Addr,
        secret: &str,
        written: &AttributeList,
    ) -> Option<OwnedPacket> {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // Ports are reused, and FreeRADIUS would take an equal request for a duplicate.
        static REQUEST_COUNTER: AtomicU64 = AtomicU64::new(0);
        let mut authenticator = *b"sixteen octets!!";
        authenticator[..8].copy_from_slice(&REQUEST_COUNTER.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let mut hidden = Vec::new();
        written.encode_into(&mut hidden, secret.as_bytes(), &authenticator, 0);
        let attributes = AttributeList::parse_attribute_list(&hidden).unwrap();
        let request =
            OwnedPacket { code: PacketCode::ACCESS_REQUEST, identifier: 1, authenticator, attributes };
        let mut datagram = Vec::new();
        request.encode_into(&mut datagram).unwrap();
        let mut answer = [0; 4096];
        for _ in 0..5 {
            socket.send_to(&datagram, SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).unwrap();
            let Ok(length) = socket.recv(&mut answer) else { continue };
            let reply = RadiusPacket::parse(&answer[..length]).unwrap();
            if !check_response(&reply, &authenticator, &SharedSecret::new(secret.as_bytes())) {
                return None;
            }
            return Some(reply.to_owned());
        }
        panic!("it does not answer from {from}");
    }
}

/// Builds a PAP request.
pub(crate) fn pap_request(name: &str, password: &str) -> AttributeList {
    let mut written = AttributeList::new();
    written.push_text(kind::USER_NAME, name).unwrap();
    written.push_user_password(password.as_bytes()).unwrap();
    written
}

pub(crate) fn free_port() -> u16 {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn users_get_in_here_by_what_lets_them_in_there() {
    let folder = StoreTempDir::new();
    let port = free_port();
    let clients = format!("client here {{\n ipaddr = 127.0.0.1\n secret = {SECRET}\n}}\n");
    let made = sample_values(2 * USERS);
    let entry = |(n, pair): (usize, &[String])| {
        format!("u{n}\tCleartext-Password := {}\n\tReply-Message := {}\n", pair[0], pair[1])
    };
    let mut entries: Vec<String> = made.chunks(2).enumerate().map(entry).collect();
    retain_loadable_entries(&folder, "users", &mut entries, |entries| {
        write_config(&folder, &entries.concat(), &clients, port)
    });
    assert!(entries.len() > USERS / 2, "{} are left", entries.len());
    let server = FreeRadius::start(&folder, port);
    let (file, complaints) = import::users_file(&entries.concat(), &RadiusDictionary::builtin());
    let users: BTreeMap<_, _> = file.users.into_iter().collect();
    let (mut taken, mut wrong) = (0, Vec::new());
    for (n, entry) in entries.iter().enumerate() {
        let named = complaints.iter().any(|c| c.line == 2 * n + 1 || c.line == 2 * n + 2);
        let name = entry.split('\t').next().unwrap();
        let Some(user) = users.get(name) else {
            assert!(named, "{entry:?} is lost without a word");
            continue;
        };
        let password = &user.check.iter().find(|row| row.attribute == "Cleartext-Password").unwrap().value;
        let message =
            user.reply.iter().find(|row| row.attribute == "Reply-Message").map(|row| &row.value[..]);
        assert!(message.is_some() || named, "{entry:?}: its reply is lost without a word");
        taken += 1;
        match server.log_in(Ipv4Addr::LOCALHOST, SECRET, name, password) {
            Some((PacketCode::ACCESS_ACCEPT, said)) if message.is_none_or(|message| message == said) => {}
            answer => wrong.push(format!("{entry:?} is {password:?} and {message:?} here, there {answer:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {taken}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(taken > USERS / 2, "{taken} are taken over");
}

#[test]
fn clients_have_the_secrets_that_they_have_there() {
    let folder = StoreTempDir::new();
    let port = free_port();
    let address = |n: usize| Ipv4Addr::new(127, 0, 9, n as u8 + 1);
    let made = sample_values(CLIENTS.into());
    let entry = |(n, value): (usize, &String)| {
        format!("client c{n} {{\n ipaddr = {}\n secret = {value}\n}}\n", address(n))
    };
    let mut entries: Vec<String> = made.iter().enumerate().map(entry).collect();
    let user = "ann\tCleartext-Password := \"right\"\n";
    retain_loadable_entries(&folder, "clients.conf", &mut entries, |entries| {
        write_config(&folder, user, &entries.concat(), port);
    });
    assert!(entries.len() > usize::from(CLIENTS) / 2, "{} are left", entries.len());
    let server = FreeRadius::start(&folder, port);
    let (clients, complaints) = import::clients_conf(&entries.concat());
    let (mut taken, mut wrong) = (0, Vec::new());
    for (n, entry) in entries.iter().enumerate() {
        let address = entry.split(['=', '\n']).nth(2).unwrap().trim();
        let named = complaints.iter().any(|c| (4 * n + 1..=4 * n + 4).contains(&c.line));
        let Some(client) = clients.iter().find(|client| client.nasname == address) else {
            assert!(named, "{entry:?} is lost without a word");
            continue;
        };
        taken += 1;
        let answer = server.log_in(address.parse().unwrap(), &client.secret, "ann", "right");
        if !matches!(answer, Some((PacketCode::ACCESS_ACCEPT, _))) {
            wrong.push(format!("{entry:?} is {:?} here, there {answer:?}", client.secret));
        }
    }
    assert!(wrong.is_empty(), "{} of {taken}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(taken > usize::from(CLIENTS) / 2, "{taken} are taken over");
}

/// True if one of these clients has this address and secret.
fn is_client(clients: &[ClientRow], from: Ipv4Addr, secret: &str) -> bool {
    let holds = |client: &ClientRow| {
        let (address, bits) = client.nasname.split_once('/').unwrap_or((&client.nasname, "32"));
        let Ok(address) = address.parse::<Ipv4Addr>() else { return false };
        let mask = u32::MAX.checked_shl(32 - bits.parse::<u32>().unwrap()).unwrap_or(0);
        address.to_bits() & mask == from.to_bits() & mask
    };
    clients.iter().any(|client| holds(client) && client.secret == secret)
}

#[test]
fn clients_are_where_they_are_there() {
    let folder = StoreTempDir::new();
    let port = free_port();
    let clients = "\
client 127.0.8.1 {\n netmask = 24\n secret = one\n}
client two {\n ipaddr = 127.0.8.33\n netmask = 28\n secret = two\n}
client three {\n ipaddr = 127.0.8.64\n netmask = 28\n secret = three\n}
client four {\n ipaddr = 127.0.8.100\n ipaddr = 127.0.8.101\n secret = four\n}
client five {\n ipaddr = 127.0.8.102\n secret = five\n secret = later\n}
client six {\n ipaddr = 127.0.8.103\n secret = si\\\nx\n}
client seven {\n ipaddr = 127.0.8.104\n secret = \"a%{b}c\"\n}
client eight {\n ipaddr = 127.0.8.105 # a note \\\n secret = no\n secret = eight\n}
client nine {\n ipaddr = 127.0.7.0/24\n netmask = 24\n secret = nine\n}
client tcp {\n ipaddr = 127.0.8.106\n proto = tcp\n secret = tcp\n}
clients unused {\n client list {\n  ipaddr = 127.0.8.107\n  secret = list\n }\n}
client ten {\n ipaddr = 127.0.6.9/24\n secret = \"t\"\\\n   # en\n}
";
    write_config(&folder, "ann\tCleartext-Password := \"right\"\n", clients, port);
    let server = FreeRadius::start(&folder, port);
    let (ours, complaints) = import::clients_conf(clients);
    for (host, secret) in [
        ([8, 1], "one"),
        ([8, 2], "one"),
        ([8, 33], "two"),
        ([8, 34], "two"),
        ([8, 70], "three"),
        ([8, 100], "four"),
        ([8, 101], "four"),
        ([8, 102], "five"),
        ([8, 102], "later"),
        ([8, 103], "six"),
        ([8, 104], "a%{b}c"),
        ([8, 105], "eight"),
        ([8, 105], "no"),
        ([7, 9], "nine"),
        ([8, 106], "tcp"),
        ([8, 107], "list"),
        ([6, 9], "t"),
    ] {
        let from = Ipv4Addr::new(127, 0, host[0], host[1]);
        let here = is_client(&ours, from, secret);
        assert_eq!(here, server.is_client(from, secret), "{from} by {secret}: {here} here: {complaints:#?}");
    }
    // The unspecified address means any address.
    let everybody = "client all {\n ipaddr = 0.0.0.0\n secret = all\n}\n";
    drop(server);
    write_config(&folder, "ann\tCleartext-Password := \"right\"\n", everybody, port);
    let server = FreeRadius::start(&folder, port);
    let (ours, from) = (import::clients_conf(everybody).0, Ipv4Addr::new(127, 0, 5, 5));
    assert!(server.is_client(from, "all") && is_client(&ours, from, "all"));
}
