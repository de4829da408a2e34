//! Writes payloads of a protocol to a capture for tshark.

use crate::{FLAWS, TempDir, tshark_fields};
use std::fs::File;
use std::path::PathBuf;
use usher_core::Instant;
use usher_observe::pcapng::{CaptureWriter, LinkType};

/// Payloads as UDP datagrams in a capture.
#[derive(Debug)]
pub struct DatagramCapture(TempDir);

impl DatagramCapture {
    /// Creates a capture with one datagram per payload, from and to a port.
    ///
    /// # Panics
    /// The capture cannot be written.
    pub fn new(port: u16, payloads: &[Vec<u8>]) -> Self {
        let this = Self(TempDir::new());
        let mut capture = CaptureWriter::new(File::create(this.capture_path()).unwrap(), &[]).unwrap();
        let interface = capture.add_interface("wire", LinkType::Raw, &[]).unwrap();
        for (i, payload) in payloads.iter().enumerate() {
            let mut packet = Vec::new();
            let udp = 8 + payload.len() as u16;
            packet.extend([0x45, 0]);
            packet.extend((20 + udp).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let words = packet.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
            let sum: u32 = words.sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            for field in [port, port, udp, 0] {
                packet.extend(field.to_be_bytes());
            }
            packet.extend(payload);
            capture.write_packet(interface, Instant::from_nanos(i as u64), &packet, None).unwrap();
        }
        capture.finish().unwrap();
        this
    }
    fn capture_path(&self) -> PathBuf {
        self.0.path().join("datagrams.pcapng")
    }
    /// Returns tshark's fields of each datagram, a line each.
    pub fn tshark_fields(&self, names: &[&str]) -> Vec<Vec<String>> {
        tshark_fields(&self.capture_path(), "", names)
    }
    /// Asserts that tshark finds no flaw in any datagram.
    ///
    /// # Panics
    /// tshark finds a flaw.
    #[track_caller]
    pub fn assert_clean(&self) {
        let flawed = tshark_fields(
            &self.capture_path(),
            FLAWS,
            &["frame.number", "_ws.col.Info", "_ws.expert.message"],
        );
        assert!(flawed.is_empty(), "{flawed:#?}");
    }
}
