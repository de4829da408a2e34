//! Accounting from a client to the store: RADIUS and Diameter clients, the server, a ledger, a store in memory.

use crate::build::{PASSWORD, aaa_config, diameter_server, shared_secret, test_users, user_name};
use crate::world::{nas_address, server_address};
use std::collections::VecDeque;
use std::net::SocketAddr;
use usher_aaa::ledger::{AdmitRequest, LedgerConfig, PoolConfig};
use usher_aaa::service::{JobRunner, JobRunnerParts};
use usher_aaa::store::{MemoryStore, SessionRow};
use usher_aaa::{
    AaaServer, AaaServerCommand, AaaServerJob, AdmissionVerdict, DIAMETER_LISTENER, radius_socket,
};
use usher_core::bench::{EPOCH, TestMachine};
use usher_core::{
    CommandError, ConnId, DatagramPath, Duration, Instant, Machine, MachineInput, Seed, SocketId,
    StreamEvent, StreamOp, Transmit,
};
use usher_diameter::ResultCode;
use usher_diameter::accounting::{AccountingAnswer, AccountingRecordType, AccountingRequest};
use usher_diameter::codes::application;
use usher_diameter::node::{self, DiameterNode};
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};
use usher_radius::packet::OwnedPacket;
use usher_radius::server::ClientConfig;
use usher_radius::{AttributeList, PacketCode};

pub(crate) fn instant_at(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

/// A server with its ledger, as a host without threads runs them.
pub(crate) struct TestHost {
    pub(crate) server: TestMachine<AaaServer>,
    config: usher_aaa::AaaServerConfig,
    pub(crate) service: JobRunner<MemoryStore>,
    /// True if it ignores jobs of accounting.
    silent: bool,
}

impl TestHost {
    pub(crate) fn new(config: usher_aaa::AaaServerConfig, ledger: LedgerConfig) -> Self {
        let server = TestMachine::new(
            AaaServer::new(config.clone(), Seed::new(4).derive_secure_rng("aaa", 0)).unwrap(),
        );
        let parts = JobRunnerParts::new(ledger, MemoryStore::new());
        let service = JobRunner::new(parts, &mut Seed::new(4).derive_secure_rng("known", 0));
        Self { server, config, service, silent: false }
    }
    /// Restarts the host, which keeps only its store.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.server = TestMachine::new(
            AaaServer::new(self.config.clone(), Seed::new(5).derive_secure_rng("aaa", 0)).unwrap(),
        );
        self.service.restart(now);
    }
    /// Does the server's jobs.
    pub(crate) fn run_jobs(&mut self, now: Instant) {
        while let Some(job) = self.server.poll_job() {
            if !(self.silent && matches!(job.job, AaaServerJob::Account { .. })) {
                let answer = self.service.run_job(now, now.to_wall_time(EPOCH), job);
                self.server.handle_command(now, answer).unwrap();
            }
        }
    }
    /// True if the ledger would admit the user.
    fn would_admit(&mut self, now: Instant, request: &AdmitRequest) -> bool {
        let what = AaaServerJob::Admit { client: None, request: request.clone() };
        let answer = self.service.run_job(now, EPOCH, usher_core::JobRequest::new(0, what));
        matches!(answer, AaaServerCommand::Admitted { admission: AdmissionVerdict::Yes { .. }, .. })
    }
    pub(crate) fn rows(&self) -> Vec<SessionRow> {
        self.service.store().sessions().cloned().collect()
    }
}

/// A RADIUS client and its server.
pub(crate) struct RadiusTestClient {
    client: TestMachine<RadiusClient>,
    pub(crate) host: TestHost,
    token: u64,
}

