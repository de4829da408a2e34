//! IDENT (RFC 1413): the service of a host, which knows the host's own connections, and the workload that queries it.

use super::arrivals::{ArrivalPattern, ArrivalProcess};
use super::error::ScenarioRunError;
use super::machine::{HostAddress, MachineEventOrJob, MachineSockets};
use super::plan::{NetworkPlan, UserByApplication};
use super::report::{DialogueEnd, RoleReport};
use super::role::HostRole;
use super::topology::NetworkTopology;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use usher_core::{ConnId, Duration, Instant, JobRequest, ListenerId, Machine};
use usher_ident::{
    ClientCommand, ClientConfig, ClientEvent, IdentClient, IdentPortPair, IdentQuery, PORT,
    QueriedConnection, QueryFailure, ResponseBody,
};
use usher_ident_service::{
    ConnectionOwner, IdentService, IdentServiceCommand, IdentServiceConfig, IdentServiceJob,
    OwnerLookupResult,
};
use usher_scenario::model;
use usher_scenario::ports::CHAT;
use usher_scenario::services::HostService;
use usher_sim::{AppContext, AppDelivery, HostId, TcpStreamEvent};

/// The owner of the connection from each port of a host; only the study knows all of them.
type ConnectionOwners = Rc<RefCell<BTreeMap<(HostId, u16), UserConnection>>>;

/// A user's connection.
#[derive(Debug)]
struct UserConnection {
    user: ConnectionOwner,
    /// Time of the user's request; `None` once the server has accepted the connection.
    since: Option<Instant>,
}

/// A user waits for the connection's end this much longer than the server waits for a response: the end may be lost and
/// retransmitted.
const MARGIN: Duration = Duration::from_secs(5);

/// The service of `usher ident serve`, with the simulated host as its kernel.
#[derive(Debug)]
pub(super) struct ServerRole {
    address: HostAddress,
    endpoint: MachineSockets,
    config: IdentServiceConfig,
    service: IdentService,
    users: UserByApplication,
}

impl HostRole for ServerRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let delivery = &delivery;
        let now = ctx.now();
        match delivery {
            AppDelivery::Start => self.service = IdentService::new(self.config.clone()),
            AppDelivery::Owner { token, app } => {
                let user = |app| self.users.borrow().get(&app).cloned().unwrap_or_else(usher_user);
                let owner = app.map_or(OwnerLookupResult::NoOwner, |app| OwnerLookupResult::User(user(app)));
                // An error is ignored: the client's connection may be gone.
                let _ = self.service.handle_command(now, IdentServiceCommand::Found { token: *token, owner });
            }
            _ => {}
        }
        let Self { address: own, endpoint, service, .. } = self;
        endpoint.deliver_to_machine(ctx, service, delivery);
        endpoint.drain_outputs(ctx, service, |ctx, service, word| {
            let MachineEventOrJob::Job(JobRequest {
                token,
                job: IdentServiceJob::Owner(QueriedConnection { local, remote }),
                ..
            }) = word
            else {
                return;
            };
            match own.connection_hosts(Some(local.ip()), remote) {
                Some((from, to)) => ctx.query_owner(token, (from, local.port()), (to, remote.port())),
                None => {
                    let _ = service.handle_command(
                        now,
                        IdentServiceCommand::Found { token, owner: OwnerLookupResult::NoOwner },
                    );
                }
            }
        });
    }
}

/// The user of Usher's own programs.
fn usher_user() -> ConnectionOwner {
    ConnectionOwner { name: Some(b"usher".to_vec()), uid: None }
}

/// A server that queries the owner of each accepted connection.
#[derive(Debug)]
pub(super) struct IdentClientRole {
    address: HostAddress,
    endpoint: MachineSockets,
    config: ClientConfig,
    client: IdentClient,
    /// Pending queries by token: the connection, the client's port, and the start.
    pending_queries: BTreeMap<u64, (ConnId, (HostId, u16), Instant)>,
    next: u64,
    truth: ConnectionOwners,
}

