//! Message-flow figures: the messages of one dialogue between its hosts, read from the packets of a run.
//!
//! A run of one replication is observed at both ends of its links. It takes one dialogue of the first
//! member of each host group. The figure shows the packets between these hosts while the dialogue ran, each from its
//! sender to its receiver across all hops. On shared links, User-Name and Session-Id tell the messages of other users,
//! which are left out.

mod follow;
mod name;
mod packet;
mod stream;
#[cfg(test)]
mod tests;

use crate::sweep::RunError;
use crate::world::{ObservedDialogue, RunObservation, ScenarioRun};
use follow::UserMessageFilter;
use name::{MessageLabel, MessageOwner};
use packet::{ParsedPacket, TransportPayload};
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stream::TransportStreamTable;
use usher_core::{Duration, Instant};
use usher_report::{FlowMessage, MessageFlow};
use usher_scenario::PlanPoint;
use usher_sim::PacketTap;

/// Limit to the kept octets of packets.
const MOST_OCTETS: usize = 256 << 20;
/// Limit to the messages of a figure.
const MOST_MESSAGES: usize = 120;

/// Returns the messages of one dialogue of one replication of a point; `None` if no dialogue of a first host ended.
///
/// # Errors
/// The point cannot be run, or `stop` ended the run.
pub fn record_message_flow(
    point: &PlanPoint,
    replication: u32,
    stop: Option<&Arc<AtomicBool>>,
) -> Result<Option<MessageFlow>, RunError> {
    let tap = Box::<PacketTrace>::default() as Box<dyn PacketTap>;
    let world =
        ScenarioRun::observe_on_simulator(&point.scenario, point.replication_seed(replication), Some(tap))
            .map_err(RunError::new)?;
    let watched = world.with_stop_flag(stop).run_to_end().map_err(RunError::new)?.watched;
    let Some(mut watched) = watched else { return Ok(None) };
    let tap = watched.tap.take().and_then(|tap| tap.into_any().downcast::<PacketTrace>().ok());
    Ok(tap.and_then(|seen| extract_message_flow(&watched, &seen)))
}

/// The packets seen at the ends of links.
#[derive(Debug, Default)]
struct PacketTrace {
    octets: Vec<u8>,
    packets: Vec<TracedPacket>,
}

#[derive(Clone, Copy, Debug)]
struct TracedPacket {
    observed_at: Instant,
    port: u16,
    outward: bool,
    /// Where its octets end; they begin where those of the previous packet end.
    end: usize,
}

