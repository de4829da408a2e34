//! State notifications to systemd: datagrams to the socket that NOTIFY_SOCKET names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state to systemd, if systemd started the program.
pub fn notify_systemd(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.into_encoded_bytes();
    let address = match name.split_first() {
        Some((b'@', abstract_name)) => SocketAddr::from_abstract_name(abstract_name),
        _ => SocketAddr::from_pathname(String::from_utf8_lossy(&name).as_ref()),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

/// Reports that the service is ready.
pub fn notify_ready() {
    notify_systemd("READY=1\nSTATUS=Serving");
}

/// Reports a reload. [`notify_ready`] follows.
pub fn notify_reloading() {
    notify_systemd(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_micros()));
}

/// Reports that the service is stopping.
pub fn notify_stopping() {
    notify_systemd("STOPPING=1");
}

/// Returns the monotonic clock in microseconds, which systemd compares with its own. /proc/uptime has hundredths of a
/// second.
fn monotonic_micros() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = text.split_whitespace().next().and_then(|s| s.parse().ok()).unwrap_or(0.0);
    (seconds * 1e6) as u64
}
