//! SCTP: associations between applications, packets in and out, timers.

use super::memory::TransportKind;
use super::{
    ASSOC, FourTuple, SctpAssociationEntry, SctpTotals, SimEvent, SimRunError, Simulation, SimulationScope,
};
use crate::addr::HostId;
use crate::app::{AppConnectionId, AppDelivery, Application, ReportObserver, SctpAssociationEvent};
use crate::packet::{Packet, PacketBody};
use crate::sctp::{self, Chunk, InitialAssociationValues, SctpAssociation, SctpListenerAction, UserMessage};
use std::collections::BTreeMap;
use std::sync::Arc;
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::{CloseReason, Instant, Seed, SimulationRng};

/// All associations of a simulation.
#[derive(Debug)]
pub(super) struct SctpAssociationTable {
    all: Vec<SctpAssociationEntry>,
    free: Vec<u32>,
    closed: SctpTotals,
    tuples: HashMap<FourTuple, u32>,
    listeners: HashMap<(HostId, u16), u32>,
    /// Outgoing directions of the paths of multihomed hosts.
    multihomed: HashMap<HostId, Vec<u32>>,
    rng: SimulationRng,
    /// Derives the cookie keys of hosts, together with the number of their failures.
    secret: u64,
    failures: BTreeMap<HostId, u32>,
}

impl SctpAssociationTable {
    pub(super) fn new(
        seed: Seed,
        listeners: HashMap<(HostId, u16), u32>,
        multihomed: HashMap<HostId, Vec<u32>>,
    ) -> Self {
        let mut rng = seed.derive_rng("sctp.initial", 0);
        Self {
            all: Vec::new(),
            free: Vec::new(),
            closed: SctpTotals::default(),
            tuples: HashMap::with_hasher(SeededHashState::with_seed(0)),
            listeners,
            multihomed,
            secret: rng.next_u64(),
            failures: BTreeMap::new(),
            rng,
        }
    }

    pub(super) fn totals(&self) -> SctpTotals {
        let mut totals = self.closed;
        for a in self.all.iter().filter(|a| !a.sctp.is_closed()) {
            totals.add_association(&a.sctp);
        }
        totals
    }

    fn draw_initial_values(&mut self, host: HostId) -> InitialAssociationValues {
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&self.secret.to_be_bytes());
        secret[8..12].copy_from_slice(&host.0.to_be_bytes());
        let lives = self.failures.get(&host).copied().unwrap_or(0);
        secret[12..16].copy_from_slice(&lives.to_be_bytes());
        InitialAssociationValues {
            tag: (self.rng.next_u64() as u32).max(1),
            tsn: self.rng.next_u64() as u32,
            secret,
        }
    }
}

impl SctpTotals {
    fn add_association(&mut self, a: &SctpAssociation) {
        let s = a.stats();
        self.packets += s.packets_sent;
        self.retransmitted += s.retransmitted_chunks;
        self.timeouts += s.timeouts;
        self.fast_retransmits += s.fast_retransmits;
        self.control += s.control_packets;
    }
}

impl<A: Application, O: ReportObserver<A::Report>, E: SimulationScope> Simulation<A, O, E> {
    /// Returns the number of paths between two hosts.
    fn path_count(&self, key: FourTuple) -> u8 {
        let paths = |h: HostId| self.sctp.multihomed.get(&h).map_or(0, Vec::len);
        paths(key.local).min(paths(key.remote)).clamp(1, 255) as u8
    }

    pub(super) fn sctp_connect(
        &mut self,
        app: u32,
        id: AppConnectionId,
        from: Option<HostId>,
        remote: HostId,
        remote_port: u16,
        streams: u16,
    ) {
        let Some(local) = self.local_address(app, from) else {
            let event = SctpAssociationEvent::Down(CloseReason::Refused);
            return self.deliver(app, AppDelivery::Message { assoc: id.into(), event });
        };
        let mut config = self.apps[app as usize].transports.sctp.clone();
        if config.outbound_streams != streams {
            config = Arc::new(sctp::SctpConfig { outbound_streams: streams, ..(*config).clone() });
        }
        let local_port = self.ephemeral_port(local, |sim, p| {
            !sim.sctp.tuples.contains_key(&FourTuple { local, remote, local_port: p, remote_port })
        });
        let key = FourTuple { local, remote, local_port, remote_port };
        let initial = self.sctp.draw_initial_values(local);
        let sctp = SctpAssociation::connect(config, self.now, initial, self.path_count(key));
        self.open_association(Box::new(sctp), app, id, key);
    }

