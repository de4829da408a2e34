//! `check` of each service loads the files that `serve` loads, and reports the same faults.

use crate::aaa::daemon::{DaemonProcess, write_private};
use crate::aaa::others::create_certificates;
use crate::place::{ProgramOutput, TempDir, USHER, own_address, own_port};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A service with a valid file, and the output of `serve`.
struct ServiceCase<'a> {
    name: &'a str,
    right: String,
    serves: &'a str,
}

/// A fault: replacements in the file, and the expected message.
type FaultRow<'a> = (&'a [(&'a str, &'a str)], &'a str);

impl ServiceCase<'_> {
    fn file_name(&self) -> String {
        format!("{}.toml", self.name)
    }
    fn run_check(&self, place: &TempDir) -> ProgramOutput {
        place.run_usher(&[self.name, "check", &self.file_name()])
    }
    /// Runs `serve`, which must end by itself. A killed process has another exit code.
    fn run_serve(&self, place: &TempDir) -> ProgramOutput {
        let words = ["-s", "KILL", "100", USHER, self.name, "serve", "--config", &self.file_name()];
        ProgramOutput::from_output(
            Command::new("timeout").args(words).current_dir(place.path("")).output().unwrap(),
        )
    }

    /// The valid file passes both. Each fault gives the same message in both, and `check` creates nothing.
    fn check_rows(&self, place: &TempDir, rows: &[FaultRow<'_>]) {
        write_private(place, &self.file_name(), &self.right);
        self.run_check(place).with_code(0);
        if self.serves == "started" {
            let server = DaemonProcess::run_command(&mut place.usher_command(&[
                self.name,
                "serve",
                "--config",
                &self.file_name(),
            ]));
            server.wait_for_log(self.serves);
            assert_eq!(server.terminate(), Some(0));
        } else {
            let said = self.run_serve(place);
            assert!(said.code == Some(1) && said.err.contains(self.serves), "{}: {said:?}", self.name);
        }
        for (edits, says) in rows {
            let mut text = self.right.clone();
            for (from, to) in *edits {
                assert!(text.contains(from), "{}: {from}", self.name);
                text = text.replacen(from, to, 1);
            }
            self.expect_failure(place, &text, says);
        }
    }

    /// Expects this message for a faulty file, or for a fault beside it.
    #[track_caller]
    fn expect_failure(&self, place: &TempDir, text: &str, says: &str) {
        write_private(place, &self.file_name(), text);
        let (checked, served) = (self.run_check(place), self.run_serve(place));
        assert_eq!(checked.code, Some(2), "{}: {says}: {checked:?}", self.name);
        assert!(checked.err.contains(says), "{}: {says}: {checked:?}", self.name);
        assert!(matches!(served.code, Some(1 | 2)), "{}: {says}: {served:?}", self.name);
        assert!(served.err.contains(checked.err.trim_end()), "{}: {checked:?}, {served:?}", self.name);
    }
}

/// Writes an authority's certificates, keys with all kinds of faults, and other invalid files.
fn write_fault_files() -> TempDir {
    let place = create_certificates();
    let key = "pki/issued/home.hotel.example.key";
    for line in [
        format!("openssl pkcs8 -topk8 -in {key} -passout pass:x -out pkcs8.key"),
        format!("openssl pkey -traditional -aes256 -in {key} -passout pass:x -out older.key"),
    ] {
        place.run_shell(&line).with_code(0);
    }
    for (name, kind) in
        [("pkcs8.key", "BEGIN ENCRYPTED PRIVATE KEY"), ("older.key", "Proc-Type: 4,ENCRYPTED")]
    {
        assert!(std::fs::read_to_string(place.path(name)).unwrap().contains(kind), "{name}");
    }
    let nothing = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (name, text) in [("none", "nothing"), ("nothing.crt", nothing), ("short", "short\n")] {
        write_private(&place, name, text);
    }
    place
}

const OWN: &str = "certificate = \"pki/issued/home.hotel.example.crt\"\nkey = \"pki/issued/home.hotel.example.key\"\n\
                   ca = \"pki/ca.crt\"\n";
const OWN_KEY: &str = "pki/issued/home.hotel.example.key";

