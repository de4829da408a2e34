//! Finds messages in TCP streams and SCTP associations.

use super::name::{self, ApplicationProtocol, MessageLabel};
use super::packet::{SctpChunk, TcpSegment};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One direction of a connection.
type StreamDirection = (Option<(IpAddr, IpAddr)>, [u16; 2]);

/// Longest message that is reassembled, in octets.
const MOST: usize = 1 << 20;

/// The state of connections and associations.
#[derive(Debug, Default)]
pub(super) struct TransportStreamTable {
    tcp: BTreeMap<StreamDirection, TcpStreamState>,
    /// The labels of DATA chunks, by TSN.
    sctp: BTreeMap<StreamDirection, BTreeMap<u32, MessageLabel>>,
}

#[derive(Debug, Default)]
struct TcpStreamState {
    /// The sequence number of the next octet, after the first segment.
    next: Option<u32>,
    /// The octets of an incomplete message.
    partial_message: Vec<u8>,
    /// The labels of segments, by their first sequence number.
    segment_labels: BTreeMap<u32, Vec<MessageLabel>>,
}

impl TransportStreamTable {
    /// Returns the labels of a segment, and whether it is a retransmission.
    pub(super) fn label_tcp_segment(
        &mut self,
        between: Option<(IpAddr, IpAddr)>,
        segment: &TcpSegment<'_>,
    ) -> (Vec<MessageLabel>, bool) {
        let stream = self.tcp.entry((between, segment.ports)).or_default();
        let control = name::name_tcp_control(segment);
        if segment.flags & TcpSegment::SYN != 0 {
            let again =
                stream.next == Some(segment.sequence.wrapping_add(1)) && stream.segment_labels.is_empty();
            *stream =
                TcpStreamState { next: Some(segment.sequence.wrapping_add(1)), ..TcpStreamState::default() };
            return (control.into_iter().collect(), again);
        }
        if segment.payload.is_empty() {
            return (control.into_iter().collect(), false);
        }
        let ahead = stream.next.map_or(0, |next| segment.sequence.wrapping_sub(next).cast_signed());
        if ahead < 0 {
            let known = stream.segment_labels.get(&segment.sequence).cloned();
            return (known.unwrap_or_else(|| vec![MessageLabel::data_message_label("TCP")]), true);
        }
        if ahead > 0 {
            // Segments are missing before this one, so assume that a message begins here.
            stream.partial_message.clear();
        }
        let named = stream.append_segment(segment);
        stream.segment_labels.insert(segment.sequence, named.clone());
        (named, false)
    }

    /// Returns the labels of a packet's chunks, and whether all of them are retransmissions.
    pub(super) fn label_sctp_chunks(
        &mut self,
        between: Option<(IpAddr, IpAddr)>,
        ports: [u16; 2],
        chunks: &[SctpChunk<'_>],
    ) -> (Vec<MessageLabel>, bool) {
        /// The type of a DATA chunk, and the flag of a message's first chunk.
        const DATA: u8 = 0;
        const BEGINNING: u8 = 2;
        let known = self.sctp.entry((between, ports)).or_default();
        let mut all = Vec::new();
        let (mut data, mut again) = (0, 0);
        for chunk in chunks {
            if chunk.kind != DATA {
                all.extend(name::name_sctp_control(chunk));
                continue;
            }
            let Some((number, rest)) = chunk.value.split_first_chunk::<4>() else { continue };
            let number = u32::from_be_bytes(*number);
            data += 1;
            let payload = rest.get(8..).unwrap_or_default();
            again += usize::from(known.contains_key(&number));
            let named = known.entry(number).or_insert_with(|| {
                let carried = ApplicationProtocol::from_ports(ports).filter(|_| chunk.flags & BEGINNING != 0);
                let named = carried.and_then(|carried| carried.name_message(ports, payload));
                named.unwrap_or_else(|| MessageLabel::data_message_label("SCTP"))
            });
            all.push(named.clone());
        }
        (all, data > 0 && data == again)
    }
}

impl TcpStreamState {
    /// Adds new data and names the messages that end in it.
    fn append_segment(&mut self, segment: &TcpSegment<'_>) -> Vec<MessageLabel> {
        self.next = Some(segment.sequence.wrapping_add(segment.payload.len() as u32));
        let Some(carried) = ApplicationProtocol::from_ports(segment.ports) else {
            return vec![MessageLabel::data_message_label("TCP")];
        };
        self.partial_message.extend_from_slice(segment.payload);
        let mut named = Vec::new();
        while let Some(length) = carried
            .message_length(&self.partial_message)
            .filter(|length| *length <= self.partial_message.len())
        {
            let message: Vec<u8> = self.partial_message.drain(..length).collect();
            named.extend(carried.name_message(segment.ports, &message));
        }
        let hopeless = carried.message_length(&self.partial_message).is_none_or(|length| length > MOST)
            && self.partial_message.len() > 64;
        if hopeless {
            self.partial_message.clear();
        }
        if named.is_empty() {
            // The label of a message's first segment has the message's name, as that of its last segment has.
            let first = carried
                .name_message(segment.ports, &self.partial_message)
                .filter(|_| self.partial_message.len() == segment.payload.len());
            named.push(first.map_or_else(
                || MessageLabel::data_message_label("TCP"),
                |first| MessageLabel { name: format!("{} (first part)", first.name), ..first },
            ));
        }
        named
    }
}
