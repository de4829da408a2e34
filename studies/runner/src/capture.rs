//! Captures of a run as pcapng.

use crate::world::RunCapture;
use std::any::Any;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use usher_core::Instant;
use usher_observe::pcapng::{CaptureWriter, LinkType};
use usher_sim::PacketTap;

/// Keeps the packets of a run in memory until it ends. Readers want the TLS secrets before the packets that they
/// decrypt, and the secrets are known only at the end.
#[derive(Debug, Default)]
pub struct CapturedPackets {
    bytes: Vec<u8>,
    packets: Vec<(Instant, u16, usize)>,
}

impl PacketTap for CapturedPackets {
    fn capture_packet(&mut self, now: Instant, interface: u16, _outward: bool, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.packets.push((now, interface, self.bytes.len()));
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Remark for a capture whose TLS handshakes are recordings.
pub const REPLAYED: &str = "All TLS handshakes here repeat one recorded handshake, which no secrets decrypt: with \
                            handshake = \"real\" each is computed, and the capture holds its secrets";

/// Writes the capture of a finished run, made with a [`CapturedPackets`] tap, with these remarks.
///
/// # Errors
/// The file cannot be written.
pub fn write_capture(captured: RunCapture, path: &Path, remarks: &[&str]) -> io::Result<()> {
    let RunCapture { tap, interfaces, key_log, radius_secret } = captured;
    let Ok(taken) = tap.into_any().downcast::<CapturedPackets>() else { return Ok(()) };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let secret = format!("RADIUS secret: {radius_secret}");
    let comments = [&["Simulated by Usher", &secret], remarks].concat();
    let mut capture = CaptureWriter::new(BufWriter::new(File::create(path)?), &comments)?;
    for (name, ethernet) in &interfaces {
        let link = if *ethernet { LinkType::Ethernet } else { LinkType::Raw };
        capture.add_interface(name, link, &[])?;
    }
    if !key_log.is_empty() {
        capture.tls_secrets(&key_log)?;
    }
    let mut from = 0;
    for (at, interface, to) in taken.packets {
        capture.write_packet(u32::from(interface), at, &taken.bytes[from..to], None)?;
        from = to;
    }
    capture.finish()?;
    Ok(())
}
