//! Fuzz targets: they pass untrusted octets to every parser.

use crate::attribute::AttributeList;
use crate::dictionary::{IncludedFile, RadiusDictionary};
use crate::packet::RadiusPacket;
use crate::radsec::{BadLength, PacketFramer, PeerCertificateCondition};
use crate::server::{ClientConfig, RadiusServer, RadiusServerConfig, RadiusServerEvent};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use usher_core::{ConnId, Instant, ListenerId, Machine, MachineInput, MachineOutput, Seed, StreamEvent};

/// Parses a packet, prints it by `dictionary` and encodes it again. Returns false if input and output differ, which is
/// a bug. Octets that are not a packet return true.
#[must_use]
pub fn fuzz_packet(dictionary: &RadiusDictionary, data: &[u8]) -> bool {
    let Ok(view) = RadiusPacket::parse(data) else { return true };
    let printed = view.display(dictionary).to_string();
    let mut out = Vec::new();
    let owned = view.to_owned();
    let emitted = owned.encode_into(&mut out).is_ok();
    // The same attributes are built value by value, for comparison.
    let mut built = AttributeList::new();
    let pushed = view.attributes().all(|a| built.push_bytes(a.kind, a.value).is_ok());
    !printed.is_empty() && emitted && out == view.as_bytes() && pushed && built == owned.attributes
}

/// Parses a dictionary. Parts after lines of `---` are files named `1`, `2` and so on, for `$INCLUDE`. An error must
/// name a line of its file. Every definition must print and be found again.
#[must_use]
pub fn fuzz_dictionary(data: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(data) else { return true };
    let files: Vec<&str> = text.split("\n---\n").collect();
    let file = |name: &str| files.get(name.parse::<usize>().ok()?).copied();
    let mut resolver = |_: &str, name: &str| {
        let text = file(name)?.to_string();
        Some(IncludedFile { file: name.to_string(), text })
    };
    let mut dictionary = RadiusDictionary::default();
    match dictionary.load_dictionary_text("0", files.first().copied().unwrap_or_default(), &mut resolver) {
        Ok(()) => dictionary.attributes().iter().all(|d| {
            let known = dictionary.by_oid(d.oid).is_some() && dictionary.by_name(&d.name).is_some();
            let Some(place) = dictionary.attribute_number(d.oid) else { return known };
            let mut list = AttributeList::new();
            let put = list.push_by_number(&place, d.tagged.then_some(1), d.encryption, &[1]).is_ok();
            known && (!put || dictionary.decode(list.as_bytes()).count() == 1)
        }),
        Err(e) => e.line <= file(&e.file).map_or(0, |text| text.lines().count()) && !e.description.is_empty(),
    }
}

/// Reads a RadSec stream at a framer and at a server, in pieces of the length in the first octet. Reads it as a
/// certificate too. Returns false if pieces and whole give different packets, or the buffer exceeds a packet.
#[must_use]
pub fn fuzz_radsec(data: &[u8]) -> bool {
    let Some((&length, stream)) = data.split_first() else { return true };
    let pieces = || stream.chunks(usize::from(length).max(1));
    let (mut whole, mut cut) = (PacketFramer::new(), PacketFramer::new());
    let (mut at_once, mut bit_by_bit) = (Vec::new(), Vec::new());
    let end = take_packets(&mut whole, stream, &mut at_once);
    let pieced = pieces().find_map(|p| take_packets(&mut cut, p, &mut bit_by_bit).err());

    let any = ClientConfig::for_radsec(Ipv4Addr::UNSPECIFIED.into(), 0, Vec::new());
    let seed = Seed::new(u64::from(length));
    let Ok(mut server) =
        RadiusServer::new(RadiusServerConfig::new([any].into()), seed.derive_secure_rng("server", 0))
    else {
        return false;
    };
    let conn = ConnId::nth_accepted_connection(0);
    let remote = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
    let listener = ListenerId::from_number(0);
    let accepted = StreamEvent::Accepted { listener, remote, local: None, certificate: Some(stream) };
    server.handle_input(Instant::ZERO, MachineInput::Stream { conn, event: accepted });
    let known = server.connection_count() == 1;
    for piece in pieces() {
        server.handle_input(Instant::ZERO, MachineInput::Stream { conn, event: StreamEvent::Data(piece) });
        while let Some(output) = server.poll_output(&mut Vec::new()) {
            if let MachineOutput::Event(RadiusServerEvent::Request(request)) = output {
                server.recycle_attributes(request.attributes);
            }
        }
    }
    // Whether the certificate matches does not matter: the parser only has to return.
    let _ = PeerCertificateCondition::Name("name".into()).matches_certificate(stream);
    known && at_once == bit_by_bit && end.err() == pieced && cut.buffered_octets() < crate::packet::MAX_LEN
}

fn take_packets(framer: &mut PacketFramer, mut data: &[u8], all: &mut Vec<Vec<u8>>) -> Result<(), BadLength> {
    while let Some(packet) = framer.next_packet(&mut data)? {
        all.push(packet.to_vec());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_packets(body in proptest::collection::vec(
                (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..20)) {
            let mut attributes = AttributeList::new();
            for (kind, value) in &body {
                attributes.push_bytes(*kind, value).unwrap();
            }
            let mut bytes = vec![1, 2, 0, 0];
            bytes.resize(20, 7);
            bytes.extend(attributes.as_bytes());
            let length = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            prop_assert!(RadiusPacket::parse(&bytes).is_ok());
            prop_assert!(fuzz_packet(&RadiusDictionary::standard(), &bytes));
        }

        #[test]
        fn arbitrary_streams(length: u8, packets in proptest::collection::vec(
                (0..3u8, proptest::collection::vec(any::<u8>(), 0..60)), 0..6)) {
            let mut stream = vec![length];
            for (kind, body) in &packets {
                // Well-formed headers among malformed ones.
                let total = (20 + body.len() as u16).saturating_sub(u16::from(*kind == 0) * 30);
                stream.extend([*kind, 7]);
                stream.extend(total.to_be_bytes());
                stream.extend([9; 16]);
                stream.extend(body);
            }
            prop_assert!(fuzz_radsec(&stream));
        }

        #[test]
        fn arbitrary_text(text in "((ATTRIBUTE|VALUE|VENDOR|BEGIN-TLV|END-TLV|BEGIN-VENDOR|\\$INCLUDE|---)[ a-z0-9.,=\\[\\]]{0,20}\n){0,8}") {
            prop_assert!(fuzz_dictionary(text.as_bytes()));
        }
    }
}
