//! Servers whose certificates are revoked, before they are asked and while they are connected.

use super::daemon::{Daemon, Ports, get, metric, pap, pap_unanswered, wait_for_metric, wait_until_metric};
use super::others::{ANN, certificates, listening, tls};
use super::translated::until;
use crate::place::{Folder, own_socket};
use std::path::Path;

pub(super) const HOME: &str = "home.hotel.example";
const FRONT: &str = "front.example.net";
const PEERS: &str = "usher_aaa_diameter_peers";
const DISTRUSTED: &str = "usher_aaa_driver_events_total{kind=\"tls_distrusted\"}";

/// Who looks at the authority's revocation list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    Front,
    Home,
}

/// A server that runs; it ends before its folder is removed.
pub(super) struct Server {
    pub(super) daemon: Daemon,
    pub(super) place: Folder,
    pub(super) ports: Ports,
}

impl Server {
    pub(super) fn start(config: impl FnOnce(&Ports) -> String) -> Self {
        let (place, ports) = (Folder::new(), Ports::free());
        let daemon = Daemon::start(&place, &config(&ports));
        Self { daemon, place, ports }
    }

    fn metric(&self, name: &str) -> f64 {
        metric(&get(self.ports.metrics, "/metrics"), name)
    }

    /// Requests that came, by whatever way.
    fn asked(&self) -> f64 {
        self.metric("usher_aaa_radius_events_total{kind=\"requests\"}")
    }

    /// Reads its configuration again, and with it the list.
    fn reload(&self) {
        self.daemon.signal("HUP");
        self.daemon.wait("reloaded");
    }
}

/// A front and its home server, of which one looks at the list.
struct Scene {
    pki: Folder,
    front: Server,
    home: Server,
}

fn certified(pki: &Path, name: &str, looks: bool) -> String {
    let list = format!("crl = [\"{}/ca.crl\"]\n", pki.display());
    tls(pki, name) + if looks { &list } else { "" }
}

impl Scene {
    fn radsec(pki: Folder, looks: Looks) -> Self {
        let (folder, at) = (pki.path("pki"), own_socket());
        let home = Server::start(|ports| {
            let client =
                format!("[[client]]\nname = \"front\"\nprefix = \"127.0.0.1\"\ncertificate = \"{FRONT}\"\n");
            let tls = certified(&folder, HOME, looks == Looks::Home);
            listening(ports, 1, &format!("radsec = [\"{at}\"]"), &format!("{client}{tls}{ANN}"))
        });
        let front = Server::start(|ports| {
            let tls = certified(&folder, FRONT, looks == Looks::Front);
            let more = format!(
                "{tls}[users]\nstore = \"memory\"\n\
                 [[home_server]]\nname = \"h\"\naddress = \"{at}\"\ntransport = \"tls\"\n\
                 certificate = \"{HOME}\"\n\
                 [[realm]]\nname = \"hotel.example\"\nservers = [\"h\"]\n"
            );
            ports.config(1, &more)
        });
        Self { pki, front, home }
    }

    fn diameter(pki: Folder, looks: Looks) -> Self {
        let (folder, at) = (pki.path("pki"), own_socket());
        let home = Server::start(|ports| {
            let tls = certified(&folder, HOME, looks == Looks::Home);
            let more = format!(
                "{tls}{ANN}[diameter]\nidentity = \"{HOME}\"\nrealm = \"hotel.example\"\npeers = [\"{FRONT}\"]\n"
            );
            listening(ports, 1, &format!("diameter_tls = [\"{at}\"]"), &more)
        });
        let front = Server::start(|ports| {
            let tls = certified(&folder, FRONT, looks == Looks::Front);
            let more = format!(
                "{tls}[users]\nstore = \"memory\"\n[diameter]\nidentity = \"{FRONT}\"\nrealm = \"example.net\"\n\
                 [[diameter.peer]]\nidentity = \"{HOME}\"\ntransport = \"tls\"\nconnect = \"{at}\"\n"
            );
            ports.config(1, &more)
        });
        Self { pki, front, home }
    }

