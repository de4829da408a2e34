//! System calls: a TUN device with segmentation and checksum offload (`TUNSETIFF`, `TUNSETOFFLOAD`). Our dependencies
//! have no safe interface to them.
#![allow(unsafe_code)]

use socket2::Socket;
use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

fn check_result(value: libc::c_int) -> io::Result<()> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A TUN device. It exists while its file is open.
#[derive(Debug)]
pub struct TunDevice {
    /// Reads and writes packets, each behind a header of [`VNET_HEADER`](crate::VNET_HEADER) octets. Nonblocking.
    pub file: File,
    /// The name that the kernel assigned.
    pub name: String,
    /// True if the device offloads segmentation of TCP and accepts joined packets.
    pub tcp: bool,
    /// The same for UDP.
    pub udp: bool,
}

/// Creates a TUN device in the calling thread's network namespace, or opens an unused one, and sets it up.
/// The kernel replaces `%d` in the name by a number.
///
/// # Errors
/// An error of the kernel. The call needs CAP_NET_ADMIN and `/dev/net/tun`.
pub fn open_tun(name: &str, mtu: u32) -> io::Result<TunDevice> {
    let open = |path: &str| std::fs::OpenOptions::new().read(true).write(true).open(path);
    let file = open("/dev/net/tun")?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::NONBLOCK)?;
    // SAFETY: all zeros is a valid value of the structure, which has integers and a union of them.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let length = name.len().min(libc::IFNAMSIZ - 1);
    for (at, octet) in request.ifr_name.iter_mut().zip(&name.as_bytes()[..length]) {
        *at = *octet as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the call reads and writes the request, which has the expected size.
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
