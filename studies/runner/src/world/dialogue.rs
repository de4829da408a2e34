//! The plain dialogue: rounds of a request and an answer of given sizes, over TCP, SCTP or UDP.
//!
//! Messages over TCP are lengths without bytes. Requests of one connection are answered in their order, so
//! both sides know what comes next by counting; where sizes vary, or the rounds of several dialogues with different
//! sizes share a connection, the server learns them from the [`Script`] that its clients keep: the
//! simulator's stand-in for the framing that a real protocol would have.

use super::arrivals::{ArrivalProcess, Pattern};
use super::eap;
use super::error::WorldError;
use super::plan::Plan;
use super::report::{End, Report};
use super::role::Role;
use super::short::Short;
use super::topology::Topology;
use super::writer::Writer;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use usher_core::timer::TimerQueue;
use usher_core::{AssocId, ConnId, Duration, Instant, Rng, SecureRng, Work};
use usher_radius::client::Retransmission;
use usher_scenario::model::{self, Connection, SizeLaw, TimeLaw, TransportProtocol};
use usher_scenario::ports::DIALOGUE;
use usher_scenario::work;
use usher_sim::sctp::Message;
use usher_sim::{Context, Delivery, HostId, MessageDelivery, Payload, StreamDelivery};

/// In a UDP or SCTP message: the dialogue and the round it belongs to, and, where sizes vary, that of the answer.
const HEADER: usize = 16;

/// Octets of a request and of its answer.
type Sizes = (u32, u32);

/// Which requests follow on a connection, where that is not told by counting: by the client's host and, of connections that
/// are one dialogue's, its port.
pub(super) type Script = Rc<RefCell<BTreeMap<(HostId, u16), VecDeque<Sizes>>>>;

/// What client and server have in common.
#[derive(Debug)]
pub(super) struct Rules {
    transport: TransportProtocol,
    /// Dialogues share one connection, which is TCP.
    persistent: bool,
    /// Request and answer of each round, repetitions written out.
    rounds: Vec<(SizeLaw, SizeLaw)>,
    /// Bytes of each round's request and answer, where they are the same always.
    sizes: Option<Vec<Sizes>>,
    /// All rounds are alike.
    uniform: bool,
    turnaround: TimeLaw,
    think: TimeLaw,
    give_up: Option<Duration>,
    repeats: Option<Retransmission>,
    reconnect: Duration,
    /// Streams of an association.
    streams: u16,
    script: Script,
}

impl Rules {
    pub(super) fn new(d: &model::Dialogue, reconnect: Duration) -> Rc<Self> {
        let once: Vec<(SizeLaw, SizeLaw)> =
            d.rounds.iter().map(|r| (r.request.clone(), r.answer.clone())).collect();
        let rounds = vec![once; d.repeat.get() as usize].concat();
        let constant = |law: &SizeLaw| law.constant().map(|size| size.bytes() as u32);
        let sizes = rounds.iter().map(|(request, answer)| constant(request).zip(constant(answer)));
        Rc::new(Self {
            transport: d.transport,
            persistent: d.transport == TransportProtocol::Tcp && d.connection == Connection::Persistent,
            uniform: rounds.windows(2).all(|w| w[0] == w[1]),
            sizes: sizes.collect(),
            rounds,
            turnaround: d.turnaround.clone(),
            think: d.think.clone(),
            give_up: d.give_up.get().map(|t| t.get()),
            repeats: d.retransmission.policy().as_ref().map(eap::retransmission),
            reconnect,
            streams: d.streams.get().min(u32::from(u16::MAX)) as u16,
            script: Script::default(),
        })
    }

    fn scripted(&self) -> bool {
        self.sizes.is_none() || (!self.uniform && self.persistent)
    }

    /// Clients draw something.
    fn by_chance(&self) -> bool {
        self.sizes.is_none() || !matches!(self.think, TimeLaw::Constant(_))
    }

