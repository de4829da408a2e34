//! Runs a script: advances its clock, compares the results, and gives a verdict.

mod calls;
mod code;
mod sctp;
mod settings;
mod shell;
mod tcp;
mod world;

use crate::script::{EventTime, PacketBody, Script, ScriptAction, ScriptEvent, ScriptPacket, SystemCall};
use usher_core::{Duration, Instant};
use world::{CallResult, TestedHost};

/// The verdict on a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptVerdict {
    /// All expectations are met.
    Pass,
    /// A packet or result is different, missing, or at the wrong time.
    Diverges,
    /// The script needs a feature that this interpreter or the simulator does not have.
    Unsupported,
    /// The text is not a script, contradicts itself, or expects nothing.
    Suspect,
}

impl ScriptVerdict {
    /// Returns its name in the output.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Diverges => "diverges",
            Self::Unsupported => "unsupported",
            Self::Suspect => "suspect",
        }
    }
}

/// The verdict on a script, with its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptOutcome {
    /// The verdict.
    pub verdict: ScriptVerdict,
    /// The line that decides it. `None` for a script that passes.
    pub line: Option<u32>,
    /// The reason, a sentence. Empty for a script that passes.
    pub why: String,
}

/// Why a script cannot continue.
#[derive(Clone, Debug)]
pub(crate) enum ScriptFailure {
    Diverges(String),
    Unsupported(String),
    Suspect(String),
}

/// packetdrill's tolerance of times, unless the script sets one.
const TOLERANCE: Duration = Duration::from_micros(4000);
/// The longest wait of `*`, in virtual time.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Steps of the clock in one wait. More mean that a timer fires without end.
const MAX_STEPS: u32 = 1_000_000;

/// Runs a script in virtual time.
pub fn run_script(script: &Script) -> ScriptOutcome {
    let mut runner = match ScriptRunner::new(script) {
        Ok(runner) => runner,
        Err(stop) => return failure_outcome(stop, 1),
    };
    match runner.run_all(script) {
        Ok(()) if !runner.expected => ScriptOutcome {
            verdict: ScriptVerdict::Suspect,
            line: None,
            why: "it expects nothing, so nothing was shown".to_owned(),
        },
        Ok(()) => ScriptOutcome { verdict: ScriptVerdict::Pass, line: None, why: String::new() },
        Err(stop) => failure_outcome(stop, runner.line),
    }
}

fn failure_outcome(stop: ScriptFailure, line: u32) -> ScriptOutcome {
    let (verdict, why) = match stop {
        ScriptFailure::Diverges(why) => (ScriptVerdict::Diverges, why),
        ScriptFailure::Unsupported(why) => (ScriptVerdict::Unsupported, why),
        ScriptFailure::Suspect(why) => (ScriptVerdict::Suspect, why),
    };
    ScriptOutcome { verdict, line: Some(line), why }
}

/// A call that has not returned.
struct PendingCall {
    line: u32,
    call: SystemCall,
    until: Instant,
}

struct ScriptRunner {
    world: TestedHost,
    begin: Instant,
    tolerance: Duration,
    /// The last absolute time of an event.
    last: Instant,
    pending: Option<PendingCall>,
    line: u32,
    /// True if a packet or result was compared with the script.
    expected: bool,
}

