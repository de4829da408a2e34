//! Steers datagrams to the shards of a gateway. The kernel reads this side's SPI, so that messages of an IKE_SA reach
//! its shard from any address and port.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use usher_live::{SocketFilterInstruction, steer_datagrams};

// Opcodes of classic BPF instructions.
const LOAD_WORD: u16 = 0x20;
const LOAD_OCTET: u16 = 0x30;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const REMAINDER: u16 = 0x94;
const GIVE: u16 = 0x06;
const GIVE_VALUE: u16 = 0x16;

/// The Initiator flag: the original initiator of the IKE_SA sent this message (RFC 7296 §3.1).
const INITIATOR: u32 = 1 << 3;

/// The kind of a port's datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IkePortKind {
    /// IKE messages.
    Ike,
    /// IKE messages behind four zero octets, and ESP packets.
    Nat {
        /// True if an ESP socket exists, which is bound after those of the shards.
        esp: bool,
    },
}

const fn build_instruction(code: u16, yes: u8, no: u8, operand: u32) -> SocketFilterInstruction {
    SocketFilterInstruction { code, yes, no, operand }
}

/// Builds the BPF program that selects the shard. The last octet of the initiator's SPI selects the shard of a first
/// request, so retransmissions reach the same shard.
fn steering_program(port: IkePortKind, shards: u8) -> Vec<SocketFilterInstruction> {
    let (before, marker) = match port {
        IkePortKind::Ike => (Vec::new(), 0),
        IkePortKind::Nat { esp } => {
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
        // If the flag is not set, the peer is the responder, so the initiator's SPI belongs to this side.
        build_instruction(JUMP_SET, 2, 0, INITIATOR),
        build_instruction(LOAD_OCTET, 0, 0, marker),
        build_instruction(JUMP, 0, 0, 7),
        build_instruction(LOAD_WORD, 0, 0, marker + 8),
        build_instruction(JUMP_EQUAL, 0, 4, 0),
        build_instruction(LOAD_WORD, 0, 0, marker + 12),
        build_instruction(JUMP_EQUAL, 0, 2, 0),
        // The initiator's first request has no responder SPI, so its shard follows from the initiator's SPI.
        build_instruction(LOAD_OCTET, 0, 0, marker + 7),
        build_instruction(JUMP, 0, 0, 1),
        build_instruction(LOAD_OCTET, 0, 0, marker + 8),
        build_instruction(REMAINDER, 0, 0, shards.into()),
        build_instruction(GIVE_VALUE, 0, 0, 0),
    ];
    before.into_iter().chain(after).collect()
}

/// Attaches the program to the shards' sockets, by the first one's socket.
pub(super) fn attach_steering_program(first: &UdpSocket, port: IkePortKind, shards: u8) -> io::Result<()> {
    steer_datagrams(first.as_fd(), &steering_program(port, shards))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::time::Duration;
    use usher_live::{SocketOptions, bind_udp};

    /// Binds `count` sockets to one address.
    fn bind_same_address_sockets(count: usize) -> Vec<UdpSocket> {
        let options = SocketOptions::default();
        let first = bind_udp("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = first.local_addr().unwrap();
        let others = (1..count).map(|_| bind_udp(address, &options).unwrap());
        std::iter::once(first).chain(others).collect()
    }
    /// Returns the index of the socket that receives a datagram.
    fn receiving_socket(sockets: &[UdpSocket], octets: &[u8]) -> usize {
        let to: SocketAddr = sockets[0].local_addr().unwrap();
        // Use a new source port each time: the kernel's default choice depends on it.
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
        let sockets = bind_same_address_sockets(3);
        attach_steering_program(&sockets[0], IkePortKind::Ike, 3).unwrap();
        for n in 0..12u8 {
            let of = usize::from(n % 3);
            let first = ike_header([0xf0, 1, 2, 3, 4, 5, 6, n], [0; 8], 0x08);
            assert_eq!(receiving_socket(&sockets, &first), of, "a first request, {n}");
            for responder in [[n, 9, 0, 0, 0, 0, 0, 0], [n, 0, 0, 0, 0, 0, 0, 7], [n, 0, 0, 0, 1, 1, 1, 1]] {
                // An SPI of shard 0 may begin with a zero octet, and is not absent.
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
        let sockets = bind_same_address_sockets(3);
        attach_steering_program(&sockets[0], IkePortKind::Nat { esp: true }, 2).unwrap();
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
        // Without an ESP socket only IKE sockets receive datagrams.
        let sockets = bind_same_address_sockets(2);
        attach_steering_program(&sockets[0], IkePortKind::Nat { esp: false }, 2).unwrap();
        assert_eq!(receiving_socket(&sockets, &[9, 0, 0, 9, 0, 0, 0, 1, 5, 5, 5, 5]), 0);
    }
}