impl RadiusTestClient {
    pub(crate) fn new(config: usher_aaa::AaaServerConfig, ledger: LedgerConfig) -> Self {
        let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), shared_secret());
        let client = TestMachine::new(
            RadiusClient::new(
                client::RadiusClientConfig::for_server(to),
                Seed::new(4).derive_secure_rng("client", 0),
            )
            .unwrap(),
        );
        Self { client, host: TestHost::new(config, ledger), token: 0 }
    }
    fn deliver_all(&mut self, now: Instant) {
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { .. }) = self.client.poll_transmit(&mut buf) {
            let path = DatagramPath { socket: radius_socket(0), local: far, remote: near };
            self.host.server.handle_input(now, MachineInput::Datagram { path, data: &buf });
        }
        self.host.run_jobs(now);
        while let Some(Transmit::Datagram { .. }) = self.host.server.poll_transmit(&mut buf) {
            let path = DatagramPath { socket: SocketId::from_number(0), local: near, remote: far };
            self.client.handle_input(now, MachineInput::Datagram { path, data: &buf });
        }
    }
    /// Sends a request and returns the reply.
    pub(crate) fn send_request(
        &mut self,
        secs: u64,
        code: PacketCode,
        fill: impl FnOnce(&mut AttributeList),
    ) -> Option<(PacketCode, AttributeList)> {
        self.token += 1;
        let mut attributes = AttributeList::new();
        fill(&mut attributes);
        let (token, target) = (self.token, RequestTarget::Server(0));
        let request = client::RadiusClientCommand::Request { token, target, code, attributes };
        self.client.handle_command(instant_at(secs), request).unwrap();
        self.deliver_all(instant_at(secs));
        match self.client.poll_event()? {
            client::RadiusClientEvent::Response(r) if r.token == token => Some((r.code, r.attributes)),
            other => panic!("{other:?}"),
        }
    }
    /// Sends a record of session `id`, first sent `delay` seconds ago. True: acknowledged.
    fn send_record(&mut self, secs: u64, status: u32, id: &str, delay: u32, length: Option<u32>) -> bool {
        let answer = self.send_request(secs, PacketCode::ACCOUNTING_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, &user_name(0)).unwrap();
            a.push_u32(kind::ACCT_STATUS_TYPE, status).push_text(kind::ACCT_SESSION_ID, id).unwrap();
            a.push_u32(kind::ACCT_DELAY_TIME, delay).push_u32(kind::NAS_PORT, 3);
            a.push_text(kind::CALLING_STATION_ID, "02-00-00-00-00-01").unwrap();
            if let Some(length) = length {
                a.push_u32(kind::ACCT_SESSION_TIME, length).push_u32(kind::ACCT_INPUT_OCTETS, 100 * length);
            }
        });
        answer.is_some_and(|(code, _)| code == PacketCode::ACCOUNTING_RESPONSE)
    }
}

const START: u32 = 1;
const STOP: u32 = 2;
const INTERIM: u32 = 3;
const ON: u32 = 7;

fn radius_client() -> RadiusTestClient {
    RadiusTestClient::new(aaa_config(test_users(Seed::new(1), 1)), LedgerConfig::default())
}

#[test]
fn a_radius_session_is_kept_and_acknowledged() {
    let mut r = radius_client();
    assert!(r.send_record(10, START, "1", 0, None));
    assert!(r.send_record(70, INTERIM, "1", 0, Some(60)));
    assert!(r.send_record(100, STOP, "1", 0, Some(90)));
    let [row] = &r.host.rows()[..] else { panic!() };
    assert_eq!(row.nasipaddress, nas_address(0), "without NAS-IP-Address, where it came from");
    assert_eq!((row.acctsessiontime, row.acctinputoctets, row.interims), (90, 9000, 1));
    assert_eq!(row.acctstarttime, Some(EPOCH + Duration::from_secs(10)));
    assert_eq!(row.acctstoptime, Some(EPOCH + Duration::from_secs(100)));
    let c = r.host.server.counters();
    assert_eq!((c.accounting, c.accounted, c.bad_accounting), (3, 3, 0));
    assert_eq!(r.host.server.pending_accounting_count(), 0);
}

