//! Checks of home servers, Diameter peers and realms, and of TLS to them.

use super::check::{ConfigChecker, HomeServerEntry, at};
use super::model::{ConfigFile, DiameterPeer, HomeServer, RealmConfig, SecretText};
use super::units::Fingerprint;
use alloc::collections::BTreeSet;
use usher_aaa::AuthMethod;
use usher_aaa::proxy::{Realm as NamedRealm, RealmTable, RealmTarget};
use usher_config::units::TimeSpan;
use usher_core::TransportProtocol;

impl ConfigChecker<'_> {
    pub(super) fn read_home_servers(&mut self, homes: &mut [HomeServer]) -> Vec<HomeServerEntry> {
        let mut names = BTreeSet::new();
        let mut entries = Vec::new();
        for (i, home) in homes.iter_mut().enumerate() {
            if !names.insert(home.name.clone()) {
                self.add_fault(
                    at!("home_server", i, "name"),
                    "another home server has this name; choose another name",
                );
            }
            self.check_single_certificate_criterion(
                at!("home_server", i),
                home.certificate.as_ref(),
                home.fingerprint,
            );
            let proved = home.certificate.is_some() || home.fingerprint.is_some();
            if (home.transport == TransportProtocol::Tls) != proved {
                let message = if proved {
                    "a certificate needs TLS; add transport = \"tls\", or remove the certificate"
                } else {
                    "TLS needs the certificate of this server; add certificate (its name) or fingerprint"
                };
                self.add_fault(at!("home_server", i), message);
            }
            self.check_home_timeouts(i, home);
            let before = self.found.len();
            let secret = self
                .read_secret(&at!("home_server", i), &home.secret, &mut home.secret_file, &home.secret_env)
                .or_else(|| (home.transport == TransportProtocol::Tls).then(|| SecretText("radsec".into())));
            match secret {
                Some(secret) => entries.push(HomeServerEntry { server: home.clone(), secret }),
                None if self.found.len() == before => {
                    self.add_fault(at!("home_server", i), "this home server has no secret; add secret_file");
                }
                None => {}
            }
        }
        entries
    }

    /// Checks a home server's timeouts for suspect and dead and its probe intervals.
    fn check_home_timeouts(&mut self, i: usize, home: &HomeServer) {
        let ms = |period: TimeSpan| period.0.as_nanos() / 1_000_000;
        if !(100..=600_000).contains(&ms(home.response_window)) {
            let message = "response_window is between 100 ms and 10 min; 4 s is usual";
            self.add_fault(at!("home_server", i, "response_window"), message);
        }
        if ms(home.check_interval) < 6000 {
            self.add_fault(at!("home_server", i, "check_interval"), "RFC 3539 requires 6 s or more");
        }
        if home.num_answers_to_alive == 0 {
            let message = "with 0 answers a server is never alive; write 1 or more";
            self.add_fault(at!("home_server", i, "num_answers_to_alive"), message);
        }
    }

    /// Checks that only one of name and fingerprint is given: otherwise it is unclear which must match.
    pub(super) fn check_single_certificate_criterion(
        &mut self,
        mut at: Vec<String>,
        name: Option<&String>,
        fingerprint: Option<Fingerprint>,
    ) {
        if name.is_some() && fingerprint.is_some() {
            at.push("fingerprint".to_owned());
            self.add_fault(at, "certificate and fingerprint both identify the certificate; keep one of them");
        }
    }

    pub(super) fn check_realms(&mut self, file: &ConfigFile) {
        let mut names = BTreeSet::new();
        for (i, realm) in file.realm.iter().enumerate() {
            if !names.insert(realm.name.to_lowercase()) {
                self.add_fault(at!("realm", i, "name"), "another realm has this name; merge them");
            }
            self.check_realm_name(i, &realm.name);
            let homes: Vec<&str> = file.home_server.iter().map(|h| h.name.as_str()).collect();
            self.check_known_names(
                at!("realm", i, "servers"),
                &realm.servers,
                &homes,
                "home server",
                "[[home_server]]",
            );
            let peers = file.diameter.iter().flat_map(|d| &d.peer).filter(|p| p.connect.is_some());
            let peers: Vec<&str> = peers.map(|p| p.identity.as_str()).collect();
            let what = "Diameter peer to connect to";
            self.check_known_names(
                at!("realm", i, "diameter"),
                &realm.diameter,
                &peers,
                what,
                "[[diameter.peer]]",
            );
            self.check_single_route(i, realm);
            for (key, names) in [("accept", &realm.accept), ("send", &realm.send)] {
                for (n, name) in names.iter().enumerate() {
                    let one = core::slice::from_ref(name);
                    if let Err(message) = crate::build::parse_extra_attributes(one, &self.dictionary) {
                        self.add_fault(at!("realm", i, key, n), message);
                    }
                }
            }
        }
    }

    /// Checks a realm's name. FreeRADIUS takes a leading `~` for a regular expression, and operators write such
    /// names here too.
    fn check_realm_name(&mut self, i: usize, name: &str) {
        let Err(error) = RealmTable::new(vec![NamedRealm::new(name, RealmTarget::Local)], None) else {
            return;
        };
        let message = if name.starts_with('~')
            || name.contains(['*', '^', '$', '[', '(', '\\', '|', '?', '+'])
        {
            format!(
                "{error}; patterns are not supported: write a [[realm]] for each realm, with subrealms = true to \
                 include those below it, or \"*\" for every realm without an entry"
            )
        } else {
            format!("{error}; write it as in user names, after the @")
        };
        self.add_fault(at!("realm", i, "name"), message);
    }

    /// Checks that a realm has only one kind of target.
    fn check_single_route(&mut self, i: usize, realm: &RealmConfig) {
        let ways = [!realm.servers.is_empty(), !realm.diameter.is_empty(), realm.refuse];
        if ways.iter().filter(|way| **way).count() > 1 {
            self.add_fault(
                at!("realm", i),
                "servers, diameter and refuse exclude each other; keep one of them",
            );
        }
        if !realm.diameter.is_empty() && matches!(realm.name.as_str(), "" | "*") {
            self.add_fault(
                at!("realm", i, "diameter"),
                "Diameter needs the name of the realm; write a [[realm]] for each realm",
            );
        }
    }

    /// Checks that all names are known.
    fn check_known_names(
        &mut self,
        at: Vec<String>,
        names: &[String],
        known: &[&str],
        what: &str,
        table: &str,
    ) {
        for (n, name) in names.iter().enumerate().filter(|(_, name)| !known.contains(&name.as_str())) {
            let message = match known {
                [] => format!("there is no {what} \"{name}\"; add a {table} of this name"),
                known => format!("there is no {what} \"{name}\"; known are {}", known.join(", ")),
            };
            let mut at = at.clone();
            at.push(n.to_string());
            self.add_fault(at, message);
        }
    }

    pub(super) fn check_diameter(&mut self, file: &ConfigFile) {
        let Some(d) = &file.diameter else { return };
        let far = |addresses: &[core::net::SocketAddr]| addresses.iter().any(|a| !a.ip().is_loopback());
        let plain = far(&file.listen.diameter) || far(&file.listen.diameter_sctp);
        let tls = far(&file.listen.diameter_tls);
        if d.peers.is_empty() && d.peer.is_empty() && (plain || tls) {
            self.add_fault(
                at!("diameter", "peers"),
                "any host that reaches this server could send it requests; name the peers that may connect",
            );
        }
        if plain && !d.peers.is_empty() {
            self.add_fault(
                at!("diameter", "peers"),
                "without TLS only its address identifies a peer; replace each with a [[diameter.peer]] that has a \
                 prefix",
            );
        }
        let mut names = BTreeSet::new();
        for (i, name) in d.peers.iter().enumerate() {
            if !names.insert(name.to_lowercase()) {
                self.add_fault(at!("diameter", "peers", i), "this peer occurs twice; keep one");
            }
        }
        for (i, peer) in d.peer.iter().enumerate() {
            if !names.insert(peer.identity.to_lowercase()) {
                self.add_fault(
                    at!("diameter", "peer", i, "identity"),
                    "another peer has this identity; keep one",
                );
            }
            self.check_peer(i, peer, plain);
            if peer.transport == TransportProtocol::Sctp && file.listen.diameter_sctp.is_empty() {
                self.add_fault(
                    at!("diameter", "peer", i, "transport"),
                    "a Diameter node announces its SCTP addresses to its peers; list them in [listen] diameter_sctp",
                );
            }
        }
        if d.sctp.streams == 0 {
            self.add_fault(at!("diameter", "sctp", "streams"), "an association has at least one stream");
        }
        // RFC 3539, 3.4.1: the interval is 6 s or more.
        if d.watchdog.0.as_secs() < 6 {
            self.add_fault(at!("diameter", "watchdog"), "RFC 3539 requires 6 s or more");
        }
        let peers =
            d.peer.iter().enumerate().map(|(i, p)| (at!("diameter", "peer", i, "identity"), &p.identity));
        let own = [("identity", &d.identity), ("realm", &d.realm)];
        for (at, text) in own.map(|(key, text)| (at!("diameter", key), text)).into_iter().chain(peers) {
            if text.is_empty() || !text.is_ascii() || text.contains(char::is_whitespace) {
                self.add_fault(at, format!("\"{text}\" is not a host name such as aaa.example.net"));
            }
        }
    }

    fn check_peer(&mut self, i: usize, peer: &DiameterPeer, plain: bool) {
        self.check_single_certificate_criterion(
            at!("diameter", "peer", i),
            peer.certificate.as_ref(),
            peer.fingerprint,
        );
        let proved = peer.certificate.is_some() || peer.fingerprint.is_some();
        if proved && peer.transport != TransportProtocol::Tls {
            self.add_fault(
                at!("diameter", "peer", i),
                "a certificate needs TLS; add transport = \"tls\", or remove the certificate",
            );
        }
        if plain
            && peer.transport != TransportProtocol::Tls
            && peer.prefix.is_empty()
            && peer.connect.is_none()
        {
            self.add_fault(
                at!("diameter", "peer", i),
                "without TLS only its address identifies a peer; add prefix, or transport = \"tls\"",
            );
        }
    }

    /// Checks that TLS has its files where it is used: the server's certificate, and authorities for its peers.
    pub(super) fn check_tls_requirements(&mut self, file: &ConfigFile) {
        let missing = match &file.tls {
            None => {
                "needs the server's certificate; add [tls] with certificate and key (usher aaa cert init makes them)"
            }
            Some(tls) if tls.ca.is_none() => {
                "needs ca in [tls], the authorities that sign the certificates of its peers"
            }
            Some(_) => return,
        };
        if file.tls.is_none() {
            for (i, method) in file.methods.order.iter().flatten().enumerate() {
                if matches!(method, AuthMethod::EapTls | AuthMethod::Peap | AuthMethod::Ttls) {
                    self.add_fault(at!("methods", "order", i), format!("this method {missing}"));
                }
            }
        }
        for (key, addresses) in [("radsec", &file.listen.radsec), ("diameter_tls", &file.listen.diameter_tls)]
        {
            if !addresses.is_empty() {
                self.add_fault(at!("listen", key), format!("TLS {missing}"));
            }
        }
        if let Some(i) = file.home_server.iter().position(|h| h.transport == TransportProtocol::Tls) {
            self.add_fault(at!("home_server", i, "transport"), format!("TLS {missing}"));
        }
        let peers = file.diameter.as_ref().map_or(&[][..], |d| &d.peer);
        if let Some(i) = peers.iter().position(|p| p.transport == TransportProtocol::Tls) {
            self.add_fault(at!("diameter", "peer", i, "transport"), format!("TLS {missing}"));
        }
    }
}
