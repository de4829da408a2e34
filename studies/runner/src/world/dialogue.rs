//! The plain dialogue: rounds of a request and an answer of given sizes, over TCP, SCTP or UDP.
//!
//! Messages over TCP are lengths without bytes. A connection's requests are answered in order, so both sides find
//! message boundaries by counting. Counting fails where sizes vary, or where dialogues with different sizes share a
//! connection. The server then reads the sizes from the [`ScriptedRequestSizes`] of its clients. The script replaces the
//! framing of a real protocol.

use super::arrivals::{ArrivalPattern, ArrivalProcess};
use super::eap;
use super::error::ScenarioRunError;
use super::plan::NetworkPlan;
use super::report::{DialogueEnd, RoleReport};
use super::role::HostRole;
use super::short::InlineQueue;
use super::topology::NetworkTopology;
use super::writer::PacedWriter;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use usher_core::timer::TimerQueue;
use usher_core::{AssocId, ConnId, Duration, Instant, SecureRng, SimulationRng, WorkRecord};
use usher_radius::client::RetransmissionPolicy;
use usher_scenario::model::{
    self, DialogueConnection, SizeDistribution, TimeDistribution, TransportProtocol,
};
use usher_scenario::ports::DIALOGUE;
use usher_scenario::work;
use usher_sim::sctp::UserMessage;
use usher_sim::{AppContext, AppDelivery, HostId, Payload, SctpAssociationEvent, TcpStreamEvent};

/// Header of a UDP or SCTP message: the dialogue, the round and, where sizes vary, the answer's size.
const HEADER: usize = 16;

/// Octets of a request and of its answer.
type DialogueRoundSizes = (u32, u32);

/// The next requests of a connection, where counting does not tell. The key is the client's host and, for a dialogue's
/// own connection, its port.
pub(super) type ScriptedRequestSizes = Rc<RefCell<BTreeMap<(HostId, u16), VecDeque<DialogueRoundSizes>>>>;

/// The rules that client and server share.
#[derive(Debug)]
pub(super) struct DialogueConfig {
    transport: TransportProtocol,
    /// True if dialogues share one TCP connection.
    persistent: bool,
    /// Request and answer of each round, with repetitions expanded.
    rounds: Vec<(SizeDistribution, SizeDistribution)>,
    /// Bytes of each round's request and answer, if constant.
    sizes: Option<Vec<DialogueRoundSizes>>,
    /// True if all rounds are alike.
    uniform: bool,
    turnaround: TimeDistribution,
    think: TimeDistribution,
    give_up: Option<Duration>,
    repeats: Option<RetransmissionPolicy>,
    reconnect: Duration,
    /// Streams of an association.
    streams: u16,
    script: ScriptedRequestSizes,
}

impl DialogueConfig {
    pub(super) fn new(d: &model::DialogueWorkload, reconnect: Duration) -> Rc<Self> {
        let once: Vec<(SizeDistribution, SizeDistribution)> =
            d.rounds.iter().map(|r| (r.request.clone(), r.answer.clone())).collect();
        let rounds = vec![once; d.repeat.get() as usize].concat();
        let constant = |law: &SizeDistribution| law.constant_size().map(|size| size.bytes() as u32);
        let sizes = rounds.iter().map(|(request, answer)| constant(request).zip(constant(answer)));
        Rc::new(Self {
            transport: d.transport,
            persistent: d.transport == TransportProtocol::Tcp
                && d.connection == DialogueConnection::Persistent,
            uniform: rounds.windows(2).all(|w| w[0] == w[1]),
            sizes: sizes.collect(),
            rounds,
            turnaround: d.turnaround.clone(),
            think: d.think.clone(),
            give_up: d.give_up.get().map(|t| t.get()),
            repeats: d.retransmission.radius_policy().as_ref().map(eap::radius_retransmission),
            reconnect,
            streams: d.streams.get().min(u32::from(u16::MAX)) as u16,
            script: ScriptedRequestSizes::default(),
        })
    }

