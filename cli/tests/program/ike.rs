//! `usher ike`: a gateway and clients on loopback, each a separate process.

use crate::aaa::daemon::{DaemonProcess, write_private};
use crate::place::{TempDir, own_address, own_port, own_socket, wait_until};
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};

/// A gateway on loopback. Clients use the second of its ports.
pub(crate) struct GatewayProcess {
    pub(crate) daemon: DaemonProcess,
    nat_port: u16,
}

impl GatewayProcess {
    pub(crate) fn new(place: &TempDir, more: &str) -> Self {
        let (host, port, nat_port) = (own_address(), own_port(), own_port());
        let text = format!(
            "key_log = \"keys\"\n[listen]\naddresses = [\"{host}\"]\nport = {port}\nnat_port = {nat_port}\n\
             control = \"ike.sock\"\n{more}\n[data]\nmode = \"none\"\n"
        );
        write_private(place, "gateway.toml", &text);
        let daemon = DaemonProcess::run_command(&mut place.usher_command(&[
            "ike",
            "serve",
            "--config",
            "gateway.toml",
        ]));
        daemon.wait_for_log("started");
        Self { daemon, nat_port }
    }

    /// Returns the address that clients use.
    pub(crate) fn nat_address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(own_address(), self.nat_port)
    }

    /// Writes a client's file.
    pub(crate) fn write_client_config(&self, place: &TempDir, name: &str, more: &str) {
        let (host, port, nat_port) = (own_address(), own_port(), own_port());
        let text = format!(
            "[listen]\naddresses = [\"{host}\"]\nport = {port}\nnat_port = {nat_port}\ncontrol = \"{name}.sock\"\n\
             [data]\nmode = \"none\"\n[limits]\nretransmission = \"300 ms\"\n\
             [[connection]]\nname = \"home\"\nremote_id = \"gw.test\"\nremote_address = \"{host}\"\nremote_port = {}\n{more}",
            self.nat_port
        );
        write_private(place, name, &text);
    }
}

const PSK_GATEWAY: &str = "[[connection]]\nname = \"site\"\nlocal_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
                           secret = \"a shared secret\"\npools = [\"inner\"]\n\
                           [[connection.child]]\nname = \"net\"\nlocal = [\"10.2.0.0/16\"]\n\
                           [[pool]]\nname = \"inner\"\nranges = [\"10.9.0.0/24\"]\n";
const PSK: &str = "local_id = \"ini.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\nsecret = \"a shared secret\"\naddress = true\n";
const CHILD: &str = "[[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\n";

