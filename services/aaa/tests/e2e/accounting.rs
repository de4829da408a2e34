//! Accounting from a client to the store: RADIUS and Diameter clients, the server, a ledger, a store in memory.

use crate::build::{PASSWORD, aaa_config, diameter_server, secret, user_name, users};
use crate::world::{nas_address, server_address};
use std::collections::VecDeque;
use std::net::SocketAddr;
use usher_aaa::ledger::{AdmitRequest, LedgerConfig, PoolConfig};
use usher_aaa::service::{Parts, Service};
use usher_aaa::store::{Memory, SessionRow};
use usher_aaa::{AaaServer, Admission, Command, DIAMETER_LISTENER, Job, radius_socket};
use usher_core::bench::{EPOCH, Tap};
use usher_core::{
    CommandError, ConnId, Duration, Input, Instant, Machine, Path, Seed, SocketId, StreamEvent, StreamOp,
    Transmit,
};
use usher_diameter::ResultCode;
use usher_diameter::accounting::{Aca, Acr, RecordType};
use usher_diameter::codes::application;
use usher_diameter::node::{self, Node};
use usher_diameter::peer::capabilities::Application;
use usher_radius::attribute::kind;
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::packet::OwnedPacket;
use usher_radius::server::ClientConfig;
use usher_radius::{Attributes, Code};

pub(crate) fn at(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

/// A server with its ledger, as a host without threads has them.
pub(crate) struct Host {
    pub(crate) server: Tap<AaaServer>,
    config: usher_aaa::Config,
    pub(crate) service: Service<Memory>,
    /// Does nothing when it is asked for accounting.
    silent: bool,
}

impl Host {
    pub(crate) fn new(config: usher_aaa::Config, ledger: LedgerConfig) -> Self {
        let server = Tap::new(AaaServer::new(config.clone(), Seed::new(4).secure("aaa", 0)).unwrap());
        let parts = Parts::new(ledger, Memory::new());
        let service = Service::new(parts, &mut Seed::new(4).secure("known", 0));
        Self { server, config, service, silent: false }
    }
    /// It dies and comes again with nothing but its store.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.server = Tap::new(AaaServer::new(self.config.clone(), Seed::new(5).secure("aaa", 0)).unwrap());
        self.service.restart(now);
    }
    /// Answers what the server asks.
    pub(crate) fn serve(&mut self, now: Instant) {
        while let Some(job) = self.server.poll_job() {
            if !(self.silent && matches!(job.what, Job::Account { .. })) {
                let answer = self.service.answer(now, now.wall(EPOCH), job);
                self.server.command(now, answer).unwrap();
            }
        }
    }
    /// Whether somebody would be let in.
    fn admits(&mut self, now: Instant, request: &AdmitRequest) -> bool {
        let what = Job::Admit { client: None, request: request.clone() };
        let answer = self.service.answer(now, EPOCH, usher_core::Job::new(0, what));
        matches!(answer, Command::Admitted { admission: Admission::Yes { .. }, .. })
    }
    pub(crate) fn rows(&self) -> Vec<SessionRow> {
        self.service.store().sessions().cloned().collect()
    }
}

/// A RADIUS client beside it.
pub(crate) struct Radius {
    client: Tap<Client>,
    pub(crate) host: Host,
    token: u64,
}

