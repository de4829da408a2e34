//! Payloads of a protocol, put into a capture for tshark to read.

use crate::{FLAWS, Temporary, fields};
use std::fs::File;
use std::path::PathBuf;
use usher_core::Instant;
use usher_observe::pcapng::{Capture, LinkType as Medium};

/// Payloads as UDP datagrams in a capture.
#[derive(Debug)]
pub struct Datagrams(Temporary);

impl Datagrams {
    /// One datagram of each, from and to a port.
    ///
    /// # Panics
    /// The capture cannot be written.
    pub fn new(port: u16, payloads: &[Vec<u8>]) -> Self {
        let this = Self(Temporary::new());
        let mut capture = Capture::new(File::create(this.path()).unwrap(), &[]).unwrap();
        let interface = capture.interface("wire", Medium::Raw, &[]).unwrap();
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
            capture.packet(interface, Instant::from_nanos(i as u64), &packet, None).unwrap();
        }
        capture.finish().unwrap();
        this
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("datagrams.pcapng")
    }
    /// What tshark makes of each: a line of fields.
    pub fn fields(&self, names: &[&str]) -> Vec<Vec<String>> {
        fields(&self.path(), "", names)
    }
    /// Nothing is wrong with any of them.
    ///
    /// # Panics
    /// Something is.
    #[track_caller]
    pub fn assert_clean(&self) {
        let flawed = fields(&self.path(), FLAWS, &["frame.number", "_ws.col.Info", "_ws.expert.message"]);
        assert!(flawed.is_empty(), "{flawed:#?}");
    }
}
