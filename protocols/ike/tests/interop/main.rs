//! The endpoint held against strongSwan's charon, in a network namespace of its own. Root may make one.
//!
//! charon protects packets in user space (kernel-libipsec), so that the kernel needs no ESP. With that it always takes a NAT to be
//! between the two, and IKE_AUTH comes on port 4500.

mod certificates;
mod host;
mod place;

use host::Host;
use place::Place;
use std::sync::Arc;
use usher_crypto::Key;
use usher_eap::method::{PeerOffer, md5, mschapv2};
use usher_ike::machine::{
    ChildConfig, Childless, Command, Connection, EndReason, Event, LocalAuth, Mode, RemoteAuth,
};
use usher_ike::payload::{Identification, Proposal, TrafficSelector};

/// charon's address and ours.
pub(crate) const THEIRS: &str = "127.0.0.1";
pub(crate) const OURS: &str = "127.0.0.2";

/// What charon is told: it serves logins by a shared key and by EAP.
const CONNECTIONS: &str = r#"
connections {
  psk {
    version = 2
    proposals = aes128-sha256-x25519, aes256gcm16-prfsha384-ecp384, chacha20poly1305-prfsha256-modp2048, 3des-sha1-modp1024
    mobike = no
    local { auth = psk
            id = gw.test }
    remote { auth = psk
             id = ini.test }
    children { net { local_ts = 10.2.0.0/16
                     remote_ts = 10.1.0.0/16
                     esp_proposals = aes128gcm16-x25519, aes128-sha256-x25519 } }
  }
  eap {
    version = 2
    proposals = aes128-sha256-x25519
    mobike = no
    local { auth = psk
            id = gw.test }
    remote { auth = eap-METHOD
             id = ann.test
             eap_id = ann }
    children { net { local_ts = 10.2.0.0/16
                     remote_ts = 10.3.0.0/16
                     esp_proposals = aes128gcm16-x25519 } }
  }
}
secrets {
  ike-1 { id-a = gw.test
          id-b = ini.test
          secret = "a shared secret" }
  ike-2 { id-a = gw.test
          id-b = ann.test
          secret = "a shared secret" }
  eap-1 { id = ann
          secret = "a long password" }
}
"#;

/// The login that charon begins.
const OUT: &str = r#"
connections {
  out {
    version = 2
    proposals = aes128-sha256-x25519
    mobike = no
    local_addrs = 127.0.0.1
    remote_addrs = 127.0.0.2
    local_port = 4500
    remote_port = 14500
    local { auth = psk
            id = gw.test }
    remote { auth = psk
             id = ini.test }
    children { net { local_ts = 10.2.0.0/16
                     remote_ts = 10.1.0.0/16
                     esp_proposals = aes128gcm16-x25519 } }
  }
}
"#;

fn network(text: &str) -> Option<Vec<TrafficSelector>> {
    let (address, prefix) = text.split_once('/')?;
    Some(vec![TrafficSelector::network(address.parse().ok()?, prefix.parse().ok()?)?])
}

fn connection(ike: &str, own: &str, traffic: &str) -> Connection {
    let key = || Key::from(&b"a shared secret"[..]);
    let child = ChildConfig {
        name: "net".into(),
        proposals: vec![Proposal::esp("aes128gcm16-x25519").unwrap()],
        local: network(traffic),
        remote: network("10.2.0.0/16"),
        mode: Mode::Tunnel,
        rekey_after: None,
    };
    Connection {
        name: "site".into(),
        local: Identification::fqdn(own),
        remote: Some(Identification::fqdn("gw.test")),
        from: None,
        local_auth: LocalAuth::Psk(key()),
        remote_auth: RemoteAuth::Psk(key()),
        proposals: vec![Proposal::ike(ike).unwrap()],
        children: vec![child],
        childless: Childless::Allow,
        mobike: false,
        fragmentation: true,
        address: false,
        rekey_after: None,
        liveness: None,
        unique: false,
    }
}

