//! The one place that speaks to the system directly: a TUN device that leaves segmentation and checksums to us (`TUNSETIFF`,
//! `TUNSETOFFLOAD`). No safe interface to it exists in what the house uses.
#![allow(unsafe_code)]

use socket2::Socket;
use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

fn check_result(value: libc::c_int) -> io::Result<()> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A TUN device, there as long as somebody holds it.
#[derive(Debug)]
pub struct TunDevice {
    /// By which packets are read and written, each behind a header of [`VNET_HEADER`](crate::VNET_HEADER) octets; it does not block.
    pub file: File,
    /// Its name, as the kernel has it.
    pub name: String,
    /// Segmentation of TCP is left to whoever reads, and packets that are joined are taken.
    pub tcp: bool,
    /// The same of UDP.
    pub udp: bool,
}

/// Makes a TUN device of this name (with `%d` in it the kernel puts a number there), or takes one that is there and nobody holds,
/// in the calling thread's network namespace, and switches it on.
///
/// # Errors
/// What the kernel says: it needs CAP_NET_ADMIN and `/dev/net/tun`.
pub fn open_tun(name: &str, mtu: u32) -> io::Result<TunDevice> {
    let open = |path: &str| std::fs::OpenOptions::new().read(true).write(true).open(path);
    let file = open("/dev/net/tun")?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::NONBLOCK)?;
    // SAFETY: all zeros is a value of the structure, which has integers and a union of them.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let length = name.len().min(libc::IFNAMSIZ - 1);
    for (at, octet) in request.ifr_name.iter_mut().zip(&name.as_bytes()[..length]) {
        *at = *octet as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the request is read and written by the call, and as long as it takes it to be.
    check_result(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    let made: Vec<u8> = request.ifr_name.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    let offload = |flags: libc::c_uint| {
        // SAFETY: the call takes an integer.
        check_result(unsafe {
            libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags))
        })
        .is_ok()
    };
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let udp = offload(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6);
    let tcp = udp || offload(tcp);
    let control = Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    request.ifr_ifru.ifru_mtu = libc::c_int::try_from(mtu).unwrap_or(libc::c_int::MAX);
    // SAFETY: as above.
    check_result(unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFMTU, &raw mut request) })?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: as above.
    check_result(unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) })?;
    Ok(TunDevice { file, name: String::from_utf8_lossy(&made).into_owned(), tcp, udp })
}
