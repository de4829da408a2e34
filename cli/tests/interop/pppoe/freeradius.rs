//! FreeRADIUS decides logins of hosts, keeps their accounting, and changes and ends their sessions. Our client
//! logs in by each method.

use super::PppoeTestNetwork;
use crate::certificates::write_chain;
use crate::place::{RunningProgram, SECRET, TEST_TIMEOUT, TempDir};
use std::time::Instant;

const SITE: &str = r#"
[listen]
interfaces = ["lan"]
control = "pppoe.sock"
metrics = "0.0.0.0:9100"
[service]
name = "campus"
address = "10.0.0.1"
pools = ["students"]
prefix_pool = "links"
delegated_pool = "sites"
dns = ["10.0.0.53"]
[authentication]
protocols = ["eap", "mschapv2", "chap", "pap"]
[[pool]]
name = "students"
ranges = ["10.0.0.2-10.0.0.9"]
[[pool]]
name = "links"
ranges = ["2001:db8:1::/48/64"]
[[pool]]
name = "sites"
ranges = ["2001:db8:ff00::/40/56"]
[aaa]
nas_identifier = "campus.test"
accounting = true
[[aaa.radius]]
address = "127.0.0.1:1812"
secret = "SECRET"
message_authenticator = false
[aaa.dynamic]
[tracking]
folder = "log"
[data]
report = "1 s"
"#;

const RADIUSD: &str = r#"
name = radiusd
libdir = /usr/lib/freeradius
raddbdir = FOLDER
run_dir = FOLDER
db_dir = FOLDER
pidfile = FOLDER/radiusd.pid
max_requests = 4096
proxy_requests = no
security {
	max_attributes = 200
	reject_delay = 0
	status_server = yes
}
thread pool {
	start_servers = 1
	max_servers = 2
	min_spare_servers = 1
	max_spare_servers = 1
}
client here {
	ipaddr = 127.0.0.1
	secret = SECRET
	require_message_authenticator = no
}
modules {
	pap {
	}
	chap {
	}
	mschap {
		use_mppe = no
	}
	files {
		usersfile = FOLDER/users
	}
	detail {
		filename = FOLDER/detail
	}
	eap {
		default_eap_type = EAP
		md5 {
		}
		mschapv2 {
		}
		tls-config tls-common {
			private_key_file = FOLDER/../server.key
			certificate_file = FOLDER/../server.pem
			ca_file = FOLDER/../root.pem
			fragment_size = 1024
			tls_min_version = "1.2"
			tls_max_version = "1.2"
		}
		tls {
			tls = tls-common
		}
		peap {
			tls = tls-common
			default_eap_type = mschapv2
			virtual_server = "default"
		}
	}
}
server default {
	listen {
		type = auth
		ipaddr = 127.0.0.1
		port = 1812
	}
	listen {
		type = acct
		ipaddr = 127.0.0.1
		port = 1813
	}
	authorize {
		files
		chap
		mschap
		eap {
			ok = return
		}
		pap
	}
	authenticate {
		Auth-Type PAP {
			pap
		}
		Auth-Type CHAP {
			chap
		}
		Auth-Type MS-CHAP {
			mschap
		}
		eap
	}
	preacct {
	}
	accounting {
		detail
	}
}
"#;

#[track_caller]
fn start_freeradius(cable: &PppoeTestNetwork, eap: &str) -> RunningProgram {
    let folder = cable.temp_dir.path_text("freeradius");
    let users = "ann\tCleartext-Password := \"a long password\"\n\tSession-Timeout = 3600,\n\tFramed-IP-Address = 10.0.0.7,\n\
                 \tWISPr-Bandwidth-Max-Down = 8000000,\n\tClass = \"a class\"\nstation@usher.test\tAuth-Type := EAP\n";
    cable.temp_dir.write_private("freeradius/users", users);
    cable.temp_dir.write_private("freeradius/dictionary", "");
    let text = RADIUSD
        .replace("FOLDER", &folder)
        .replace("SECRET", SECRET)
        .replace("= EAP\n", &format!("= {eap}\n"));
    cable.temp_dir.write_private("freeradius/radiusd.conf", &text);
    let mut command = cable.ac.command("freeradius");
    command.args(["-d", &folder, "-f", "-l", "stdout"]);
    cable.temp_dir.start_program(&format!("freeradius-{eap}"), &mut command, "Ready to process requests")
}

#[track_caller]
fn freeradius_network() -> PppoeTestNetwork {
    let cable = PppoeTestNetwork::with_config(&SITE.replace("SECRET", SECRET));
    write_chain(&cable.temp_dir, "server", 2);
    write_chain(&cable.temp_dir, "client", 1);
    cable
}

