//! Servers with revoked certificates, before a connection and during one.

use super::daemon::{
    DaemonProcess, ServerPorts, get_page, metric_value, pap_login, pap_unanswered, wait_for_metric,
    wait_until_metric,
};
use super::others::{ANN, create_certificates, listening_config, tls_section};
use super::translated::wait_for_metric_value;
use crate::place::{TempDir, own_socket};
use std::path::Path;

pub(super) const HOME: &str = "home.hotel.example";
const FRONT: &str = "front.example.net";
const PEERS: &str = "usher_aaa_diameter_peers";
const DISTRUSTED: &str = "usher_aaa_driver_events_total{kind=\"tls_distrusted\"}";

/// The side that checks the authority's revocation list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RevocationChecker {
    Front,
    Home,
}

/// A running server, which ends before its folder is removed.
pub(super) struct TestServer {
    pub(super) daemon: DaemonProcess,
    pub(super) temp_dir: TempDir,
    pub(super) ports: ServerPorts,
}

impl TestServer {
    pub(super) fn start(config: impl FnOnce(&ServerPorts) -> String) -> Self {
        let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
        let daemon = DaemonProcess::start(&place, &config(&ports));
        Self { daemon, temp_dir: place, ports }
    }

    fn metric_value(&self, name: &str) -> f64 {
        metric_value(&get_page(self.ports.metrics, "/metrics"), name)
    }

    /// Returns the number of requests received, over any transport.
    fn request_count(&self) -> f64 {
        self.metric_value("usher_aaa_radius_events_total{kind=\"requests\"}")
    }

    /// Reloads its configuration and the list.
    fn reload_config(&self) {
        self.daemon.send_signal("HUP");
        self.daemon.wait_for_log("reloaded");
    }
}

/// A front and its home server. One of them checks the list.
struct RevocationFixture {
    pki: TempDir,
    front: TestServer,
    home: TestServer,
}

fn tls_with_list(pki: &Path, name: &str, looks: bool) -> String {
    let list = format!("crl = [\"{}/ca.crl\"]\n", pki.display());
    tls_section(pki, name) + if looks { &list } else { "" }
}

impl RevocationFixture {
    fn over_radsec(pki: TempDir, looks: RevocationChecker) -> Self {
        let (folder, at) = (pki.path("pki"), own_socket());
        let home = TestServer::start(|ports| {
            let client =
                format!("[[client]]\nname = \"front\"\nprefix = \"127.0.0.1\"\ncertificate = \"{FRONT}\"\n");
            let tls = tls_with_list(&folder, HOME, looks == RevocationChecker::Home);
            listening_config(ports, 1, &format!("radsec = [\"{at}\"]"), &format!("{client}{tls}{ANN}"))
        });
        let front = TestServer::start(|ports| {
            let tls = tls_with_list(&folder, FRONT, looks == RevocationChecker::Front);
            let more = format!(
                "{tls}[users]\nstore = \"memory\"\n\
                 [[home_server]]\nname = \"h\"\naddress = \"{at}\"\ntransport = \"tls\"\n\
                 certificate = \"{HOME}\"\n\
                 [[realm]]\nname = \"hotel.example\"\nservers = [\"h\"]\n"
            );
            ports.server_config(1, &more)
        });
        Self { pki, front, home }
    }

    fn over_diameter(pki: TempDir, looks: RevocationChecker) -> Self {
        let (folder, at) = (pki.path("pki"), own_socket());
        let home = TestServer::start(|ports| {
            let tls = tls_with_list(&folder, HOME, looks == RevocationChecker::Home);
            let more = format!(
                "{tls}{ANN}[diameter]\nidentity = \"{HOME}\"\nrealm = \"hotel.example\"\npeers = [\"{FRONT}\"]\n"
            );
            listening_config(ports, 1, &format!("diameter_tls = [\"{at}\"]"), &more)
        });
        let front = TestServer::start(|ports| {
            let tls = tls_with_list(&folder, FRONT, looks == RevocationChecker::Front);
            let more = format!(
                "{tls}[users]\nstore = \"memory\"\n[diameter]\nidentity = \"{FRONT}\"\nrealm = \"example.net\"\n\
                 [[diameter.peer]]\nidentity = \"{HOME}\"\ntransport = \"tls\"\nconnect = \"{at}\"\n"
            );
            ports.server_config(1, &more)
        });
        Self { pki, front, home }
    }

