//! `usher load mih` with our own function.

use crate::freeradius::new_folder;
use crate::own::{bound_command, own_socket, wait_until};
use crate::{all_succeed, run_load, run_usher};
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A function, killed when dropped.
struct MihFunction {
    process: Child,
    folder: PathBuf,
    address: String,
}

impl MihFunction {
    fn start() -> Self {
        let (folder, at) = (new_folder(), own_socket());
        let config = format!(
            "id = \"pos.example.org\"\n[listen]\nudp = [\"{at}\"]\ntcp = [\"{at}\"]\n\
             [[allow]]\nprefix = \"127.0.0.0/8\"\nrights = [\"parameters\"]\n[limits]\nrequests_per_peer = 256\n\
             connections_per_network = 64\n[log]\nlevel = \"warn\"\n"
        );
        fs::write(folder.join("mih.toml"), config).unwrap();
        let process = bound_command(env!("CARGO_BIN_EXE_usher"))
            .args(["mih", "serve", "--config", "mih.toml"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let function = Self { process, folder, address: at.to_string() };
        let answers = || run_usher(&["mih", "send", &function.address, "discover"]).status.success();
        wait_until("the function starts", answers);
        function
    }
}

impl Drop for MihFunction {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn requests_and_indications_are_loaded_by_udp_and_tcp() {
    let function = MihFunction::start();
    for transport in [&[][..], &["--tcp"], &["--no-ack"]] {
        for request in ["discover", "register", "indication"] {
            let words = [
                "load",
                "mih",
                &function.address,
                "--request",
                request,
                "--functions",
                "4",
                "--count",
                "400",
            ];
            let instant = request == "indication" && !transport.is_empty();
            let pace: &[&str] = if instant { &["--rate", "2000"] } else { &[] };
            // Slow replies do not count as lost.
            let patience = ["--json", "--timeout", "60s"];
            let value = run_load(&[&words[..], &patience, transport, pace].concat());
            all_succeed(&value, 400);
            assert!(value["latency"]["p99_s"].as_f64().unwrap() > 0.0);
        }
    }
    let open =
        ["load", "mih", &function.address, "--rate", "200", "--duration", "1s", "--expect", "failed < 1 %"];
    let said = run_usher(&[&open[..], &["--timeout", "60s"]].concat());
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("transactions had the expected result"), "{text}");
    assert!(!text.contains("login"), "{text}");
}

/// Starts a relay to `server` for one peer, which stops after this number of answers. Returns its address.
fn start_relay(server: &str, count: usize) -> String {
    let (relay, behind) = (UdpSocket::bind(own_socket()).unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let at = relay.local_addr().unwrap().to_string();
    behind.connect(server).unwrap();
    let (back, answers) = (relay.try_clone().unwrap(), behind.try_clone().unwrap());
    let (peers, peer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut octets = [0; 4096];
        while let Ok((length, from)) = relay.recv_from(&mut octets) {
            if peers.send(from).is_err() || behind.send(&octets[..length]).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        let (mut octets, peer) = ([0; 4096], peer.recv().unwrap());
        for _ in 0..count {
            let Ok(length) = answers.recv(&mut octets) else { return };
            let _ = back.send_to(&octets[..length], peer);
        }
    });
    at
}

#[test]
fn what_a_function_drops_or_refuses_is_counted() {
    let function = MihFunction::start();
    // The function answers at first, and then no longer.
    let relay = start_relay(&function.address, 50);
    let mut words = vec!["load", "mih", &relay, "--concurrency", "8", "--count", "100", "--json"];
    words.extend(["--no-check", "--retransmission", "100ms", "--timeout", "500ms", "--patience", "2s"]);
    let value: serde_json::Value = serde_json::from_slice(&run_usher(&words).stdout).unwrap();
    assert!(
        value["failures"]["timeout"].as_u64().unwrap() > 0 && value["succeeded"].as_u64().unwrap() > 0,
        "{value:#}"
    );
    for wrong in
        [&["--user", "x"][..], &["--threads", "2"], &["--id", "a b"], &["--request", "indication", "--tcp"]]
    {
        let said = run_usher(&[&["load", "mih", &function.address], wrong].concat());
        assert_eq!(said.status.code(), Some(2), "{wrong:?}");
    }
    let nobody = run_usher(&["load", "mih", "127.0.0.1:1", "--count", "1"]);
    assert_eq!(nobody.status.code(), Some(1));
}