    /// Bytes of a round's request and answer; without chance they are fixed.
    fn draw(&self, round: u32, rng: Option<&mut Rng>) -> Sizes {
        match (&self.sizes, rng) {
            (None, Some(rng)) => {
                let (request, answer) = &self.rounds[round as usize];
                (request.draw(rng) as u32, answer.draw(rng) as u32)
            }
            (sizes, _) => sizes.as_ref().map_or((0, 0), |sizes| sizes[round as usize]),
        }
    }

    /// Bytes of the answer to a message.
    fn answer(&self, header: &Header) -> Option<u32> {
        match &self.sizes {
            Some(sizes) => sizes.get(header.round as usize).map(|(_, answer)| *answer),
            None => header.answer,
        }
    }

    /// What a message says of itself.
    fn header(&self, dialogue: u64, round: u32, answer: u32) -> Header {
        Header { dialogue, round, answer: self.sizes.is_none().then_some(answer) }
    }
}

/// What a UDP or SCTP message says of itself.
#[derive(Clone, Copy, Debug)]
struct Header {
    dialogue: u64,
    round: u32,
    /// Where sizes vary: octets of the answer.
    answer: Option<u32>,
}

impl Header {
    /// A message of so many octets.
    fn message(self, len: u32) -> Payload {
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
struct Dialogue {
    began: Instant,
    /// Whose of the host's clients it is.
    user: u32,
    round: u32,
    /// Of the present round.
    sizes: Sizes,
    /// Transmissions of the present request.
    sent: u32,
    /// When the first of them was, and how long is waited for the answer to the last.
    first: Instant,
    wait: Duration,
    /// When the present request is sent (again); far future if that is not planned.
    due: Instant,
    conn: Option<ConnId>,
}

/// A dialogue's own connection.
#[derive(Debug)]
struct Own {
    dialogue: u64,
    /// Bytes of answer received.
    received: u32,
    /// Our port, once it is up.
    port: Option<u16>,
}

/// The clients of a host. What a regular dialogue touches comes first, and what it only asks for is there follows it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Client {
    rules: Rc<Rules>,
    host: HostId,
    server: HostId,
    /// Of each of them.
    arrivals: Short<ArrivalProcess>,
    /// Dialogues by number, from `first` on; `None` has ended.
    first: u64,
    dialogues: Short<Option<Dialogue>>,
    /// Dialogues whose answers are outstanding on the persistent connection, and their sizes, in order.
    expected: Short<(u64, u32)>,
    received: u32,
    /// The persistent connection, its number, and whether it is open or opening.
    connections: u32,
    connected: bool,
    writer: Writer,
    aside: Option<Box<Aside>>,
    /// Where something is drawn.
    rng: Option<Box<Rng>>,
}

/// What few clients have.
#[derive(Debug, Default)]
struct Aside {
    reconnect_at: Option<Instant>,
    /// When requests are sent (again).
    due: TimerQueue<u64>,
    /// Dialogues' own connections.
    own: BTreeMap<ConnId, Own>,
    /// By which times of repetition are varied, where requests are sent again.
    chance: Option<SecureRng>,
}

impl Client {
    pub(super) fn new(
        rules: Rc<Rules>,
        (host, server): (HostId, HostId),
        arrivals: Short<ArrivalProcess>,
        (rng, chance): (Option<Box<Rng>>, Option<SecureRng>),
        writer: Writer,
    ) -> Self {
        Self {
            rules,
            host,
            server,
            arrivals,
            rng,
            aside: chance.map(|chance| Box::new(Aside { chance: Some(chance), ..Aside::default() })),
            dialogues: Short::default(),
            first: 0,
            connections: 0,
            connected: false,
            expected: Short::default(),
            received: 0,
            writer,
        }
    }

    fn aside(&mut self) -> &mut Aside {
        self.aside.get_or_insert_default()
    }

    fn own(&mut self, conn: ConnId) -> Option<&mut Own> {
        self.aside.as_mut()?.own.get_mut(&conn)
    }

