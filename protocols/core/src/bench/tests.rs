use super::*;
use crate::impair::{ChannelConfig, Loss};
use crate::machine::*;
use crate::output::Outputs;
use crate::time::{Duration, Instant};
use std::net::{IpAddr, SocketAddr};

/// Says what it hears, and sends what it is told; of what it is told to ask, it asks a helper.
#[derive(Default)]
struct Parrot {
    out: Outputs<String, &'static str>,
    alarm: Option<Instant>,
}

enum Do {
    Send(Transmit, &'static [u8]),
    Ask(&'static str),
    Wake(Instant),
    Say(&'static str),
}

impl Machine for Parrot {
    type Command = Do;
    type Event = String;
    type Job = &'static str;
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.out.event(match input {
            Input::Datagram { path, data } => format!("{} {} {data:?}", path.socket.n, path.remote),
            Input::Frame { port, data } => format!("frame {} {data:?}", port.0),
            Input::Stream { event: StreamEvent::Data(data), .. } => format!("{data:?}"),
            Input::Stream { event: StreamEvent::Accepted { remote, .. }, .. } => format!("from {remote}"),
            Input::Stream { event: StreamEvent::Connected { remote, .. }, .. } => format!("to {remote}"),
            Input::Stream { event: StreamEvent::Closed(reason), .. } => format!("{reason:?}"),
            Input::Stream { event: StreamEvent::Writable, .. } => "writable".into(),
            Input::Stream { event: StreamEvent::Finished, .. } => "finished".into(),
            Input::Message { event: MessageEvent::Data { stream, data, .. }, .. } => {
                format!("{stream}: {data:?}")
            }
            Input::Message { event: MessageEvent::Down(reason), .. } => format!("{reason:?}"),
            Input::Message { event, .. } => format!("{event:?}"),
            Input::Timeout if self.alarm.is_some_and(|at| at <= now) => {
                self.alarm = None;
                "alarm".into()
            }
            Input::Timeout => return,
        });
    }
    fn command(&mut self, _: Instant, command: Do) -> Result<(), CommandError> {
        match command {
            Do::Send(transmit, bytes) => self.out.transmit(transmit, bytes.to_vec()),
            Do::Ask(what) => self.out.job(Job::new(1, what)),
            Do::Wake(at) => self.alarm = Some(at),
            Do::Say(what) => self.out.event(what.into()),
        }
        Ok(())
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.out.poll(buf)
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.alarm
    }
}

const TEN: Duration = Duration::from_millis(10);
const PORT: u16 = 7;

fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}
fn ip(n: u8) -> IpAddr {
    [10, 0, 0, n].into()
}
fn address(n: u8) -> SocketAddr {
    SocketAddr::new(ip(n), PORT)
}

/// Two hosts, each with a socket, a listener and a port.
fn two(channel: ChannelConfig) -> (Network, At<Parrot>, At<Parrot>) {
    let mut net = Network::new(channel);
    let [a, b] = [1, 2].map(|n| {
        let host = net.add(Parrot::default(), &[ip(n)]);
        net.bind(host, SocketId::own(0), address(n));
        net.listen(host, ListenerId::own(0), address(n));
        host
    });
    net.join(&[(a.number, PortId(0)), (b.number, PortId(4))]);
    (net, a, b)
}
fn slow() -> ChannelConfig {
    ChannelConfig { delay: TEN, ..ChannelConfig::default() }
}
fn datagram(socket: u32, data: &'static [u8]) -> Do {
    let local = SocketAddr::new([0, 0, 0, 0].into(), 0);
    let path = Path { socket: SocketId::own(socket), local, remote: address(2) };
    Do::Send(Transmit::Datagram { path }, data)
}
fn stream(op: StreamOp, data: &'static [u8]) -> Do {
    Do::Send(Transmit::Stream { conn: ConnId::opened(0), op }, data)
}
fn message(op: MessageOp, data: &'static [u8]) -> Do {
    Do::Send(Transmit::Message { assoc: ConnId::opened(0), op }, data)
}
fn connect() -> Do {
    stream(StreamOp::Connect { local: None, remote: address(2) }, &[])
}
fn tell(net: &mut Network, host: At<Parrot>, all: impl IntoIterator<Item = Do>) {
    all.into_iter().for_each(|one| net.command(host, one).unwrap());
}
fn heard(net: &mut Network, host: At<Parrot>) -> Vec<(u64, String)> {
    net.take(host).into_iter().map(|(at, what)| (at.as_nanos() / 1_000_000, what)).collect()
}
fn at(time: u64, what: &str) -> (u64, String) {
    (time, what.into())
}

#[test]
fn a_datagram_takes_its_time_and_comes_from_where_it_was_sent() {
    let (mut net, a, b) = two(slow());
    tell(&mut net, a, [datagram(0, &[1]), datagram(5, &[2])]);
    net.run(TEN);
    assert_eq!(heard(&mut net, b), [at(10, "0 10.0.0.1:7 [1]"), at(10, "0 10.0.0.1:49154 [2]")]);
    assert_eq!((net.now(), net.sent().len()), (ms(10), 2));
}

#[test]
fn channels_lose_what_they_lose_and_each_link_may_have_its_own() {
    let (mut net, a, b) = two(slow());
    net.link(a, b, &ChannelConfig { loss: Loss::Script(vec![1]), ..slow() });
    tell(&mut net, a, [datagram(0, &[1]), datagram(0, &[2]), datagram(0, &[3]), connect()]);
    net.run_out();
    let told: Vec<String> = heard(&mut net, b).into_iter().map(|(_, what)| what).collect();
    assert_eq!(told, ["0 10.0.0.1:7 [1]", "0 10.0.0.1:7 [3]", "from 10.0.0.1:49152"]);
}

#[test]
fn who_meddles_loses_alters_delays_and_doubles() {
    let (mut net, a, b) = two(slow());
    net.meddle(|n, sent| {
        sent.bytes[0] ^= 0x80;
        [vec![], vec![TEN], vec![Duration::ZERO; 2]][n].clone()
    });
    tell(&mut net, a, [datagram(0, &[1]), datagram(0, &[2]), datagram(0, &[3])]);
    net.run_out();
    let three = at(10, "0 10.0.0.1:7 [131]");
    assert_eq!(heard(&mut net, b), [three.clone(), three, at(20, "0 10.0.0.1:7 [130]")]);
    assert_eq!(net.sent()[0].bytes, [1], "as it was sent");
    net.lose(&[4]);
    tell(&mut net, a, [datagram(0, &[4]), datagram(0, &[5])]);
    net.run_out();
    assert_eq!(heard(&mut net, b), [at(30, "0 10.0.0.1:7 [4]")]);
}

#[test]
fn a_connection_is_up_after_a_round_trip_and_ends_after_its_data() {
    let (mut net, a, b) = two(slow());
    net.segment(2);
    tell(&mut net, a, [connect()]);
    net.run(TEN * 2);
    assert_eq!(heard(&mut net, b), [at(10, "from 10.0.0.1:49152")]);
    assert_eq!(heard(&mut net, a), [at(20, "to 10.0.0.2:7")]);
    net.meddle(|_, _| vec![TEN]);
    tell(&mut net, a, [stream(StreamOp::Data, &[1, 2, 3]), stream(StreamOp::Shutdown, &[])]);
    net.run_out();
    assert_eq!(heard(&mut net, b), [at(40, "[1, 2]"), at(40, "[3]"), at(40, "Closed")]);
    assert!(heard(&mut net, a).is_empty(), "who ends it knows");
}

#[test]
fn connections_are_refused_and_cut() {
    let (mut net, a, b) = two(slow());
    net.refuse(b, true);
    tell(&mut net, a, [connect()]);
    net.run_out();
    assert_eq!(heard(&mut net, a), [at(20, "Refused")]);
    net.refuse(b, false);
    tell(&mut net, a, [connect()]);
    net.run_out();
    tell(&mut net, a, [stream(StreamOp::Data, &[1])]);
    net.cut(b);
    net.run_out();
    assert_eq!(heard(&mut net, a)[1..], [at(40, "Reset")]);
    assert_eq!(heard(&mut net, b)[1..], [at(40, "Reset")], "what was under way is lost");
    let nobody = StreamOp::Connect { local: None, remote: address(9) };
    tell(&mut net, a, [stream(nobody, &[])]);
    net.run_out();
    assert_eq!(heard(&mut net, a).pop().unwrap().1, "Refused");
}

#[test]
fn messages_keep_order_on_their_stream_alone() {
    let (mut net, a, b) = two(slow());
    net.grant(3);
    tell(&mut net, a, [message(MessageOp::Connect { local: None, remote: address(2), streams: 9 }, &[])]);
    net.run(TEN * 2);
    assert_eq!(heard(&mut net, a), [at(20, "Up { remote: 10.0.0.2:7, streams: 3 }")]);
    heard(&mut net, b);
    net.meddle(|n, _| vec![if n == 1 { TEN } else { Duration::ZERO }]);
    let data = |stream, unordered| MessageOp::Data { stream, ppid: 0, unordered };
    let sent = [(1, false), (1, false), (1, true), (2, false)];
    tell(&mut net, a, sent.map(|(stream, unordered)| message(data(stream, unordered), &[5])));
    tell(&mut net, a, [message(MessageOp::Shutdown, &[])]);
    net.run_out();
    let expected = [at(30, "1: [5]"), at(30, "2: [5]"), at(40, "1: [5]"), at(40, "1: [5]"), at(40, "Closed")];
    assert_eq!(heard(&mut net, b), expected);
}

#[test]
fn frames_come_in_by_the_other_ports_of_their_segment() {
    let (mut net, a, b) = two(slow());
    let c = net.add(Parrot::default(), &[]);
    net.join(&[(b.number, PortId(1)), (c.number, PortId(0)), (a.number, PortId(9))]);
    let frame = |port| Do::Send(Transmit::Frame { port: PortId(port) }, &[1]);
    tell(&mut net, b, [frame(1), frame(4), frame(7)]);
    net.run_out();
    assert_eq!(heard(&mut net, a), [at(10, "frame 9 [1]"), at(10, "frame 0 [1]")]);
    assert_eq!(heard(&mut net, c), [at(10, "frame 0 [1]")]);
}

#[test]
fn a_severed_way_loses_datagrams_and_holds_streams() {
    let (mut net, a, b) = two(slow());
    tell(&mut net, a, [connect()]);
    net.run_out();
    heard(&mut net, b);
    net.sever(a, b, true);
    tell(&mut net, a, [datagram(0, &[1]), stream(StreamOp::Data, &[2])]);
    net.run(TEN * 8);
    assert!(heard(&mut net, b).is_empty());
    net.sever(b, a, false);
    net.run_out();
    assert_eq!(heard(&mut net, b), [at(110, "[2]")]);
}

/// By an address's own link, whoever is at the other end; while it is down, what is sent and what arrives is lost.
#[test]
fn an_address_has_a_link_that_may_be_down() {
    let (mut net, a, b) = two(slow());
    net.attach(ip(1), &ChannelConfig { delay: TEN * 2, ..ChannelConfig::default() });
    tell(&mut net, a, [datagram(0, &[1]), connect()]);
    net.run(TEN * 4);
    assert_eq!(heard(&mut net, b), [at(20, "0 10.0.0.1:7 [1]"), at(20, "from 10.0.0.1:49152")]);
    assert_eq!(heard(&mut net, a), [at(40, "to 10.0.0.2:7")]);
    tell(&mut net, a, [datagram(0, &[2]), stream(StreamOp::Data, &[3])]);
    net.at(ms(50), move |net| net.down(ip(1), true));
    net.run(TEN * 3);
    tell(&mut net, a, [datagram(0, &[4]), stream(StreamOp::Data, &[5])]);
    net.run(TEN * 3);
    net.down(ip(1), false);
    tell(&mut net, a, [datagram(0, &[6]), stream(StreamOp::Data, &[7])]);
    net.run_out();
    assert_eq!(heard(&mut net, b), [at(120, "0 10.0.0.1:7 [6]"), at(120, "[7]")]);
}

#[test]
fn streams_may_wait_for_what_is_lost_to_be_sent_again() {
    let (mut net, a, b) = two(ChannelConfig { loss: Loss::Script(vec![0, 2, 3]), ..slow() });
    net.resend(TEN * 2);
    tell(&mut net, a, [connect(), stream(StreamOp::Data, &[1]), stream(StreamOp::Data, &[2])]);
    net.run_out();
    let expected = [at(30, "from 10.0.0.1:49152"), at(50, "[1]"), at(50, "[2]")];
    assert_eq!(heard(&mut net, b), expected);
    assert_eq!(heard(&mut net, a), [at(60, "to 10.0.0.2:7")], "lost as the others were");
}

#[test]
fn a_silent_host_hears_says_and_does_nothing() {
    let (mut net, a, b) = two(slow());
    net.silence(b, true);
    tell(&mut net, b, [Do::Wake(ms(5))]);
    tell(&mut net, a, [datagram(0, &[1])]);
    net.run(TEN * 2);
    assert!(heard(&mut net, b).is_empty());
    net.silence(b, false);
    net.run(TEN);
    assert_eq!(heard(&mut net, b), [at(20, "alarm")]);
}

#[test]
fn what_is_due_while_nobody_does_anything_is_late() {
    let (mut net, a, b) = two(slow());
    tell(&mut net, a, [Do::Wake(ms(5)), datagram(0, &[1])]);
    net.pass(TEN * 2);
    assert_eq!([net.step(), net.step(), net.step()], [Some(b.number), Some(a.number), None]);
    assert_eq!(heard(&mut net, b), [at(20, "0 10.0.0.1:7 [1]")]);
    assert_eq!(heard(&mut net, a), [at(20, "alarm")]);
}

#[test]
fn what_is_said_is_answered_at_once_and_jobs_after_their_time() {
    let (mut net, a, b) = two(slow());
    net.on_event(b, |said| (said.contains('9')).then_some((Duration::ZERO, Do::Ask("whom"))));
    net.on_job(b, |job| Some((TEN, Do::Say(job.what))));
    tell(&mut net, a, [datagram(0, &[9])]);
    net.run_out();
    assert_eq!(heard(&mut net, b), [at(10, "0 10.0.0.1:7 [9]"), at(20, "whom")]);
    net.later(b, ms(30), Do::Say("in time"));
    net.later(b, ms(3), Do::Say("too late"));
    net.run_out();
    assert_eq!(heard(&mut net, b), [at(20, "too late"), at(30, "in time")]);
}

#[test]
fn what_is_under_way_can_be_lost_as_a_whole() {
    let (mut net, a, b) = two(slow());
    tell(&mut net, a, [connect()]);
    net.run_out();
    assert_eq!(net.connections(a).collect::<Vec<_>>(), [(ConnId::opened(0), b.number)]);
    tell(&mut net, a, [datagram(0, &[1]), stream(StreamOp::Data, &[2])]);
    net.later(b, ms(50), Do::Say("mine"));
    net.clear();
    net.run_out();
    assert_eq!(heard(&mut net, b)[1..], [at(50, "mine")]);
}

/// What a machine decided behind the network's back is carried out too.
#[test]
fn a_machine_may_be_called_by_itself() {
    let (mut net, a, b) = two(slow());
    net[a].command(ms(0), datagram(0, &[1])).unwrap();
    assert_eq!(net.due(), None);
    net.settle();
    assert_eq!(net.due(), Some(ms(10)));
    net.run(TEN);
    assert_eq!(net.events(b).len(), 1);
    assert_eq!(net[b].alarm, None);
}

#[test]
fn the_same_happens_each_time() {
    let run = |seed| {
        let channel = ChannelConfig {
            loss: Loss::Bernoulli(0.3),
            jitter: TEN,
            reorder: 0.3,
            reorder_delay: TEN,
            duplicate: 0.3,
            ..slow()
        };
        let (mut net, a, b) = two(channel);
        net.seed(seed);
        (0..50).for_each(|_| tell(&mut net, a, [datagram(0, &[1])]));
        net.run_out();
        heard(&mut net, b)
    };
    assert_eq!(run(0), run(0));
    assert!(run(0).len() > 20 && run(0) != run(1));
}
