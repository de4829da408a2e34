//! ESP by the kernel: SAs and policies of its XFRM, behind an interface of its own (`ip-xfrm(8)`). Packets that the
//! system routes to the interface are protected, and no others. It takes the same [`IpsecOperation`]s as a
//! [`EspTunnel`](crate::EspTunnel), and gives the same events.

use crate::tunnel::{StartError, TunnelEvent, open_udp_port};
use crate::xfrm::{
    self, SaReplayState, XfrmPolicyAction, XfrmPolicyDirection, XfrmRequest, XfrmSelector, XfrmState,
    XfrmStateReport,
};
use crate::{interface, sys};
use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use usher_esp::plane::{EspEvent, OuterAddresses, SaUsage};
use usher_esp::sa::{SaExpiry, TrafficVolume};
use usher_esp::{
    IpsecOperation, PolicyAction, SaLifetime, SaPair, SecurityPolicy, SecurityPolicyId, TrafficSelector,
};

/// The interval at which usage is read.
const LOOK: Duration = Duration::from_secs(1);
/// The limit of kernel selectors per SA pair.
const PARTS: usize = 256;
/// The sequence numbers that an SA skips when it is re-created at another address: packets may have left since its
/// state was read.
const LEAP: u32 = 1 << 16;
/// The usable sequence numbers of 2^32, and the count from which an SA should be rekeyed.
const LAST: u64 = (1 << 32) - 1;
const NEARLY: u64 = LAST / 10 * 9;
/// The kernel's multicast groups for acquires and for expired SAs.
const GROUPS: [u32; 2] = [1, 2];

/// The configuration of the kernel's ESP.
#[derive(Clone, Debug)]
pub struct KernelEspConfig {
    /// The interface's name. The kernel replaces `%d` by a number.
    pub device: String,
    /// The interface's MTU in octets.
    pub mtu: u32,
    /// Addresses and ports for packets in UDP, on which IKE's own socket is already bound.
    pub udp: Vec<SocketAddr>,
    /// The mark of ESP packets, with which a routing rule leads them past the interface.
    pub mark: u32,
    /// The if_id of the interface and its SAs. Existing state with this number is removed.
    pub number: u32,
    /// Returns the networks that cover a range of addresses.
    pub networks: fn(&TrafficSelector) -> Vec<(IpAddr, u8)>,
}

/// Why the kernel's ESP cannot be used, or an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum KernelEspError {
    /// The kernel has no XFRM, or permission is missing.
    #[error(
        "the kernel's ESP cannot be used: {0}; this needs root or CAP_NET_ADMIN, and a kernel with XFRM (modprobe xfrm_user esp4 esp6 xfrm_interface)"
    )]
    Xfrm(io::Error),
    /// The interface cannot be created.
    #[error(
        "cannot create XFRM interface \"{name}\": {error}; the kernel needs xfrm_interface (modprobe xfrm_interface)"
    )]
    Interface {
        /// The interface's name.
        name: String,
        /// The cause.
        error: io::Error,
    },
    /// The interface cannot be removed.
    #[error("cannot remove the XFRM interface with number {number}: {error}")]
    Left {
        /// The interface's number.
        number: u32,
        /// The cause.
        error: io::Error,
    },
    /// A socket cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The kernel lacks the algorithm or ESP.
    #[error(
        "the kernel rejects SA {spi:08x} with {algorithms}: {error}; it may lack the algorithm or ESP itself \
         (modprobe esp4 esp6)"
    )]
    State {
        /// The SPI.
        spi: u32,
        /// The algorithms.
        algorithms: String,
        /// The cause.
        error: io::Error,
    },
    /// The kernel rejects a policy.
    #[error("the kernel rejects a policy: {0}")]
    Policy(io::Error),
    /// The traffic selectors of a pair need too many kernel selectors.
    #[error("SA {0:08x} needs more than 256 kernel selectors, or has ports that the kernel cannot match")]
    Traffic(u32),
    /// No pair receives at this SPI.
    #[error("no SA has the inbound SPI {0:08x}")]
    UnknownSpi(u32),
    /// The kernel's interface does not support this.
    #[error(
        "the XFRM interface does not support a policy that forwards: its packets use an SA, or are dropped"
    )]
    Forward,
}

