//! The system calls that have no safe interface in what the house uses: SCTP's socket options, and messages whose control
//! messages and flags are SCTP's. Each takes and gives octets; what they mean is written and read in `layout`.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option of level `IPPROTO_SCTP`.
pub(crate) fn set_option(socket: BorrowedFd<'_>, option: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the pointer is to as many octets as the length says, which the call reads.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_SCTP, option, value.as_ptr().cast(), length)
    };
    // Connecting to several addresses answers the association's number.
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option of level `IPPROTO_SCTP` into `value`, which says what is asked, and answers its length.
pub(crate) fn get_option(socket: BorrowedFd<'_>, option: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    let pointer = value.as_mut_ptr().cast();
    // SAFETY: the pointer is to as many octets as the length says, which the call reads and writes.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_SCTP, option, pointer, &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value.len().min(length as usize)) }
}

/// Sends one message with these control messages.
pub(crate) fn send_message(socket: BorrowedFd<'_>, data: &[u8], control: &[u8]) -> io::Result<usize> {
    let mut vector = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: a structure of integers and pointers, for which all zeros is a value.
    let mut head: libc::msghdr = unsafe { zeroed() };
    (head.msg_iov, head.msg_iovlen) = (&raw mut vector, 1);
    head.msg_control = control.as_ptr().cast_mut().cast();
    head.msg_controllen = control.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: what the header points at is borrowed until the call has returned, which reads it and writes none of it.
    let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const head, flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// What one call received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessagePiece {
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
) -> io::Result<MessagePiece> {
    let mut vector = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: a structure of integers and pointers, for which all zeros is a value.
    let mut head: libc::msghdr = unsafe { zeroed() };
    (head.msg_iov, head.msg_iovlen) = (&raw mut vector, 1);
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = control.len() as _;
    // SAFETY: what the header points at is borrowed exclusively until the call has returned, of the lengths given.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, libc::MSG_DONTWAIT) };
    let length = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    Ok(MessagePiece {
        length: length.min(data.len()),
        control: (head.msg_controllen as usize).min(control.len()),
        flags: head.msg_flags,
    })
}
