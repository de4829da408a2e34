//! One PPP link from its first Configure-Request to its end: LCP, authentication, network protocols, keepalive (RFC 1661 §3).

mod keepalive;

use crate::auth::authenticator::{Authenticator, Outcome as Asked, Verdict};
use crate::auth::peer::{Outcome as Shown, Prover, refusal};
use crate::auth::{AuthenticationProtocol, Credentials, Proof};
use crate::automaton::{Event, State};
use crate::ipcp::Ipv4Options;
use crate::ipv6::host::{Delegation, Heard, Host};
use crate::ipv6::neighbor::RouterAdvertisement;
use crate::ipv6::router::{Offer, Router};
use crate::ipv6::{Local, Prefix};
use crate::ipv6cp::{InterfaceIdentifier, Ipv6Options};
use crate::lcp::LinkOptions;
use crate::negotiation::{Context, Deed, Discard, Negotiation, Options, Restart};
use crate::packet::{Code, HEADER, Packet, Protocol};
use crate::pppoe::limit::Bucket;
use crate::work;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use keepalive::Keepalive;
use usher_core::timer::earliest;
use usher_core::{Duration, Instant, SecureRng, WallTime, WorkLabel};

/// How a link is kept (RFC 1661 §4.6, RFC 2516 §7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// How packets are sent again.
    pub restart: Restart,
    /// Between two Echo-Requests; zero: none are sent.
    pub echo_interval: Duration,
    /// Echo-Requests in a row without a reply, after which the peer is gone.
    pub echo_failures: u32,
    /// How long it may take from the first packet until packets of a network may pass.
    pub setup: Duration,
    /// How often LCP and the network protocols may leave what was agreed to, together: each time costs a login, or a change of what
    /// carries packets.
    pub renegotiations: Renegotiations,
}

/// So many at once, and then one each time that so long has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renegotiations {
    /// At once.
    pub burst: u32,
    /// Between two.
    pub each: Duration,
}

impl Default for LinkConfig {
    /// RFC 1661's times, an Echo-Request each 20 s of which three may be lost, 60 s of setting up, ten renegotiations and one each
    /// minute.
    fn default() -> Self {
        Self {
            restart: Restart::default(),
            echo_interval: Duration::from_secs(20),
            echo_failures: 3,
            setup: Duration::from_secs(60),
            renegotiations: Renegotiations { burst: 10, each: Duration::from_secs(60) },
        }
    }
}

/// What a peer that is let in may have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assignment {
    /// IPv4; `None`: IPCP is refused.
    pub ipv4: Option<Ipv4Assignment>,
    /// IPv6; `None`: IPv6CP is refused.
    pub ipv6: Option<Ipv6Assignment>,
}

/// IPv4 for a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ipv4Assignment {
    /// This side's address.
    pub local: Ipv4Addr,
    /// The peer's.
    pub remote: Ipv4Addr,
    /// Name servers, the first two of which it is told (RFC 1877).
    pub dns: Vec<Ipv4Addr>,
}

/// IPv6 for a peer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ipv6Assignment {
    /// This side's interface identifier; zero: chance decides.
    pub local: InterfaceIdentifier,
    /// The peer's, where it does not bring one.
    pub remote: Option<InterfaceIdentifier>,
    /// The link's prefix, which is advertised: hosts make addresses of it by themselves.
    pub prefix: Option<Prefix>,
    /// A prefix for the network behind the peer, delegated by DHCPv6.
    pub delegated: Option<Prefix>,
    /// Name servers, told by DHCPv6.
    pub dns: Vec<Ipv6Addr>,
}

/// What both ends have agreed to have of a network protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Network {
    /// IPv4.
    Ipv4 {
        /// This side's address.
        local: Ipv4Addr,
        /// The peer's. On a client it may be unspecified: the concentrator has not told it.
        remote: Ipv4Addr,
        /// The name servers that the client was told.
        dns: Vec<Ipv4Addr>,
    },
    /// IPv6.
    Ipv6 {
        /// This side's link-local address.
        local: Ipv6Addr,
        /// The peer's.
        remote: Ipv6Addr,
        /// What a concentrator routes to the peer: the link's prefix and the delegated one. A client hears of its own by
        /// advertisement and delegation.
        prefixes: Vec<Prefix>,
    },
}

