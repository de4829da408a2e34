//! Resources of one test: an address and ports, programs that end with it, and timeouts. Tests in other processes
//! have others.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The timeout of an expected event: far longer than it takes on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_or_fail(|| format!("never: {what}"), holds);
}

/// Waits until a condition holds, or fails with a message of that time.
#[track_caller]
pub(crate) fn wait_or_fail(words: impl Fn() -> String, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{}", words());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a command whose process ends with the thread that starts it, even if the test is killed.
pub(crate) fn bound_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Returns a loopback address that only this process uses, made of its process id. Connections to it come from
/// 127.0.0.1.
pub(crate) fn own_address() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | high, middle, low)
}

/// Returns a port of that address that no other test of this process gets. It is outside the ephemeral range, which
/// applies to all addresses.
pub(crate) fn own_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (n % 20_000) as u16;
        let at = SocketAddrV4::new(own_address(), port);
        // A server that outlived its test may use it.
        if UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok() {
            return port;
        }
    }
}

/// Returns the address with such a port.
pub(crate) fn own_socket() -> SocketAddrV4 {
    SocketAddrV4::new(own_address(), own_port())
}