impl Radius {
    pub(crate) fn new(config: usher_aaa::Config, ledger: LedgerConfig) -> Self {
        let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), secret());
        let client =
            Tap::new(Client::new(client::Config::single(to), Seed::new(4).secure("client", 0)).unwrap());
        Self { client, host: Host::new(config, ledger), token: 0 }
    }
    fn settle(&mut self, now: Instant) {
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { .. }) = self.client.poll_transmit(&mut buf) {
            let path = Path { socket: radius_socket(0), local: far, remote: near };
            self.host.server.handle(now, Input::Datagram { path, data: &buf });
        }
        self.host.serve(now);
        while let Some(Transmit::Datagram { .. }) = self.host.server.poll_transmit(&mut buf) {
            let path = Path { socket: SocketId::own(0), local: near, remote: far };
            self.client.handle(now, Input::Datagram { path, data: &buf });
        }
    }
    /// Sends a request of its own and gives the answer.
    pub(crate) fn ask(
        &mut self,
        secs: u64,
        code: Code,
        fill: impl FnOnce(&mut Attributes),
    ) -> Option<(Code, Attributes)> {
        self.token += 1;
        let mut attributes = Attributes::new();
        fill(&mut attributes);
        let (token, target) = (self.token, Target::Server(0));
        let request = client::Command::Request { token, target, code, attributes };
        self.client.command(at(secs), request).unwrap();
        self.settle(at(secs));
        match self.client.poll_event()? {
            client::Event::Response(r) if r.token == token => Some((r.code, r.attributes)),
            other => panic!("{other:?}"),
        }
    }
    /// A record of session `id`, first sent `delay` seconds ago; true: acknowledged.
    fn tell(&mut self, secs: u64, status: u32, id: &str, delay: u32, length: Option<u32>) -> bool {
        let answer = self.ask(secs, Code::ACCOUNTING_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, &user_name(0)).unwrap();
            a.push_u32(kind::ACCT_STATUS_TYPE, status).push_text(kind::ACCT_SESSION_ID, id).unwrap();
            a.push_u32(kind::ACCT_DELAY_TIME, delay).push_u32(kind::NAS_PORT, 3);
            a.push_text(kind::CALLING_STATION_ID, "02-00-00-00-00-01").unwrap();
            if let Some(length) = length {
                a.push_u32(kind::ACCT_SESSION_TIME, length).push_u32(kind::ACCT_INPUT_OCTETS, 100 * length);
            }
        });
        answer.is_some_and(|(code, _)| code == Code::ACCOUNTING_RESPONSE)
    }
}

const START: u32 = 1;
const STOP: u32 = 2;
const INTERIM: u32 = 3;
const ON: u32 = 7;

fn radius() -> Radius {
    Radius::new(aaa_config(users(Seed::new(1), 1)), LedgerConfig::default())
}

#[test]
fn a_radius_session_is_kept_and_acknowledged() {
    let mut r = radius();
    assert!(r.tell(10, START, "1", 0, None));
    assert!(r.tell(70, INTERIM, "1", 0, Some(60)));
    assert!(r.tell(100, STOP, "1", 0, Some(90)));
    let [row] = &r.host.rows()[..] else { panic!() };
    assert_eq!(row.nasipaddress, nas_address(0), "without NAS-IP-Address, where it came from");
    assert_eq!((row.acctsessiontime, row.acctinputoctets, row.interims), (90, 9000, 1));
    assert_eq!(row.acctstarttime, Some(EPOCH + Duration::from_secs(10)));
    assert_eq!(row.acctstoptime, Some(EPOCH + Duration::from_secs(100)));
    let c = r.host.server.counters();
    assert_eq!((c.accounting, c.accounted, c.bad_accounting), (3, 3, 0));
    assert_eq!(r.host.server.accounting_waiting(), 0);
}

#[test]
fn an_acct_status_type_that_is_not_kept_is_acknowledged_and_counted() {
    let mut r = radius();
    // Of tunnels, of failures, of nobody, of a vendor.
    for status in [9, 15, 0, u32::MAX] {
        assert!(r.tell(10, status, "1", 0, None), "{status}");
    }
    let c = r.host.server.counters();
    assert_eq!((c.accounting, c.other_accounting, c.accounted, c.bad_accounting), (4, 4, 0, 0));
    assert!(r.host.rows().is_empty());
}

#[test]
fn a_record_sent_again_as_a_new_request_is_the_same_record() {
    let mut r = radius();
    for delay in [0, 3, 9] {
        // Another identifier and authenticator each time, since the delay is another.
        assert!(r.tell(10 + u64::from(delay), START, "1", delay, None));
    }
    for delay in [0, 4] {
        assert!(r.tell(100 + u64::from(delay), STOP, "1", delay, Some(90)));
    }
    assert_eq!(r.host.rows().len(), 1);
    let c = r.host.service.ledger().counters();
    assert_eq!((c.started, c.stopped, c.duplicates), (1, 1, 3));
}

#[test]
fn without_its_store_the_server_is_silent_and_recovers_by_itself() {
    let mut r = radius();
    r.host.service.store_mut().set_away(true);
    assert!(!r.tell(10, START, "1", 0, None));
    assert!(!r.tell(10, ON, "2", 0, None));
    assert_eq!((r.host.server.counters().unavailable, r.host.rows().len()), (2, 0));
    r.host.service.store_mut().set_away(false);
    assert!(r.tell(16, START, "1", 6, None));
    assert_eq!(r.host.rows()[0].acctstarttime, Some(EPOCH + Duration::from_secs(10)));
    assert!(r.tell(20, ON, "2", 10, None));
}

