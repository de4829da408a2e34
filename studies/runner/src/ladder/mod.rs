//! Message-flow figures: the messages of one dialogue between its hosts, read out of the packets that a run sent.
//!
//! A run of one replication is watched at both ends of its links. Of the dialogues of the first member of each group of
//! hosts one is taken ([`chosen`]); and of the packets while it ran those between these hosts, each from where it was sent
//! to where it arrived, however many hops it took. Where many share a link, what is of other users is left out, by
//! User-Name and by Session-Id.

mod follow;
mod name;
mod packet;
mod stream;
#[cfg(test)]
mod tests;

use crate::sweep::RunError;
use crate::world::{Dialogue, Watched, World};
use follow::Follow;
use name::{Named, Who};
use packet::{Parsed, Transport};
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stream::Streams;
use usher_core::{Duration, Instant};
use usher_report::{Ladder, Message};
use usher_scenario::Point;
use usher_sim::Tap;

/// The most octets of packets that are kept.
const MOST_OCTETS: usize = 256 << 20;
/// The most messages that a figure has.
const MOST_MESSAGES: usize = 120;

/// The messages of a dialogue of one replication of a point; nothing where no dialogue of a first host ended.
///
/// # Errors
/// The point cannot be run, or the run was given up, as it is when `stop` is set.
pub fn ladder(
    point: &Point,
    replication: u32,
    stop: Option<&Arc<AtomicBool>>,
) -> Result<Option<Ladder>, RunError> {
    let tap = Box::<Sightings>::default() as Box<dyn Tap>;
    let world = World::watched(&point.scenario, point.seed(replication), Some(tap)).map_err(RunError::new)?;
    let watched = world.until(stop).run().map_err(RunError::new)?.watched;
    let Some(mut watched) = watched else { return Ok(None) };
    let tap = watched.tap.take().and_then(|tap| tap.into_any().downcast::<Sightings>().ok());
    Ok(tap.and_then(|seen| draw(&watched, &seen)))
}

/// What was seen at the ends of links.
#[derive(Debug, Default)]
struct Sightings {
    octets: Vec<u8>,
    seen: Vec<Sighting>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    at: Instant,
    port: u16,
    outward: bool,
    /// Where its octets end; they begin where those before it end.
    end: usize,
}

