//! The IKEv2 gateway and client with strongSwan's charon, in both roles and in one network namespace: charon at
//! 127.0.0.1, ours at 127.0.0.2. charon assumes a NAT, as always with ESP in user space.

mod certificates;
mod life;

use crate::certificates::write_chain;
use crate::charon::CharonNamespace;
use crate::freeradius::FreeRadius;
use crate::place::{RunningProgram, SECRET, TEST_TIMEOUT, TempDir, USHER, find_program};
use std::process::Command;
use std::time::{Duration, Instant};

/// charon as initiator, with each authentication method.
fn initiator_config(local: &str) -> String {
    format!(
        r#"
connections {{
  out {{
    version = 2
    proposals = aes128-sha256-x25519
    mobike = no
    local_addrs = 127.0.0.1
    remote_addrs = 127.0.0.2
    local_port = 4500
    remote_port = 14500
    vips = 0.0.0.0
    local {{ {local} }}
    remote {{ auth = psk
             id = gw.test }}
    children {{ net {{ remote_ts = 10.2.0.0/16
                     esp_proposals = aes128gcm16-x25519 }} }}
  }}
}}
secrets {{
  ike-1 {{ id-a = gw.test
          id-b = ini.test
          secret = "a shared secret" }}
  ike-2 {{ id-a = gw.test
          id-b = user@example.org
          secret = "a shared secret" }}
  eap-1 {{ id = user@example.org
          secret = "password" }}
}}
"#
    )
}

/// charon as responder.
fn responder_config(remote: &str) -> String {
    format!(
        r#"
connections {{
  in {{
    version = 2
    proposals = aes256gcm16-prfsha384-ecp384, aes128-sha256-x25519
    pools = inner
    local {{ auth = psk
            id = gw.test }}
    remote {{ {remote} }}
    children {{ net {{ local_ts = 10.2.0.0/16
                     esp_proposals = aes128gcm16-x25519 }} }}
  }}
}}
pools {{
  inner {{ addrs = 10.9.0.0/24
          dns = 10.9.0.1 }}
}}
secrets {{
  ike-1 {{ id-a = gw.test
          id-b = ini.test
          secret = "a shared secret" }}
  ike-2 {{ id-a = gw.test
          id-b = ann.test
          secret = "a shared secret" }}
  eap-1 {{ id = ann
          secret = "a long password" }}
}}
"#
    )
}

/// Returns a command in charon's namespace.
fn charon_command(charon: &CharonNamespace, name: &str) -> Command {
    let mut command = find_program("ip");
    command.args(["netns", "exec", charon.name(), name]);
    command
}

const LISTEN: &str = "[listen]\naddresses = [\"127.0.0.2\"]\nport = 1500\nnat_port = 14500\ncontrol = \"ike.sock\"\n[data]\nmode = \"none\"\n";

fn start_gateway(charon: &CharonNamespace, place: &TempDir, text: &str) -> RunningProgram {
    place.write_private("gateway.toml", &format!("{LISTEN}{text}"));
    let mut command = charon_command(charon, USHER);
    command.args(["ike", "serve", "--config", "gateway.toml"]);
    place.start_program("gateway", &mut command, "started")
}

/// Returns a connection to charon with these further settings.
fn home_connection(text: &str) -> String {
    let connection = "[[connection]]\nname = \"home\"\nremote_id = \"gw.test\"\nremote_address = \"127.0.0.1\"\n\
                      remote_port = 4500\naddress = true\n";
    let child = "[[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n";
    format!("{connection}{text}{child}")
}

pub(crate) fn start_client(charon: &CharonNamespace, place: &TempDir, text: &str) -> RunningProgram {
    place.write_private("client.toml", &format!("{LISTEN}{}", home_connection(text)));
    let mut command = charon_command(charon, USHER);
    command.args(["ike", "connect", "home", "--config", "client.toml"]);
    place.start_program("client", &mut command, "listening")
}

