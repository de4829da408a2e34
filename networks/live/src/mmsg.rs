//! The one place that speaks to the system directly: datagrams in batches with their local addresses
//! (`recvmmsg`, `sendmmsg`, `IP_PKTINFO`), the processor of a thread and the time it took. No safe interface
//! to these calls exists in what the house uses, and one call for each datagram costs more than the rest of
//! the driver.
#![allow(unsafe_code)]

use std::io;

/// Binds this thread to one processor.
///
/// # Errors
/// There is no such processor, or this thread may not run there.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    if core >= usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a cpu_set_t is plain bits, for which all zeros is the empty set; `core` is within it, and the
    // pointer is to a set of the size that is given.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The processor time that this thread has taken, in the program and in the system; zero if the system does
/// not say.
#[must_use]
pub fn thread_cpu_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec, which the call fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if result != 0 {
        return std::time::Duration::ZERO;
    }
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    std::time::Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}