    fn open_association(
        &mut self,
        sctp: Box<SctpAssociation>,
        app: u32,
        id: AppConnectionId,
        key: FourTuple,
    ) {
        let assoc = SctpAssociationEntry { sctp, app, id, key, armed: Instant::FAR_FUTURE, attached: true };
        let index = match self.sctp.free.pop() {
            Some(i) => {
                self.sctp.all[i as usize] = assoc;
                i
            }
            None => {
                self.sctp.all.push(assoc);
                (self.sctp.all.len() - 1) as u32
            }
        };
        self.sctp.tuples.insert(key, index);
        self.apps[app as usize].set_connection_index(id, ASSOC + index);
        self.drain_association(index);
    }

    pub(super) fn sctp_send(&mut self, app: u32, id: AppConnectionId, message: UserMessage) {
        let Some(index) = self.apps[app as usize].sctp_index(id) else {
            self.stats.stale_operation += 1;
            return;
        };
        let sctp = &mut self.sctp.all[index as usize].sctp;
        let (stream, streams) = (message.stream, sctp.outbound_streams());
        if sctp.send_message(self.now, message).is_err() {
            self.stats.stale_operation += 1;
            if stream >= streams && !sctp.is_closed() {
                self.report_missing_stream(app, streams);
            }
            return;
        }
        self.send_association_packets(index);
        self.arm_sctp(index);
        self.record_association_memory(index);
    }

    fn record_association_memory(&mut self, index: u32) {
        if let Some(memory) = &mut self.memory {
            let SctpAssociationEntry { sctp, key, .. } = &self.sctp.all[index as usize];
            let octets = if sctp.is_closed() { 0 } else { sctp.memory_octets() };
            memory.record_transport_memory(TransportKind::Sctp, index, key.local, octets);
        }
    }

    /// Ends the run: an application sent on a stream that its association does not have.
    fn report_missing_stream(&mut self, app: u32, streams: u16) {
        let host = self.apps[app as usize].host;
        self.fault.get_or_insert(SimRunError::NoStream { at: self.now, host, streams });
    }

    /// Closes a connection or an association of an application.
    pub(super) fn close(&mut self, app: u32, id: AppConnectionId, abort: bool) {
        let Some(index) = self.apps[app as usize].sctp_index(id) else {
            self.tcp_close(app, id, abort);
            return;
        };
        let sctp = &mut self.sctp.all[index as usize].sctp;
        if abort {
            sctp.abort(self.now);
        } else {
            sctp.shutdown(self.now);
        }
        self.drain_association(index);
    }

    pub(super) fn handle_sctp_timer(&mut self, index: u32) {
        let assoc = &mut self.sctp.all[index as usize];
        if assoc.armed != self.now {
            return;
        }
        assoc.armed = Instant::FAR_FUTURE;
        if assoc.sctp.poll_timeout().is_some_and(|at| at <= self.now) {
            assoc.sctp.handle_timeout(self.now);
            self.drain_association(index);
        } else {
            self.arm_sctp(index);
        }
    }

    pub(super) fn receive_sctp(&mut self, key: FourTuple, path: u8, packet: sctp::SctpPacket) {
        if let Some(&index) = self.sctp.tuples.get(&key) {
            self.sctp.all[index as usize].sctp.handle_packet(self.now, path, packet);
            self.drain_association(index);
            return;
        }
        let listener = self.sctp.listeners.get(&(key.local, key.local_port)).copied();
        let echo = matches!(packet.chunks.first(), Some(Chunk::CookieEcho(..)));
        let answer = match listener {
            Some(app) => {
                let config = self.apps[app as usize].transports.sctp.clone();
                let initial = self.sctp.draw_initial_values(key.local);
                let ports = (key.local_port, key.remote_port);
                let paths = self.path_count(key);
                sctp::handle_listener_packet(&config, self.now, initial, ports, path, paths, packet)
            }
            None => sctp::reply_out_of_the_blue(&packet)
                .map_or(SctpListenerAction::Discard, SctpListenerAction::Reply),
        };
        match answer {
            SctpListenerAction::Accept(sctp) => {
                if let Some(app) = listener {
                    let slot = &self.apps[app as usize];
                    let id = slot.next_accepted_connection_id();
                    self.open_association(sctp, app, id, key);
                }
            }
            SctpListenerAction::Reply(packet) => {
                self.stats.sctp_no_association += u64::from(listener.is_none());
                self.stats.sctp_stale_cookie += u64::from(echo && listener.is_some());
                self.send_packet(key, path, packet);
            }
            SctpListenerAction::Discard if echo && listener.is_some() => self.stats.sctp_bad_cookie += 1,
            SctpListenerAction::Discard => self.stats.sctp_no_association += 1,
        }
    }

