//! A whole wired port: wpa_supplicant behind a virtual cable, hostapd as its NAS, and our server.

use crate::certificates::write_chain;
use crate::namespace::NetworkNamespace;
use crate::place::{RunningProgram, SECRET, TempDir, USHER, run_program};

/// The common name of the repository's client certificates.
pub(crate) const CLIENT: &str = "station@usher.test";

/// The control socket of the station.
const SOCKET: &str = "control";

/// hostapd and our server in one network, a station in another, and their cable.
pub(crate) struct HostapdTestNetwork {
    pub(crate) usher: RunningProgram,
    pub(crate) hostapd: RunningProgram,
    pub(crate) nas: NetworkNamespace,
    station: NetworkNamespace,
    pub(crate) temp_dir: TempDir,
}

impl HostapdTestNetwork {
    #[track_caller]
    pub(crate) fn new() -> Self {
        let (place, nas, station) = (TempDir::new(), NetworkNamespace::new(), NetworkNamespace::new());
        write_chain(&place, "server", 2);
        write_chain(&place, "client", 2);
        nas.run_ip(&[
            "link",
            "add",
            "port",
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            station.name(),
        ]);
        nas.run_ip(&["link", "set", "port", "up"]);
        station.run_ip(&["link", "set", "cable", "up"]);
        let text = format!(
            r#"shards = 1
reject_delay = "0 s"
state_dir = "{state}"
[listen]
auth = ["127.0.0.1:1812"]
acct = ["127.0.0.1:1813"]
[users]
store = "sqlite"
[log]
level = "debug"
[tls]
certificate = "server.pem"
key = "server.key"
ca = "root.pem"
[[client]]
name = "switch"
prefix = "127.0.0.0/8"
secret = "{SECRET}"
[[user]]
name = "ann"
password = "password"
[[user]]
name = "{CLIENT}"
"#,
            state = place.path_text("state"),
        );
        let usher = nas.start_server(&place, &text);
        let text = format!(
            "interface=port\ndriver=wired\nctrl_interface={folder}hostapd\nieee8021x=1\neapol_version=2\neap_reauth_period=0\n\
             own_ip_addr=127.0.0.1\nnas_identifier=switch.example.org\n\
             auth_server_addr=127.0.0.1\nauth_server_port=1812\nauth_server_shared_secret={SECRET}\n\
             acct_server_addr=127.0.0.1\nacct_server_port=1813\nacct_server_shared_secret={SECRET}\n\
             radius_das_port=3799\nradius_das_client=127.0.0.1 {SECRET}\n",
            folder = place.path_text(""),
        );
        place.write_private("hostapd.conf", &text);
        let mut command = nas.command("hostapd");
        command.args(["-d", "hostapd.conf"]);
        let hostapd = place.start_program("hostapd", &mut command, "AP-ENABLED");
        let mut port = Self { usher, hostapd, nas, station, temp_dir: place };
        // hostapd starts without sessions.
        port.usher.wait_for("accounting status=On");
        port
    }

    /// Starts a station, which logs in by its network block.
    #[track_caller]
    pub(crate) fn start_station(&self, name: &str, network: &str) -> RunningProgram {
        let socket = self.temp_dir.path_text(SOCKET);
        let text = format!(
            "ctrl_interface={socket}\nap_scan=0\nnetwork={{\nkey_mgmt=IEEE8021X\neapol_flags=0\n{network}\n}}\n"
        );
        let file = format!("{name}.conf");
        self.temp_dir.write_private(&file, &text);
        let mut command = self.station.command("wpa_supplicant");
        command.args(["-D", "wired", "-i", "cable", "-c", &file]);
        self.temp_dir.start_program(name, &mut command, "Successfully initialized")
    }

    /// Logs the station off.
    #[track_caller]
    pub(crate) fn log_off(&self) {
        let words = ["-p", SOCKET, "-i", "cable", "logoff"];
        let (right, said) = run_program(&self.temp_dir.path(""), "wpa_cli", &words, "");
        assert!(right && said.contains("OK"), "{said}");
    }

