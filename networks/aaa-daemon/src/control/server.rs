//! The server's side of its control socket.

use super::{ControlReply, ControlRequest, RevocationListStatus, ServerStatus, SessionSummary};
use crate::homes;
use crate::mailbox::ShardMessage;
use crate::running::RunningServer;
use crate::stats::LoginResult;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use usher_aaa::ledger::UniqueSessionId;
use usher_aaa::store::SessionRow;
use usher_aaa::{
    AaaServerCommand, DynamicAuthResult, LoginTraceFilter, TRACES, canonical_name, is_user_alias_class,
};
use usher_core::Instant as MachineInstant;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;
use usher_service::control::{self, ControlConnection};

/// Port of dynamic authorization (RFC 5176) at a NAS.
const DYNAMIC_PORT: u16 = 3799;
/// Timeout for the shards to evict a user.
const FORGETTING: Duration = Duration::from_secs(10);
/// Drift of the system's clock after which a trace follows it.
const DRIFT: usher_core::Duration = usher_core::Duration::from_millis(1);
/// Timeout for a NAS's answer.
const DYNAMIC_WAIT: Duration = Duration::from_secs(40);

/// State that the connections share.
#[derive(Default)]
struct ControlConnectionState {
    /// Trace slots in use.
    traces: Mutex<[bool; TRACES]>,
    token: AtomicU64,
}

impl ControlConnectionState {
    /// Claims a trace slot. `None`: all are in use.
    fn claim_trace_slot(&self) -> Option<u8> {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = traces.iter().position(|used| !used)?;
        traces[slot] = true;
        u8::try_from(slot).ok()
    }
    /// Releases a trace slot.
    fn release_trace_slot(&self, slot: u8) {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(slot)] = false;
    }
}

/// Starts to listen. Removes a stale socket.
pub(crate) fn start_control(running: &Arc<RunningServer>, path: &Path) -> io::Result<()> {
    let running = running.clone();
    let shared = ControlConnectionState::default();
    let failed = |message| ControlReply::Failed { message };
    control::serve_connections(path, failed, move |request, connection| {
        answer_request(&running, &shared, request, connection)
    })
}

fn answer_request(
    running: &RunningServer,
    shared: &ControlConnectionState,
    request: ControlRequest,
    connection: &ControlConnection,
) -> io::Result<()> {
    let failed = |message: String| ControlReply::Failed { message };
    let answer = match request {
        ControlRequest::Status => ControlReply::Status(server_status(running)),
        ControlRequest::Sessions { user } => {
            let rows = running.ledger.open_sessions(user);
            ControlReply::Sessions { sessions: rows.iter().map(SessionSummary::from).collect() }
        }
        ControlRequest::ForgetSessions { sessions, by } => {
            end_sessions(running, &sessions, &by, connection.peer_user_id())
        }
        ControlRequest::Forget { user, disconnect } => {
            evict_user(running, shared, user.as_deref(), disconnect)
        }
        ControlRequest::Reload => running.reload_config().map_or_else(failed, |parts| {
            ControlReply::Reloaded { restart: parts.into_iter().map(str::to_owned).collect() }
        }),
        ControlRequest::Disconnect { session } => {
            let done = request_session_change(running, shared, &session, PacketCode::DISCONNECT_REQUEST, &[]);
            done.map_or_else(failed, |()| ControlReply::Done)
        }
        ControlRequest::Change { session, attributes } => {
            let done =
                request_session_change(running, shared, &session, PacketCode::COA_REQUEST, &attributes);
            done.map_or_else(failed, |()| ControlReply::Done)
        }
        ControlRequest::Trace { user, mac } => return stream_trace(running, shared, connection, user, mac),
    };
    connection.write_answer(&answer)
}