/// An installed SA pair.
#[derive(Debug)]
struct InstalledSaPair {
    pair: SaPair,
    reqid: u32,
    selectors: Vec<XfrmSelector>,
    /// True if outbound packets may use it.
    active: bool,
    usage: SaUsage,
    /// The usage of the SAs that the current ones replaced.
    before: SaUsage,
}

impl InstalledSaPair {
    /// Updates the usage from the kernel's volumes of the current SAs.
    fn record_sa_volumes(&mut self, received: Option<TrafficVolume>, sent: Option<TrafficVolume>) {
        let plus = |a: TrafficVolume, b: TrafficVolume| TrafficVolume {
            packets: a.packets + b.packets,
            octets: a.octets + b.octets,
        };
        if let Some(received) = received {
            self.usage.received = plus(self.before.received, received);
        }
        if let Some(sent) = sent {
            self.usage.sent = plus(self.before.sent, sent);
        }
    }
}

/// Returns the rest of a lifetime.
fn remaining_lifetime(of: SaLifetime, used: TrafficVolume) -> SaLifetime {
    let less = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used).max(1));
    SaLifetime {
        soft_octets: less(of.soft_octets, used.octets),
        hard_octets: less(of.hard_octets, used.octets),
        soft_packets: less(of.soft_packets, used.packets),
        hard_packets: less(of.hard_packets, used.packets),
    }
}

/// The state that was installed in the kernel.
#[derive(Debug)]
struct KernelState {
    socket: Socket,
    config: KernelEspConfig,
    pairs: BTreeMap<u32, InstalledSaPair>,
    /// The pairs of each selector, the newest last.
    by_selector: BTreeMap<XfrmSelector, Vec<u32>>,
    /// The policies for traffic without a pair, with their priority: discard, or acquire an SA.
    policies: BTreeMap<XfrmSelector, (SecurityPolicyId, u32, XfrmPolicyAction)>,
    next: u32,
    /// Events for the thread to emit.
    pending_events: Vec<TunnelEvent>,
}

/// The kernel's ESP. Dropping it removes all state.
#[derive(Debug)]
pub struct KernelEsp {
    state: Arc<Mutex<KernelState>>,
    device: String,
    wake: Arc<OwnedFd>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The kernel takes the ESP packets from these sockets, so they are never read.
    _ports: Vec<socket2::Socket>,
}

fn lock_state(known: &Mutex<KernelState>) -> MutexGuard<'_, KernelState> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_xfrm_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_XFRM)?;
    socket.bind_auto()?;
    socket.connect(&NetlinkAddress::new(0, 0))?;
    Ok(socket)
}

impl KernelEsp {
    /// Creates the interface and starts, in the calling thread's network namespace. Removes the leftovers of a killed
    /// program.
    ///
    /// # Errors
    /// [`KernelEspError`].
    pub fn start(
        config: KernelEspConfig,
        said: Box<dyn FnMut(TunnelEvent) + Send>,
    ) -> Result<Self, KernelEspError> {
        let requests = open_xfrm_socket().map_err(KernelEspError::Xfrm)?;
        let heard = open_xfrm_socket().map_err(KernelEspError::Xfrm)?;
        for group in GROUPS {
            heard.add_membership(group).map_err(KernelEspError::Xfrm)?;
        }
        let mut ports = Vec::new();
        for address in &config.udp {
            let own = crate::TunnelConfig {
                shares_ike_port: true,
                offload: false,
                ..crate::TunnelConfig::default()
            };
            let port = open_udp_port(*address, &own).and_then(|port| {
                sys::enable_decapsulation(&port.socket)?;
                Ok(port.socket)
            });
            ports.push(port.map_err(|error| StartError::Bind {
                what: "ESP in UDP",
                address: *address,
                error,
            })?);
        }
        let mut known = KernelState {
            socket: requests,
            config,
            pairs: BTreeMap::new(),
            by_selector: BTreeMap::new(),
            policies: BTreeMap::new(),
            next: 1,
            pending_events: Vec::new(),
        };
        known.purge_interface_state().map_err(KernelEspError::Xfrm)?;
        let number = known.config.number;
        match interface::remove_interface(number) {
            // TimedOut: the kernel still holds the interface, but invisibly. Its number can be reused, so go on.
            Err(error) if error.kind() != io::ErrorKind::TimedOut => {
                return Err(KernelEspError::Left { number, error });
            }
            _ => {}
        }
        let device = interface::create_interface(&known.config)?;
        let system = |what| move |error| StartError::System { what, error };
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let wake = Arc::new(wake.map_err(|e| StartError::System { what: "an eventfd", error: e.into() })?);
        let (known, ends) = (Arc::new(Mutex::new(known)), Arc::new(AtomicBool::new(false)));
        let listener = XfrmEventListener {
            state: known.clone(),
            netlink_socket: heard,
            wake: wake.clone(),
            ends: ends.clone(),
            event_handler: said,
        };
        let thread = std::thread::Builder::new().name("xfrm".to_owned()).spawn(move || listener.run());
        let thread = Some(thread.map_err(system("a thread"))?);
        Ok(Self { state: known, device, wake, ends, thread, _ports: ports })
    }

