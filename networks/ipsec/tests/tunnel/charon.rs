//! Our ESP and strongSwan's in user space (kernel-libipsec), with keys that our IKE and its charon negotiate.

use super::carry::transfer_stream;
use super::place::{NamespacePair, TEST_TIMEOUT, network_selector, run_ip, wait_until};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant as Clock};
use usher_core::{DatagramPath, Instant, Machine, MachineInput, MachineOutput, SecureRng, Transmit};
use usher_crypto::SecretValue;
use usher_esp::IpsecOperation;
use usher_esp::plane::OuterAddresses;
use usher_ike::IkeEndpoint;
use usher_ike::machine::{
    ChildSa, ChildSaConfig, ChildlessPolicy, IkeCommand, IkeConnectionConfig, IkeEndpointConfig as IkeConfig,
    IkeEvent, IkeSaId, IpsecMode, LocalAuth, NAT_SOCKET, RemoteAuth, SOCKET,
};
use usher_ike::payload::{Identification, Proposal};
use usher_ipsec::{EspTunnel, TunnelConfig, TunnelEvent};

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

/// charon at end 1. Dropping it ends the process.
struct CharonProcess {
    folder: PathBuf,
    process: Child,
}

impl CharonProcess {
    #[track_caller]
    fn new(place: &NamespacePair) -> Self {
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
        // An address of its traffic selectors, without which it installs nothing.
        run_ip(&format!("-n {name} addr add 10.2.0.1/32 dev lo"));
        let script = format!("mount --bind {} /run && exec {CHARON}", path("run"));
        let process = Command::new("ip")
            .args(["netns", "exec", name, "sh", "-c", &script])
            .env("STRONGSWAN_CONF", path("strongswan.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ip can be run");
        let charon = Self { folder, process };
        wait_until("charon comes up", || charon.folder.join("vici").exists());
        let loaded = charon.run_swanctl(&[
            "--load-all",
            "--file",
            &charon.folder.join("swanctl.conf").display().to_string(),
        ]);
        assert!(loaded.contains("successfully loaded"), "{loaded}");
        let has_device = || Command::new("ip").args(["-n", name, "link", "show", "ipsec0"]).output();
        wait_until("it has a device", || has_device().is_ok_and(|shown| shown.status.success()));
        run_ip(&format!("-n {name} link set ipsec0 up"));
        run_ip(&format!("-n {name} route add 10.1.0.0/16 dev ipsec0 src 10.2.0.1"));
        charon
    }
    fn run_swanctl(&self, arguments: &[&str]) -> String {
        let socket = format!("unix://{}", self.folder.join("vici").display());
        let mut command = Command::new("swanctl");
        command
            .args(arguments)
            .args(["--uri", &socket])
            .env("STRONGSWAN_CONF", self.folder.join("strongswan.conf"));
        let done = command.output().expect("swanctl is installed: scripts/setup test");
        [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    }
    fn charon_log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for CharonProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Our IKE at end 0: port 500 is a socket, and port 4500 the tunnel's.
struct IkeHost<'a> {
    endpoint: IkeEndpoint,
    socket: UdpSocket,
    tunnel: EspTunnel,
    event_receiver: Receiver<TunnelEvent>,
    charon: &'a CharonProcess,
    clock: Clock,
    sa: Option<IkeSaId>,
    installed: Vec<ChildSa>,
    removed: usize,
}

impl<'a> IkeHost<'a> {
    fn new(place: &NamespacePair, charon: &'a CharonProcess) -> Self {
        let (tunnel, said) = place.start_tunnel(0, TunnelConfig::default());
        let socket =
            place.run_in_namespace(0, || UdpSocket::bind("192.0.2.1:500").expect("the port is free"));
        socket.set_read_timeout(Some(Duration::from_millis(2))).expect("a socket can wait");
        let endpoint =
            IkeEndpoint::new(IkeConfig::default(), SecureRng::from_seed([std::process::id() as u8; 32]));
        let (begun, sa, installed) = (Clock::now(), None, Vec::new());
        Self {
            endpoint,
            socket,
            tunnel,
            event_receiver: said,
            charon,
            clock: begun,
            sa,
            installed,
            removed: 0,
        }
    }
    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.elapsed().as_nanos() as u64)
    }
    fn send_command(&mut self, order: IkeCommand) {
        assert_eq!(self.endpoint.handle_command(self.now(), order), Ok(()));
        self.drain_outputs();
    }
    fn drain_outputs(&mut self) {
        let mut buf = Vec::new();
        while let Some(output) = self.endpoint.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(Transmit::Datagram { path }) if path.socket == SOCKET => {
                    self.socket.send_to(&buf, path.remote).expect("it is sent");
                }
                MachineOutput::Transmit(Transmit::Datagram { path }) => {
                    let outer = OuterAddresses { local: path.local, remote: path.remote, encapsulated: true };
                    self.tunnel.send_datagram(outer, buf.clone());
                }
                MachineOutput::Event(IkeEvent::Established { sa, .. }) => self.sa = Some(sa),
                MachineOutput::Event(IkeEvent::Install { child, .. }) => {
                    assert_eq!(
                        self.tunnel.apply_operation(IpsecOperation::Install(child.sa_pair().into())),
                        Ok(())
                    );
                    self.installed.push(*child);
                }
                MachineOutput::Event(IkeEvent::Remove { inbound, .. }) => {
                    assert_eq!(self.tunnel.apply_operation(IpsecOperation::Remove { inbound }), Ok(()));
                    self.removed += 1;
                }
                _ => {}
            }
        }
    }
    #[track_caller]
    fn wait_until(&mut self, what: &str, until: impl Fn(&Self) -> bool) {
        let begun = Clock::now();
        while !until(self) {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{what}: not so.\n{}", self.charon.charon_log());
            let mut buf = [0; 4096];
            if let Ok((length, remote)) = self.socket.recv_from(&mut buf) {
                let local = self.socket.local_addr().expect("it is bound");
                let path = DatagramPath { socket: SOCKET, local, remote };
                self.endpoint.handle_input(self.now(), MachineInput::Datagram { path, data: &buf[..length] });
                self.drain_outputs();
            }
            while let Ok(said) = self.event_receiver.try_recv() {
                let TunnelEvent::Ike { outer, message } = said else { continue };
                let path = DatagramPath { socket: NAT_SOCKET, local: outer.local, remote: outer.remote };
                self.endpoint.handle_input(self.now(), MachineInput::Datagram { path, data: &message });
                self.drain_outputs();
            }
            if self.endpoint.poll_timeout().is_some_and(|at| at <= self.now()) {
                self.endpoint.handle_input(self.now(), MachineInput::Timeout);
                self.drain_outputs();
            }
        }
    }
}