    fn needs_dialogue_script(&self) -> bool {
        self.sizes.is_none() || (!self.uniform && self.persistent)
    }

    /// True if clients draw random numbers.
    fn by_chance(&self) -> bool {
        self.sizes.is_none() || !matches!(self.think, TimeDistribution::Constant(_))
    }

    /// Returns the bytes of a round's request and answer, drawn if random.
    fn draw_sizes(&self, round: u32, rng: Option<&mut SimulationRng>) -> DialogueRoundSizes {
        match (&self.sizes, rng) {
            (None, Some(rng)) => {
                let (request, answer) = &self.rounds[round as usize];
                (request.draw_size(rng) as u32, answer.draw_size(rng) as u32)
            }
            (sizes, _) => sizes.as_ref().map_or((0, 0), |sizes| sizes[round as usize]),
        }
    }

    /// Returns the bytes of the answer to a message.
    fn dialogue_answer_size(&self, header: &DialogueHeader) -> Option<u32> {
        match &self.sizes {
            Some(sizes) => sizes.get(header.round as usize).map(|(_, answer)| *answer),
            None => header.answer,
        }
    }

    /// Creates the header of a message.
    fn make_header(&self, dialogue: u64, round: u32, answer: u32) -> DialogueHeader {
        DialogueHeader { dialogue, round, answer: self.sizes.is_none().then_some(answer) }
    }
}

/// The header of a UDP or SCTP message.
#[derive(Clone, Copy, Debug)]
struct DialogueHeader {
    dialogue: u64,
    round: u32,
    /// Octets of the answer, where sizes vary.
    answer: Option<u32>,
}

impl DialogueHeader {
    /// Creates a message of `len` octets.
    fn to_payload(self, len: u32) -> Payload {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.dialogue.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.round.to_be_bytes());
        bytes[12..].copy_from_slice(&self.answer.unwrap_or_default().to_be_bytes());
        let said = if self.answer.is_some() { HEADER } else { HEADER - 4 };
        Payload { len, bytes: Some(bytes[..said].into()) }
    }

    fn parse(payload: &Payload) -> Option<Self> {
        let (dialogue, rest) = payload.as_slice().split_first_chunk::<8>()?;
        let (round, rest) = rest.split_first_chunk::<4>()?;
        let answer = rest.split_first_chunk::<4>().map(|(answer, _)| u32::from_be_bytes(*answer));
        Some(Self { dialogue: u64::from_be_bytes(*dialogue), round: u32::from_be_bytes(*round), answer })
    }
}

/// A dialogue that has begun.
#[derive(Clone, Copy, Debug)]
struct OpenDialogue {
    started_at: Instant,
    /// Index of the client on this host.
    user: u32,
    round: u32,
    /// Sizes of the current round.
    sizes: DialogueRoundSizes,
    /// Transmissions of the current request.
    sent: u32,
    /// Time of the first transmission, and the timeout after the last.
    first: Instant,
    wait: Duration,
    /// Next (re)transmission of the current request; far future if none is planned.
    due: Instant,
    conn: Option<ConnId>,
}

/// A dialogue's own connection.
#[derive(Debug)]
struct DialogueConnectionState {
    dialogue: u64,
    /// Bytes of answer received.
    received: u32,
    /// The local port, once established.
    port: Option<u16>,
}

/// The clients of a host. Hot fields come first; fields that are usually only checked for presence follow.
#[repr(C)]
#[derive(Debug)]
pub(super) struct DialogueClient {
    rules: Rc<DialogueConfig>,
    host: HostId,
    server: HostId,
    /// One for each client.
    arrivals: InlineQueue<ArrivalProcess>,
    /// Dialogues by number, from `first` on; `None` has ended.
    first: u64,
    dialogues: InlineQueue<Option<OpenDialogue>>,
    /// Dialogues with outstanding answers on the persistent connection, and the answers' sizes, in order.
    expected: InlineQueue<(u64, u32)>,
    received: u32,
    /// The number of the persistent connection, and whether it is open or opening.
    connections: u32,
    connected: bool,
    writer: PacedWriter,
    rare_state: Option<Box<RareClientState>>,
    /// Present if anything is random.
    rng: Option<Box<SimulationRng>>,
}

