//! The endpoint against strongSwan's charon in a network namespace, which needs root.
//!
//! charon protects packets in user space (kernel-libipsec), so the kernel needs no ESP. It then always assumes a NAT,
//! and IKE_AUTH uses port 4500.

mod certificates;
mod host;
mod place;

use host::InteropHost;
use place::CharonNamespace;
use std::sync::Arc;
use usher_crypto::SecretValue;
use usher_eap::method::{PeerMethodFactory, md5, mschapv2};
use usher_ike::machine::{
    ChildSaConfig, ChildlessPolicy, EndReason, IkeCommand, IkeConnectionConfig, IkeEvent, IpsecMode,
    LocalAuth, RemoteAuth,
};
use usher_ike::payload::{Identification, Proposal, TrafficSelector};

/// charon's address and ours.
pub(crate) const THEIRS: &str = "127.0.0.1";
pub(crate) const OURS: &str = "127.0.0.2";

/// charon's configuration: logins by a shared key and by EAP.
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

/// The connection that charon initiates.
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

fn network_selectors(text: &str) -> Option<Vec<TrafficSelector>> {
    let (address, prefix) = text.split_once('/')?;
    Some(vec![TrafficSelector::from_network(address.parse().ok()?, prefix.parse().ok()?)?])
}

fn test_connection(ike: &str, own: &str, traffic: &str) -> IkeConnectionConfig {
    let key = || SecretValue::from(&b"a shared secret"[..]);
    let child = ChildSaConfig {
        name: "net".into(),
        proposals: vec![Proposal::parse_esp_proposal("aes128gcm16-x25519").unwrap()],
        local: network_selectors(traffic),
        remote: network_selectors("10.2.0.0/16"),
        mode: IpsecMode::Tunnel,
        rekey_after: None,
    };
    IkeConnectionConfig {
        name: "site".into(),
        local: Identification::from_fqdn(own),
        remote: Some(Identification::from_fqdn("gw.test")),
        from: None,
        local_auth: LocalAuth::Psk(key()),
        remote_auth: RemoteAuth::Psk(key()),
        proposals: vec![Proposal::parse_ike_proposal(ike).unwrap()],
        children: vec![child],
        childless: ChildlessPolicy::Allow,
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
fn we_and_charon_authenticate_by_shared_key_with_each_suite() {
    let place = CharonNamespace::new(&CONNECTIONS.replace("METHOD", "md5"));
    for (n, suite) in [
        "aes128-sha256-x25519",
        "aes256gcm16-prfsha384-ecp384",
        "chacha20poly1305-prfsha256-modp2048",
        "3des-sha1-modp1024",
    ]
    .into_iter()
    .enumerate()
    {
        let mut host = InteropHost::new(&place, n as u16);
        let sa = host.connect(test_connection(suite, "ini.test", "10.1.0.0/16"));
        let child = host.installed_children().pop().expect("a CHILD_SA is installed");
        assert!(child.encapsulated, "charon takes a NAT to be there");
        // The same algorithms, SPIs and traffic selectors as charon's.
        let listed = place.run_swanctl(&["--list-sas"]);
        for part in
            [format!("{:08x}", child.inbound), format!("{:08x}", child.outbound), "AES_GCM_16-128".into()]
        {
            assert!(listed.contains(&part), "{part} is not in:\n{listed}");
        }
        // Our side rekeys both kinds of SA, and each new one works.
        host.send_command(IkeCommand::RekeyChild { sa, spi: child.inbound });
        host.wait_until("the CHILD_SA is replaced", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Remove { .. })) == 1
        });
        host.send_command(IkeCommand::Rekey(sa));
        host.wait_until("the IKE_SA is replaced", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Ended { reason: EndReason::Rekeyed, .. })) == 1
        });
        let sa = host.rekeyed_sa().expect("there is a new one");
        host.send_command(IkeCommand::Probe(sa));
        host.wait_until("charon lives", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Alive { .. })) == 1
        });
        // And charon's side.
        place.run_swanctl(&["--rekey", "--child", "net"]);
        host.wait_until("charon replaces the CHILD_SA", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Remove { .. })) == 2
        });
        place.run_swanctl(&["--rekey", "--ike", "psk"]);
        host.wait_until("charon replaces the IKE_SA", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Rekeyed { .. })) == 2
        });
        host.wait_until("and ends the old one", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Ended { .. })) == 2
        });
        let sa = host.rekeyed_sa().expect("there is a new one");
        host.send_command(IkeCommand::Delete(sa));
        host.wait_until("it has ended", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Ended { .. })) == 3
        });
        let listed = place.run_swanctl(&["--list-sas"]);
        assert_eq!(listed.trim(), "", "charon has none any more");
        assert_eq!(host.counters().retransmissions, 0);
    }
}

