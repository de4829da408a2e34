//! UDP.

use super::{Hosts, Source, whole};
use crate::error::{Doing, LabError};
use rustix::event::epoll::EventFlags;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use usher_sim::{Application, Delivery, HostId, Observer, Payload};

/// A UDP socket of an application.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) socket: UdpSocket,
    pub(super) app: u32,
    /// Its number.
    number: u32,
    /// Its address and port.
    at: (HostId, u16),
}

impl<A: Application, O: Observer<A::Report>> Hosts<A, O> {
    /// Binds a socket of an application to a port of an address of its host; port 0 is a free one.
    pub(super) fn bind(&mut self, app: u32, number: u32, at: HostId, port: u16) -> Result<u64, LabError> {
        let address = SocketAddr::new(self.addresses.of(at), port);
        let made = self.within(at, || {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            let socket = UdpSocket::from(socket);
            let port = socket.local_addr()?.port();
            Ok::<_, std::io::Error>((socket, port))
        })?;
        let (socket, port) = made.doing(|| format!("bind UDP to {address}"))?;
        let bound = Bound { socket, app, number, at: (at, port) };
        let source = self.watch(Source::Bound(bound), EventFlags::IN)?;
        self.apps[app as usize].sockets.insert(number, source);
        Ok(source)
    }

    pub(super) fn receive_datagrams(&mut self, source: u64) {
        loop {
            let Some(Source::Bound(bound)) = self.sources.get(&source) else { return };
            let (app, socket, (at, port)) = (bound.app, bound.number, bound.at);
            match bound.socket.recv_from(&mut self.buffer) {
                Ok((len, sender)) => {
                    let Some(from) = self.addresses.host(sender.ip()) else {
                        self.counters.unknown_sender += 1;
                        continue;
                    };
                    let payload = Payload::copied(&self.buffer[..len]);
                    let from_port = sender.port();
                    self.deliver(app, Delivery::Datagram { socket, from, from_port, at, port, payload });
                }
                // What an ICMP message says of an earlier datagram is nothing that the application hears of.
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
            None => match self.bind(app, number, slot.host, 0) {
                Ok(source) => source,
                Err(_) => {
                    self.counters.no_socket += 1;
                    return;
                }
            },
        };
        let address = SocketAddr::new(self.addresses.of(to), port);
        let Some(Source::Bound(bound)) = self.sources.get(&source) else { return };
        let sent = bound.socket.send_to(&whole(payload), address);
        self.counters.not_sent += u64::from(sent.is_err());
    }
}
