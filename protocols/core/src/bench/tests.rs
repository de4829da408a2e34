use super::*;
use crate::impair::{ChannelConfig, LossModel};
use crate::machine::*;
use crate::output::OutputQueue;
use crate::time::{Duration, Instant};
use std::net::{IpAddr, SocketAddr};

/// Reports its inputs as events, sends its commands, and passes requests on to a worker as jobs.
#[derive(Default)]
struct EchoMachine {
    out: OutputQueue<String, &'static str>,
    alarm: Option<Instant>,
}

enum EchoCommand {
    Send(Transmit, &'static [u8]),
    StartJob(&'static str),
    Wake(Instant),
    PushEvent(&'static str),
}

impl Machine for EchoMachine {
    type Command = EchoCommand;
    type Event = String;
    type Job = &'static str;
    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.out.push_event(match input {
            MachineInput::Datagram { path, data } => format!("{} {} {data:?}", path.socket.n, path.remote),
            MachineInput::Frame { port, data } => format!("frame {} {data:?}", port.0),
            MachineInput::Stream { event: StreamEvent::Data(data), .. } => format!("{data:?}"),
            MachineInput::Stream { event: StreamEvent::Accepted { remote, .. }, .. } => {
                format!("from {remote}")
            }
            MachineInput::Stream { event: StreamEvent::Connected { remote, .. }, .. } => {
                format!("to {remote}")
            }
            MachineInput::Stream { event: StreamEvent::Closed(reason), .. } => format!("{reason:?}"),
            MachineInput::Stream { event: StreamEvent::Writable, .. } => "writable".into(),
            MachineInput::Stream { event: StreamEvent::Finished, .. } => "finished".into(),
            MachineInput::Message { event: MessageAssociationEvent::Data { stream, data, .. }, .. } => {
                format!("{stream}: {data:?}")
            }
            MachineInput::Message { event: MessageAssociationEvent::Down(reason), .. } => {
                format!("{reason:?}")
            }
            MachineInput::Message { event, .. } => format!("{event:?}"),
            MachineInput::Timeout if self.alarm.is_some_and(|at| at <= now) => {
                self.alarm = None;
                "alarm".into()
            }
            MachineInput::Timeout => return,
        });
    }
    fn handle_command(&mut self, _: Instant, command: EchoCommand) -> Result<(), CommandError> {
        match command {
            EchoCommand::Send(transmit, bytes) => self.out.push_transmit(transmit, bytes.to_vec()),
            EchoCommand::StartJob(what) => self.out.push_job(JobRequest::new(1, what)),
            EchoCommand::Wake(at) => self.alarm = Some(at),
            EchoCommand::PushEvent(what) => self.out.push_event(what.into()),
        }
        Ok(())
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.out.poll(buf)
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.alarm
    }
}

const TEN: Duration = Duration::from_millis(10);
const PORT: u16 = 7;

fn at_millis(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}
fn host_ip(n: u8) -> IpAddr {
    [10, 0, 0, n].into()
}
fn host_address(n: u8) -> SocketAddr {
    SocketAddr::new(host_ip(n), PORT)
}

/// Two hosts, each with a socket, a listener and a port.
fn two_hosts(
    channel: ChannelConfig,
) -> (MachineNetwork, NetworkHostHandle<EchoMachine>, NetworkHostHandle<EchoMachine>) {
    let mut net = MachineNetwork::new(channel);
    let [a, b] = [1, 2].map(|n| {
        let host = net.add_host(EchoMachine::default(), &[host_ip(n)]);
        net.bind_socket(host, SocketId::from_number(0), host_address(n));
        net.add_listener(host, ListenerId::from_number(0), host_address(n));
        host
    });
    net.join_ports_in_segment(&[(a.number, LinkLayerPortId(0)), (b.number, LinkLayerPortId(4))]);
    (net, a, b)
}
fn slow_channel() -> ChannelConfig {
    ChannelConfig { delay: TEN, ..ChannelConfig::default() }
}
fn datagram_command(socket: u32, data: &'static [u8]) -> EchoCommand {
    let local = SocketAddr::new([0, 0, 0, 0].into(), 0);
    let path = DatagramPath { socket: SocketId::from_number(socket), local, remote: host_address(2) };
    EchoCommand::Send(Transmit::Datagram { path }, data)
}
fn stream_command(op: StreamOp, data: &'static [u8]) -> EchoCommand {
    EchoCommand::Send(Transmit::Stream { conn: ConnId::nth_opened_connection(0), op }, data)
}
fn message_command(op: MessageAssociationOp, data: &'static [u8]) -> EchoCommand {
    EchoCommand::Send(Transmit::Message { assoc: ConnId::nth_opened_connection(0), op }, data)
}
fn connect_command() -> EchoCommand {
    stream_command(StreamOp::Connect { local: None, remote: host_address(2) }, &[])
}
fn send_commands(
    net: &mut MachineNetwork,
    host: NetworkHostHandle<EchoMachine>,
    all: impl IntoIterator<Item = EchoCommand>,
) {
    all.into_iter().for_each(|one| net.send_command(host, one).unwrap());
}
fn take_received(net: &mut MachineNetwork, host: NetworkHostHandle<EchoMachine>) -> Vec<(u64, String)> {
    net.take_events(host).into_iter().map(|(at, what)| (at.as_nanos() / 1_000_000, what)).collect()
}
fn event_at(time: u64, what: &str) -> (u64, String) {
    (time, what.into())
}

#[test]
fn a_datagram_takes_its_time_and_comes_from_where_it_was_sent() {
    let (mut net, a, b) = two_hosts(slow_channel());
    send_commands(&mut net, a, [datagram_command(0, &[1]), datagram_command(5, &[2])]);
    net.run_for(TEN);
    assert_eq!(
        take_received(&mut net, b),
        [event_at(10, "0 10.0.0.1:7 [1]"), event_at(10, "0 10.0.0.1:49154 [2]")]
    );
    assert_eq!((net.now(), net.sent_transmits().len()), (at_millis(10), 2));
}

#[test]
fn channels_lose_what_they_lose_and_each_link_may_have_its_own() {
    let (mut net, a, b) = two_hosts(slow_channel());
    net.link_hosts(a, b, &ChannelConfig { loss: LossModel::Script(vec![1]), ..slow_channel() });
    send_commands(
        &mut net,
        a,
        [datagram_command(0, &[1]), datagram_command(0, &[2]), datagram_command(0, &[3]), connect_command()],
    );
    net.run_until_nothing_is_due();
    let told: Vec<String> = take_received(&mut net, b).into_iter().map(|(_, what)| what).collect();
    assert_eq!(told, ["0 10.0.0.1:7 [1]", "0 10.0.0.1:7 [3]", "from 10.0.0.1:49152"]);
}

#[test]
fn who_meddles_loses_alters_delays_and_doubles() {
    let (mut net, a, b) = two_hosts(slow_channel());
    net.intercept_transmits(|n, sent| {
        sent.bytes[0] ^= 0x80;
        [vec![], vec![TEN], vec![Duration::ZERO; 2]][n].clone()
    });
    send_commands(
        &mut net,
        a,
        [datagram_command(0, &[1]), datagram_command(0, &[2]), datagram_command(0, &[3])],
    );
    net.run_until_nothing_is_due();
    let three = event_at(10, "0 10.0.0.1:7 [131]");
    assert_eq!(take_received(&mut net, b), [three.clone(), three, event_at(20, "0 10.0.0.1:7 [130]")]);
    assert_eq!(net.sent_transmits()[0].bytes, [1], "as it was sent");
    net.drop_transmits(&[4]);
    send_commands(&mut net, a, [datagram_command(0, &[4]), datagram_command(0, &[5])]);
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, b), [event_at(30, "0 10.0.0.1:7 [4]")]);
}