impl HostRole for IdentClientRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let delivery = &delivery;
        let (now, mut over) = (ctx.now(), Vec::new());
        match delivery {
            AppDelivery::Start => {
                self.client = IdentClient::new(self.config);
                over.extend(self.pending_queries.keys().map(|token| (*token, Err(QueryFailure::Closed))));
            }
            AppDelivery::Stream { conn, event } if conn.is_accepted() => {
                if let TcpStreamEvent::Connected { remote, remote_port, local, local_port } = *event {
                    let token = self.next;
                    self.next += 1;
                    self.pending_queries.insert(token, (*conn, (remote, remote_port), now));
                    let dialled =
                        self.truth.borrow_mut().get_mut(&(remote, remote_port)).and_then(|d| d.since.take());
                    if let Some(since) = dialled {
                        // The user's dialogue is withdrawn, because from here on the server's query counts instead.
                        ctx.report(RoleReport::Withdrawn(since));
                    }
                    ctx.report(RoleReport::Started);
                    let question = IdentQuery {
                        server: self.address.socket_address(remote, PORT),
                        local: Some(self.address.addresses.address_of(local)),
                        ports: IdentPortPair::new(remote_port, local_port),
                    };
                    // The result is ignored: the client's limits exceed the queries of a run, and the ports are valid.
                    let _ = self.client.handle_command(now, ClientCommand::Query { token, question });
                }
            }
            _ => self.endpoint.deliver_to_machine(ctx, &mut self.client, delivery),
        }
        self.endpoint.drain_outputs(ctx, &mut self.client, |_, _, word| match word {
            MachineEventOrJob::Event(ClientEvent::Answered { token, answer }) => over.push((token, answer)),
            MachineEventOrJob::Job(job) => match job.job {},
        });
        for (token, answer) in over {
            let Some((conn, whose, began)) = self.pending_queries.remove(&token) else { continue };
            ctx.shutdown(conn);
            if let Ok(answer) = &answer {
                let right = self
                    .truth
                    .borrow()
                    .get(&whose)
                    .is_some_and(|dialled| contains_user_identity(answer, &dialled.user));
                ctx.report(RoleReport::Identified(began, right));
            }
            let end = if answer.is_ok() { DialogueEnd::Completed } else { DialogueEnd::Failed };
            ctx.report(RoleReport::Ended { started_at: began, end });
        }
    }
}

/// True if a response contains this user's name or number.
fn contains_user_identity(answer: &ResponseBody, user: &ConnectionOwner) -> bool {
    let ResponseBody::UserId { user: said, .. } = answer else { return false };
    let number = user.uid.map(|uid| uid.to_string().into_bytes());
    [&user.name, &number].into_iter().flatten().any(|known| known == said.name())
}

/// A user of a host who connects to a server.
#[derive(Debug)]
pub(super) struct IdentUserRole {
    host: HostId,
    server: HostId,
    user: ConnectionOwner,
    arrivals: ArrivalProcess,
    opened: u32,
    /// Open connections.
    open: BTreeMap<ConnId, OpenIdentConnection>,
    /// Timeouts of established connections.
    ends: BTreeSet<(Instant, ConnId)>,
    /// Time that the server waits for a response.
    query_timeout: Duration,
    truth: ConnectionOwners,
}

/// An open connection of its user.
#[derive(Clone, Copy, Debug)]
struct OpenIdentConnection {
    since: Instant,
    /// Its port and its timeout, once established.
    established: Option<(u16, Instant)>,
}

impl IdentUserRole {
    /// Ends a connection. It failed if the server has not accepted it.
    fn end_ident_connection(&mut self, ctx: &mut AppContext<'_, RoleReport>, conn: ConnId) {
        let Some(OpenIdentConnection { since, established }) = self.open.remove(&conn) else { return };
        let accepted = established.is_some_and(|(port, until)| {
            self.ends.remove(&(until, conn));
            let dialled = self.truth.borrow_mut().get_mut(&(self.host, port)).and_then(|d| d.since.take());
            dialled.is_none()
        });
        if !accepted {
            ctx.report(RoleReport::Ended { started_at: since, end: DialogueEnd::Failed });
        }
        self.arrivals.finish_dialogue(ctx.now());
    }
}