/// State that few clients have.
#[derive(Debug, Default)]
struct RareClientState {
    reconnect_at: Option<Instant>,
    /// Times of (re)transmissions.
    due: TimerQueue<u64>,
    /// Connections of single dialogues.
    own: BTreeMap<ConnId, DialogueConnectionState>,
    /// Randomizes retransmission times, if requests are retransmitted.
    chance: Option<SecureRng>,
}

impl DialogueClient {
    pub(super) fn new(
        rules: Rc<DialogueConfig>,
        (host, server): (HostId, HostId),
        arrivals: InlineQueue<ArrivalProcess>,
        (rng, chance): (Option<Box<SimulationRng>>, Option<SecureRng>),
        writer: PacedWriter,
    ) -> Self {
        Self {
            rules,
            host,
            server,
            arrivals,
            rng,
            rare_state: chance.map(|chance| {
                Box::new(RareClientState { chance: Some(chance), ..RareClientState::default() })
            }),
            dialogues: InlineQueue::default(),
            first: 0,
            connections: 0,
            connected: false,
            expected: InlineQueue::default(),
            received: 0,
            writer,
        }
    }

    fn rare_state_mut(&mut self) -> &mut RareClientState {
        self.rare_state.get_or_insert_default()
    }

    fn dialogue_connection_mut(&mut self, conn: ConnId) -> Option<&mut DialogueConnectionState> {
        self.rare_state.as_mut()?.own.get_mut(&conn)
    }

    /// Schedules the (re)transmission of a dialogue's current request.
    fn schedule_request(&mut self, id: u64, at: Instant) {
        if let Some(d) = self.dialogue_mut(id) {
            d.due = at;
            self.rare_state_mut().due.insert(at, id);
        }
    }

    fn is_persistent(&self) -> bool {
        self.rules.persistent
    }

    fn dialogue_mut(&mut self, id: u64) -> Option<&mut OpenDialogue> {
        self.dialogues.get_mut(id.checked_sub(self.first)? as usize)?.as_mut()
    }

    fn next_timer(&self) -> Option<Instant> {
        let give_up = self.rules.give_up.and_then(|after| {
            // The front entry is the oldest open dialogue, because ended ones are removed from the front at once.
            self.dialogues.front()?.as_ref().map(|d| d.started_at + after)
        });
        let or = |a: Option<Instant>, b: Option<Instant>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let arrival = self.arrivals.iter().filter_map(ArrivalProcess::next_arrival).min();
        let planned = or(or(arrival, give_up), self.writer.next_due());
        match &self.rare_state {
            None => planned,
            Some(aside) => or(planned, or(aside.due.next_deadline(), aside.reconnect_at)),
        }
    }

    fn handle_timer(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        let now = ctx.now();
        let reconnect_at = self.rare_state.as_ref().and_then(|aside| aside.reconnect_at);
        if reconnect_at.is_some_and(|at| at <= now) {
            self.open_connection(ctx);
        }
        self.writer.write_due(ctx);
        while let Some((_, id)) = self.rare_state.as_mut().and_then(|aside| aside.due.pop_due(now)) {
            self.send_request(ctx, id);
        }
        if let Some(after) = self.rules.give_up {
            while let Some(Some(d)) = self.dialogues.front()
                && d.started_at + after <= now
            {
                self.end_dialogue(ctx, self.first, false);
            }
        }
        while let Some(user) = self.longest_due_client(now) {
            if !self.arrivals.get_mut(user).is_some_and(|of| of.take_due_arrival(now)) {
                continue;
            }
            let id = self.first + self.dialogues.len() as u64;
            self.dialogues.push_back(Some(OpenDialogue {
                started_at: now,
                user: user as u32,
                round: 0,
                sizes: self.rules.draw_sizes(0, self.rng.as_deref_mut()),
                sent: 0,
                first: now,
                wait: Duration::ZERO,
                due: Instant::FAR_FUTURE,
                conn: None,
            }));
            ctx.report(RoleReport::Started);
            self.send_request(ctx, id);
        }
    }

