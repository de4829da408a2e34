//! The correspondent: sends a flow of constant rate to a station, wherever the station's last Binding Update says that
//! it is.

use crate::flow;
use crate::work;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_core::{
    CommandError, DatagramPath, Duration, Instant, Machine, MachineInput, NoJob, OutputOf, OutputQueue,
    SocketId, Transmit, WorkRecord,
};
use usher_mip::{BindingCache, CareOfProof, MobilityMessage, MobilityPacket};

/// The socket that the flow leaves from: any port.
pub const FLOW_SOCKET: SocketId = SocketId::from_number(0);
/// The socket for registrations: port [`usher_mip::PORT`].
pub const BINDING_SOCKET: SocketId = SocketId::from_number(1);

/// What a correspondent is made of.
#[derive(Clone, Debug)]
pub struct CorrespondentConfig {
    /// The station's home address with the port of its application: where the flow goes until a binding says otherwise.
    /// A binding changes the address, not the port.
    pub station: SocketAddr,
    /// Octets of each packet, UDP's header not included; at least four, for the sequence number.
    pub size: usize,
    /// Between packets.
    pub interval: Duration,
    /// How many packets; `None`: without end.
    pub packets: Option<u32>,
    /// The longest lifetime that is granted to a binding.
    pub longest_binding: Duration,
    /// How an address proves that the flow may go there; without, whoever says so moves it.
    pub proof: Option<CareOfProof>,
}

/// What a correspondent is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CorrespondentCommand {
    /// Begin the flow: the first packet leaves now.
    Start,
}

/// What a correspondent has to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CorrespondentEvent {
    /// A packet of the flow left.
    Sent {
        /// Its number; the first is 0.
        sequence: u32,
        /// To this address.
        to: IpAddr,
    },
    /// A Binding Update was taken: the flow goes there from now on.
    Redirected {
        /// The station's care-of address.
        to: IpAddr,
    },
}

usher_core::counters! {
    /// What a correspondent did and what it dropped.
    pub struct CorrespondentCounters {
        /// Packets of the flow.
        sent,
        /// Binding Updates that were taken.
        bound,
        /// Binding Updates that were refused.
        refused,
        /// Dropped: Binding Updates of an address that did not repeat the number that it was to repeat.
        unproven,
        /// Dropped: datagrams to the registration's port that are no packet of it.
        malformed,
        /// Dropped: registration packets that are no Binding Update.
        not_an_update,
        /// Dropped: input that is none for this machine.
        unexpected,
    }
}

/// A correspondent; see the [module](self).
#[derive(Debug)]
pub struct CorrespondentNode {
    config: CorrespondentConfig,
    cache: BindingCache,
    /// The next packet's number.
    sequence: u32,
    /// When it leaves; `None`: the flow has not begun, or is over.
    due: Option<Instant>,
    outputs: OutputQueue<CorrespondentEvent>,
    counters: CorrespondentCounters,
}

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl CorrespondentNode {
    /// A correspondent whose flow has not begun.
    #[must_use]
    pub fn new(config: CorrespondentConfig) -> Self {
        let cache = BindingCache::new(&[config.station.ip()], config.longest_binding)
            .with_proof(config.proof.clone());
        Self {
            config,
            cache,
            sequence: 0,
            due: None,
            outputs: OutputQueue::default(),
            counters: CorrespondentCounters::default(),
        }
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &CorrespondentCounters {
        &self.counters
    }

    /// Sends what is due: several packets, if the host comes late.
    fn send_due_packets(&mut self, now: Instant) {
        while let Some(due) = self.due.filter(|due| *due <= now) {
            let to = self.cache.current_address(now, self.config.station.ip());
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
        let before = self.cache.current_address(now, home);
        let Some(answer) = self.cache.apply_update(now, home, path.remote.ip(), update) else {
            self.counters.unproven += 1;
            return;
        };
        let accepted = answer.status.is_accepted();
        let to = self.cache.current_address(now, home);
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
                Err(CommandError::WrongState("the flow has begun"))
            }
            CorrespondentCommand::Start if self.config.interval.is_zero() => {
                Err(CommandError::Invalid("a flow needs an interval"))
            }
            CorrespondentCommand::Start => {
                self.due = (self.config.packets != Some(0)).then_some(now);
                self.send_due_packets(now);
                Ok(())
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests;
