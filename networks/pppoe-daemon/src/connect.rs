//! A PPPoE client: one session of this host, to which the system routes packets.

use super::event_handler::end_reason_text;
use super::offers::{EapCertificateFiles, eap_offers};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use usher_concentrator::config::{EbpfHookName, ModeWord};
use usher_config::log::LogConfig;
use usher_core::LinkLayerPortId;
use usher_crypto::SecretValue;
use usher_live::{DriverSockets, SystemClock};
use usher_ppp::auth::{AuthenticationProtocol, PppCredentials};
use usher_ppp::client::{ClientCommand, ClientConfig, ClientEvent, PppoeClient};
use usher_ppp::ipv6::neighbor::RouterAdvertisement;
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{AddressFamily, EndReason, InterfaceIdentifier, NegotiatedAddresses};
use usher_pppoe::{AccessPortConfig, DataPlaneConfig, DataPlaneSession, PppoeDataPlane, StartError};
use usher_service::setup::secure_rng;
use usher_service::{
    EthernetPorts, FrameInput, FrameKind, HostedMachine, MachineWorkerPool, ServeError, log, protect_memory,
    serve_machine, system_error,
};

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct PppoeConnectConfig {
    /// The interface toward the concentrator.
    pub interface: String,
    /// The user name.
    pub user: String,
    /// The password.
    pub password: SecretValue,
    /// The authentication protocols, in order of preference.
    pub protocols: Vec<AuthenticationProtocol>,
    /// True if the concentrator must request one of them.
    pub requires_authentication: bool,
    /// The service name. Empty: any.
    pub service: String,
    /// The concentrator's name. Empty: any.
    pub concentrator: String,
    /// The kind of data plane.
    pub mode: ModeWord,
    /// The name of the network device.
    pub device: String,
    /// The files for TLS-based EAP methods. Without them, only password methods are offered.
    pub certificates: Option<EapCertificateFiles>,
    /// The networks to route via the session, with prefix lengths. `0.0.0.0/0` and `::/0` route everything.
    pub networks: Vec<(IpAddr, u8)>,
    /// True to request IPv6: an address of the link's prefix, from a Router Advertisement.
    pub ipv6: bool,
    /// True to request a delegated prefix for a network behind this host.
    pub delegation: bool,
    /// True to start another session after one has ended.
    pub reconnects: bool,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum PppoeConnectError {
    /// The data plane cannot start.
    #[error(transparent)]
    Plane(#[from] StartError),
    /// The session failed.
    #[error("no session: {0}")]
    NotConnected(String),
    /// A file for TLS-based methods cannot be used.
    #[error("{0}")]
    Certificates(String),
    /// An error of the system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The outcome of the session.
#[derive(Default)]
struct PppoeSessionOutcome {
    has_data_plane: bool,
    reason: Option<EndReason>,
    /// The concentrator's message.
    peer_message: String,
}

/// The negotiated state of a session so far.
#[derive(Clone, Copy)]
struct NegotiatedPppoeSession {
    concentrator: MacAddress,
    number: u16,
    mtu: u16,
    ipv4: Option<Ipv4Addr>,
    /// Both link-local addresses, this side's first.
    ipv6: Option<(Ipv6Addr, Ipv6Addr)>,
}

/// Receives a client's events and carries them out.
struct ClientEventHandler {
    plane: Arc<PppoeDataPlane>,
    networks: Vec<(IpAddr, u8)>,
    agreed: Option<NegotiatedPppoeSession>,
    outcome: Arc<Mutex<PppoeSessionOutcome>>,
}

impl ClientEventHandler {
    fn update_session_outcome(&self, change: impl FnOnce(&mut PppoeSessionOutcome)) {
        change(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Installs the negotiated session in the data plane. True if that succeeds.
    fn install_session(&mut self) -> bool {
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
        let done = self.plane.install_session(DataPlaneSession {
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
            Ok(()) => self.update_session_outcome(|outcome| outcome.has_data_plane = true),
            Err(error) => tracing::error!(%error, "cannot install the session in the data plane"),
        }
        done.is_ok()
    }

    /// Updates the negotiated state when IPv4 or IPv6 opens.
    fn update_agreed_session(
        &mut self,
        concentrator: MacAddress,
        number: u16,
        mtu: u16,
    ) -> &mut NegotiatedPppoeSession {
        let begun = NegotiatedPppoeSession { concentrator, number, mtu, ipv4: None, ipv6: None };
        let agreed = self.agreed.get_or_insert(begun);
        agreed.mtu = mtu;
        agreed
    }

    fn remove_agreed_family(&mut self, family: AddressFamily) {
        let Some(agreed) = &mut self.agreed else { return };
        match family {
            AddressFamily::Ipv4 => agreed.ipv4 = None,
            AddressFamily::Ipv6 => {
                agreed.ipv6 = None;
                self.set_own_addresses(&[]);
            }
        }
        let Some(agreed) = self.agreed else { return };
        if agreed.ipv4.is_some() || agreed.ipv6.is_some() {
            self.install_session();
            return;
        }
        self.agreed = None;
        if let Err(error) = self.plane.remove_session(agreed.number) {
            tracing::error!(%error, "cannot remove all state of the session from the data plane");
        }
    }

    /// Sets this side's IPv6 addresses on the device.
    fn set_own_addresses(&self, addresses: &[Ipv6Addr]) {
        if let Err(error) = self.plane.replace_own_addresses(addresses) {
            tracing::error!(%error, "cannot set the IPv6 addresses of the device");
        }
    }

    /// Forms addresses from the link's prefixes (RFC 4862 §5.5.3).
    fn apply_advertisement(&self, advertisement: &RouterAdvertisement) {
        let Some((local, _)) = self.agreed.and_then(|agreed| agreed.ipv6) else { return };
        let usable = advertisement.prefixes.iter().filter(|one| one.autonomous && one.valid > 0);
        let made: Vec<Ipv6Addr> = usable
            .filter(|one| one.prefix.prefix_length() == 64)
            .map(|one| {
                let low = u128::from(u64::MAX);
                Ipv6Addr::from_bits(one.prefix.address().to_bits() & !low | local.to_bits() & low)
            })
            .collect();
        self.set_own_addresses(&made);
        for address in made {
            tracing::info!(%address, device = self.plane.device_name(), "IPv6 address");
        }
    }

    fn handle_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::SessionStarted { concentrator, number } => {
                tracing::info!(%concentrator, number, "a concentrator answers");
            }
            ClientEvent::Authenticated => tracing::info!("authenticated"),
            ClientEvent::RefusalMessage { message } => {
                let message = message.escape_ascii().to_string();
                tracing::info!(message, "message from the concentrator");
                self.update_session_outcome(|outcome| outcome.peer_message = message);
            }
            ClientEvent::Install { concentrator, number, mtu, network } => {
                let agreed = self.update_agreed_session(concentrator, number, mtu);
                match network {
                    NegotiatedAddresses::Ipv4 { local, remote, dns } => {
                        agreed.ipv4 = Some(local);
                        let dns: Vec<String> = dns.iter().map(ToString::to_string).collect();
                        // Install the session before this log line, because scripts that wait for the line send traffic
                        // at once.
                        if self.install_session() {
                            let device = self.plane.device_name();
                            tracing::info!(address = %local, %remote, dns = dns.join(" "), mtu, device, "connected");
                        }
                    }
                    NegotiatedAddresses::Ipv6 { local, remote, .. } => {
                        agreed.ipv6 = Some((local, remote));
                        if self.install_session() {
                            tracing::info!(%local, %remote, mtu, device = self.plane.device_name(),
                                "connected by IPv6");
                        }
                    }
                }
            }
            ClientEvent::Mtu { mtu } => {
                if let Some(agreed) = &mut self.agreed {
                    agreed.mtu = mtu;
                    self.install_session();
                }
            }
            ClientEvent::Remove { family } => self.remove_agreed_family(family),
            ClientEvent::Advertised { advertisement } => self.apply_advertisement(&advertisement),
            ClientEvent::Delegated { delegation } => {
                let dns: Vec<String> = delegation.dns.iter().map(ToString::to_string).collect();
                let prefix = delegation.prefix.to_string();
                tracing::info!(
                    prefix,
                    valid_s = delegation.valid,
                    dns = dns.join(" "),
                    "prefix delegated to this host"
                );
            }
            ClientEvent::Withdrawn => tracing::info!("delegated prefix withdrawn"),
            ClientEvent::Ended { reason, retry_at: again } => {
                tracing::info!(reason = end_reason_text(reason), again = again.is_some(), "ended");
                self.update_session_outcome(|outcome| outcome.reason = Some(reason));
            }
        }
    }
}

/// Runs a session until it ends, or until a signal.
///
/// # Errors
/// The client could not start, or the session failed.
pub fn run_client(told: PppoeConnectConfig) -> Result<(), PppoeConnectError> {
    protect_memory().map_err(system_error("cannot disable core dumps"))?;
    let _log = log::start_logging(LogConfig::default());
    let frames = FrameInput::default();
    let received = frames.clone();
    let hears = move |event| match event {
        usher_pppoe::DataPlaneEvent::Frame { data, .. } => {
            received.push_frame(LinkLayerPortId(0), FrameKind::Other, data);
        }
        usher_pppoe::DataPlaneEvent::UsageReport(_) => {}
        usher_pppoe::DataPlaneEvent::Failed(why) => tracing::error!("the data plane has failed: {why}"),
    };
    let config = DataPlaneConfig {
        ports: vec![AccessPortConfig { interface: told.interface.clone() }],
        mode: super::data_plane_mode_from_words(told.mode, EbpfHookName::Auto),
        device: told.device.clone(),
        report: None,
        closed: false,
    };
    let plane = Arc::new(PppoeDataPlane::start(&config, Box::new(hears))?);
    let (mac, mtu) = plane.ports().first().map_or(([0; 6], 1500), |port| (port.mac, port.mtu));
    let eap_methods = eap_offers(&told.user, &told.password, told.certificates.as_ref())?;
    let credentials = PppCredentials {
        name: told.user.into_bytes(),
        password: told.password,
        protocols: told.protocols,
        eap_methods,
    };
    let config = ClientConfig {
        mtu,
        requires_authentication: told.requires_authentication,
        service: told.service,
        concentrator: told.concentrator,
        ipv6: (told.ipv6 || told.delegation).then(InterfaceIdentifier::default),
        delegation: told.delegation,
        persist: told.reconnects,
        attempts: if told.reconnects { 0 } else { 5 },
        ..ClientConfig::new(LinkLayerPortId(0), MacAddress(mac), credentials)
    };
    let outcome = Arc::new(Mutex::new(PppoeSessionOutcome::default()));
    let mut hear = ClientEventHandler {
        plane: plane.clone(),
        networks: told.networks,
        agreed: None,
        outcome: outcome.clone(),
    };
    let sends = plane.clone();
    serve_machine(HostedMachine {
        name: "usher-pppoe",
        machine: PppoeClient::new(config, secure_rng()?),
        sockets: DriverSockets::default(),
        frames: Some(EthernetPorts {
            send: Box::new(move |_, frame| sends.send_frame(0, frame)),
            input: frames,
        }),
        clock: SystemClock::start(),
        helpers: MachineWorkerPool::new(1, |job| match job.job {}),
        event_handler: Box::new(move |event| hear.handle_event(event)),
        stop_condition: Box::new(|event| matches!(event, ClientEvent::Ended { retry_at: None, .. })),
        counted: |client| client.counters().iter().collect(),
        work: None,
        reload: Box::new(|| None),
        sources: vec![Box::new(|teller| {
            teller(ClientCommand::Connect);
        })],
        farewell: Box::new(|| Some(ClientCommand::Disconnect)),
        waits_for_stop: false,
    })?;
    let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
    match outcome.reason {
        Some(reason) if !outcome.has_data_plane => {
            let told = if outcome.peer_message.is_empty() {
                String::new()
            } else {
                format!(" (its message: {})", outcome.peer_message)
            };
            Err(PppoeConnectError::NotConnected(format!("{}{told}", end_reason_text(reason))))
        }
        _ => Ok(()),
    }
}

/// Parses a network: `10.0.0.0/8`, `2001:db8::/32`.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_network(text: &str) -> Result<(IpAddr, u8), String> {
    let prefix = usher_config::Prefix::parse(text)?;
    Ok((prefix.network, prefix.bits))
}
