//! Our ESP and strongSwan's in user space (kernel-libipsec), by keys that our IKE and its charon agree on.

use super::carry::stream;
use super::place::{PATIENCE, Place, ip, network, wait};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant as Clock};
use usher_core::{Input, Instant, Machine, Output, Path, SecureRng, Transmit};
use usher_crypto::Key;
use usher_esp::Operation;
use usher_esp::plane::Outer;
use usher_ike::Endpoint;
use usher_ike::machine::{
    ChildConfig, ChildSa, Childless, Command as Order, Config as IkeConfig, Connection, Event, LocalAuth,
    Mode, NAT_SOCKET, RemoteAuth, SOCKET, SaId,
};
use usher_ike::payload::{Identification, Proposal};
use usher_ipsec::{Config, Said, Tunnel};

const CHARON: &str = "/usr/lib/ipsec/charon";
const PLUGINS: &str = "random nonce openssl aes sha1 sha2 md5 hmac kdf gcm chapoly pem pkcs1 pkcs8 x509 pubkey curve25519 gmp \
                       kernel-libipsec kernel-netlink socket-default vici";

const CONNECTIONS: &str = r#"
connections { psk {
    version = 2
    proposals = aes128-sha256-x25519
    mobike = no
    local { auth = psk
            id = gw.test }
    remote { auth = psk
             id = ini.test }
    children { net { local_ts = 10.2.0.0/16
                     remote_ts = 10.1.0.0/16
                     esp_proposals = aes128gcm16, aes256gcm16, chacha20poly1305, aes128-sha256, 3des-sha1 } } } }
secrets { ike-1 { id-a = gw.test
                  id-b = ini.test
                  secret = "a shared secret" } }
"#;

/// charon at end 1. It ends with whoever holds it.
struct Charon {
    folder: PathBuf,
    process: Child,
}

impl Charon {
    #[track_caller]
    fn new(place: &Place) -> Self {
        let name = &place.names[1];
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("run")).expect("a folder can be made");
        let path = |file: &str| folder.join(file).display().to_string();
        let settings = format!(
            "charon {{\n load = {PLUGINS}\n install_routes = no\n filelog {{ log {{ path = {}\n default = 1\n flush_line = yes }} }}\n \
             plugins {{ vici {{ socket = unix://{} }} }}\n}}\n",
            path("log"),
            path("vici")
        );
        fs::write(folder.join("strongswan.conf"), settings).expect("a file can be written");
        fs::write(folder.join("swanctl.conf"), CONNECTIONS).expect("a file can be written");
        // An address of its traffic, without which it installs nothing.
        ip(&format!("-n {name} addr add 10.2.0.1/32 dev lo"));
        let script = format!("mount --bind {} /run && exec {CHARON}", path("run"));
        let process = Command::new("ip")
            .args(["netns", "exec", name, "sh", "-c", &script])
            .env("STRONGSWAN_CONF", path("strongswan.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ip can be run");
        let charon = Self { folder, process };
        wait("charon comes up", || charon.folder.join("vici").exists());
        let loaded = charon.swanctl(&[
            "--load-all",
            "--file",
            &charon.folder.join("swanctl.conf").display().to_string(),
        ]);
        assert!(loaded.contains("successfully loaded"), "{loaded}");
        let has_device = || Command::new("ip").args(["-n", name, "link", "show", "ipsec0"]).output();
        wait("it has a device", || has_device().is_ok_and(|shown| shown.status.success()));
        ip(&format!("-n {name} link set ipsec0 up"));
        ip(&format!("-n {name} route add 10.1.0.0/16 dev ipsec0 src 10.2.0.1"));
        charon
    }
    fn swanctl(&self, arguments: &[&str]) -> String {
        let socket = format!("unix://{}", self.folder.join("vici").display());
        let mut command = Command::new("swanctl");
        command
            .args(arguments)
            .args(["--uri", &socket])
            .env("STRONGSWAN_CONF", self.folder.join("strongswan.conf"));
        let done = command.output().expect("swanctl is installed: scripts/setup test");
        [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    }
    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Charon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An endpoint of ours at end 0: port 500 is a socket, port 4500 the tunnel's.
struct Ike<'a> {
    endpoint: Endpoint,
    socket: UdpSocket,
    tunnel: Tunnel,
    said: Receiver<Said>,
    charon: &'a Charon,
    begun: Clock,
    sa: Option<SaId>,
    installed: Vec<ChildSa>,
    removed: usize,
}

impl<'a> Ike<'a> {
    fn new(place: &Place, charon: &'a Charon) -> Self {
        let (tunnel, said) = place.tunnel(0, Config::default());
        let socket = place.within(0, || UdpSocket::bind("192.0.2.1:500").expect("the port is free"));
        socket.set_read_timeout(Some(Duration::from_millis(2))).expect("a socket can wait");
        let endpoint =
            Endpoint::new(IkeConfig::default(), SecureRng::from_seed([std::process::id() as u8; 32]));
        let (begun, sa, installed) = (Clock::now(), None, Vec::new());
        Self { endpoint, socket, tunnel, said, charon, begun, sa, installed, removed: 0 }
    }
    fn now(&self) -> Instant {
        Instant::from_nanos(self.begun.elapsed().as_nanos() as u64)
    }
    fn tell(&mut self, order: Order) {
        assert_eq!(self.endpoint.command(self.now(), order), Ok(()));
        self.drain();
    }
    fn drain(&mut self) {
        let mut buf = Vec::new();
        while let Some(output) = self.endpoint.poll_output(&mut buf) {
            match output {
                Output::Transmit(Transmit::Datagram { path }) if path.socket == SOCKET => {
                    self.socket.send_to(&buf, path.remote).expect("it is sent");
                }
                Output::Transmit(Transmit::Datagram { path }) => {
                    let outer = Outer { local: path.local, remote: path.remote, encapsulated: true };
                    self.tunnel.send(outer, buf.clone());
                }
                Output::Event(Event::Established { sa, .. }) => self.sa = Some(sa),
                Output::Event(Event::Install { child, .. }) => {
                    assert_eq!(self.tunnel.apply(Operation::Install(child.pair().into())), Ok(()));
                    self.installed.push(*child);
                }
                Output::Event(Event::Remove { inbound, .. }) => {
                    assert_eq!(self.tunnel.apply(Operation::Remove { inbound }), Ok(()));
                    self.removed += 1;
                }
                _ => {}
            }
        }
    }
    #[track_caller]
    fn until(&mut self, what: &str, until: impl Fn(&Self) -> bool) {
        let begun = Clock::now();
        while !until(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}: not so.\n{}", self.charon.log());
            let mut buf = [0; 4096];
            if let Ok((length, remote)) = self.socket.recv_from(&mut buf) {
                let local = self.socket.local_addr().expect("it is bound");
                let path = Path { socket: SOCKET, local, remote };
                self.endpoint.handle(self.now(), Input::Datagram { path, data: &buf[..length] });
                self.drain();
            }
            while let Ok(said) = self.said.try_recv() {
                let Said::Ike { outer, message } = said else { continue };
                let path = Path { socket: NAT_SOCKET, local: outer.local, remote: outer.remote };
                self.endpoint.handle(self.now(), Input::Datagram { path, data: &message });
                self.drain();
            }
            if self.endpoint.poll_timeout().is_some_and(|at| at <= self.now()) {
                self.endpoint.handle(self.now(), Input::Timeout);
                self.drain();
            }
        }
    }
}

