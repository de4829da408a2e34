//! Frames between a station and its NAS: packet sockets on the network interfaces that are the ports of a host.

use super::{Hosts, Source};
use crate::error::{Doing, LabError};
use crate::lab::index;
use crate::sys;
use rustix::event::epoll::EventFlags;
use socket2::Socket;
use std::io::{ErrorKind, Read, Write};
use usher_sim::{Application, Delivery, HostId, Observer, Payload};

/// The EtherType of EAPOL (IEEE 802.1X).
pub(crate) const EAPOL: u16 = 0x888e;

/// A port of a host by which its application has frames.
#[derive(Debug)]
pub(super) struct FramePort {
    pub(super) socket: Socket,
    pub(super) app: u32,
    port: u32,
}

impl<A: Application, O: Observer<A::Report>> Hosts<A, O> {
    /// Opens all ports of a host for frames.
    pub(super) fn open_frames(&mut self, app: u32, host: HostId) -> Result<(), LabError> {
        let ports = self.hosts.get(host.0 as usize).map_or(0, |h| h.ports.len() as u32);
        for port in 0..ports {
            let opened = self.within(host, || sys::packets(index(port as usize), EAPOL))?;
            let socket = opened.doing(|| format!("open port {port} of a host for frames"))?;
            let frames = FramePort { socket, app, port };
            let source = self.watch(Source::Frames(frames), EventFlags::IN)?;
            self.frame_ports.insert((app, port), source);
        }
        Ok(())
    }

    pub(super) fn receive_frames(&mut self, source: u64) {
        loop {
            let Some(Source::Frames(frames)) = self.sources.get(&source) else { return };
            let (app, port) = (frames.app, frames.port);
            match (&frames.socket).read(&mut self.buffer) {
                Ok(len) => {
                    let payload = Payload::copied(&self.buffer[..len]);
                    self.deliver(app, Delivery::Frame { port, payload });
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
        let Some(Source::Frames(frames)) = source else {
            self.counters.stale_operation += 1;
            return;
        };
        let sent = (&frames.socket).write(payload.as_slice());
        self.counters.not_sent += u64::from(sent.is_err());
    }
}