    /// Returns the client whose arrival has been due longest.
    fn longest_due_client(&self, now: Instant) -> Option<usize> {
        let next = self.arrivals.iter().enumerate().filter_map(|(user, of)| Some((of.next_arrival()?, user)));
        next.min().filter(|(at, _)| *at <= now).map(|(_, user)| user)
    }

    fn open_connection(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        if let Some(aside) = &mut self.rare_state {
            aside.reconnect_at = None;
        }
        if self.rules.transport == TransportProtocol::Sctp {
            // The association's number of streams is known only once it is established.
            ctx.associate(
                AssocId::nth_opened_connection(self.connections),
                self.server,
                DIALOGUE,
                self.rules.streams,
            );
            return;
        }
        self.connected = true;
        self.expected.clear();
        self.received = 0;
        if self.rules.needs_dialogue_script() {
            self.rules.script.borrow_mut().insert((self.host, 0), VecDeque::new());
        }
        ctx.connect(ConnId::nth_opened_connection(self.connections), self.server, DIALOGUE);
        self.send_waiting_requests(ctx);
    }

    /// Sends the requests that waited for a connection.
    fn send_waiting_requests(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        let unsent = |d: &OpenDialogue| d.sent == 0 && d.due == Instant::FAR_FUTURE;
        let waiting: Vec<u64> = (self.first..)
            .zip(self.dialogues.iter())
            .filter_map(|(id, d)| d.as_ref().is_some_and(unsent).then_some(id))
            .collect();
        for id in waiting {
            self.send_request(ctx, id);
        }
    }

    /// Sends the request of a dialogue's current round.
    fn send_request(&mut self, ctx: &mut AppContext<'_, RoleReport>, id: u64) {
        let rules = &*self.rules;
        let Some(Some(d)) = self.dialogues.get_mut(id.wrapping_sub(self.first) as usize) else { return };
        d.due = Instant::FAR_FUTURE;
        let ((bytes, answer), round) = (d.sizes, d.round);
        ctx.charge_work(WorkRecord { label: work::DIALOGUE_REQUEST, units: 1 });
        match rules.transport {
            TransportProtocol::Udp => {
                let now = ctx.now();
                if let (Some(policy), Some(aside)) = (&rules.repeats, &mut self.rare_state)
                    && let Some(chance) = &mut aside.chance
                {
                    let last = d.first + policy.max_duration();
                    if d.sent >= policy.max_count() || (d.sent > 0 && now >= last) {
                        self.end_dialogue(ctx, id, false);
                        return;
                    }
                    (d.first, d.wait) = match d.sent {
                        0 => (now, policy.first_retransmission_wait(chance)),
                        _ => (d.first, policy.next_retransmission_wait(d.wait, chance)),
                    };
                    let at = (now + d.wait).min(d.first + policy.max_duration());
                    d.due = at;
                    aside.due.insert(at, id);
                }
                if d.sent > 0 {
                    ctx.report(RoleReport::Retransmissions(1));
                }
                d.sent += 1;
                ctx.send_datagram(
                    0,
                    self.server,
                    DIALOGUE,
                    rules.make_header(id, round, answer).to_payload(bytes),
                );
            }
            TransportProtocol::Sctp => {
                if !self.connected {
                    return;
                }
                d.sent = 1;
                let stream = (id % u64::from(rules.streams.max(1))) as u16;
                let payload = rules.make_header(id, round, answer).to_payload(bytes);
                let message = UserMessage { stream, ppid: 0, unordered: false, payload };
                ctx.send_message(AssocId::nth_opened_connection(self.connections), message);
            }
            TransportProtocol::Tcp if rules.persistent => {
                // While there is no connection, the dialogue waits for the next one.
                if !self.connected {
                    return;
                }
                d.sent = 1;
                self.expected.push_back((id, answer));
                if rules.needs_dialogue_script()
                    && let Some(script) = rules.script.borrow_mut().get_mut(&(self.host, 0))
                {
                    script.push_back((bytes, answer));
                }
                self.writer.write_octets(ctx, ConnId::nth_opened_connection(self.connections), bytes);
            }
            TransportProtocol::Tcp | TransportProtocol::Tls => {
                let conn = match d.conn {
                    Some(conn) => conn,
                    None => {
                        let conn = ConnId::nth_opened_connection(self.connections);
                        d.conn = Some(conn);
                        self.connections += 1;
                        let own = DialogueConnectionState { dialogue: id, received: 0, port: None };
                        self.rare_state.get_or_insert_default().own.insert(conn, own);
                        ctx.connect(conn, self.server, DIALOGUE);
                        conn
                    }
                };
                if rules.needs_dialogue_script()
                    && let Some(port) = self.rare_state.as_ref().and_then(|aside| aside.own.get(&conn)?.port)
                {
                    rules.script.borrow_mut().insert((self.host, port), [(bytes, answer)].into());
                }
                self.writer.write_octets(ctx, conn, bytes);
            }
        }
    }