    /// When the present request of a dialogue is to be sent (again).
    fn plan(&mut self, id: u64, at: Instant) {
        if let Some(d) = self.get(id) {
            d.due = at;
            self.aside().due.insert(at, id);
        }
    }

    fn persistent(&self) -> bool {
        self.rules.persistent
    }

    fn get(&mut self, id: u64) -> Option<&mut Dialogue> {
        self.dialogues.get_mut(id.checked_sub(self.first)? as usize)?.as_mut()
    }

    fn next_timer(&self) -> Option<Instant> {
        let give_up = self.rules.give_up.and_then(|after| {
            // The front is the oldest that has not ended: what has ended leaves the front at once.
            self.dialogues.front()?.as_ref().map(|d| d.began + after)
        });
        let or = |a: Option<Instant>, b: Option<Instant>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let arrival = self.arrivals.iter().filter_map(ArrivalProcess::next).min();
        let planned = or(or(arrival, give_up), self.writer.next());
        match &self.aside {
            None => planned,
            Some(aside) => or(planned, or(aside.due.next(), aside.reconnect_at)),
        }
    }

    fn timer(&mut self, ctx: &mut Context<'_, Report>) {
        let now = ctx.now();
        let reconnect_at = self.aside.as_ref().and_then(|aside| aside.reconnect_at);
        if reconnect_at.is_some_and(|at| at <= now) {
            self.open(ctx);
        }
        self.writer.due(ctx);
        while let Some((_, id)) = self.aside.as_mut().and_then(|aside| aside.due.pop_due(now)) {
            self.request(ctx, id);
        }
        if let Some(after) = self.rules.give_up {
            while let Some(Some(d)) = self.dialogues.front()
                && d.began + after <= now
            {
                self.end(ctx, self.first, false);
            }
        }
        while let Some(user) = self.arrived(now) {
            if !self.arrivals.get_mut(user).is_some_and(|of| of.take(now)) {
                continue;
            }
            let id = self.first + self.dialogues.len() as u64;
            self.dialogues.push_back(Some(Dialogue {
                began: now,
                user: user as u32,
                round: 0,
                sizes: self.rules.draw(0, self.rng.as_deref_mut()),
                sent: 0,
                first: now,
                wait: Duration::ZERO,
                due: Instant::FAR_FUTURE,
                conn: None,
            }));
            ctx.report(Report::Begun);
            self.request(ctx, id);
        }
    }

    /// The client whose arrival has been due for longest.
    fn arrived(&self, now: Instant) -> Option<usize> {
        let next = self.arrivals.iter().enumerate().filter_map(|(user, of)| Some((of.next()?, user)));
        next.min().filter(|(at, _)| *at <= now).map(|(_, user)| user)
    }

    fn open(&mut self, ctx: &mut Context<'_, Report>) {
        if let Some(aside) = &mut self.aside {
            aside.reconnect_at = None;
        }
        if self.rules.transport == TransportProtocol::Sctp {
            // What its streams are is known when it is up.
            ctx.associate(AssocId::opened(self.connections), self.server, DIALOGUE, self.rules.streams);
            return;
        }
        self.connected = true;
        self.expected.clear();
        self.received = 0;
        if self.rules.scripted() {
            self.rules.script.borrow_mut().insert((self.host, 0), VecDeque::new());
        }
        ctx.connect(ConnId::opened(self.connections), self.server, DIALOGUE);
        self.send_waiting(ctx);
    }

    /// Sends what had to wait for a connection.
    fn send_waiting(&mut self, ctx: &mut Context<'_, Report>) {
        let unsent = |d: &Dialogue| d.sent == 0 && d.due == Instant::FAR_FUTURE;
        let waiting: Vec<u64> = (self.first..)
            .zip(self.dialogues.iter())
            .filter_map(|(id, d)| d.as_ref().is_some_and(unsent).then_some(id))
            .collect();
        for id in waiting {
            self.request(ctx, id);
        }
    }