#[test]
fn an_unkept_acct_status_type_is_acknowledged_and_counted() {
    let mut r = radius_client();
    // Of tunnels, of failures, unassigned, and of a vendor.
    for status in [9, 15, 0, u32::MAX] {
        assert!(r.send_record(10, status, "1", 0, None), "{status}");
    }
    let c = r.host.server.counters();
    assert_eq!((c.accounting, c.other_accounting, c.accounted, c.bad_accounting), (4, 4, 0, 0));
    assert!(r.host.rows().is_empty());
}

#[test]
fn a_record_sent_again_as_a_new_request_is_the_same_record() {
    let mut r = radius_client();
    for delay in [0, 3, 9] {
        // Another identifier and authenticator each time, since the delay changes.
        assert!(r.send_record(10 + u64::from(delay), START, "1", delay, None));
    }
    for delay in [0, 4] {
        assert!(r.send_record(100 + u64::from(delay), STOP, "1", delay, Some(90)));
    }
    assert_eq!(r.host.rows().len(), 1);
    let c = r.host.service.ledger().counters();
    assert_eq!((c.started, c.stopped, c.duplicates), (1, 1, 3));
}

#[test]
fn without_its_store_the_server_stays_silent_and_then_recovers() {
    let mut r = radius_client();
    r.host.service.store_mut().set_store_unavailable(true);
    assert!(!r.send_record(10, START, "1", 0, None));
    assert!(!r.send_record(10, ON, "2", 0, None));
    assert_eq!((r.host.server.counters().unavailable, r.host.rows().len()), (2, 0));
    r.host.service.store_mut().set_store_unavailable(false);
    assert!(r.send_record(16, START, "1", 6, None));
    assert_eq!(r.host.rows()[0].acctstarttime, Some(EPOCH + Duration::from_secs(10)));
    assert!(r.send_record(20, ON, "2", 10, None));
}

#[test]
fn a_record_of_which_the_host_says_nothing_is_not_acknowledged() {
    let mut r = radius_client();
    r.host.silent = true;
    assert!(!r.send_record(10, START, "1", 0, None));
    assert_eq!(r.host.server.pending_accounting_count(), 1);
    assert!(r.host.server.poll_timeout().is_some_and(|t| t <= instant_at(40)));
    r.host.server.handle_input(instant_at(40), MachineInput::Timeout);
    assert_eq!((r.host.server.pending_accounting_count(), r.host.server.counters().unavailable), (0, 1));
    let late = AaaServerCommand::Accounted { token: 0, durable: true };
    assert_eq!(r.host.server.handle_command(instant_at(41), late).unwrap_err(), CommandError::UnknownToken);
}

#[test]
fn a_record_waits_no_longer_than_a_login() {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    config.session_timeout = Duration::from_secs(7);
    let mut r = RadiusTestClient::new(config, LedgerConfig::default());
    r.host.silent = true;
    assert!(!r.send_record(10, START, "1", 0, None));
    let mut now = instant_at(10);
    while r.host.server.pending_accounting_count() > 0 {
        now = r.host.server.poll_timeout().expect("a timeout");
        r.host.server.handle_input(now, MachineInput::Timeout);
    }
    assert_eq!(now, instant_at(17));
}