#[test]
fn a_record_of_which_the_host_says_nothing_is_not_acknowledged() {
    let mut r = radius();
    r.host.silent = true;
    assert!(!r.tell(10, START, "1", 0, None));
    assert_eq!(r.host.server.accounting_waiting(), 1);
    assert!(r.host.server.poll_timeout().is_some_and(|t| t <= at(40)));
    r.host.server.handle(at(40), Input::Timeout);
    assert_eq!((r.host.server.accounting_waiting(), r.host.server.counters().unavailable), (0, 1));
    let late = Command::Accounted { token: 0, durable: true };
    assert_eq!(r.host.server.command(at(41), late).unwrap_err(), CommandError::UnknownToken);
}

#[test]
fn a_record_waits_no_longer_than_a_login() {
    let mut config = aaa_config(users(Seed::new(1), 1));
    config.session_timeout = Duration::from_secs(7);
    let mut r = Radius::new(config, LedgerConfig::default());
    r.host.silent = true;
    assert!(!r.tell(10, START, "1", 0, None));
    let mut now = at(10);
    while r.host.server.accounting_waiting() > 0 {
        now = r.host.server.poll_timeout().expect("a timeout");
        r.host.server.handle(now, Input::Timeout);
    }
    assert_eq!(now, at(17));
}

#[test]
fn what_is_admitted_is_what_accounting_then_tells_of() {
    let mut config = aaa_config(users(Seed::new(1), 1));
    config.limits = true;
    let pool = PoolConfig { name: "home".into(), ranges: vec!["10.7.0.0/30".parse().unwrap()] };
    let mut r = Radius::new(config, LedgerConfig { pools: vec![pool], ..LedgerConfig::default() });
    let log_in = |r: &mut Radius, secs: u64, station: &str| {
        r.ask(secs, Code::ACCESS_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, &user_name(0)).unwrap().push_user_password(PASSWORD).unwrap();
            a.push_text(kind::CALLING_STATION_ID, station).unwrap();
        })
        .map(|(code, _)| code)
    };
    assert_eq!(log_in(&mut r, 0, "02-00-00-00-00-01"), Some(Code::ACCESS_ACCEPT));
    assert!(r.tell(1, START, "1", 0, None));
    // The user's one session is open now: nobody else is let in by that name.
    let name = String::from_utf8(user_name(0)).unwrap();
    let request = AdmitRequest {
        user: name,
        simultaneous: Some(1),
        pool: Some("home".into()),
        nas: nas_address(0),
        port: String::new(),
        calling_station_id: "02-00-00-00-00-02".into(),
    };
    assert!(!r.host.admits(at(2), &request));
    assert!(r.tell(9, STOP, "1", 0, Some(8)));
    assert!(r.host.admits(at(10), &request));
}

/// A Diameter client beside it, over one connection.
pub(crate) struct Diameter {
    client: Tap<Node>,
    pub(crate) host: Host,
    now: u64,
}

