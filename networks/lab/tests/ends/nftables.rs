//! Counts nftables rules by netlink, since not every machine has its tools.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use std::io;

/// `NFT_MSG_GETRULE` of nfnetlink's subsystem `NFNL_SUBSYS_NFTABLES`: a dump of all rules.
const GET_RULES: u16 = 10 << 8 | 7;
const REQUEST_ALL: u16 = 0x301;

const DONE: u16 = 3;
const ERROR: u16 = 2;

/// The octets of a netlink message's header, and of nfnetlink's.
const HEADER: usize = 16;
const OWN: usize = 4;

/// Counts the rules in the calling thread's namespace.
pub(crate) fn count_rules() -> io::Result<usize> {
    let socket = Socket::new(NETLINK_NETFILTER)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = Vec::new();
    request.extend(((HEADER + OWN) as u32).to_ne_bytes());
    request.extend(GET_RULES.to_ne_bytes());
    request.extend(REQUEST_ALL.to_ne_bytes());
    request.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    request.extend([0; OWN]);
    socket.send(&request, 0)?;
    let mut count = 0;
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while let Some(head) = rest.get(..HEADER) {
            let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (length, kind) = (word(0) as usize, word(4) as u16);
            match kind {
                DONE => return Ok(count),
                ERROR => {
                    let code = rest
                        .get(HEADER..HEADER + 4)
                        .map_or(0, |c| i32::from_ne_bytes([c[0], c[1], c[2], c[3]]));
                    return Err(io::Error::from_raw_os_error(-code));
                }
                _ => count += 1,
            }
            rest = rest.get(length.max(HEADER).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}
