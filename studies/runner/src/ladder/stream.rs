//! Messages in what TCP and SCTP carry.

use super::name::{self, Carried, Named};
use super::packet::{Chunk, Segment};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One direction of a connection.
type Way = (Option<(IpAddr, IpAddr)>, [u16; 2]);

/// The most octets of a message that are waited for.
const MOST: usize = 1 << 20;

/// What is known of connections and associations.
#[derive(Debug, Default)]
pub(super) struct Streams {
    tcp: BTreeMap<Way, Stream>,
    /// What the chunks with these numbers were called.
    sctp: BTreeMap<Way, BTreeMap<u32, Named>>,
}

#[derive(Debug, Default)]
struct Stream {
    /// The number of the next octet, once one was seen.
    next: Option<u32>,
    /// A message that has begun.
    begun: Vec<u8>,
    /// What segments from these numbers on were called.
    said: BTreeMap<u32, Vec<Named>>,
}

impl Streams {
    /// What a segment says, as its sender sends it, and whether it said so before.
    pub(super) fn segment(
        &mut self,
        between: Option<(IpAddr, IpAddr)>,
        segment: &Segment<'_>,
    ) -> (Vec<Named>, bool) {
        let stream = self.tcp.entry((between, segment.ports)).or_default();
        let control = name::control(segment);
        if segment.flags & Segment::SYN != 0 {
            let again = stream.next == Some(segment.sequence.wrapping_add(1)) && stream.said.is_empty();
            *stream = Stream { next: Some(segment.sequence.wrapping_add(1)), ..Stream::default() };
            return (control.into_iter().collect(), again);
        }
        if segment.payload.is_empty() {
            return (control.into_iter().collect(), false);
        }
        let ahead = stream.next.map_or(0, |next| segment.sequence.wrapping_sub(next).cast_signed());
        if ahead < 0 {
            let known = stream.said.get(&segment.sequence).cloned();
            return (known.unwrap_or_else(|| vec![Named::data("TCP")]), true);
        }
        if ahead > 0 {
            // What was sent between was not seen: a message may begin here.
            stream.begun.clear();
        }
        let named = stream.take(segment);
        stream.said.insert(segment.sequence, named.clone());
        (named, false)
    }

    /// What a packet's chunks say, and whether all that they carry was sent before.
    pub(super) fn chunks(
        &mut self,
        between: Option<(IpAddr, IpAddr)>,
        ports: [u16; 2],
        chunks: &[Chunk<'_>],
    ) -> (Vec<Named>, bool) {
        /// A chunk of data, and the flag of the first of a message.
        const DATA: u8 = 0;
        const BEGINNING: u8 = 2;
        let known = self.sctp.entry((between, ports)).or_default();
        let mut all = Vec::new();
        let (mut data, mut again) = (0, 0);
        for chunk in chunks {
            if chunk.kind != DATA {
                all.extend(name::association(chunk));
                continue;
            }
            let Some((number, rest)) = chunk.value.split_first_chunk::<4>() else { continue };
            let number = u32::from_be_bytes(*number);
            data += 1;
            let payload = rest.get(8..).unwrap_or_default();
            again += usize::from(known.contains_key(&number));
            let named = known.entry(number).or_insert_with(|| {
                let carried = Carried::of(ports).filter(|_| chunk.flags & BEGINNING != 0);
                let named = carried.and_then(|carried| carried.name(ports, payload));
                named.unwrap_or_else(|| Named::data("SCTP"))
            });
            all.push(named.clone());
        }
        (all, data > 0 && data == again)
    }
}

impl Stream {
    /// Takes new data in, and names the messages that end in it.
    fn take(&mut self, segment: &Segment<'_>) -> Vec<Named> {
        self.next = Some(segment.sequence.wrapping_add(segment.payload.len() as u32));
        let Some(carried) = Carried::of(segment.ports) else { return vec![Named::data("TCP")] };
        self.begun.extend_from_slice(segment.payload);
        let mut named = Vec::new();
        while let Some(length) = carried.extent(&self.begun).filter(|length| *length <= self.begun.len()) {
            let message: Vec<u8> = self.begun.drain(..length).collect();
            named.extend(carried.name(segment.ports, &message));
        }
        let hopeless =
            carried.extent(&self.begun).is_none_or(|length| length > MOST) && self.begun.len() > 64;
        if hopeless {
            self.begun.clear();
        }
        if named.is_empty() {
            // The beginning of a message has its name as well.
            let first = carried
                .name(segment.ports, &self.begun)
                .filter(|_| self.begun.len() == segment.payload.len());
            named.push(first.map_or_else(
                || Named::data("TCP"),
                |first| Named { name: format!("{} (first part)", first.name), ..first },
            ));
        }
        named
    }
}