    fn handle_stream(&mut self, ctx: &mut AppContext<'_, RoleReport>, conn: ConnId, event: TcpStreamEvent) {
        match event {
            TcpStreamEvent::Connected { local_port, .. } => {
                let Some(own) = self.dialogue_connection_mut(conn) else { return };
                own.port = Some(local_port);
                let id = own.dialogue;
                let place = id.wrapping_sub(self.first) as usize;
                if self.rules.needs_dialogue_script()
                    && let Some(Some(d)) = self.dialogues.get(place)
                {
                    // The port, and so the script's key, is known only now.
                    let mut script = self.rules.script.borrow_mut();
                    script.insert((self.host, local_port), [d.sizes].into());
                }
            }
            TcpStreamEvent::Data(payload) if self.is_persistent() => {
                self.received += payload.len;
                while let Some(&(id, size)) = self.expected.front()
                    && self.received >= size
                {
                    self.received -= size;
                    self.expected.pop_front();
                    // If the dialogue was given up, its answer is ignored.
                    self.finish_dialogue_round(ctx, id);
                }
            }
            TcpStreamEvent::Data(payload) => {
                let Some(own) = self.dialogue_connection_mut(conn) else { return };
                own.received += payload.len;
                let (id, got) = (own.dialogue, own.received);
                let Some(Some(d)) = self.dialogues.get((id - self.first) as usize) else { return };
                let size = d.sizes.1;
                if got >= size {
                    if let Some(own) = self.dialogue_connection_mut(conn) {
                        own.received -= size;
                    }
                    self.finish_dialogue_round(ctx, id);
                }
            }
            TcpStreamEvent::Closed(_) if self.is_persistent() => {
                self.writer.discard_queued_data(conn);
                self.connected = false;
                self.connections += 1;
                self.rare_state_mut().reconnect_at = Some(ctx.now() + self.rules.reconnect);
                for (id, _) in std::mem::take(&mut self.expected) {
                    self.end_dialogue(ctx, id, false);
                }
            }
            TcpStreamEvent::Closed(_) => {
                self.writer.discard_queued_data(conn);
                if let Some(own) = self.rare_state.as_mut().and_then(|aside| aside.own.remove(&conn)) {
                    self.end_dialogue(ctx, own.dialogue, false);
                }
            }
        }
    }

    fn handle_message(&mut self, ctx: &mut AppContext<'_, RoleReport>, event: SctpAssociationEvent) {
        match event {
            SctpAssociationEvent::Up { .. } => {
                self.connected = true;
                self.send_waiting_requests(ctx);
            }
            SctpAssociationEvent::Data { payload, .. } => {
                self.handle_answer(ctx, &payload);
            }
            SctpAssociationEvent::Down(_) => {
                self.connected = false;
                self.connections += 1;
                self.rare_state_mut().reconnect_at = Some(ctx.now() + self.rules.reconnect);
                let sent = |d: &Option<OpenDialogue>| d.as_ref().is_some_and(|d| d.sent > 0);
                let lost: Vec<u64> = (self.first..)
                    .zip(self.dialogues.iter())
                    .filter_map(|(id, d)| sent(d).then_some(id))
                    .collect();
                for id in lost {
                    self.end_dialogue(ctx, id, false);
                }
            }
        }
    }