#[test]
fn a_connection_opens_in_a_round_trip_and_ends_after_its_data() {
    let (mut net, a, b) = two_hosts(slow_channel());
    net.set_segment_size(2);
    send_commands(&mut net, a, [connect_command()]);
    net.run_for(TEN * 2);
    assert_eq!(take_received(&mut net, b), [event_at(10, "from 10.0.0.1:49152")]);
    assert_eq!(take_received(&mut net, a), [event_at(20, "to 10.0.0.2:7")]);
    net.intercept_transmits(|_, _| vec![TEN]);
    send_commands(
        &mut net,
        a,
        [stream_command(StreamOp::Data, &[1, 2, 3]), stream_command(StreamOp::Shutdown, &[])],
    );
    net.run_until_nothing_is_due();
    assert_eq!(
        take_received(&mut net, b),
        [event_at(40, "[1, 2]"), event_at(40, "[3]"), event_at(40, "Closed")]
    );
    assert!(take_received(&mut net, a).is_empty(), "who ends it knows");
}

#[test]
fn connections_are_refused_and_cut() {
    let (mut net, a, b) = two_hosts(slow_channel());
    net.set_refusing_connections(b, true);
    send_commands(&mut net, a, [connect_command()]);
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, a), [event_at(20, "Refused")]);
    net.set_refusing_connections(b, false);
    send_commands(&mut net, a, [connect_command()]);
    net.run_until_nothing_is_due();
    send_commands(&mut net, a, [stream_command(StreamOp::Data, &[1])]);
    net.reset_connections(b);
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, a)[1..], [event_at(40, "Reset")]);
    assert_eq!(take_received(&mut net, b)[1..], [event_at(40, "Reset")], "what was under way is lost");
    let nobody = StreamOp::Connect { local: None, remote: host_address(9) };
    send_commands(&mut net, a, [stream_command(nobody, &[])]);
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, a).pop().unwrap().1, "Refused");
}

