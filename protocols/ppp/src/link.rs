//! A PPP link from its first Configure-Request to its end (RFC 1661 §3): LCP, authentication, network protocols,
//! keepalive.

mod end;
mod keepalive;

pub use end::EndReason;

use crate::auth::authenticator::{AuthenticatorOutput, PppAuthenticator, ProofVerdict};
use crate::auth::peer::{AuthenticationPeer, AuthenticationPeerOutput, refusal_text};
use crate::auth::{AuthenticationProof, AuthenticationProtocol, PppCredentials};
use crate::automaton::{Event, State};
use crate::ipcp::IpcpOptions;
use crate::ipv6::host::{DelegatedPrefix, Ipv6Host, Ipv6HostOutput};
use crate::ipv6::neighbor::RouterAdvertisement;
use crate::ipv6::router::{Ipv6Router, RouterConfig};
use crate::ipv6::{Ipv6Prefix, LinkLocalPacket};
use crate::ipv6cp::{InterfaceIdentifier, Ipv6cpOptions};
use crate::lcp::LcpOptions;
use crate::negotiation::{
    ControlProtocol, ControlProtocolOptions, DiscardReason, NegotiationConfig, NegotiationContext,
    NegotiationOutput,
};
use crate::packet::{ControlCode, ControlPacket, HEADER, PppProtocol};
use crate::pppoe::limit::TokenBucket;
use crate::work;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use keepalive::EchoKeepalive;
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant, SecureRng, WallTime, WorkLabel};

/// Timers and limits of a link (RFC 1661 §4.6, RFC 2516 §7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Retransmission of control packets.
    pub restart: NegotiationConfig,
    /// Interval of Echo-Requests; zero: none are sent.
    pub echo_interval: Duration,
    /// Consecutive Echo-Requests without a reply after which the peer counts as unreachable.
    pub echo_failures: u32,
    /// Maximum time from the first packet until a network is up.
    pub setup: Duration,
    /// Rate limit of renegotiations of LCP and the network protocols, together. Each costs a login or a change of the
    /// data plane.
    pub renegotiations: RenegotiationLimit,
}

/// A rate limit: a burst, and the time to regain one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenegotiationLimit {
    /// Maximum at once.
    pub burst: u32,
    /// Time to regain one.
    pub each: Duration,
}

impl Default for LinkConfig {
    /// RFC 1661's times, an Echo-Request every 20 s of which three may be lost, 60 s for setup, ten renegotiations and
    /// one more per minute.
    fn default() -> Self {
        Self {
            restart: NegotiationConfig::default(),
            echo_interval: Duration::from_secs(20),
            echo_failures: 3,
            setup: Duration::from_secs(60),
            renegotiations: RenegotiationLimit { burst: 10, each: Duration::from_secs(60) },
        }
    }
}

/// The addresses for an authenticated peer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressAssignment {
    /// IPv4; `None`: IPCP is rejected.
    pub ipv4: Option<Ipv4Assignment>,
    /// IPv6; `None`: IPv6CP is rejected.
    pub ipv6: Option<Ipv6Assignment>,
}

/// IPv4 addresses for a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ipv4Assignment {
    /// This side's address.
    pub local: Ipv4Addr,
    /// The peer's address.
    pub remote: Ipv4Addr,
    /// Name servers. The peer gets the first two (RFC 1877).
    pub dns: Vec<Ipv4Addr>,
}

/// IPv6 identifiers and prefixes for a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ipv6Assignment {
    /// This side's interface identifier; zero: random.
    pub local: InterfaceIdentifier,
    /// The peer's interface identifier, if it proposes none.
    pub remote: Option<InterfaceIdentifier>,
    /// The link's prefix, advertised for address autoconfiguration.
    pub prefix: Option<Ipv6Prefix>,
    /// A prefix for the network behind the peer, delegated by DHCPv6.
    pub delegated: Option<Ipv6Prefix>,
    /// Name servers, sent by DHCPv6.
    pub dns: Vec<Ipv6Addr>,
}

/// The negotiated addresses of a network protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NegotiatedAddresses {
    /// IPv4.
    Ipv4 {
        /// This side's address.
        local: Ipv4Addr,
        /// The peer's address. On a client it is unspecified if the concentrator did not send it.
        remote: Ipv4Addr,
        /// The name servers that the client received.
        dns: Vec<Ipv4Addr>,
    },
    /// IPv6.
    Ipv6 {
        /// This side's link-local address.
        local: Ipv6Addr,
        /// The peer's link-local address.
        remote: Ipv6Addr,
        /// The prefixes that a concentrator routes to the peer: the link's and the delegated one. Empty on a client,
        /// which learns them by advertisement and delegation.
        prefixes: Vec<Ipv6Prefix>,
    },
}