impl Diameter {
    fn new() -> Self {
        Self::with(LedgerConfig::default())
    }
    pub(crate) fn with(ledger: LedgerConfig) -> Self {
        let applications = [Application::acct(application::ACCOUNTING)];
        let mut config = diameter_server(0, users(Seed::new(1), 1));
        if let Some(node) = &mut config.diameter {
            node.local.applications.extend(applications);
        }
        let mut client = node::Config::new("switch.example.org", "example.org", &applications);
        client.local.addresses.push(nas_address(0));
        let client = client.connect_to("aaa0.example.org", SocketAddr::new(server_address(0), 3868));
        let mut d = Self {
            client: Tap::new(Node::new(client, Instant::ZERO, Seed::new(4).secure("client", 0))),
            host: Host::new(config, ledger),
            now: 0,
        };
        d.settle(at(0));
        assert!(matches!(d.client.poll_event(), Some(node::Event::PeerUp { .. })));
        d
    }
    fn settle(&mut self, now: Instant) {
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 3868));
        let accepted = ConnId::accepted_at(DIAMETER_LISTENER, 0);
        let mut mine = ConnId::opened(0);
        let mut buf = Vec::new();
        let mut quiet = false;
        self.client.handle(now, Input::Timeout);
        while !core::mem::replace(&mut quiet, true) {
            while let Some(transmit) = self.client.poll_transmit(&mut buf) {
                quiet = false;
                let Transmit::Stream { conn, op } = transmit else { panic!() };
                mine = conn;
                match op {
                    StreamOp::Connect { .. } => {
                        let (listener, local, certificate) = (DIAMETER_LISTENER, None, None);
                        let event = StreamEvent::Accepted { listener, remote: near, local, certificate };
                        self.host.server.handle(now, Input::Stream { conn: accepted, event });
                        let event = StreamEvent::Connected { remote: far, local, certificate };
                        self.client.handle(now, Input::Stream { conn, event });
                    }
                    StreamOp::Data => {
                        let event = StreamEvent::Data(&buf);
                        self.host.server.handle(now, Input::Stream { conn: accepted, event });
                    }
                    other => panic!("{other:?}"),
                }
            }
            self.host.serve(now);
            let mut back = VecDeque::new();
            while let Some(transmit) = self.host.server.poll_transmit(&mut buf) {
                assert!(matches!(transmit, Transmit::Stream { op: StreamOp::Data, .. }), "{transmit:?}");
                back.push_back(buf.clone());
            }
            for data in back {
                quiet = false;
                self.client.handle(now, Input::Stream { conn: mine, event: StreamEvent::Data(&data) });
            }
        }
    }
    /// Lets time pass, in which the two ends watch each other.
    pub(crate) fn wait(&mut self, secs: u64) {
        while self.now < secs {
            self.now = secs.min(self.now + 5);
            self.host.server.handle(at(self.now), Input::Timeout);
            self.settle(at(self.now));
        }
    }
    fn tell(&mut self, secs: u64, acr: &Acr<'_>) -> (ResultCode, Option<Aca>) {
        self.tell_of(secs, "switch.example.org;1;7", acr)
    }
    pub(crate) fn tell_of(&mut self, secs: u64, session: &str, acr: &Acr<'_>) -> (ResultCode, Option<Aca>) {
        let request = acr.request(1, session.into(), "example.org".into(), None);
        self.client.command(at(secs), node::Command::Request(request)).unwrap();
        self.settle(at(secs));
        match self.client.poll_event() {
            Some(node::Event::Answer { result, avps, .. }) => (result, Aca::parse(avps.view()).ok()),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn acr(record_type: RecordType, number: u32, length: u32) -> Acr<'static> {
    let mut acr = Acr::new(record_type, number);
    acr.user_name = Some("anna@example.org");
    acr.session_time = Some(length);
    acr.input_octets = Some(u64::from(length) << 32);
    acr.nas.address = Some(nas_address(0));
    acr
}

#[test]
fn a_diameter_session_is_kept_and_answered() {
    let mut d = Diameter::new();
    let said = |record_type, record_number| (ResultCode::SUCCESS, Some(Aca { record_type, record_number }));
    assert_eq!(d.tell(10, &acr(RecordType::Start, 0, 0)), said(RecordType::Start, 0));
    assert_eq!(d.tell(70, &acr(RecordType::Interim, 1, 60)), said(RecordType::Interim, 1));
    // The same record in another message.
    assert_eq!(d.tell(71, &acr(RecordType::Interim, 1, 60)), said(RecordType::Interim, 1));
    d.host.service.store_mut().set_away(true);
    let full = (ResultCode::OUT_OF_SPACE, Some(Aca { record_type: RecordType::Stop, record_number: 2 }));
    assert_eq!(d.tell(100, &acr(RecordType::Stop, 2, 90)), full);
    d.host.service.store_mut().set_away(false);
    assert_eq!(d.tell(110, &acr(RecordType::Stop, 2, 90)), said(RecordType::Stop, 2));
    let [row] = &d.host.rows()[..] else { panic!() };
    assert_eq!((row.acctsessionid.as_str(), row.interims), ("switch.example.org;1;7", 1));
    assert_eq!((row.acctsessiontime, row.acctinputoctets), (90, 90 << 32));
    assert_eq!(row.acctstoptime, Some(EPOCH + Duration::from_secs(100)));
}

#[test]
fn an_acr_that_is_none_is_told_so() {
    let mut d = Diameter::new();
    let mut request = acr(RecordType::Start, 0, 0).request(1, "s;1;7".into(), "example.org".into(), None);
    request.avps.clear();
    d.client.command(at(1), node::Command::Request(request)).unwrap();
    d.settle(at(1));
    let Some(node::Event::Answer { result, .. }) = d.client.poll_event() else { panic!() };
    assert_eq!(result, ResultCode::MISSING_AVP);
    assert_eq!((d.host.server.counters().bad_accounting, d.host.rows().len()), (1, 0));
}

/// A request from the access server of this number.
fn from(r: &mut Radius, n: usize, identifier: u8, fill: impl FnOnce(&mut Attributes)) -> Option<Code> {
    let mut attributes = Attributes::new();
    fill(&mut attributes);
    let packet =
        OwnedPacket { code: Code::ACCOUNTING_REQUEST, identifier, authenticator: [0; 16], attributes };
    let mut data = Vec::new();
    packet.emit(&mut data).unwrap();
    let authenticator = usher_radius::auth::accounting_request_authenticator(&data, &secret());
    data[4..20].copy_from_slice(&authenticator);
    let (near, far) = (SocketAddr::new(nas_address(n), 50_000), SocketAddr::new(server_address(0), 1812));
    let path = Path { socket: radius_socket(0), local: far, remote: near };
    r.host.server.handle(at(1), Input::Datagram { path, data: &data });
    r.host.serve(at(1));
    r.host.server.poll_transmit(&mut data)?;
    Some(Code(data[0]))
}

/// What names session `id` of the access server of number `named`.
fn session_of(a: &mut Attributes, named: usize, status: u32, id: &str) {
    let std::net::IpAddr::V4(address) = nas_address(named) else { panic!("they have IPv4 addresses") };
    a.push_ipv4(kind::NAS_IP_ADDRESS, address).push_u32(kind::ACCT_STATUS_TYPE, status);
    a.push_text(kind::ACCT_SESSION_ID, id).unwrap().push_bytes(kind::USER_NAME, &user_name(0)).unwrap();
}

#[test]
fn nobody_ends_the_sessions_of_another_client() {
    let mut config = aaa_config(users(Seed::new(1), 1));
    if let Some(radius) = &mut config.radius {
        // Each is a client of its own; the last one speaks for the second too.
        radius.clients = (0..4).map(|n| ClientConfig::new(nas_address(n), 32, secret())).collect();
        radius.clients[3].speaks_for = vec![(nas_address(1), 32)];
    }
    let mut r = Radius::new(config, LedgerConfig::default());
    let answered = Some(Code::ACCOUNTING_RESPONSE);
    let tell = |r: &mut Radius, n, identifier, named, status, id: &str| {
        let answer = from(r, n, identifier, |a| session_of(a, named, status, id));
        assert_eq!(answer, answered, "all is acknowledged");
    };
    let open = |r: &Radius| {
        let rows = r.host.rows().into_iter().filter(|row| row.acctstoptime.is_none());
        let mut open: Vec<_> = rows.map(|row| (row.nasipaddress, row.acctsessionid)).collect();
        open.sort();
        open
    };
    let (a, b, c) = (nas_address(0), nas_address(1), nas_address(2));
    tell(&mut r, 0, 1, 0, START, "s");
    tell(&mut r, 1, 1, 1, START, "s");
    let theirs = vec![(a, "s".to_owned()), (b, "s".to_owned())];
    assert_eq!(open(&r), theirs);
    // The third names the first: by its Stop, by its restart, by restarts that name nobody.
    tell(&mut r, 2, 1, 0, STOP, "s");
    tell(&mut r, 2, 2, 0, ON, "");
    tell(&mut r, 2, 3, 2, ON, "");
    assert_eq!(open(&r), theirs);
    assert_eq!(r.host.rows().iter().filter(|row| row.nasipaddress == c).count(), 1, "its record is its own");
    let counters = r.host.server.counters();
    assert_eq!((counters.foreign_nas, counters.foreign_restarts), (1, 1));
    // What the third reports of others it ends itself.
    tell(&mut r, 2, 4, 0, START, "t");
    assert_eq!(open(&r).len(), 3);
    tell(&mut r, 2, 5, 0, STOP, "t");
    assert_eq!(open(&r), theirs);
    // Who speaks for another is believed.
    tell(&mut r, 3, 1, 1, STOP, "s");
    assert_eq!(open(&r), [(a, "s".to_owned())]);
    tell(&mut r, 0, 2, 0, ON, "");
    assert_eq!(open(&r), []);
}