#[test]
fn messages_keep_order_on_their_stream_alone() {
    let (mut net, a, b) = two_hosts(slow_channel());
    net.limit_streams(3);
    send_commands(
        &mut net,
        a,
        [message_command(
            MessageAssociationOp::Connect { local: None, remote: host_address(2), streams: 9 },
            &[],
        )],
    );
    net.run_for(TEN * 2);
    assert_eq!(take_received(&mut net, a), [event_at(20, "Up { remote: 10.0.0.2:7, streams: 3 }")]);
    take_received(&mut net, b);
    net.intercept_transmits(|n, _| vec![if n == 1 { TEN } else { Duration::ZERO }]);
    let data = |stream, unordered| MessageAssociationOp::Data { stream, ppid: 0, unordered };
    let sent = [(1, false), (1, false), (1, true), (2, false)];
    send_commands(
        &mut net,
        a,
        sent.map(|(stream, unordered)| message_command(data(stream, unordered), &[5])),
    );
    send_commands(&mut net, a, [message_command(MessageAssociationOp::Shutdown, &[])]);
    net.run_until_nothing_is_due();
    let expected = [
        event_at(30, "1: [5]"),
        event_at(30, "2: [5]"),
        event_at(40, "1: [5]"),
        event_at(40, "1: [5]"),
        event_at(40, "Closed"),
    ];
    assert_eq!(take_received(&mut net, b), expected);
}

#[test]
fn frames_come_in_by_the_other_ports_of_their_segment() {
    let (mut net, a, b) = two_hosts(slow_channel());
    let c = net.add_host(EchoMachine::default(), &[]);
    net.join_ports_in_segment(&[
        (b.number, LinkLayerPortId(1)),
        (c.number, LinkLayerPortId(0)),
        (a.number, LinkLayerPortId(9)),
    ]);
    let frame = |port| EchoCommand::Send(Transmit::Frame { port: LinkLayerPortId(port) }, &[1]);
    send_commands(&mut net, b, [frame(1), frame(4), frame(7)]);
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, a), [event_at(10, "frame 9 [1]"), event_at(10, "frame 0 [1]")]);
    assert_eq!(take_received(&mut net, c), [event_at(10, "frame 0 [1]")]);
}

#[test]
fn a_severed_way_loses_datagrams_and_holds_streams() {
    let (mut net, a, b) = two_hosts(slow_channel());
    send_commands(&mut net, a, [connect_command()]);
    net.run_until_nothing_is_due();
    take_received(&mut net, b);
    net.set_severed(a, b, true);
    send_commands(&mut net, a, [datagram_command(0, &[1]), stream_command(StreamOp::Data, &[2])]);
    net.run_for(TEN * 8);
    assert!(take_received(&mut net, b).is_empty());
    net.set_severed(b, a, false);
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, b), [event_at(110, "[2]")]);
}

/// The link of an address applies to any peer. While it is down, packets sent and packets arriving are lost.
#[test]
fn an_address_has_a_link_that_may_be_down() {
    let (mut net, a, b) = two_hosts(slow_channel());
    net.link_address(host_ip(1), &ChannelConfig { delay: TEN * 2, ..ChannelConfig::default() });
    send_commands(&mut net, a, [datagram_command(0, &[1]), connect_command()]);
    net.run_for(TEN * 4);
    assert_eq!(
        take_received(&mut net, b),
        [event_at(20, "0 10.0.0.1:7 [1]"), event_at(20, "from 10.0.0.1:49152")]
    );
    assert_eq!(take_received(&mut net, a), [event_at(40, "to 10.0.0.2:7")]);
    send_commands(&mut net, a, [datagram_command(0, &[2]), stream_command(StreamOp::Data, &[3])]);
    net.schedule_action(at_millis(50), move |net| net.set_address_down(host_ip(1), true));
    net.run_for(TEN * 3);
    send_commands(&mut net, a, [datagram_command(0, &[4]), stream_command(StreamOp::Data, &[5])]);
    net.run_for(TEN * 3);
    net.set_address_down(host_ip(1), false);
    send_commands(&mut net, a, [datagram_command(0, &[6]), stream_command(StreamOp::Data, &[7])]);
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, b), [event_at(120, "0 10.0.0.1:7 [6]"), event_at(120, "[7]")]);
}