    /// Sends the request of a dialogue's present round.
    fn request(&mut self, ctx: &mut Context<'_, Report>, id: u64) {
        let rules = &*self.rules;
        let Some(Some(d)) = self.dialogues.get_mut(id.wrapping_sub(self.first) as usize) else { return };
        d.due = Instant::FAR_FUTURE;
        let ((bytes, answer), round) = (d.sizes, d.round);
        ctx.work(Work { label: work::DIALOGUE_REQUEST, units: 1 });
        match rules.transport {
            TransportProtocol::Udp => {
                let now = ctx.now();
                if let (Some(policy), Some(aside)) = (&rules.repeats, &mut self.aside)
                    && let Some(chance) = &mut aside.chance
                {
                    let last = d.first + policy.max_duration();
                    if d.sent >= policy.max_count() || (d.sent > 0 && now >= last) {
                        self.end(ctx, id, false);
                        return;
                    }
                    (d.first, d.wait) = match d.sent {
                        0 => (now, policy.first(chance)),
                        _ => (d.first, policy.next(d.wait, chance)),
                    };
                    let at = (now + d.wait).min(d.first + policy.max_duration());
                    d.due = at;
                    aside.due.insert(at, id);
                }
                if d.sent > 0 {
                    ctx.report(Report::Retransmissions(1));
                }
                d.sent += 1;
                ctx.send_datagram(0, self.server, DIALOGUE, rules.header(id, round, answer).message(bytes));
            }
            TransportProtocol::Sctp => {
                if !self.connected {
                    return;
                }
                d.sent = 1;
                let stream = (id % u64::from(rules.streams.max(1))) as u16;
                let payload = rules.header(id, round, answer).message(bytes);
                let message = Message { stream, ppid: 0, unordered: false, payload };
                ctx.send_message(AssocId::opened(self.connections), message);
            }
            TransportProtocol::Tcp if rules.persistent => {
                // Without a connection it waits for the next one.
                if !self.connected {
                    return;
                }
                d.sent = 1;
                self.expected.push_back((id, answer));
                if rules.scripted()
                    && let Some(script) = rules.script.borrow_mut().get_mut(&(self.host, 0))
                {
                    script.push_back((bytes, answer));
                }
                self.writer.write(ctx, ConnId::opened(self.connections), bytes);
            }
            TransportProtocol::Tcp | TransportProtocol::Tls => {
                let conn = match d.conn {
                    Some(conn) => conn,
                    None => {
                        let conn = ConnId::opened(self.connections);
                        d.conn = Some(conn);
                        self.connections += 1;
                        let own = Own { dialogue: id, received: 0, port: None };
                        self.aside.get_or_insert_default().own.insert(conn, own);
                        ctx.connect(conn, self.server, DIALOGUE);
                        conn
                    }
                };
                if rules.scripted()
                    && let Some(port) = self.aside.as_ref().and_then(|aside| aside.own.get(&conn)?.port)
                {
                    rules.script.borrow_mut().insert((self.host, port), [(bytes, answer)].into());
                }
                self.writer.write(ctx, conn, bytes);
            }
        }
    }

