//! The thread of a tunnel, which moves whole batches between the device and the network.

use crate::sys::{self, DatagramBatchReceiver, OutgoingMessage};
use crate::tunnel::TunnelEvent;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::Socket;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant as Clock};
use usher_core::Instant;
use usher_device::{JOINED, PacketCoalescer, PacketSegments, SegmentationOffloads, VNET_HEADER, VnetHeader};
use usher_esp::ip::{self, IpPacket};
use usher_esp::plane::{
    IpsecOperationError, OutboundDecision, OuterAddresses, PacketArrival, ReceivedPacket, SaUsage,
};
use usher_esp::{EncapsulatedDatagram, EspDataPlane, IpsecOperation};

usher_core::counters! {
    /// The traffic of a tunnel, and its drops.
    pub struct TunnelCounters {
        /// Packets read from the device. A batch that this program segments counts as one.
        device_in,
        /// Packets written to the device. A batch that the system segments counts as one.
        device_out,
        /// Messages received: datagrams, or batches of them.
        messages_in,
        /// Messages sent.
        messages_out,
        /// ESP packets sent.
        packets_out,
        /// Batches that the system did not segment: their packets were sent one by one.
        not_cut,
        /// Packets that the system did not send.
        not_sent,
        /// Packets that the device did not accept.
        not_written,
        /// Data from the device that is not a valid packet, or has an invalid header of the system.
        malformed,
        /// Packets not sent in the clear: no mark routes them past the device.
        not_forwarded,
        /// Packets of an SA without a socket for its IP family and encapsulation.
        no_socket,
        /// IKE messages passed on.
        ike,
    }
}

/// A command to a tunnel.
#[derive(Debug)]
pub(crate) enum TunnelCommand {
    Apply(IpsecOperation, Sender<Result<(), IpsecOperationError>>),
    Usage(u32, Sender<Option<SaUsage>>),
    Usages(Sender<Vec<(u32, SaUsage)>>),
    Counters(Sender<(usher_esp::EspCounters, TunnelCounters)>),
    Send(OuterAddresses, Vec<u8>, Sender<()>),
    Stop(Sender<()>),
}

/// A socket and its purpose.
#[derive(Debug)]
pub(crate) struct TunnelSocket {
    pub(crate) socket: Socket,
    pub(crate) local: SocketAddr,
    pub(crate) encapsulated: bool,
}

impl TunnelSocket {
    /// True if packets of this path use it.
    fn is_for(&self, outer: &OuterAddresses) -> bool {
        let (ip, port) = (self.local.ip(), self.local.port());
        self.encapsulated == outer.encapsulated
            && ip.is_ipv4() == outer.local.is_ipv4()
            && (ip.is_unspecified() || outer.local.ip().is_unspecified() || ip == outer.local.ip())
            && (!self.encapsulated || outer.local.port() == 0 || port == outer.local.port())
    }
}

/// The parts of a worker.
pub(crate) struct TunnelWorkerParts {
    pub(crate) device: File,
    pub(crate) ports: Vec<TunnelSocket>,
    pub(crate) forward: Vec<Socket>,
    pub(crate) offers: SegmentationOffloads,
    pub(crate) plane: EspDataPlane,
    pub(crate) report: Option<Duration>,
    pub(crate) messages: Receiver<TunnelCommand>,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) event_handler: Box<dyn FnMut(TunnelEvent) + Send>,
}

/// Consecutive ESP packets of equal length and path, which are sent as one message. The last may be shorter.
#[derive(Clone, Copy, Debug)]
struct EspPacketBatch {
    port: usize,
    outer: OuterAddresses,
    class: u8,
    from: usize,
    to: usize,
    each: usize,
}

