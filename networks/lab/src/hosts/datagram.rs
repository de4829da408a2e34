//! UDP on kernel sockets.

use super::sockets::LabUdpSocket;
use super::{LabHosts, SocketEventSource, padded_octets};
use crate::error::{ErrorContext, LabError};
use rustix::event::epoll::EventFlags;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use usher_sim::{AppDelivery, Application, HostId, Payload, ReportObserver};

impl<A: Application, O: ReportObserver<A::Report>> LabHosts<A, O> {
    /// Binds a socket of an application to a port of its host's address. Port 0 is a free one.
    pub(super) fn bind_udp(&mut self, app: u32, number: u32, at: HostId, port: u16) -> Result<u64, LabError> {
        let address = SocketAddr::new(self.addresses.address_of(at), port);
        let made = self.run_in_namespace(at, || {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            let socket = UdpSocket::from(socket);
            let port = socket.local_addr()?.port();
            Ok::<_, std::io::Error>((socket, port))
        })?;
        let (socket, port) = made.with_context(|| format!("bind UDP to {address}"))?;
        let bound = LabUdpSocket { socket, app, number, address: (at, port) };
        let source = self.register_socket_source(SocketEventSource::Bound(bound), EventFlags::IN)?;
        self.apps[app as usize].sockets.insert(number, source);
        Ok(source)
    }

    pub(super) fn receive_datagrams(&mut self, source: u64) {
        loop {
            let Some(SocketEventSource::Bound(bound)) = self.sources.get(&source) else { return };
            let (app, socket, (at, port)) = (bound.app, bound.number, bound.address);
            match bound.socket.recv_from(&mut self.buffer) {
                Ok((len, sender)) => {
                    let Some(from) = self.addresses.host_at(sender.ip()) else {
                        self.counters.unknown_sender += 1;
                        continue;
                    };
                    let payload = Payload::copy_from_slice(&self.buffer[..len]);
                    let from_port = sender.port();
                    self.deliver_to_app(
                        app,
                        AppDelivery::Datagram { socket, from, from_port, destination: at, port, payload },
                    );
                }
                // An ICMP error about an earlier datagram is ignored, because applications have no event for it.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => {
                    let doing = "receive datagrams".to_owned();
                    self.failed = Some(LabError::Kernel { doing, source: e });
                    return;
                }
            }
        }
    }

    pub(super) fn send_datagram(&mut self, app: u32, number: u32, to: HostId, port: u16, payload: &Payload) {
        let slot = &self.apps[app as usize];
        let source = match slot.sockets.get(&number) {
            Some(source) => *source,
            None => match self.bind_udp(app, number, slot.host, 0) {
                Ok(source) => source,
                Err(_) => {
                    self.counters.no_socket += 1;
                    return;
                }
            },
        };
        let address = SocketAddr::new(self.addresses.address_of(to), port);
        let Some(SocketEventSource::Bound(bound)) = self.sources.get(&source) else { return };
        let sent = bound.socket.send_to(&padded_octets(payload), address);
        self.counters.not_sent += u64::from(sent.is_err());
    }
}
