//! A client: one session of this host's, whose packets the system routes.

use super::offers::{Certificates, offers};
use super::say::meaning;
use crate::setup::secure_rng;
use crate::{FrameKind, Frames, HelperPool, Hosted, ServeError, keep_memory_private, log, serve as host};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use usher_concentrator::config::{HookWord, ModeWord};
use usher_config::log::Log;
use usher_core::PortId;
use usher_crypto::Key;
use usher_live::{Clock, Sockets};
use usher_ppp::auth::{AuthenticationProtocol, Credentials};
use usher_ppp::client::{Client, ClientCommand, ClientConfig, ClientEvent};
use usher_ppp::ipv6::neighbor::RouterAdvertisement;
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{EndReason, Family, InterfaceIdentifier, Network};
use usher_pppoe::{Config, Plane, PortConfig, Session, StartError};

/// What a client is told.
#[derive(Clone, Debug)]
pub struct Connect {
    /// The interface that the concentrator is behind.
    pub interface: String,
    /// Who the user is.
    pub user: String,
    /// The password.
    pub password: Key,
    /// How the user may show who it is, by preference.
    pub protocols: Vec<AuthenticationProtocol>,
    /// Whether the concentrator has to ask for one of them.
    pub asked: bool,
    /// The service; empty: any.
    pub service: String,
    /// The concentrator's name; empty: any.
    pub concentrator: String,
    /// What carries packets.
    pub mode: ModeWord,
    /// The name of the device by which packets go.
    pub device: String,
    /// What the EAP methods with TLS need; without it those with a password alone are offered.
    pub certificates: Option<Certificates>,
    /// Networks to which packets go by it, with their lengths; `0.0.0.0/0` and `::/0`: everything.
    pub networks: Vec<(IpAddr, u8)>,
    /// Whether IPv6 is asked for: an address of the link's prefix, which the concentrator advertises.
    pub ipv6: bool,
    /// Whether a prefix is asked for, for a network behind this host.
    pub delegation: bool,
    /// Another session is begun when one has ended.
    pub keep: bool,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing carries packets.
    #[error(transparent)]
    Plane(#[from] StartError),
    /// The session did not come to be.
    #[error("no session: {0}")]
    NotConnected(String),
    /// A file that the methods with TLS need.
    #[error("{0}")]
    Certificates(String),
    /// The system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// What became of the session.
#[derive(Default)]
struct Outcome {
    carried: bool,
    reason: Option<EndReason>,
    /// What the concentrator has said.
    told: String,
}

/// A session as it is agreed to by now.
#[derive(Clone, Copy)]
struct Agreed {
    concentrator: MacAddress,
    number: u16,
    mtu: u16,
    ipv4: Option<Ipv4Addr>,
    /// Both link-local addresses, ours first.
    ipv6: Option<(Ipv6Addr, Ipv6Addr)>,
}

/// Hears a client, and carries out what it says.
struct Hear {
    plane: Arc<Plane>,
    networks: Vec<(IpAddr, u8)>,
    agreed: Option<Agreed>,
    outcome: Arc<Mutex<Outcome>>,
}

impl Hear {
    fn note(&self, change: impl FnOnce(&mut Outcome)) {
        change(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Has the plane carry what is agreed to; true: it does.
    fn carry(&mut self) -> bool {
        let Some(agreed) = self.agreed else { return false };
        let (mut networks, mut ipv6) = (Vec::new(), Vec::new());
        for (network, bits) in &self.networks {
            match network {
                IpAddr::V4(network) if agreed.ipv4.is_some() => networks.push((*network, *bits)),
                IpAddr::V6(network) if agreed.ipv6.is_some() => ipv6.push((*network, *bits)),
                _ => {}
            }
        }
        let remote = agreed.ipv6.and_then(|(_, remote)| remote.octets().last_chunk().copied());
        let done = self.plane.install(Session {
            number: agreed.number,
            port: 0,
            peer: agreed.concentrator.0,
            mtu: agreed.mtu,
            ipv4: None,
            gateway: agreed.ipv4,
            networks,
            ipv6,
            link_local: remote,
            rate_up: None,
            rate_down: None,
            clamp_mss: true,
        });
        match &done {
            Ok(()) => self.note(|outcome| outcome.carried = true),
            Err(error) => tracing::error!(%error, "packets cannot be carried"),
        }
        done.is_ok()
    }

    /// One of both is agreed to.
    fn agree(&mut self, concentrator: MacAddress, number: u16, mtu: u16) -> &mut Agreed {
        let begun = Agreed { concentrator, number, mtu, ipv4: None, ipv6: None };
        let agreed = self.agreed.get_or_insert(begun);
        agreed.mtu = mtu;
        agreed
    }

    fn leave(&mut self, family: Family) {
        let Some(agreed) = &mut self.agreed else { return };
        match family {
            Family::Ipv4 => agreed.ipv4 = None,
            Family::Ipv6 => {
                agreed.ipv6 = None;
                self.own(&[]);
            }
        }
        let Some(agreed) = self.agreed else { return };
        if agreed.ipv4.is_some() || agreed.ipv6.is_some() {
            self.carry();
            return;
        }
        self.agreed = None;
        if let Err(error) = self.plane.remove(agreed.number) {
            tracing::error!(%error, "the session is not wholly taken out of the data plane");
        }
    }

    /// These are our addresses of IPv6.
    fn own(&self, addresses: &[Ipv6Addr]) {
        if let Err(error) = self.plane.set_own(addresses) {
            tracing::error!(%error, "the device does not get its addresses of IPv6");
        }
    }

    /// Makes addresses of the link's prefixes (RFC 4862 §5.5.3).
    fn advertised(&self, advertisement: &RouterAdvertisement) {
        let Some((local, _)) = self.agreed.and_then(|agreed| agreed.ipv6) else { return };
        let usable = advertisement.prefixes.iter().filter(|one| one.autonomous && one.valid > 0);
        let made: Vec<Ipv6Addr> = usable
            .filter(|one| one.prefix.bits() == 64)
            .map(|one| {
                let low = u128::from(u64::MAX);
                Ipv6Addr::from_bits(one.prefix.address().to_bits() & !low | local.to_bits() & low)
            })
            .collect();
        self.own(&made);
        for address in made {
            tracing::info!(%address, device = self.plane.device(), "address of IPv6");
        }
    }

    fn say(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Began { concentrator, number } => {
                tracing::info!(%concentrator, number, "a concentrator answers");
            }
            ClientEvent::Authenticated => tracing::info!("let in"),
            ClientEvent::Told { message } => {
                let message = message.escape_ascii().to_string();
                tracing::info!(message, "the concentrator says");
                self.note(|outcome| outcome.told = message);
            }
            ClientEvent::Install { concentrator, number, mtu, network } => {
                let agreed = self.agree(concentrator, number, mtu);
                match network {
                    Network::Ipv4 { local, remote, dns } => {
                        agreed.ipv4 = Some(local);
                        let dns: Vec<String> = dns.iter().map(ToString::to_string).collect();
                        // Whoever waits for this line sends at once.
                        if self.carry() {
                            let device = self.plane.device();
                            tracing::info!(address = %local, %remote, dns = dns.join(" "), mtu, device, "connected");
                        }
                    }
                    Network::Ipv6 { local, remote, .. } => {
                        agreed.ipv6 = Some((local, remote));
                        if self.carry() {
                            tracing::info!(%local, %remote, mtu, device = self.plane.device(), "connected by IPv6");
                        }
                    }
                }
            }
            ClientEvent::Mtu { mtu } => {
                if let Some(agreed) = &mut self.agreed {
                    agreed.mtu = mtu;
                    self.carry();
                }
            }
            ClientEvent::Remove { family } => self.leave(family),
            ClientEvent::Advertised { advertisement } => self.advertised(&advertisement),
            ClientEvent::Delegated { delegation } => {
                let dns: Vec<String> = delegation.dns.iter().map(ToString::to_string).collect();
                let prefix = delegation.prefix.to_string();
                tracing::info!(
                    prefix,
                    valid_s = delegation.valid,
                    dns = dns.join(" "),
                    "a prefix for the network behind this host"
                );
            }
            ClientEvent::Withdrawn => tracing::info!("the prefix is not this host's any more"),
            ClientEvent::Ended { reason, again } => {
                tracing::info!(reason = meaning(reason), again = again.is_some(), "ended");
                self.note(|outcome| outcome.reason = Some(reason));
            }
        }
    }
}

/// Has a session until it ends, or until told to end it.
///
/// # Errors
/// It could not begin, or did not come to be.
pub fn connect(told: Connect) -> Result<(), ConnectError> {
    let system = |what| move |error| ServeError::System { what, error };
    keep_memory_private().map_err(system("switching core dumps off"))?;
    let _log = log::begin(Log::default());
    let hearing: super::Hearing = Arc::default();
    let heard = hearing.clone();
    let hears = move |event| match event {
        usher_pppoe::Event::Frame { data, .. } => {
            if let Some(teller) = heard.get() {
                teller.lock().unwrap_or_else(PoisonError::into_inner)(PortId(0), FrameKind::Other, data);
            }
        }
        usher_pppoe::Event::Carried(_) => {}
        usher_pppoe::Event::Failed(why) => tracing::error!("the data plane has failed: {why}"),
    };
    let config = Config {
        ports: vec![PortConfig { interface: told.interface.clone() }],
        mode: super::mode(told.mode, HookWord::Auto),
        device: told.device.clone(),
        report: None,
        closed: false,
    };
    let plane = Arc::new(Plane::start(&config, Box::new(hears))?);
    let (mac, mtu) = plane.ports().first().map_or(([0; 6], 1500), |port| (port.mac, port.mtu));
    let eap_methods = offers(&told.user, &told.password, told.certificates.as_ref())?;
    let credentials = Credentials {
        name: told.user.into_bytes(),
        password: told.password,
        protocols: told.protocols,
        eap_methods,
    };
    let config = ClientConfig {
        mtu,
        asked: told.asked,
        service: told.service,
        concentrator: told.concentrator,
        ipv6: (told.ipv6 || told.delegation).then(InterfaceIdentifier::default),
        delegation: told.delegation,
        persist: told.keep,
        attempts: if told.keep { 0 } else { 5 },
        ..ClientConfig::new(PortId(0), MacAddress(mac), credentials)
    };
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let mut hear =
        Hear { plane: plane.clone(), networks: told.networks, agreed: None, outcome: outcome.clone() };
    let sends = plane.clone();
    host(Hosted {
        name: "usher-pppoe",
        machine: Client::new(config, secure_rng()?),
        sockets: Sockets::default(),
        frames: Some(Frames {
            send: Box::new(move |_, frame| sends.send(0, frame)),
            source: Box::new(move |teller| drop(hearing.set(Mutex::new(teller)))),
        }),
        clock: Clock::start(),
        helpers: HelperPool::new(1, |job| match job.what {}),
        said: Box::new(move |event| hear.say(event)),
        over: Box::new(|event| matches!(event, ClientEvent::Ended { again: None, .. })),
        counted: |client| client.counters().iter().collect(),
        work: None,
        reload: Box::new(|| None),
        sources: vec![Box::new(|teller| {
            teller(ClientCommand::Connect);
        })],
        farewell: Box::new(|| Some(ClientCommand::Disconnect)),
        lingers: false,
    })?;
    let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
    match outcome.reason {
        Some(reason) if !outcome.carried => {
            let told =
                if outcome.told.is_empty() { String::new() } else { format!(" (it says: {})", outcome.told) };
            Err(ConnectError::NotConnected(format!("{}{told}", meaning(reason))))
        }
        _ => Ok(()),
    }
}

/// Reads a network: `10.0.0.0/8`, `2001:db8::/32`.
///
/// # Errors
/// What is wrong with it.
pub fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let prefix = usher_config::Prefix::parse(text)?;
    Ok((prefix.network, prefix.bits))
}