impl NegotiatedAddresses {
    /// Returns the network's address family.
    #[must_use]
    pub const fn family(&self) -> AddressFamily {
        match self {
            Self::Ipv4 { .. } => AddressFamily::Ipv4,
            Self::Ipv6 { .. } => AddressFamily::Ipv6,
        }
    }
}

usher_core::named! {
    "a network protocol";
    /// A network protocol of a link.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum AddressFamily {
        /// IPv4.
        Ipv4 = "ipv4",
        /// IPv6.
        Ipv6 = "ipv6",
    }
}

/// The role of this side of a link.
#[derive(Clone, Debug)]
pub(crate) enum PppLinkRole {
    /// Authenticates the peer and assigns addresses.
    Authenticator { name: Vec<u8>, protocols: Arc<[AuthenticationProtocol]>, duid: Vec<u8> },
    /// Authenticates itself and receives addresses.
    Peer {
        credentials: Arc<PppCredentials>,
        /// True if the other side must request authentication.
        requires_authentication: bool,
        ipv4: bool,
        dns: bool,
        ipv6: Option<InterfaceIdentifier>,
        /// The DUID of the request for a prefix, if one is wanted.
        delegation: Option<Vec<u8>>,
    },
}

/// An output of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PppLinkOutput {
    /// Send this packet.
    Send(PppProtocol, Vec<u8>),
    /// Verify this proof. A reply has at most `mtu` octets.
    VerifyProof { name: Vec<u8>, proof: AuthenticationProof, mtu: u16 },
    /// Authentication succeeded, in either role.
    Authenticated,
    /// The other side rejected this side's proof, with this message.
    Refused(Vec<u8>),
    /// Forward packets of this network.
    Up(NegotiatedAddresses),
    /// Stop forwarding packets of this family.
    Down(AddressFamily),
    /// The maximum packet length from now on, in octets.
    Mtu(u16),
    /// A router advertisement was received.
    Advertised(RouterAdvertisement),
    /// A prefix was delegated; `None`: it is withdrawn.
    Delegated(Option<DelegatedPrefix>),
    /// The link has ended.
    Ended(EndReason),
}

/// The reason why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DropReason {
    /// Not a packet of its protocol.
    Malformed,
    /// A reply to no open request.
    Unsolicited,
    /// Its phase has not begun.
    TooEarly,
    /// Wrong magic number.
    Magic,
    /// A packet of a network, which the data plane must carry.
    Data,
    /// The automaton takes no action in its state (RFC 1661 §4.1).
    Ignored,
    /// A retransmission while its proof is pending.
    Pending,
}

impl From<DiscardReason> for DropReason {
    fn from(discard: DiscardReason) -> Self {
        match discard {
            DiscardReason::Malformed => Self::Malformed,
            DiscardReason::Unsolicited => Self::Unsolicited,
            DiscardReason::NoLayer => Self::TooEarly,
            DiscardReason::Ignored => Self::Ignored,
        }
    }
}

/// The phase of a link (RFC 1661 §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PppLinkPhase {
    Establish,
    Authenticate,
    Network,
    Terminated,
}

#[derive(Debug)]
pub(crate) struct PppLink {
    config: LinkConfig,
    role: PppLinkRole,
    phase: PppLinkPhase,
    rng: SecureRng,
    lcp: ControlProtocol<LcpOptions>,
    authenticator: Option<PppAuthenticator>,
    prover: Option<AuthenticationPeer>,
    ipv4: Option<ControlProtocol<IpcpOptions>>,
    ipv6: Option<ControlProtocol<Ipv6cpOptions>>,
    /// The peer's prefixes and name servers, valid after authentication.
    offer: RouterConfig,
    router: Option<Ipv6Router>,
    host: Option<Ipv6Host>,
    /// The networks that were reported as up.
    up: [bool; AddressFamily::ALL.len()],
    keepalive: EchoKeepalive,
    /// The bucket of [`LinkConfig::renegotiations`].
    renegotiations: TokenBucket,
    /// The deadline for the first network.
    setup: Option<Instant>,
    /// The reason for the end, once the link closes.
    reason: Option<EndReason>,
    outputs: Vec<PppLinkOutput>,
    worked: Vec<WorkLabel>,
}

