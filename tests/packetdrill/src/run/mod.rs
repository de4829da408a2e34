//! Runs a script: its clock, what it expects, and what it makes of the answer.

mod calls;
mod code;
mod sctp;
mod settings;
mod shell;
mod tcp;
mod world;

use crate::script::{Action, Body, Call, Event, Packet, Script, Time};
use usher_core::{Duration, Instant};
use world::{Returned, World};

/// What became of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All that it expects came.
    Pass,
    /// Something else came, or nothing, or at another time.
    Diverges,
    /// It uses what this interpreter or the simulator does not have.
    Unsupported,
    /// It is no script, contradicts itself, or expects nothing.
    Suspect,
}

impl Verdict {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Diverges => "diverges",
            Self::Unsupported => "unsupported",
            Self::Suspect => "suspect",
        }
    }
}

/// What became of a script, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The line where it was decided; `None` for a script that passes.
    pub line: Option<u32>,
    /// A sentence; empty for a script that passes.
    pub why: String,
}

/// Why a script goes no further.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    Diverges(String),
    Unsupported(String),
    Suspect(String),
}

/// How far a time may be off where the script does not say; packetdrill's.
const TOLERANCE: Duration = Duration::from_micros(4000);
/// How long `*` waits at most, in virtual time.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Steps of the clock in one wait: more means that a timer fires without end.
const MAX_STEPS: u32 = 1_000_000;

/// Runs a script in virtual time.
pub fn run(script: &Script) -> Outcome {
    let mut runner = match Runner::new(script) {
        Ok(runner) => runner,
        Err(stop) => return outcome(stop, 1),
    };
    match runner.all(script) {
        Ok(()) if !runner.expected => Outcome {
            verdict: Verdict::Suspect,
            line: None,
            why: "it expects nothing, so nothing was shown".to_owned(),
        },
        Ok(()) => Outcome { verdict: Verdict::Pass, line: None, why: String::new() },
        Err(stop) => outcome(stop, runner.line),
    }
}

fn outcome(stop: Stop, line: u32) -> Outcome {
    let (verdict, why) = match stop {
        Stop::Diverges(why) => (Verdict::Diverges, why),
        Stop::Unsupported(why) => (Verdict::Unsupported, why),
        Stop::Suspect(why) => (Verdict::Suspect, why),
    };
    Outcome { verdict, line: Some(line), why }
}

/// A call that has not come back.
struct Pending {
    line: u32,
    call: Call,
    until: Instant,
}

struct Runner {
    world: World,
    begin: Instant,
    tolerance: Duration,
    /// The script's time of the event before, where it was absolute.
    last: Instant,
    pending: Option<Pending>,
    line: u32,
    /// A packet or a call's result was held against the script.
    expected: bool,
}

