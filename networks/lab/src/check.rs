//! The features of this machine for a lab, and the precision of a lab on it.

use crate::error::{ErrorContext, LabError};
use crate::relay::{DelayStats, LATEST, RelayReport, delay_stats};
use crate::topology::{HostSpec, LabTopology, LinkEnd, LinkSpec};
use crate::{Lab, LabRegistry, acquire_rights, sys};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_getres};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::Duration as Elapsed;
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Seed};
use usher_live::SystemClock;
use usher_sim::{LinkConfig, LinkFraming};

/// A feature that a lab needs or can use.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct LabFeature {
    /// The name.
    pub name: &'static str,
    /// True if a lab cannot do without it.
    pub needed: bool,
    /// True if the machine has it.
    pub there: bool,
    /// Its version, its purpose, or why it is missing.
    pub detail: String,
}

/// The delay of datagrams beyond their link's delay.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct DelayMeasurement {
    /// The rate, in datagrams per second.
    pub rate: u32,
    /// The link's delay in seconds.
    pub delay: f64,
    /// The delay from the sending to the receiving program, less the link's delay. It includes the kernel's path and
    /// the scheduling of the programs. Datagrams that the receiving program was too late to take are not counted.
    pub programs: DelayStats,
    /// The relay's report, with its own share of the delay.
    pub relay: RelayReport,
}

/// Lists the features of this machine. Without the rights to build a lab, lists only the others.
///
/// A process without root must call this before it has threads, as for [`acquire_rights`].
#[must_use]
pub fn check_features(registry: &LabRegistry) -> Vec<LabFeature> {
    let rights = acquire_rights();
    let mut offers = Vec::new();
    let mut add = |name, needed, result: Result<String, String>| {
        let there = result.is_ok();
        offers.push(LabFeature { name, needed, there, detail: result.unwrap_or_else(|why| why) });
    };
    add("network namespaces", true, rights.as_ref().map(|r| format!("by {r}")).map_err(ToString::to_string));
    let tried = match rights {
        Ok(_) => run_small_lab(registry).map_err(|e| e.to_string()),
        Err(_) => Err("not tried: it needs network namespaces".to_owned()),
    };
    add(
        "veth links and packet rings",
        true,
        tried.as_ref().map(|_| "for the links".to_owned()).map_err(Clone::clone),
    );
    add(
        "IPv6",
        false,
        Path::new("/proc/sys/net/ipv6")
            .exists()
            .then(|| "for studies with IPv6".to_owned())
            .ok_or_else(|| "the kernel has no IPv6: only studies with IPv4 can run".to_owned()),
    );
    let turn = match &tried {
        Ok(report) if report.real_time => Ok("the relay runs before all other threads".to_owned()),
        Ok(_) => Err("no right to use SCHED_FIFO: the relay is late when the machine is busy".to_owned()),
        Err(why) => Err(why.clone()),
    };
    add("real-time turn", false, turn);
    add("timers of high resolution", false, check_clock_resolution());
    add("SCTP", false, check_sctp());
    add(
        "cycle counter",
        false,
        sys::probe_cycle_counter()
            .map(|()| "perf can count cycles".to_owned())
            .map_err(|e| format!("perf counts no cycles: {e}")),
    );
    offers
}

fn check_clock_resolution() -> Result<String, String> {
    let resolution = clock_getres(ClockId::Monotonic);
    let nanoseconds = resolution.tv_sec.saturating_mul(1_000_000_000).saturating_add(resolution.tv_nsec as _);
    let text = format!("{nanoseconds} ns");
    if nanoseconds <= 1000 { Ok(text) } else { Err(format!("{text}: delays are no finer than this")) }
}

fn check_sctp() -> Result<String, String> {
    let protocol = socket2::Protocol::from(libc::IPPROTO_SCTP);
    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, Some(protocol))
        .map(|_| "the kernel supports it".to_owned())
        .map_err(|e| format!("the kernel does not support it: {e}"))
}