/// The packets that the kernel cuts from one message (`UDP_MAX_SEGMENTS` before Linux 6.9).
const CARS: usize = 64;
/// The octets of one message. With its headers it is one IP packet.
const TRAIN: usize = 65_000;
/// The octets of sealed packets that may wait for a batch.
const SEALED: usize = 1 << 19;
/// The packets taken from the device before received ones get their turn.
const TURN: usize = 8;

/// Sealed packets that wait for transmission.
struct EncryptedPacketBuffer {
    octets: Vec<u8>,
    end: usize,
    trains: Vec<EspPacketBatch>,
}

impl EncryptedPacketBuffer {
    /// Appends a packet of `length` octets on this path. `seal` writes it, and returns true on success.
    fn add_packet_to_batch(
        &mut self,
        port: usize,
        outer: OuterAddresses,
        class: u8,
        length: usize,
        seal: impl FnOnce(&mut [u8]) -> bool,
    ) {
        let (from, to) = (self.end, self.end + length);
        let Some(octets) = self.octets.get_mut(from..to) else { return };
        if !seal(octets) {
            return;
        }
        self.end = to;
        if let Some(train) = self.trains.last_mut() {
            let so_far = train.to - train.from;
            let joins = outer.encapsulated
                && (train.port, train.outer, train.class, train.to) == (port, outer, class, from)
                && so_far.is_multiple_of(train.each)
                && length <= train.each
                && so_far / train.each < CARS
                && so_far + length <= TRAIN;
            if joins {
                train.to = to;
                return;
            }
        }
        self.trains.push(EspPacketBatch { port, outer, class, from, to, each: length });
    }
    /// True if the segments of another packet may not fit.
    fn is_full(&self) -> bool {
        self.octets.len() - self.end < 4 * JOINED
    }
}

pub(crate) struct TunnelWorker {
    device: File,
    ports: Vec<TunnelSocket>,
    forward: Vec<Socket>,
    plane: EspDataPlane,
    report: Option<Duration>,
    /// The time of the last usage report.
    reported: Clock,
    /// True if packets have passed since then.
    unreported: bool,
    messages: Receiver<TunnelCommand>,
    wake: Arc<OwnedFd>,
    event_handler: Box<dyn FnMut(TunnelEvent) + Send>,
    clock: Clock,
    inbox: DatagramBatchReceiver,
    outbox: sys::DatagramBatchSender,
    sealed: EncryptedPacketBuffer,
    joiner: PacketCoalescer,
    counters: TunnelCounters,
}

impl TunnelWorker {
    pub(crate) fn new(parts: TunnelWorkerParts) -> Self {
        let TunnelWorkerParts {
            device,
            ports,
            forward,
            offers,
            plane,
            report,
            messages,
            wake,
            event_handler: said,
        } = parts;
        Self {
            device,
            ports,
            forward,
            plane,
            report,
            reported: Clock::now(),
            unreported: false,
            messages,
            wake,
            event_handler: said,
            clock: Clock::now(),
            inbox: DatagramBatchReceiver::new(),
            outbox: sys::DatagramBatchSender::new(),
            sealed: EncryptedPacketBuffer { octets: vec![0; SEALED], end: 0, trains: Vec::new() },
            joiner: PacketCoalescer::new(offers),
            counters: TunnelCounters::default(),
        }
    }