#[test]
fn what_is_admitted_is_what_accounting_then_tells_of() {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    config.limits = true;
    let pool = PoolConfig { name: "home".into(), ranges: vec!["10.7.0.0/30".parse().unwrap()] };
    let mut r = RadiusTestClient::new(config, LedgerConfig { pools: vec![pool], ..LedgerConfig::default() });
    let log_in = |r: &mut RadiusTestClient, secs: u64, station: &str| {
        r.send_request(secs, PacketCode::ACCESS_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, &user_name(0)).unwrap().push_user_password(PASSWORD).unwrap();
            a.push_text(kind::CALLING_STATION_ID, station).unwrap();
        })
        .map(|(code, _)| code)
    };
    assert_eq!(log_in(&mut r, 0, "02-00-00-00-00-01"), Some(PacketCode::ACCESS_ACCEPT));
    assert!(r.send_record(1, START, "1", 0, None));
    // The user's only session is open now, so another login is refused.
    let name = String::from_utf8(user_name(0)).unwrap();
    let request = AdmitRequest {
        user: name,
        simultaneous: Some(1),
        pool: Some("home".into()),
        nas: nas_address(0),
        port: String::new(),
        calling_station_id: "02-00-00-00-00-02".into(),
    };
    assert!(!r.host.would_admit(instant_at(2), &request));
    assert!(r.send_record(9, STOP, "1", 0, Some(8)));
    assert!(r.host.would_admit(instant_at(10), &request));
}

/// A Diameter client and its server, over one connection.
pub(crate) struct DiameterTestClient {
    client: TestMachine<DiameterNode>,
    pub(crate) host: TestHost,
    now: u64,
}