#[test]
fn an_aaa_server() {
    let place = write_fault_files();
    let (host, auth, acct) = (own_address(), own_port(), own_port());
    let right = format!(
        "state_dir = \"state\"\ndictionary = [\"words\"]\n[listen]\nauth = [\"{host}:{auth}\"]\nacct = [\"{host}:{acct}\"]\n\
         [users]\nstore = \"memory\"\n[accounting]\nidentity_key_file = \"identity\"\n\
         [[client]]\nname = \"a\"\nprefix = \"127.0.0.0/8\"\nsecret_file = \"secret\"\n\
         [[group]]\nname = \"guests\"\nreply = [\"Session-Timeout = 60\"]\n\
         [[user]]\nname = \"ann\"\npassword_file = \"secret\"\ngroups = [\"guests\"]\n\
         [[realm]]\nname = \"example.org\"\nrefuse = true\n[tls]\n{OWN}crl = [\"pki/ca.crl\"]\n"
    );
    place.write("words", "ATTRIBUTE Usher-Test 250 string\n");
    write_private(&place, "secret", "sixteen octets!!\n");
    write_private(&place, "identity", &format!("{}\n", "0123456789abcdef".repeat(2)));
    let service = ServiceCase { name: "aaa", right, serves: "started" };
    service.check_rows(
        &place,
        &[
            (&[(OWN_KEY, "pki/issued/ann@hotel.example.key")], "not the key of the certificate"),
            (
                &[(OWN_KEY, "pkcs8.key")],
                "aaa.toml:26:7: pkcs8.key: TLS configuration: private key: it is encrypted",
            ),
            (&[(OWN_KEY, "older.key")], "openssl pkey -in FILE -out NEW"),
            (&[(OWN_KEY, "secret")], "no private key in the PEM text"),
            (&[(OWN_KEY, "gone.key")], "gone.key: No such file"),
            (&[("pki/issued/home.hotel.example.crt", "none")], "no certificate in the PEM text"),
            (&[("pki/issued/home.hotel.example.crt", "nothing.crt")], "aaa.toml:25:"),
            (&[("pki/ca.crt", "none")], "no certificate in the PEM text"),
            (&[("pki/ca.crt", "nothing.crt")], "aaa.toml:27:"),
            (&[("pki/ca.crl", "none")], "aaa.toml:28:"),
            (&[("\"words\"", "\"gone\"")], "aaa.toml:2:15: gone: No such file"),
            (&[("\"words\"", "\"none\"")], "none:1"),
            (&[("\"identity\"", "\"short\"")], "fewer than 32 characters"),
            (&[("secret_file = \"secret\"", "secret_file = \"short\"")], "fewer than 6 octets"),
            (&[("password_file = \"secret\"", "password_file = \"gone\"")], "gone: No such file"),
            (&[("[\"guests\"]", "[\"guest\"]")], "there is no group \"guest\""),
            (&[("\"example.org\"", "'~\\.example\\.org$'")], "aaa.toml:22:8: \"~\\\\.example"),
            (&[("\"example.org\"", "'^(.*\\.example'")], "patterns are not supported"),
            (&[("\"example.org\"", "\"a_b.example\"")], "as in user names, after the @"),
            (
                &[("\"memory\"", "\"postgresql\"\nurl = \"postgresql://a:b:c\"")],
                "cannot parse the PostgreSQL URL",
            ),
            (&[("state_dir = \"state\"", "state_dir = \"none\"")], "none: File exists"),
            (&[("state_dir = \"state\"", "state_dir = \"none/state\"")], "none/state: Not a directory"),
        ],
    );
    // Without a key in the configuration, `serve` creates one there.
    std::fs::create_dir(place.path("state/identity.key")).unwrap();
    let without = service.right.replace("identity_key_file = \"identity\"", "");
    service.expect_failure(&place, &without, "state/identity.key: Is a directory");
    std::fs::set_permissions(place.path("secret"), std::fs::Permissions::from_mode(0o644)).unwrap();
    service.expect_failure(&place, &service.right, "chmod 0640");
}

#[test]
fn check_connects_only_on_request_and_lists_missing_columns() {
    let place = TempDir::new();
    let text = "state_dir = \"state\"\n[listen]\nauth = [\"127.0.0.1:1812\"]\n";
    write_private(&place, "aaa.toml", text);
    let check = |words: &[&str]| place.run_usher(&[&["aaa", "check", "aaa.toml"], words].concat());
    assert_eq!(check(&[]).with_code(0).out, "aaa.toml: valid; database not checked; --connect checks it\n");
    let said = check(&["--connect"]).with_code(0).out;
    assert_eq!(
        said,
        "aaa.toml: valid; SQLite in state/usher.db: does not exist yet; usher aaa serve creates it\n"
    );
    assert!(!place.path("state").exists(), "nothing is made");
    place.run_usher(&["aaa", "user", "add", "ann", "--password-file", "aaa.toml", "--config", "aaa.toml"]);
    let said = check(&["--connect", "--json"]).with_code(0).stdout_json();
    assert_eq!((said["missing"].as_array().unwrap().len(), said["faults"].as_array().unwrap().len()), (0, 0));
    assert!(said["store"].as_str().unwrap().contains("tables of version"), "{said}");
    place.run_shell("sqlite3 state/usher.db 'ALTER TABLE radacct DROP COLUMN class'").with_code(0);
    let lacking = check(&["--connect"]);
    assert!(lacking.code == Some(1) && lacking.err.contains("class"), "{lacking:?}");
    place.run_shell("sqlite3 state/usher.db 'INSERT INTO usher_schema VALUES (99)'").with_code(0);
    let newer = check(&["--connect"]);
    assert!(newer.code == Some(1) && newer.err.contains("have version 99"), "{newer:?}");
    let away = format!("{text}[users]\nstore = \"postgresql\"\nurl = \"postgresql://a@127.0.0.1:9/a\"\n");
    write_private(&place, "aaa.toml", &away);
    assert!(check(&[]).with_code(0).out.contains("database not checked"));
    let away = check(&["--connect"]);
    assert!(away.code == Some(1) && away.err.contains("PostgreSQL at 127.0.0.1:9/a"), "{away:?}");
}