fn server_status(running: &RunningServer) -> ServerStatus {
    let all = running.mailboxes.collect_snapshot();
    let sum = |wanted: LoginResult| {
        all.logins.iter().filter(|((_, _, outcome, _), _)| *outcome == wanted).map(|(_, n)| n).sum()
    };
    let now = usher_service::setup::wall_time().unix_secs() as f64;
    let tls = running.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
    let ends = tls.iter().flat_map(|tls| &tls.ends);
    let lists = tls.iter().flat_map(|tls| &tls.lists).map(|list| RevocationListStatus {
        from: list.from.clone(),
        issuer: list.issuer.clone(),
        made: list.this_update.unix_secs(),
        ends: list.next_update.map(|end| end.unix_secs()),
        number: list.number.clone(),
    });
    ServerStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime: running.started_at.elapsed().as_secs(),
        config: running.current_installation().loaded.path.map(|p| p.display().to_string()),
        shards: running.shards,
        accepted: sum(LoginResult::Accept),
        rejected: sum(LoginResult::Reject),
        half_open: all.half_open,
        sessions: running.ledger.collect_snapshot().map_or(0, |l| l.open),
        diameter_peers: all.diameter_peers,
        home_servers: homes::home_server_statuses(&all.homes),
        diameter_servers: all.diameter_servers.into_iter().collect(),
        tls_faults: running.outgoing.read().unwrap_or_else(PoisonError::into_inner).peers().tls_peer_faults(),
        reloads: *running.reloads.lock().unwrap_or_else(PoisonError::into_inner),
        lists: lists.collect(),
        certificates: ends
            .map(|(whose, end)| ((*whose).to_owned(), (*end as f64 - now) / 86_400.0))
            .collect(),
    }
}

/// Ends sessions whose NAS will send no Stop, and logs the operator.
fn end_sessions(running: &RunningServer, sessions: &[String], by: &str, uid: Option<u32>) -> ControlReply {
    let uniques = sessions.iter().filter_map(|session| UniqueSessionId::parse(session)).collect();
    let Some((rows, durable)) = running.ledger.close_sessions(uniques) else {
        return ControlReply::Failed { message: "the ledger does not answer; try again".to_owned() };
    };
    for row in &rows {
        let (session, user, nas) = (&row.acctuniqueid, &row.username, row.nasipaddress);
        tracing::warn!(session, user, %nas, by, ?uid, "session forgotten by an operator: its NAS had sent no Stop");
    }
    ControlReply::Forgotten { sessions: rows.into_iter().map(|row| row.acctuniqueid).collect(), durable }
}

/// Evicts a user, or all, from all shards. With `disconnect`, NASs disconnect the user's open sessions.
fn evict_user(
    running: &RunningServer,
    shared: &ControlConnectionState,
    user: Option<&str>,
    disconnect: bool,
) -> ControlReply {
    running.user_cache.evict_user(user.map(str::as_bytes));
    if !running.mailboxes.evict_user(user.map(str::as_bytes), FORGETTING) {
        let message = "not all shards have dropped the cached user yet; try again".to_owned();
        return ControlReply::Failed { message };
    }
    let Some(user) = user.filter(|_| disconnect) else { return ControlReply::Done };
    let name = canonical_name(user.as_bytes());
    let rows = running.ledger.open_sessions(None);
    let of_user = rows.iter().filter(|row| canonical_name(row.username.as_bytes()) == name);
    // All requests are sent before the first answer is awaited, so that their waiting times overlap.
    let asked: Vec<_> = of_user
        .map(|row| send_dynamic_request(running, shared, row, PacketCode::DISCONNECT_REQUEST, &[]))
        .collect();
    let done: Vec<_> =
        asked.into_iter().map(|asked| asked.and_then(PendingRequest::wait_for_dynauth_result)).collect();
    let ended = done.iter().filter(|done| done.is_ok()).count();
    ControlReply::Disconnected { ended, failures: done.into_iter().filter_map(Result::err).collect() }
}

/// Sends a CoA-Request or Disconnect-Request for a session and waits for the answer.
fn request_session_change(
    running: &RunningServer,
    shared: &ControlConnectionState,
    session: &str,
    code: PacketCode,
    changes: &[String],
) -> Result<(), String> {
    let rows = running.ledger.open_sessions(None);
    let named = |row: &&SessionRow| row.acctuniqueid == session || row.acctsessionid == session;
    let found: Vec<&SessionRow> = rows.iter().filter(named).collect();
    let row = match found.as_slice() {
        [row] => row,
        [] => return Err(format!("there is no open session {session}; see: usher aaa session list")),
        _ => {
            return Err(format!(
                "several NASs have a session {session}; use the long id from: usher aaa session list"
            ));
        }
    };
    send_dynamic_request(running, shared, row, code, changes)?.wait_for_dynauth_result()
}

/// A request that a NAS has not answered.
struct PendingRequest {
    to: SocketAddr,
    until: Instant,
    receiver: Receiver<DynamicAuthResult>,
}