    /// Drains an association. As with TCP, acknowledgements that are due leave before the application gets the data.
    /// Delayed ones may ride on its reply.
    fn drain_association(&mut self, index: u32) {
        if !self.sctp.all[index as usize].sctp.delivers_first() {
            self.send_association_packets(index);
        }
        while let Some(event) = self.sctp.all[index as usize].sctp.poll_event() {
            if let sctp::SctpEvent::Up { outbound, .. } = event
                && self.sctp.all[index as usize].sctp.stats().unsendable > 0
            {
                self.report_missing_stream(self.sctp.all[index as usize].app, outbound);
            }
            let assoc = &mut self.sctp.all[index as usize];
            let (app, id, key) = (assoc.app, assoc.id, assoc.key);
            let event = match event {
                sctp::SctpEvent::Up { outbound, .. } => SctpAssociationEvent::Up {
                    remote: key.remote,
                    remote_port: key.remote_port,
                    local_port: key.local_port,
                    streams: outbound,
                },
                sctp::SctpEvent::Message(m) => {
                    SctpAssociationEvent::Data { stream: m.stream, ppid: m.ppid, payload: m.payload }
                }
                sctp::SctpEvent::Down(reason) => SctpAssociationEvent::Down(reason),
                sctp::SctpEvent::PathDown(_) | sctp::SctpEvent::PathUp(_) => continue,
            };
            if assoc.attached {
                if matches!(event, SctpAssociationEvent::Down(_)) {
                    assoc.attached = false;
                    self.apps[app as usize].set_connection_index(id, super::NONE);
                }
                self.deliver(app, AppDelivery::Message { assoc: id.into(), event });
            }
        }
        self.send_association_packets(index);
        if self.sctp.all[index as usize].sctp.is_closed() {
            self.remove_association(index);
        } else {
            self.arm_sctp(index);
            self.record_association_memory(index);
        }
    }

    fn remove_association(&mut self, index: u32) {
        let assoc = &mut self.sctp.all[index as usize];
        // In its event handlers, the application may have freed this index, and another association may now have it.
        if !assoc.sctp.is_closed() || self.sctp.tuples.get(&assoc.key) != Some(&index) {
            return;
        }
        self.sctp.closed.add_association(&assoc.sctp);
        self.sctp.tuples.remove(&assoc.key);
        self.record_association_memory(index);
        let assoc = &mut self.sctp.all[index as usize];
        assoc.armed = Instant::FAR_FUTURE;
        if std::mem::take(&mut assoc.attached) {
            let (app, id) = (assoc.app, assoc.id);
            self.apps[app as usize].set_connection_index(id, super::NONE);
        }
        self.sctp.free.push(index);
    }

    /// Drops the associations of a host that fails, and the key of its cookies, without any event.
    pub(super) fn fail_associations(&mut self, host: HostId) {
        *self.sctp.failures.entry(host).or_default() += 1;
        for index in 0..self.sctp.all.len() as u32 {
            let assoc = &mut self.sctp.all[index as usize];
            if assoc.key.local != host || assoc.sctp.is_closed() {
                continue;
            }
            assoc.sctp.abort(self.now);
            while assoc.sctp.poll_transmit(self.now).is_some() {}
            while assoc.sctp.poll_event().is_some() {}
            self.remove_association(index);
        }
    }

    fn send_association_packets(&mut self, index: u32) {
        while let Some(out) = self.sctp.all[index as usize].sctp.poll_transmit(self.now) {
            let key = self.sctp.all[index as usize].key;
            self.send_packet(key, out.path, out.packet);
        }
    }

    fn send_packet(&mut self, key: FourTuple, path: u8, packet: sctp::SctpPacket) {
        let len = self.version.header_len() + packet.len();
        let ident = self.next_ident(key.local);
        let (src_port, dst_port) = (key.local_port, key.remote_port);
        let by = self.sctp.multihomed.get(&key.local).and_then(|p| p.get(path as usize)).copied();
        let body = PacketBody::Sctp { src_port, dst_port, path, packet };
        let packet = Packet { src: key.local, dst: key.remote, len, ident, body };
        match by {
            Some(direction) => self.send_on_path_direction(direction, packet),
            None => self.send_ip_packet(key.local, || packet),
        }
    }

    fn arm_sctp(&mut self, index: u32) {
        let assoc = &mut self.sctp.all[index as usize];
        if let Some(at) = assoc.sctp.poll_timeout().map(|at| at.max(self.now))
            && at < assoc.armed
        {
            assoc.armed = at;
            self.schedule_event(at, SimEvent::Sctp(index));
        }
    }
}