#[test]
fn a_client_connects_and_the_gateway_lists_rekeys_and_ends_sas() {
    let place = TempDir::new();
    let metrics = own_socket();
    let more = PSK_GATEWAY.replace("[[connection]]\n", "");
    let gateway = GatewayProcess::new(&place, &format!("metrics = \"{metrics}\"\n[[connection]]\n{more}"));
    gateway.write_client_config(&place, "home.toml", &format!("{PSK}{CHILD}"));
    let client = DaemonProcess::run_command(&mut place.usher_command(&[
        "ike",
        "connect",
        "home",
        "--config",
        "home.toml",
    ]));
    client.wait_for_log("established");
    client.wait_for_log("addresses assigned");
    let ask = |words: &[&str]| place.run_usher(&[&["ike"], words, &["--config", "gateway.toml"]].concat());
    let status = || ask(&["status", "--json"]).with_code(0).stdout_json();
    let before = status();
    let sa = &before["sas"][0];
    assert_eq!(
        (sa["identity"].as_str(), sa["role"].as_str()),
        (Some("ini.test"), Some("responder")),
        "{before}"
    );
    assert!(sa["addresses"][0].as_str().unwrap().starts_with("10.9.0."), "{before}");
    assert_eq!(sa["children"][0]["name"], "net", "{before}");
    assert_eq!(
        (before["pools"][0]["used"].as_u64(), before["counters"]["sessions"].as_u64()),
        (Some(1), Some(1))
    );
    let people = ask(&["status"]).with_code(0).out;
    assert!(people.starts_with("1 IKE_SAs, 0 half open; pool inner: 1 of 254\n#"), "{people}");
    assert!(people.contains("10.2.0.0/16"), "{people}");
    // The metrics for Prometheus.
    let mut stream = TcpStream::connect(metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("usher_ike_sas 1\n") && text.contains("usher_ike_pool_used{pool=\"inner\"} 1\n"),
        "{text}"
    );
    // Both kinds of SAs are rekeyed.
    assert_eq!(ask(&["rekey", "ini.test"]).with_code(0).out, "SAs to be replaced: 1\n");
    wait_until("it is replaced", || status()["sas"][0]["spis"] != sa["spis"]);
    assert_eq!(ask(&["rekey", "--children", "--json"]).with_code(0).stdout_json()["sas"], 1);
    wait_until("its child too", || {
        let now = status();
        now["sas"][0]["children"][0]["inbound"] != sa["children"][0]["inbound"]
            && now["sas"].as_array().unwrap().len() == 1
    });
    let nobody = ask(&["down", "eve.test"]);
    assert!(nobody.code == Some(1) && nobody.err.contains("no IKE_SA matches eve.test"), "{nobody:?}");
    assert_eq!(ask(&["down", "ini.test"]).with_code(0).out, "SAs to be ended: 1\n");
    client.wait_for_log("the peer ended it");
    assert_eq!(client.terminate(), Some(0), "it had been there");
    assert_eq!(status()["sas"].as_array().unwrap().len(), 0);
    // SPIs, keys and algorithms of the first IKE_SA and of its successor, for Wireshark.
    let keys = std::fs::read_to_string(place.path("keys")).unwrap();
    assert_eq!(keys.lines().count(), 2, "{keys}");
    assert!(keys.contains("\"AES-GCM-256 with 16 octet ICV [RFC5282]\",,,\"NONE [RFC4306]\""), "{keys}");
    assert_eq!(gateway.daemon.terminate(), Some(0));
}

#[test]
fn a_client_that_is_refused_says_why_and_ends() {
    let place = TempDir::new();
    let gateway = GatewayProcess::new(&place, PSK_GATEWAY);
    gateway.write_client_config(&place, "wrong.toml", &PSK.replace("a shared secret", "another secret"));
    let said = place.run_usher(&["ike", "connect", "home", "--config", "wrong.toml"]);
    assert!(said.code == Some(1) && said.err.contains("rejected this side's identity or proof"), "{said:?}");
    gateway.daemon.wait_for_log("the authentication of the peer failed");
    let proposals = format!("{PSK}proposals = [\"3des-sha1-modp1024\"]\n");
    gateway.write_client_config(&place, "weak.toml", &proposals);
    let said = place.run_usher(&["ike", "connect", "home", "--config", "weak.toml"]);
    assert!(said.code == Some(1) && said.err.contains("no common proposal"), "{said:?}");
    let unknown = place.run_usher(&["ike", "connect", "hom", "--config", "weak.toml"]);
    assert!(unknown.code == Some(2) && unknown.err.contains("did you mean \"home\"?"), "{unknown:?}");
}

#[test]
fn a_running_gateway_starts_connections_and_ends_them_on_exit() {
    let place = TempDir::new();
    let gateway = GatewayProcess::new(&place, PSK_GATEWAY);
    let (host, port) = (own_address(), gateway.nat_port);
    let start = "start = true\nretry = \"1 s\"\n";
    // The gateway rejects this proposal, so the client retries each second.
    let vain = format!(
        "[[connection]]\nname = \"vain\"\nremote_id = \"gw.test\"\nremote_address = \"{host}\"\nremote_port = {port}\n\
         {PSK}{start}proposals = [\"3des-sha1-modp1024\"]\n"
    );
    gateway.write_client_config(&place, "home.toml", &format!("{PSK}{start}{CHILD}{vain}"));
    let client =
        DaemonProcess::run_command(&mut place.usher_command(&["ike", "serve", "--config", "home.toml"]));
    client.wait_for_log("established");
    let ask = |words: &[&str]| place.run_usher(&[&["ike"], words, &["--config", "home.toml"]].concat());
    let sas = || ask(&["status", "--json"]).with_code(0).stdout_json()["sas"].as_array().unwrap().len();
    ask(&["down", "home"]).with_code(0);
    wait_until("it has ended", || sas() == 0);
    // A connection that was ended does not restart by itself. The other one does meanwhile, at the same interval.
    let attempts = || client.log().matches("no common proposal").count();
    let before = attempts();
    wait_until("the other is begun again", || attempts() >= before + 3);
    assert_eq!(sas(), 0);
    let begun = ask(&["connect", "home", "--json"]).with_code(0).stdout_json();
    assert!(begun["sa"].is_u64(), "{begun}");
    wait_until("it is there again", || sas() == 1);
    assert_eq!(client.terminate(), Some(0));
    gateway.daemon.wait_for_log("the peer ended it");
    let gone = ask(&["status"]);
    assert!(gone.code == Some(1) && gone.err.contains("start it with: usher ike serve"), "{gone:?}");
}