    fn stream(&mut self, ctx: &mut Context<'_, Report>, conn: ConnId, event: StreamDelivery) {
        match event {
            StreamDelivery::Connected { local_port, .. } => {
                let Some(own) = self.own(conn) else { return };
                own.port = Some(local_port);
                let id = own.dialogue;
                let place = id.wrapping_sub(self.first) as usize;
                if self.rules.scripted()
                    && let Some(Some(d)) = self.dialogues.get(place)
                {
                    // What it asks was not to be told before the port was known.
                    let mut script = self.rules.script.borrow_mut();
                    script.insert((self.host, local_port), [d.sizes].into());
                }
            }
            StreamDelivery::Data(payload) if self.persistent() => {
                self.received += payload.len;
                while let Some(&(id, size)) = self.expected.front()
                    && self.received >= size
                {
                    self.received -= size;
                    self.expected.pop_front();
                    // Nobody waits for it if the dialogue was given up.
                    self.answered(ctx, id);
                }
            }
            StreamDelivery::Data(payload) => {
                let Some(own) = self.own(conn) else { return };
                own.received += payload.len;
                let (id, got) = (own.dialogue, own.received);
                let Some(Some(d)) = self.dialogues.get((id - self.first) as usize) else { return };
                let size = d.sizes.1;
                if got >= size {
                    if let Some(own) = self.own(conn) {
                        own.received -= size;
                    }
                    self.answered(ctx, id);
                }
            }
            StreamDelivery::Closed(_) if self.persistent() => {
                self.writer.forget(conn);
                self.connected = false;
                self.connections += 1;
                self.aside().reconnect_at = Some(ctx.now() + self.rules.reconnect);
                for (id, _) in std::mem::take(&mut self.expected) {
                    self.end(ctx, id, false);
                }
            }
            StreamDelivery::Closed(_) => {
                self.writer.forget(conn);
                if let Some(own) = self.aside.as_mut().and_then(|aside| aside.own.remove(&conn)) {
                    self.end(ctx, own.dialogue, false);
                }
            }
        }
    }

    fn message(&mut self, ctx: &mut Context<'_, Report>, event: MessageDelivery) {
        match event {
            MessageDelivery::Up { .. } => {
                self.connected = true;
                self.send_waiting(ctx);
            }
            MessageDelivery::Data { payload, .. } => {
                self.heard(ctx, &payload);
            }
            MessageDelivery::Down(_) => {
                self.connected = false;
                self.connections += 1;
                self.aside().reconnect_at = Some(ctx.now() + self.rules.reconnect);
                let sent = |d: &Option<Dialogue>| d.as_ref().is_some_and(|d| d.sent > 0);
                let lost: Vec<u64> = (self.first..)
                    .zip(self.dialogues.iter())
                    .filter_map(|(id, d)| sent(d).then_some(id))
                    .collect();
                for id in lost {
                    self.end(ctx, id, false);
                }
            }
        }
    }

    /// A message has come: an answer to what was asked last, or to what was asked before.
    fn heard(&mut self, ctx: &mut Context<'_, Report>, payload: &Payload) {
        if let Some(Header { dialogue, round, .. }) = Header::parse(payload)
            && self.get(dialogue).is_some_and(|d| d.round == round)
        {
            self.answered(ctx, dialogue);
        }
    }

    /// The present round of a dialogue has its answer.
    fn answered(&mut self, ctx: &mut Context<'_, Report>, id: u64) {
        let now = ctx.now();
        let rounds = self.rules.rounds.len() as u32;
        let Some(d) = self.get(id) else { return };
        let due = std::mem::replace(&mut d.due, Instant::FAR_FUTURE);
        d.round += 1;
        d.sent = 0;
        let round = d.round;
        if let Some(aside) = &mut self.aside {
            aside.due.remove(due, id);
        }
        if round == rounds {
            self.end(ctx, id, true);
            return;
        }
        let sizes = self.rules.draw(round, self.rng.as_deref_mut());
        if let Some(d) = self.get(id) {
            d.sizes = sizes;
        }
        let think = match &mut self.rng {
            Some(rng) => self.rules.think.draw(rng),
            None => self.rules.think.mean(),
        };
        if think.is_zero() {
            self.request(ctx, id);
        } else {
            self.plan(id, now + think);
        }
    }

