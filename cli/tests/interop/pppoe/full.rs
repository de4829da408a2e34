//! A full disk stalls the translation log. The concentrator then drops new connections, since no record would
//! name their user.

use super::{PppoeTestNetwork, SITE};
use crate::namespace::NetworkNamespace;
use crate::place::{TEST_TIMEOUT, USHER, find_program};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A disk of 4 MiB, mounted until dropped.
struct TestDisk(PathBuf);

impl TestDisk {
    fn mount_at(path: PathBuf) -> Self {
        fs::create_dir_all(&path).unwrap();
        let mounted =
            find_program("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=700", "none"]).arg(&path).status();
        assert!(mounted.unwrap().success(), "root may mount");
        Self(path)
    }
}

impl Drop for TestDisk {
    fn drop(&mut self) {
        // A process with an open file keeps the disk until it ends.
        let _ = find_program("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// True if the host can open a connection to the remote server.
fn reaches_server(cable: &PppoeTestNetwork) -> bool {
    let open = "exec 3<>/dev/tcp/198.51.100.2/7000";
    cable.host.run_program(&cable.temp_dir, "timeout", &["2", "bash", "-c", open], "").0
}

#[test]
fn a_full_disk_drops_new_connections_but_sessions_still_begin() {
    let data = "translations = true\nkeep_free = \"2 MiB\"\n[data]\nnat = \"masquerade\"\n";
    let cable = PppoeTestNetwork::with_config(&format!("{SITE}{data}"));
    let disk = TestDisk::mount_at(cable.temp_dir.path("log"));
    let world: NetworkNamespace = cable.add_remote_namespace();
    let concentrator = cable.start_concentrator("ac");
    let _client = cable.connect_ann("client", "chap", "password", "connected");
    cable.wait_for_session();
    let (_server, _user, port) = cable.open_connection(&world);
    let fill = disk.0.join("fill");
    let status = || cable.run_json_command(&["pppoe", "sessions"]);
    for n in 1..=2 {
        fs::write(&fill, vec![0; 3 << 20]).unwrap();
        let begun = Instant::now();
        while status()["connections_held"] != true {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{}", concentrator.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!reaches_server(&cable), "{}", concentrator.log());
        let counters = &status()["counters"];
        assert!(counters["connections_dropped"].as_u64() > Some(0), "{counters}");
        assert_eq!(counters["translations_holds"], n, "{counters}");
        let (_, metrics) = cable.ac.run_program(
            &cable.temp_dir,
            "bash",
            &[
                "-c",
                "exec 3<>/dev/tcp/127.0.0.1/9100 && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && cat <&3",
            ],
            "",
        );
        assert!(metrics.contains("usher_pppoe_connections_held 1"), "{metrics}");
        let said = find_program(USHER)
            .args(["pppoe", "sessions", "--config", "pppoe.toml"])
            .current_dir(cable.temp_dir.path(""))
            .output();
        let said = String::from_utf8(said.unwrap().stdout).unwrap();
        assert!(said.contains("new connections of hosts are dropped"), "{said}");
        // The remaining space is for the session log.
        let first = cable.wait_for_session();
        assert_eq!(cable.run_json_command(&["pppoe", "disconnect", "ann"])["sessions"], 1);
        let begun = Instant::now();
        while status()["sessions"]
            .as_array()
            .is_none_or(|all| all.first().is_none_or(|one| one["id"] == first["id"] || one["mtu"] == 0))
        {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{}", concentrator.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        fs::remove_file(&fill).unwrap();
        let begun = Instant::now();
        while !reaches_server(&cable) {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{}", concentrator.log());
        }
        let begun = Instant::now();
        while status()["connections_held"] != false {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{}", concentrator.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // The log has missed no translation.
    let counters = &status()["counters"];
    assert_eq!(
        (&counters["translations_missed"], &counters["connections_limited"]),
        (&Value::from(0), &Value::from(0)),
        "{counters}"
    );
    let outside = format!("198.51.100.1:{port}");
    let begun = Instant::now();
    while !cable.read_log("translations-").contains(&outside) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{}", concentrator.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}
