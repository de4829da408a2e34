//! Hosting protocol machines on simulated hosts: deliveries become inputs, transmits become operations.

use super::Report;
use std::net::{IpAddr, SocketAddr};
use usher_core::{
    AssocId, CloseReason, ConnId, Input, Machine, MessageEvent, MessageOp, Path, PortId, SocketId,
    StreamEvent, StreamOp, Transmit,
};
use usher_sim::sctp::Message;
use usher_sim::{Context, Delivery, HostId, IpVersion, MessageDelivery, Payload, StreamDelivery};

/// Where a machine lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) host: HostId,
    pub(super) version: IpVersion,
}

impl Place {
    /// The address of a host's port.
    pub(super) fn address(self, host: HostId, port: u16) -> SocketAddr {
        SocketAddr::new(host.ip(self.version), port)
    }

    /// The hosts of a connection's addresses, this one's without a choice.
    fn ends(self, local: Option<IpAddr>, remote: SocketAddr) -> Option<(HostId, HostId)> {
        let from = match local {
            Some(local) => HostId::of_ip(local)?,
            None => self.host,
        };
        Some((from, HostId::of_ip(remote.ip())?))
    }

    /// Feeds a delivery to a machine.
    pub(super) fn feed<M: Machine>(self, ctx: &Context<'_, Report>, machine: &mut M, delivery: &Delivery) {
        let now = ctx.now();
        match delivery {
            Delivery::Start | Delivery::Link { .. } => {}
            Delivery::Timer => machine.handle(now, Input::Timeout),
            Delivery::Datagram { socket, from, from_port, at, payload } => {
                let path = Path {
                    socket: SocketId(*socket),
                    local: self.address(*at, 0),
                    remote: self.address(*from, *from_port),
                };
                machine.handle(now, Input::Datagram { path, data: payload.as_slice() });
            }
            Delivery::Stream { conn, event } => {
                let event = match event {
                    StreamDelivery::Connected { remote, remote_port } => StreamEvent::Connected {
                        remote: self.address(*remote, *remote_port),
                        local: None,
                        certificate: None,
                    },
                    StreamDelivery::Data(payload) => StreamEvent::Data(payload.as_slice()),
                    StreamDelivery::Closed(reason) => StreamEvent::Closed(*reason),
                };
                machine.handle(now, Input::Stream { conn: *conn, event });
            }
            Delivery::Message { assoc, event } => {
                let event = match event {
                    MessageDelivery::Up { remote, remote_port, streams } => {
                        MessageEvent::Up { remote: self.address(*remote, *remote_port), streams: *streams }
                    }
                    MessageDelivery::Data { stream, ppid, payload } => {
                        MessageEvent::Data { stream: *stream, ppid: *ppid, data: payload.as_slice() }
                    }
                    MessageDelivery::Down(reason) => MessageEvent::Down(*reason),
                };
                machine.handle(now, Input::Message { assoc: *assoc, event });
            }
            Delivery::Frame { port, payload } => {
                machine.handle(now, Input::Frame { port: PortId(*port), data: payload.as_slice() });
            }
        }
    }

    /// Does what a machine wants done, after its events have been taken, and arms its timer.
    pub(super) fn drain<M: Machine>(self, ctx: &mut Context<'_, Report>, machine: &mut M, buf: &mut Vec<u8>) {
        while let Some(work) = machine.poll_work() {
            ctx.work(work);
        }
        while let Some(transmit) = machine.poll_transmit(ctx.now(), buf) {
            self.transmit(ctx, machine, transmit, buf);
        }
        ctx.set_timer(machine.poll_timeout());
    }

    /// Does one thing that a machine wants done. A datagram's source is the address at which its socket is bound.
    pub(super) fn transmit<M: Machine>(
        self,
        ctx: &mut Context<'_, Report>,
        machine: &mut M,
        transmit: Transmit,
        buf: &[u8],
    ) {
        match transmit {
            Transmit::Datagram { path } => {
                if let Some(to) = HostId::of_ip(path.remote.ip()) {
                    ctx.send_datagram(path.socket.0, to, path.remote.port(), Payload::copied(buf));
                }
            }
            Transmit::Stream { conn, op } => self.stream(ctx, machine, conn, op, buf),
            Transmit::Frame { port } => ctx.send_frame(port.0, Payload::copied(buf)),
            Transmit::Message { assoc, op } => self.message(ctx, machine, assoc, op, buf),
        }
    }

    fn message<M: Machine>(
        self,
        ctx: &mut Context<'_, Report>,
        machine: &mut M,
        assoc: AssocId,
        op: MessageOp,
        buf: &[u8],
    ) {
        match op {
            MessageOp::Connect { local, remote, streams } => match self.ends(local, remote) {
                Some((from, to)) => ctx.associate_from(assoc, from, to, remote.port(), streams),
                None => {
                    let event = MessageEvent::Down(CloseReason::Refused);
                    machine.handle(ctx.now(), Input::Message { assoc, event });
                }
            },
            MessageOp::Data { stream, ppid, unordered } => {
                ctx.send_message(assoc, Message { stream, ppid, unordered, payload: Payload::copied(buf) });
            }
            MessageOp::Shutdown => ctx.shutdown(assoc),
            MessageOp::Abort => ctx.abort(assoc),
        }
    }

    fn stream<M: Machine>(
        self,
        ctx: &mut Context<'_, Report>,
        machine: &mut M,
        conn: ConnId,
        op: StreamOp,
        buf: &[u8],
    ) {
        match op {
            StreamOp::Connect { local, remote } => match self.ends(local, remote) {
                Some((from, to)) => ctx.connect_from(conn, from, to, remote.port()),
                None => {
                    let event = StreamEvent::Closed(CloseReason::Refused);
                    machine.handle(ctx.now(), Input::Stream { conn, event });
                }
            },
            StreamOp::Data => ctx.write(conn, Payload::copied(buf)),
            StreamOp::Credit(bytes) => ctx.credit(conn, bytes),
            StreamOp::Shutdown => ctx.shutdown(conn),
            StreamOp::Abort => ctx.abort(conn),
        }
    }
}