    /// Runs an administrator's command on our server.
    #[track_caller]
    pub(crate) fn run_admin_command(&self, words: &[&str]) -> (bool, String) {
        run_program(
            &self.temp_dir.path(""),
            USHER,
            &[&["aaa"], words, &["--config", "aaa.toml"]].concat(),
            "",
        )
    }

    /// Returns the open sessions of our server.
    #[track_caller]
    pub(crate) fn open_sessions(&self) -> Vec<serde_json::Value> {
        let (right, said) = self.run_admin_command(&["session", "list", "--json"]);
        assert!(right, "{said}");
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
    }
}

pub(crate) fn peap_network(password: &str) -> String {
    format!(
        "eap=PEAP\nidentity=\"ann\"\npassword=\"{password}\"\nca_cert=\"root.pem\"\nphase2=\"auth=MSCHAPV2\""
    )
}

pub(crate) fn tls_network() -> String {
    format!(
        "eap=TLS\nidentity=\"{CLIENT}\"\nca_cert=\"root.pem\"\nclient_cert=\"client.pem\"\nprivate_key=\"client.key\""
    )
}

#[test]
fn a_station_behind_hostapd_logs_in_and_its_session_is_kept() {
    for (method, user, network) in
        [("eap-tls", CLIENT, tls_network()), ("peap", "ann", peap_network("password"))]
    {
        let mut port = HostapdTestNetwork::new();
        let mut station = port.start_station("station", &network);
        station.wait_for("CTRL-EVENT-CONNECTED");
        port.usher.wait_for(&format!("accept user=\"{user}\" method=\"{method}\""));
        port.usher.wait_for(&format!("accounting status=Start user=\"{user}\""));
        let sessions = port.open_sessions();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        assert_eq!((&sessions[0]["user"], &sessions[0]["nas"]), (&user.into(), &"127.0.0.1".into()));
        // The station logs off, and hostapd reports the end of its session.
        port.log_off();
        port.usher.wait_for(&format!("accounting status=Stop user=\"{user}\""));
        assert!(port.open_sessions().is_empty());
        station.terminate();
        assert_eq!(port.hostapd.terminate(), Some(0));
        port.usher.wait_for("accounting status=Off");
        assert_eq!(port.usher.terminate(), Some(0));
    }
}

#[test]
fn a_wrong_password_keeps_the_port_shut() {
    let mut port = HostapdTestNetwork::new();
    let mut station = port.start_station("wrong", &peap_network("wrong"));
    station.wait_for("CTRL-EVENT-EAP-FAILURE");
    port.usher.wait_for("reject user=\"ann\" method=\"peap\"");
    assert!(!station.log().contains("CTRL-EVENT-CONNECTED"), "{}", station.log());
    assert!(port.open_sessions().is_empty());
    assert!(!port.usher.log().contains("accounting status=Start"), "{}", port.usher.log());
}

#[test]
fn a_session_is_ended_from_here() {
    let mut port = HostapdTestNetwork::new();
    let mut station = port.start_station("ann", &peap_network("password"));
    station.wait_for("CTRL-EVENT-CONNECTED");
    port.usher.wait_for("accounting status=Start user=\"ann\"");
    let id = port.open_sessions()[0]["id"].as_str().unwrap().to_owned();
    // hostapd rejects most changes of a session.
    let (right, said) = port.run_admin_command(&["session", "change", &id, "Session-Timeout = 100"]);
    assert!(!right && said.contains("Error-Cause 401"), "{said}");
    let (right, said) = port.run_admin_command(&["session", "disconnect", &id]);
    assert!(right && said.contains("ended"), "{said}");
    port.hostapd.wait_for("Found a matching session");
    port.usher.wait_for("accounting status=Stop user=\"ann\"");
    assert!(port.open_sessions().iter().all(|session| session["id"] != id.as_str()));
}