    fn end(&mut self, ctx: &mut Context<'_, Report>, id: u64, success: bool) {
        let Some(slot) = id.checked_sub(self.first).and_then(|i| self.dialogues.get_mut(i as usize)) else {
            return;
        };
        let Some(d) = slot.take() else { return };
        while let Some(None) = self.dialogues.front() {
            self.dialogues.pop_front();
            self.first += 1;
        }
        if let Some(aside) = &mut self.aside {
            aside.due.remove(d.due, id);
            if let Some(conn) = d.conn
                && aside.own.remove(&conn).is_some()
            {
                self.writer.forget(conn);
                if success { ctx.shutdown(conn) } else { ctx.abort(conn) }
            }
        }
        let end = if success { End::Completed } else { End::Failed };
        ctx.report(Report::Ended { began: d.began, end });
        if let Some(arrivals) = self.arrivals.get_mut(d.user as usize) {
            arrivals.ended(ctx.now());
        }
    }
}

impl Role for Client {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        match delivery {
            Delivery::Start if self.persistent() || self.rules.transport == TransportProtocol::Sctp => {
                self.open(ctx);
            }
            Delivery::Timer => self.timer(ctx),
            Delivery::Stream { conn, event } => self.stream(ctx, conn, event),
            Delivery::Datagram { payload, .. } => self.heard(ctx, &payload),
            Delivery::Message { event, .. } => self.message(ctx, event),
            Delivery::Start
            | Delivery::Frame { .. }
            | Delivery::Link { .. }
            | Delivery::Owner { .. }
            | Delivery::Acquire { .. }
            | Delivery::Transit { .. } => {}
        }
        ctx.set_timer(self.next_timer());
    }
}

/// What a server knows of a connection.
#[derive(Clone, Copy, Debug)]
struct Served {
    /// Where the script has it.
    client: (HostId, u16),
    received: u32,
    round: u32,
}

/// An answer that waits for the turnaround.
#[derive(Debug)]
enum Answer {
    Stream { conn: ConnId, bytes: u32 },
    Datagram { to: HostId, port: u16, payload: Payload },
    Message { assoc: AssocId, message: Message },
}

/// One server.
#[derive(Debug)]
pub(super) struct Server {
    rules: Rc<Rules>,
    rng: Rng,
    conns: Vec<Option<Served>>,
    waiting: TimerQueue<u64>,
    answers: BTreeMap<u64, Answer>,
    next: u64,
}

impl Server {
    pub(super) fn new(rules: Rc<Rules>, rng: Rng) -> Self {
        Self { rules, rng, conns: Vec::new(), waiting: TimerQueue::new(), answers: BTreeMap::new(), next: 0 }
    }

    fn stream(&mut self, ctx: &mut Context<'_, Report>, conn: ConnId, event: StreamDelivery) {
        let index = conn.n as usize;
        match event {
            StreamDelivery::Connected { remote, remote_port, .. } => {
                if self.conns.len() <= index {
                    self.conns.resize(index + 1, None);
                }
                let client = (remote, if self.rules.persistent { 0 } else { remote_port });
                self.conns[index] = Some(Served { client, received: 0, round: 0 });
            }
            StreamDelivery::Data(payload) => {
                let Some(Some(served)) = self.conns.get_mut(index) else { return };
                served.received += payload.len;
                loop {
                    let Some(Some(served)) = self.conns.get_mut(index) else { return };
                    let told = self.rules.scripted();
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
                    ctx.work(Work { label: work::DIALOGUE_ANSWER, units: 1 });
                    self.answer(ctx, Answer::Stream { conn, bytes });
                }
            }
            StreamDelivery::Closed(_) => {
                let served = self.conns.get_mut(index).and_then(Option::take);
                if let Some(served) = served.filter(|_| !self.rules.persistent) {
                    self.rules.script.borrow_mut().remove(&served.client);
                }
            }
        }
    }

    fn answer(&mut self, ctx: &mut Context<'_, Report>, answer: Answer) {
        let turnaround = self.rules.turnaround.draw(&mut self.rng);
        if turnaround.is_zero() {
            send(ctx, answer);
            return;
        }
        self.answers.insert(self.next, answer);
        self.waiting.insert(ctx.now() + turnaround, self.next);
        self.next += 1;
        ctx.set_timer(self.waiting.next());
    }
}