#[test]
fn streams_may_wait_for_what_is_lost_to_be_sent_again() {
    let (mut net, a, b) =
        two_hosts(ChannelConfig { loss: LossModel::Script(vec![0, 2, 3]), ..slow_channel() });
    net.set_retransmission_delay(TEN * 2);
    send_commands(
        &mut net,
        a,
        [connect_command(), stream_command(StreamOp::Data, &[1]), stream_command(StreamOp::Data, &[2])],
    );
    net.run_until_nothing_is_due();
    let expected = [event_at(30, "from 10.0.0.1:49152"), event_at(50, "[1]"), event_at(50, "[2]")];
    assert_eq!(take_received(&mut net, b), expected);
    assert_eq!(take_received(&mut net, a), [event_at(60, "to 10.0.0.2:7")], "lost as the others were");
}

#[test]
fn a_silent_host_hears_says_and_does_nothing() {
    let (mut net, a, b) = two_hosts(slow_channel());
    net.set_silent(b, true);
    send_commands(&mut net, b, [EchoCommand::Wake(at_millis(5))]);
    send_commands(&mut net, a, [datagram_command(0, &[1])]);
    net.run_for(TEN * 2);
    assert!(take_received(&mut net, b).is_empty());
    net.set_silent(b, false);
    net.run_for(TEN);
    assert_eq!(take_received(&mut net, b), [event_at(20, "alarm")]);
}

#[test]
fn what_is_due_while_nobody_does_anything_is_late() {
    let (mut net, a, b) = two_hosts(slow_channel());
    send_commands(&mut net, a, [EchoCommand::Wake(at_millis(5)), datagram_command(0, &[1])]);
    net.skip_time(TEN * 2);
    assert_eq!(
        [net.run_next_arrival_or_timer(), net.run_next_arrival_or_timer(), net.run_next_arrival_or_timer()],
        [Some(b.number), Some(a.number), None]
    );
    assert_eq!(take_received(&mut net, b), [event_at(20, "0 10.0.0.1:7 [1]")]);
    assert_eq!(take_received(&mut net, a), [event_at(20, "alarm")]);
}

#[test]
fn what_is_said_is_answered_at_once_and_jobs_after_their_time() {
    let (mut net, a, b) = two_hosts(slow_channel());
    net.on_event(b, |said| (said.contains('9')).then_some((Duration::ZERO, EchoCommand::StartJob("whom"))));
    net.on_job(b, |job| Some((TEN, EchoCommand::PushEvent(job.job))));
    send_commands(&mut net, a, [datagram_command(0, &[9])]);
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, b), [event_at(10, "0 10.0.0.1:7 [9]"), event_at(20, "whom")]);
    net.schedule_command(b, at_millis(30), EchoCommand::PushEvent("in time"));
    net.schedule_command(b, at_millis(3), EchoCommand::PushEvent("too late"));
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, b), [event_at(20, "too late"), event_at(30, "in time")]);
}

#[test]
fn what_is_under_way_can_be_lost_as_a_whole() {
    let (mut net, a, b) = two_hosts(slow_channel());
    send_commands(&mut net, a, [connect_command()]);
    net.run_until_nothing_is_due();
    assert_eq!(net.connections(a).collect::<Vec<_>>(), [(ConnId::nth_opened_connection(0), b.number)]);
    send_commands(&mut net, a, [datagram_command(0, &[1]), stream_command(StreamOp::Data, &[2])]);
    net.schedule_command(b, at_millis(50), EchoCommand::PushEvent("mine"));
    net.drop_in_flight();
    net.run_until_nothing_is_due();
    assert_eq!(take_received(&mut net, b)[1..], [event_at(50, "mine")]);
}

/// Outputs of a direct call to a machine are carried out too.
#[test]
fn a_machine_may_be_called_by_itself() {
    let (mut net, a, b) = two_hosts(slow_channel());
    net[a].handle_command(at_millis(0), datagram_command(0, &[1])).unwrap();
    assert_eq!(net.next_due_time(), None);
    net.drain_hosts();
    assert_eq!(net.next_due_time(), Some(at_millis(10)));
    net.run_for(TEN);
    assert_eq!(net.recorded_events(b).len(), 1);
    assert_eq!(net[b].alarm, None);
}

#[test]
fn the_same_happens_each_time() {
    let run = |seed| {
        let channel = ChannelConfig {
            loss: LossModel::Bernoulli(0.3),
            jitter: TEN,
            reorder: 0.3,
            reorder_delay: TEN,
            duplicate: 0.3,
            ..slow_channel()
        };
        let (mut net, a, b) = two_hosts(channel);
        net.set_channel_seed(seed);
        (0..50).for_each(|_| send_commands(&mut net, a, [datagram_command(0, &[1])]));
        net.run_until_nothing_is_due();
        take_received(&mut net, b)
    };
    assert_eq!(run(0), run(0));
    assert!(run(0).len() > 20 && run(0) != run(1));
}