impl Tap for Sightings {
    fn packet(&mut self, at: Instant, port: u16, outward: bool, bytes: &[u8]) {
        if self.octets.len() + bytes.len() <= MOST_OCTETS {
            self.octets.extend_from_slice(bytes);
            self.seen.push(Sighting { at, port, outward, end: self.octets.len() });
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Sightings {
    fn each(&self) -> impl Iterator<Item = (&Sighting, &[u8])> {
        let begins = std::iter::once(0).chain(self.seen.iter().map(|s| s.end));
        self.seen.iter().zip(begins).map(|(sighting, begin)| (sighting, &self.octets[begin..sighting.end]))
    }
}

/// A packet on its way from one place to another.
struct Flight {
    sent: Instant,
    arrived: Option<Instant>,
    from: usize,
    to: usize,
    octets: usize,
    named: Vec<Named>,
    /// It was sent before.
    again: bool,
}

/// The dialogue that is shown: one that ended well before others, then one whose messages have names, then one that counts,
/// of these the first. A host's session may be set up once, before the counted time.
fn chosen<'a>(visible: impl Iterator<Item = &'a Dialogue>) -> Option<&'a Dialogue> {
    visible.min_by_key(|d| (!d.completed, d.data, !d.counts, d.began))
}

fn draw(watched: &Watched, seen: &Sightings) -> Option<Ladder> {
    let visible = || watched.dialogues.iter().filter(|d| d.place.is_some());
    let dialogue = chosen(visible())?;
    // What belongs to it may follow its end: keys, acknowledgements, the first record of accounting.
    let took = dialogue.ended.since(dialogue.began);
    let next =
        visible().filter(|d| d.place == dialogue.place && d.began > dialogue.began).map(|d| d.began).min();
    let last =
        (dialogue.ended + Duration::from_nanos(took.as_nanos() / 2)).min(next.unwrap_or(Instant::FAR_FUTURE));
    let flights = flights(watched, seen, last);
    let mut follow = Follow::default();
    let within = flights.into_iter().filter(|f| f.sent >= dialogue.began && f.sent <= last);
    let mut of_dialogue: Vec<Flight> =
        within.filter(|flight| flight.named.iter().all(|n| follow.wants(n, flight))).collect();
    let named = |flight: &Flight| flight.named.iter().any(|n| n.who != Who::Data);
    let mut left_out = 0;
    if of_dialogue.iter().any(named) {
        let all = of_dialogue.len();
        of_dialogue.retain(named);
        left_out = all - of_dialogue.len();
    }
    let more = of_dialogue.len().saturating_sub(MOST_MESSAGES);
    of_dialogue.truncate(MOST_MESSAGES);
    Some(figure(watched, dialogue, &of_dialogue, [left_out, more]))
}

/// The packets between places that were sent until then, in the order in which they were sent.
fn flights(watched: &Watched, seen: &Sightings, last: Instant) -> Vec<Flight> {
    let addresses: BTreeMap<IpAddr, usize> = watched
        .places
        .iter()
        .enumerate()
        .flat_map(|(place, of)| of.addresses.iter().map(move |address| (*address, place)))
        .collect();
    let mut streams = Streams::default();
    let mut flights: Vec<Flight> = Vec::new();
    // By their octets, which a later hop leaves as they are, those that have not arrived yet.
    let mut under_way: HashMap<(usize, &[u8]), Vec<usize>> = HashMap::new();
    for (sighting, octets) in seen.each() {
        let port = usize::from(sighting.port);
        let Some(&(Some(here), ethernet)) = watched.ports.get(port) else { continue };
        let Some(parsed) = Parsed::of(octets, ethernet) else { continue };
        let ends = match parsed.between {
            Some((source, destination)) => {
                addresses.get(&source).copied().zip(addresses.get(&destination).copied())
            }
            // A frame goes from one end of its link to the other.
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
            if sighting.at > last {
                continue;
            }
            let (named, again) = named(&parsed, &mut streams);
            if named.is_empty() {
                continue;
            }
            under_way.entry(key).or_default().push(flights.len());
            let octets = parsed.octets.len();
            flights.push(Flight { sent: sighting.at, arrived: None, from, to, octets, named, again });
        } else if !sighting.outward
            && here == to
            && let Some(flight) = under_way.get_mut(&key).and_then(Vec::pop)
        {
            flights[flight].arrived = Some(sighting.at);
        }
    }
    flights
}

/// What a packet says, and whether it says it again; nothing where it only keeps a transport going.
fn named(parsed: &Parsed<'_>, streams: &mut Streams) -> (Vec<Named>, bool) {
    match &parsed.transport {
        Transport::Frame(named) => (vec![named.clone()], false),
        Transport::Datagram { ports, payload } => (vec![name::datagram(*ports, payload)], false),
        Transport::Segment(segment) => streams.segment(parsed.between, segment),
        Transport::Chunks { ports, chunks } => streams.chunks(parsed.between, *ports, chunks),
        Transport::Other(protocol) => (vec![Named::data(protocol)], false),
        Transport::Nothing => (Vec::new(), false),
    }
}

fn figure(
    watched: &Watched,
    dialogue: &Dialogue,
    flights: &[Flight],
    [left_out, more]: [usize; 2],
) -> Ladder {
    let mut shown: Vec<usize> = flights.iter().flat_map(|f| [f.from, f.to]).collect();
    shown.sort_unstable();
    shown.dedup();
    let column = |place: usize| shown.iter().position(|p| *p == place).unwrap_or_default();
    let since = |at: Instant| at.as_nanos() as f64 / 1e9 - dialogue.began.as_nanos() as f64 / 1e9;
    let message = |f: &Flight| Message {
        sent: since(f.sent),
        arrived: f.arrived.map(since),
        from: column(f.from),
        to: column(f.to),
        protocol: f.named.first().map_or("", |n| n.protocol).to_owned(),
        name: f.named.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(" + "),
        octets: f.octets as u64,
        again: f.again,
    };
    let mut caption = vec![format!(
        "One dialogue, which began {:.3} s after the run's beginning and ended {}.",
        dialogue.began.as_nanos() as f64 / 1e9,
        if dialogue.completed { "well" } else { "without success" }
    )];
    if !dialogue.counts {
        caption.push("It began outside the counted time.".to_owned());
    }
    if left_out > 0 {
        let packets = if left_out == 1 { "packet" } else { "packets" };
        caption.push(format!("{left_out} {packets} of data between the same hosts are left out."));
    }
    if more > 0 {
        caption.push(format!("{more} messages more followed."));
    }
    Ladder {
        name: String::new(),
        title: String::new(),
        caption: caption.join(" "),
        hosts: shown.iter().map(|place| watched.places[*place].name.clone()).collect(),
        messages: flights.iter().map(message).collect(),
        ended: since(dialogue.ended),
        completed: dialogue.completed,
    }
}
