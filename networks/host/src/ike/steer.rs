//! Which shard of a gateway gets a datagram: the kernel reads the SPI of this side in it, so that whatever is about an IKE_SA comes
//! to the thread that has it, whichever port and address it comes from.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use usher_live::{FilterInstruction, steer_datagrams};

// Codes of the kernel's classic packet filter.
const LOAD_WORD: u16 = 0x20;
const LOAD_OCTET: u16 = 0x30;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const REMAINDER: u16 = 0x94;
const GIVE: u16 = 0x06;
const GIVE_VALUE: u16 = 0x16;

/// The bit of a header's flags that says that the original initiator of the IKE_SA has sent it (RFC 7296 §3.1).
const INITIATOR: u32 = 1 << 3;

/// What datagrams of a port are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SteeredPort {
    /// Messages of IKE.
    Ike,
    /// The same behind four octets of zero, and packets of ESP, which have a socket of their own or are of no use.
    Nat {
        /// There is a socket of ESP, which was bound after those of the shards.
        esp: bool,
    },
}

const fn build_instruction(code: u16, yes: u8, no: u8, operand: u32) -> FilterInstruction {
    FilterInstruction { code, yes, no, operand }
}

/// The program that tells the shard. A first request is of the one that the last octet of its SPI tells: when it comes again it
/// comes to the same.
fn steering_program(port: SteeredPort, shards: u8) -> Vec<FilterInstruction> {
    let (before, marker) = match port {
        SteeredPort::Ike => (Vec::new(), 0),
        SteeredPort::Nat { esp } => {
            let other = if esp { shards.into() } else { 0 };
            (
                vec![
                    build_instruction(LOAD_WORD, 0, 0, 0),
                    build_instruction(JUMP_EQUAL, 1, 0, 0),
                    build_instruction(GIVE, 0, 0, other),
                ],
                4,
            )
        }
    };
    let after = [
        build_instruction(LOAD_OCTET, 0, 0, marker + 19),
        // The other side is the responder: the initiator's SPI is this side's.
        build_instruction(JUMP_SET, 2, 0, INITIATOR),
        build_instruction(LOAD_OCTET, 0, 0, marker),
        build_instruction(JUMP, 0, 0, 7),
        build_instruction(LOAD_WORD, 0, 0, marker + 8),
        build_instruction(JUMP_EQUAL, 0, 4, 0),
        build_instruction(LOAD_WORD, 0, 0, marker + 12),
        build_instruction(JUMP_EQUAL, 0, 2, 0),
        // A first request: there is no SPI of this side yet.
        build_instruction(LOAD_OCTET, 0, 0, marker + 7),
        build_instruction(JUMP, 0, 0, 1),
        build_instruction(LOAD_OCTET, 0, 0, marker + 8),
        build_instruction(REMAINDER, 0, 0, shards.into()),
        build_instruction(GIVE_VALUE, 0, 0, 0),
    ];
    before.into_iter().chain(after).collect()
}

/// Has the kernel tell shards' datagrams apart, at the address of the first one's socket.
pub(super) fn steer_to_shards(first: &UdpSocket, port: SteeredPort, shards: u8) -> io::Result<()> {
    steer_datagrams(first.as_fd(), &steering_program(port, shards))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::time::Duration;
    use usher_live::{SocketOptions, bind_udp};

    /// So many sockets of one address.
    fn shared_sockets(count: usize) -> Vec<UdpSocket> {
        let options = SocketOptions::default();
        let first = bind_udp("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = first.local_addr().unwrap();
        let others = (1..count).map(|_| bind_udp(address, &options).unwrap());
        std::iter::once(first).chain(others).collect()
    }
    /// Which of them gets a datagram.
    fn receiving_socket(sockets: &[UdpSocket], octets: &[u8]) -> usize {
        let to: SocketAddr = sockets[0].local_addr().unwrap();
        // From a port of its own each time: the kernel's own choice would go by it.
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(octets, to).unwrap();
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            for (number, socket) in sockets.iter().enumerate() {
                if socket.recv(&mut [0; 2048]).is_ok() {
                    return number;
                }
            }
            std::thread::yield_now();
        }
        panic!("nobody gets it");
    }
    fn ike_header(initiator: [u8; 8], responder: [u8; 8], flags: u8) -> Vec<u8> {
        let rest = [0, 0x20, 34, flags, 0, 0, 0, 0, 0, 0, 0, 28];
        [&initiator[..], &responder, &rest].concat()
    }

    #[test]
    fn messages_come_to_the_shard_whose_spi_they_bear() {
        let sockets = shared_sockets(3);
        steer_to_shards(&sockets[0], SteeredPort::Ike, 3).unwrap();
        for n in 0..12u8 {
            let of = usize::from(n % 3);
            let first = ike_header([0xf0, 1, 2, 3, 4, 5, 6, n], [0; 8], 0x08);
            assert_eq!(receiving_socket(&sockets, &first), of, "a first request, {n}");
            for responder in [[n, 9, 0, 0, 0, 0, 0, 0], [n, 0, 0, 0, 0, 0, 0, 7], [n, 0, 0, 0, 1, 1, 1, 1]] {
                // Of shard 0 one may begin with a zero, and must not be taken for none.
                let request = ike_header([0xff; 8], responder, 0x08);
                assert_eq!(receiving_socket(&sockets, &request), of, "of the initiator, {responder:?}");
            }
            let response = ike_header([n, 7, 7, 7, 7, 7, 7, 7], [0xff; 8], 0x20);
            assert_eq!(receiving_socket(&sockets, &response), of, "of the responder, {n}");
        }
        assert_eq!(receiving_socket(&sockets, &[1, 2, 3]), 0, "what is too short for a header");
    }

    #[test]
    fn at_port_4500_esp_has_a_socket_of_its_own() {
        let sockets = shared_sockets(3);
        steer_to_shards(&sockets[0], SteeredPort::Nat { esp: true }, 2).unwrap();
        let marked = |octets: Vec<u8>| [vec![0; 4], octets].concat();
        for n in 0..4u8 {
            let of = usize::from(n % 2);
            let request = marked(ike_header([0xff; 8], [n, 1, 1, 1, 1, 1, 1, 1], 0x08));
            assert_eq!(receiving_socket(&sockets, &request), of);
            assert_eq!(
                receiving_socket(&sockets, &marked(ike_header([1, 1, 1, 1, 1, 1, 1, n], [0; 8], 0x08))),
                of
            );
            assert_eq!(receiving_socket(&sockets, &[n + 1, 0, 0, 9, 0, 0, 0, 1, 5, 5, 5, 5]), 2, "ESP");
        }
        assert_eq!(receiving_socket(&sockets, &[0xff]), 0, "a keepalive");
        // Without a socket of ESP nobody but IKE gets anything.
        let sockets = shared_sockets(2);
        steer_to_shards(&sockets[0], SteeredPort::Nat { esp: false }, 2).unwrap();
        assert_eq!(receiving_socket(&sockets, &[9, 0, 0, 9, 0, 0, 0, 1, 5, 5, 5, 5]), 0);
    }
}