    /// Handles a message: an answer to the current request or to an earlier one.
    fn handle_answer(&mut self, ctx: &mut AppContext<'_, RoleReport>, payload: &Payload) {
        if let Some(DialogueHeader { dialogue, round, .. }) = DialogueHeader::parse(payload)
            && self.dialogue_mut(dialogue).is_some_and(|d| d.round == round)
        {
            self.finish_dialogue_round(ctx, dialogue);
        }
    }

    /// Ends the current round of a dialogue after its answer.
    fn finish_dialogue_round(&mut self, ctx: &mut AppContext<'_, RoleReport>, id: u64) {
        let now = ctx.now();
        let rounds = self.rules.rounds.len() as u32;
        let Some(d) = self.dialogue_mut(id) else { return };
        let due = std::mem::replace(&mut d.due, Instant::FAR_FUTURE);
        d.round += 1;
        d.sent = 0;
        let round = d.round;
        if let Some(aside) = &mut self.rare_state {
            aside.due.remove(due, id);
        }
        if round == rounds {
            self.end_dialogue(ctx, id, true);
            return;
        }
        let sizes = self.rules.draw_sizes(round, self.rng.as_deref_mut());
        if let Some(d) = self.dialogue_mut(id) {
            d.sizes = sizes;
        }
        let think = match &mut self.rng {
            Some(rng) => self.rules.think.draw_time(rng),
            None => self.rules.think.mean(),
        };
        if think.is_zero() {
            self.send_request(ctx, id);
        } else {
            self.schedule_request(id, now + think);
        }
    }

    fn end_dialogue(&mut self, ctx: &mut AppContext<'_, RoleReport>, id: u64, success: bool) {
        let Some(slot) = id.checked_sub(self.first).and_then(|i| self.dialogues.get_mut(i as usize)) else {
            return;
        };
        let Some(d) = slot.take() else { return };
        while let Some(None) = self.dialogues.front() {
            self.dialogues.pop_front();
            self.first += 1;
        }
        if let Some(aside) = &mut self.rare_state {
            aside.due.remove(d.due, id);
            if let Some(conn) = d.conn
                && aside.own.remove(&conn).is_some()
            {
                self.writer.discard_queued_data(conn);
                if success { ctx.shutdown(conn) } else { ctx.abort(conn) }
            }
        }
        let end = if success { DialogueEnd::Completed } else { DialogueEnd::Failed };
        ctx.report(RoleReport::Ended { started_at: d.started_at, end });
        if let Some(arrivals) = self.arrivals.get_mut(d.user as usize) {
            arrivals.finish_dialogue(ctx.now());
        }
    }
}

impl HostRole for DialogueClient {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        match delivery {
            AppDelivery::Start if self.is_persistent() || self.rules.transport == TransportProtocol::Sctp => {
                self.open_connection(ctx);
            }
            AppDelivery::Timer => self.handle_timer(ctx),
            AppDelivery::Stream { conn, event } => self.handle_stream(ctx, conn, event),
            AppDelivery::Datagram { payload, .. } => self.handle_answer(ctx, &payload),
            AppDelivery::Message { event, .. } => self.handle_message(ctx, event),
            AppDelivery::Start
            | AppDelivery::Frame { .. }
            | AppDelivery::Link { .. }
            | AppDelivery::Owner { .. }
            | AppDelivery::Acquire { .. }
            | AppDelivery::Transit { .. } => {}
        }
        ctx.set_timer(self.next_timer());
    }
}