#[test]
fn an_ike_gateway() {
    let place = write_fault_files();
    let (host, port, nat_port) = (own_address(), own_port(), own_port());
    let right = format!(
        "key_log = \"keys\"\n[listen]\naddresses = [\"{host}\"]\nport = {port}\nnat_port = {nat_port}\ncontrol = \"ike.sock\"\n\
         [data]\nmode = \"none\"\n[revocation]\ncrl = [\"pki/ca.crl\"]\n\
         [[connection]]\nname = \"site\"\nlocal_id = \"home.hotel.example\"\nlocal_auth = \"certificate\"\n\
         remote_auth = \"certificate\"\n{OWN}"
    );
    let long = format!(
        "[aaa]\nnas_identifier = \"{}\"\n[[aaa.radius]]\naddress = \"127.0.0.1:1812\"\nsecret = \"s\"\n[data]",
        "a".repeat(300)
    );
    let within = |file: &str| format!("[aaa]\nnas_identifier = \"a\"\nserver = \"{file}\"\n[data]");
    let (gone, broken, own) = (within("gone.toml"), within("broken.toml"), within("own.toml"));
    write_private(&place, "broken.toml", &format!("[tls]\n{}", OWN.replace(OWN_KEY, "pkcs8.key")));
    write_private(&place, "own.toml", "state_dir = \"none\"\n");
    let service = ServiceCase { name: "ike", right, serves: "started" };
    service.check_rows(
        &place,
        &[
            (&[(OWN_KEY, "pki/issued/ann@hotel.example.key")], "not the key of the certificate"),
            (&[(OWN_KEY, "pkcs8.key")], "ike.toml:17:7: TLS configuration: private key: it is encrypted"),
            (&[(OWN_KEY, "older.key")], "openssl pkey -in FILE -out NEW"),
            (&[("pki/issued/home.hotel.example.crt", "none")], "no certificate in the PEM text"),
            (&[("pki/ca.crt", "none")], "no certificate in the PEM text"),
            (&[("pki/ca.crt", "nothing.crt")], "ike.toml:18:"),
            (&[("pki/ca.crl", "none")], "[revocation]: none: "),
            (&[("pki/ca.crl", "gone.crl")], "[revocation]: gone.crl: No such file"),
            (&[("\"keys\"", "\"gone/keys\"")], "key log: gone/keys: No such file"),
            (&[("\"keys\"", "\"pki\"")], "key log: pki: Is a directory"),
            (&[("[data]", &long)], "[aaa]: the NAS-Identifier has 300 octets"),
            (&[("[data]", &gone)], "[aaa] server: gone.toml: No such file"),
            (
                &[("[data]", &broken)],
                "broken.toml:3:7: pkcs8.key: TLS configuration: private key: it is encrypted",
            ),
            (&[("[data]", &own)], "[aaa] server: none: File exists"),
            (&[("addresses = [", "addresses = [] # ")], "no address to listen on"),
        ],
    );
}