impl Network {
    /// Which.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self {
            Self::Ipv4 { .. } => Family::Ipv4,
            Self::Ipv6 { .. } => Family::Ipv6,
        }
    }
}

usher_core::named! {
    "a network protocol";
    /// A network protocol of a link.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Family {
        /// IPv4.
        Ipv4 = "ipv4",
        /// IPv6.
        Ipv6 = "ipv6",
    }
}

usher_core::named! {
    "why a session ended";
    /// Why a session ended, or never came to be.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum EndReason {
        /// This side was told to end it.
        Closed = "closed",
        /// The other side ended it by LCP.
        PeerClosed = "peer-closed",
        /// The other side ended it by PADT.
        Padt = "padt",
        /// The other side does not answer.
        Unreachable = "unreachable",
        /// Both answer, and do not come to agree.
        NotConverging = "not-converging",
        /// What is sent comes back: the link is looped.
        Looped = "looped",
        /// Setting up took too long.
        SetupTimeout = "setup-timeout",
        /// The other side has no way of showing who it is that this side takes.
        NoAuthentication = "no-authentication",
        /// The concentrator asks for no proof of who this side is, and so shows none of its own.
        Unasked = "unasked",
        /// The other side did not prove who it is.
        AuthenticationFailed = "authentication-failed",
        /// This side was not believed.
        Refused = "refused",
        /// The concentrator does not know the password that it let this side in by.
        Impostor = "impostor",
        /// Whoever judges proofs did not answer.
        Unjudged = "unjudged",
        /// No network protocol is left that both want.
        NoNetwork = "no-network",
        /// The same host began another session and may not have both.
        Replaced = "replaced",
        /// The other side leaves what was agreed to again and again.
        Renegotiating = "renegotiating",
        /// Others wanted its place before its host was let in.
        CrowdedOut = "crowded-out",
        /// The other side does not know LCP, or what is fundamental to it.
        Protocol = "protocol",
        /// A packet of authentication is longer than the other side takes, or a name or password longer than PAP can say.
        TooLong = "too-long",
        /// No concentrator offers what is asked for.
        NoConcentrator = "no-concentrator",
    }
}

/// Which side of a link this is.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// It asks the peer who it is, and gives addresses.
    Authenticator { name: Vec<u8>, protocols: Arc<[AuthenticationProtocol]>, duid: Vec<u8> },
    /// It shows who it is, and takes addresses.
    Peer {
        credentials: Arc<Credentials>,
        /// The other side has to ask who it is.
        asked: bool,
        ipv4: bool,
        dns: bool,
        ipv6: Option<InterfaceIdentifier>,
        /// As whom it asks for a prefix, if it wants one.
        delegation: Option<Vec<u8>>,
    },
}

/// What a link has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// Send this.
    Send(Protocol, Vec<u8>),
    /// Somebody is to judge this, and answer by packets of at most `mtu` octets.
    Ask { name: Vec<u8>, proof: Proof, mtu: u16 },
    /// Who asks, or is asked, is satisfied.
    Authenticated,
    /// This side was not believed, and this is what the other said.
    Refused(Vec<u8>),
    /// Packets of this network may pass.
    Up(Network),
    /// And not any more.
    Down(Family),
    /// So long may packets be from now on.
    Mtu(u16),
    /// The router has advertised this.
    Advertised(RouterAdvertisement),
    /// A prefix was delegated; `None`: it is not any more.
    Delegated(Option<Delegation>),
    /// It is over.
    Ended(EndReason),
}

/// Why a packet changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dropped {
    /// It is no packet of its protocol.
    Malformed,
    /// It answers nothing that was asked.
    NotAsked,
    /// It is not its time yet.
    Early,
    /// It has another magic number than it should.
    Magic,
    /// It is a packet of a network, which the data plane has to carry.
    Data,
    /// In the state of its protocol nothing follows from it (RFC 1661 §4.1).
    Ignored,
    /// It came again while its proof is judged.
    Pending,
}