#[test]
fn an_initiator_of_ours_logs_in_to_charon_by_eap() {
    for method in ["md5", "mschapv2"] {
        let place = CharonNamespace::new(&CONNECTIONS.replace("METHOD", method));
        let mut host = InteropHost::new(&place, 0);
        let offer = |password: &[u8]| -> Box<dyn PeerMethodFactory> {
            match method {
                "md5" => Box::new(md5::EapMd5Password::new(password)),
                _ => Box::new(mschapv2::MsChapV2Account::new(b"ann", password)),
            }
        };
        let mut ours = test_connection("aes128-sha256-x25519", "ann.test", "10.3.0.0/16");
        ours.local_auth =
            LocalAuth::Eap { identity: b"ann".to_vec(), methods: Arc::new([offer(b"a long password")]) };
        let sa = host.connect(ours.clone());
        assert_eq!(host.installed_children().len(), 1, "{method}");
        host.send_command(IkeCommand::Delete(sa));
        host.wait_until("it has ended", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Ended { .. })) == 1
        });
        ours.local_auth = LocalAuth::Eap { identity: b"ann".to_vec(), methods: Arc::new([offer(b"wrong")]) };
        host.initiate(ours);
        host.wait_until("it is refused", |events| {
            count_events(events, |e| matches!(e, IkeEvent::Ended { reason: EndReason::Refused, .. })) == 1
        });
    }
}

#[test]
fn charon_and_we_refuse_each_others_wrong_keys() {
    let place = CharonNamespace::new(&CONNECTIONS.replace("METHOD", "md5"));
    let mut host = InteropHost::new(&place, 0);
    let mut ours = test_connection("aes128-sha256-x25519", "ini.test", "10.1.0.0/16");
    ours.local_auth = LocalAuth::Psk(SecretValue::from(&b"another"[..]));
    host.initiate(ours.clone());
    host.wait_until("charon refuses", |events| {
        count_events(events, |e| matches!(e, IkeEvent::Ended { reason: EndReason::Refused, .. })) == 1
    });
    ours.local_auth = LocalAuth::Psk(SecretValue::from(&b"a shared secret"[..]));
    ours.remote_auth = RemoteAuth::Psk(SecretValue::from(&b"another"[..]));
    host.initiate(ours);
    host.wait_until("we refuse", |events| {
        count_events(events, |e| matches!(e, IkeEvent::Ended { reason: EndReason::AuthenticationFailed, .. }))
            == 1
    });
}

#[test]
fn charon_begins_and_we_serve() {
    let place = CharonNamespace::new(&[OUT, &CONNECTIONS[CONNECTIONS.find("secrets").unwrap()..]].concat());
    let mut host = InteropHost::new(&place, 0);
    host.send_command(IkeCommand::Serve(vec![Arc::new(test_connection(
        "aes128-sha256-x25519",
        "ini.test",
        "10.1.0.0/16",
    ))]));
    let initiated =
        place.start_swanctl(&["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    host.wait_until("charon logs in", |events| {
        count_events(events, |e| matches!(e, IkeEvent::Install { .. })) == 1
    });
    let said = initiated.wait_for_output();
    assert!(said.contains("initiate completed successfully"), "{said}");
    let sa = host.established_sa().expect("it is established");
    let child = host.installed_children().pop().expect("a CHILD_SA is installed");
    host.send_command(IkeCommand::RekeyChild { sa, spi: child.inbound });
    host.wait_until("the CHILD_SA is replaced", |events| {
        count_events(events, |e| matches!(e, IkeEvent::Remove { .. })) == 1
    });
    host.send_command(IkeCommand::Rekey(sa));
    host.wait_until("the IKE_SA is replaced", |events| {
        count_events(events, |e| matches!(e, IkeEvent::Ended { .. })) == 1
    });
    let ended = place.start_swanctl(&["--terminate", "--ike", "out", "--timeout", "120"]);
    host.wait_until("charon ends it", |events| {
        count_events(events, |e| matches!(e, IkeEvent::Ended { reason: EndReason::DeletedByPeer, .. })) == 1
    });
    ended.wait_for_output();
}

/// MOBIKE: charon follows us to another address.
#[test]
fn charon_follows_us_to_another_address() {
    let place =
        CharonNamespace::new(&CONNECTIONS.replace("METHOD", "md5").replace("mobike = no", "mobike = yes"));
    let mut host = InteropHost::new(&place, 0);
    let mut ours = test_connection("aes128-sha256-x25519", "ini.test", "10.1.0.0/16");
    ours.mobike = true;
    let sa = host.connect(ours);
    let (local, remote) = (host::secondary_address(), format!("{THEIRS}:4500").parse().unwrap());
    host.send_command(IkeCommand::Move { sa, local, remote });
    host.wait_until("charon has heard of it", |events| {
        count_events(events, |e| matches!(e, IkeEvent::Moved { .. })) == 1
    });
    let listed = place.run_swanctl(&["--list-sas"]);
    assert!(listed.contains(&local.ip().to_string()), "{listed}");
    place.run_swanctl(&["--rekey", "--child", "net"]);
    host.wait_until("charon replaces the CHILD_SA", |events| {
        count_events(events, |e| matches!(e, IkeEvent::Remove { .. })) == 1
    });
    host.send_command(IkeCommand::Delete(sa));
    host.wait_until("it has ended", |events| {
        count_events(events, |e| matches!(e, IkeEvent::Ended { .. })) == 1
    });
}

fn count_events(events: &[IkeEvent], of: impl Fn(&IkeEvent) -> bool) -> usize {
    events.iter().filter(|event| of(event)).count()
}