#[test]
fn a_pppoe_concentrator() {
    let place = write_fault_files();
    let right = "[listen]\ninterfaces = [\"no-such-port\"]\ncontrol = \"pppoe.sock\"\n[service]\naddress = \"10.0.0.1\"\n\
                 pools = [\"p\"]\n[[pool]]\nname = \"p\"\nranges = [\"10.0.0.0/24\"]\n[tracking]\nfolder = \"log\"\n"
        .to_owned();
    // It gets as far as the interface, which does not exist.
    let service = ServiceCase { name: "pppoe", right, serves: "no-such-port" };
    let user = |file: &str| format!("[[user]]\nname = \"ann\"\npassword_file = \"{file}\"\n[tracking]");
    let gone = user("gone");
    let radsec = |key: &str| {
        format!(
            "[aaa]\nnas_identifier = \"a\"\n[[aaa.radius]]\naddress = \"127.0.0.1:2083\"\ntransport = \"tls\"\n[aaa.tls]\n{}[tracking]",
            OWN.replace(OWN_KEY, key)
        )
    };
    let (encrypted, others) = (radsec("older.key"), radsec("pki/issued/ann@hotel.example.key"));
    let long = format!(
        "[aaa]\nnas_identifier = \"{}\"\n[[aaa.radius]]\naddress = \"127.0.0.1:1812\"\nsecret = \"s\"\n[tracking]",
        "a".repeat(300)
    );
    let within = "[aaa]\nnas_identifier = \"a\"\nserver = \"broken.toml\"\n[tracking]";
    write_private(&place, "broken.toml", "[[realm]]\nname = \"~.*\"\nrefuse = true\n");
    service.check_rows(
        &place,
        &[
            (&[("[tracking]", &gone)], "gone: No such file"),
            (
                &[("[tracking]", &encrypted)],
                "pppoe.toml:17:7: TLS configuration: private key: it is encrypted",
            ),
            (&[("[tracking]", &others)], "not the key of the certificate"),
            (&[("[tracking]", &long)], "the NAS-Identifier has 300 octets"),
            (&[("[tracking]", within)], "[aaa] server: broken.toml:2:8: \"~.*\" is not a realm name"),
            (&[("\"log\"", "\"none\"")], "[tracking]: the folder none: File exists"),
            (&[("\"log\"", "\"none/log\"")], "[tracking]: the folder none/log: Not a directory"),
            (&[("pools = [\"p\"]", "pools = [\"q\"]")], "there is no [[pool]] \"q\""),
        ],
    );
    // A daily file of the log that cannot be read.
    std::fs::create_dir_all(place.path("log/sessions-2026-03-01.jsonl")).unwrap();
    service.expect_failure(&place, &service.right, "[tracking]: the folder log: Is a directory");
}

#[test]
fn a_mih_function() {
    let place = TempDir::new();
    let at = format!("{}:{}", own_address(), own_port());
    let right = format!(
        "id = \"pos1.example.org\"\n[listen]\nudp = [\"{at}\"]\ntcp = [\"{at}\"]\n\
         [[interface]]\nname = \"none0\"\naddress = \"02:00:00:00:00:01\"\n"
    );
    let (udp, tcp) = (format!("udp = [\"{at}\"]"), format!("tcp = [\"{at}\"]"));
    ServiceCase { name: "mih", right, serves: "started" }.check_rows(
        &place,
        &[
            (&[(&udp, "udp = []"), (&tcp, "tcp = []")], "no address to listen on"),
            (&[("02:00:00:00:00:01", "02:00")], "mih.toml:7:"),
            (&[("pos1.example.org", "")], "mih.toml:1:"),
        ],
    );
    // A mobile node (`usher mih node`) listens at its own addresses.
    let node = "id = \"mn@example.org\"\n[listen]\nudp = []\ntcp = []\n\
                [[interface]]\nname = \"wlan0\"\nlink_type = \"802.11\"\npoa = \"02:00:00:97:01:01\"\n\
                [[interface]]\nname = \"eth0\"\npoa = \"02:00:00:97:02:01\"\n\
                [[peer]]\nid = \"pos1.example.org\"\naddress = \"10.97.9.1\"\n\
                [[peer]]\nid = \"pos2.example.org\"\naddress = \"10.97.9.2\"\n\
                [handover]\nserving = \"wlan0\"\ntarget = \"eth0\"\nserving_address = \"10.97.1.2\"\n\
                target_address = \"10.97.2.2\"\ngateway = \"10.97.2.1\"\nserving_pos = \"pos1.example.org\"\n\
                target_pos = \"pos2.example.org\"\ncorrespondent = \"10.97.9.9\"\n";
    place.write("node.toml", node);
    place.run_usher(&["mih", "check", "node.toml"]).with_code(0);
}

#[test]
fn an_ident_server() {
    let place = write_fault_files();
    write_private(&place, "key", "sixteen octets!!\n");
    let at = format!("{}:{}", own_address(), own_port());
    let right = format!(
        "listen = [\"{at}\"]\n[[asker]]\nprefix = \"127.0.0.0/8\"\ndisclose = \"token\"\n[token]\nkey_file = \"key\"\n"
    );
    let service = ServiceCase { name: "ident", right, serves: "started" };
    service.check_rows(
        &place,
        &[
            (&[("listen = [", "listen = [] # ")], "no address to listen on"),
            (&[("\"key\"", "\"gone\"")], "ident.toml:6:12: gone: No such file"),
            (&[("\"key\"", "\"short\"")], "the key needs at least 16 characters"),
        ],
    );
    std::fs::set_permissions(place.path("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    service.expect_failure(&place, &service.right, "chmod 0640");
}
