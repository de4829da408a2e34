//! `usher load mih` against our own function.

use crate::freeradius::folder;
use crate::{all_succeed, load, usher};
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A function that ends with the value.
struct Function {
    process: Child,
    folder: PathBuf,
    at: String,
}

impl Function {
    fn start() -> Self {
        let folder = folder();
        let port = loop {
            let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                break port;
            }
        };
        let config = format!(
            "id = \"pos.example.org\"\n[listen]\nudp = [\"127.0.0.1:{port}\"]\ntcp = [\"127.0.0.1:{port}\"]\n\
             [[allow]]\nprefix = \"127.0.0.0/8\"\nmay = [\"parameters\"]\n[limits]\nrequests_per_peer = 256\n\
             connections_per_network = 64\n[log]\nlevel = \"warn\"\n"
        );
        fs::write(folder.join("mih.toml"), config).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_usher"))
            .args(["mih", "serve", "--config", "mih.toml"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let function = Self { process, folder, at: format!("127.0.0.1:{port}") };
        let end = Instant::now() + Duration::from_secs(30);
        while !usher(&["mih", "send", &function.at, "discover"]).status.success() {
            assert!(Instant::now() < end, "the function does not start");
        }
        function
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn requests_and_indications_are_loaded_by_udp_and_tcp() {
    let function = Function::start();
    for transport in [&[][..], &["--tcp"], &["--no-ack"]] {
        for request in ["discover", "register", "indication"] {
            let words =
                ["load", "mih", &function.at, "--request", request, "--functions", "4", "--count", "400"];
            let instant = request == "indication" && !transport.is_empty();
            let pace: &[&str] = if instant { &["--rate", "2000"] } else { &[] };
            let value = load(&[&words[..], &["--json"], transport, pace].concat());
            all_succeed(&value, 400);
            assert!(value["latency"]["p99_s"].as_f64().unwrap() > 0.0);
        }
    }
    let open = ["load", "mih", &function.at, "--rate", "200", "--duration", "1s", "--expect", "failed < 1 %"];
    let said = usher(&open);
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("transactions ended as they had to"), "{text}");
    assert!(!text.contains("login"), "{text}");
}

#[test]
fn what_a_function_drops_or_refuses_is_counted() {
    let function = Function::start();
    let stop = |signal: &str| {
        let pid = function.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    };
    // It is there at first, and then does not answer.
    let mut words = vec![
        "load",
        "mih",
        &function.at,
        "--concurrency",
        "8",
        "--duration",
        "4s",
        "--warmup",
        "0s",
        "--json",
    ];
    words.extend(["--retransmission", "100ms", "--timeout", "500ms", "--patience", "2s"]);
    let running = std::thread::scope(|scope| {
        let run = scope.spawn(|| usher(&words));
        std::thread::sleep(Duration::from_secs(2));
        stop("-STOP");
        let output = run.join().unwrap();
        stop("-CONT");
        output
    });
    let value: serde_json::Value = serde_json::from_slice(&running.stdout).unwrap();
    assert!(
        value["failures"]["timeout"].as_u64().unwrap() > 0 && value["succeeded"].as_u64().unwrap() > 0,
        "{value:#}"
    );
    for wrong in
        [&["--user", "x"][..], &["--threads", "2"], &["--id", "a b"], &["--request", "indication", "--tcp"]]
    {
        let said = usher(&[&["load", "mih", &function.at], wrong].concat());
        assert_eq!(said.status.code(), Some(2), "{wrong:?}");
    }
    let nobody = usher(&["load", "mih", "127.0.0.1:1", "--count", "1"]);
    assert_eq!(nobody.status.code(), Some(1));
}
