//! IDENT (RFC 1413): the service of a host, which knows the host's own connections, and the workload that asks it.

use super::arrivals::{ArrivalProcess, Pattern};
use super::error::WorldError;
use super::machine::{Endpoint, EventOrJob, HostAddress};
use super::plan::{Plan, Users};
use super::report::{End, Report};
use super::role::Role;
use super::topology::Topology;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use usher_core::{ConnId, Duration, Instant, Job, ListenerId, Machine};
use usher_ident::{
    Answer, AskError, Client, ClientCommand, ClientConfig, ClientEvent, Connection, PORT, PortPair, Question,
};
use usher_ident_service::{Command, Config, IdentService, Job as Asked, Owner, User};
use usher_scenario::model;
use usher_scenario::ports::CHAT;
use usher_scenario::services::Service;
use usher_sim::{Context, Delivery, HostId, StreamDelivery};

/// The connections that began at a host's port, as only the study knows them.
type Truth = Rc<RefCell<BTreeMap<(HostId, u16), Dialled>>>;

/// A user's connection.
#[derive(Debug)]
struct Dialled {
    user: User,
    /// When the user asked for it; `None` once the server has accepted it.
    since: Option<Instant>,
}

/// How much longer than the server waits for an answer a user waits for the connection's end: the end may be lost and be sent
/// again.
const MARGIN: Duration = Duration::from_secs(5);

/// The service that `usher ident serve` runs. Its kernel is the simulated host's.
#[derive(Debug)]
pub(super) struct ServerRole {
    at: HostAddress,
    endpoint: Endpoint,
    config: Config,
    service: IdentService,
    users: Users,
}

impl Role for ServerRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let delivery = &delivery;
        let now = ctx.now();
        match delivery {
            Delivery::Start => self.service = IdentService::new(self.config.clone()),
            Delivery::Owner { token, app } => {
                let user = |app| self.users.borrow().get(&app).cloned().unwrap_or_else(usher);
                let owner = app.map_or(Owner::Nobody, |app| Owner::User(user(app)));
                // Whoever asked may be gone.
                let _ = self.service.command(now, Command::Found { token: *token, owner });
            }
            _ => {}
        }
        let Self { at: own, endpoint, service, .. } = self;
        endpoint.feed(ctx, service, delivery);
        endpoint.drain(ctx, service, |ctx, service, word| {
            let EventOrJob::Job(Job { token, what: Asked::Owner(Connection { local, remote }), .. }) = word
            else {
                return;
            };
            match own.ends(Some(local.ip()), remote) {
                Some((from, to)) => ctx.ask_owner(token, (from, local.port()), (to, remote.port())),
                None => {
                    let _ = service.command(now, Command::Found { token, owner: Owner::Nobody });
                }
            }
        });
    }
}

/// As whom Usher's own programs run.
fn usher() -> User {
    User { name: Some(b"usher".to_vec()), uid: None }
}

/// A server that asks whose each connection is that it accepts.
#[derive(Debug)]
pub(super) struct AskerRole {
    at: HostAddress,
    endpoint: Endpoint,
    config: ClientConfig,
    client: Client,
    /// What it asked, by the tokens of its questions: about which connection, of which client's port, and since when.
    asked: BTreeMap<u64, (ConnId, (HostId, u16), Instant)>,
    next: u64,
    truth: Truth,
}