impl Role for Server {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        match delivery {
            Delivery::Timer => {
                while let Some((_, n)) = self.waiting.pop_due(ctx.now()) {
                    if let Some(answer) = self.answers.remove(&n) {
                        send(ctx, answer);
                    }
                }
                ctx.set_timer(self.waiting.next());
            }
            Delivery::Stream { conn, event } => self.stream(ctx, conn, event),
            Delivery::Datagram { from, from_port, payload, .. } => {
                let Some(header) = Header::parse(&payload) else { return };
                let Some(bytes) = self.rules.answer(&header) else { return };
                ctx.work(Work { label: work::DIALOGUE_ANSWER, units: 1 });
                let payload = header.message(bytes);
                self.answer(ctx, Answer::Datagram { to: from, port: from_port, payload });
            }
            Delivery::Message { assoc, event: MessageDelivery::Data { stream, payload, .. } } => {
                let Some(header) = Header::parse(&payload) else { return };
                let Some(bytes) = self.rules.answer(&header) else { return };
                ctx.work(Work { label: work::DIALOGUE_ANSWER, units: 1 });
                let payload = header.message(bytes);
                let message = Message { stream, ppid: 0, unordered: false, payload };
                self.answer(ctx, Answer::Message { assoc, message });
            }
            Delivery::Start
            | Delivery::Frame { .. }
            | Delivery::Link { .. }
            | Delivery::Owner { .. }
            | Delivery::Acquire { .. }
            | Delivery::Transit { .. }
            | Delivery::Message { .. } => {}
        }
    }
}

fn send(ctx: &mut Context<'_, Report>, answer: Answer) {
    match answer {
        Answer::Stream { conn, bytes } => ctx.write(conn, Payload::counted(bytes)),
        Answer::Message { assoc, message } => ctx.send_message(assoc, message),
        Answer::Datagram { to, port, payload } => ctx.send_datagram(0, to, port, payload),
    }
}

/// Whether the server of a dialogue over TCP learns from its clients what comes, other than by messages.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn is_scripted(d: &model::Dialogue) -> bool {
    Rules::new(d, Duration::ZERO).scripted()
}

/// Puts the workload's roles on the topology's hosts.
pub(super) fn build(plan: &mut Plan<'_>, topology: &Topology, d: &model::Dialogue) -> Result<(), WorldError> {
    let transport = &plan.scenario.transport;
    let reconnect = match d.transport {
        TransportProtocol::Sctp => transport.sctp.reconnect,
        _ => transport.tcp.reconnect,
    };
    let rules = Rules::new(d, reconnect.get());
    let servers = topology.group(&d.server)?;
    for (i, &host) in servers.iter().enumerate() {
        let rng = plan.seed.stream("dialogue.server", i as u64);
        let app = plan.role(host, Server::new(rules.clone(), rng));
        plan.builder.serve_at(app, d.transport, 0, (host, DIALOGUE))?;
    }
    let clients = topology.group(&d.clients)?;
    let per_host = u64::from(d.per_host.get());
    let pattern = Pattern::new(&d.arrivals, clients.len() as u64 * per_host, plan.end);
    for (i, &host) in clients.iter().enumerate() {
        let index = i as u64;
        let arrivals = (index * per_host..(index + 1) * per_host).map(|client| {
            let rng = plan.seed.stream("arrivals", client);
            ArrivalProcess::new(&pattern, client, rng)
        });
        let arrivals = arrivals.collect();
        let rng = rules.by_chance().then(|| Box::new(plan.seed.stream("dialogue.client", index)));
        let chance = rules.repeats.map(|_| plan.seed.secure("dialogue.retransmission", index));
        let server = servers[i % servers.len()];
        let writer = Writer::new(d);
        let client = Client::new(rules.clone(), (host, server), arrivals, (rng, chance), writer);
        plan.role(host, client);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_stays_small() {
        // Each octet is one of each station of a large run, and glibc's allocator has steps of 16: 216, 232.
        assert!(size_of::<Client>() <= 232, "{}", size_of::<Client>());
    }
}
