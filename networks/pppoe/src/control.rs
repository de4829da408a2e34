//! Receives frames of discovery and of PPP's control protocols in the modes where the kernel forwards packets.

use crate::engine::{AccessPort, SharedEventHandler};
use crate::sys::FrameInbox;
use crate::{DataPlaneEvent, StartError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use usher_device::VNET_HEADER;

/// The thread that reads the ports' sockets. It ends when this is dropped.
pub(crate) struct ControlFrameListener {
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl ControlFrameListener {
    /// Starts the thread. It passes on the frames for which `meant` is true.
    pub(crate) fn start(
        ports: Arc<[AccessPort]>,
        hears: SharedEventHandler,
        mut meant: impl FnMut(usize, &mut [u8]) -> bool + Send + 'static,
    ) -> Result<Self, StartError> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let wake = Arc::new(
            wake.map_err(|e| StartError::System { what: "cannot create an eventfd", error: e.into() })?,
        );
        let woken = Arc::clone(&wake);
        let run = move || {
            if let Err(why) = run_access_port_listener(&ports, &woken, &hears, &mut meant) {
                hears.send_event(DataPlaneEvent::Failed(why));
            }
        };
        let thread = std::thread::Builder::new().name("pppoe-control".to_owned()).spawn(run);
        let thread = thread.map_err(|error| StartError::System { what: "cannot start a thread", error })?;
        Ok(Self { wake, thread: Some(thread) })
    }
}

impl Drop for ControlFrameListener {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run_access_port_listener(
    ports: &[AccessPort],
    wake: &OwnedFd,
    hears: &SharedEventHandler,
    meant: &mut impl FnMut(usize, &mut [u8]) -> bool,
) -> Result<(), String> {
    let mtu = ports.iter().map(|port| port.interface.mtu as usize).max().unwrap_or(0);
    let mut inbox = FrameInbox::new(mtu);
    loop {
        let mut all = vec![PollFd::new(wake, PollFlags::IN)];
        all.extend(
            ports.iter().flat_map(AccessPort::sockets).map(|socket| PollFd::new(socket, PollFlags::IN)),
        );
        match poll(&mut all, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("cannot wait for frames: {error}")),
        }
        if !all[0].revents().is_empty() {
            return Ok(());
        }
        for (number, port) in ports.iter().enumerate() {
            for socket in port.sockets() {
                match inbox.receive_batch(socket) {
                    Ok(_) => {}
                    // The interface is down, but may come up again, so keep listening.
                    Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => continue,
                    Err(error) => return Err(format!("interface {} is gone: {error}", port.name)),
                }
                for octets in inbox.received_frames() {
                    let frame = octets.get_mut(VNET_HEADER..).unwrap_or_default();
                    if meant(number, frame) {
                        hears.send_event(DataPlaneEvent::Frame { port: number, data: frame.to_vec() });
                    }
                }
            }
        }
    }
}
