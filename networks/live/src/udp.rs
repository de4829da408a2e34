//! A datagram socket of a driver.

use crate::counters::DriverCounters;
use crate::mmsg::{self, BATCH, DatagramInbox, DatagramOutbox, OutgoingDatagram};
use crate::wake::{ReadyList, SocketTask, TaskWaker};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Consecutive errors after which reception waits until the socket is ready again.
const MAX_CONSECUTIVE_ERRORS: usize = 8;

/// A socket with its queue of unsent datagrams.
pub(crate) struct DatagramSocket {
    socket: UdpSocket,
    local: SocketAddr,
    queue: VecDeque<OutgoingDatagram>,
    /// True if the kernel takes several datagrams as one.
    joins: Cell<bool>,
    receive: TaskWaker,
    send: TaskWaker,
}

impl DatagramSocket {
    /// Registers a socket as number `index` and lists it in `ready`. With `offload`, the kernel may join several
    /// datagrams.
    pub(crate) fn new(
        socket: std::net::UdpSocket,
        index: usize,
        ready: &ReadyList,
        offload: bool,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        mmsg::enable_packet_info(socket.as_fd(), local.is_ipv6())?;
        let joins = Cell::new(offload && mmsg::enable_gro(socket.as_fd()));
        let socket = UdpSocket::from_std(socket)?;
        let (receive, send) =
            (ready.task_waker(SocketTask::Receive(index)), ready.task_waker(SocketTask::Send(index)));
        receive.enlist_task();
        Ok(Self { socket, local, queue: VecDeque::new(), joins, receive, send })
    }

    /// Returns the local address of a datagram, from the kernel's ancillary data.
    pub(crate) fn local_address(&self, said: Option<(std::net::IpAddr, u32)>) -> SocketAddr {
        let Some((ip, zone)) = said else { return self.local };
        let mut local = SocketAddr::new(ip, self.local.port());
        if let SocketAddr::V6(v6) = &mut local {
            v6.set_scope_id(zone);
        }
        local
    }