#[test]
fn users_log_in_by_eap_at_our_aaa_server_which_is_told_of_them() {
    users_log_in(false);
}

#[test]
fn users_log_in_at_an_aaa_server_in_the_gateways_own_program() {
    users_log_in(true);
}

/// Users log in by EAP, with an AAA server in a separate process or in the gateway's (`within`).
fn users_log_in(within: bool) {
    let place = TempDir::new();
    let (auth, acct) = (own_socket(), own_socket());
    let secret = "a secret of RADIUS";
    let aaa = format!(
        "state_dir = \"state\"\nreject_delay = \"0 s\"\n[methods]\norder = [\"eap-md5\", \"eap-mschapv2\"]\n[listen]\nauth = [\"{auth}\"]\nacct = [\"{acct}\"]\n\
         [[client]]\nname = \"gateway\"\nprefix = \"127.0.0.0/8\"\nsecret = \"{secret}\"\n\
         [users]\nstore = \"memory\"\n[[user]]\nname = \"ann\"\npassword = \"right\"\n"
    );
    write_private(&place, "aaa.toml", &aaa);
    let server = (!within).then(|| {
        DaemonProcess::run_command(&mut place.usher_command(&["aaa", "serve", "--config", "aaa.toml"]))
    });
    if let Some(server) = &server {
        server.wait_for_log("started");
    }
    let asked = match within {
        true => "server = \"aaa.toml\"\n".to_owned(),
        false => format!(
            "[[aaa.radius]]\naddress = \"{auth}\"\nacct_address = \"{acct}\"\nsecret = \"{secret}\"\n"
        ),
    };
    let more = format!(
        "[[connection]]\nname = \"users\"\nlocal_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"eap\"\n\
         secret = \"a shared secret\"\npools = [\"inner\"]\n[[pool]]\nname = \"inner\"\nranges = [\"10.9.0.0/24\"]\n\
         [aaa]\nnas_identifier = \"gw.test\"\naccounting = true\n{asked}"
    );
    let gateway = GatewayProcess::new(&place, &more);
    for method in ["md5", "mschapv2"] {
        let user = |password: &str| {
            format!(
                "local_id = \"ann\"\nlocal_auth = \"eap\"\nremote_auth = \"psk\"\nsecret = \"a shared secret\"\n\
                 eap_identity = \"ann\"\neap_methods = [\"{method}\"]\npassword = \"{password}\"\naddress = true\n"
            )
        };
        gateway.write_client_config(&place, "ann.toml", &user("right"));
        let client = DaemonProcess::run_command(
            &mut place.usher_command(&["ike", "connect", "home", "--config", "ann.toml"]),
        );
        client.wait_for_log("addresses assigned");
        let status = place
            .run_usher(&["ike", "status", "--json", "--config", "gateway.toml"])
            .with_code(0)
            .stdout_json();
        assert_eq!(status["sas"][0]["user"], "ann", "{method}: {status}");
        let session = status["sas"][0]["session"].as_str().unwrap().to_owned();
        wait_until("the AAA server knows the session", || {
            place
                .run_usher(&["aaa", "session", "list", "--json", "--config", "aaa.toml"])
                .out
                .contains(&session)
        });
        assert_eq!(client.terminate(), Some(0));
        wait_until("and its end", || {
            !place
                .run_usher(&["aaa", "session", "list", "--json", "--config", "aaa.toml"])
                .out
                .contains(&session)
        });
        gateway.write_client_config(&place, "wrong.toml", &user("wrong"));
        let said = place.run_usher(&["ike", "connect", "home", "--config", "wrong.toml"]);
        assert_eq!(said.code, Some(1), "{method}: {said:?}");
        gateway.daemon.wait_for_log("login failed");
    }
}