impl PppLink {
    /// Starts a link with packets of at most `limit` octets.
    pub(crate) fn new(
        role: PppLinkRole,
        config: LinkConfig,
        limit: u16,
        mut rng: SecureRng,
        now: Instant,
        wall: WallTime,
    ) -> Self {
        let (wanted, offered): (Arc<[_]>, _) = match &role {
            PppLinkRole::Authenticator { protocols, .. } => (protocols.clone(), Vec::new()),
            PppLinkRole::Peer { credentials, .. } => (Arc::new([]), credentials.protocols.clone()),
        };
        let keepalive = EchoKeepalive::new(&config, &mut rng);
        let mut this = Self {
            config,
            role,
            phase: PppLinkPhase::Establish,
            rng,
            lcp: ControlProtocol::new(LcpOptions::new(limit, wanted, offered)),
            authenticator: None,
            prover: None,
            ipv4: None,
            ipv6: None,
            offer: RouterConfig::default(),
            router: None,
            host: None,
            up: [false; AddressFamily::ALL.len()],
            keepalive,
            renegotiations: TokenBucket::default(),
            setup: Some(now + config.setup),
            reason: None,
            outputs: Vec::new(),
            worked: Vec::new(),
        };
        for event in [Event::Open, Event::Up] {
            this.run_lcp_step(now, wall, |lcp, cx| lcp.apply_event(cx, event));
        }
        this
    }

