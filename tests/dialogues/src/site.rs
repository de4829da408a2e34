//! An AAA server with its ledger and store, on a network in virtual time.

use crate::holdings::SessionHoldings;
use crate::{InvariantBreach, TestUser, main_pool, service_parts, tunnels};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use usher_aaa::ledger::LedgerConfig;
use usher_aaa::service::JobRunner;
use usher_aaa::store::MemoryStore;
use usher_aaa::{
    AaaServer, AaaServerCommand, AuthMethod, IdentityKey, UserCacheConfig, UserSource, radius_socket,
};
use usher_core::bench::{EPOCH, MachineNetwork, NetworkHostHandle};
use usher_core::{Duration, JobRequest, Seed};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;
use usher_radius::server::{ClientConfig, PortRole, RadiusServerConfig};

const SERVER: &str = "203.0.113.1";
const SECRET: &[u8] = b"the secret of RADIUS";
/// The access servers' port for dynamic authorization (RFC 5176).
pub(crate) const DYNAMIC_PORT: u16 = 3799;

/// The server and its host.
#[derive(Debug)]
pub(crate) struct AaaSite {
    server: NetworkHostHandle<AaaServer>,
    service: JobRunner<MemoryStore>,
    jobs: Rc<RefCell<Vec<JobRequest<usher_aaa::AaaServerJob>>>>,
    access_server: IpAddr,
    /// The user of each session as its access server knows it, by Acct-Session-Id.
    pub(crate) accounts: BTreeMap<String, TestUser>,
}

impl AaaSite {
    /// Creates a server with one access server.
    pub(crate) fn new(net: &mut MachineNetwork, access_server: IpAddr) -> Self {
        let mut config = usher_aaa::AaaServerConfig::new(UserSource::Host(UserCacheConfig::default()));
        let client = ClientConfig::new(access_server, 32, usher_radius::SharedSecret::new(SECRET));
        let mut radius = RadiusServerConfig::new(vec![client]);
        radius.roles = vec![PortRole::Authentication, PortRole::Accounting];
        config.radius = Some(radius);
        config.methods = vec![
            AuthMethod::MsChapV2,
            AuthMethod::EapMsChapV2,
            AuthMethod::EapMd5,
            AuthMethod::Peap,
            AuthMethod::Ttls,
            AuthMethod::Chap,
            AuthMethod::Pap,
        ];
        tunnels::add_tunnel_methods(&mut config);
        config.inner_names = vec![0];
        config.identity_key = Some(IdentityKey::new(b"a key that nobody guesses"));
        let server = AaaServer::new(config, Seed::new(21).derive_secure_rng("aaa", 0));
        let own: IpAddr = SERVER.parse().expect("an address");
        let server = net.add_host(server.expect("the configuration holds together"), &[own]);
        for (socket, port) in [(0, 1812), (1, 1813)] {
            net.bind_socket(server, radius_socket(socket), SocketAddr::new(own, port));
        }
        let ledger = LedgerConfig { pools: vec![main_pool()], ..LedgerConfig::default() };
        let service = JobRunner::new(service_parts(ledger), &mut Seed::new(1).derive_secure_rng("known", 0));
        let jobs = Rc::new(RefCell::new(Vec::new()));
        let asks = jobs.clone();
        net.on_job(server, move |job| {
            asks.borrow_mut().push(job);
            None
        });
        Self { server, service, jobs, access_server, accounts: BTreeMap::new() }
    }
    /// Does the server's jobs.
    pub(crate) fn answer_jobs(&mut self, net: &mut MachineNetwork) {
        let now = net.now();
        loop {
            let jobs = std::mem::take(&mut *self.jobs.borrow_mut());
            if jobs.is_empty() {
                break;
            }
            for job in jobs {
                let answer = self.service.run_job(now, now.to_wall_time(EPOCH), job);
                // The login may have ended meanwhile.
                let _ = net.send_command(self.server, answer);
            }
        }
        net.take_events(self.server);
    }
    /// Asks the access server to end a user's sessions.
    pub(crate) fn disconnect_user(&self, net: &mut MachineNetwork, person: TestUser) {
        let mut attributes = AttributeList::new();
        let _ = attributes.push_text(kind::USER_NAME, person.name());
        let (to, code) = (SocketAddr::new(self.access_server, DYNAMIC_PORT), PacketCode::DISCONNECT_REQUEST);
        // The server rejects the command beyond its limit of requests.
        let _ = net.send_command(self.server, AaaServerCommand::Dynamic { token: 7, to, code, attributes });
    }
    /// Checks that the ledger's sessions belong to accepted users and respect their limits.
    pub(crate) fn check_sessions(
        &self,
        named: impl Fn(&str) -> Option<TestUser>,
    ) -> Result<(), InvariantBreach> {
        let mut holdings = SessionHoldings::default();
        for row in self.service.store().sessions().filter(|row| row.acctstoptime.is_none()) {
            holdings.record_session(
                row,
                self.accounts.get(&row.acctsessionid).copied(),
                named(&row.username),
            )?;
        }
        holdings.check_limit()
    }
    /// Describes the open sessions of the ledger.
    pub(crate) fn describe_open(&self) -> String {
        let open = self.service.store().sessions().filter(|row| row.acctstoptime.is_none());
        let told = open
            .map(|row| format!("{} of {} since {:?}", row.acctsessionid, row.username, row.acctstarttime));
        told.collect::<Vec<_>>().join(", ")
    }
    /// Returns the number of reported sessions, and of the open sessions among them.
    pub(crate) fn session_counts(&self) -> (usize, usize) {
        let all = self.service.store().sessions();
        all.fold((0, 0), |(all, open), row| (all + 1, open + usize::from(row.acctstoptime.is_none())))
    }
}

/// Lets time pass on a network, and calls `after` after each event.
pub(crate) fn run_network(
    net: &mut MachineNetwork,
    span: Duration,
    mut after: impl FnMut(&mut MachineNetwork),
) {
    let end = net.now() + span;
    net.drain_hosts();
    after(net);
    while net.next_due_time().is_some_and(|at| at <= end) {
        net.run_next_arrival_or_timer();
        after(net);
    }
    net.run_until(end);
}