impl From<Discard> for Dropped {
    fn from(discard: Discard) -> Self {
        match discard {
            Discard::Malformed => Self::Malformed,
            Discard::NotAsked => Self::NotAsked,
            Discard::NoLayer => Self::Early,
            Discard::Ignored => Self::Ignored,
        }
    }
}

/// How far a link has come (RFC 1661 §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Establish,
    Authenticate,
    Network,
    Over,
}

/// A PPP link.
#[derive(Debug)]
pub(crate) struct Link {
    config: LinkConfig,
    role: Role,
    phase: Phase,
    rng: SecureRng,
    lcp: Negotiation<LinkOptions>,
    authenticator: Option<Authenticator>,
    prover: Option<Prover>,
    ipv4: Option<Negotiation<Ipv4Options>>,
    ipv6: Option<Negotiation<Ipv6Options>>,
    /// What the peer is given by IPv6, once it is let in.
    offer: Offer,
    router: Option<Router>,
    host: Option<Host>,
    /// Which networks were said to be up.
    up: [bool; Family::ALL.len()],
    keepalive: Keepalive,
    /// Of [`LinkConfig::renegotiations`].
    renegotiations: Bucket,
    /// Until when a network has to be up.
    setup: Option<Instant>,
    /// Why it will have ended.
    reason: Option<EndReason>,
    said: Vec<Said>,
    worked: Vec<WorkLabel>,
}

impl Link {
    /// Begins one: packets are no longer than `limit`.
    pub(crate) fn new(
        role: Role,
        config: LinkConfig,
        limit: u16,
        mut rng: SecureRng,
        now: Instant,
        wall: WallTime,
    ) -> Self {
        let (wanted, offered): (Arc<[_]>, _) = match &role {
            Role::Authenticator { protocols, .. } => (protocols.clone(), Vec::new()),
            Role::Peer { credentials, .. } => (Arc::new([]), credentials.protocols.clone()),
        };
        let keepalive = Keepalive::new(&config, &mut rng);
        let mut this = Self {
            config,
            role,
            phase: Phase::Establish,
            rng,
            lcp: Negotiation::new(LinkOptions::new(limit, wanted, offered)),
            authenticator: None,
            prover: None,
            ipv4: None,
            ipv6: None,
            offer: Offer::default(),
            router: None,
            host: None,
            up: [false; Family::ALL.len()],
            keepalive,
            renegotiations: Bucket::default(),
            setup: Some(now + config.setup),
            reason: None,
            said: Vec::new(),
            worked: Vec::new(),
        };
        for event in [Event::Open, Event::Up] {
            this.lcp(now, wall, |lcp, cx| lcp.event(cx, event));
        }
        this
    }