    /// Logs a user of the home server in at the front and expects an accept.
    #[track_caller]
    fn logs_in(&self) {
        pap_login(self.front.ports.auth, "ann@hotel.example", "right").with_code(0);
    }

    /// Expects no reply: the front has no home server to ask.
    #[track_caller]
    fn gets_no_answer(&self) {
        pap_unanswered(self.front.ports.auth, "ann@hotel.example", "right");
    }

    fn revoke_certificate(&self, name: &str) {
        revoke_certificate(&self.pki, name);
    }
}

fn revoke_certificate(pki: &TempDir, name: &str) {
    pki.run_usher(&["aaa", "cert", "--dir", "pki", "revoke", name]).with_code(0);
}

/// Waits until a server has no Diameter peer.
#[track_caller]
fn wait_without_peers(server: &TestServer) {
    wait_for_metric(server.ports.metrics, PEERS, 0.0);
}

#[test]
fn a_revoked_home_server_is_told_nothing() {
    let pki = create_certificates();
    revoke_certificate(&pki, HOME);
    let scene = RevocationFixture::over_radsec(pki, RevocationChecker::Front);
    scene.gets_no_answer();
    let refused = "usher_aaa_driver_events_total{kind=\"tls_certificate\"}";
    wait_until_metric(scene.front.ports.metrics, refused, |refused| refused > 0.0);
    assert_eq!(scene.home.request_count(), 0.0);
}

#[test]
fn a_home_server_that_a_reload_revokes_is_told_nothing_more() {
    let scene = RevocationFixture::over_radsec(create_certificates(), RevocationChecker::Front);
    scene.logs_in();
    assert_eq!(scene.home.request_count(), 1.0);
    scene.revoke_certificate(HOME);
    scene.logs_in();
    assert_eq!(scene.home.request_count(), 2.0, "the list is read at a reload");
    scene.front.reload_config();
    wait_for_metric_value(&scene.front.ports, DISTRUSTED, 1.0);
    scene.gets_no_answer();
    assert_eq!(scene.home.request_count(), 2.0);
}

#[test]
fn a_radsec_client_that_a_reload_revokes_is_served_no_more() {
    let scene = RevocationFixture::over_radsec(create_certificates(), RevocationChecker::Home);
    scene.logs_in();
    assert_eq!(scene.home.request_count(), 1.0);
    // The revocation of another certificate changes nothing.
    scene.revoke_certificate("ann@hotel.example");
    scene.home.reload_config();
    scene.logs_in();
    assert_eq!((scene.home.request_count(), scene.home.metric_value(DISTRUSTED)), (2.0, 0.0));
    scene.revoke_certificate(FRONT);
    scene.home.daemon.send_signal("HUP");
    wait_for_metric_value(&scene.home.ports, DISTRUSTED, 1.0);
    scene.gets_no_answer();
    assert_eq!(scene.home.request_count(), 2.0);
}

#[test]
fn a_reload_drops_a_revoked_diameter_peer_that_we_connected_to() {
    let scene = RevocationFixture::over_diameter(create_certificates(), RevocationChecker::Front);
    wait_for_metric_value(&scene.front.ports, PEERS, 1.0);
    scene.revoke_certificate(HOME);
    scene.front.reload_config();
    wait_without_peers(&scene.front);
    wait_without_peers(&scene.home);
    assert_eq!(scene.front.metric_value(DISTRUSTED), 1.0);
}

#[test]
fn a_reload_drops_a_revoked_diameter_peer_that_connected_to_us() {
    let scene = RevocationFixture::over_diameter(create_certificates(), RevocationChecker::Home);
    wait_for_metric_value(&scene.home.ports, PEERS, 1.0);
    scene.revoke_certificate(FRONT);
    scene.home.reload_config();
    wait_without_peers(&scene.home);
    wait_without_peers(&scene.front);
    assert_eq!(scene.home.metric_value(DISTRUSTED), 1.0);
}

#[test]
fn a_revoked_diameter_peer_is_not_connected_to() {
    let pki = create_certificates();
    revoke_certificate(&pki, HOME);
    let scene = RevocationFixture::over_diameter(pki, RevocationChecker::Front);
    wait_for_metric_value(&scene.front.ports, "usher_aaa_driver_events_total{kind=\"tls_certificate\"}", 1.0);
    assert_eq!((scene.front.metric_value(PEERS), scene.home.metric_value(PEERS)), (0.0, 0.0));
}
