//! A `swanctl.conf` as charon reads it: charon is asked for its connections, and they are those that we have taken over, or said that we
//! have not.

use crate::charon::Place;
use crate::ike::{client, eventually};
use crate::place::Folder;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use usher_config::Alone;
use usher_core::{Rng, Seed, WallTime};
use usher_crypto::tls::WallClock;
use usher_gateway::{Imported, config, import};
use usher_ike::payload::{Identification, TrafficSelector};

const CONNECTIONS: usize = 80;
const SECRETS: &str = "secrets { ike-1 { secret = \"a secret of many characters\" } }\n";
const TEMPLATE: &str = "base { version = 2\n rekey_time = 3h\n}\n";

/// Everything that is compared of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Read {
    ids: [String; 2],
    /// Where this side listens, and where the other side is.
    local: String,
    remote: String,
    /// In seconds.
    rekeying: u64,
    children: BTreeMap<String, Child>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Child {
    rekeying: u64,
    networks: [BTreeSet<String>; 2],
}

/// Writes what strongSwan's documentation has, each time in another of the ways in which its parser takes it.
struct Writer(Rng);

impl Writer {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.next_u64() as usize % of.len()]
    }
    fn setting(&mut self, key: &str, value: &str) -> String {
        let assigns = self.one(&[" = ", "=", "\t= "]);
        let marks = self.one(&["", "", "\""]);
        let end = self.one(&["\n", " \n", " # a note\n", "\n\n\t"]);
        format!("{key}{assigns}{marks}{value}{marks}{end}")
    }
    fn perhaps(&mut self, key: &str, values: &[&str]) -> String {
        match self.one(values) {
            "" => String::new(),
            value => self.setting(key, value),
        }
    }
    fn section(&mut self, name: &str, inner: &str) -> String {
        let (open, close) =
            (self.one(&[" {", "{", " {\n", "\n{ # a note\n"]), self.one(&["}", " }\n", "}\n"]));
        format!("{name}{open} {inner}{close}\n")
    }
    fn side(&mut self, name: &str, ids: &[&str]) -> String {
        let inner = self.setting("auth", "psk") + &self.perhaps("id", ids);
        let name = self.one(&[name, &format!("{name}-1")]).to_owned();
        self.section(&name, &inner)
    }
    fn child(&mut self, name: &str) -> String {
        // Most are ordinary; ports and ranges are not taken, and stop what has them.
        let ordinary = [
            "",
            "10.2.0.0/16",
            "10.2.0.0/16,10.3.0.0/16",
            "10.2.0.0/16 , 2001:db8::/32",
            "0.0.0.0/0",
            "dynamic",
            "192.0.2.1/32",
            "192.0.2.7",
        ];
        let networks =
            [&ordinary[..], &ordinary, &ordinary, &["10.2.0.0/16[tcp/80]", "192.0.2.1-192.0.2.9"]].concat();
        let inner = self.perhaps("local_ts", &networks)
            + &self.perhaps("remote_ts", &networks)
            + &self.perhaps("rekey_time", &["", "1h", "90m", "1800", "1d", "600s"])
            + &self.perhaps("esp_proposals", &["", "aes128gcm16-x25519", "aes128gcm16,default"]);
        self.section(name, &inner)
    }
    fn connection(&mut self, name: &str) -> String {
        let ordinary = [
            "gw.test",
            "GW.Test",
            "@gw.test",
            "fqdn:gw.test",
            "ann@gw.test",
            "email:ann@gw.test",
            "192.0.2.1",
            "2001:db8::1",
            "@@ann@gw.test",
        ];
        // Neither a key ID nor a distinguished name is taken, nor a network.
        let own = [&ordinary[..], &ordinary, &ordinary, &["C=CH, O=a b, CN=gw", "keyid:abc", "10.0.0.0/8"]]
            .concat();
        let others = [&own[..], &["", "%any", "0.0.0.0", "*"]].concat();
        let remote = self.one(&["", "192.0.2.9", "%any", "2001:db8::9"]);
        // From an address of IPv4 nobody of IPv6 is reached, and that is told.
        let locals = if remote.contains(':') { &["", "%any"][..] } else { &["", "%any", "192.0.2.77"] };
        let mut inner = self.setting("version", "2")
            + &self.perhaps("local_addrs", locals)
            + &self.perhaps("remote_addrs", &[remote])
            + &self.perhaps("rekey_time", &["", "2h", "7200", "90m", "1d"])
            + &self.perhaps("mobike", &["", "no", "yes"])
            + &self
                .perhaps("proposals", &["", "aes128-sha256-x25519", "aes256gcm16-prfsha384-x25519,default"])
            + &self.side("local", &own)
            + &self.side("remote", &others);
        let mut children = String::new();
        for n in 0..1 + self.0.next_u64() % 2 {
            children += &self.child(&format!("net{n}"));
        }
        inner += &self.section("children", &children);
        let name = match self.one(&["", "", ": base"]) {
            "" => name.to_owned(),
            of => format!("{name} {of}"),
        };
        self.section(&name, &inner)
    }
}