impl Role for AskerRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let delivery = &delivery;
        let (now, mut over) = (ctx.now(), Vec::new());
        match delivery {
            Delivery::Start => {
                self.client = Client::new(self.config);
                over.extend(self.asked.keys().map(|token| (*token, Err(AskError::Closed))));
            }
            Delivery::Stream { conn, event } if conn.is_accepted() => {
                if let StreamDelivery::Connected { remote, remote_port, local, local_port } = *event {
                    let token = self.next;
                    self.next += 1;
                    self.asked.insert(token, (*conn, (remote, remote_port), now));
                    let dialled =
                        self.truth.borrow_mut().get_mut(&(remote, remote_port)).and_then(|d| d.since.take());
                    if let Some(since) = dialled {
                        // From here on it is the server's question that counts.
                        ctx.report(Report::Withdrawn(since));
                    }
                    ctx.report(Report::Begun);
                    let question = Question {
                        server: self.at.address(remote, PORT),
                        local: Some(self.at.addresses.of(local)),
                        ports: PortPair::new(remote_port, local_port),
                    };
                    // It has room for all that are asked, and their ports are some.
                    let _ = self.client.command(now, ClientCommand::Ask { token, question });
                }
            }
            _ => self.endpoint.feed(ctx, &mut self.client, delivery),
        }
        self.endpoint.drain(ctx, &mut self.client, |_, _, word| match word {
            EventOrJob::Event(ClientEvent::Answered { token, answer }) => over.push((token, answer)),
            EventOrJob::Job(job) => match job.what {},
        });
        for (token, answer) in over {
            let Some((conn, whose, began)) = self.asked.remove(&token) else { continue };
            ctx.shutdown(conn);
            if let Ok(answer) = &answer {
                let right =
                    self.truth.borrow().get(&whose).is_some_and(|dialled| names(answer, &dialled.user));
                ctx.report(Report::Identified(began, right));
            }
            let end = if answer.is_ok() { End::Completed } else { End::Failed };
            ctx.report(Report::Ended { began, end });
        }
    }
}

/// Whether an answer is this user's name or number.
fn names(answer: &Answer, user: &User) -> bool {
    let Answer::UserId { user: said, .. } = answer else { return false };
    let number = user.uid.map(|uid| uid.to_string().into_bytes());
    [&user.name, &number].into_iter().flatten().any(|known| known == said.name())
}

/// A user of a host, who connects to a server.
#[derive(Debug)]
pub(super) struct UserRole {
    host: HostId,
    server: HostId,
    user: User,
    arrivals: ArrivalProcess,
    opened: u32,
    /// Connections under way.
    open: BTreeMap<ConnId, Open>,
    /// When those that are established are given up.
    ends: BTreeSet<(Instant, ConnId)>,
    /// How long the server waits for an answer.
    patience: Duration,
    truth: Truth,
}

/// A connection under way, of its user.
#[derive(Clone, Copy, Debug)]
struct Open {
    since: Instant,
    /// Its port and when it is given up, once it is established.
    established: Option<(u16, Instant)>,
}

impl UserRole {
    /// A connection is over. One that the server has not accepted was in vain.
    fn end(&mut self, ctx: &mut Context<'_, Report>, conn: ConnId) {
        let Some(Open { since, established }) = self.open.remove(&conn) else { return };
        let accepted = established.is_some_and(|(port, until)| {
            self.ends.remove(&(until, conn));
            let dialled = self.truth.borrow_mut().get_mut(&(self.host, port)).and_then(|d| d.since.take());
            dialled.is_none()
        });
        if !accepted {
            ctx.report(Report::Ended { began: since, end: End::Failed });
        }
        self.arrivals.ended(ctx.now());
    }
}