/// IPv6 Ready: EN.I.1.1.6.1, EN.I.1.1.6.2, EN.R.1.1.6.1, EN.R.1.1.6.2.
#[test]
fn an_initiator_of_ours_and_charon_prove_themselves_by_a_shared_key_with_each_suite() {
    let place = Place::new(&CONNECTIONS.replace("METHOD", "md5"));
    for (n, suite) in [
        "aes128-sha256-x25519",
        "aes256gcm16-prfsha384-ecp384",
        "chacha20poly1305-prfsha256-modp2048",
        "3des-sha1-modp1024",
    ]
    .into_iter()
    .enumerate()
    {
        let mut host = Host::new(&place, n as u16);
        let sa = host.connect(connection(suite, "ini.test", "10.1.0.0/16"));
        let child = host.installed().pop().expect("a CHILD_SA is installed");
        assert!(child.encapsulated, "charon takes a NAT to be there");
        // The same algorithms, SPIs and traffic as charon's.
        let listed = place.swanctl(&["--list-sas"]);
        for part in
            [format!("{:08x}", child.inbound), format!("{:08x}", child.outbound), "AES_GCM_16-128".into()]
        {
            assert!(listed.contains(&part), "{part} is not in:\n{listed}");
        }
        // Both kinds are replaced from our side, and each new one works.
        host.tell(Command::RekeyChild { sa, spi: child.inbound });
        host.wait("the CHILD_SA is replaced", |events| {
            count(events, |e| matches!(e, Event::Remove { .. })) == 1
        });
        host.tell(Command::Rekey(sa));
        host.wait("the IKE_SA is replaced", |events| {
            count(events, |e| matches!(e, Event::Ended { reason: EndReason::Rekeyed, .. })) == 1
        });
        let sa = host.rekeyed().expect("there is a new one");
        host.tell(Command::Probe(sa));
        host.wait("charon lives", |events| count(events, |e| matches!(e, Event::Alive { .. })) == 1);
        // And from charon's.
        place.swanctl(&["--rekey", "--child", "net"]);
        host.wait("charon replaces the CHILD_SA", |events| {
            count(events, |e| matches!(e, Event::Remove { .. })) == 2
        });
        place.swanctl(&["--rekey", "--ike", "psk"]);
        host.wait("charon replaces the IKE_SA", |events| {
            count(events, |e| matches!(e, Event::Rekeyed { .. })) == 2
        });
        host.wait("and ends the old one", |events| count(events, |e| matches!(e, Event::Ended { .. })) == 2);
        let sa = host.rekeyed().expect("there is a new one");
        host.tell(Command::Delete(sa));
        host.wait("it has ended", |events| count(events, |e| matches!(e, Event::Ended { .. })) == 3);
        let listed = place.swanctl(&["--list-sas"]);
        assert_eq!(listed.trim(), "", "charon has none any more");
        assert_eq!(host.counters().retransmissions, 0);
    }
}

#[test]
fn an_initiator_of_ours_logs_in_to_charon_by_eap() {
    for method in ["md5", "mschapv2"] {
        let place = Place::new(&CONNECTIONS.replace("METHOD", method));
        let mut host = Host::new(&place, 0);
        let offer = |password: &[u8]| -> Box<dyn PeerOffer> {
            match method {
                "md5" => Box::new(md5::Password::new(password)),
                _ => Box::new(mschapv2::Account::new(b"ann", password)),
            }
        };
        let mut ours = connection("aes128-sha256-x25519", "ann.test", "10.3.0.0/16");
        ours.local_auth =
            LocalAuth::Eap { identity: b"ann".to_vec(), methods: Arc::new([offer(b"a long password")]) };
        let sa = host.connect(ours.clone());
        assert_eq!(host.installed().len(), 1, "{method}");
        host.tell(Command::Delete(sa));
        host.wait("it has ended", |events| count(events, |e| matches!(e, Event::Ended { .. })) == 1);
        ours.local_auth = LocalAuth::Eap { identity: b"ann".to_vec(), methods: Arc::new([offer(b"wrong")]) };
        host.initiate(ours);
        host.wait("it is refused", |events| {
            count(events, |e| matches!(e, Event::Ended { reason: EndReason::Refused, .. })) == 1
        });
    }
}

