//! A machine wrapper that counts datagrams.

use super::super::role::IkeTotals;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use usher_core::{
    CommandError, Instant, Machine, MachineInput, MachineOutput, MachineOutputOf, Transmit, WallTime,
};
use usher_radius::attribute::{VendorAttribute, read_vendors, vendor};
use usher_radius::{PacketCode, RadiusPacket};
use usher_scenario::ports::RADIUS;

/// Octets of the Ethernet, IP and UDP headers.
const ETHERNET: u64 = 14;
const IPV4: u64 = 20;
const IPV6: u64 = 40;
/// Octets of the IPv6 Fragment header.
const FRAGMENT: u64 = 8;
const UDP: u64 = 8;
/// The MTU of the counted networks.
const MTU: u64 = 1500;

/// Returns a datagram's octets in frames: each of its packets has an Ethernet and an IP header.
pub(super) fn octets_in_frames(to: IpAddr, payload: usize) -> u64 {
    let whole = UDP + payload as u64;
    let (header, more) = if to.is_ipv4() { (IPV4, 0) } else { (IPV6, FRAGMENT) };
    if header + whole <= MTU {
        return ETHERNET + header + whole;
    }
    // All fragments but the last carry a multiple of eight octets.
    let room = (MTU - header - more) / 8 * 8;
    whole + whole.div_ceil(room) * (ETHERNET + header + more)
}

/// A machine with counters of sent and received datagrams: RADIUS by the server's port, all others as IKE.
#[derive(Debug)]
pub(in super::super) struct DatagramCountingMachine<M> {
    machine: M,
    /// True while datagrams count.
    pub(super) counts: bool,
    pub(in super::super) totals: IkeTotals,
}

impl<M> DatagramCountingMachine<M> {
    pub(in super::super) fn new(machine: M, counts: bool) -> Self {
        Self { machine, counts, totals: IkeTotals::default() }
    }
    /// Replaces the machine and keeps the counters.
    pub(in super::super) fn replace_counted_machine(&mut self, machine: M) {
        self.machine = machine;
    }

    /// Counts an Access-Accept with or without a key of the method.
    fn count_access_accept(&mut self, datagram: &[u8]) {
        let Some(accept) =
            RadiusPacket::parse(datagram).ok().filter(|packet| packet.code() == PacketCode::ACCESS_ACCEPT)
        else {
            return;
        };
        let is_key =
            |of: VendorAttribute<'_>| (of.vendor, of.kind) == (vendor::MICROSOFT, vendor::MS_MPPE_RECV_KEY);
        self.totals.accepts += 1;
        self.totals.keyed += u64::from(read_vendors(accept.attributes()).any(is_key));
    }

    fn count_datagram(&mut self, way: usize, remote: std::net::SocketAddr, payload: usize) {
        if self.counts {
            let of = if remote.port() == RADIUS { &mut self.totals.radius } else { &mut self.totals.ike };
            of[way][0] += 1;
            of[way][1] += octets_in_frames(remote.ip(), payload);
        }
    }
}

impl<M> Deref for DatagramCountingMachine<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M> DerefMut for DatagramCountingMachine<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

impl<M: Machine> Machine for DatagramCountingMachine<M> {
    type Command = M::Command;
    type Event = M::Event;
    type Job = M::Job;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.machine.set_epoch(now, epoch);
    }
    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        if let MachineInput::Datagram { path, data } = &input {
            self.count_datagram(1, path.remote, data.len());
            if self.counts && path.remote.port() == RADIUS {
                self.count_access_accept(data);
            }
        }
        self.machine.handle_input(now, input);
    }
    fn handle_command(&mut self, now: Instant, command: M::Command) -> Result<(), CommandError> {
        self.machine.handle_command(now, command)
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        let output = self.machine.poll_output(buf);
        if let Some(MachineOutput::Transmit(Transmit::Datagram { path })) = &output {
            self.count_datagram(0, path.remote, buf.len());
        }
        output
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn frames_have_their_headers() {
        let v4 = |payload| octets_in_frames(Ipv4Addr::LOCALHOST.into(), payload);
        assert_eq!(v4(300), 14 + 20 + 8 + 300);
        assert_eq!(v4(1472), 1514);
        // 1481 octets of UDP go in 1480 and 1.
        assert_eq!(v4(1473), 1514 + 14 + 20 + 1);
        let v6 = |payload| octets_in_frames(Ipv6Addr::LOCALHOST.into(), payload);
        assert_eq!(v6(1452), 1514);
        // 1448 octets in the first fragment, 13 in the second.
        assert_eq!(v6(1453), 14 + 40 + 8 + 1448 + 14 + 40 + 8 + 13);
    }
}
