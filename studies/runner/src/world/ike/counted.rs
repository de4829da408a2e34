//! A machine whose datagrams are counted.

use super::super::role::IkeTotals;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use usher_core::{CommandError, Input, Instant, Machine, Output, OutputOf, Transmit, WallTime};
use usher_radius::attribute::{Vendor, read_vendors, vendor};
use usher_radius::{Code, Packet};
use usher_scenario::ports::RADIUS;

/// Octets of an Ethernet header, of IP's, and of UDP's.
const ETHERNET: u64 = 14;
const IPV4: u64 = 20;
const IPV6: u64 = 40;
/// What an IPv6 header is followed by in a fragment.
const FRAGMENT: u64 = 8;
const UDP: u64 = 8;
/// The largest packet of the networks that are counted for.
const MTU: u64 = 1500;

/// Octets of a datagram in frames: each of its packets has a header of Ethernet and of IP.
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

/// A machine, and what it has sent and received while it was counted: RADIUS by the server's port, all else as IKE.
#[derive(Debug)]
pub(in super::super) struct Counted<M> {
    machine: M,
    /// Whether what passes now is counted.
    pub(super) counts: bool,
    pub(in super::super) totals: IkeTotals,
}

impl<M> Counted<M> {
    pub(in super::super) fn new(machine: M, counts: bool) -> Self {
        Self { machine, counts, totals: IkeTotals::default() }
    }
    /// Another machine in its place, with what was counted so far.
    pub(in super::super) fn replace(&mut self, machine: M) {
        self.machine = machine;
    }

    /// An Access-Accept has come, with a key of the method or without.
    fn note_accept(&mut self, datagram: &[u8]) {
        let Some(accept) = Packet::parse(datagram).ok().filter(|packet| packet.code() == Code::ACCESS_ACCEPT)
        else {
            return;
        };
        let is_key = |of: Vendor<'_>| (of.vendor, of.kind) == (vendor::MICROSOFT, vendor::MS_MPPE_RECV_KEY);
        self.totals.accepts += 1;
        self.totals.keyed += u64::from(read_vendors(accept.attributes()).any(is_key));
    }

    fn count(&mut self, way: usize, remote: std::net::SocketAddr, payload: usize) {
        if self.counts {
            let of = if remote.port() == RADIUS { &mut self.totals.radius } else { &mut self.totals.ike };
            of[way][0] += 1;
            of[way][1] += octets_in_frames(remote.ip(), payload);
        }
    }
}

impl<M> Deref for Counted<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M> DerefMut for Counted<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

impl<M: Machine> Machine for Counted<M> {
    type Command = M::Command;
    type Event = M::Event;
    type Job = M::Job;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.machine.set_epoch(now, epoch);
    }
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Datagram { path, data } = &input {
            self.count(1, path.remote, data.len());
            if self.counts && path.remote.port() == RADIUS {
                self.note_accept(data);
            }
        }
        self.machine.handle(now, input);
    }
    fn command(&mut self, now: Instant, command: M::Command) -> Result<(), CommandError> {
        self.machine.command(now, command)
    }
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        let output = self.machine.poll_output(buf);
        if let Some(Output::Transmit(Transmit::Datagram { path })) = &output {
            self.count(0, path.remote, buf.len());
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