/// A server's state of a connection.
#[derive(Clone, Copy, Debug)]
struct DialogueServerConnection {
    /// The key of its script.
    client: (HostId, u16),
    received: u32,
    round: u32,
}

/// An answer that waits for the turnaround.
#[derive(Debug)]
enum PendingAnswer {
    Stream { conn: ConnId, bytes: u32 },
    Datagram { to: HostId, port: u16, payload: Payload },
    Message { assoc: AssocId, message: UserMessage },
}

/// One server.
#[derive(Debug)]
pub(super) struct DialogueServer {
    rules: Rc<DialogueConfig>,
    rng: SimulationRng,
    conns: Vec<Option<DialogueServerConnection>>,
    waiting: TimerQueue<u64>,
    answers: BTreeMap<u64, PendingAnswer>,
    next: u64,
}

impl DialogueServer {
    pub(super) fn new(rules: Rc<DialogueConfig>, rng: SimulationRng) -> Self {
        Self { rules, rng, conns: Vec::new(), waiting: TimerQueue::new(), answers: BTreeMap::new(), next: 0 }
    }

    fn handle_stream(&mut self, ctx: &mut AppContext<'_, RoleReport>, conn: ConnId, event: TcpStreamEvent) {
        let index = conn.n as usize;
        match event {
            TcpStreamEvent::Connected { remote, remote_port, .. } => {
                if self.conns.len() <= index {
                    self.conns.resize(index + 1, None);
                }
                let client = (remote, if self.rules.persistent { 0 } else { remote_port });
                self.conns[index] = Some(DialogueServerConnection { client, received: 0, round: 0 });
            }
            TcpStreamEvent::Data(payload) => {
                let Some(Some(served)) = self.conns.get_mut(index) else { return };
                served.received += payload.len;
                loop {
                    let Some(Some(served)) = self.conns.get_mut(index) else { return };
                    let told = self.rules.needs_dialogue_script();
                    let (request, bytes) = match &self.rules.sizes {
                        Some(sizes) if !told => sizes[served.round as usize],
                        _ => {
                            let script = self.rules.script.borrow();
                            match script.get(&served.client).and_then(VecDeque::front) {
                                Some(sizes) => *sizes,
                                None => return,
                            }
                        }
                    };
                    if served.received < request {
                        return;
                    }
                    served.received -= request;
                    served.round =
                        if served.round + 1 == self.rules.rounds.len() as u32 { 0 } else { served.round + 1 };
                    if told && let Some(script) = self.rules.script.borrow_mut().get_mut(&served.client) {
                        script.pop_front();
                    }
                    ctx.charge_work(WorkRecord { label: work::DIALOGUE_ANSWER, units: 1 });
                    self.schedule_answer(ctx, PendingAnswer::Stream { conn, bytes });
                }
            }
            TcpStreamEvent::Closed(_) => {
                let served = self.conns.get_mut(index).and_then(Option::take);
                if let Some(served) = served.filter(|_| !self.rules.persistent) {
                    self.rules.script.borrow_mut().remove(&served.client);
                }
            }
        }
    }

    fn schedule_answer(&mut self, ctx: &mut AppContext<'_, RoleReport>, answer: PendingAnswer) {
        let turnaround = self.rules.turnaround.draw_time(&mut self.rng);
        if turnaround.is_zero() {
            send_answer(ctx, answer);
            return;
        }
        self.answers.insert(self.next, answer);
        self.waiting.insert(ctx.now() + turnaround, self.next);
        self.next += 1;
        ctx.set_timer(self.waiting.next_deadline());
    }
}