impl DiameterTestClient {
    fn new() -> Self {
        Self::with_ledger(LedgerConfig::default())
    }
    pub(crate) fn with_ledger(ledger: LedgerConfig) -> Self {
        let applications = [DiameterApplication::for_accounting(application::ACCOUNTING)];
        let mut config = diameter_server(0, test_users(Seed::new(1), 1));
        if let Some(node) = &mut config.diameter {
            node.local.applications.extend(applications);
        }
        let mut client = node::DiameterNodeConfig::new("switch.example.org", "example.org", &applications);
        client.local.addresses.push(nas_address(0));
        let client = client.connect_to("aaa0.example.org", SocketAddr::new(server_address(0), 3868));
        let mut d = Self {
            client: TestMachine::new(DiameterNode::new(
                client,
                Instant::ZERO,
                Seed::new(4).derive_secure_rng("client", 0),
            )),
            host: TestHost::new(config, ledger),
            now: 0,
        };
        d.deliver_all(instant_at(0));
        assert!(matches!(d.client.poll_event(), Some(node::DiameterNodeEvent::PeerUp { .. })));
        d
    }
    fn deliver_all(&mut self, now: Instant) {
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 3868));
        let accepted = ConnId::nth_accepted_at_listener(DIAMETER_LISTENER, 0);
        let mut mine = ConnId::nth_opened_connection(0);
        let mut buf = Vec::new();
        let mut quiet = false;
        self.client.handle_input(now, MachineInput::Timeout);
        while !core::mem::replace(&mut quiet, true) {
            while let Some(transmit) = self.client.poll_transmit(&mut buf) {
                quiet = false;
                let Transmit::Stream { conn, op } = transmit else { panic!() };
                mine = conn;
                match op {
                    StreamOp::Connect { .. } => {
                        let (listener, local, certificate) = (DIAMETER_LISTENER, None, None);
                        let event = StreamEvent::Accepted { listener, remote: near, local, certificate };
                        self.host.server.handle_input(now, MachineInput::Stream { conn: accepted, event });
                        let event = StreamEvent::Connected { remote: far, local, certificate };
                        self.client.handle_input(now, MachineInput::Stream { conn, event });
                    }
                    StreamOp::Data => {
                        let event = StreamEvent::Data(&buf);
                        self.host.server.handle_input(now, MachineInput::Stream { conn: accepted, event });
                    }
                    other => panic!("{other:?}"),
                }
            }
            self.host.run_jobs(now);
            let mut back = VecDeque::new();
            while let Some(transmit) = self.host.server.poll_transmit(&mut buf) {
                assert!(matches!(transmit, Transmit::Stream { op: StreamOp::Data, .. }), "{transmit:?}");
                back.push_back(buf.clone());
            }
            for data in back {
                quiet = false;
                self.client
                    .handle_input(now, MachineInput::Stream { conn: mine, event: StreamEvent::Data(&data) });
            }
        }
    }
    /// Lets time pass. Both ends run their watchdog.
    pub(crate) fn wait_until(&mut self, secs: u64) {
        while self.now < secs {
            self.now = secs.min(self.now + 5);
            self.host.server.handle_input(instant_at(self.now), MachineInput::Timeout);
            self.deliver_all(instant_at(self.now));
        }
    }
    fn send_record(
        &mut self,
        secs: u64,
        acr: &AccountingRequest<'_>,
    ) -> (ResultCode, Option<AccountingAnswer>) {
        self.send_accounting(secs, "switch.example.org;1;7", acr)
    }
    pub(crate) fn send_accounting(
        &mut self,
        secs: u64,
        session: &str,
        acr: &AccountingRequest<'_>,
    ) -> (ResultCode, Option<AccountingAnswer>) {
        let request = acr.to_request(1, session.into(), "example.org".into(), None);
        self.client.handle_command(instant_at(secs), node::DiameterNodeCommand::Request(request)).unwrap();
        self.deliver_all(instant_at(secs));
        match self.client.poll_event() {
            Some(node::DiameterNodeEvent::Answer { result, avps, .. }) => {
                (result, AccountingAnswer::parse(avps.as_sequence()).ok())
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn build_acr(
    record_type: AccountingRecordType,
    number: u32,
    length: u32,
) -> AccountingRequest<'static> {
    let mut acr = AccountingRequest::new(record_type, number);
    acr.user_name = Some("anna@example.org");
    acr.session_time = Some(length);
    acr.input_octets = Some(u64::from(length) << 32);
    acr.nas.address = Some(nas_address(0));
    acr
}

#[test]
fn a_diameter_session_is_kept_and_answered() {
    let mut d = DiameterTestClient::new();
    let said = |record_type, record_number| {
        (ResultCode::SUCCESS, Some(AccountingAnswer { record_type, record_number }))
    };
    assert_eq!(
        d.send_record(10, &build_acr(AccountingRecordType::Start, 0, 0)),
        said(AccountingRecordType::Start, 0)
    );
    assert_eq!(
        d.send_record(70, &build_acr(AccountingRecordType::Interim, 1, 60)),
        said(AccountingRecordType::Interim, 1)
    );
    // The same record in another message.
    assert_eq!(
        d.send_record(71, &build_acr(AccountingRecordType::Interim, 1, 60)),
        said(AccountingRecordType::Interim, 1)
    );
    d.host.service.store_mut().set_store_unavailable(true);
    let full = (
        ResultCode::OUT_OF_SPACE,
        Some(AccountingAnswer { record_type: AccountingRecordType::Stop, record_number: 2 }),
    );
    assert_eq!(d.send_record(100, &build_acr(AccountingRecordType::Stop, 2, 90)), full);
    d.host.service.store_mut().set_store_unavailable(false);
    assert_eq!(
        d.send_record(110, &build_acr(AccountingRecordType::Stop, 2, 90)),
        said(AccountingRecordType::Stop, 2)
    );
    let [row] = &d.host.rows()[..] else { panic!() };
    assert_eq!((row.acctsessionid.as_str(), row.interims), ("switch.example.org;1;7", 1));
    assert_eq!((row.acctsessiontime, row.acctinputoctets), (90, 90 << 32));
    assert_eq!(row.acctstoptime, Some(EPOCH + Duration::from_secs(100)));
}

#[test]
fn an_acr_that_is_none_is_told_so() {
    let mut d = DiameterTestClient::new();
    let mut request = build_acr(AccountingRecordType::Start, 0, 0).to_request(
        1,
        "s;1;7".into(),
        "example.org".into(),
        None,
    );
    request.avps.clear();
    d.client.handle_command(instant_at(1), node::DiameterNodeCommand::Request(request)).unwrap();
    d.deliver_all(instant_at(1));
    let Some(node::DiameterNodeEvent::Answer { result, .. }) = d.client.poll_event() else { panic!() };
    assert_eq!(result, ResultCode::MISSING_AVP);
    assert_eq!((d.host.server.counters().bad_accounting, d.host.rows().len()), (1, 0));
}

/// Sends a request from the access server with this number.
fn send_from_nas(
    r: &mut RadiusTestClient,
    n: usize,
    identifier: u8,
    fill: impl FnOnce(&mut AttributeList),
) -> Option<PacketCode> {
    let mut attributes = AttributeList::new();
    fill(&mut attributes);
    let packet =
        OwnedPacket { code: PacketCode::ACCOUNTING_REQUEST, identifier, authenticator: [0; 16], attributes };
    let mut data = Vec::new();
    packet.encode_into(&mut data).unwrap();
    let authenticator = usher_radius::auth::accounting_request_authenticator(&data, &shared_secret());
    data[4..20].copy_from_slice(&authenticator);
    let (near, far) = (SocketAddr::new(nas_address(n), 50_000), SocketAddr::new(server_address(0), 1812));
    let path = DatagramPath { socket: radius_socket(0), local: far, remote: near };
    r.host.server.handle_input(instant_at(1), MachineInput::Datagram { path, data: &data });
    r.host.run_jobs(instant_at(1));
    r.host.server.poll_transmit(&mut data)?;
    Some(PacketCode(data[0]))
}

/// Writes the identification of session `id` of access server `named`.
fn session_of(a: &mut AttributeList, named: usize, status: u32, id: &str) {
    let std::net::IpAddr::V4(address) = nas_address(named) else { panic!("they have IPv4 addresses") };
    a.push_ipv4(kind::NAS_IP_ADDRESS, address).push_u32(kind::ACCT_STATUS_TYPE, status);
    a.push_text(kind::ACCT_SESSION_ID, id).unwrap().push_bytes(kind::USER_NAME, &user_name(0)).unwrap();
}

#[test]
fn nobody_ends_the_sessions_of_another_client() {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    if let Some(radius) = &mut config.radius {
        // Each is a client of its own. The last one also speaks for the second.
        radius.clients = (0..4).map(|n| ClientConfig::new(nas_address(n), 32, shared_secret())).collect();
        radius.clients[3].speaks_for = vec![(nas_address(1), 32)];
    }
    let mut r = RadiusTestClient::new(config, LedgerConfig::default());
    let answered = Some(PacketCode::ACCOUNTING_RESPONSE);
    let tell = |r: &mut RadiusTestClient, n, identifier, named, status, id: &str| {
        let answer = send_from_nas(r, n, identifier, |a| session_of(a, named, status, id));
        assert_eq!(answer, answered, "all is acknowledged");
    };
    let open = |r: &RadiusTestClient| {
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
    // The third names the first: in a Stop, in a restart, and in restarts without a name.
    tell(&mut r, 2, 1, 0, STOP, "s");
    tell(&mut r, 2, 2, 0, ON, "");
    tell(&mut r, 2, 3, 2, ON, "");
    assert_eq!(open(&r), theirs);
    assert_eq!(r.host.rows().iter().filter(|row| row.nasipaddress == c).count(), 1, "its record is its own");
    let counters = r.host.server.counters();
    assert_eq!((counters.foreign_nas, counters.foreign_restarts), (1, 1));
    // Sessions that the third reports of others are its own, and it can end them.
    tell(&mut r, 2, 4, 0, START, "t");
    assert_eq!(open(&r).len(), 3);
    tell(&mut r, 2, 5, 0, STOP, "t");
    assert_eq!(open(&r), theirs);
    // A client may report for its configured access servers.
    tell(&mut r, 3, 1, 1, STOP, "s");
    assert_eq!(open(&r), [(a, "s".to_owned())]);
    tell(&mut r, 0, 2, 0, ON, "");
    assert_eq!(open(&r), []);
}
