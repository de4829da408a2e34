//! The correspondent: sends a flow of constant rate to a station, wherever the station's last Binding Update says that
//! it is.

use crate::flow;
use crate::work;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_core::{
    CommandError, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs, Path, SocketId, Transmit, Work,
};
use usher_mip::{BindingCache, CareOfProof, Message, Packet};

/// The socket that the flow leaves from: any port.
pub const FLOW_SOCKET: SocketId = SocketId::own(0);
/// The socket for registrations: port [`usher_mip::PORT`].
pub const BINDING_SOCKET: SocketId = SocketId::own(1);

/// What a correspondent is made of.
#[derive(Clone, Debug)]
pub struct Config {
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
pub enum Command {
    /// Begin the flow: the first packet leaves now.
    Start,
}

/// What a correspondent has to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
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
    pub struct Counters {
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
pub struct Correspondent {
    config: Config,
    cache: BindingCache,
    /// The next packet's number.
    sequence: u32,
    /// When it leaves; `None`: the flow has not begun, or is over.
    due: Option<Instant>,
    outputs: Outputs<Event>,
    counters: Counters,
}

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Correspondent {
    /// A correspondent whose flow has not begun.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let cache = BindingCache::new(&[config.station.ip()], config.longest_binding)
            .with_proof(config.proof.clone());
        Self {
            config,
            cache,
            sequence: 0,
            due: None,
            outputs: Outputs::default(),
            counters: Counters::default(),
        }
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sends what is due: several packets, if the host comes late.
    fn flow(&mut self, now: Instant) {
        while let Some(due) = self.due.filter(|due| *due <= now) {
            let to = self.cache.locate(now, self.config.station.ip());
            let remote = SocketAddr::new(to, self.config.station.port());
            let mut packet = self.outputs.buffer();
            flow::emit(&mut packet, self.sequence, self.config.size);
            let path = Path { socket: FLOW_SOCKET, local: ANY, remote };
            self.outputs.transmit(Transmit::Datagram { path }, packet);
            self.outputs.event(Event::Sent { sequence: self.sequence, to });
            self.outputs.work(Work { label: work::DATA, units: 1 });
            self.counters.sent += 1;
            self.sequence = self.sequence.wrapping_add(1);
            let over = self.config.packets.is_some_and(|n| self.counters.sent >= u64::from(n));
            let next = due + self.config.interval;
            self.due = (!over && next > due).then_some(next);
        }
    }

    fn registration(&mut self, now: Instant, path: Path, data: &[u8]) {
        let Ok(packet) = Packet::parse(data) else {
            self.counters.malformed += 1;
            return;
        };
        let Message::Update(update) = &packet.message else {
            self.counters.not_an_update += 1;
            return;
        };
        self.outputs.work(Work { label: work::BINDING, units: 1 });
        let home = usher_mip::outer(packet.source);
        let before = self.cache.locate(now, home);
        let Some(answer) = self.cache.update(now, home, path.remote.ip(), update) else {
            self.counters.unproven += 1;
            return;
        };
        let accepted = answer.status.is_accepted();
        let to = self.cache.locate(now, home);
        if accepted {
            self.counters.bound += 1;
            if to != before {
                self.outputs.event(Event::Redirected { to });
            }
        } else {
            self.counters.refused += 1;
        }
        if update.acknowledge || !accepted {
            let reply = Packet {
                source: packet.destination,
                destination: packet.source,
                message: Message::Acknowledgement(answer),
            };
            let mut buf = self.outputs.buffer();
            reply.emit(&mut buf);
            self.outputs.transmit(Transmit::Datagram { path }, buf);
        }
    }
}

impl Machine for Correspondent {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Datagram { path, data } if path.socket == BINDING_SOCKET => {
                self.registration(now, path, data);
            }
            Input::Timeout => self.flow(now),
            _ => self.counters.unexpected += 1,
        }
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Start if self.due.is_some() || self.counters.sent > 0 => {
                Err(CommandError::WrongState("the flow has begun"))
            }
            Command::Start if self.config.interval.is_zero() => {
                Err(CommandError::Invalid("a flow needs an interval"))
            }
            Command::Start => {
                self.due = (self.config.packets != Some(0)).then_some(now);
                self.flow(now);
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