    /// Returns the interface's name.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.device
    }

    /// Changes SAs before it returns. Policies are set by [`KernelEsp::set_policies`].
    ///
    /// # Errors
    /// [`KernelEspError`].
    pub fn apply_operation(&self, operation: IpsecOperation) -> Result<(), KernelEspError> {
        let mut known = lock_state(&self.state);
        let done = match operation {
            IpsecOperation::Install(pair) => known.install_pair(*pair),
            IpsecOperation::Remove { inbound } => known.remove_sa_pair(inbound),
            IpsecOperation::Move { inbound, outer } => known.move_sa_pair(inbound, outer),
            // Packets without an SA wait in the kernel, which drops them by itself, so there is nothing to do.
            IpsecOperation::Policies(_) | IpsecOperation::Abandon(_) => Ok(()),
        };
        let says = !known.pending_events.is_empty();
        drop(known);
        if says {
            self.wake_thread();
        }
        done
    }
    /// Sets the policies for traffic without a pair: all policies in order, with the endpoints of the SAs that they
    /// request. If the local endpoint is unspecified, the system chooses it.
    ///
    /// # Errors
    /// [`KernelEspError`].
    pub fn set_policies(
        &self,
        policies: Vec<SecurityPolicy>,
        ends: &dyn Fn(SecurityPolicyId) -> Option<(IpAddr, IpAddr)>,
    ) -> Result<(), KernelEspError> {
        lock_state(&self.state).set_policies(policies, ends)
    }
    /// Returns the usage of all pairs by inbound SPI. The kernel counts the outer header among the octets.
    #[must_use]
    pub fn all_usages(&self) -> Vec<(u32, SaUsage)> {
        let mut known = lock_state(&self.state);
        // An error is ignored: the usages below are then the last known ones, and the next query updates them.
        let _ = known.poll_usages();
        known.pairs.iter().map(|(inbound, held)| (*inbound, held.usage)).collect()
    }
    /// Returns the kernel's counters of packets that XFRM dropped, for this network namespace. Empty if the kernel
    /// does not count.
    #[must_use]
    pub fn xfrm_counters(&self) -> Vec<(String, u64)> {
        let text = std::fs::read_to_string("/proc/thread-self/net/xfrm_stat").unwrap_or_default();
        let one = |line: &str| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            Some((name.to_ascii_lowercase(), value.trim().parse().ok()?))
        };
        text.lines().filter_map(one).collect()
    }
    /// Removes all its state from the kernel, as dropping it does, but reports errors.
    ///
    /// # Errors
    /// [`KernelEspError`]: some state remains, which the next [`KernelEsp::start`] removes if possible.
    pub fn stop(mut self) -> Result<(), KernelEspError> {
        self.shut_down()
    }
    fn shut_down(&mut self) -> Result<(), KernelEspError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.ends.store(true, Ordering::Relaxed);
        self.wake_thread();
        let _ = thread.join();
        let mut known = lock_state(&self.state);
        let purged = known.purge_interface_state();
        let removed = interface::remove_interface(known.config.number);
        removed.map_err(|error| KernelEspError::Left { number: known.config.number, error })?;
        purged.map_err(KernelEspError::Xfrm)
    }
    fn wake_thread(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for KernelEsp {
    fn drop(&mut self) {
        // An error is ignored: the next start removes whatever remains.
        let _ = self.shut_down();
    }
}

impl KernelState {
    /// Sends a request and reads its replies.
    fn send_request(&mut self, request: &[u8]) -> io::Result<Vec<xfrm::XfrmMessage>> {
        self.socket.send(request, 0)?;
        let mut all = Vec::new();
        loop {
            for said in xfrm::parse_messages(&self.socket.recv_from_full()?.0) {
                match said {
                    xfrm::XfrmMessage::Done(Ok(())) => return Ok(all),
                    xfrm::XfrmMessage::Done(Err(code)) => return Err(io::Error::from_raw_os_error(code)),
                    said => all.push(said),
                }
            }
        }
    }
    /// Sends a request to remove an object that may be gone already.
    fn remove_if_present(&mut self, request: &[u8]) -> io::Result<()> {
        match self.send_request(request) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // ESRCH: the SA does not exist.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            done => done.map(drop),
        }
    }
    fn list_states(&mut self) -> io::Result<Vec<XfrmStateReport>> {
        let number = self.config.number;
        let all = self.send_request(&XfrmRequest::build_dump_request(xfrm::GETSA))?;
        let state = |said| match said {
            xfrm::XfrmMessage::State(told) if told.interface == number => Some(told),
            _ => None,
        };
        Ok(all.into_iter().filter_map(state).collect())
    }
    /// Reads both SAs of a pair, the inbound one first, if they exist.
    fn query_pair(&mut self, pair: &SaPair) -> io::Result<[Option<XfrmStateReport>; 2]> {
        let OuterAddresses { local, remote, .. } = pair.outer;
        let mut one = |to: IpAddr, spi: u32| match self.send_request(&XfrmRequest::build_sa_request(
            xfrm::GETSA,
            to,
            spi,
        )) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(error),
            Ok(all) => Ok(all.into_iter().find_map(|said| match said {
                xfrm::XfrmMessage::State(told) => Some(told),
                _ => None,
            })),
        };
        Ok([one(local.ip(), pair.inbound)?, one(remote.ip(), pair.outbound)?])
    }
    /// Removes all state of the interface.
    fn purge_interface_state(&mut self) -> io::Result<()> {
        let number = self.config.number;
        // Delete policies before SAs: otherwise a packet whose SA is gone would leave an acquire behind.
        for said in self.send_request(&XfrmRequest::build_dump_request(xfrm::GETPOLICY))? {
            if let xfrm::XfrmMessage::Policy(told) = said
                && told.interface == number
            {
                self.remove_if_present(&XfrmRequest::build_reported_policy_deletion(&told, number))?;
            }
        }
        for told in self.list_states()? {
            self.remove_if_present(&XfrmRequest::build_sa_request(xfrm::DELSA, told.to, told.spi))?;
        }
        Ok(())
    }

    /// `numbers`: the states from which the inbound and the outbound SA continue.
    fn add_sa_states(
        &mut self,
        held: &InstalledSaPair,
        numbers: [Option<SaReplayState>; 2],
    ) -> Result<(), KernelEspError> {
        let [goes, comes] = pair_states(held, &self.config);
        for (state, numbers) in [comes, goes].iter().zip(numbers) {
            let message = XfrmRequest::build_state_addition(state, numbers.as_ref());
            self.send_request(&message).map_err(|error| {
                let transform = &held.pair.transform;
                let algorithms = format!("{:?} and {:?}", transform.cipher, transform.integrity);
                KernelEspError::State { spi: state.spi, algorithms, error }
            })?;
        }
        Ok(())
    }
    fn delete_states(&mut self, pair: &SaPair) -> io::Result<()> {
        let OuterAddresses { local, remote, .. } = pair.outer;
        self.remove_if_present(&XfrmRequest::build_sa_request(xfrm::DELSA, local.ip(), pair.inbound))?;
        self.remove_if_present(&XfrmRequest::build_sa_request(xfrm::DELSA, remote.ip(), pair.outbound))
    }

    fn install_pair(&mut self, mut pair: SaPair) -> Result<(), KernelEspError> {
        let inbound = pair.inbound;
        let selectors = xfrm::xfrm_selectors(&pair.local, &pair.remote, &self.config.networks, PARTS)
            .filter(|selectors| !selectors.is_empty())
            .ok_or(KernelEspError::Traffic(inbound))?;
        if !pair.transform.extended_sequence_numbers {
            let SaLifetime { soft_packets, hard_packets, .. } = &mut pair.lifetime;
            *soft_packets = Some(soft_packets.unwrap_or(NEARLY).min(NEARLY));
            *hard_packets = Some(hard_packets.unwrap_or(LAST).min(LAST));
        }
        let before = pair.replaces.and_then(|old| self.pairs.get(&old));
        let reqid = match (pair.policy, before) {
            // Reuse the reqid of the acquire: packets that wait for an SA use it only if its reqid is the same.
            (Some(SecurityPolicyId(n)), _) => policy_reqid(n),
            (None, Some(before)) => before.reqid,
            (None, None) => {
                self.next += 1;
                self.next
            }
        };
        // A pair that waits for the peer is not used for sending while it replaces another: the peer may not have
        // installed it yet (RFC 7296 §2.8).
        let active = !pair.after_peer || before.is_none();
        let (usage, before) = (SaUsage::default(), SaUsage::default());
        let held = InstalledSaPair { pair, reqid, selectors, active, usage, before };
        if let Err(error) = self.add_sa_states(&held, [None, None]) {
            // The first of the two SAs may have been created, so delete both.
            let _ = self.delete_states(&held.pair);
            return Err(error);
        }
        let selectors = held.selectors.clone();
        self.pairs.insert(inbound, held);
        for selector in &selectors {
            self.by_selector.entry(*selector).or_default().push(inbound);
        }
        let done = self.update_policies(&selectors);
        if done.is_err() {
            let _ = self.remove_sa_pair(inbound);
            self.pending_events.clear();
        }
        done
    }

    fn remove_sa_pair(&mut self, inbound: u32) -> Result<(), KernelEspError> {
        let mut held = self.pairs.remove(&inbound).ok_or(KernelEspError::UnknownSpi(inbound))?;
        // Read the last usage of the pair before it is deleted.
        let [comes, goes] = self.query_pair(&held.pair).unwrap_or_default();
        held.record_sa_volumes(comes.map(|told| told.volume), goes.map(|told| told.volume));
        for selector in &held.selectors {
            if let Some(all) = self.by_selector.get_mut(selector) {
                all.retain(|other| *other != inbound);
                if all.is_empty() {
                    self.by_selector.remove(selector);
                }
            }
        }
        // From now on, use the pair that replaces the removed one.
        for other in self.pairs.values_mut().filter(|other| other.pair.replaces == Some(inbound)) {
            other.active = true;
        }
        // Update policies before deleting the SAs, because no policy may refer to a deleted SA.
        let done = self.update_policies(&held.selectors);
        let _ = self.delete_states(&held.pair);
        self.pending_events.push(TunnelEvent::Plane(EspEvent::Removed { inbound, usage: held.usage }));
        done
    }

    /// Moves a pair to other outer addresses. The kernel cannot move SAs, so they are re-created and continue with
    /// their sequence numbers.
    fn move_sa_pair(&mut self, inbound: u32, outer: OuterAddresses) -> Result<(), KernelEspError> {
        let mut held = self.pairs.remove(&inbound).ok_or(KernelEspError::UnknownSpi(inbound))?;
        let [comes, goes] = match self.query_pair(&held.pair) {
            Ok(both) => both,
            Err(error) => {
                self.pairs.insert(inbound, held);
                return Err(KernelEspError::Xfrm(error));
            }
        };
        // The counters of the new SAs start from zero, so keep the usage so far as the base.
        held.record_sa_volumes(comes.as_ref().map(|told| told.volume), goes.as_ref().map(|told| told.volume));
        held.before = held.usage;
        let _ = self.delete_states(&held.pair);
        held.pair.outer = outer;
        let numbers =
            [comes.map(|told| told.numbers), goes.map(|told| told.numbers.advance_outbound_sequence(LEAP))];
        let added = self.add_sa_states(&held, numbers);
        let selectors = held.selectors.clone();
        self.pairs.insert(inbound, held);
        added.and_then(|()| self.update_policies(&selectors))
    }

    /// Updates the kernel's policies of these selectors from the pairs and policies.
    fn update_policies(&mut self, selectors: &[XfrmSelector]) -> Result<(), KernelEspError> {
        let number = self.config.number;
        for selector in selectors {
            let pairs = self.by_selector.get(selector).map(Vec::as_slice).unwrap_or_default();
            let pairs: Vec<&InstalledSaPair> =
                pairs.iter().filter_map(|inbound| self.pairs.get(inbound)).collect();
            let protect = |held: &InstalledSaPair, spi| XfrmPolicyAction::Protect {
                reqid: held.reqid,
                outer: (held.pair.outer.local.ip(), held.pair.outer.remote.ip()),
                mode: held.pair.mode,
                spi,
            };
            let goes = pairs
                .iter()
                .rev()
                .find(|held| held.active)
                .map(|held| protect(held, Some(held.pair.outbound)));
            let comes = pairs.last().map(|held| protect(held, None));
            // The kernel takes the lowest number first: a narrower selector before a wider one, an installed pair before a
            // policy that only asks for an SA.
            let bits = u32::from(selector.local.network.1) + u32::from(selector.remote.network.1);
            let mut wanted = vec![
                (XfrmPolicyDirection::Out, goes.map(|deed| (deed, 2000 - bits))),
                (XfrmPolicyDirection::In, comes.map(|deed| (deed, 2000 - bits))),
                (XfrmPolicyDirection::Forward, comes.map(|deed| (deed, 2000 - bits))),
            ];
            if let Some((_, order, deed)) = self.policies.get(selector) {
                // Discard applies to both directions, whatever an SA covers.
                if *deed == XfrmPolicyAction::Discard {
                    wanted.iter_mut().for_each(|(_, wanted)| *wanted = Some((*deed, *order)));
                } else if wanted[0].1.is_none() {
                    wanted[0].1 = Some((*deed, 4000 + order));
                }
            }
            for (direction, wanted) in wanted {
                let done = match wanted {
                    Some((deed, priority)) => self
                        .send_request(&XfrmRequest::update_policy(
                            selector,
                            direction,
                            (deed, priority, number),
                        ))
                        .map(drop),
                    None => self
                        .remove_if_present(&XfrmRequest::build_policy_deletion(selector, direction, number)),
                };
                done.map_err(KernelEspError::Policy)?;
            }
        }
        Ok(())
    }

    fn set_policies(
        &mut self,
        policies: Vec<SecurityPolicy>,
        ends: &dyn Fn(SecurityPolicyId) -> Option<(IpAddr, IpAddr)>,
    ) -> Result<(), KernelEspError> {
        let mut wanted = BTreeMap::new();
        for (order, policy) in (0..).zip(policies) {
            let deed = match policy.action {
                PolicyAction::Discard => XfrmPolicyAction::Discard,
                PolicyAction::Forward => return Err(KernelEspError::Forward),
                PolicyAction::Protect => {
                    let Some(outer) = ends(policy.id) else { continue };
                    let (reqid, mode) = (policy_reqid(policy.id.0), usher_esp::plane::IpsecMode::Tunnel);
                    XfrmPolicyAction::Protect { reqid, outer, mode, spi: None }
                }
            };
            let parts = xfrm::xfrm_selectors(&policy.local, &policy.remote, &self.config.networks, PARTS);
            for selector in parts.ok_or(KernelEspError::Traffic(0))? {
                wanted.entry(selector).or_insert((policy.id, order, deed));
            }
        }
        let before = std::mem::replace(&mut self.policies, wanted);
        let changed: Vec<XfrmSelector> = before.keys().chain(self.policies.keys()).copied().collect();
        self.update_policies(&changed)
    }

    /// Reads the usage of SAs. Activates pairs on which packets have arrived.
    fn poll_usages(&mut self) -> io::Result<Vec<(u32, SaUsage)>> {
        let told: BTreeMap<(u32, IpAddr), TrafficVolume> =
            self.list_states()?.into_iter().map(|told| ((told.spi, told.to), told.volume)).collect();
        let mut changed = Vec::new();
        let mut begun = Vec::new();
        for (inbound, held) in &mut self.pairs {
            let of = |spi: u32, to: IpAddr| told.get(&(spi, to)).copied();
            let outer = held.pair.outer;
            let before = held.usage;
            held.record_sa_volumes(
                of(held.pair.inbound, outer.local.ip()),
                of(held.pair.outbound, outer.remote.ip()),
            );
            if held.usage != before {
                changed.push((*inbound, held.usage));
            }
            if !held.active && held.usage.received.packets > 0 {
                held.active = true;
                begun.extend(held.selectors.iter().copied());
            }
        }
        self.update_policies(&begun).map_err(io::Error::other)?;
        Ok(changed)
    }

    /// Converts a notification of the kernel to an event.
    fn event_from_notice(&self, said: &xfrm::XfrmMessage) -> Option<EspEvent> {
        match said {
            xfrm::XfrmMessage::Acquire { flow, policy } => {
                let found =
                    self.policies.iter().find(|(selector, _)| xfrm::encode_selector(selector) == *policy);
                found.map(|(_, (policy, ..))| EspEvent::Acquire { policy: *policy, flow: *flow })
            }
            xfrm::XfrmMessage::Expire { spi, hard } => {
                let of = |held: &&InstalledSaPair| [held.pair.inbound, held.pair.outbound].contains(spi);
                let expiry = if *hard { SaExpiry::Hard } else { SaExpiry::Soft };
                let held = self.pairs.values().find(of)?;
                Some(EspEvent::Expire { inbound: held.pair.inbound, expiry })
            }
            _ => None,
        }
    }
}