/// Two hosts with a link of this delay.
fn two_host_topology(delay: Duration) -> LabTopology {
    let channel = ChannelConfig { delay, ..Default::default() };
    let host = |n: u8| HostSpec {
        name: format!("host-{n}"),
        addresses: vec![ADDRESSES[usize::from(n)].into()],
        settings: Vec::new(),
        initial_window: None,
        quick_ack: false,
    };
    LabTopology {
        name: "usher lab check".to_owned(),
        seed: Seed::new(1),
        hosts: (0..2).map(host).collect(),
        links: vec![LinkSpec {
            name: "link".to_owned(),
            ends: [LinkEnd::for_host(0), LinkEnd::for_host(1)],
            config: LinkConfig {
                up: channel.clone(),
                down: channel,
                mtu: 1500,
                framing: LinkFraming::Ethernet,
            },
            capture: [None; 2],
        }],
    }
}

/// The addresses of the two hosts, from a network for documentation (RFC 5737).
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

const PORT: u16 = 9000;

/// The link's delay in the measurement.
const DELAY: Duration = Duration::from_millis(5);

/// Runs a lab of two hosts in which one datagram crosses the link.
fn run_small_lab(registry: &LabRegistry) -> Result<RelayReport, LabError> {
    Ok(measure_precision(registry, 1000, 1)?.relay)
}

/// Sends this many datagrams over a link of 5 ms in a lab of two hosts, at this rate per second, and measures their
/// delay.
///
/// # Errors
/// [`LabError`], also if a datagram does not arrive.
pub fn measure_precision(
    registry: &LabRegistry,
    rate: u32,
    count: u32,
) -> Result<DelayMeasurement, LabError> {
    let mut lab = Lab::build(two_host_topology(DELAY), registry)?;
    let clock = SystemClock::start();
    lab.start_relay(clock, None)?;
    let bind = |host: usize| {
        let bound = lab.namespace(host).run_inside(|| UdpSocket::bind((ADDRESSES[host], PORT)))?;
        bound.with_context(|| format!("bind a socket on host {host}"))
    };
    let (from, to) = (bind(0)?, bind(1)?);
    to.set_read_timeout(Some(Elapsed::from_secs(10))).with_context(|| "set a socket's timeout".to_owned())?;
    let receiver = std::thread::Builder::new().name("lab-check".to_owned());
    let receiver = receiver
        .spawn(move || measure_delays(&to, clock, count))
        .with_context(|| "start a thread".to_owned())?;
    // Send several at a time if the period is shorter than a thread can sleep.
    let period = Elapsed::from_millis(1).max(Elapsed::from_secs(1) / rate.max(1));
    let at_once = (f64::from(rate) * period.as_secs_f64()).round().max(1.0) as u32;
    let (begin, mut sent) = (std::time::Instant::now(), 0);
    while sent < count {
        for _ in 0..at_once.min(count - sent) {
            let stamp = clock.now().as_nanos().to_be_bytes();
            from.send_to(&stamp, (ADDRESSES[1], PORT)).with_context(|| "send a datagram".to_owned())?;
            sent += 1;
        }
        let due = begin + period * (sent / at_once);
        std::thread::sleep(due.saturating_duration_since(std::time::Instant::now()));
    }
    let received = receiver.join().map_err(|_| LabError::Ended("receiver"))?;
    let programs = delay_stats(&received.with_context(|| "receive a datagram".to_owned())?);
    let relay = lab.stop_relay()?.map(|o| o.relay).unwrap_or_default();
    Ok(DelayMeasurement { rate, delay: DELAY.as_secs_f64(), programs, relay })
}

/// Measures the delay of each datagram beyond the link's delay. On a busy machine a socket buffer may overflow: lost
/// datagrams are not counted.
fn measure_delays(socket: &UdpSocket, clock: SystemClock, count: u32) -> io::Result<Histogram<u64>> {
    let mut late = Histogram::new_with_bounds(1, LATEST, 3).map_err(io::Error::other)?;
    let mut stamp = [0; 8];
    for _ in 0..count {
        match socket.recv(&mut stamp) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !late.is_empty() => break,
            Err(error) => return Err(error),
        }
        let took = clock.now().as_nanos().saturating_sub(u64::from_be_bytes(stamp));
        late.saturating_record(took.saturating_sub(DELAY.as_nanos()));
    }
    Ok(late)
}