    /// Takes what it has to say.
    pub(crate) fn take(&mut self) -> Vec<Said> {
        core::mem::take(&mut self.said)
    }
    /// Takes what it has done.
    pub(crate) fn take_work(&mut self) -> Vec<WorkLabel> {
        core::mem::take(&mut self.worked)
    }
    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }
    /// Octets of the longest packet that is known to pass.
    pub(crate) fn mtu(&self) -> u16 {
        self.keepalive.mtu(self.lcp.options.mtu())
    }

    /// When [`timeout`](Self::timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        earliest([
            self.setup,
            self.lcp.poll_timeout(),
            self.authenticator.as_ref().and_then(Authenticator::poll_timeout),
            self.prover.as_ref().and_then(Prover::poll_timeout),
            self.ipv4.as_ref().and_then(Negotiation::poll_timeout),
            self.ipv6.as_ref().and_then(Negotiation::poll_timeout),
            self.keepalive.poll_timeout(),
            self.router.as_ref().and_then(Router::poll_timeout),
            self.host.as_ref().and_then(Host::poll_timeout),
        ])
    }

    /// Tells it that time has passed.
    pub(crate) fn timeout(&mut self, now: Instant, wall: WallTime) {
        if self.setup.is_some_and(|at| at <= now) {
            return self.end(EndReason::SetupTimeout);
        }
        self.lcp(now, wall, |lcp, cx| lcp.timeout(cx));
        let mut out = Vec::new();
        if let Some(one) = &mut self.authenticator {
            one.timeout(now, &mut self.rng, &mut out);
            self.asked(now, wall, out);
        }
        let mut out = Vec::new();
        if let (Some(one), Role::Peer { credentials, .. }) = (&mut self.prover, &self.role) {
            one.timeout(now, credentials, &mut out);
            self.shown(now, wall, out);
        }
        self.ipv4(now, wall, |ipv4, cx| ipv4.timeout(cx));
        self.ipv6(now, wall, |ipv6, cx| ipv6.timeout(cx));
        if self.keepalive.poll_timeout().is_some_and(|at| at <= now) {
            self.echo(now);
        }
        let mut out = Vec::new();
        if let Some(router) = &mut self.router {
            router.timeout(now, &mut self.rng, &mut out);
        }
        out.into_iter().for_each(|packet| self.send(Protocol::IPV6, packet));
        let mut out = Vec::new();
        if let Some(host) = &mut self.host {
            host.timeout(now, &mut self.rng, &mut out);
        }
        self.heard(out);
    }

    /// A packet of IPv6 may be for this end itself.
    fn receive_ipv6(&mut self, now: Instant, octets: &[u8]) -> Result<(), Dropped> {
        let packet = Local::parse(octets).ok_or(Dropped::Data)?;
        let (mut sent, mut heard, mut taken) = (Vec::new(), Vec::new(), false);
        if let Some(router) = &mut self.router {
            taken = router.receive(now, packet, &mut self.rng, &mut sent);
        } else if let Some(host) = &mut self.host {
            taken = host.receive(now, packet, &mut self.rng, &mut heard);
        }
        sent.into_iter().for_each(|packet| self.send(Protocol::IPV6, packet));
        self.heard(heard);
        taken.then_some(()).ok_or(Dropped::Data)
    }

    /// What the host's end of IPv6 has to say.
    fn heard(&mut self, all: Vec<Heard>) {
        for one in all {
            match one {
                Heard::Send(packet) => self.send(Protocol::IPV6, packet),
                Heard::Advertised(advertisement) => self.said.push(Said::Advertised(advertisement)),
                Heard::Delegated(delegation) => self.said.push(Said::Delegated(delegation)),
            }
        }
    }

    /// Ends it by LCP (RFC 1661 §5.5). It may be told so twice: the first reason stays.
    pub(crate) fn close(&mut self, now: Instant, wall: WallTime, reason: EndReason) {
        self.reason.get_or_insert(reason);
        self.lcp(now, wall, |lcp, cx| lcp.event(cx, Event::Close));
    }
    /// It is over without another word by LCP.
    pub(crate) fn end(&mut self, reason: EndReason) {
        if self.is_over() {
            return;
        }
        self.lower_networks();
        self.phase = Phase::Over;
        self.said.push(Said::Ended(self.reason.unwrap_or(reason)));
    }

    /// Takes what somebody says to a proof; false: nobody was asked.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        wall: WallTime,
        verdict: Verdict,
        assignment: Option<&Assignment>,
    ) -> bool {
        let Some(authenticator) = self.authenticator.as_mut().filter(|_| self.phase == Phase::Authenticate)
        else {
            return false;
        };
        let mut out = Vec::new();
        if !authenticator.answer(now, verdict, &mut out) {
            return false;
        }
        if let Some(Assignment { ipv4, ipv6 }) = assignment {
            let giving = |a: &Ipv4Assignment| Ipv4Options::giving(a.local, a.remote, &a.dns);
            self.ipv4 = ipv4.as_ref().map(giving).map(Negotiation::new);
            let options = |a: &Ipv6Assignment| Ipv6Options::new(a.local, a.remote);
            self.ipv6 = ipv6.as_ref().map(options).map(Negotiation::new);
            self.offer = Offer::default();
            if let (Some(a), Role::Authenticator { duid, .. }) = (ipv6, &self.role) {
                let (dns, duid, mtu) = (a.dns.clone(), duid.clone(), 0);
                self.offer = Offer { prefix: a.prefix, delegated: a.delegated, dns, duid, mtu };
            }
        }
        self.asked(now, wall, out);
        true
    }

    /// Takes a packet of the peer's.
    pub(crate) fn receive(&mut self, now: Instant, wall: WallTime, packet: &[u8]) -> Result<(), Dropped> {
        let (protocol, octets) = Protocol::split(packet).ok_or(Dropped::Malformed)?;
        if self.is_over() {
            return Err(Dropped::Early);
        }
        self.worked.push(work::CONTROL);
        let mut taken = Ok(());
        match protocol {
            Protocol::LCP => return self.receive_lcp(now, wall, octets),
            // What is not agreed to may not be said before its phase (RFC 1661 §3.5, §3.6).
            _ if !self.lcp.is_opened() => return Err(Dropped::Early),
            Protocol::PAP | Protocol::CHAP | Protocol::EAP => {
                return self.receive_authentication(now, wall, protocol, octets);
            }
            Protocol::IPV6 if self.up[Family::Ipv6 as usize] => return self.receive_ipv6(now, octets),
            Protocol::IPV4 | Protocol::IPV6 => return Err(Dropped::Data),
            _ if self.phase != Phase::Network => return Err(Dropped::Early),
            Protocol::IPCP if self.ipv4.is_some() => {
                self.ipv4(now, wall, |ipv4, cx| taken = ipv4.receive(cx, octets));
            }
            Protocol::IPV6CP if self.ipv6.is_some() => {
                self.ipv6(now, wall, |ipv6, cx| taken = ipv6.receive(cx, octets));
            }
            _ => self.reject(packet),
        }
        taken.map_err(Dropped::from)
    }

    fn receive_lcp(&mut self, now: Instant, wall: WallTime, octets: &[u8]) -> Result<(), Dropped> {
        let packet = Packet::parse(octets).map_err(|_| Dropped::Malformed)?;
        match packet.code {
            Code::PROTOCOL_REJECT => return self.rejected(now, wall, packet.data),
            Code::ECHO_REQUEST | Code::ECHO_REPLY | Code::DISCARD_REQUEST => {
                let (magic, _) = packet.data.split_first_chunk::<4>().ok_or(Dropped::Malformed)?;
                let magic = u32::from_be_bytes(*magic);
                let own = self.lcp.options.magic.filter(|own| *own == magic && self.lcp.is_opened());
                if own.is_some() && packet.code == Code::ECHO_REQUEST {
                    self.end(EndReason::Looped);
                    return Ok(());
                }
                if magic != self.lcp.options.peer_magic.unwrap_or(0) {
                    return Err(Dropped::Magic);
                }
                if packet.code == Code::ECHO_REPLY && !self.replied(packet) {
                    return Err(Dropped::NotAsked);
                }
            }
            Code::TERMINATE_REQUEST => {
                self.reason.get_or_insert(EndReason::PeerClosed);
            }
            Code::CODE_REJECT if matches!(packet.data.first(), Some(1..=7)) => {
                self.reason.get_or_insert(EndReason::Protocol);
            }
            _ => {}
        }
        let mut taken = Ok(());
        self.lcp(now, wall, |lcp, cx| taken = lcp.receive(cx, octets));
        taken.map_err(Dropped::from)
    }

    fn receive_authentication(
        &mut self,
        now: Instant,
        wall: WallTime,
        protocol: Protocol,
        octets: &[u8],
    ) -> Result<(), Dropped> {
        let mut taken = Err(Dropped::NotAsked);
        let expects = |of: Option<AuthenticationProtocol>| of.is_some_and(|one| one.protocol() == protocol);
        if expects(self.lcp.options.authentication())
            && let Some(one) = &mut self.authenticator
        {
            let mut out = Vec::new();
            taken = one.receive(now, octets, &mut out);
            self.asked(now, wall, out);
        } else if expects(self.lcp.options.peer_wants)
            && let (Some(one), Role::Peer { credentials, .. }) = (&mut self.prover, &self.role)
        {
            let mut out = Vec::new();
            if one.receive(now, octets, credentials, &mut self.rng, &mut out) {
                taken = Ok(());
            }
            self.shown(now, wall, out);
        }
        taken
    }

    /// The peer does not know a protocol (RFC 1661 §5.7).
    fn rejected(&mut self, now: Instant, wall: WallTime, data: &[u8]) -> Result<(), Dropped> {
        let (protocol, _) = Protocol::split(data).ok_or(Dropped::Malformed)?;
        if !self.lcp.is_opened() {
            return Err(Dropped::Early);
        }
        match protocol {
            Protocol::IPCP | Protocol::IPV4 if self.ipv4.is_some() => {
                self.ipv4(now, wall, |ipv4, cx| ipv4.refused(cx));
            }
            Protocol::IPV6CP | Protocol::IPV6 if self.ipv6.is_some() => {
                self.ipv6(now, wall, |ipv6, cx| ipv6.refused(cx));
            }
            Protocol::LCP | Protocol::PAP | Protocol::CHAP | Protocol::EAP => {
                self.reason.get_or_insert(EndReason::Protocol);
                self.lcp(now, wall, |lcp, cx| lcp.event(cx, Event::RejectCatastrophic));
            }
            _ => return Err(Dropped::NotAsked),
        }
        Ok(())
    }

    /// Protocol-Reject (RFC 1661 §5.7).
    fn reject(&mut self, packet: &[u8]) {
        let data = &packet[..packet.len().min(usize::from(self.mtu()) - HEADER)];
        let (code, identifier) = (Code::PROTOCOL_REJECT, self.lcp.next_identifier());
        self.send(Protocol::LCP, Packet { code, identifier, data }.to_vec());
    }

    fn send(&mut self, protocol: Protocol, packet: Vec<u8>) {
        self.worked.push(work::CONTROL);
        self.said.push(Said::Send(protocol, packet));
    }

    /// Sends a packet of authentication. What the other side cannot take ends the link: nothing shorter says the same.
    fn send_proof(&mut self, now: Instant, wall: WallTime, protocol: Protocol, packet: Vec<u8>) {
        if packet.len() > usize::from(self.lcp.options.mtu()) {
            return self.close(now, wall, EndReason::TooLong);
        }
        self.send(protocol, packet);
    }

    /// Has LCP do something, and what follows from it.
    fn lcp(
        &mut self,
        now: Instant,
        wall: WallTime,
        step: impl FnOnce(&mut Negotiation<LinkOptions>, &mut Context<'_>),
    ) {
        if self.is_over() {
            return;
        }
        let mtu = self.lcp.options.mtu().into();
        let deeds = run(&mut self.lcp, now, &self.config, mtu, &mut self.rng, step);
        // Without a way of asking the peer who it is, nothing more is asked of it.
        let refused = self.lcp.options.is_refused();
        for deed in deeds {
            match deed {
                Deed::Send(_) if refused && self.lcp.state() == State::ReqSent => {}
                Deed::Send(packet) => self.send(Protocol::LCP, packet),
                Deed::EchoReply(identifier, data) => self.echo_reply(identifier, &data),
                Deed::Up => self.established(now, wall),
                Deed::Down => {
                    self.lower_networks();
                    (self.authenticator, self.prover, self.phase) = (None, None, Phase::Establish);
                    self.keepalive.stop();
                    self.setup = Some(now + self.config.setup);
                    if !self.may_renegotiate(now) {
                        return;
                    }
                }
                Deed::Finished => {
                    let silent = if self.lcp.diverges(&self.config.restart) {
                        EndReason::NotConverging
                    } else {
                        EndReason::Unreachable
                    };
                    return self.end(silent);
                }
            }
        }
        if self.lcp.options.is_looped() {
            self.end(EndReason::Looped);
        } else if refused && self.lcp.poll_timeout().is_some() && self.lcp.state() != State::Closing {
            self.close(now, wall, EndReason::NoAuthentication);
        }
    }

    /// What was agreed to is left; false: too often, and the link is over.
    fn may_renegotiate(&mut self, now: Instant) -> bool {
        let Renegotiations { burst, each } = self.config.renegotiations;
        let may = self.renegotiations.take_each(now, each, burst);
        if !may {
            self.end(EndReason::Renegotiating);
        }
        may
    }

    /// LCP is open: authentication is next (RFC 1661 §3.5).
    fn established(&mut self, now: Instant, wall: WallTime) {
        // A Terminate-Request that came while negotiating has been overtaken.
        (self.phase, self.reason) = (Phase::Authenticate, None);
        self.keepalive.start(now, self.lcp.options.mtu());
        let Restart { timer, max_configure, .. } = self.config.restart;
        match &self.role {
            Role::Authenticator { name, .. } => {
                let Some(protocol) = self.lcp.options.authentication() else {
                    return self.close(now, wall, EndReason::NoAuthentication);
                };
                let longest = self.lcp.options.mtu();
                let (one, out) =
                    Authenticator::new(protocol, name, (timer, max_configure), longest, now, &mut self.rng);
                self.authenticator = Some(one);
                self.asked(now, wall, out);
            }
            Role::Peer { credentials, asked, .. } => match self.lcp.options.peer_wants {
                Some(protocol) => {
                    let patience = (timer, max_configure);
                    let (one, out) = Prover::new(protocol, credentials, patience, (now, wall), &mut self.rng);
                    self.prover = Some(one);
                    self.shown(now, wall, out);
                }
                None if *asked => self.close(now, wall, EndReason::Unasked),
                None => self.authenticated(now, wall),
            },
        }
    }

    /// What the authenticator has decided.
    fn asked(&mut self, now: Instant, wall: WallTime, out: Vec<Asked>) {
        let protocol = self.lcp.options.authentication().map_or(Protocol::PAP, |one| one.protocol());
        if let Some(one) = &mut self.authenticator {
            self.worked.append(&mut one.worked);
        }
        for outcome in out {
            match outcome {
                Asked::Send(packet) => self.send_proof(now, wall, protocol, packet),
                Asked::Ask { name, proof } => {
                    let mtu = self.lcp.options.mtu();
                    self.said.push(Said::Ask { name, proof, mtu });
                }
                Asked::Accepted => self.authenticated(now, wall),
                Asked::Rejected => self.close(now, wall, EndReason::AuthenticationFailed),
                Asked::Silent { peer: true } => self.close(now, wall, EndReason::Unreachable),
                Asked::Silent { peer: false } => self.close(now, wall, EndReason::Unjudged),
            }
        }
    }

    /// What the prover has decided.
    fn shown(&mut self, now: Instant, wall: WallTime, out: Vec<Shown>) {
        let protocol = self.lcp.options.peer_wants.map_or(Protocol::PAP, |one| one.protocol());
        if let Some(one) = &mut self.prover {
            self.worked.append(&mut one.worked);
        }
        for outcome in out {
            match outcome {
                Shown::Send(packet) => self.send_proof(now, wall, protocol, packet),
                Shown::Accepted => self.authenticated(now, wall),
                Shown::Rejected(message) => {
                    self.said.push(Said::Refused(refusal(&message)));
                    self.close(now, wall, EndReason::Refused);
                }
                Shown::Impostor => self.close(now, wall, EndReason::Impostor),
                Shown::Silent => self.close(now, wall, EndReason::Unreachable),
                Shown::TooLong => self.close(now, wall, EndReason::TooLong),
            }
        }
    }

    /// The network protocols are next (RFC 1661 §3.6).
    fn authenticated(&mut self, now: Instant, wall: WallTime) {
        if self.phase != Phase::Authenticate {
            return;
        }
        self.phase = Phase::Network;
        self.said.push(Said::Authenticated);
        if let Role::Peer { ipv4, dns, ipv6, .. } = &self.role {
            self.ipv4 = ipv4.then(|| Negotiation::new(Ipv4Options::taking(*dns)));
            self.ipv6 = ipv6.map(|own| Negotiation::new(Ipv6Options::new(own, None)));
        }
        if self.ipv4.is_none() && self.ipv6.is_none() {
            return self.close(now, wall, EndReason::NoNetwork);
        }
        for event in [Event::Open, Event::Up] {
            self.ipv4(now, wall, |ipv4, cx| ipv4.event(cx, event));
            self.ipv6(now, wall, |ipv6, cx| ipv6.event(cx, event));
        }
    }

    fn ipv4(
        &mut self,
        now: Instant,
        wall: WallTime,
        step: impl FnOnce(&mut Negotiation<Ipv4Options>, &mut Context<'_>),
    ) {
        let mtu = self.mtu().into();
        let Some(ipv4) = self.ipv4.as_mut().filter(|_| self.phase == Phase::Network) else { return };
        let deeds = run(ipv4, now, &self.config, mtu, &mut self.rng, step);
        let addresses = ipv4.options.addresses();
        let dns = ipv4.options.name_servers();
        let network = addresses.map(|(local, remote)| Network::Ipv4 { local, remote, dns });
        self.network(now, wall, deeds, Family::Ipv4, network);
    }

    fn ipv6(
        &mut self,
        now: Instant,
        wall: WallTime,
        step: impl FnOnce(&mut Negotiation<Ipv6Options>, &mut Context<'_>),
    ) {
        let mtu = self.mtu().into();
        let Some(ipv6) = self.ipv6.as_mut().filter(|_| self.phase == Phase::Network) else { return };
        let deeds = run(ipv6, now, &self.config, mtu, &mut self.rng, step);
        let network = ipv6.options.identifiers().map(|(local, remote)| {
            let [local, remote] = [local, remote].map(InterfaceIdentifier::link_local);
            let prefixes = [self.offer.prefix, self.offer.delegated].into_iter().flatten().collect();
            Network::Ipv6 { local, remote, prefixes }
        });
        self.network(now, wall, deeds, Family::Ipv6, network);
    }

    /// What a network control protocol has decided.
    fn network(
        &mut self,
        now: Instant,
        wall: WallTime,
        deeds: Vec<Deed>,
        family: Family,
        network: Option<Network>,
    ) {
        let protocol = match family {
            Family::Ipv4 => Protocol::IPCP,
            Family::Ipv6 => Protocol::IPV6CP,
        };
        for deed in deeds {
            match (deed, &network) {
                (Deed::Send(packet), _) => self.send(protocol, packet),
                (Deed::Up, Some(network)) => {
                    self.setup = None;
                    self.up[family as usize] = true;
                    self.speak(now, network);
                    self.said.push(Said::Up(network.clone()));
                }
                // Both have agreed, and one of them has no address: there is nothing to carry.
                (Deed::Up, None) | (Deed::Finished, _) => self.without(now, wall, family),
                (Deed::Down, _) => {
                    self.lower(family);
                    if !self.may_renegotiate(now) {
                        return;
                    }
                }
                (Deed::EchoReply(..), _) => {}
            }
        }
    }

    /// A network protocol is not to be had. With none left, the link is of no use.
    fn without(&mut self, now: Instant, wall: WallTime, family: Family) {
        match family {
            Family::Ipv4 => self.ipv4 = None,
            Family::Ipv6 => self.ipv6 = None,
        }
        if self.ipv4.is_none() && self.ipv6.is_none() && self.phase == Phase::Network {
            self.close(now, wall, EndReason::NoNetwork);
        }
    }

    /// By IPv6 each end has more to say than addresses.
    fn speak(&mut self, now: Instant, network: &Network) {
        let &Network::Ipv6 { local, .. } = network else { return };
        let mtu = self.mtu();
        match &self.role {
            Role::Authenticator { .. } => {
                let offer = Offer { mtu, ..self.offer.clone() };
                self.router = Some(Router::new(offer, local, now));
            }
            Role::Peer { delegation, .. } => {
                self.host = Some(Host::new(local, delegation.clone(), now, &mut self.rng));
            }
        }
    }

    /// No packets of a network pass any more.
    fn lower(&mut self, family: Family) {
        if core::mem::take(&mut self.up[family as usize]) {
            if family == Family::Ipv6 {
                (self.router, self.host) = (None, None);
            }
            self.said.push(Said::Down(family));
        }
    }
    fn lower_networks(&mut self) {
        (self.ipv4, self.ipv6) = (None, None);
        Family::ALL.into_iter().for_each(|family| self.lower(family));
    }
}

/// Has a control protocol do something.
fn run<O: Options>(
    one: &mut Negotiation<O>,
    now: Instant,
    config: &LinkConfig,
    mtu: usize,
    rng: &mut SecureRng,
    step: impl FnOnce(&mut Negotiation<O>, &mut Context<'_>),
) -> Vec<Deed> {
    let mut deeds = Vec::new();
    step(one, &mut Context { now, restart: &config.restart, rng, mtu, deeds: &mut deeds });
    deeds
}