#[test]
fn a_wrong_key_is_refused_by_charon_and_charon_with_a_wrong_key_by_us() {
    let place = Place::new(&CONNECTIONS.replace("METHOD", "md5"));
    let mut host = Host::new(&place, 0);
    let mut ours = connection("aes128-sha256-x25519", "ini.test", "10.1.0.0/16");
    ours.local_auth = LocalAuth::Psk(Key::from(&b"another"[..]));
    host.initiate(ours.clone());
    host.wait("charon refuses", |events| {
        count(events, |e| matches!(e, Event::Ended { reason: EndReason::Refused, .. })) == 1
    });
    ours.local_auth = LocalAuth::Psk(Key::from(&b"a shared secret"[..]));
    ours.remote_auth = RemoteAuth::Psk(Key::from(&b"another"[..]));
    host.initiate(ours);
    host.wait("we refuse", |events| {
        count(events, |e| matches!(e, Event::Ended { reason: EndReason::AuthenticationFailed, .. })) == 1
    });
}

#[test]
fn charon_begins_and_we_serve() {
    let place = Place::new(&[OUT, &CONNECTIONS[CONNECTIONS.find("secrets").unwrap()..]].concat());
    let mut host = Host::new(&place, 0);
    host.tell(Command::Serve(vec![Arc::new(connection("aes128-sha256-x25519", "ini.test", "10.1.0.0/16"))]));
    let initiated =
        place.start_swanctl(&["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    host.wait("charon logs in", |events| count(events, |e| matches!(e, Event::Install { .. })) == 1);
    let said = initiated.end();
    assert!(said.contains("initiate completed successfully"), "{said}");
    let sa = host.established().expect("it is established");
    let child = host.installed().pop().expect("a CHILD_SA is installed");
    host.tell(Command::RekeyChild { sa, spi: child.inbound });
    host.wait("the CHILD_SA is replaced", |events| count(events, |e| matches!(e, Event::Remove { .. })) == 1);
    host.tell(Command::Rekey(sa));
    host.wait("the IKE_SA is replaced", |events| count(events, |e| matches!(e, Event::Ended { .. })) == 1);
    let ended = place.start_swanctl(&["--terminate", "--ike", "out", "--timeout", "120"]);
    host.wait("charon ends it", |events| {
        count(events, |e| matches!(e, Event::Ended { reason: EndReason::DeletedByPeer, .. })) == 1
    });
    ended.end();
}

/// MOBIKE: charon follows us to another address.
#[test]
fn charon_follows_us_to_another_address() {
    let place = Place::new(&CONNECTIONS.replace("METHOD", "md5").replace("mobike = no", "mobike = yes"));
    let mut host = Host::new(&place, 0);
    let mut ours = connection("aes128-sha256-x25519", "ini.test", "10.1.0.0/16");
    ours.mobike = true;
    let sa = host.connect(ours);
    let (local, remote) = (host::elsewhere(), format!("{THEIRS}:4500").parse().unwrap());
    host.tell(Command::Move { sa, local, remote });
    host.wait("charon has heard of it", |events| count(events, |e| matches!(e, Event::Moved { .. })) == 1);
    let listed = place.swanctl(&["--list-sas"]);
    assert!(listed.contains(&local.ip().to_string()), "{listed}");
    place.swanctl(&["--rekey", "--child", "net"]);
    host.wait("charon replaces the CHILD_SA", |events| {
        count(events, |e| matches!(e, Event::Remove { .. })) == 1
    });
    host.tell(Command::Delete(sa));
    host.wait("it has ended", |events| count(events, |e| matches!(e, Event::Ended { .. })) == 1);
}

fn count(events: &[Event], of: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| of(event)).count()
}