/// Returns the reqid of SAs that a policy has acquired. Other SAs have other reqids.
const fn policy_reqid(id: u32) -> u32 {
    1 << 30 | id
}

/// Returns both SAs of a pair: outbound, then inbound.
fn pair_states<'a>(held: &'a InstalledSaPair, config: &KernelEspConfig) -> [XfrmState<'a>; 2] {
    let pair = &held.pair;
    let OuterAddresses { local, remote, encapsulated } = pair.outer;
    let (here, there) = ((local.ip(), local.port()), (remote.ip(), remote.port()));
    let goes = XfrmState {
        spi: pair.outbound,
        from: here,
        to: there,
        encapsulated,
        reqid: held.reqid,
        mode: pair.mode,
        transform: pair.transform,
        keys: &pair.outbound_keys,
        lifetime: remaining_lifetime(pair.lifetime, held.before.sent),
        window: pair.window,
        mark: Some(config.mark),
        interface: config.number,
    };
    let comes = XfrmState {
        spi: pair.inbound,
        from: there,
        to: here,
        keys: &pair.inbound_keys,
        lifetime: remaining_lifetime(pair.lifetime, held.before.received),
        mark: None,
        ..goes
    };
    [goes, comes]
}

/// Receives the kernel's notifications on its own thread.
struct XfrmEventListener {
    state: Arc<Mutex<KernelState>>,
    netlink_socket: Socket,
    wake: Arc<OwnedFd>,
    ends: Arc<AtomicBool>,
    event_handler: Box<dyn FnMut(TunnelEvent) + Send>,
}