/// Sends a request to the NAS of a session.
fn send_dynamic_request(
    running: &RunningServer,
    shared: &ControlConnectionState,
    row: &SessionRow,
    code: PacketCode,
    changes: &[String],
) -> Result<PendingRequest, String> {
    let session = &row.acctuniqueid;
    if row.nasipaddress.is_unspecified() {
        return Err(format!(
            "session {session} came by Diameter without the address of its NAS: no request can be sent to it"
        ));
    }
    let mut attributes = session_identification_attributes(row, code);
    for change in changes {
        running.push_attribute(change, &mut attributes)?;
    }
    let token = shared.token.fetch_add(1, Ordering::Relaxed);
    let to = SocketAddr::new(row.nasipaddress, DYNAMIC_PORT);
    let (sender, receiver) = sync_channel(1);
    let command = AaaServerCommand::Dynamic { token, to, code, attributes };
    running.mailboxes.send(0_u16, ShardMessage::Dynamic(command, sender));
    Ok(PendingRequest { to, until: Instant::now() + DYNAMIC_WAIT, receiver })
}

impl PendingRequest {
    /// Waits for the answer.
    fn wait_for_dynauth_result(self) -> Result<(), String> {
        let Self { to, until, receiver } = self;
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(DynamicAuthResult::Ack) => Ok(()),
            Ok(DynamicAuthResult::Nak(Some(cause))) => {
                Err(format!("the NAS {to} refused (Error-Cause {cause})"))
            }
            Ok(DynamicAuthResult::Nak(None)) => Err(format!("the NAS {to} refused")),
            Ok(DynamicAuthResult::TimedOut) | Err(RecvTimeoutError::Timeout) => Err(format!(
                "the NAS {to} does not answer; does it support Disconnect-Request and CoA-Request (RFC 5176)?"
            )),
            Err(RecvTimeoutError::Disconnected) => Err(format!(
                "nothing was sent: the NAS {to} is not a client of this server, or a proxy is between them"
            )),
        }
    }
}

fn stream_trace(
    running: &RunningServer,
    shared: &ControlConnectionState,
    connection: &ControlConnection,
    user: Option<String>,
    mac: Option<String>,
) -> io::Result<()> {
    let Some(slot) = shared.claim_trace_slot() else {
        let message = format!("{TRACES} traces run already; end one of them first");
        return connection.write_answer(&ControlReply::Failed { message });
    };
    let filter = match (user, mac) {
        (Some(user), _) => LoginTraceFilter::User(user.into_bytes()),
        (None, Some(mac)) => LoginTraceFilter::Station(mac.into_bytes()),
        (None, None) => LoginTraceFilter::All,
    };
    let (sender, lines) = sync_channel(4096);
    for mailbox in running.mailboxes.as_slice() {
        mailbox.send(ShardMessage::Trace(slot, Some((filter.clone(), sender.clone()))));
    }
    drop(sender);
    let mut epoch = running.clock.wall_epoch();
    let done = connection.write_answer(&ControlReply::Done).and_then(|()| {
        loop {
            match lines.recv_timeout(Duration::from_millis(500)) {
                Ok(line) => {
                    // Lines of one moment show the same time, unless the clock is set.
                    let shown = running.clock.wall_epoch();
                    if shown > epoch + DRIFT || epoch > shown + DRIFT {
                        epoch = shown;
                    }
                    let at = (epoch + line.traced_at.duration_since(MachineInstant::ZERO)).unix_micros();
                    let cause = line.cause.map(str::to_owned);
                    let text = line.text;
                    connection.write_answer(&ControlReply::Line {
                        session: line.session,
                        at,
                        text,
                        cause,
                    })?;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    if connection.is_closed() {
                        return Ok(());
                    }
                }
            }
        }
    });
    for mailbox in running.mailboxes.as_slice() {
        mailbox.send(ShardMessage::Trace(slot, None));
    }
    shared.release_trace_slot(slot);
    done
}

