//! Connections, the peer automaton's actions, and watchdogs.

use super::config::{PeerAuthentication, PeerTransportConfig};
use super::links::{
    AcceptedConnectionSource, ConnectionCloseMode, MessageStreamClass, PeerConnection, PeerTransport,
    ReceivedMessageStream,
};
use super::peers::PeerEntry;
use super::{
    CommandError, DiameterNode, DiameterNodeEvent, DiameterNodeTimer, DisconnectCause, PeerId, server,
};
use crate::avp::{AvpBuf, AvpSequence};
use crate::codes::{self, command};
use crate::error::{DiameterError, ResultCode};
use crate::message::{CommandFlags, HEADER_LEN, MessageHeader, MessageView};
use crate::peer::automaton::{self, Action, PeerAutomaton, State};
use crate::peer::capabilities::{NodeCapabilities, check_inband_security};
use crate::peer::watchdog;
use crate::stream::{MessageFramer, SCTP_PPID, SCTP_PPID_UNSPECIFIED};
use crate::work;
use core::net::IpAddr;
use usher_core::{ConnId, Instant, MessageAssociationOp, StreamOp, Transmit};

/// A CER on a new connection.
pub(super) struct ReceivedCer {
    conn: ConnId,
    header: MessageHeader,
    capabilities: NodeCapabilities,
}

impl DiameterNode {
    /// Handles an accepted connection.
    pub(super) fn on_accepted(
        &mut self,
        now: Instant,
        conn: ConnId,
        link: PeerTransport,
        local: Option<IpAddr>,
        origin: AcceptedConnectionSource,
    ) {
        let deadline = now + self.config.establish_timeout;
        self.timers.insert(deadline, DiameterNodeTimer::Accepted(conn));
        let deadline = Some(deadline);
        self.conns.insert(conn, PeerConnection { peer: None, link, local, origin: Some(origin), deadline });
    }