impl XfrmEventListener {
    fn run(mut self) {
        let patience = Timespec::try_from(LOOK).ok();
        while !self.ends.load(Ordering::Relaxed) {
            let mut ready =
                [PollFd::new(&self.netlink_socket, PollFlags::IN), PollFd::new(&*self.wake, PollFlags::IN)];
            let slept = match poll(&mut ready, patience.as_ref()) {
                Ok(count) => count == 0,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    return (self.event_handler)(TunnelEvent::Failed(io::Error::from(error).to_string()));
                }
            };
            let [heard, woken] = ready.map(|one| !one.revents().is_empty());
            if woken {
                let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
            }
            // After an overflow, notifications are lost. The kernel repeats those acquires that are still needed.
            let told = if heard {
                self.netlink_socket.recv_from_full().map(|(octets, _)| octets)
            } else {
                Ok(Vec::new())
            };
            let told = xfrm::parse_messages(&told.unwrap_or_default());
            let mut known = lock_state(&self.state);
            let mut says = std::mem::take(&mut known.pending_events);
            says.extend(told.iter().filter_map(|said| known.event_from_notice(said)).map(TunnelEvent::Plane));
            if slept || !told.is_empty() {
                let carried = known.poll_usages().unwrap_or_default();
                if !carried.is_empty() {
                    says.push(TunnelEvent::UsageReport(carried));
                }
            }
            drop(known);
            says.into_iter().for_each(&mut self.event_handler);
        }
    }
}