    /// Receives one batch into `inbox` and returns the number of pieces. Lists the socket again if there may be more.
    pub(crate) fn receive_batch(&mut self, inbox: &mut DatagramInbox, counters: &DriverCounters) -> usize {
        self.receive.clear_listed();
        if !self.socket.poll_recv_ready(&mut self.receive.context()).is_ready() {
            return 0;
        }
        let mut count = 0;
        let mut attempt = || {
            for _ in 0..MAX_CONSECUTIVE_ERRORS {
                match inbox.receive_batch(self.socket.as_fd()) {
                    Ok(n) => {
                        count = n;
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Usually this is an ICMP error about an earlier datagram, so continue with the datagrams that
                    // follow.
                    Err(_) => counters.receive_errors.increment(),
                }
            }
            // An incomplete batch shows that no more datagrams wait, which saves the call that would find none.
            if count < BATCH { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        };
        let full = self.socket.try_io(Interest::READABLE, &mut attempt).is_ok();
        if full || self.socket.poll_recv_ready(&mut self.receive.context()).is_ready() {
            self.receive.enlist_task();
        }
        count
    }

    /// Sends datagrams in order, behind the queued ones. Queues at most `limit` that the kernel does not take. Only
    /// queued ones give up their data.
    pub(crate) fn send_or_queue(
        &mut self,
        letters: &mut [OutgoingDatagram],
        limit: usize,
        outbox: &mut DatagramOutbox,
        counters: &DriverCounters,
    ) {
        let gone = if self.queue.is_empty() { self.send_queue_front(letters, outbox, counters) } else { 0 };
        for letter in &mut letters[gone..] {
            if self.queue.len() >= limit {
                counters.send_full.increment();
                continue;
            }
            let data = std::mem::take(&mut letter.data);
            self.queue.push_back(OutgoingDatagram { data, ..*letter });
        }
        self.watch_writable();
    }

    /// Sends queued datagrams.
    pub(crate) fn send_queued(&mut self, outbox: &mut DatagramOutbox, counters: &DriverCounters) {
        self.send.clear_listed();
        let mut queue = std::mem::take(&mut self.queue);
        let gone = self.send_queue_front(queue.make_contiguous(), outbox, counters);
        queue.drain(..gone);
        self.queue = queue;
        self.watch_writable();
    }

    /// True if the queue is empty.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Lists the socket when it is writable.
    fn watch_writable(&self) {
        if !self.queue.is_empty() && self.socket.poll_send_ready(&mut self.send.context()).is_ready() {
            self.send.enlist_task();
        }
    }

    /// Sends from the front until the kernel takes no more. Returns the number sent or refused.
    fn send_queue_front(
        &self,
        letters: &[OutgoingDatagram],
        outbox: &mut DatagramOutbox,
        counters: &DriverCounters,
    ) -> usize {
        let any = self.local.ip().is_unspecified();
        // The kernel refused the datagrams up to this index as a joined send, so they are sent one by one.
        let mut alone = 0;
        let (mut gone, mut again) = (0, true);
        while let Some(rest) = letters.get(gone..).filter(|rest| !rest.is_empty()) {
            let fd = self.socket.as_fd();
            let join = self.joins.get() && gone >= alone;
            let rest = if gone < alone { &letters[gone..alone] } else { rest };
            match self.socket.try_io(Interest::WRITABLE, || outbox.send_batch(fd, rest, any, join)) {
                Ok(count) => {
                    let octets: usize = rest[..count].iter().map(|letter| letter.data.len()).sum();
                    counters.batches_out.increment();
                    counters.datagrams_out.add(count as u64);
                    counters.datagram_octets_out.add(octets as u64);
                    gone += count;
                    again = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The error concerns an earlier datagram, so try the current one again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && again => {
                    counters.receive_errors.increment();
                    again = false;
                }
                // The error of a joined send may not apply to each of its datagrams, so send them one by one.
                Err(error) if outbox.first_train_datagram_count() > 1 => {
                    counters.not_joined.increment();
                    alone = gone + outbox.first_train_datagram_count();
                    if is_join_unsupported(&error) {
                        self.joins.set(false);
                    }
                }
                Err(_) => {
                    counters.send_errors.increment();
                    gone += 1;
                    again = true;
                }
            }
        }
        gone
    }
}

/// True if the error means that this socket can never join datagrams, for example on a device without checksum
/// offload.
fn is_join_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOPROTOOPT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket as Plain};

    #[test]
    fn what_one_destination_refuses_changes_nothing_for_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _inside = runtime.enter();
        let counters = DriverCounters::default();
        let socket = Plain::bind("0.0.0.0:0").unwrap();
        let mut port = DatagramSocket::new(socket, 0, &ReadyList::default(), true).unwrap();
        runtime.block_on(port.socket.writable()).unwrap();
        let listener = Plain::bind("127.0.0.1:0").unwrap();
        listener.set_read_timeout(Some(std::time::Duration::from_secs(120))).unwrap();
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let letter = |remote| OutgoingDatagram { socket: 0, local, remote, data: vec![7; 100] };
        // Without SO_BROADCAST the kernel refuses this destination.
        let nobody = SocketAddr::from((Ipv4Addr::BROADCAST, 9));
        let somebody = listener.local_addr().unwrap();
        let mut letters = [nobody, nobody, somebody, somebody, somebody].map(letter);
        port.send_or_queue(&mut letters, 10, &mut DatagramOutbox::new(), &counters);
        for _ in 0..3 {
            assert_eq!(listener.recv(&mut [0; 200]).unwrap(), 100);
        }
        let counted = counters.read();
        assert_eq!((counted.not_joined, counted.send_errors, counted.datagrams_out), (1, 2, 3));
        assert_eq!(counted.batches_out, 1, "the three went by one call");
        assert!(port.joins.get());
    }

    #[test]
    fn without_offload_each_datagram_goes_by_itself() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _inside = runtime.enter();
        let counters = DriverCounters::default();
        let to = Plain::bind("127.0.0.1:0").unwrap();
        assert!(mmsg::enable_gro(to.as_fd()), "this system joins no datagrams");
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        for (offload, pieces) in [(true, 1), (false, 20)] {
            let socket = Plain::bind("0.0.0.0:0").unwrap();
            let mut port = DatagramSocket::new(socket, 0, &ReadyList::default(), offload).unwrap();
            runtime.block_on(port.socket.writable()).unwrap();
            let letter = |_| OutgoingDatagram {
                socket: 0,
                local,
                remote: to.local_addr().unwrap(),
                data: vec![7; 100],
            };
            let mut letters: Vec<OutgoingDatagram> = (0..20).map(letter).collect();
            port.send_or_queue(&mut letters, 100, &mut DatagramOutbox::new(), &counters);
            let mut inbox = DatagramInbox::new();
            assert_eq!(inbox.receive_batch(to.as_fd()).unwrap(), pieces, "offload: {offload}");
            assert_eq!(inbox.datagrams().count(), 20);
        }
    }
}