impl HostRole for IdentUserRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let delivery = &delivery;
        let now = ctx.now();
        match delivery {
            AppDelivery::Start => {
                // A failed host loses its connections. A host that is off opens none, so this loop then does nothing.
                while let Some((&conn, _)) = self.open.first_key_value() {
                    self.end_ident_connection(ctx, conn);
                }
                self.arrivals.skip_missed_arrivals(now);
            }
            AppDelivery::Stream { conn, event: TcpStreamEvent::Connected { local, local_port, .. } } => {
                let Some(open) = self.open.get_mut(conn) else { return };
                let until = now + self.query_timeout + MARGIN;
                open.established = Some((*local_port, until));
                self.ends.insert((until, *conn));
                let dialled = UserConnection { user: self.user.clone(), since: Some(open.since) };
                self.truth.borrow_mut().insert((*local, *local_port), dialled);
            }
            AppDelivery::Stream { conn, event: TcpStreamEvent::Closed(_) } => {
                self.end_ident_connection(ctx, *conn)
            }
            _ => {}
        }
        // If the server's host failed, it has forgotten the connection, so that only the user's timeout ends it.
        while let Some(&(_, conn)) = self.ends.first().filter(|(until, _)| *until <= now) {
            ctx.abort(conn);
            self.end_ident_connection(ctx, conn);
        }
        while self.arrivals.take_due_arrival(now) {
            let conn = ConnId::nth_opened_connection(self.opened);
            self.opened += 1;
            self.open.insert(conn, OpenIdentConnection { since: now, established: None });
            ctx.report(RoleReport::Started);
            ctx.connect_from(conn, self.host, self.server, CHAT);
        }
        ctx.set_timer(
            self.arrivals.next_arrival().into_iter().chain(self.ends.first().map(|(until, _)| *until)).min(),
        );
    }
}

/// Places the IDENT services of a scenario on their hosts.
pub(super) fn place_ident_services(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
) -> Result<(), ScenarioRunError> {
    for (name, services) in plan.scenario.services.iter() {
        let loaded = services.iter().filter_map(|service| match service {
            HostService::Ident(loaded) => Some(loaded),
            _ => None,
        });
        for (loaded, &host) in loaded.flat_map(|loaded| {
            topology.host_group(name).into_iter().flatten().map(move |host| (loaded, host))
        }) {
            let mut endpoint = MachineSockets::new(plan.host_address(host));
            let mut ports = BTreeMap::new();
            for (n, address) in (0..).zip(&loaded.file.listen) {
                if plan.addresses.is_reachable_at(host, address.ip()) {
                    ports.entry(address.port()).or_insert(ListenerId::from_number(n));
                }
            }
            for (port, listener) in &ports {
                endpoint.register_listener(*port, *listener, None);
            }
            let role = ServerRole {
                address: plan.host_address(host),
                endpoint,
                service: IdentService::new(loaded.config.clone()),
                config: loaded.config.clone(),
                users: plan.users.clone(),
            };
            let app = plan.add_role(host, role);
            ports.into_keys().try_for_each(|port| plan.builder.listen_tcp(app, port))?;
        }
    }
    Ok(())
}

/// Places the workload's roles on the topology's hosts.
pub(super) fn build_ident_roles(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
    ident: &model::IdentWorkload,
) -> Result<(), ScenarioRunError> {
    let (clients, servers) = (topology.host_group(&ident.clients)?, topology.host_group(&ident.server)?);
    let truth = ConnectionOwners::default();
    let config = ClientConfig { response_timeout: ident.patience.get(), questions: usize::MAX };
    for &host in servers {
        let role = IdentClientRole {
            address: plan.host_address(host),
            endpoint: MachineSockets::new(plan.host_address(host)),
            config,
            client: IdentClient::new(config),
            pending_queries: BTreeMap::new(),
            next: 0,
            truth: truth.clone(),
        };
        let app = plan.add_role(host, role);
        plan.builder.listen_tcp(app, CHAT)?;
    }
    let pattern = ArrivalPattern::new(&ident.arrivals, (clients.len() * ident.users.len()) as u64, plan.end);
    let users = clients.iter().enumerate().flat_map(|(i, &host)| {
        (0..).zip(&ident.users).map(move |(n, name)| (host, servers[i % servers.len()], n, name))
    });
    for (index, (host, server, n, name)) in (0..).zip(users) {
        let rng = plan.seed.derive_rng("arrivals", index);
        let arrivals = ArrivalProcess::new(&pattern, index, rng);
        let user = ConnectionOwner { name: Some(name.clone().into_bytes()), uid: Some(1000 + n) };
        let (truth, known) = (truth.clone(), user.clone());
        let role = IdentUserRole {
            host,
            server,
            user,
            arrivals,
            opened: 0,
            open: BTreeMap::new(),
            ends: BTreeSet::new(),
            query_timeout: ident.patience.get(),
            truth,
        };
        let app = plan.add_role(host, role);
        plan.users.borrow_mut().insert(app, known);
    }
    Ok(())
}
