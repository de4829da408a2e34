//! A FreeRADIUS with its own configuration, at ports of the test's own address.

use crate::own::{bound_command, own_socket, wait_or_fail};
use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const SECRET: &str = "testing123";

/// A server, killed when dropped.
pub(crate) struct FreeRadius {
    process: Child,
    pub(crate) folder: PathBuf,
    auth: SocketAddrV4,
    acct: SocketAddrV4,
}

fn certificate_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/certs")
}

/// Converts DER files to one PEM file.
fn write_pem(kind: &str, names: &[&str], to: &Path) {
    let mut text = String::new();
    for name in names {
        let der = fs::read(certificate_folder().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        text.push_str(&format!("-----BEGIN {kind}-----\n"));
        for line in encode_base64(&der).as_bytes().chunks(64) {
            text.push_str(std::str::from_utf8(line).unwrap());
            text.push('\n');
        }
        text.push_str(&format!("-----END {kind}-----\n"));
    }
    fs::write(to, text).unwrap();
}

fn encode_base64(octets: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in octets.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, i| bits << 8 | u32::from(group.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize] as char;
            text.push(if i <= group.len() { digit } else { '=' });
        }
    }
    text
}

/// Creates a new folder.
pub(crate) fn new_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("load-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

impl FreeRadius {
    /// Starts it with users `user0` to `user99`, passwords `pw0` to `pw99`, and a certificate chain of this length.
    pub(crate) fn start(eap: &str, chain: usize) -> Self {
        let (folder, auth, acct) = (new_folder(), own_socket(), own_socket());
        let authorities = ["ca1.der", "ca2.der", "ca3.der"];
        let leaf = format!("server{chain}.der");
        let mut sent = vec![leaf.as_str()];
        sent.extend(authorities[..chain - 1].iter().rev());
        write_pem("CERTIFICATE", &sent, &folder.join("server.pem"));
        write_pem("PRIVATE KEY", &[&format!("server{chain}.key.der")], &folder.join("server.key"));
        write_pem("CERTIFICATE", &["root.der"], &folder.join("ca.pem"));
        let users: String = (0..100).map(|n| format!("user{n} Cleartext-Password := \"pw{n}\"\n")).collect();
        fs::write(folder.join("users"), users).unwrap();
        let text = CONFIGURATION
            .replace("FOLDER", folder.to_str().unwrap())
            .replace("ADDRESS", &auth.ip().to_string())
            .replace("AUTH_PORT", &auth.port().to_string())
            .replace("ACCT_PORT", &acct.port().to_string())
            .replace("SECRET", SECRET)
            .replace("EAP_TYPE", eap);
        fs::write(folder.join("radiusd.conf"), text).unwrap();
        fs::write(folder.join("dictionary"), "").unwrap();
        let log = fs::File::create(folder.join("output")).unwrap();
        let program = ["/usr/sbin/freeradius", "/usr/bin/freeradius", "/sbin/freeradius"];
        let program = program.into_iter().find(|p| Path::new(p).exists());
        let program = program
            .expect("there is no freeradius: install Debian's package freeradius (scripts/setup test)");
        let process = bound_command(program)
            .args(["-f", "-l", "stdout", "-n", "radiusd", "-d"])
            .arg(&folder)
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .expect("freeradius cannot be started");
        let mut server = Self { process, folder, auth, acct };
        server.wait_ready();
        server
    }

    fn wait_ready(&mut self) {
        let Self { process, folder, .. } = self;
        let said = || fs::read_to_string(folder.join("output")).unwrap_or_default();
        let is_ready = || {
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "freeradius does not start:\n{}", said());
            said().contains("Ready to process requests")
        };
        wait_or_fail(|| format!("freeradius does not start:\n{}", said()), is_ready);
    }

    /// Returns its authentication address.
    pub(crate) fn auth_address(&self) -> String {
        self.auth.to_string()
    }

    /// Returns its accounting address.
    pub(crate) fn accounting_address(&self) -> String {
        self.acct.to_string()
    }

    /// Returns the number of accepted logins.
    pub(crate) fn accepted_logins(&self) -> usize {
        fs::read_to_string(self.folder.join("output")).unwrap_or_default().matches("Login OK").count()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Writes a client's certificate chain and key to this folder.
    pub(crate) fn client_certificate(&self, chain: usize) -> (PathBuf, PathBuf) {
        let authorities = ["ca1.der", "ca2.der", "ca3.der"];
        let leaf = format!("client{chain}.der");
        let mut sent = vec![leaf.as_str()];
        sent.extend(authorities[..chain - 1].iter().rev());
        let paths =
            (self.folder.join(format!("client{chain}.pem")), self.folder.join(format!("client{chain}.key")));
        write_pem("CERTIFICATE", &sent, &paths.0);
        write_pem("PRIVATE KEY", &[&format!("client{chain}.key.der")], &paths.1);
        paths
    }
}

impl Drop for FreeRadius {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const CONFIGURATION: &str = r#"
prefix = /usr
libdir = /usr/lib/freeradius
confdir = FOLDER
run_dir = FOLDER
logdir = FOLDER
pidfile = FOLDER/pid
max_request_time = 30
cleanup_delay = 5
max_requests = 65536
hostname_lookups = no
log {
    destination = stdout
    auth = yes
}
security {
    max_attributes = 200
    reject_delay = 0
    status_server = yes
}
thread pool {
    start_servers = 2
    max_servers = 4
    min_spare_servers = 1
    max_spare_servers = 4
    max_requests_per_server = 0
}
client loopback {
    ipaddr = 127.0.0.1
    secret = SECRET
    require_message_authenticator = yes
}
modules {
    pap {
    }
    chap {
    }
    mschap {
        use_mppe = yes
    }
    always ok {
        rcode = ok
    }
    files {
        filename = FOLDER/users
    }
    eap {
        default_eap_type = EAP_TYPE
        timer_expire = 60
        ignore_unknown_eap_types = no
        max_sessions = 65536
        md5 {
        }
        gtc {
            auth_type = PAP
        }
        mschapv2 {
        }
        tls-config common {
            private_key_file = FOLDER/server.key
            certificate_file = FOLDER/server.pem
            ca_file = FOLDER/ca.pem
            tls_min_version = "1.2"
            tls_max_version = "1.3"
            cipher_list = "DEFAULT"
            ecdh_curve = ""
        }
        tls {
            tls = common
        }
        ttls {
            tls = common
            default_eap_type = md5
            virtual_server = inner
        }
        peap {
            tls = common
            default_eap_type = mschapv2
            virtual_server = inner
        }
    }
}
server outer {
    listen {
        type = auth
        ipaddr = ADDRESS
        port = AUTH_PORT
    }
    listen {
        type = acct
        ipaddr = ADDRESS
        port = ACCT_PORT
    }
    authorize {
        chap
        mschap
        eap {
            ok = return
        }
        files
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
    accounting {
        ok
    }
}
server inner {
    authorize {
        chap
        mschap
        eap {
            ok = return
        }
        files
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
}
"#;