fn test_connection(esp: &str) -> IkeConnectionConfig {
    let key = || SecretValue::from(&b"a shared secret"[..]);
    let child = ChildSaConfig {
        name: "net".into(),
        proposals: vec![Proposal::parse_esp_proposal(esp).expect("a proposal")],
        local: Some(vec![network_selector("10.1.0.0/16")]),
        remote: Some(vec![network_selector("10.2.0.0/16")]),
        mode: IpsecMode::Tunnel,
        rekey_after: None,
    };
    IkeConnectionConfig {
        name: "site".into(),
        local: Identification::from_fqdn("ini.test"),
        remote: Some(Identification::from_fqdn("gw.test")),
        from: None,
        local_auth: LocalAuth::Psk(key()),
        remote_auth: RemoteAuth::Psk(key()),
        proposals: vec![Proposal::parse_ike_proposal("aes128-sha256-x25519").expect("a proposal")],
        children: vec![child],
        childless: ChildlessPolicy::Allow,
        mobike: false,
        fragmentation: true,
        address: false,
        rekey_after: None,
        liveness: None,
        unique: false,
    }
}

#[test]
fn each_transform_carries_streams_to_strongswan_over_rekeying() {
    let place = NamespacePair::new();
    let charon = CharonProcess::new(&place);
    let mut ike = IkeHost::new(&place, &charon);
    let [local, remote]: [SocketAddr; 2] =
        ["192.0.2.1:500", "192.0.2.2:500"].map(|a| a.parse().expect("an address"));
    for (n, esp) in ["aes128gcm16", "aes256gcm16", "chacha20poly1305", "aes128-sha256", "3des-sha1"]
        .into_iter()
        .enumerate()
    {
        (ike.sa, ike.removed) = (None, 0);
        ike.installed.clear();
        let connection = Arc::new(test_connection(esp));
        ike.send_command(IkeCommand::Initiate { token: n as u64, connection, local, remote });
        ike.wait_until("a CHILD_SA", |ike| ike.sa.is_some() && !ike.installed.is_empty());
        assert!(transfer_stream(&place, "10.2.0.1:0", 1 << 20), "{esp}\n{}", charon.charon_log());
        let (sa, spi) = (ike.sa.expect("it is established"), ike.installed[0].inbound);
        if n == 0 {
            // Rekeyed by us, then by charon.
            ike.send_command(IkeCommand::RekeyChild { sa, spi });
            ike.wait_until("our rekeying", |ike| ike.removed == 1 && ike.installed.len() == 2);
            assert!(
                transfer_stream(&place, "10.2.0.1:0", 1 << 20),
                "after our rekeying\n{}",
                charon.charon_log()
            );
            let said = charon.folder.clone();
            let asked = std::thread::spawn(move || {
                let socket = format!("unix://{}", said.join("vici").display());
                Command::new("swanctl").args(["--rekey", "--child", "net", "--uri", &socket]).output()
            });
            ike.wait_until("charon's rekeying", |ike| ike.removed == 2 && ike.installed.len() == 3);
            assert!(asked.join().is_ok_and(|done| done.is_ok()));
            assert!(
                transfer_stream(&place, "10.2.0.1:0", 1 << 20),
                "after charon's rekeying\n{}",
                charon.charon_log()
            );
        }
        let removed = ike.removed;
        ike.send_command(IkeCommand::Delete(sa));
        ike.wait_until("its end", |ike| ike.removed == removed + 1);
    }
    let (counted, _) = ike.tunnel.counters();
    assert_eq!(
        (counted.integrity, counted.padding, counted.length, counted.selectors),
        (0, 0, 0, 0),
        "{counted:?}"
    );
    assert!(counted.opened > 1000 && counted.sealed > 1000, "{counted:?}");
}