fn connection(esp: &str) -> Connection {
    let key = || Key::from(&b"a shared secret"[..]);
    let child = ChildConfig {
        name: "net".into(),
        proposals: vec![Proposal::esp(esp).expect("a proposal")],
        local: Some(vec![network("10.1.0.0/16")]),
        remote: Some(vec![network("10.2.0.0/16")]),
        mode: Mode::Tunnel,
        rekey_after: None,
    };
    Connection {
        name: "site".into(),
        local: Identification::fqdn("ini.test"),
        remote: Some(Identification::fqdn("gw.test")),
        from: None,
        local_auth: LocalAuth::Psk(key()),
        remote_auth: RemoteAuth::Psk(key()),
        proposals: vec![Proposal::ike("aes128-sha256-x25519").expect("a proposal")],
        children: vec![child],
        childless: Childless::Allow,
        mobike: false,
        fragmentation: true,
        address: false,
        rekey_after: None,
        liveness: None,
        unique: false,
    }
}

#[test]
fn streams_go_between_our_esp_and_strongswans_with_each_transform_and_over_rekeying() {
    let place = Place::new();
    let charon = Charon::new(&place);
    let mut ike = Ike::new(&place, &charon);
    let [local, remote]: [SocketAddr; 2] =
        ["192.0.2.1:500", "192.0.2.2:500"].map(|a| a.parse().expect("an address"));
    for (n, esp) in ["aes128gcm16", "aes256gcm16", "chacha20poly1305", "aes128-sha256", "3des-sha1"]
        .into_iter()
        .enumerate()
    {
        (ike.sa, ike.removed) = (None, 0);
        ike.installed.clear();
        let connection = Arc::new(connection(esp));
        ike.tell(Order::Initiate { token: n as u64, connection, local, remote });
        ike.until("a CHILD_SA", |ike| ike.sa.is_some() && !ike.installed.is_empty());
        assert!(stream(&place, "10.2.0.1:0", 1 << 20), "{esp}\n{}", charon.log());
        let (sa, spi) = (ike.sa.expect("it is established"), ike.installed[0].inbound);
        if n == 0 {
            // Replaced by us, then by charon.
            ike.tell(Order::RekeyChild { sa, spi });
            ike.until("our rekeying", |ike| ike.removed == 1 && ike.installed.len() == 2);
            assert!(stream(&place, "10.2.0.1:0", 1 << 20), "after our rekeying\n{}", charon.log());
            let said = charon.folder.clone();
            let asked = std::thread::spawn(move || {
                let socket = format!("unix://{}", said.join("vici").display());
                Command::new("swanctl").args(["--rekey", "--child", "net", "--uri", &socket]).output()
            });
            ike.until("charon's rekeying", |ike| ike.removed == 2 && ike.installed.len() == 3);
            assert!(asked.join().is_ok_and(|done| done.is_ok()));
            assert!(stream(&place, "10.2.0.1:0", 1 << 20), "after charon's rekeying\n{}", charon.log());
        }
        let removed = ike.removed;
        ike.tell(Order::Delete(sa));
        ike.until("its end", |ike| ike.removed == removed + 1);
    }
    let (counted, _) = ike.tunnel.counters();
    assert_eq!(
        (counted.integrity, counted.padding, counted.length, counted.selectors),
        (0, 0, 0, 0),
        "{counted:?}"
    );
    assert!(counted.opened > 1000 && counted.sealed > 1000, "{counted:?}");
}