    /// Takes the pending outputs.
    pub(crate) fn take_link_outputs(&mut self) -> Vec<PppLinkOutput> {
        core::mem::take(&mut self.outputs)
    }
    /// Takes the pending work records.
    pub(crate) fn take_work(&mut self) -> Vec<WorkLabel> {
        core::mem::take(&mut self.worked)
    }
    /// True if the link has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == PppLinkPhase::Terminated
    }
    /// Returns the octets of the longest packet that is known to pass.
    pub(crate) fn mtu(&self) -> u16 {
        self.keepalive.usable_mtu(self.lcp.options.mtu())
    }

    /// Returns the time of the next [`handle_timeout`](Self::handle_timeout).
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        earliest_deadline([
            self.setup,
            self.lcp.poll_timeout(),
            self.authenticator.as_ref().and_then(PppAuthenticator::poll_timeout),
            self.prover.as_ref().and_then(AuthenticationPeer::poll_timeout),
            self.ipv4.as_ref().and_then(ControlProtocol::poll_timeout),
            self.ipv6.as_ref().and_then(ControlProtocol::poll_timeout),
            self.keepalive.poll_timeout(),
            self.router.as_ref().and_then(Ipv6Router::poll_timeout),
            self.host.as_ref().and_then(Ipv6Host::poll_timeout),
        ])
    }

    /// Handles the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, wall: WallTime) {
        if self.setup.is_some_and(|at| at <= now) {
            return self.end_link_without_lcp(EndReason::SetupTimeout);
        }
        self.run_lcp_step(now, wall, |lcp, cx| lcp.handle_timeout(cx));
        let mut out = Vec::new();
        if let Some(one) = &mut self.authenticator {
            one.handle_timeout(now, &mut self.rng, &mut out);
            self.apply_authenticator_outputs(now, wall, out);
        }
        let mut out = Vec::new();
        if let (Some(one), PppLinkRole::Peer { credentials, .. }) = (&mut self.prover, &self.role) {
            one.handle_timeout(now, credentials, &mut out);
            self.apply_peer_outputs(now, wall, out);
        }
        self.run_ipcp_step(now, wall, |ipv4, cx| ipv4.handle_timeout(cx));
        self.run_ipv6cp_step(now, wall, |ipv6, cx| ipv6.handle_timeout(cx));
        if self.keepalive.poll_timeout().is_some_and(|at| at <= now) {
            self.handle_echo_timeout(now);
        }
        let mut out = Vec::new();
        if let Some(router) = &mut self.router {
            router.handle_timeout(now, &mut self.rng, &mut out);
        }
        out.into_iter().for_each(|packet| self.send_packet(PppProtocol::IPV6, packet));
        let mut out = Vec::new();
        if let Some(host) = &mut self.host {
            host.handle_timeout(now, &mut self.rng, &mut out);
        }
        self.apply_host_outputs(out);
    }

    /// Handles an IPv6 packet that may be for this end itself.
    fn receive_ipv6(&mut self, now: Instant, octets: &[u8]) -> Result<(), DropReason> {
        let packet = LinkLocalPacket::parse(octets).ok_or(DropReason::Data)?;
        let (mut sent, mut heard, mut taken) = (Vec::new(), Vec::new(), false);
        if let Some(router) = &mut self.router {
            taken = router.receive_packet(now, packet, &mut self.rng, &mut sent);
        } else if let Some(host) = &mut self.host {
            taken = host.receive_packet(now, packet, &mut self.rng, &mut heard);
        }
        sent.into_iter().for_each(|packet| self.send_packet(PppProtocol::IPV6, packet));
        self.apply_host_outputs(heard);
        taken.then_some(()).ok_or(DropReason::Data)
    }

    /// Applies the outputs of the host's end of IPv6.
    fn apply_host_outputs(&mut self, all: Vec<Ipv6HostOutput>) {
        for one in all {
            match one {
                Ipv6HostOutput::Send(packet) => self.send_packet(PppProtocol::IPV6, packet),
                Ipv6HostOutput::Advertised(advertisement) => {
                    self.outputs.push(PppLinkOutput::Advertised(advertisement))
                }
                Ipv6HostOutput::Delegated(delegation) => {
                    self.outputs.push(PppLinkOutput::Delegated(delegation))
                }
            }
        }
    }

    /// Ends the link by LCP (RFC 1661 §5.5). If called twice, the first reason stays.
    pub(crate) fn close(&mut self, now: Instant, wall: WallTime, reason: EndReason) {
        self.reason.get_or_insert(reason);
        self.run_lcp_step(now, wall, |lcp, cx| lcp.apply_event(cx, Event::Close));
    }
    /// Ends the link without further LCP packets.
    pub(crate) fn end_link_without_lcp(&mut self, reason: EndReason) {
        if self.is_over() {
            return;
        }
        self.take_all_networks_down();
        self.phase = PppLinkPhase::Terminated;
        self.outputs.push(PppLinkOutput::Ended(self.reason.unwrap_or(reason)));
    }

    /// Applies the verdict on a proof; false if none is pending.
    pub(crate) fn apply_verdict(
        &mut self,
        now: Instant,
        wall: WallTime,
        verdict: ProofVerdict,
        assignment: Option<&AddressAssignment>,
    ) -> bool {
        let Some(authenticator) =
            self.authenticator.as_mut().filter(|_| self.phase == PppLinkPhase::Authenticate)
        else {
            return false;
        };
        let mut out = Vec::new();
        if !authenticator.apply_verdict(now, verdict, &mut out) {
            return false;
        }
        if let Some(AddressAssignment { ipv4, ipv6 }) = assignment {
            let giving = |a: &Ipv4Assignment| IpcpOptions::for_assigning_side(a.local, a.remote, &a.dns);
            self.ipv4 = ipv4.as_ref().map(giving).map(ControlProtocol::new);
            let options = |a: &Ipv6Assignment| Ipv6cpOptions::new(a.local, a.remote);
            self.ipv6 = ipv6.as_ref().map(options).map(ControlProtocol::new);
            self.offer = RouterConfig::default();
            if let (Some(a), PppLinkRole::Authenticator { duid, .. }) = (ipv6, &self.role) {
                let (dns, duid, mtu) = (a.dns.clone(), duid.clone(), 0);
                self.offer = RouterConfig { prefix: a.prefix, delegated: a.delegated, dns, duid, mtu };
            }
        }
        self.apply_authenticator_outputs(now, wall, out);
        true
    }

    /// Handles a packet of the peer.
    pub(crate) fn receive_packet(
        &mut self,
        now: Instant,
        wall: WallTime,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let (protocol, octets) = PppProtocol::split_packet(packet).ok_or(DropReason::Malformed)?;
        if self.is_over() {
            return Err(DropReason::TooEarly);
        }
        self.worked.push(work::CONTROL);
        let mut taken = Ok(());
        match protocol {
            PppProtocol::LCP => return self.receive_lcp(now, wall, octets),
            // RFC 1661, 3.4, 3.5, 3.6: a protocol's packets are dropped before its phase.
            _ if !self.lcp.is_opened() => return Err(DropReason::TooEarly),
            PppProtocol::PAP | PppProtocol::CHAP | PppProtocol::EAP => {
                return self.receive_authentication(now, wall, protocol, octets);
            }
            PppProtocol::IPV6 if self.up[AddressFamily::Ipv6 as usize] => {
                return self.receive_ipv6(now, octets);
            }
            PppProtocol::IPV4 | PppProtocol::IPV6 => return Err(DropReason::Data),
            _ if self.phase != PppLinkPhase::Network => return Err(DropReason::TooEarly),
            PppProtocol::IPCP if self.ipv4.is_some() => {
                self.run_ipcp_step(now, wall, |ipv4, cx| taken = ipv4.receive_packet(cx, octets));
            }
            PppProtocol::IPV6CP if self.ipv6.is_some() => {
                self.run_ipv6cp_step(now, wall, |ipv6, cx| taken = ipv6.receive_packet(cx, octets));
            }
            // RFC 1661, 2, 5.7: an unknown protocol is rejected.
            _ => self.send_protocol_reject(packet),
        }
        taken.map_err(DropReason::from)
    }

    fn receive_lcp(&mut self, now: Instant, wall: WallTime, octets: &[u8]) -> Result<(), DropReason> {
        let packet = ControlPacket::parse(octets).map_err(|_| DropReason::Malformed)?;
        match packet.code {
            ControlCode::PROTOCOL_REJECT => return self.handle_protocol_reject(now, wall, packet.data),
            ControlCode::ECHO_REQUEST | ControlCode::ECHO_REPLY | ControlCode::DISCARD_REQUEST => {
                let (magic, _) = packet.data.split_first_chunk::<4>().ok_or(DropReason::Malformed)?;
                let magic = u32::from_be_bytes(*magic);
                let own = self.lcp.options.magic.filter(|own| *own == magic && self.lcp.is_opened());
                if own.is_some() && packet.code == ControlCode::ECHO_REQUEST {
                    self.end_link_without_lcp(EndReason::Looped);
                    return Ok(());
                }
                if magic != self.lcp.options.peer_magic.unwrap_or(0) {
                    return Err(DropReason::Magic);
                }
                if packet.code == ControlCode::ECHO_REPLY && !self.handle_echo_reply(packet) {
                    return Err(DropReason::Unsolicited);
                }
            }
            ControlCode::TERMINATE_REQUEST => {
                self.reason.get_or_insert(EndReason::PeerClosed);
            }
            ControlCode::CODE_REJECT if matches!(packet.data.first(), Some(1..=7)) => {
                self.reason.get_or_insert(EndReason::Protocol);
            }
            _ => {}
        }
        let mut taken = Ok(());
        self.run_lcp_step(now, wall, |lcp, cx| taken = lcp.receive_packet(cx, octets));
        taken.map_err(DropReason::from)
    }

    fn receive_authentication(
        &mut self,
        now: Instant,
        wall: WallTime,
        protocol: PppProtocol,
        octets: &[u8],
    ) -> Result<(), DropReason> {
        let mut taken = Err(DropReason::Unsolicited);
        let expects =
            |of: Option<AuthenticationProtocol>| of.is_some_and(|one| one.ppp_protocol() == protocol);
        if expects(self.lcp.options.authentication_protocol())
            && let Some(one) = &mut self.authenticator
        {
            let mut out = Vec::new();
            taken = one.receive_packet(now, octets, &mut out);
            self.apply_authenticator_outputs(now, wall, out);
        } else if expects(self.lcp.options.peer_wants)
            && let (Some(one), PppLinkRole::Peer { credentials, .. }) = (&mut self.prover, &self.role)
        {
            let mut out = Vec::new();
            if one.receive_packet(now, octets, credentials, &mut self.rng, &mut out) {
                taken = Ok(());
            }
            self.apply_peer_outputs(now, wall, out);
        }
        taken
    }

    /// Handles a Protocol-Reject of the peer (RFC 1661 §5.7).
    fn handle_protocol_reject(
        &mut self,
        now: Instant,
        wall: WallTime,
        data: &[u8],
    ) -> Result<(), DropReason> {
        let (protocol, _) = PppProtocol::split_packet(data).ok_or(DropReason::Malformed)?;
        if !self.lcp.is_opened() {
            return Err(DropReason::TooEarly);
        }
        match protocol {
            PppProtocol::IPCP | PppProtocol::IPV4 if self.ipv4.is_some() => {
                self.run_ipcp_step(now, wall, |ipv4, cx| ipv4.handle_protocol_reject(cx));
            }
            PppProtocol::IPV6CP | PppProtocol::IPV6 if self.ipv6.is_some() => {
                self.run_ipv6cp_step(now, wall, |ipv6, cx| ipv6.handle_protocol_reject(cx));
            }
            PppProtocol::LCP | PppProtocol::PAP | PppProtocol::CHAP | PppProtocol::EAP => {
                self.reason.get_or_insert(EndReason::Protocol);
                self.run_lcp_step(now, wall, |lcp, cx| lcp.apply_event(cx, Event::RejectCatastrophic));
            }
            _ => return Err(DropReason::Unsolicited),
        }
        Ok(())
    }

    /// Sends a Protocol-Reject (RFC 1661 §5.7).
    fn send_protocol_reject(&mut self, packet: &[u8]) {
        let data = &packet[..packet.len().min(usize::from(self.mtu()) - HEADER)];
        let (code, identifier) = (ControlCode::PROTOCOL_REJECT, self.lcp.next_identifier());
        self.send_packet(PppProtocol::LCP, ControlPacket { code, identifier, data }.to_vec());
    }

    fn send_packet(&mut self, protocol: PppProtocol, packet: Vec<u8>) {
        self.worked.push(work::CONTROL);
        self.outputs.push(PppLinkOutput::Send(protocol, packet));
    }

    /// Sends an authentication packet. A packet longer than the peer's MRU ends the link, since it cannot be shortened.
    fn send_proof(&mut self, now: Instant, wall: WallTime, protocol: PppProtocol, packet: Vec<u8>) {
        if packet.len() > usize::from(self.lcp.options.mtu()) {
            return self.close(now, wall, EndReason::TooLong);
        }
        self.send_packet(protocol, packet);
    }

    /// Runs a step of LCP and applies its outputs.
    fn run_lcp_step(
        &mut self,
        now: Instant,
        wall: WallTime,
        step: impl FnOnce(&mut ControlProtocol<LcpOptions>, &mut NegotiationContext<'_>),
    ) {
        if self.is_over() {
            return;
        }
        let mtu = self.lcp.options.mtu().into();
        let deeds = run_negotiation(&mut self.lcp, now, &self.config, mtu, &mut self.rng, step);
        // If the peer refuses every required authentication protocol, no further Configure-Request is sent.
        let refused = self.lcp.options.is_refused();
        for deed in deeds {
            match deed {
                NegotiationOutput::Send(_) if refused && self.lcp.state() == State::ReqSent => {}
                NegotiationOutput::Send(packet) => self.send_packet(PppProtocol::LCP, packet),
                NegotiationOutput::EchoReply(identifier, data) => self.echo_reply(identifier, &data),
                NegotiationOutput::Up => self.start_authentication(now, wall),
                NegotiationOutput::Down => {
                    self.take_all_networks_down();
                    (self.authenticator, self.prover, self.phase) = (None, None, PppLinkPhase::Establish);
                    self.keepalive.stop();
                    self.setup = Some(now + self.config.setup);
                    if !self.take_renegotiation_permit(now) {
                        return;
                    }
                }
                NegotiationOutput::Finished => {
                    let silent = if self.lcp.has_exhausted_requests(&self.config.restart) {
                        EndReason::NotConverging
                    } else {
                        EndReason::Unreachable
                    };
                    return self.end_link_without_lcp(silent);
                }
            }
        }
        if self.lcp.options.is_link_looped_back() {
            self.end_link_without_lcp(EndReason::Looped);
        } else if refused && self.lcp.poll_timeout().is_some() && self.lcp.state() != State::Closing {
            self.close(now, wall, EndReason::NoAuthentication);
        }
    }

    /// Takes one of the renegotiation limit; false if it is used up, and the link has ended.
    fn take_renegotiation_permit(&mut self, now: Instant) -> bool {
        let RenegotiationLimit { burst, each } = self.config.renegotiations;
        let may = self.renegotiations.take_each(now, each, burst);
        if !may {
            self.end_link_without_lcp(EndReason::Renegotiating);
        }
        may
    }

    /// Starts authentication after LCP has opened (RFC 1661 §3.5).
    fn start_authentication(&mut self, now: Instant, wall: WallTime) {
        // LCP has opened, so a Terminate-Request that arrived during the negotiation no longer counts.
        (self.phase, self.reason) = (PppLinkPhase::Authenticate, None);
        self.keepalive.start(now, self.lcp.options.mtu());
        let NegotiationConfig { timer, max_configure, .. } = self.config.restart;
        match &self.role {
            PppLinkRole::Authenticator { name, .. } => {
                let Some(protocol) = self.lcp.options.authentication_protocol() else {
                    return self.close(now, wall, EndReason::NoAuthentication);
                };
                let longest = self.lcp.options.mtu();
                let (one, out) = PppAuthenticator::new(
                    protocol,
                    name,
                    (timer, max_configure),
                    longest,
                    now,
                    &mut self.rng,
                );
                self.authenticator = Some(one);
                self.apply_authenticator_outputs(now, wall, out);
            }
            PppLinkRole::Peer { credentials, requires_authentication: asked, .. } => match self
                .lcp
                .options
                .peer_wants
            {
                Some(protocol) => {
                    let patience = (timer, max_configure);
                    let (one, out) =
                        AuthenticationPeer::new(protocol, credentials, patience, (now, wall), &mut self.rng);
                    self.prover = Some(one);
                    self.apply_peer_outputs(now, wall, out);
                }
                None if *asked => self.close(now, wall, EndReason::AuthenticationNotRequested),
                None => self.start_network_protocols(now, wall),
            },
        }
    }

    /// Applies the outputs of the authenticator.
    fn apply_authenticator_outputs(&mut self, now: Instant, wall: WallTime, out: Vec<AuthenticatorOutput>) {
        let protocol =
            self.lcp.options.authentication_protocol().map_or(PppProtocol::PAP, |one| one.ppp_protocol());
        if let Some(one) = &mut self.authenticator {
            self.worked.append(&mut one.worked);
        }
        for outcome in out {
            match outcome {
                AuthenticatorOutput::Send(packet) => self.send_proof(now, wall, protocol, packet),
                AuthenticatorOutput::VerifyProof { name, proof } => {
                    let mtu = self.lcp.options.mtu();
                    self.outputs.push(PppLinkOutput::VerifyProof { name, proof, mtu });
                }
                AuthenticatorOutput::Accepted => self.start_network_protocols(now, wall),
                AuthenticatorOutput::Rejected => self.close(now, wall, EndReason::AuthenticationFailed),
                AuthenticatorOutput::Silent { peer: true } => self.close(now, wall, EndReason::Unreachable),
                AuthenticatorOutput::Silent { peer: false } => self.close(now, wall, EndReason::Unjudged),
            }
        }
    }

    /// Applies the outputs of the authentication peer.
    fn apply_peer_outputs(&mut self, now: Instant, wall: WallTime, out: Vec<AuthenticationPeerOutput>) {
        let protocol = self.lcp.options.peer_wants.map_or(PppProtocol::PAP, |one| one.ppp_protocol());
        if let Some(one) = &mut self.prover {
            self.worked.append(&mut one.worked);
        }
        for outcome in out {
            match outcome {
                AuthenticationPeerOutput::Send(packet) => self.send_proof(now, wall, protocol, packet),
                AuthenticationPeerOutput::Accepted => self.start_network_protocols(now, wall),
                AuthenticationPeerOutput::Rejected(message) => {
                    self.outputs.push(PppLinkOutput::Refused(refusal_text(&message)));
                    self.close(now, wall, EndReason::Refused);
                }
                AuthenticationPeerOutput::Impostor => self.close(now, wall, EndReason::Impostor),
                AuthenticationPeerOutput::Silent => self.close(now, wall, EndReason::Unreachable),
                AuthenticationPeerOutput::TooLong => self.close(now, wall, EndReason::TooLong),
            }
        }
    }

    /// Starts the network protocols (RFC 1661 §3.6).
    fn start_network_protocols(&mut self, now: Instant, wall: WallTime) {
        if self.phase != PppLinkPhase::Authenticate {
            return;
        }
        self.phase = PppLinkPhase::Network;
        self.outputs.push(PppLinkOutput::Authenticated);
        if let PppLinkRole::Peer { ipv4, dns, ipv6, .. } = &self.role {
            self.ipv4 = ipv4.then(|| ControlProtocol::new(IpcpOptions::for_requesting_side(*dns)));
            self.ipv6 = ipv6.map(|own| ControlProtocol::new(Ipv6cpOptions::new(own, None)));
        }
        if self.ipv4.is_none() && self.ipv6.is_none() {
            return self.close(now, wall, EndReason::NoNetwork);
        }
        for event in [Event::Open, Event::Up] {
            self.run_ipcp_step(now, wall, |ipv4, cx| ipv4.apply_event(cx, event));
            self.run_ipv6cp_step(now, wall, |ipv6, cx| ipv6.apply_event(cx, event));
        }
    }

    fn run_ipcp_step(
        &mut self,
        now: Instant,
        wall: WallTime,
        step: impl FnOnce(&mut ControlProtocol<IpcpOptions>, &mut NegotiationContext<'_>),
    ) {
        let mtu = self.mtu().into();
        let Some(ipv4) = self.ipv4.as_mut().filter(|_| self.phase == PppLinkPhase::Network) else { return };
        let deeds = run_negotiation(ipv4, now, &self.config, mtu, &mut self.rng, step);
        let addresses = ipv4.options.agreed_addresses();
        let dns = ipv4.options.name_servers();
        let network = addresses.map(|(local, remote)| NegotiatedAddresses::Ipv4 { local, remote, dns });
        self.apply_network_outputs(now, wall, deeds, AddressFamily::Ipv4, network);
    }

    fn run_ipv6cp_step(
        &mut self,
        now: Instant,
        wall: WallTime,
        step: impl FnOnce(&mut ControlProtocol<Ipv6cpOptions>, &mut NegotiationContext<'_>),
    ) {
        let mtu = self.mtu().into();
        let Some(ipv6) = self.ipv6.as_mut().filter(|_| self.phase == PppLinkPhase::Network) else { return };
        let deeds = run_negotiation(ipv6, now, &self.config, mtu, &mut self.rng, step);
        let network = ipv6.options.agreed_identifiers().map(|(local, remote)| {
            let [local, remote] = [local, remote].map(InterfaceIdentifier::link_local);
            let prefixes = [self.offer.prefix, self.offer.delegated].into_iter().flatten().collect();
            NegotiatedAddresses::Ipv6 { local, remote, prefixes }
        });
        self.apply_network_outputs(now, wall, deeds, AddressFamily::Ipv6, network);
    }

    /// Applies the outputs of a network control protocol.
    fn apply_network_outputs(
        &mut self,
        now: Instant,
        wall: WallTime,
        deeds: Vec<NegotiationOutput>,
        family: AddressFamily,
        network: Option<NegotiatedAddresses>,
    ) {
        let protocol = match family {
            AddressFamily::Ipv4 => PppProtocol::IPCP,
            AddressFamily::Ipv6 => PppProtocol::IPV6CP,
        };
        for deed in deeds {
            match (deed, &network) {
                (NegotiationOutput::Send(packet), _) => self.send_packet(protocol, packet),
                (NegotiationOutput::Up, Some(network)) => {
                    self.setup = None;
                    self.up[family as usize] = true;
                    self.start_ipv6(now, network);
                    self.outputs.push(PppLinkOutput::Up(network.clone()));
                }
                // The negotiation succeeded, but one side has no address, so the network is useless.
                (NegotiationOutput::Up, None) | (NegotiationOutput::Finished, _) => {
                    self.remove_network_protocol(now, wall, family)
                }
                (NegotiationOutput::Down, _) => {
                    self.report_network_down(family);
                    if !self.take_renegotiation_permit(now) {
                        return;
                    }
                }
                (NegotiationOutput::EchoReply(..), _) => {}
            }
        }
    }

    /// Drops a network protocol. Ends the link if none is left.
    fn remove_network_protocol(&mut self, now: Instant, wall: WallTime, family: AddressFamily) {
        match family {
            AddressFamily::Ipv4 => self.ipv4 = None,
            AddressFamily::Ipv6 => self.ipv6 = None,
        }
        if self.ipv4.is_none() && self.ipv6.is_none() && self.phase == PppLinkPhase::Network {
            self.close(now, wall, EndReason::NoNetwork);
        }
    }

    /// Starts the router or host of the link's IPv6.
    fn start_ipv6(&mut self, now: Instant, network: &NegotiatedAddresses) {
        let &NegotiatedAddresses::Ipv6 { local, .. } = network else { return };
        let mtu = self.mtu();
        match &self.role {
            PppLinkRole::Authenticator { .. } => {
                let offer = RouterConfig { mtu, ..self.offer.clone() };
                self.router = Some(Ipv6Router::new(offer, local, now));
            }
            PppLinkRole::Peer { delegation, .. } => {
                self.host = Some(Ipv6Host::new(local, delegation.clone(), now, &mut self.rng));
            }
        }
    }

    /// Reports that packets of a network no longer pass.
    fn report_network_down(&mut self, family: AddressFamily) {
        if core::mem::take(&mut self.up[family as usize]) {
            if family == AddressFamily::Ipv6 {
                (self.router, self.host) = (None, None);
            }
            self.outputs.push(PppLinkOutput::Down(family));
        }
    }
    fn take_all_networks_down(&mut self) {
        (self.ipv4, self.ipv6) = (None, None);
        AddressFamily::ALL.into_iter().for_each(|family| self.report_network_down(family));
    }
}

/// Runs a step of a network control protocol.
fn run_negotiation<O: ControlProtocolOptions>(
    one: &mut ControlProtocol<O>,
    now: Instant,
    config: &LinkConfig,
    mtu: usize,
    rng: &mut SecureRng,
    step: impl FnOnce(&mut ControlProtocol<O>, &mut NegotiationContext<'_>),
) -> Vec<NegotiationOutput> {
    let mut deeds = Vec::new();
    step(one, &mut NegotiationContext { now, restart: &config.restart, rng, mtu, outputs: &mut deeds });
    deeds
}
