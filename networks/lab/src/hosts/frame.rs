//! Frames between a station and its NAS: packet sockets on the network interfaces that are a host's ports.

use super::sockets::FramePort;
use super::{LabHosts, SocketEventSource};
use crate::error::{ErrorContext, LabError};
use crate::lab::interface_index;
use crate::link::EAPOL;
use crate::sys;
use rustix::event::epoll::EventFlags;
use std::io::{ErrorKind, Read, Write};
use usher_sim::{AppDelivery, Application, HostId, Payload, ReportObserver};

impl<A: Application, O: ReportObserver<A::Report>> LabHosts<A, O> {
    /// Opens all ports of a host for frames.
    pub(super) fn open_frame_ports(&mut self, app: u32, host: HostId) -> Result<(), LabError> {
        let ports = self.hosts.get(host.0 as usize).map_or(0, |h| h.ports.len() as u32);
        for port in 0..ports {
            let opened = self
                .run_in_namespace(host, || sys::open_packet_socket(interface_index(port as usize), EAPOL))?;
            let socket = opened.with_context(|| format!("open port {port} of a host for frames"))?;
            let frames = FramePort { socket, app, port };
            let source = self.register_socket_source(SocketEventSource::Frames(frames), EventFlags::IN)?;
            self.frame_ports.insert((app, port), source);
        }
        Ok(())
    }

    pub(super) fn receive_frames(&mut self, source: u64) {
        loop {
            let Some(SocketEventSource::Frames(frames)) = self.sources.get(&source) else { return };
            let (app, port) = (frames.app, frames.port);
            match (&frames.socket).read(&mut self.buffer) {
                Ok(len) => {
                    let payload = Payload::copy_from_slice(&self.buffer[..len]);
                    self.deliver_to_app(app, AppDelivery::Frame { port, payload });
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => {
                    let doing = "receive frames".to_owned();
                    self.failed = Some(LabError::Kernel { doing, source: e });
                    return;
                }
            }
        }
    }

    pub(super) fn send_frame(&mut self, app: u32, port: u32, payload: &Payload) {
        let source = self.frame_ports.get(&(app, port)).and_then(|source| self.sources.get(source));
        let Some(SocketEventSource::Frames(frames)) = source else {
            self.counters.stale_operation += 1;
            return;
        };
        let sent = (&frames.socket).write(payload.as_slice());
        self.counters.not_sent += u64::from(sent.is_err());
    }
}