    pub(crate) fn run(mut self) {
        let mut packet = vec![0; VNET_HEADER + JOINED];
        loop {
            let turn = (|| {
                let went = self.send_from_device(&mut packet)?;
                let came = self.receive_to_device()?;
                self.report_events();
                self.unreported |= went || came;
                self.report_due_sa_usages();
                Ok(went || came)
            })();
            let busy = match turn {
                Ok(busy) => busy,
                Err(why) => return (self.event_handler)(TunnelEvent::Failed(why)),
            };
            while let Ok(message) = self.messages.try_recv() {
                if !self.apply_command(message, &mut packet) {
                    return;
                }
            }
            if !busy && let Err(why) = self.wait_for_input() {
                return (self.event_handler)(TunnelEvent::Failed(why));
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Reports the usage of pairs if it is due.
    fn report_due_sa_usages(&mut self) {
        if self.unreported && self.report.is_some_and(|every| self.reported.elapsed() >= every) {
            (self.unreported, self.reported) = (false, Clock::now());
            let changed = self.plane.take_changed_usages();
            if !changed.is_empty() {
                (self.event_handler)(TunnelEvent::UsageReport(changed));
            }
        }
    }

    /// Waits for input or the next report.
    fn wait_for_input(&self) -> Result<(), String> {
        let mut all = vec![PollFd::new(&*self.wake, PollFlags::IN), PollFd::new(&self.device, PollFlags::IN)];
        all.extend(self.ports.iter().map(|port| PollFd::new(&port.socket, PollFlags::IN)));
        let left = self.report.filter(|_| self.unreported);
        let left = left.map(|every| every.saturating_sub(self.reported.elapsed()));
        // A duration here always fits the kernel's type. If there is none, wait for packets without a time limit.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut all, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("cannot wait for packets: {e}")),
        }
        // Reading resets the eventfd's counter to 0. It fails if no wake-up happened, which is no error here.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        Ok(())
    }

    fn report_events(&mut self) {
        while let Some(event) = self.plane.poll_event() {
            (self.event_handler)(TunnelEvent::Plane(event));
        }
    }

    /// Applies a command. False: end. The sender may have gone.
    fn apply_command(&mut self, message: TunnelCommand, buf: &mut [u8]) -> bool {
        match message {
            TunnelCommand::Apply(operation, answer) => {
                let now = self.now();
                let done = self.plane.apply_operation(now, operation);
                while let Some(released) = self.plane.poll_released_packet() {
                    let Some(place) = buf.get_mut(..released.len()) else { continue };
                    place.copy_from_slice(&released);
                    self.process_packet(now, VnetHeader::default(), place);
                    self.flush_sealed();
                }
                self.flush_sealed();
                self.report_events();
                let _ = answer.send(done);
            }
            TunnelCommand::Usage(inbound, answer) => {
                let _ = answer.send(self.plane.pair_usage(inbound));
            }
            TunnelCommand::Usages(answer) => {
                let _ = answer.send(self.plane.all_usages());
            }
            TunnelCommand::Counters(answer) => {
                let _ = answer.send((*self.plane.counters(), self.counters));
            }
            TunnelCommand::Send(outer, datagram, answer) => {
                if let Some(port) = self.find_port(&outer) {
                    self.sealed.add_packet_to_batch(port, outer, 0, datagram.len(), |place| {
                        place.copy_from_slice(&datagram);
                        true
                    });
                    self.flush_sealed();
                }
                let _ = answer.send(());
            }
            TunnelCommand::Stop(answer) => {
                let _ = answer.send(());
                return false;
            }
        }
        true
    }

    fn find_port(&mut self, outer: &OuterAddresses) -> Option<usize> {
        let found = self.ports.iter().position(|port| port.is_for(outer));
        if found.is_none() {
            self.counters.no_socket += 1;
        }
        found
    }

    /// Moves packets from the device to the network. True if there were any.
    fn send_from_device(&mut self, buf: &mut [u8]) -> Result<bool, String> {
        let mut any = false;
        for _ in 0..TURN {
            let length = match rustix::io::read(&self.device, &mut *buf) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(e) => return Err(format!("cannot read from the device: {e}")),
            };
            any = true;
            self.counters.device_in += 1;
            let Some((head, packet)) = buf[..length].split_first_chunk_mut() else {
                self.counters.malformed += 1;
                continue;
            };
            let (head, now) = (VnetHeader::parse(head), self.now());
            self.process_packet(now, head, packet);
            if self.sealed.is_full() {
                self.flush_sealed();
            }
        }
        self.flush_sealed();
        Ok(any)
    }

    /// Processes a packet from the device.
    fn process_packet(&mut self, now: Instant, head: VnetHeader, octets: &mut [u8]) {
        let segments =
            IpPacket::parse(octets).ok().and_then(|read| PacketSegments::from_packet(head, octets, read));
        let Some(segments) = segments else {
            self.counters.malformed += 1;
            return;
        };
        match self.plane.decide_outbound(now, segments.packet()) {
            OutboundDecision::Discard => {}
            OutboundDecision::Forward => {
                for_each_packet(&segments, octets, |packet| {
                    let to = segments.packet().flow.destination;
                    let socket = self.forward.get(usize::from(to.is_ipv6()));
                    let sent = socket.map(|socket| socket.send_to(packet, &SocketAddr::new(to, 0).into()));
                    match sent {
                        Some(Ok(_)) => {}
                        Some(Err(_)) => self.counters.not_sent += 1,
                        None => self.counters.not_forwarded += 1,
                    }
                });
            }
            OutboundDecision::Queue(policy) => {
                for_each_packet(&segments, octets, |packet| self.plane.queue_packet(now, policy, packet))
            }
            OutboundDecision::Protect(spi) => self.seal_segments(spi, &segments, octets),
        }
    }

    fn seal_segments(&mut self, spi: u32, segments: &PacketSegments, octets: &[u8]) {
        let Some(carried) = self.plane.outbound_payload(spi, segments.packet()) else { return };
        let Some(transform) = self.plane.transform(spi).copied() else { return };
        let Some(port) = self.find_port(&carried.outer) else { return };
        let (skipped, headroom) = (carried.payload.start, transform.headroom());
        for n in 0..segments.segment_count() {
            let whole = segments.len(n);
            let payload = whole - skipped;
            let length = transform.packet_len(payload);
            // Leave room for the headers that transport mode removes: they are decrypted to here and then overwritten.
            let room = length.max(headroom + whole);
            let end = self.sealed.end;
            let Some(place) = self.sealed.octets.get_mut(end..end + room) else { return };
            segments.write_segment(n, octets, &mut place[headroom..headroom + whole]);
            if skipped > 0 {
                place.copy_within(headroom + skipped..headroom + whole, headroom);
            }
            let plane = &mut self.plane;
            self.sealed.add_packet_to_batch(port, carried.outer, carried.traffic_class, length, |place| {
                plane.seal(spi, place, payload, carried.next_header).is_some()
            });
        }
    }

    /// Sends the sealed packets.
    fn flush_sealed(&mut self) {
        let EncryptedPacketBuffer { octets, end, trains } = &mut self.sealed;
        let mut rest = &trains[..];
        while let Some(first) = rest.first() {
            let port = &self.ports[first.port];
            let count = rest.iter().take_while(|train| train.port == first.port).take(sys::BATCH).count();
            let departing =
                |train: &EspPacketBatch, range: std::ops::Range<usize>, whole: bool| OutgoingMessage {
                    local: if port.local.ip().is_unspecified() {
                        train.outer.local.ip()
                    } else {
                        unspecified_address(port)
                    },
                    remote: match train.outer.encapsulated {
                        true => train.outer.remote,
                        false => SocketAddr::new(train.outer.remote.ip(), 0),
                    },
                    class: train.class,
                    each: (whole && range.len() > train.each).then_some(train.each as u16),
                    octets: &octets[range],
                };
            let messages: Vec<_> =
                rest[..count].iter().map(|train| departing(train, train.from..train.to, true)).collect();
            let packets = |train: &EspPacketBatch| (train.to - train.from).div_ceil(train.each) as u64;
            let sent = match self.outbox.send_batch(&port.socket, &messages) {
                Ok(sent) => {
                    self.counters.messages_out += sent as u64;
                    self.counters.packets_out += rest[..sent].iter().map(packets).sum::<u64>();
                    sent
                }
                // The packet with its headers exceeds the MTU, or the interface cannot segment it, so send each packet
                // separately.
                Err(_) if packets(first) > 1 => {
                    self.counters.not_cut += 1;
                    for from in (first.from..first.to).step_by(first.each) {
                        let to = (from + first.each).min(first.to);
                        match self.outbox.send_batch(&port.socket, &[departing(first, from..to, false)]) {
                            Ok(_) => self.counters.packets_out += 1,
                            Err(_) => self.counters.not_sent += 1,
                        }
                    }
                    1
                }
                Err(_) => {
                    self.counters.not_sent += 1;
                    1
                }
            };
            rest = &rest[sent.max(1)..];
        }
        trains.clear();
        *end = 0;
    }

    /// Moves packets from the network to the device. True if there were any.
    fn receive_to_device(&mut self) -> Result<bool, String> {
        let mut any = false;
        let now = self.now();
        let Self { device, ports, plane, inbox, joiner, counters, event_handler: said, .. } = self;
        let mut written = (0, 0);
        let mut write = |packet: &[u8]| match rustix::io::write(&*device, packet) {
            Ok(_) => written.0 += 1,
            Err(_) => written.1 += 1,
        };
        let mut header = Vec::new();
        for port in ports.iter() {
            match inbox.receive_batch(&port.socket) {
                Ok(0) => continue,
                Ok(count) => counters.messages_in += count as u64,
                // The error concerns an earlier packet, for example an unreachable port, so read on.
                Err(_) => continue,
            }
            any = true;
            for arrived in inbox.received_messages() {
                let local = SocketAddr::new(arrived.local.unwrap_or(port.local.ip()), port.local.port());
                let outer = OuterAddresses { local, remote: arrived.remote, encapsulated: port.encapsulated };
                let arrival = PacketArrival { outer, traffic_class: arrived.class };
                // A raw IPv4 socket delivers packets with their IP header, which is skipped.
                let raw = !port.encapsulated && local.is_ipv4();
                let skipped =
                    if raw { IpPacket::parse(arrived.octets).map_or(0, |packet| packet.header) } else { 0 };
                for octets in arrived.octets[skipped..].chunks_mut(arrived.each) {
                    if port.encapsulated
                        && !matches!(
                            EncapsulatedDatagram::from_datagram(octets),
                            EncapsulatedDatagram::Esp(_)
                        )
                    {
                        if plane.handle_non_esp_datagram(octets).is_some() {
                            counters.ike += 1;
                            said(TunnelEvent::Ike { outer, message: octets.to_vec() });
                        }
                        continue;
                    }
                    match plane.open(now, &arrival, octets) {
                        Some(ReceivedPacket::Packet(range)) => joiner.push(&octets[range], &mut write),
                        Some(ReceivedPacket::Payload {
                            payload,
                            protocol,
                            source,
                            destination,
                            traffic_class,
                        }) => {
                            header.clear();
                            ip::write_header(
                                &mut header,
                                source,
                                destination,
                                protocol,
                                traffic_class,
                                payload.len(),
                            );
                            header.extend_from_slice(&octets[payload]);
                            joiner.push(&header, &mut write);
                        }
                        None => {}
                    }
                }
            }
        }
        joiner.flush(&mut write);
        counters.device_out += written.0;
        counters.not_written += written.1;
        Ok(any)
    }
}

/// The unspecified address, for a socket that is bound to one.
fn unspecified_address(port: &TunnelSocket) -> IpAddr {
    if port.local.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0u16; 8]) }
}

/// Calls `then` for each packet of a message from the device.
fn for_each_packet(segments: &PacketSegments, octets: &[u8], mut then: impl FnMut(&[u8])) {
    let mut packet = Vec::new();
    for n in 0..segments.segment_count() {
        packet.resize(segments.len(n), 0);
        segments.write_segment(n, octets, &mut packet);
        then(&packet);
    }
}