impl PacketTap for PacketTrace {
    fn capture_packet(&mut self, at: Instant, port: u16, outward: bool, bytes: &[u8]) {
        if self.octets.len() + bytes.len() <= MOST_OCTETS {
            self.octets.extend_from_slice(bytes);
            self.packets.push(TracedPacket { observed_at: at, port, outward, end: self.octets.len() });
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl PacketTrace {
    fn iter_packets(&self) -> impl Iterator<Item = (&TracedPacket, &[u8])> {
        let begins = std::iter::once(0).chain(self.packets.iter().map(|s| s.end));
        self.packets.iter().zip(begins).map(|(sighting, begin)| (sighting, &self.octets[begin..sighting.end]))
    }
}

/// A packet on its way from one host to another.
struct PacketFlight {
    sent: Instant,
    arrived: Option<Instant>,
    from: usize,
    to: usize,
    octets: usize,
    labels: Vec<MessageLabel>,
    /// True if the same packet was sent before.
    is_retransmission: bool,
}

/// Returns the dialogue to show. It prefers successful dialogues, then those whose messages have names, then counted
/// ones, then the first. A host's session may be set up once, before the counted time.
fn choose_dialogue<'a>(visible: impl Iterator<Item = &'a ObservedDialogue>) -> Option<&'a ObservedDialogue> {
    visible.min_by_key(|d| (!d.completed, d.data, !d.counts, d.started_at))
}

fn extract_message_flow(watched: &RunObservation, seen: &PacketTrace) -> Option<MessageFlow> {
    let visible = || watched.dialogues.iter().filter(|d| d.host_index.is_some());
    let dialogue = choose_dialogue(visible())?;
    // Include a short time after the dialogue's end, for keys, acknowledgements and the first accounting record.
    let took = dialogue.ended_at.duration_since(dialogue.started_at);
    let next = visible()
        .filter(|d| d.host_index == dialogue.host_index && d.started_at > dialogue.started_at)
        .map(|d| d.started_at)
        .min();
    let last = (dialogue.ended_at + Duration::from_nanos(took.as_nanos() / 2))
        .min(next.unwrap_or(Instant::FAR_FUTURE));
    let flights = collect_flights(watched, seen, last);
    let mut follow = UserMessageFilter::default();
    let within = flights.into_iter().filter(|f| f.sent >= dialogue.started_at && f.sent <= last);
    let mut of_dialogue: Vec<PacketFlight> =
        within.filter(|flight| flight.labels.iter().all(|n| follow.accepts_message(n, flight))).collect();
    let named = |flight: &PacketFlight| flight.labels.iter().any(|n| n.owner != MessageOwner::Data);
    let mut left_out = 0;
    if of_dialogue.iter().any(named) {
        let all = of_dialogue.len();
        of_dialogue.retain(named);
        left_out = all - of_dialogue.len();
    }
    let more = of_dialogue.len().saturating_sub(MOST_MESSAGES);
    of_dialogue.truncate(MOST_MESSAGES);
    Some(build_message_flow(watched, dialogue, &of_dialogue, [left_out, more]))
}

/// Returns the packets between hosts that were sent until `last`, in the order of sending.
fn collect_flights(watched: &RunObservation, seen: &PacketTrace, last: Instant) -> Vec<PacketFlight> {
    let addresses: BTreeMap<IpAddr, usize> = watched
        .hosts
        .iter()
        .enumerate()
        .flat_map(|(place, of)| of.addresses.iter().map(move |address| (*address, place)))
        .collect();
    let mut streams = TransportStreamTable::default();
    let mut flights: Vec<PacketFlight> = Vec::new();
    // Packets that have not arrived yet are found by their octets, which later hops do not change.
    let mut under_way: HashMap<(usize, &[u8]), Vec<usize>> = HashMap::new();
    for (sighting, octets) in seen.iter_packets() {
        let port = usize::from(sighting.port);
        let Some(&(Some(here), ethernet)) = watched.ports.get(port) else { continue };
        let Some(parsed) = ParsedPacket::parse(octets, ethernet) else { continue };
        let ends = match parsed.between {
            Some((source, destination)) => {
                addresses.get(&source).copied().zip(addresses.get(&destination).copied())
            }
            // A frame without an IP packet goes from one end of its link to the other.
            None => watched.ports.get(port ^ 1).and_then(|(there, _)| *there).map(|there| {
                match sighting.outward {
                    true => (here, there),
                    false => (there, here),
                }
            }),
        };
        let Some((from, to)) = ends.filter(|(from, to)| from != to) else { continue };
        let key = (if parsed.between.is_some() { usize::MAX } else { port / 2 }, parsed.octets);
        if sighting.outward && here == from {
            if sighting.observed_at > last {
                continue;
            }
            let (named, again) = label_traced_packet(&parsed, &mut streams);
            if named.is_empty() {
                continue;
            }
            under_way.entry(key).or_default().push(flights.len());
            let octets = parsed.octets.len();
            flights.push(PacketFlight {
                sent: sighting.observed_at,
                arrived: None,
                from,
                to,
                octets,
                labels: named,
                is_retransmission: again,
            });
        } else if !sighting.outward
            && here == to
            && let Some(flight) = under_way.get_mut(&key).and_then(Vec::pop)
        {
            flights[flight].arrived = Some(sighting.observed_at);
        }
    }
    flights
}

/// Returns the label of a packet and whether it is a retransmission; `None` if it only keeps a transport going.
fn label_traced_packet(
    parsed: &ParsedPacket<'_>,
    streams: &mut TransportStreamTable,
) -> (Vec<MessageLabel>, bool) {
    match &parsed.transport {
        TransportPayload::Frame(named) => (vec![named.clone()], false),
        TransportPayload::Datagram { ports, payload } => (vec![name::name_datagram(*ports, payload)], false),
        TransportPayload::Segment(segment) => streams.label_tcp_segment(parsed.between, segment),
        TransportPayload::Chunks { ports, chunks } => {
            streams.label_sctp_chunks(parsed.between, *ports, chunks)
        }
        TransportPayload::Other(protocol) => (vec![MessageLabel::data_message_label(protocol)], false),
        TransportPayload::LaterFragment => (Vec::new(), false),
    }
}

fn build_message_flow(
    watched: &RunObservation,
    dialogue: &ObservedDialogue,
    flights: &[PacketFlight],
    [left_out, more]: [usize; 2],
) -> MessageFlow {
    let mut shown: Vec<usize> = flights.iter().flat_map(|f| [f.from, f.to]).collect();
    shown.sort_unstable();
    shown.dedup();
    let column = |place: usize| shown.iter().position(|p| *p == place).unwrap_or_default();
    let since = |at: Instant| at.as_nanos() as f64 / 1e9 - dialogue.started_at.as_nanos() as f64 / 1e9;
    let message = |f: &PacketFlight| FlowMessage {
        sent: since(f.sent),
        arrived: f.arrived.map(since),
        from: column(f.from),
        to: column(f.to),
        protocol: f.labels.first().map_or("", |n| n.protocol).to_owned(),
        name: f.labels.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(" + "),
        octets: f.octets as u64,
        is_retransmission: f.is_retransmission,
    };
    let mut caption = vec![format!(
        "One dialogue. It began {:.3} s after the start of the run and {}.",
        dialogue.started_at.as_nanos() as f64 / 1e9,
        if dialogue.completed { "succeeded" } else { "failed" }
    )];
    if !dialogue.counts {
        caption.push("It began outside the counted time.".to_owned());
    }
    if left_out > 0 {
        let packets = if left_out == 1 { "packet" } else { "packets" };
        caption.push(format!("Not shown: {left_out} {packets} of data between the same hosts."));
    }
    if more > 0 {
        caption.push(format!("{more} more messages followed."));
    }
    MessageFlow {
        name: String::new(),
        title: String::new(),
        caption: caption.join(" "),
        hosts: shown.iter().map(|place| watched.hosts[*place].name.clone()).collect(),
        messages: flights.iter().map(message).collect(),
        duration: since(dialogue.ended_at),
        completed: dialogue.completed,
    }
}
