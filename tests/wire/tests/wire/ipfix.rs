//! IPFIX messages with one record of each kind, as Wireshark's dissector reads them.

use std::net::{Ipv4Addr, SocketAddrV4};
use usher_core::{Instant, WallTime};
use usher_ipfix::{ExporterConfig, IpfixExporter, NatEvent, NatRecord, PORT, SubscriberInfo};
use usher_wire_tests::DatagramCapture;

#[test]
fn tshark_reads_records_of_translation_by_their_templates() {
    let (inside, outside) = (Ipv4Addr::new(100, 64, 0, 2), Ipv4Addr::new(192, 0, 2, 1));
    let subscriber =
        |user: &str| SubscriberInfo { user: user.as_bytes().to_vec(), station: [2, 0, 0, 0, 1, 1] };
    let events = [
        NatEvent::Block { inside, outside, ports: (1024, 2047), subscriber: subscriber("ann") },
        NatEvent::Address { inside, outside, subscriber: subscriber("bob@example.org") },
        NatEvent::Session {
            protocol: 17,
            inside: SocketAddrV4::new(inside, 50_000),
            outside: SocketAddrV4::new(outside, 1025),
        },
    ];
    let wall = WallTime::from_unix_secs(1_790_000_000);
    let mut exporter = IpfixExporter::new(ExporterConfig { domain: 7, ..ExporterConfig::default() });
    let mut messages = Vec::new();
    for (begins, event) in events.iter().flat_map(|event| [(true, event), (false, event)]) {
        exporter.add_nat_record(
            Instant::ZERO,
            wall,
            &NatRecord { occurred_at: wall, is_start: begins, event: event.clone() },
        );
        exporter.flush(wall);
        messages.extend(std::iter::from_fn(|| exporter.poll()));
    }
    let datagrams = DatagramCapture::new(PORT, &messages);
    datagrams.assert_clean();
    let names = [
        "cflow.od_id",
        "cflow.sequence",
        "cflow.nat_event",
        "cflow.srcaddr",
        "cflow.post_natsource_ipv4_address",
        "cflow.port_range_start",
        "cflow.port_range_end",
        "cflow.protocol",
        "cflow.srcport",
        "cflow.post_naptsource_transport_port",
        "cflow.srcmac",
        "cflow.user_name",
    ];
    let read = datagrams.tshark_fields(&names);
    // The exporter sends the templates twice before the records.
    assert_eq!(read.len(), 2 + 6);
    let (a, b, mac) = ("100.64.0.2", "192.0.2.1", "02:00:00:00:01:01");
    let block = |event| [event, a, b, "1024", "2047", "", "", "", mac, "ann"];
    let address = |event| [event, a, b, "", "", "", "", "", mac, "bob@example.org"];
    let session = |event| [event, a, b, "", "", "17", "50000", "1025", "", ""];
    let expected = [block("16"), block("17"), address("14"), address("15"), session("4"), session("5")];
    for (n, (read, expected)) in read[2..].iter().zip(expected).enumerate() {
        assert_eq!(read[..2], ["7".to_owned(), n.to_string()], "{read:?}");
        assert_eq!(read[2..], expected, "{n}");
    }
}