impl Runner {
    fn new(script: &Script) -> Result<Self, Stop> {
        let number = |name: &str, default: u64| match script.option(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| Stop::Suspect(format!("--{name}={text} is no number"))),
        };
        let ipv6 = match script.option("ip_version") {
            None | Some("ipv4") => false,
            Some("ipv6") => true,
            Some(other) => return Err(Stop::Unsupported(format!("--ip_version={other}"))),
        };
        let mtu = number("mtu", 1500)?.min(65_535) as u32;
        let tolerance = Duration::from_micros(number("tolerance_usecs", TOLERANCE.as_micros())?);
        // The clock begins late enough that a timestamp of zero is none of ours.
        let begin = Instant::ZERO + Duration::from_secs(1000);
        let world = World::new(begin, ipv6, mtu);
        Ok(Self { world, begin, tolerance, last: begin, pending: None, line: 1, expected: false })
    }

    fn all(&mut self, script: &Script) -> Result<(), Stop> {
        for command in &script.set_up {
            self.world.shell(command)?;
        }
        for event in &script.events {
            self.line = event.line;
            self.event(event)?;
            self.settle()?;
        }
        self.finish_pending()
    }

    fn event(&mut self, event: &Event) -> Result<(), Stop> {
        if let Action::Packet(packet) = &event.action
            && packet.outbound
        {
            return self.expect(event.time, packet);
        }
        if matches!(event.action, Action::Call(_)) {
            self.finish_pending()?;
            self.line = event.line;
        }
        let (at, _) = self.window(event.time)?;
        if at + self.tolerance < self.world.now {
            return Err(Stop::Diverges(format!("its time had passed {} before", ms(self.world.now - at))));
        }
        self.advance(at)?;
        match &event.action {
            Action::Packet(packet) => self.inject(packet),
            Action::Call(call) => self.call(event, call),
            Action::Command(command) => self.world.shell(command),
            Action::Code(code) => {
                self.expected = true;
                self.world.code(code)
            }
        }
    }

    /// The earliest and latest time that is meant.
    fn window(&mut self, time: Time) -> Result<(Instant, Instant), Stop> {
        let micros = Duration::from_micros;
        let (relative, from, to) = match time {
            Time::Any => return Ok((self.world.now, self.world.now + PATIENCE)),
            Time::At { relative, at, .. } => (relative, at, at),
            Time::Between { relative, from, to } => (relative, from, to),
        };
        if from > to {
            return Err(Stop::Suspect("its time ends before it begins".to_owned()));
        }
        if relative {
            return Ok((self.world.now + micros(from), self.world.now + micros(to)));
        }
        let at = self.begin + micros(from);
        if at < self.last {
            return Err(Stop::Suspect("its time is before that of the event before".to_owned()));
        }
        self.last = at;
        Ok((at, self.begin + micros(to)))
    }

    fn inject(&mut self, packet: &Packet) -> Result<(), Stop> {
        if let Some(word) = packet.ip.iter().find(|w| *w == "ce") {
            return Err(Stop::Unsupported(format!("a packet marked [{word}]")));
        }
        if let Some((source, destination)) = packet.addresses {
            if source.is_multicast() || destination.is_multicast() {
                // RFC 1122, 3.2.1.3, and RFC 9260, 8.4: a host drops it.
                return Ok(());
            }
            return Err(Stop::Unsupported("packets between addresses that are named".to_owned()));
        }
        match &packet.body {
            Body::Tcp(segment) => self.world.inject_tcp(segment, packet.udp),
            Body::Icmp(error) => {
                self.world.inject_icmp(error);
                Ok(())
            }
            Body::Sctp(packet) => self.world.inject_sctp(packet),
            Body::Other(name) => Err(Stop::Unsupported(format!("packets of {name}"))),
        }
    }

    fn expect(&mut self, time: Time, packet: &Packet) -> Result<(), Stop> {
        if let Body::Other(name) = &packet.body {
            return Err(Stop::Unsupported(format!("packets of {name}")));
        }
        if packet.addresses.is_some() || matches!(packet.body, Body::Icmp(_)) {
            return Err(Stop::Unsupported(format!("{} that is to be sent", world::show(packet))));
        }
        self.expected = true;
        let (earliest, latest) = self.window(time)?;
        let last = latest + self.tolerance;
        let mut steps = 0;
        while self.world.wire.is_empty() {
            match self.world.next_timeout() {
                Some(at) if at <= last => self.step(at, &mut steps)?,
                _ => {
                    self.advance(last.min(self.world.now + PATIENCE))?;
                    let wanted = world::show(packet);
                    return Err(Stop::Diverges(format!("nothing is sent; expected is {wanted}")));
                }
            }
        }
        let Some(sent) = self.world.wire.pop_front() else { return Ok(()) };
        self.world.compare(packet, &sent)?;
        let at = sent.at;
        if at + self.tolerance < earliest && time != Time::Any {
            return Err(Stop::Diverges(format!("it is sent {} early", ms(earliest - at))));
        }
        if last < at {
            return Err(Stop::Diverges(format!("it is sent {} late", ms(at - latest))));
        }
        Ok(())
    }

    fn call(&mut self, event: &Event, call: &Call) -> Result<(), Stop> {
        let returned = self.world.call(call, false)?;
        if let (Returned::Blocks, Time::At { relative, until: Some(until), .. }) = (&returned, event.time) {
            // Both times of a relative range count from the event before, as the first does.
            let Time::At { at, .. } = event.time else { return Ok(()) };
            let until = Duration::from_micros(until);
            let until = match relative {
                true => self.world.now + until.saturating_sub(Duration::from_micros(at)),
                false => self.begin + until,
            };
            self.pending = Some(Pending { line: event.line, call: call.clone(), until });
            return Ok(());
        }
        self.expected |= call.name != "close";
        calls::check(call, &returned)
    }

    /// Lets a pending call come back, if it can.
    fn settle(&mut self) -> Result<(), Stop> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let line = std::mem::replace(&mut self.line, pending.line);
        let returned = self.world.call(&pending.call, true)?;
        let now = self.world.now;
        if matches!(returned, Returned::Blocks) {
            if pending.until + self.tolerance < now {
                return Err(Stop::Diverges(format!("{}() has not come back", pending.call.name)));
            }
            self.pending = Some(pending);
        } else {
            self.expected = true;
            calls::check(&pending.call, &returned)?;
            if now + self.tolerance < pending.until {
                let early = ms(pending.until - now);
                return Err(Stop::Diverges(format!("{}() comes back {early} early", pending.call.name)));
            }
        }
        self.line = line;
        Ok(())
    }

    fn finish_pending(&mut self) -> Result<(), Stop> {
        let mut steps = 0;
        while let Some(pending) = &self.pending {
            let end = pending.until + self.tolerance + Duration::from_nanos(1);
            let next = self.world.next_timeout().unwrap_or(end).min(end);
            self.step(next, &mut steps)?;
        }
        Ok(())
    }

    /// Moves the clock to `at`, or leaves it where it is later, and fires what is due.
    fn step(&mut self, at: Instant, steps: &mut u32) -> Result<(), Stop> {
        *steps += 1;
        if *steps > MAX_STEPS {
            return Err(Stop::Diverges("timers fire without end".to_owned()));
        }
        self.world.now = self.world.now.max(at);
        self.world.fire();
        self.settle()
    }

    fn advance(&mut self, to: Instant) -> Result<(), Stop> {
        let mut steps = 0;
        while let Some(at) = self.world.next_timeout().filter(|at| *at <= to) {
            self.step(at, &mut steps)?;
        }
        self.world.now = self.world.now.max(to);
        self.settle()
    }
}

/// A duration for people.
fn ms(d: Duration) -> String {
    format!("{:.3} ms", d.as_nanos() as f64 / 1e6)
}