/// Returns the attributes that identify a session to its access server (RFC 5176 §3).
///
/// A user who is anonymous to the access server is not named. The access server is not named either: its address in
/// the table may be that of a proxy. Only access servers of PPP and tunnels get addresses and ports. Those of IEEE
/// 802.1X do not know their stations' addresses and refuse such a request (hostapd: Error-Cause 401). A
/// Disconnect-Request has no address (§3.6).
fn session_identification_attributes(row: &SessionRow, code: PacketCode) -> AttributeList {
    let user = if is_user_alias_class(&row.class) { "" } else { &row.username };
    let mut attributes = AttributeList::new();
    let all = [
        (kind::USER_NAME, user),
        (kind::ACCT_SESSION_ID, &row.acctsessionid),
        (kind::CALLING_STATION_ID, &row.callingstationid),
    ];
    for (kind, value) in all.into_iter().filter(|(_, value)| !value.is_empty()) {
        // The value was read from an attribute, so it fits into one.
        let _ = attributes.push_bytes(kind, value.as_bytes());
    }
    if row.framedprotocol == "PPP" || row.nasporttype == "Virtual" {
        if let (Some(IpAddr::V4(address)), PacketCode::COA_REQUEST) = (row.framedipaddress, code) {
            attributes.push_ipv4(kind::FRAMED_IP_ADDRESS, address);
        }
        // The table has one column for NAS-Port and NAS-Port-Id.
        match row.nasportid.parse() {
            Ok(port) => drop(attributes.push_u32(kind::NAS_PORT, port)),
            Err(_) if row.nasportid.is_empty() => {}
            Err(_) => drop(attributes.push_bytes(kind::NAS_PORT_ID, row.nasportid.as_bytes())),
        }
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_row() -> SessionRow {
        SessionRow {
            acctsessionid: "5f2a".into(),
            acctuniqueid: "u".into(),
            username: "ann".into(),
            realm: String::new(),
            nasipaddress: "192.0.2.7".parse().unwrap(),
            nasportid: "12".into(),
            nasporttype: "Wireless-802.11".into(),
            acctstarttime: None,
            acctupdatetime: None,
            acctstoptime: None,
            acctsessiontime: 0,
            acctauthentic: String::new(),
            acctinputoctets: 0,
            acctoutputoctets: 0,
            calledstationid: String::new(),
            callingstationid: String::new(),
            acctterminatecause: String::new(),
            servicetype: String::new(),
            framedprotocol: String::new(),
            framedipaddress: Some("10.0.0.9".parse().unwrap()),
            framedipv6prefix: String::new(),
            class: String::new(),
            interims: 0,
            diameter_origin: String::new(),
        }
    }
    fn identification_attribute_types(row: &SessionRow) -> Vec<u8> {
        session_identification_attributes(row, PacketCode::COA_REQUEST).iter().map(|a| a.kind).collect()
    }

    #[test]
    fn an_access_server_is_told_whose_session_is_meant_and_which() {
        let said = session_identification_attributes(&test_row(), PacketCode::DISCONNECT_REQUEST);
        assert_eq!(said.get_text(kind::USER_NAME), Some("ann"));
        assert_eq!(said.get_text(kind::ACCT_SESSION_ID), Some("5f2a"));
        assert_eq!(identification_attribute_types(&test_row()), [kind::USER_NAME, kind::ACCT_SESSION_ID]);
        let known = SessionRow { callingstationid: "00-11".into(), ..test_row() };
        assert_eq!(
            identification_attribute_types(&known),
            [kind::USER_NAME, kind::ACCT_SESSION_ID, kind::CALLING_STATION_ID]
        );
    }

    #[test]
    fn ppp_and_tunnel_sessions_are_identified_by_address_and_port() {
        let ppp = SessionRow { framedprotocol: "PPP".into(), nasporttype: "Ethernet".into(), ..test_row() };
        assert_eq!(identification_attribute_types(&ppp)[2..], [kind::FRAMED_IP_ADDRESS, kind::NAS_PORT]);
        let tunnel =
            SessionRow { nasporttype: "Virtual".into(), nasportid: "roadwarriors".into(), ..test_row() };
        assert_eq!(
            identification_attribute_types(&tunnel)[2..],
            [kind::FRAMED_IP_ADDRESS, kind::NAS_PORT_ID]
        );
        let ended = session_identification_attributes(&tunnel, PacketCode::DISCONNECT_REQUEST);
        assert!(ended.get(kind::FRAMED_IP_ADDRESS).is_none() && ended.get(kind::NAS_PORT_ID).is_some());
    }

    #[test]
    fn an_access_server_never_gets_the_name_of_an_anonymous_user() {
        let named = |class: &str| {
            identification_attribute_types(&SessionRow { class: class.into(), ..test_row() })
                .contains(&kind::USER_NAME)
        };
        assert!(named("7374616666") && !named("557368310011"));
    }
}
