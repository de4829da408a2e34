//! System calls without a safe interface in our dependencies: options of SCTP sockets, and messages with SCTP's
//! control messages and flags. They pass octets, which `layout` encodes and decodes.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option of level `IPPROTO_SCTP`.
pub(crate) fn set_option(socket: BorrowedFd<'_>, option: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the call reads as many octets from the pointer as the length says.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_SCTP, option, value.as_ptr().cast(), length)
    };
    // A success may be positive, because SCTP_SOCKOPT_CONNECTX returns the association's number.
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option of level `IPPROTO_SCTP` into `value`, which holds its arguments. Returns the length of the result.
pub(crate) fn read_sctp_option(socket: BorrowedFd<'_>, option: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    let pointer = value.as_mut_ptr().cast();
    // SAFETY: the call reads and writes at most as many octets at the pointer as the length says.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_SCTP, option, pointer, &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value.len().min(length as usize)) }
}

/// Sends one message with these control messages.
pub(crate) fn send_message(socket: BorrowedFd<'_>, data: &[u8], control: &[u8]) -> io::Result<usize> {
    let mut vector = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: all zeros is a valid value of this structure of integers and pointers.
    let mut head: libc::msghdr = unsafe { zeroed() };
    (head.msg_iov, head.msg_iovlen) = (&raw mut vector, 1);
    head.msg_control = control.as_ptr().cast_mut().cast();
    head.msg_controllen = control.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header's pointers are borrowed until the call returns. The call only reads from them.
    let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const head, flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// The lengths and flags that one call received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SctpReceiveResult {
    /// Octets of data.
    pub(crate) length: usize,
    /// Octets of control messages.
    pub(crate) control: usize,
    /// The message's flags.
    pub(crate) flags: i32,
}

/// Receives a piece of a message, or of a notification, into `data`, and its control messages into `control`.
pub(crate) fn receive_piece(
    socket: BorrowedFd<'_>,
    data: &mut [u8],
    control: &mut [u8],
) -> io::Result<SctpReceiveResult> {
    let mut vector = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: all zeros is a valid value of this structure of integers and pointers.
    let mut head: libc::msghdr = unsafe { zeroed() };
    (head.msg_iov, head.msg_iovlen) = (&raw mut vector, 1);
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = control.len() as _;
    // SAFETY: the header's pointers are borrowed exclusively until the call returns, with these lengths.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, libc::MSG_DONTWAIT) };
    let length = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    Ok(SctpReceiveResult {
        length: length.min(data.len()),
        control: (head.msg_controllen as usize).min(control.len()),
        flags: head.msg_flags,
    })
}