impl Role for UserRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let delivery = &delivery;
        let now = ctx.now();
        match delivery {
            Delivery::Start => {
                // Connections are gone with a host that failed, and whoever is at one that is off connects nowhere.
                while let Some((&conn, _)) = self.open.first_key_value() {
                    self.end(ctx, conn);
                }
                self.arrivals.skip(now);
            }
            Delivery::Stream { conn, event: StreamDelivery::Connected { local, local_port, .. } } => {
                let Some(open) = self.open.get_mut(conn) else { return };
                let until = now + self.patience + MARGIN;
                open.established = Some((*local_port, until));
                self.ends.insert((until, *conn));
                let dialled = Dialled { user: self.user.clone(), since: Some(open.since) };
                self.truth.borrow_mut().insert((*local, *local_port), dialled);
            }
            Delivery::Stream { conn, event: StreamDelivery::Closed(_) } => self.end(ctx, *conn),
            _ => {}
        }
        // The server's host may have failed and know nothing of a connection: nobody ends that but the user.
        while let Some(&(_, conn)) = self.ends.first().filter(|(until, _)| *until <= now) {
            ctx.abort(conn);
            self.end(ctx, conn);
        }
        while self.arrivals.take(now) {
            let conn = ConnId::opened(self.opened);
            self.opened += 1;
            self.open.insert(conn, Open { since: now, established: None });
            ctx.report(Report::Begun);
            ctx.connect_from(conn, self.host, self.server, CHAT);
        }
        ctx.set_timer(
            self.arrivals.next().into_iter().chain(self.ends.first().map(|(until, _)| *until)).min(),
        );
    }
}

/// Puts the IDENT services of a scenario on their hosts.
pub(super) fn serve(plan: &mut Plan<'_>, topology: &Topology) -> Result<(), WorldError> {
    for (name, services) in plan.scenario.services.iter() {
        let loaded = services.iter().filter_map(|service| match service {
            Service::Ident(loaded) => Some(loaded),
            _ => None,
        });
        for (loaded, &host) in loaded
            .flat_map(|loaded| topology.group(name).into_iter().flatten().map(move |host| (loaded, host)))
        {
            let mut endpoint = Endpoint::new(plan.at(host));
            let mut ports = BTreeMap::new();
            for (n, address) in (0..).zip(&loaded.file.listen) {
                if plan.addresses.serves(host, address.ip()) {
                    ports.entry(address.port()).or_insert(ListenerId::own(n));
                }
            }
            for (port, listener) in &ports {
                endpoint.accept_at(*port, *listener, None);
            }
            let role = ServerRole {
                at: plan.at(host),
                endpoint,
                service: IdentService::new(loaded.config.clone()),
                config: loaded.config.clone(),
                users: plan.users.clone(),
            };
            let app = plan.role(host, role);
            ports.into_keys().try_for_each(|port| plan.builder.listen(app, port))?;
        }
    }
    Ok(())
}

/// Puts the workload's roles on the topology's hosts.
pub(super) fn build(
    plan: &mut Plan<'_>,
    topology: &Topology,
    ident: &model::Ident,
) -> Result<(), WorldError> {
    let (clients, servers) = (topology.group(&ident.clients)?, topology.group(&ident.server)?);
    let truth = Truth::default();
    let config = ClientConfig { patience: ident.patience.get(), questions: usize::MAX };
    for &host in servers {
        let role = AskerRole {
            at: plan.at(host),
            endpoint: Endpoint::new(plan.at(host)),
            config,
            client: Client::new(config),
            asked: BTreeMap::new(),
            next: 0,
            truth: truth.clone(),
        };
        let app = plan.role(host, role);
        plan.builder.listen(app, CHAT)?;
    }
    let pattern = Pattern::new(&ident.arrivals, (clients.len() * ident.users.len()) as u64, plan.end);
    let users = clients.iter().enumerate().flat_map(|(i, &host)| {
        (0..).zip(&ident.users).map(move |(n, name)| (host, servers[i % servers.len()], n, name))
    });
    for (index, (host, server, n, name)) in (0..).zip(users) {
        let rng = plan.seed.stream("arrivals", index);
        let arrivals = ArrivalProcess::new(&pattern, index, rng);
        let user = User { name: Some(name.clone().into_bytes()), uid: Some(1000 + n) };
        let (truth, known) = (truth.clone(), user.clone());
        let role = UserRole {
            host,
            server,
            user,
            arrivals,
            opened: 0,
            open: BTreeMap::new(),
            ends: BTreeSet::new(),
            patience: ident.patience.get(),
            truth,
        };
        let app = plan.role(host, role);
        plan.users.borrow_mut().insert(app, known);
    }
    Ok(())
}