#[test]
fn a_gateway_on_several_threads_is_one_to_whoever_asks() {
    let place = TempDir::new();
    // These are further keys of [listen].
    let more =
        PSK_GATEWAY.replace("remote_id = \"ini.test\"\n", "").replace("10.9.0.0/24", "10.9.0.1-10.9.0.8");
    // Clients that vanish are soon detected.
    let limits = "[limits]\nretransmission = \"200 ms\"\nretransmissions = 2\n";
    let gateway = GatewayProcess::new(&place, &format!("shards = 2\n{more}{limits}"));
    let ask = |words: &[&str]| place.run_usher(&[&["ike"], words, &["--config", "gateway.toml"]].concat());
    let clients: Vec<DaemonProcess> = (0..8)
        .map(|n| {
            let (name, own) = (format!("{n}.toml"), PSK.replace("ini.test", &format!("ini{n}.test")));
            gateway.write_client_config(&place, &name, &format!("{own}{CHILD}"));
            let client = DaemonProcess::run_command(
                &mut place.usher_command(&["ike", "connect", "home", "--config", &name]),
            );
            client.wait_for_log("addresses assigned");
            client
        })
        .collect();
    let status = ask(&["status", "--json"]).with_code(0).stdout_json();
    let sas = status["sas"].as_array().unwrap();
    assert_eq!((sas.len(), status["counters"]["sessions"].as_u64()), (8, Some(8)), "{status}");
    let all = |what: &dyn Fn(&serde_json::Value) -> String| -> std::collections::BTreeSet<String> {
        sas.iter().map(what).collect()
    };
    assert_eq!(all(&|sa| sa["addresses"][0].to_string()).len(), 8, "{status}");
    assert_eq!(all(&|sa| sa["id"].to_string()).len(), 8, "{status}");
    // The first octet of the gateway's SPI is its thread's. Each of the two has some IKE_SAs.
    let thread = |sa: &serde_json::Value| {
        let own = u8::from_str_radix(&sa["spis"][1].as_str().unwrap()[..2], 16).unwrap();
        (own % 2).to_string()
    };
    assert_eq!(all(&thread).len(), 2, "{status}");
    assert_eq!(status["pools"][0]["used"].as_u64(), Some(8), "{status}");
    assert_eq!(ask(&["rekey"]).with_code(0).out, "SAs to be replaced: 8\n");
    // A client that reconnects by another thread keeps its address and leaves nothing behind.
    drop(clients);
    for n in 0..8 {
        let (name, own) = (format!("again{n}.toml"), PSK.replace("ini.test", "ini0.test"));
        gateway.write_client_config(&place, &name, &format!("{own}{CHILD}"));
        let client = DaemonProcess::run_command(
            &mut place.usher_command(&["ike", "connect", "home", "--config", &name]),
        );
        client.wait_for_log("addresses assigned");
        // It is killed.
        drop(client);
        wait_until("the one before is gone", || {
            let status = ask(&["status", "--json"]).with_code(0).stdout_json();
            let own = status["sas"].as_array().unwrap().iter().filter(|sa| sa["identity"] == "ini0.test");
            own.count() == 1
        });
    }
    ask(&["down", "site"]).with_code(0);
    wait_until("all have ended", || {
        let status = ask(&["status", "--json"]).with_code(0).stdout_json();
        status["sas"].as_array().unwrap().is_empty() && status["pools"][0]["used"].as_u64() == Some(0)
    });
    assert_eq!(gateway.daemon.terminate(), Some(0));
}

#[test]
fn a_faulty_file_is_told_with_its_lines() {
    let place = TempDir::new();
    place.write("ike.toml", "[[connection]]\nname = \"a\"\nlocal_auth = \"pks\"\n");
    let said = place.run_usher(&["ike", "check", "ike.toml"]);
    assert!(
        said.code == Some(2)
            && said.err.contains("ike.toml:3:14")
            && said.err.contains("did you mean \"psk\"?"),
        "{said:?}"
    );
    place.write("ike.toml", "");
    assert_eq!(place.run_usher(&["ike", "check", "ike.toml"]).with_code(0).out, "ike.toml: valid\n");
}