    /// A login of the home server's user at the front, which is accepted.
    #[track_caller]
    fn logs_in(&self) {
        pap(self.front.ports.auth, "ann@hotel.example", "right").with_code(0);
    }

    /// One to which no answer comes, since the front has nobody to ask.
    #[track_caller]
    fn gets_no_answer(&self) {
        pap_unanswered(self.front.ports.auth, "ann@hotel.example", "right");
    }

    fn revoke(&self, name: &str) {
        revoke(&self.pki, name);
    }
}

fn revoke(pki: &Folder, name: &str) {
    pki.usher(&["aaa", "cert", "--dir", "pki", "revoke", name]).with_code(0);
}

/// Waits until a server has no Diameter peer.
#[track_caller]
fn alone(server: &Server) {
    wait_for_metric(server.ports.metrics, PEERS, 0.0);
}

#[test]
fn a_revoked_home_server_is_told_nothing() {
    let pki = certificates();
    revoke(&pki, HOME);
    let scene = Scene::radsec(pki, Looks::Front);
    scene.gets_no_answer();
    let refused = "usher_aaa_driver_events_total{kind=\"tls_certificate\"}";
    wait_until_metric(scene.front.ports.metrics, refused, |refused| refused > 0.0);
    assert_eq!(scene.home.asked(), 0.0);
}

#[test]
fn a_home_server_that_a_reload_revokes_is_told_nothing_more() {
    let scene = Scene::radsec(certificates(), Looks::Front);
    scene.logs_in();
    assert_eq!(scene.home.asked(), 1.0);
    scene.revoke(HOME);
    scene.logs_in();
    assert_eq!(scene.home.asked(), 2.0, "the list is read at a reload");
    scene.front.reload();
    until(&scene.front.ports, DISTRUSTED, 1.0);
    scene.gets_no_answer();
    assert_eq!(scene.home.asked(), 2.0);
}

#[test]
fn a_radsec_client_that_a_reload_revokes_is_served_no_more() {
    let scene = Scene::radsec(certificates(), Looks::Home);
    scene.logs_in();
    assert_eq!(scene.home.asked(), 1.0);
    // Another's certificate changes nothing for it.
    scene.revoke("ann@hotel.example");
    scene.home.reload();
    scene.logs_in();
    assert_eq!((scene.home.asked(), scene.home.metric(DISTRUSTED)), (2.0, 0.0));
    scene.revoke(FRONT);
    scene.home.daemon.signal("HUP");
    until(&scene.home.ports, DISTRUSTED, 1.0);
    scene.gets_no_answer();
    assert_eq!(scene.home.asked(), 2.0);
}

#[test]
fn a_diameter_peer_that_a_reload_revokes_is_left_by_who_connected() {
    let scene = Scene::diameter(certificates(), Looks::Front);
    until(&scene.front.ports, PEERS, 1.0);
    scene.revoke(HOME);
    scene.front.reload();
    alone(&scene.front);
    alone(&scene.home);
    assert_eq!(scene.front.metric(DISTRUSTED), 1.0);
}

#[test]
fn a_diameter_peer_that_a_reload_revokes_is_left_by_who_was_connected_to() {
    let scene = Scene::diameter(certificates(), Looks::Home);
    until(&scene.home.ports, PEERS, 1.0);
    scene.revoke(FRONT);
    scene.home.reload();
    alone(&scene.home);
    alone(&scene.front);
    assert_eq!(scene.home.metric(DISTRUSTED), 1.0);
}

#[test]
fn a_revoked_diameter_peer_is_not_connected_to() {
    let pki = certificates();
    revoke(&pki, HOME);
    let scene = Scene::diameter(pki, Looks::Front);
    until(&scene.front.ports, "usher_aaa_driver_events_total{kind=\"tls_certificate\"}", 1.0);
    assert_eq!((scene.front.metric(PEERS), scene.home.metric(PEERS)), (0.0, 0.0));
}