fn networks(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Seconds in `..., rekeying every 3600s`.
fn rekeying(line: &str) -> u64 {
    let after = line.split("rekeying every ").nth(1);
    after.and_then(|text| text.split('s').next()?.parse().ok()).unwrap_or(0)
}

/// What `swanctl --list-conns` prints.
fn listed(text: &str) -> BTreeMap<String, Read> {
    let mut all: BTreeMap<String, Read> = BTreeMap::new();
    let (mut name, mut side, mut child) = (String::new(), 0, None::<String>);
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let said = line.trim_start();
        let (key, value) = said.split_once(':').unwrap_or((said, ""));
        if depth == 0 {
            (name, child) = (key.to_owned(), None);
            all.insert(name.clone(), Read { rekeying: rekeying(value), ..Read::default() });
            continue;
        }
        let Some(read) = all.get_mut(&name) else { continue };
        match (depth, key) {
            (2, "local") => read.local = value.trim().to_owned(),
            (2, "remote") => read.remote = value.trim().to_owned(),
            (2, key) if key.ends_with("authentication") => {
                side = usize::from(key.starts_with("remote"));
                read.ids[side] = "%any".to_owned();
            }
            (4, "id") => read.ids[side] = value.trim().to_owned(),
            (2, key) => {
                child = Some(key.to_owned());
                let rekeying = rekeying(value);
                read.children.insert(key.to_owned(), Child { rekeying, ..Child::default() });
            }
            (4, "local" | "remote") => {
                let child = child.as_ref().and_then(|name| read.children.get_mut(name));
                if let Some(child) = child {
                    child.networks[usize::from(key == "remote")] = networks(value);
                }
            }
            _ => {}
        }
    }
    all
}

fn selectors(of: Option<&Vec<TrafficSelector>>) -> BTreeSet<String> {
    let Some(of) = of else { return BTreeSet::from(["dynamic".to_owned()]) };
    let text = |ts: &TrafficSelector| {
        let bits = |a: IpAddr, b: IpAddr| match (a, b) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => 0,
        };
        format!("{}/{}", ts.start, bits(ts.start, ts.end))
    };
    of.iter().map(text).collect()
}

/// The same of ours, of a file with one connection; nothing where it does not load for want of what was named.
fn taken(imported: &Imported) -> Option<Read> {
    let clock = WallClock::at(WallTime::UNIX_EPOCH);
    let loaded = match config::parse("ike.toml", &imported.text, &Alone, &clock) {
        Ok(loaded) => loaded,
        Err(_) if !imported.left.is_empty() => return None,
        Err(faults) => panic!("{faults}\n{}", imported.text),
    };
    let peer = loaded.config.peers.first()?;
    let connection = &peer.connection;
    let seconds = |of: Option<usher_core::Duration>| of.map_or(0, |time| time.as_nanos() / 1_000_000_000);
    let child = |child: &usher_ike::machine::ChildConfig| {
        let networks = [selectors(child.local.as_ref()), selectors(child.remote.as_ref())];
        (child.name.clone(), Child { rekeying: seconds(child.rekey_after), networks })
    };
    Some(Read {
        ids: [
            connection.local.to_string(),
            connection.remote.as_ref().map_or("%any".into(), ToString::to_string),
        ],
        local: match peer.local.ip() {
            address if address.is_unspecified() => "%any".into(),
            address => address.to_string(),
        },
        remote: peer.remote.map_or("%any".into(), |remote| remote.ip().to_string()),
        rekeying: seconds(connection.rekey_after),
        children: connection.children.iter().map(child).collect(),
    })
}

/// Whether both mean the same identity: charon shows a key ID as text.
fn is_same(ours: &str, theirs: &str) -> bool {
    let hexadecimal: String = theirs.bytes().map(|octet| format!("{octet:02x}")).collect();
    ours == theirs
        || ours.split_once(':').is_some_and(|(_, octets)| octets == hexadecimal)
        || Identification::of_text(ours) == Identification::of_text(theirs)
}

