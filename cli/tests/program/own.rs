//! What a test has for itself, in a process of its own and beside others: an address and ports, programs that end with it, and how long it
//! waits.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for what is to come: far longer than it takes on a machine that is busy with something else.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until something holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_or_fail(|| format!("never: {what}"), holds);
}

/// Waits until something holds, or fails with words of then.
#[track_caller]
pub(crate) fn wait_or_fail(words: impl Fn() -> String, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{}", words());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program that the system ends with the thread that starts it, so that none is left where a test is killed.
pub(crate) fn bound_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// An address of loopback that no other process has, since it is made of this one's number. What connects to it comes from 127.0.0.1.
pub(crate) fn own_address() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | high, middle, low)
}

/// A port of that address, which no other test of this process is given. It is none of those that the system hands out, which it does
/// for all addresses at once.
pub(crate) fn own_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (n % 20_000) as u16;
        let at = SocketAddrV4::new(own_address(), port);
        // A server that outlived its test may have it.
        if UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok() {
            return port;
        }
    }
}

/// An address with such a port.
pub(crate) fn own_socket() -> SocketAddrV4 {
    SocketAddrV4::new(own_address(), own_port())
}