#[track_caller]
pub(crate) fn wait_for_charon(what: &str, charon: &CharonNamespace, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{what}\n{}", charon.charon_log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

const PSK_GATEWAY: &str = "[[connection]]\nname = \"site\"\nlocal_id = \"gw.test\"\nremote_id = \"ini.test\"\nlocal_auth = \"psk\"\n\
                           remote_auth = \"psk\"\nsecret = \"a shared secret\"\npools = [\"inner\"]\n\
                           [[connection.child]]\nname = \"net\"\nlocal = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n";
const POOL: &str = "[[pool]]\nname = \"inner\"\nranges = [\"10.9.0.0/24\"]\n";

/// Runs ike-scan on a gateway with these proposals: IKEv2, IKEv2 with a 2048-bit group, and IKEv1.
fn scan_gateway(place: &TempDir, proposals: &str) -> [String; 3] {
    let free = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, nat_port) = (free(), free());
    let listen = format!(
        "[listen]\naddresses = [\"127.0.0.1\"]\nport = {port}\nnat_port = {nat_port}\ncontrol = \"scanned.sock\"\n"
    );
    let connection = "[[connection]]\nname = \"all\"\nlocal_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
                      secret = \"a shared secret\"\n";
    place.write_private("scanned.toml", &format!("{listen}{connection}{proposals}"));
    let mut command = find_program(USHER);
    command.args(["ike", "serve", "--config", "scanned.toml"]);
    let _gateway = place.start_program("scanned", &mut command, "started");
    // A busy gateway gets more time where it must respond.
    let patient = "--timeout=60000";
    [&["--ikev2", patient][..], &["--ikev2", "--dhgroup=14", patient], &["--retry=1", "--timeout=300"]].map(
        |how| {
            let mut scan = find_program("ike-scan");
            let to = [format!("--dport={port}"), "--sport=0".into(), "127.0.0.1".into()];
            let said = scan.args(how).args(to).output().expect("ike-scan is there");
            String::from_utf8_lossy(&said.stdout).into_owned()
        },
    )
}

#[test]
fn ike_scan_gets_sane_answers() {
    let place = TempDir::new();
    // ike-scan proposes only SHA-1 and MD5.
    let [refused, again, old] = scan_gateway(&place, "");
    assert!(refused.contains("Notify message 14 (NO_PROPOSAL_CHOSEN)"), "{refused}");
    assert!(again.contains("NO_PROPOSAL_CHOSEN"), "{again}");
    assert!(old.contains("0 returned handshake; 0 returned notify"), "{old}");
    let [other, chosen, _] = scan_gateway(&place, "proposals = [\"aes256-sha1-modp2048\"]\n");
    assert!(other.contains("Notify message 17 (INVALID_KE_PAYLOAD)"), "{other}");
    let suite = "SA=(Encr=AES_CBC,KeyLength=256 Prf=HMAC_SHA1 Integ=HMAC_SHA1_96 DH_Group=14:modp2048)";
    assert!(chosen.contains("IKEv2 SA_INIT Handshake returned") && chosen.contains(suite), "{chosen}");
}