#[test]
fn connections_here_are_those_that_charon_has() {
    let mut writer = Writer(Seed::new(7).stream("swanctl", 0));
    let texts: BTreeMap<String, String> = (0..CONNECTIONS)
        .map(|n| {
            let name = format!("c{n}");
            let text = writer.connection(&name);
            (name, text)
        })
        .collect();
    let all: String = texts.values().map(String::as_str).collect();
    let charon = Place::new(&format!("{TEMPLATE}connections {{\n{all}}}\n{SECRETS}"));
    let theirs = listed(&charon.swanctl(&["--list-conns"]));
    assert_eq!(theirs.len(), CONNECTIONS, "{}", charon.log());
    let (mut compared, mut uncompared, mut wrong) = (0, Vec::new(), Vec::new());
    for (name, text) in &texts {
        let file = format!("{TEMPLATE}connections {{\n{text}}}\n{SECRETS}");
        let imported = import(&file, &mut |_, _| Err("nothing is included here".to_owned())).unwrap();
        let named: Vec<&str> =
            imported.left.iter().chain(&imported.stops).map(|(_, what)| what.as_str()).collect();
        if !imported.stops.is_empty() {
            uncompared.push(named.join("; "));
            continue;
        }
        let theirs = &theirs[name];
        let Some(ours) = taken(&imported) else {
            assert!(!named.is_empty(), "{file} is lost without a word");
            uncompared.push(named.join("; "));
            continue;
        };
        compared += 1;
        let said = |key: &str| named.iter().any(|what| what.contains(key));
        let mut differs = |what: &str, holds: bool| {
            if !holds && !said(what) {
                wrong.push(format!("{what} of\n{text}\nis {ours:?} here, there {theirs:?}; said: {named:?}"));
            }
        };
        differs("id", ours.ids.iter().zip(&theirs.ids).all(|(ours, theirs)| is_same(ours, theirs)));
        differs("local_addrs", ours.local == theirs.local);
        differs("remote_addrs", ours.remote == theirs.remote);
        differs("rekey_time", ours.rekeying == theirs.rekeying);
        differs("child", ours.children.keys().eq(theirs.children.keys()));
        for (name, child) in &theirs.children {
            let Some(own) = ours.children.get(name) else { continue };
            differs("local_ts", own.networks[0] == child.networks[0]);
            differs("remote_ts", own.networks[1] == child.networks[1]);
            differs("rekey_time", own.rekeying == child.rekeying);
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        compared > CONNECTIONS / 2,
        "{compared} of {CONNECTIONS} are taken over:\n{}",
        uncompared.join("\n")
    );
}

/// All of these are for our client, at 127.0.0.2 as ini.test: charon takes it by the one that we write first.
#[test]
fn the_connection_that_charon_takes_is_the_first_of_ours() {
    let (wide, near, host) =
        ("remote_addrs = 127.0.0.0/8", "remote_addrs = 127.0.0.0/16", "remote_addrs = 127.0.0.2");
    let (anybody, named) = ("", "id = ini.test");
    for all in [
        [("wide", wide, anybody), ("near", near, anybody), ("host", host, anybody)],
        [("all", "", anybody), ("net", "remote_addrs = 127.0.0.2/32", anybody), ("host", host, anybody)],
        [("near", near, anybody), ("named", "", named), ("all", "", anybody)],
        [("named", "", named), ("near", near, anybody), ("all", "", anybody)],
        [("all", "", anybody), ("named", wide, named), ("wide", wide, anybody)],
        [
            ("any", "version = 0\nremote_addrs = 127.0.0.2", anybody),
            ("two", host, anybody),
            ("same", host, anybody),
        ],
    ] {
        let connections: String = all
            .iter()
            .map(|(name, places, id)| {
                let version = if places.contains("version") { "" } else { "version = 2" };
                format!(
                    "{name} {{\n{version}\n{places}\nproposals = aes128-sha256-x25519, aes256gcm16-prfsha384-ecp384\npools = inner\n\
                     local {{ auth = psk\nid = gw.test }}\nremote {{ auth = psk\n{id} }}\n\
                     children {{ net {{ local_ts = 10.2.0.0/16\nesp_proposals = aes128gcm16-x25519 }} }}\n}}\n"
                )
            })
            .collect();
        let text = format!(
            "connections {{\n{connections}}}\npools {{ inner {{ addrs = 10.9.0.0/24 }} }}\n\
             secrets {{ ike {{ secret = \"a shared secret\" }} }}\n"
        );
        let imported = import(&text, &mut |_, _| Err("nothing is included here".to_owned())).unwrap();
        assert_eq!(imported.stops, [], "{text}");
        let first =
            imported.text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().replace('"', "");
        let (charon, place) = (Place::new(&text), Folder::new());
        let own = "local_id = \"ini.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\nsecret = \"a shared secret\"\n";
        let mut ours = client(&charon, &place, own);
        ours.wait_for("CHILD_SA");
        // charon lists it once it has answered.
        let mut listed = String::new();
        eventually("charon lists the IKE_SA", &charon, || {
            listed = charon.swanctl(&["--list-sas"]);
            listed.contains("ESTABLISHED")
        });
        let taken = listed.split(':').next().unwrap_or_default();
        assert_eq!(taken, first, "{text}\n{listed}");
        drop(ours);
    }
}