impl ScriptRunner {
    fn new(script: &Script) -> Result<Self, ScriptFailure> {
        let number = |name: &str, default: u64| match script.option_value(name) {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|_| ScriptFailure::Suspect(format!("--{name}={text} is no number")))
            }
        };
        let ipv6 = match script.option_value("ip_version") {
            None | Some("ipv4") => false,
            Some("ipv6") => true,
            Some(other) => return Err(ScriptFailure::Unsupported(format!("--ip_version={other}"))),
        };
        let mtu = number("mtu", 1500)?.min(65_535) as u32;
        let tolerance = Duration::from_micros(number("tolerance_usecs", TOLERANCE.as_micros())?);
        // The clock starts late enough that our timestamps are never zero.
        let begin = Instant::ZERO + Duration::from_secs(1000);
        let world = TestedHost::new(begin, ipv6, mtu);
        Ok(Self { world, begin, tolerance, last: begin, pending: None, line: 1, expected: false })
    }

    fn run_all(&mut self, script: &Script) -> Result<(), ScriptFailure> {
        for command in &script.set_up {
            self.world.run_shell(command)?;
        }
        for event in &script.events {
            self.line = event.line;
            self.run_event(event)?;
            self.retry_pending()?;
        }
        self.finish_pending()
    }

    fn run_event(&mut self, event: &ScriptEvent) -> Result<(), ScriptFailure> {
        if let ScriptAction::Packet(packet) = &event.action
            && packet.outbound
        {
            return self.expect_packet(event.time, packet);
        }
        if matches!(event.action, ScriptAction::Call(_)) {
            self.finish_pending()?;
            self.line = event.line;
        }
        let (at, _) = self.time_window(event.time)?;
        if at + self.tolerance < self.world.now {
            return Err(ScriptFailure::Diverges(format!(
                "its time had passed {} before",
                format_millis(self.world.now - at)
            )));
        }
        self.advance_clock(at)?;
        match &event.action {
            ScriptAction::Packet(packet) => self.inject_packet(packet),
            ScriptAction::Call(call) => self.run_call(event, call),
            ScriptAction::Command(command) => self.world.run_shell(command),
            ScriptAction::Code(code) => {
                self.expected = true;
                self.world.check_code(code)
            }
        }
    }

    /// Returns the earliest and the latest time of an event.
    fn time_window(&mut self, time: EventTime) -> Result<(Instant, Instant), ScriptFailure> {
        let micros = Duration::from_micros;
        let (relative, from, to) = match time {
            EventTime::Any => return Ok((self.world.now, self.world.now + MAX_WAIT)),
            EventTime::Exact { relative, offset: at, .. } => (relative, at, at),
            EventTime::Between { relative, from, to } => (relative, from, to),
        };
        if from > to {
            return Err(ScriptFailure::Suspect("its time ends before it begins".to_owned()));
        }
        if relative {
            return Ok((self.world.now + micros(from), self.world.now + micros(to)));
        }
        let at = self.begin + micros(from);
        if at < self.last {
            return Err(ScriptFailure::Suspect("its time is before that of the event before".to_owned()));
        }
        self.last = at;
        Ok((at, self.begin + micros(to)))
    }

    fn inject_packet(&mut self, packet: &ScriptPacket) -> Result<(), ScriptFailure> {
        if let Some(word) = packet.ip.iter().find(|w| *w == "ce") {
            return Err(ScriptFailure::Unsupported(format!("a packet marked [{word}]")));
        }
        if let Some((source, destination)) = packet.addresses {
            if source.is_multicast() || destination.is_multicast() {
                // RFC 1122, 3.2.1.3, and RFC 9260, 8.4: a host drops such a packet.
                return Ok(());
            }
            return Err(ScriptFailure::Unsupported("packets between addresses that are named".to_owned()));
        }
        match &packet.body {
            PacketBody::Tcp(segment) => self.world.inject_tcp(segment, packet.udp),
            PacketBody::Icmp(error) => {
                self.world.inject_icmp(error);
                Ok(())
            }
            PacketBody::Sctp(packet) => self.world.inject_sctp(packet),
            PacketBody::Other(name) => Err(ScriptFailure::Unsupported(format!("packets of {name}"))),
        }
    }

    fn expect_packet(&mut self, time: EventTime, packet: &ScriptPacket) -> Result<(), ScriptFailure> {
        if let PacketBody::Other(name) = &packet.body {
            return Err(ScriptFailure::Unsupported(format!("packets of {name}")));
        }
        if packet.addresses.is_some() || matches!(packet.body, PacketBody::Icmp(_)) {
            return Err(ScriptFailure::Unsupported(format!(
                "{} that is to be sent",
                world::format_packet(packet)
            )));
        }
        self.expected = true;
        let (earliest, latest) = self.time_window(time)?;
        let last = latest + self.tolerance;
        let mut steps = 0;
        while self.world.wire.is_empty() {
            match self.world.next_timeout() {
                Some(at) if at <= last => self.step_clock(at, &mut steps)?,
                _ => {
                    self.advance_clock(last.min(self.world.now + MAX_WAIT))?;
                    let wanted = world::format_packet(packet);
                    return Err(ScriptFailure::Diverges(format!("nothing is sent; expected is {wanted}")));
                }
            }
        }
        let Some(sent) = self.world.wire.pop_front() else { return Ok(()) };
        self.world.compare_packet(packet, &sent)?;
        let at = sent.sent_at;
        if at + self.tolerance < earliest && time != EventTime::Any {
            return Err(ScriptFailure::Diverges(format!(
                "it is sent {} early",
                format_millis(earliest - at)
            )));
        }
        if last < at {
            return Err(ScriptFailure::Diverges(format!("it is sent {} late", format_millis(at - latest))));
        }
        Ok(())
    }

    fn run_call(&mut self, event: &ScriptEvent, call: &SystemCall) -> Result<(), ScriptFailure> {
        let returned = self.world.make_call(call, false)?;
        if let (CallResult::Blocks, EventTime::Exact { relative, until: Some(until), .. }) =
            (&returned, event.time)
        {
            // Both ends of a relative range count from the previous event.
            let EventTime::Exact { offset: at, .. } = event.time else { return Ok(()) };
            let until = Duration::from_micros(until);
            let until = match relative {
                true => self.world.now + until.saturating_sub(Duration::from_micros(at)),
                false => self.begin + until,
            };
            self.pending = Some(PendingCall { line: event.line, call: call.clone(), until });
            return Ok(());
        }
        self.expected |= call.name != "close";
        calls::check_result(call, &returned)
    }

    /// Completes a pending call, if possible.
    fn retry_pending(&mut self) -> Result<(), ScriptFailure> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let line = std::mem::replace(&mut self.line, pending.line);
        let returned = self.world.make_call(&pending.call, true)?;
        let now = self.world.now;
        if matches!(returned, CallResult::Blocks) {
            if pending.until + self.tolerance < now {
                return Err(ScriptFailure::Diverges(format!("{}() has not come back", pending.call.name)));
            }
            self.pending = Some(pending);
        } else {
            self.expected = true;
            calls::check_result(&pending.call, &returned)?;
            if now + self.tolerance < pending.until {
                let early = format_millis(pending.until - now);
                return Err(ScriptFailure::Diverges(format!(
                    "{}() comes back {early} early",
                    pending.call.name
                )));
            }
        }
        self.line = line;
        Ok(())
    }

    fn finish_pending(&mut self) -> Result<(), ScriptFailure> {
        let mut steps = 0;
        while let Some(pending) = &self.pending {
            let end = pending.until + self.tolerance + Duration::from_nanos(1);
            let next = self.world.next_timeout().unwrap_or(end).min(end);
            self.step_clock(next, &mut steps)?;
        }
        Ok(())
    }

    /// Moves the clock forward to `at` and fires the timers that are due.
    fn step_clock(&mut self, at: Instant, steps: &mut u32) -> Result<(), ScriptFailure> {
        *steps += 1;
        if *steps > MAX_STEPS {
            return Err(ScriptFailure::Diverges("timers fire without end".to_owned()));
        }
        self.world.now = self.world.now.max(at);
        self.world.fire_timers();
        self.retry_pending()
    }

    fn advance_clock(&mut self, to: Instant) -> Result<(), ScriptFailure> {
        let mut steps = 0;
        while let Some(at) = self.world.next_timeout().filter(|at| *at <= to) {
            self.step_clock(at, &mut steps)?;
        }
        self.world.now = self.world.now.max(to);
        self.retry_pending()
    }
}

/// Formats a duration for people.
fn format_millis(d: Duration) -> String {
    format!("{:.3} ms", d.as_nanos() as f64 / 1e6)
}