/// Waits for an accounting record with all of these lines, and returns it.
#[track_caller]
fn wait_for_record(place: &TempDir, lines: &[&str]) -> String {
    let begun = Instant::now();
    loop {
        let all = std::fs::read_to_string(place.path("freeradius/detail")).unwrap_or_default();
        let found = all.split("\n\n").filter(|one| lines.iter().all(|line| one.contains(line))).last();
        if let Some(found) = found {
            return found.to_owned();
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "no record with {lines:?}:\n{all}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Returns the value of an attribute of a record.
#[track_caller]
fn attribute_value<'a>(record: &'a str, name: &str) -> &'a str {
    let line = record.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {name} in {record}")).trim().trim_matches('"')
}

#[test]
fn freeradius_decides_each_method_and_accounts_each_session() {
    let cable = freeradius_network();
    let mut concentrator = None;
    let tls = ["--ca", "root.pem", "--server-name", "aaa.usher.test"];
    let own = [&tls[..], &["--certificate", "client.pem", "--key", "client.key"]].concat();
    for (eap, protocol, user, more) in [
        ("md5", "chap", "ann", &[][..]),
        ("md5", "pap", "ann", &[]),
        ("md5", "mschapv2", "ann", &[]),
        ("md5", "eap", "ann", &[]),
        ("peap", "eap", "ann", &tls),
        ("tls", "eap", "station@usher.test", &own),
    ] {
        let radius = start_freeradius(&cable, eap);
        concentrator.get_or_insert_with(|| cable.start_concentrator("ac"));
        let name = format!("client-{eap}-{protocol}");
        // EAP-TLS has no password; its certificate counts.
        if eap != "tls" {
            drop(cable.as_user(&name, user, protocol, "wrong", more, "rejected this user name and password"));
        }
        let mut client = cable.as_user(&name, user, protocol, "password", more, "connected");
        let (answers, said) = cable.read_health();
        assert!(answers && said.contains("serving"), "{name}: {said}\n{}", client.log());
        let session = cable.wait_for_session();
        // The concentrator learns the user of a tunnel or certificate only from the server, and this server
        // sends no name.
        let shown = session["user"].as_str().unwrap();
        let unnamed = format!("{user} within EAP, session ");
        assert!(
            shown.starts_with(if matches!(eap, "peap" | "tls") { unnamed.as_str() } else { user }),
            "{name}: {shown}"
        );
        let id = session["session"].as_str().unwrap().to_owned();
        let begun = wait_for_record(&cable.temp_dir, &[&format!("\"{id}\""), "Acct-Status-Type = Start"]);
        assert_eq!(attribute_value(&begun, "User-Name"), user, "{name}");
        assert_eq!(client.terminate(), Some(0), "{name}: {}", client.log());
        let ended = wait_for_record(&cable.temp_dir, &[&format!("\"{id}\""), "Acct-Status-Type = Stop"]);
        assert_eq!(attribute_value(&ended, "Acct-Terminate-Cause"), "User-Request", "{name}");
        let octets = |name: &str| attribute_value(&ended, name).parse::<u64>().unwrap();
        assert!(octets("Acct-Input-Octets") > 200 && octets("Acct-Output-Octets") > 200, "{name}: {ended}");
        if user == "ann" {
            assert_eq!(session["ipv4"].as_str(), Some("10.0.0.7"), "{name}");
            assert_eq!(session["rate_down"], 8_000_000, "{name}");
            assert_eq!(attribute_value(&ended, "Framed-IP-Address"), "10.0.0.7", "{name}");
            assert!(ended.contains("Class = 0x6120636c617373"), "{name}: {ended}");
        }
        drop(radius);
    }
    assert_eq!(concentrator.unwrap().terminate(), Some(0));
}

#[test]
fn radclient_changes_a_session_and_ends_it() {
    let cable = freeradius_network();
    let _radius = start_freeradius(&cable, "md5");
    let mut concentrator = cable.start_concentrator("ac");
    let mut client = cable.as_user("client", "ann", "chap", "password", &[], "connected");
    let session = cable.wait_for_session();
    let id = session["session"].as_str().unwrap();
    let ask = |what: &str, attributes: &str| {
        let words = ["-x", "-r", "12", "-t", "5", "127.0.0.1:3799", what, SECRET];
        cable.ac.run_program(&cable.temp_dir, "radclient", &words, attributes)
    };
    let (_, said) = ask("coa", "User-Name = bob\nWISPr-Bandwidth-Max-Down = 1000000\n");
    assert!(said.contains("CoA-NAK") && said.contains("Session-Context-Not-Found"), "{said}");
    let (done, said) =
        ask("coa", &format!("Acct-Session-Id = \"{id}\"\nWISPr-Bandwidth-Max-Down = 1000000\n"));
    assert!(done && said.contains("CoA-ACK"), "{said}\n{}", concentrator.log());
    assert_eq!(cable.wait_for_session()["rate_down"], 1_000_000);
    let (answers, said) = cable.read_health();
    assert!(answers && said.contains("serving"), "{said}");
    let (done, said) = ask("disconnect", &format!("User-Name = ann\nAcct-Session-Id = \"{id}\"\n"));
    assert!(done && said.contains("Disconnect-ACK"), "{said}");
    client.wait_for("ended");
    let ended = wait_for_record(&cable.temp_dir, &[&format!("\"{id}\""), "Acct-Status-Type = Stop"]);
    assert_eq!(attribute_value(&ended, "Acct-Terminate-Cause"), "Admin-Reset");
    drop(client);
    assert_eq!(concentrator.terminate(), Some(0));
}
