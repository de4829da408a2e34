//! An AAA server on a network in virtual time, with its ledger and its store.

use crate::holdings::SessionHoldings;
use crate::{InvariantBreach, Person, main_pool, parts, tunnels};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use usher_aaa::ledger::LedgerConfig;
use usher_aaa::service::Service;
use usher_aaa::store::Memory;
use usher_aaa::{AaaServer, CacheConfig, Command, IdentityKey, Method, UserSource, radius_socket};
use usher_core::bench::{At, EPOCH, Network};
use usher_core::{Duration, Job, Seed};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::Code;
use usher_radius::server::{ClientConfig, Config, Role};

const SERVER: &str = "203.0.113.1";
const SECRET: &[u8] = b"the secret of RADIUS";
/// Where access servers are asked to end sessions (RFC 5176).
pub(crate) const DYNAMIC_PORT: u16 = 3799;

/// The server, and what its host does for it.
#[derive(Debug)]
pub(crate) struct AaaSite {
    server: At<AaaServer>,
    service: Service<Memory>,
    jobs: Rc<RefCell<Vec<Job<usher_aaa::Job>>>>,
    access_server: IpAddr,
    /// By Acct-Session-Id: whose session it is, as far as its access server was told.
    pub(crate) accounts: BTreeMap<String, Person>,
}

impl AaaSite {
    /// A server for one access server.
    pub(crate) fn new(net: &mut Network, access_server: IpAddr) -> Self {
        let mut config = usher_aaa::Config::new(UserSource::Host(CacheConfig::default()));
        let client = ClientConfig::new(access_server, 32, usher_radius::Secret::new(SECRET));
        let mut radius = Config::new(vec![client]);
        radius.roles = vec![Role::Authentication, Role::Accounting];
        config.radius = Some(radius);
        config.methods = vec![
            Method::MsChapV2,
            Method::EapMsChapV2,
            Method::EapMd5,
            Method::Peap,
            Method::Ttls,
            Method::Chap,
            Method::Pap,
        ];
        tunnels::serve(&mut config);
        config.inner_names = vec![0];
        config.identity_key = Some(IdentityKey::new(b"a key that nobody guesses"));
        let server = AaaServer::new(config, Seed::new(21).secure("aaa", 0));
        let own: IpAddr = SERVER.parse().expect("an address");
        let server = net.add(server.expect("the configuration holds together"), &[own]);
        for (socket, port) in [(0, 1812), (1, 1813)] {
            net.bind(server, radius_socket(socket), SocketAddr::new(own, port));
        }
        let ledger = LedgerConfig { pools: vec![main_pool()], ..LedgerConfig::default() };
        let service = Service::new(parts(ledger), &mut Seed::new(1).secure("known", 0));
        let jobs = Rc::new(RefCell::new(Vec::new()));
        let asks = jobs.clone();
        net.on_job(server, move |job| {
            asks.borrow_mut().push(job);
            None
        });
        Self { server, service, jobs, access_server, accounts: BTreeMap::new() }
    }
    /// Answers what the server asks of its host.
    pub(crate) fn serve(&mut self, net: &mut Network) {
        let now = net.now();
        loop {
            let jobs = std::mem::take(&mut *self.jobs.borrow_mut());
            if jobs.is_empty() {
                break;
            }
            for job in jobs {
                let answer = self.service.answer(now, now.wall(EPOCH), job);
                // The login may be over meanwhile.
                let _ = net.command(self.server, answer);
            }
        }
        net.take(self.server);
    }
    /// Has the access server end the sessions of somebody.
    pub(crate) fn disconnect(&self, net: &mut Network, person: Person) {
        let mut attributes = Attributes::new();
        let _ = attributes.push_text(kind::USER_NAME, person.name());
        let (to, code) = (SocketAddr::new(self.access_server, DYNAMIC_PORT), Code::DISCONNECT_REQUEST);
        // There may be as many under way as may be.
        let _ = net.command(self.server, Command::Dynamic { token: 7, to, code, attributes });
    }
    /// Sessions that the ledger has are of those who were let in, and within their limits.
    pub(crate) fn check(&self, named: impl Fn(&str) -> Option<Person>) -> Result<(), InvariantBreach> {
        let mut holdings = SessionHoldings::default();
        for row in self.service.store().sessions().filter(|row| row.acctstoptime.is_none()) {
            holdings.session(row, self.accounts.get(&row.acctsessionid).copied(), named(&row.username))?;
        }
        holdings.limit()
    }
    /// Sessions that are open in the ledger, for people.
    pub(crate) fn open(&self) -> String {
        let open = self.service.store().sessions().filter(|row| row.acctstoptime.is_none());
        let told = open
            .map(|row| format!("{} of {} since {:?}", row.acctsessionid, row.username, row.acctstarttime));
        told.collect::<Vec<_>>().join(", ")
    }
    /// Sessions that the server was told of, and those among them that are open.
    pub(crate) fn sessions(&self) -> (usize, usize) {
        let all = self.service.store().sessions();
        all.fold((0, 0), |(all, open), row| (all + 1, open + usize::from(row.acctstoptime.is_none())))
    }
}

/// Lets time pass on a network, and calls after each thing that happens.
pub(crate) fn run(net: &mut Network, span: Duration, mut after: impl FnMut(&mut Network)) {
    let end = net.now() + span;
    net.settle();
    after(net);
    while net.due().is_some_and(|at| at <= end) {
        net.step();
        after(net);
    }
    net.run_until(end);
}
