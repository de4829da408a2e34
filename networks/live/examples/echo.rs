//! Measures the cost of the driver: a machine that echoes datagrams, and a client that keeps a number of
//! datagrams in flight. Each has a processor of its own.
//!
//! ```text
//! cargo run --release -p usher-live --example echo -- [SECONDS] [OCTETS] [UNDER WAY] [SOCKETS]
//! ```
//! For both ends it prints the number of received datagrams, the average batch, and the processor time of a
//! received and a sent datagram, in user and kernel mode.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use usher_core::{
    CommandError, DatagramPath, Instant, JobRequest, Machine, MachineInput, MachineOutput, MachineOutputOf,
    NoJob, SocketId, Transmit,
};
use usher_live::{
    Driver, DriverCounterSnapshot, DriverRole, DriverSockets, SocketOptions, SystemClock, bind_udp,
    number_sockets, spawn_shard, thread_cpu_time,
};

/// Echoes datagrams.
#[derive(Default)]
struct EchoMachine {
    out: Vec<(DatagramPath, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    end: Option<Instant>,
    is_finished: bool,
}

impl EchoMachine {
    fn queue_echo(&mut self, path: DatagramPath, data: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(data);
        self.out.push((path, copy));
    }
}

impl Machine for EchoMachine {
    type Command = ();
    type Event = ();
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Datagram { path, data } if !self.is_finished => self.queue_echo(path, data),
            MachineInput::Timeout => self.is_finished |= self.end.is_some_and(|end| now >= end),
            _ => {}
        }
    }

    fn handle_command(&mut self, _: Instant, (): ()) -> Result<(), CommandError> {
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        let (path, data) = self.out.pop()?;
        buf.clear();
        buf.extend_from_slice(&data);
        self.spare.push(data);
        Some(MachineOutput::Transmit(Transmit::Datagram { path }))
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.end.filter(|_| !self.is_finished)
    }
}

struct EchoRole {
    echo: EchoMachine,
    has_stopped: bool,
}

impl DriverRole for EchoRole {
    type Machine = EchoMachine;
    type Message = ();

    fn machine(&mut self) -> &mut EchoMachine {
        &mut self.echo
    }
    fn on_event(&mut self, _: Instant, (): ()) {}
    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }
    fn on_message(&mut self, _: Instant, (): ()) {
        self.has_stopped = true;
    }
    fn is_stopped(&self) -> bool {
        self.has_stopped || self.echo.is_finished
    }
}

fn print_counts(side: &str, counts: &DriverCounterSnapshot, wall: Duration, processor: Duration) {
    let pairs = counts.datagrams_in.max(1) as f64;
    println!(
        "{side}: {} datagrams in, {:.0} /s; {:.1} a batch in, {:.1} out; {:.2} us of processor time each; {:.0} % busy",
        counts.datagrams_in,
        pairs / wall.as_secs_f64(),
        pairs / counts.batches_in.max(1) as f64,
        counts.datagrams_out as f64 / counts.batches_out.max(1) as f64,
        processor.as_secs_f64() * 1e6 / pairs,
        100.0 * processor.as_secs_f64() / wall.as_secs_f64(),
    );
    let lost = counts.send_full + counts.send_errors + counts.receive_errors + counts.no_socket;
    if lost > 0 {
        println!("{side}: {lost} lost");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> =
        std::env::args().skip(1).map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let argument = |i: usize, otherwise| arguments.get(i).copied().unwrap_or(otherwise);
    let (seconds, octets) = (argument(0, 3), usize::try_from(argument(1, 150))?);
    let (under_way, sockets) = (argument(2, 512), u32::try_from(argument(3, 8))?.max(1));

    let socket = bind_udp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &SocketOptions::default())?;
    let server = socket.local_addr()?;
    let clock = SystemClock::start();
    let node = EchoRole { echo: EchoMachine::default(), has_stopped: false };
    let (driver, stop) =
        Driver::new(node, DriverSockets { udp: number_sockets([socket]), ..DriverSockets::default() }, clock);
    let counted = driver.counters();
    let serving = spawn_shard("server", Some(0), move || async move {
        let result = driver.run().await;
        (result.map(drop), thread_cpu_time())
    })?;

    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let mut echo = EchoMachine {
        end: Some(clock.now() + usher_core::Duration::from_secs(seconds)),
        ..EchoMachine::default()
    };
    for n in 0..under_way {
        let socket = SocketId::from_number(u32::try_from(n)? % sockets);
        echo.queue_echo(DatagramPath { socket, local: any, remote: server }, &vec![0; octets]);
    }
    let (driver, _) = Driver::new(EchoRole { echo, has_stopped: false }, DriverSockets::default(), clock);
    let asked = driver.counters();
    let begun = std::time::Instant::now();
    let core = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
    let asking = spawn_shard("client", Some(core), move || async move {
        let result = driver.run().await;
        (result.map(drop), thread_cpu_time())
    })?;
    let panicked = |_| io::Error::other("a side panicked");
    let (result, client) = asking.join().map_err(panicked)?;
    result?;
    let wall = begun.elapsed();
    stop.send(());
    let (result, processor) = serving.join().map_err(panicked)?;
    result?;
    print_counts("server", &counted.read(), wall, processor);
    print_counts("client", &asked.read(), wall, client);
    Ok(())
}
