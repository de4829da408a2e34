//! The correspondent: sends a constant-rate flow to a station, at the address of its latest Binding Update.

use crate::flow;
use crate::work;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_core::{
    CommandError, DatagramPath, Duration, Instant, Machine, MachineInput, MachineOutputOf, NoJob,
    OutputQueue, SocketId, Transmit, WorkRecord,
};
use usher_mip::{BindingCache, CareOfVerificationConfig, MobilityMessage, MobilityPacket};

/// The socket that sends the flow, at any port.
pub const FLOW_SOCKET: SocketId = SocketId::from_number(0);
/// The socket for registrations: port [`usher_mip::PORT`].
pub const BINDING_SOCKET: SocketId = SocketId::from_number(1);

/// The configuration of a correspondent.
#[derive(Clone, Debug)]
pub struct CorrespondentConfig {
    /// The station's home address and its application's port: the destination of the flow without a binding. A
    /// binding changes the address, not the port.
    pub station: SocketAddr,
    /// Octets of each packet, without the UDP header: at least four, for the sequence number.
    pub size: usize,
    /// Time between packets.
    pub interval: Duration,
    /// Number of packets; `None`: no limit.
    pub packets: Option<u32>,
    /// Maximum granted lifetime of a binding.
    pub longest_binding: Duration,
    /// The proof that a care-of address must give. `None`: any Binding Update moves the flow.
    pub proof: Option<CareOfVerificationConfig>,
}

/// A command of the correspondent's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CorrespondentCommand {
    /// Starts the flow with its first packet.
    Start,
}

/// An event of a correspondent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CorrespondentEvent {
    /// The correspondent has sent a packet of the flow.
    Sent {
        /// Its sequence number; the first is 0.
        sequence: u32,
        /// Its destination.
        to: IpAddr,
    },
    /// A Binding Update was accepted. The flow goes to the care-of address.
    Redirected {
        /// The station's care-of address.
        to: IpAddr,
    },
}

usher_core::counters! {
    /// Counters of a correspondent.
    pub struct CorrespondentCounters {
        /// Packets of the flow.
        sent,
        /// Binding Updates accepted.
        bound,
        /// Binding Updates refused.
        refused,
        /// Dropped: Binding Updates that do not repeat the number sent to their address.
        unproven,
        /// Dropped: malformed datagrams to the registration's port.
        malformed,
        /// Dropped: registration packets other than Binding Updates.
        not_an_update,
        /// Dropped: input of a wrong kind.
        unexpected,
    }
}

/// A correspondent; see the [module](self).
#[derive(Debug)]
pub struct CorrespondentNode {
    config: CorrespondentConfig,
    cache: BindingCache,
    /// Sequence number of the next packet.
    sequence: u32,
    /// When the next packet is due; `None`: the flow has not begun or has ended.
    due: Option<Instant>,
    outputs: OutputQueue<CorrespondentEvent>,
    counters: CorrespondentCounters,
}

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl CorrespondentNode {
    /// Creates a correspondent.
    #[must_use]
    pub fn new(config: CorrespondentConfig) -> Self {
        let cache = BindingCache::new(&[config.station.ip()], config.longest_binding)
            .with_care_of_verification(config.proof.clone());
        Self {
            config,
            cache,
            sequence: 0,
            due: None,
            outputs: OutputQueue::default(),
            counters: CorrespondentCounters::default(),
        }
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &CorrespondentCounters {
        &self.counters
    }

    /// Sends the due packets: several if the host is late.
    fn send_due_packets(&mut self, now: Instant) {
        while let Some(due) = self.due.filter(|due| *due <= now) {
            let to = self.cache.current_mobile_address(now, self.config.station.ip());
            let remote = SocketAddr::new(to, self.config.station.port());
            let mut packet = self.outputs.take_buffer();
            flow::emit_packet(&mut packet, self.sequence, self.config.size);
            let path = DatagramPath { socket: FLOW_SOCKET, local: ANY, remote };
            self.outputs.push_transmit(Transmit::Datagram { path }, packet);
            self.outputs.push_event(CorrespondentEvent::Sent { sequence: self.sequence, to });
            self.outputs.push_work(WorkRecord { label: work::DATA, units: 1 });
            self.counters.sent += 1;
            self.sequence = self.sequence.wrapping_add(1);
            let over = self.config.packets.is_some_and(|n| self.counters.sent >= u64::from(n));
            let next = due + self.config.interval;
            self.due = (!over && next > due).then_some(next);
        }
    }

    fn handle_binding_update(&mut self, now: Instant, path: DatagramPath, data: &[u8]) {
        let Ok(packet) = MobilityPacket::parse(data) else {
            self.counters.malformed += 1;
            return;
        };
        let MobilityMessage::Update(update) = &packet.message else {
            self.counters.not_an_update += 1;
            return;
        };
        self.outputs.push_work(WorkRecord { label: work::BINDING, units: 1 });
        let home = usher_mip::from_inner_address(packet.source);
        let before = self.cache.current_mobile_address(now, home);
        let Some(answer) = self.cache.apply_update(now, home, path.remote.ip(), update) else {
            self.counters.unproven += 1;
            return;
        };
        let accepted = answer.status.is_accepted();
        let to = self.cache.current_mobile_address(now, home);
        if accepted {
            self.counters.bound += 1;
            if to != before {
                self.outputs.push_event(CorrespondentEvent::Redirected { to });
            }
        } else {
            self.counters.refused += 1;
        }
        if update.acknowledge || !accepted {
            let reply = MobilityPacket {
                source: packet.destination,
                destination: packet.source,
                message: MobilityMessage::Acknowledgement(answer),
            };
            let mut buf = self.outputs.take_buffer();
            reply.emit(&mut buf);
            self.outputs.push_transmit(Transmit::Datagram { path }, buf);
        }
    }
}

impl Machine for CorrespondentNode {
    type Command = CorrespondentCommand;
    type Event = CorrespondentEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Datagram { path, data } if path.socket == BINDING_SOCKET => {
                self.handle_binding_update(now, path, data);
            }
            MachineInput::Timeout => self.send_due_packets(now),
            _ => self.counters.unexpected += 1,
        }
    }

    fn handle_command(&mut self, now: Instant, command: CorrespondentCommand) -> Result<(), CommandError> {
        match command {
            CorrespondentCommand::Start if self.due.is_some() || self.counters.sent > 0 => {
                Err(CommandError::WrongState("the flow has already started"))
            }
            CorrespondentCommand::Start if self.config.interval.is_zero() => {
                Err(CommandError::Invalid("the interval of the flow is 0"))
            }
            CorrespondentCommand::Start => {
                self.due = (self.config.packets != Some(0)).then_some(now);
                self.send_due_packets(now);
                Ok(())
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests;