    /// Handles the setup of our connection.
    pub(super) fn on_connected(
        &mut self,
        now: Instant,
        conn: ConnId,
        local: Option<IpAddr>,
        certificate: Option<&[u8]>,
    ) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.local = local;
        if let Some(p) = c.peer {
            let peer = &self.peers[p];
            // RFC 6733, 2.9, 5.1, 13.1: the peer proves its identity first.
            if !peer.authentication.may_be_peer_connection(&peer.host, None, certificate) {
                self.counters.unauthenticated_peer += 1;
                return self.abort_connection(now, conn);
            }
            self.step_peer_automaton(now, p, automaton::Event::IRcvConnAck, None);
        }
    }

    /// Handles the setup of our association.
    pub(super) fn on_association_up(&mut self, now: Instant, assoc: ConnId, negotiated: u16) {
        match self.conns.get_mut(&assoc) {
            Some(PeerConnection { link: PeerTransport::Association { streams, .. }, .. }) => {
                *streams = negotiated.min(*streams);
                self.on_connected(now, assoc, None, None);
            }
            _ => self.counters.out_of_state += 1,
        }
    }

    pub(super) fn on_closed(&mut self, now: Instant, conn: ConnId) {
        let Some(c) = self.remove_connection(conn) else { return };
        let Some(p) = c.peer else { return };
        let event = match (conn.is_accepted(), self.peers[p].state) {
            (true, _) => automaton::Event::RPeerDisc,
            (false, State::WaitConnAck | State::WaitConnAckElect) => {
                self.counters.connect_failed += 1;
                automaton::Event::IRcvConnNack
            }
            (false, _) => automaton::Event::IPeerDisc,
        };
        self.step_peer_automaton(now, p, event, None);
    }

    pub(super) fn on_data(&mut self, now: Instant, conn: ConnId, mut data: &[u8]) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        let PeerTransport::Stream(kept) = &mut c.link else {
            self.counters.out_of_state += 1;
            return;
        };
        let mut framer = core::mem::replace(kept, MessageFramer::new(0));
        loop {
            match framer.next_message(&mut data) {
                Ok(Some(message)) => {
                    self.on_message(now, ReceivedMessageStream { conn, stream: 0 }, message.as_bytes())
                }
                Ok(None) => break,
                Err(_) => {
                    // RFC 6733, 2.1: octets that cannot be parsed reset the connection.
                    self.counters.unframable += 1;
                    self.abort_connection(now, conn);
                    return;
                }
            }
            if !self.conns.contains_key(&conn) {
                return;
            }
        }
        if let Some(c) = self.conns.get_mut(&conn) {
            c.link = PeerTransport::Stream(framer);
        }
    }

    /// Handles a user message of an association. RFC 6733 §2.1 resets a connection with unparsable data, since the
    /// stream is then lost. A user message spoils no other, so the association stays.
    pub(super) fn on_user_message(
        &mut self,
        now: Instant,
        conn: ConnId,
        stream: u16,
        ppid: u32,
        data: &[u8],
    ) {
        match self.conns.get(&conn) {
            Some(PeerConnection { link: PeerTransport::Association { .. }, .. }) => {}
            Some(_) => return self.counters.out_of_state += 1,
            None => return,
        }
        if !matches!(ppid, SCTP_PPID | SCTP_PPID_UNSPECIFIED) {
            self.counters.foreign_payload += 1;
        } else if data.len() > self.config.max_message {
            self.counters.malformed += 1;
        } else {
            // RFC 6733, 2.1.1; RFC 3539, 3.8.1: a message may come by any stream.
            self.on_message(now, ReceivedMessageStream { conn, stream }, data);
        }
    }

    fn on_message(&mut self, now: Instant, via: ReceivedMessageStream, bytes: &[u8]) {
        let conn = via.conn;
        let peer = self.conns.get(&conn).and_then(|c| c.peer);
        let view = match MessageView::parse(bytes) {
            Ok(view) => view,
            Err(fault) => return self.on_malformed(now, via, peer, bytes, &fault),
        };
        let Some(p) = peer else { return self.on_cer(now, conn, &view) };
        let h = view.header();
        let ours = !conn.is_accepted();
        use automaton::Event as E;
        let (request, state) = (h.flags.is_request(), self.peers[p].state);
        if state.is_open() && self.peers[p].active_connection() == Some(conn) {
            self.allow_unordered_messages(conn);
            let dwa = h.command == command::DEVICE_WATCHDOG && !request;
            self.step_watchdog(
                now,
                p,
                if dwa { watchdog::Event::ReceiveDwa } else { watchdog::Event::ReceiveOther },
            );
        }
        let of = |i, r| if ours { i } else { r };
        match (h.command, request) {
            (command::CAPABILITIES_EXCHANGE, false) if ours => self.on_cea(now, p, &view),
            _ if ours && matches!(state, State::WaitICea | State::WaitReturns) => {
                self.counters.out_of_state += 1;
                self.handle_non_cea(now, p);
            }
            (command::DEVICE_WATCHDOG, true) => {
                self.step_peer_automaton(now, p, of(E::IRcvDwr, E::RRcvDwr), Some(PeerEventData::Request(h)));
            }
            (command::DEVICE_WATCHDOG, false) => {
                self.step_peer_automaton(now, p, of(E::IRcvDwa, E::RRcvDwa), None)
            }
            (command::DISCONNECT_PEER, true) => {
                let cause = view.avps().get(codes::DISCONNECT_CAUSE).and_then(|a| a.as_u32().ok());
                // RFC 6733, 5.4: no reconnection after BUSY or DO_NOT_WANT_TO_TALK_TO_YOU.
                if matches!(cause, Some(1 | 2)) {
                    self.peers[p].reconnect = false;
                }
                self.step_peer_automaton(now, p, of(E::IRcvDpr, E::RRcvDpr), Some(PeerEventData::Request(h)));
            }
            (command::DISCONNECT_PEER, false) => {
                self.step_peer_automaton(now, p, of(E::IRcvDpa, E::RRcvDpa), None)
            }
            _ if PeerAutomaton::step(state, of(E::IRcvMessage, E::RRcvMessage)).is_none() => {
                self.counters.out_of_state += 1;
            }
            (_, true) => self.on_request(p, via, &view),
            (_, false) => self.on_answer(p, &view),
        }
    }

    fn on_malformed(
        &mut self,
        now: Instant,
        via: ReceivedMessageStream,
        peer: Option<u32>,
        bytes: &[u8],
        fault: &DiameterError,
    ) {
        self.counters.malformed += 1;
        let open = peer.is_some_and(|p| self.peers[p].active_connection() == Some(via.conn));
        let framed = matches!(
            self.conns.get(&via.conn),
            Some(PeerConnection { link: PeerTransport::Association { .. }, .. })
        );
        match MessageView::parse_message_header(bytes) {
            Some(h) if open && h.flags.is_request() => {
                // The AVPs before the fault are valid. They include those that the error answer echoes.
                let sound = match fault.code {
                    ResultCode::UNSUPPORTED_VERSION => &[],
                    _ => bytes.get(HEADER_LEN..).unwrap_or_default(),
                };
                let [mut prefix, proxies] = server::echoed_avps(AvpSequence::from_checked(sound));
                self.answer_with_error(via, h, prefix.extend(&proxies).as_bytes(), fault);
            }
            // RFC 6733, 7.2: an answer is not answered.
            _ if open || framed => {}
            _ => self.abort_connection(now, via.conn),
        }
    }

    fn on_cer(&mut self, now: Instant, conn: ConnId, view: &MessageView<'_>) {
        let h = view.header();
        // RFC 6733, 5.3: the first message is a CER.
        if h.command != command::CAPABILITIES_EXCHANGE || !h.flags.is_request() {
            self.counters.not_a_cer += 1;
            return self.abort_connection(now, conn);
        }
        let origin = self.conns.get_mut(&conn).and_then(|c| c.origin.take());
        let checked = self.check_cer(view, origin.as_ref());
        match checked {
            Ok((p, capabilities)) => {
                let cer = ReceivedCer { conn, header: h, capabilities };
                self.step_peer_automaton(now, p, automaton::Event::RConnCer, Some(PeerEventData::Cer(cer)));
            }
            Err(fault) => {
                // RFC 6733, 5.3, 7.1.5: 5010 or 5017, then the connection closes.
                self.answer_with_error(ReceivedMessageStream { conn, stream: 0 }, h, &[], &fault);
                self.drop_conn(Some(conn), ConnectionCloseMode::Shutdown);
            }
        }
    }

    fn check_cer(
        &mut self,
        view: &MessageView<'_>,
        origin: Option<&AcceptedConnectionSource>,
    ) -> Result<(u32, NodeCapabilities), DiameterError> {
        let theirs =
            NodeCapabilities::parse(view.avps()).inspect_err(|_| self.counters.bad_capabilities += 1)?;
        let known = self.peers.find_peer_by_host(&theirs.host);
        if known.is_none() && (!self.config.accept_unknown || self.peers.len() >= self.config.max_peers) {
            self.counters.unknown_peer += 1;
            return Err(DiameterError::new(ResultCode::UNKNOWN_PEER, "the host is not a peer of this node"));
        }
        let guests = PeerAuthentication::default();
        let authentication = known.map_or(&guests, |p| &self.peers[p].authentication);
        let (remote, certificate) =
            origin.map_or((None, None), |o| (Some(o.remote), o.certificate.as_deref()));
        // RFC 6733, 2.9, 5.1, 13.1: the peer proves its identity first.
        if !authentication.may_be_peer_connection(&theirs.host, remote, certificate) {
            self.counters.unauthenticated_peer += 1;
            return Err(DiameterError::new(
                ResultCode::UNKNOWN_PEER,
                "address or certificate is not that of the peer",
            ));
        }
        if certificate.is_none() {
            check_inband_security(view.avps()).inspect_err(|_| self.counters.bad_capabilities += 1)?;
        }
        self.config
            .local
            .check_common_application(&theirs)
            .inspect_err(|_| self.counters.no_common_application += 1)?;
        let p = known.unwrap_or_else(|| {
            self.peers.add_unconfigured_peer(PeerEntry::new_unconfigured_peer(theirs.host.clone()))
        });
        Ok((p, theirs))
    }

    fn on_cea(&mut self, now: Instant, p: u32, view: &MessageView<'_>) {
        let result = view.avps().get(codes::RESULT_CODE).and_then(|a| a.as_u32().ok()).map(ResultCode);
        let theirs = NodeCapabilities::parse(view.avps());
        match (result, theirs) {
            (Some(ResultCode::SUCCESS), Ok(c)) if c.host.eq_ignore_ascii_case(&self.peers[p].host) => {
                if self.config.local.check_common_application(&c).is_err() {
                    self.counters.no_common_application += 1;
                    return self.handle_non_cea(now, p);
                }
                self.peers[p].remote = Some(c);
                self.step_peer_automaton(now, p, automaton::Event::IRcvCea, None);
            }
            (Some(ResultCode::SUCCESS), Ok(_)) | (Some(ResultCode::UNKNOWN_PEER), _) => {
                self.counters.unknown_peer += 1;
                self.handle_non_cea(now, p);
            }
            (Some(ResultCode::NO_COMMON_APPLICATION), _) => {
                self.counters.no_common_application += 1;
                self.handle_non_cea(now, p);
            }
            _ => {
                self.counters.bad_capabilities += 1;
                self.handle_non_cea(now, p);
            }
        }
    }

    /// Handles a missing or faulty CEA on our connection. The RFC's table has no such event during an election. There
    /// our connection ends as if the peer had closed it.
    fn handle_non_cea(&mut self, now: Instant, p: u32) {
        match (self.peers[p].state, self.peers[p].ours) {
            (State::WaitReturns, Some(conn)) => self.abort_connection(now, conn),
            _ => self.step_peer_automaton(now, p, automaton::Event::IRcvNonCea, None),
        }
    }

    /// Steps the peer's automaton and executes its actions.
    pub(super) fn step_peer_automaton(
        &mut self,
        now: Instant,
        p: u32,
        event: automaton::Event,
        got: Option<PeerEventData>,
    ) {
        let before = self.peers[p].state;
        let Some(row) = PeerAutomaton::step(before, event) else {
            self.counters.out_of_state += 1;
            if let Some(PeerEventData::Cer(cer)) = got {
                self.drop_conn(Some(cer.conn), ConnectionCloseMode::Shutdown);
            }
            return;
        };
        let mut elect = false;
        for action in row.actions {
            self.perform_action(p, *action, got.as_ref(), &mut elect);
        }
        self.peers[p].state = row.to;
        if row.to == State::Closed && self.peers.is_unconfigured_peer(p) {
            self.leaving.push(p);
        }
        if row.to != before {
            self.set_state_deadline(now, p);
            if row.to.is_open() {
                self.handle_peer_up(now, p);
            } else if before.is_open() {
                self.handle_peer_down(now, p);
            }
        }
        let host = &self.peers[p].host;
        if elect && automaton::wins_election(&self.config.local.host, host) {
            self.step_peer_automaton(now, p, automaton::Event::WinElection, None);
        }
    }

    fn perform_action(&mut self, p: u32, action: Action, got: Option<&PeerEventData>, elect: &mut bool) {
        let (ours, theirs) = (self.peers[p].ours, self.peers[p].theirs);
        match (action, got) {
            (Action::ISndConnReq, _) => self.connect_peer(p),
            (Action::RAccept, Some(PeerEventData::Cer(cer))) => {
                self.peers[p].theirs = Some(cer.conn);
                if let Some(c) = self.conns.get_mut(&cer.conn) {
                    c.peer = Some(p);
                    if let Some(at) = c.deadline.take() {
                        self.timers.remove(at, DiameterNodeTimer::Accepted(cer.conn));
                    }
                }
            }
            (Action::RReject, Some(PeerEventData::Cer(cer))) => {
                // RFC 6733, 2.1: a peer has one connection.
                self.counters.connection_rejected += 1;
                self.drop_conn(Some(cer.conn), ConnectionCloseMode::Shutdown);
            }
            (Action::ProcessCer, Some(PeerEventData::Cer(cer))) => {
                self.peers[p].cer = Some(cer.header);
                self.peers[p].remote = Some(cer.capabilities.clone());
            }
            (Action::RSndCea, _) => {
                if let (Some(conn), Some(header)) = (theirs, self.peers[p].cer.take()) {
                    let mut avps = AvpBuf::new();
                    avps.push_u32(codes::RESULT_CODE, ResultCode::SUCCESS.0);
                    self.emit_capabilities(Some(conn), &mut avps);
                    self.send_base_message(
                        conn,
                        MessageStreamClass::Base,
                        header.to_answer(ResultCode::SUCCESS),
                        &avps,
                    );
                }
            }
            (Action::ISndCer, _) => {
                let mut avps = AvpBuf::new();
                self.emit_capabilities(ours, &mut avps);
                self.send_request(ours, command::CAPABILITIES_EXCHANGE, &avps);
            }
            (Action::Cleanup | Action::IDisc, _) => {
                self.drop_conn(ours, ConnectionCloseMode::Shutdown);
                self.peers[p].ours = None;
            }
            (Action::RDisc, _) => {
                self.drop_conn(theirs, ConnectionCloseMode::Shutdown);
                self.peers[p].theirs = None;
            }
            (Action::Error, _) => {
                self.drop_conn(ours, ConnectionCloseMode::Abort);
                self.drop_conn(theirs, ConnectionCloseMode::Abort);
                (self.peers[p].ours, self.peers[p].theirs) = (None, None);
            }
            (Action::Elect, _) => *elect = true,
            (Action::ISndDwa | Action::ISndDpa, Some(PeerEventData::Request(h))) => {
                self.answer_base_request(ours, *h)
            }
            (Action::RSndDwa | Action::RSndDpa, Some(PeerEventData::Request(h))) => {
                self.answer_base_request(theirs, *h)
            }
            (Action::ISndDpr | Action::RSndDpr, Some(PeerEventData::Stop(cause))) => {
                let mut avps = self.origin_avps();
                // RFC 6733, 5.4.3: a DPR has its cause.
                avps.push_u32(codes::DISCONNECT_CAUSE, *cause as u32);
                let conn = if action == Action::ISndDpr { ours } else { theirs };
                self.send_request(conn, command::DISCONNECT_PEER, &avps);
            }
            // The other actions process a CEA, a watchdog message or an application message. That happens when it is
            // received.
            _ => {}
        }
    }

    fn connect_peer(&mut self, p: u32) {
        let peer = &mut self.peers[p];
        let Some(remote) = peer.address else { return };
        let conn = ConnId::nth_opened_connection(self.next_conn);
        self.next_conn = self.next_conn.wrapping_add(1);
        peer.ours = Some(conn);
        // RFC 3539, 3.1: TCP or SCTP.
        let (link, transmit) = match peer.transport {
            PeerTransportConfig::Stream => (
                PeerTransport::Stream(MessageFramer::new(self.config.max_message)),
                Transmit::Stream { conn, op: StreamOp::Connect { local: None, remote } },
            ),
            PeerTransportConfig::Message { streams, policy } => {
                let streams = streams.max(1);
                (
                    PeerTransport::Association { streams, policy, settled: false },
                    Transmit::Message {
                        assoc: conn,
                        op: MessageAssociationOp::Connect { local: None, remote, streams },
                    },
                )
            }
        };
        self.conns
            .insert(conn, PeerConnection { peer: Some(p), link, local: None, origin: None, deadline: None });
        self.outputs.push_operation(transmit);
    }

    fn set_state_deadline(&mut self, now: Instant, p: u32) {
        let peer = &mut self.peers[p];
        if let Some(at) = peer.state_deadline.take() {
            self.timers.remove(at, DiameterNodeTimer::State(p));
        }
        if !peer.state.is_open() && peer.state != State::Closed {
            let at = now + self.config.establish_timeout;
            peer.state_deadline = Some(at);
            self.timers.insert(at, DiameterNodeTimer::State(p));
        }
    }

    fn handle_peer_up(&mut self, now: Instant, p: u32) {
        let peer = &mut self.peers[p];
        if self.config.watchdog.is_none() {
            peer.watchdog = watchdog::PeerWatchdog::default();
        }
        // In I-Open the CEA arrived on the connection that this node opened.
        if peer.state == State::IOpen
            && let Some(conn) = peer.ours
        {
            self.allow_unordered_messages(conn);
        }
        self.outputs.push_event(DiameterNodeEvent::PeerUp { peer: PeerId(p) });
        self.step_watchdog(now, p, watchdog::Event::ConnectionUp);
        self.dispatch_waiting_requests();
    }

    fn handle_peer_down(&mut self, now: Instant, p: u32) {
        self.outputs.push_event(DiameterNodeEvent::PeerDown { peer: PeerId(p) });
        self.step_watchdog(now, p, watchdog::Event::ConnectionDown);
        self.connection_lost(p);
    }

    /// Removes unconfigured peers without a connection. This runs late, since handlers of a connection's end still
    /// refer to its peer.
    pub(super) fn remove_idle_peers(&mut self) {
        while let Some(p) = self.leaving.pop() {
            let gone =
                |peer: &PeerEntry| peer.state == State::Closed && (peer.ours, peer.theirs) == (None, None);
            if !self.peers.is_unconfigured_peer(p) || !gone(&self.peers[p]) {
                continue;
            }
            self.set_watchdog_deadline(p, None);
            if let Some(at) = self.peers[p].state_deadline.take() {
                self.timers.remove(at, DiameterNodeTimer::State(p));
            }
            self.peers.remove_unconfigured_peer(p);
        }
    }

    pub(super) fn disconnect_peer(
        &mut self,
        now: Instant,
        peer: PeerId,
        cause: DisconnectCause,
    ) -> Result<(), CommandError> {
        let (p, peer) = (peer.0, self.peers.get_mut(peer.0).ok_or(CommandError::UnknownToken)?);
        peer.reconnect = false;
        match peer.state {
            state if state.is_open() => {
                self.step_peer_automaton(now, p, automaton::Event::Stop, Some(PeerEventData::Stop(cause)));
            }
            State::Closed => self.set_watchdog_deadline(p, None),
            State::Closing => {}
            _ => {
                self.step_peer_automaton(now, p, automaton::Event::Timeout, None);
                self.set_watchdog_deadline(p, None);
            }
        }
        Ok(())
    }

    /// Steps the peer's watchdog and executes its actions. In INITIAL and DOWN the timer is Tc.
    pub(super) fn step_watchdog(&mut self, now: Instant, p: u32, event: watchdog::Event) {
        if self.config.watchdog.is_none() && event == watchdog::Event::ReceiveDwa {
            return;
        }
        let actions = self.peers[p].watchdog.apply_event(event);
        for action in actions {
            match action {
                watchdog::Action::SetWatchdog => self.restart_watchdog(now, p),
                // RFC 3539, 3.4; RFC 6733, 5.5.3: the watchdog message is a DWR.
                watchdog::Action::SendWatchdog => {
                    let avps = self.origin_avps();
                    let conn = self.peers[p].active_connection();
                    self.send_request(conn, command::DEVICE_WATCHDOG, &avps);
                }
                watchdog::Action::Failover => {
                    if event == watchdog::Event::TimerExpires {
                        self.counters.watchdog_timeout += 1;
                    }
                    self.fail_over_requests(p);
                }
                watchdog::Action::Failback => self.dispatch_waiting_requests(),
                watchdog::Action::CloseConnection => {
                    if let Some(conn) = self.peers[p].active_connection() {
                        self.abort_connection(now, conn);
                    }
                }
                watchdog::Action::AttemptOpen => {
                    if self.peers[p].reconnect && self.peers[p].state == State::Closed {
                        self.step_peer_automaton(now, p, automaton::Event::Start, None);
                    }
                }
                // Throwaway needs no action: application messages of a peer in REOPEN are served, but do not count as
                // liveness. The other actions change variables of the watchdog, which it does itself.
                watchdog::Action::Throwaway
                | watchdog::Action::SetPending
                | watchdog::Action::ClearPending
                | watchdog::Action::ResetNumDwa
                | watchdog::Action::CountDwa
                | watchdog::Action::MissDwa => {}
            }
        }
    }

    pub(super) fn restart_watchdog(&mut self, now: Instant, p: u32) {
        let peer = &self.peers[p];
        let after = match peer.watchdog.state() {
            watchdog::State::Initial | watchdog::State::Down => {
                peer.reconnect.then_some(self.config.reconnect)
            }
            _ => self
                .config
                .watchdog
                .map(|tw| watchdog::sample_interval(tw, self.config.watchdog_jitter, &mut self.rng)),
        };
        self.set_watchdog_deadline(p, after.map(|d| now + d));
    }

    /// Sets the deadline of the watchdog. The timer moves only to an earlier time, since most messages postpone the
    /// deadline.
    pub(super) fn set_watchdog_deadline(&mut self, p: u32, due: Option<Instant>) {
        let peer = &mut self.peers[p];
        peer.watchdog_due = due;
        match (due, peer.watchdog_armed) {
            (Some(due), Some(armed)) if armed <= due => {}
            (due, armed) => {
                if let Some(at) = armed {
                    self.timers.remove(at, DiameterNodeTimer::Watchdog(p));
                }
                if let Some(at) = due {
                    self.timers.insert(at, DiameterNodeTimer::Watchdog(p));
                }
                peer.watchdog_armed = due;
            }
        }
    }

    /// Appends our capabilities for a CER or CEA on this connection.
    fn emit_capabilities(&self, conn: Option<ConnId>, avps: &mut AvpBuf) {
        let local = conn.and_then(|conn| self.conns.get(&conn)).and_then(|conn| conn.local);
        self.config.local.append_to(local, avps);
    }

    fn origin_avps(&self) -> AvpBuf {
        let mut avps = AvpBuf::with_capacity(128);
        avps.push_str(codes::ORIGIN_HOST, &self.config.local.host)
            .push_str(codes::ORIGIN_REALM, &self.config.local.realm);
        if let Some(id) = self.config.local.origin_state {
            avps.push_u32(codes::ORIGIN_STATE_ID, id);
        }
        avps
    }

    fn answer_base_request(&mut self, conn: Option<ConnId>, request: MessageHeader) {
        let mut avps = AvpBuf::with_capacity(128);
        avps.push_u32(codes::RESULT_CODE, ResultCode::SUCCESS.0).extend(&self.origin_avps());
        if let Some(conn) = conn {
            self.send_base_message(
                conn,
                MessageStreamClass::Base,
                request.to_answer(ResultCode::SUCCESS),
                &avps,
            );
        }
    }

    /// Answers with an error. `prefix` has the echoed Session-Id and Proxy-Info.
    pub(super) fn answer_with_error(
        &mut self,
        via: ReceivedMessageStream,
        request: MessageHeader,
        prefix: &[u8],
        fault: &DiameterError,
    ) {
        let mut avps = AvpBuf::from_checked(prefix.into());
        avps.push_u32(codes::RESULT_CODE, fault.code.0).extend(&self.origin_avps());
        server::append_error_avps(&mut avps, fault);
        self.send_base_message(
            via.conn,
            MessageStreamClass::Answer(via.stream),
            request.to_answer(fault.code),
            &avps,
        );
    }

    fn send_request(&mut self, conn: Option<ConnId>, command: u32, avps: &AvpBuf) {
        let Some(conn) = conn else { return };
        let header = MessageHeader {
            flags: CommandFlags(CommandFlags::REQUEST),
            command,
            // RFC 6733, 2.5, 6.1: messages between neighbours have application 0 and no destination.
            application: 0,
            hop_by_hop: self.next_hop_by_hop(),
            end_to_end: self.next_end_to_end(),
        };
        self.send_base_message(conn, MessageStreamClass::Base, header, avps);
    }

    fn send_base_message(
        &mut self,
        conn: ConnId,
        lane: MessageStreamClass<'_>,
        header: MessageHeader,
        avps: &AvpBuf,
    ) {
        self.record_work(work::BASE);
        let mut buf = self.outputs.take_buffer();
        header.write_header(&mut buf);
        buf.extend_from_slice(avps.as_bytes());
        MessageHeader::write_length(&mut buf, 0);
        self.queue_message_on_connection(conn, Some(lane), buf);
    }

    pub(super) fn next_hop_by_hop(&mut self) -> u32 {
        // RFC 6733, 3: the identifier counts over all connections, so it is unique on each.
        self.hop_by_hop = self.hop_by_hop.wrapping_add(1);
        self.hop_by_hop
    }
    pub(super) fn next_end_to_end(&mut self) -> u32 {
        // RFC 6733, 3: the identifier counts from a random value, so it is unique for four minutes and across restarts.
        self.end_to_end = self.end_to_end.wrapping_add(1);
        self.end_to_end
    }
}

/// The data of a peer automaton's event.
pub(super) enum PeerEventData {
    /// A CER.
    Cer(ReceivedCer),
    /// A DWR or DPR.
    Request(MessageHeader),
    /// The local wish to disconnect.
    Stop(DisconnectCause),
}
