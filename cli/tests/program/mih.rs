//! `usher mih`: a function on loopback, with the program as its client.

use crate::aaa::daemon::DaemonProcess;
use crate::place::{TempDir, own_socket};
use std::net::TcpListener;

fn mih_config(at: impl std::fmt::Display, may: &str) -> String {
    format!(
        "id = \"pos1.example.org\"\n[listen]\nudp = [\"{at}\"]\ntcp = [\"{at}\"]\n\
         [[allow]]\nprefix = \"127.0.0.0/8\"\nrights = [{may}]\n[[interface]]\nname = \"none0\"\n\
         address = \"02:00:00:00:00:01\"\npoa = \"02:00:00:00:00:fe\"\n"
    )
}

#[test]
fn a_function_answers_discovery_registration_and_queries() {
    let place = TempDir::new();
    let at = own_socket();
    place.write("mih.toml", &mih_config(at, "\"events\", \"parameters\", \"handover\""));
    let server =
        DaemonProcess::run_command(&mut place.usher_command(&["mih", "serve", "--config", "mih.toml"]));
    server.wait_for_log("started");
    let host = at.to_string();
    for transport in [&[][..], &["--tcp"]] {
        let ask = |question: &[&str]| {
            let send =
                [&["mih", "send", &host, "--id", "mn1@example.org", "--json"], transport, question].concat();
            place.run_usher(&send)
        };
        let said = ask(&["discover"]).with_code(0).stdout_json();
        assert_eq!(said["peer"], "pos1.example.org", "{said}");
        let answer = &said["answers"][0];
        assert_eq!(answer["links"][0]["address"], "02:00:00:00:00:01", "{said}");
        assert_eq!(answer["transports"], serde_json::json!(["udp", "tcp"]));
        assert_eq!(ask(&["register"]).with_code(0).stdout_json()["answers"][0]["valid_s"], 3600);
        let granted = ask(&["subscribe", "--events", "link-up,link-down"]).with_code(0).stdout_json();
        assert_eq!(granted["answers"][1]["events"], serde_json::json!(["link-up", "link-down"]));
        ask(&["unsubscribe", "--events", "link-up"]).with_code(0);
        ask(&["deregister"]).with_code(0);
        // The kernel has no such interface, and the configuration allows no commands.
        let unknown = ask(&["parameters"]);
        assert!(unknown.code == Some(1) && unknown.err.contains("unspecified failure"), "{unknown:?}");
        let refused = ask(&["act", "power-down", "--link", "02:00:00:00:00:01"]);
        assert!(refused.code == Some(1) && refused.err.contains("see [[allow]]"), "{refused:?}");
        let none = ask(&["parameters", "--link", "02:00:00:00:00:99"]);
        assert!(none.code == Some(1) && none.err.contains("the function has no such link"), "{none:?}");
    }
    let people = place.run_usher(&["mih", "send", &host, "discover"]).with_code(0).out;
    assert!(people.contains("pos1.example.org") && people.contains("02:00:00:00:00:01 Ethernet"), "{people}");
    server.wait_for_log("registered peer=mn1@example.org");
    server.wait_for_log("MIH_Event_Subscribe request");
    // New rights apply at once. A faulty file changes nothing.
    place.write("mih.toml", &mih_config(at, ""));
    server.send_signal("HUP");
    server.wait_for_log("the configuration was read again");
    let refused = place.run_usher(&["mih", "send", &host, "subscribe"]);
    assert!(refused.code == Some(1) && refused.err.contains("authorization failure"), "{refused:?}");
    place.write("mih.toml", "idd = \"x\"\n");
    server.send_signal("HUP");
    server.wait_for_log("reload failed");
    place.run_usher(&["mih", "send", &host, "discover"]).with_code(0);
    server.send_signal("TERM");
    server.wait_for_log("stopped");
    let log = server.log();
    assert!(log.contains("not_authorized=") && log.contains("counted"), "{log}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn faults_are_told_with_their_place_and_what_to_do() {
    let place = TempDir::new();
    place.write("right.toml", &mih_config("127.0.0.1:4551", ""));
    assert_eq!(place.run_usher(&["mih", "check", "right.toml"]).with_code(0).out, "right.toml: valid\n");
    place.write("wrong.toml", "evnts = []\n");
    let said = place.run_usher(&["mih", "check", "wrong.toml"]).with_code(2).err;
    assert!(
        said.contains("wrong.toml:1:1: unknown key \"evnts\" at the top; did you mean \"events\"?"),
        "{said}"
    );
    let json = place.run_usher(&["--json", "mih", "check", "wrong.toml"]).with_code(2).stdout_json();
    assert_eq!(json["faults"][0]["line"], 1);
    for wrong in [
        &["mih", "serve", "--config", "wrong.toml"][..],
        &["mih", "serve", "--config", "none.toml"],
        &["mih", "send", "127.0.0.1"],
        &["mih", "send", "127.0.0.1", "discover", "--to", "a b"],
        &["mih", "send", "127.0.0.1", "act", "power-down"],
        &["mih", "send", "127.0.0.1", "act", "power-down", "--link", "02", "--delay", "1 s"],
        &["mih", "send", "127.0.0.1", "act", "power-down", "--link", "02:00:00:00:00:01", "--delay", "70 s"],
        &["mih", "send", "127.0.0.1", "subscribe", "--events", "link-dwn"],
    ] {
        let said = place.run_usher(wrong);
        assert!(said.code == Some(2) && !said.err.is_empty(), "{wrong:?}: {said:?}");
    }
    let host = own_socket().to_string();
    for transport in [&[][..], &["--tcp"]] {
        let send = [
            &["mih", "send", &host, "--retransmission", "50 ms", "--timeout", "0.2 s"],
            transport,
            &["discover"],
        ];
        let silent = place.run_usher(&send.concat());
        assert!(
            silent.code == Some(1) && silent.err.contains("MIH_Capability_Discover request: "),
            "{silent:?}"
        );
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = place.run_usher(&["mih", "serve", "--config", "right.toml", "--listen", &address]);
    assert!(refused.code == Some(1) && refused.err.contains("cannot listen on"), "{refused:?}");
}