#[test]
fn charon_logs_in_by_shared_key_and_gets_a_virtual_address() {
    let place = TempDir::new();
    let charon = CharonNamespace::new(&initiator_config("auth = psk\n id = ini.test"));
    let mut ours = start_gateway(&charon, &place, &format!("{PSK_GATEWAY}{POOL}"));
    let said = charon.run_swanctl(&["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    assert!(said.contains("initiate completed successfully"), "{said}\n{}", ours.log());
    ours.wait_for("established");
    let listed = charon.run_swanctl(&["--list-sas"]);
    assert!(listed.contains("[10.9.0."), "it has an inner address: {listed}");
    // We rekey both kinds of SA, and end the IKE_SA.
    let ask = |words: &[&str]| {
        let mut command = charon_command(&charon, USHER);
        command.args(["ike"]).args(words).args(["--config", "gateway.toml"]).current_dir(place.path(""));
        let done = command.output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    ask(&["rekey", "ini.test", "--children"]);
    ours.wait_for("CHILD_SA removed");
    ask(&["rekey", "ini.test"]);
    ours.wait_for("replaced");
    assert!(ask(&["status"]).contains("ini.test"));
    ask(&["down", "ini.test"]);
    wait_for_charon("charon has none any more", &charon, || {
        charon.run_swanctl(&["--list-sas"]).trim().is_empty()
    });
}

#[test]
fn our_client_logs_in_to_charon_by_a_shared_key_and_by_eap() {
    for (remote, more) in [
        (
            "auth = psk\n id = ini.test",
            "local_id = \"ini.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\nsecret = \"a shared secret\"\n",
        ),
        (
            "auth = eap-md5\n id = ann.test\n eap_id = ann",
            "local_id = \"ann.test\"\nlocal_auth = \"eap\"\nremote_auth = \"psk\"\nsecret = \"a shared secret\"\n\
             eap_identity = \"ann\"\neap_methods = [\"md5\"]\npassword = \"a long password\"\n",
        ),
        (
            "auth = eap-mschapv2\n id = ann.test\n eap_id = ann",
            "local_id = \"ann.test\"\nlocal_auth = \"eap\"\nremote_auth = \"psk\"\nsecret = \"a shared secret\"\n\
             eap_identity = \"ann\"\neap_methods = [\"mschapv2\"]\npassword = \"a long password\"\n",
        ),
    ] {
        let place = TempDir::new();
        let charon = CharonNamespace::new(&responder_config(remote));
        let mut ours = start_client(&charon, &place, more);
        ours.wait_for("addresses=\"10.9.0.");
        ours.wait_for("CHILD_SA");
        wait_for_charon("charon lists both SAs", &charon, || {
            let listed = charon.run_swanctl(&["--list-sas"]);
            listed.contains("ESTABLISHED") && listed.contains("INSTALLED")
        });
        // charon rekeys the IKE_SA, and ends it.
        charon.run_swanctl(&["--rekey", "--ike", "in"]);
        ours.wait_for("replaced");
        let ended = charon.start_swanctl(&["--terminate", "--ike", "in", "--timeout", "120"]);
        ours.wait_for("the peer ended it");
        ended.wait_for_output();
        drop(ours);
    }
}

const EAP_GATEWAY: &str = "[[connection]]\nname = \"users\"\nlocal_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"eap\"\n\
                           secret = \"a shared secret\"\npools = [\"inner\"]\n\
                           [[connection.child]]\nname = \"net\"\nlocal = [\"10.2.0.0/16\"]\nproposals = [\"aes128gcm16-x25519\"]\n";

/// Returns a gateway that uses a RADIUS server at these ports.
fn radius_gateway_config(port: u16, acct: u16) -> String {
    format!(
        "{EAP_GATEWAY}{POOL}[aaa]\nnas_identifier = \"gw.test\"\naccounting = true\n[[aaa.radius]]\naddress = \"127.0.0.1:{port}\"\n\
         acct_address = \"127.0.0.1:{acct}\"\nsecret = \"{SECRET}\"\n"
    )
}

#[test]
fn charon_logs_in_by_eap_at_our_aaa_server_behind_our_gateway() {
    let place = TempDir::new();
    write_chain(&place, "server", 2);
    write_chain(&place, "client", 1);
    let read = |name: &str| std::fs::read(place.path(name)).unwrap();
    let aaa = format!(
        "state_dir = \"{}\"\nreject_delay = \"0 s\"\n[listen]\nauth = [\"127.0.0.1:1812\"]\nacct = [\"127.0.0.1:1813\"]\n\
         [methods]\norder = [\"eap-tls\", \"eap-md5\"]\n[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nca = \"root.pem\"\n\
         [[client]]\nname = \"gateway\"\nprefix = \"127.0.0.0/8\"\nsecret = \"{SECRET}\"\n\
         extended_master_secret = \"optional\"\n[users]\nstore = \"memory\"\n[[user]]\nname = \"user@example.org\"\npassword = \"password\"\n\
         [[user]]\nname = \"station@usher.test\"\npassword = \"of no use\"\n",
        place.path_text("state")
    );
    place.write_private("aaa.toml", &aaa);
    for (method, user, files) in [
        ("md5", "user@example.org", Vec::new()),
        (
            "tls",
            "station@usher.test",
            vec![
                ("x509/user.pem", read("client.pem")),
                ("x509ca/root.pem", read("root.pem")),
                ("rsa/user.pem", read("client.key")),
            ],
        ),
    ] {
        let certs = if method == "tls" { "\n certs = user.pem" } else { "" };
        let local =
            format!("auth = eap-{method}\n id = {user}\n eap_id = {user}\n aaa_id = aaa.usher.test{certs}");
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|(name, octets)| (*name, octets.as_slice())).collect();
        let charon = CharonNamespace::with_files(
            &initiator_config(&local).replace(
                "user@example.org\n          secret = \"a shared",
                &format!("{user}\n          secret = \"a shared"),
            ),
            &files,
        );
        let mut command = charon_command(&charon, USHER);
        command.args(["aaa", "serve", "--config", "aaa.toml"]);
        let server = place.start_program("aaa", &mut command, "started");
        let mut ours = start_gateway(&charon, &place, &radius_gateway_config(1812, 1813));
        let said = charon.run_swanctl(&["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
        assert!(
            said.contains("initiate completed successfully"),
            "{method}: {said}\n{}\n{}\n{}",
            ours.log(),
            server.log(),
            charon.charon_log()
        );
        ours.wait_for(&format!("peer={user}"));
        assert_eq!(ours.terminate(), Some(0));
        drop(server);
    }
}

#[test]
fn charon_logs_in_by_eap_at_freeradius_behind_our_gateway() {
    let place = TempDir::new();
    write_chain(&place, "server", 2);
    let local = "auth = eap-md5\n id = user@example.org\n eap_id = user@example.org";
    let charon = CharonNamespace::new(&initiator_config(local));
    let radius = FreeRadius::start_by(&place, None, charon_command(&charon, "freeradius"));
    // Without accounting: no server listens there.
    let text = radius_gateway_config(radius.port, radius.port + 1).replace("accounting = true\n", "");
    let mut ours = start_gateway(&charon, &place, &text);
    let said = charon.run_swanctl(&["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    assert!(
        said.contains("initiate completed successfully"),
        "{said}\n{}\n{}",
        ours.log(),
        charon.charon_log()
    );
    ours.wait_for("peer=user@example.org");
    drop(ours);
}