impl HostRole for DialogueServer {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        match delivery {
            AppDelivery::Timer => {
                while let Some((_, n)) = self.waiting.pop_due(ctx.now()) {
                    if let Some(answer) = self.answers.remove(&n) {
                        send_answer(ctx, answer);
                    }
                }
                ctx.set_timer(self.waiting.next_deadline());
            }
            AppDelivery::Stream { conn, event } => self.handle_stream(ctx, conn, event),
            AppDelivery::Datagram { from, from_port, payload, .. } => {
                let Some(header) = DialogueHeader::parse(&payload) else { return };
                let Some(bytes) = self.rules.dialogue_answer_size(&header) else { return };
                ctx.charge_work(WorkRecord { label: work::DIALOGUE_ANSWER, units: 1 });
                let payload = header.to_payload(bytes);
                self.schedule_answer(ctx, PendingAnswer::Datagram { to: from, port: from_port, payload });
            }
            AppDelivery::Message { assoc, event: SctpAssociationEvent::Data { stream, payload, .. } } => {
                let Some(header) = DialogueHeader::parse(&payload) else { return };
                let Some(bytes) = self.rules.dialogue_answer_size(&header) else { return };
                ctx.charge_work(WorkRecord { label: work::DIALOGUE_ANSWER, units: 1 });
                let payload = header.to_payload(bytes);
                let message = UserMessage { stream, ppid: 0, unordered: false, payload };
                self.schedule_answer(ctx, PendingAnswer::Message { assoc, message });
            }
            AppDelivery::Start
            | AppDelivery::Frame { .. }
            | AppDelivery::Link { .. }
            | AppDelivery::Owner { .. }
            | AppDelivery::Acquire { .. }
            | AppDelivery::Transit { .. }
            | AppDelivery::Message { .. } => {}
        }
    }
}

fn send_answer(ctx: &mut AppContext<'_, RoleReport>, answer: PendingAnswer) {
    match answer {
        PendingAnswer::Stream { conn, bytes } => ctx.write(conn, Payload::with_length(bytes)),
        PendingAnswer::Message { assoc, message } => ctx.send_message(assoc, message),
        PendingAnswer::Datagram { to, port, payload } => ctx.send_datagram(0, to, port, payload),
    }
}

/// True if a server over TCP learns sizes from the clients' script instead of from messages.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn is_scripted(d: &model::DialogueWorkload) -> bool {
    DialogueConfig::new(d, Duration::ZERO).needs_dialogue_script()
}

/// Places the workload's roles on the topology's hosts.
pub(super) fn build_dialogue_roles(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
    d: &model::DialogueWorkload,
) -> Result<(), ScenarioRunError> {
    let transport = &plan.scenario.transport;
    let reconnect = match d.transport {
        TransportProtocol::Sctp => transport.sctp.reconnect,
        _ => transport.tcp.reconnect,
    };
    let rules = DialogueConfig::new(d, reconnect.get());
    let servers = topology.host_group(&d.server)?;
    for (i, &host) in servers.iter().enumerate() {
        let rng = plan.seed.derive_rng("dialogue.server", i as u64);
        let app = plan.add_role(host, DialogueServer::new(rules.clone(), rng));
        plan.builder.open_port_at(app, d.transport, 0, (host, DIALOGUE))?;
    }
    let clients = topology.host_group(&d.clients)?;
    let per_host = u64::from(d.per_host.get());
    let pattern = ArrivalPattern::new(&d.arrivals, clients.len() as u64 * per_host, plan.end);
    for (i, &host) in clients.iter().enumerate() {
        let index = i as u64;
        let arrivals = (index * per_host..(index + 1) * per_host).map(|client| {
            let rng = plan.seed.derive_rng("arrivals", client);
            ArrivalProcess::new(&pattern, client, rng)
        });
        let arrivals = arrivals.collect();
        let rng = rules.by_chance().then(|| Box::new(plan.seed.derive_rng("dialogue.client", index)));
        let chance = rules.repeats.map(|_| plan.seed.derive_secure_rng("dialogue.retransmission", index));
        let server = servers[i % servers.len()];
        let writer = PacedWriter::new(d);
        let client = DialogueClient::new(rules.clone(), (host, server), arrivals, (rng, chance), writer);
        plan.add_role(host, client);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_stays_small() {
        // A large run has one for each station, so each octet counts. glibc's allocator has steps of 16: 216, 232.
        assert!(size_of::<DialogueClient>() <= 232, "{}", size_of::<DialogueClient>());
    }
}
