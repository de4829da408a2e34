//! A client: one session of this host's, whose packets the system routes.

use super::say::meaning;
use crate::setup::secure_rng;
use crate::{Frames, Hosted, ServeError, keep_memory_private, log, serve as host};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use usher_config::log::Log;
use usher_core::PortId;
use usher_crypto::Key;
use usher_eap::method::{PeerOffer, md5, mschapv2};
use usher_live::{Clock, Sockets};
use usher_ppp::auth::{AuthenticationProtocol, Credentials};
use usher_ppp::client::{Client, ClientCommand, ClientConfig, ClientEvent};
use usher_ppp::pppoe::MacAddress;
use usher_ppp::{EndReason, Network};
use usher_pppoe::{Config, Mode, Plane, PortConfig, Session, StartError};

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
    /// The service; empty: any.
    pub service: String,
    /// The concentrator's name; empty: any.
    pub concentrator: String,
    /// The name of the device by which packets go.
    pub device: String,
    /// Networks to which packets go by it, with their lengths; `0.0.0.0/0`: everything.
    pub networks: Vec<(Ipv4Addr, u8)>,
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

/// Hears a client, and carries out what it says.
struct Hear {
    plane: Arc<Plane>,
    networks: Vec<(Ipv4Addr, u8)>,
    session: Option<Session>,
    outcome: Arc<Mutex<Outcome>>,
}

impl Hear {
    fn note(&self, change: impl FnOnce(&mut Outcome)) {
        change(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// True: its packets are carried from now on.
    fn install(&mut self, session: Session) -> bool {
        let done = self.plane.install(session.clone());
        self.session = Some(session);
        match &done {
            Ok(()) => self.note(|outcome| outcome.carried = true),
            Err(error) => tracing::error!(%error, "packets cannot be carried"),
        }
        done.is_ok()
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
            ClientEvent::Install {
                concentrator,
                number,
                mtu,
                network: Network::Ipv4 { local, remote, dns },
            } => {
                let dns: Vec<String> = dns.iter().map(ToString::to_string).collect();
                let carried = self.install(Session {
                    number,
                    port: 0,
                    peer: concentrator.0,
                    mtu,
                    ipv4: None,
                    gateway: Some(local),
                    networks: self.networks.clone(),
                    ipv6: Vec::new(),
                    link_local: None,
                    rate_up: None,
                    rate_down: None,
                    clamp_mss: true,
                });
                // Whoever waits for this line sends at once.
                if carried {
                    let device = self.plane.device();
                    tracing::info!(address = %local, %remote, dns = dns.join(" "), mtu, device, "connected");
                }
            }
            ClientEvent::Mtu { mtu } => {
                if let Some(session) = self.session.clone() {
                    self.install(Session { mtu, ..session });
                }
            }
            ClientEvent::Remove { .. } => {
                if let Some(session) = self.session.take()
                    && let Err(error) = self.plane.remove(session.number)
                {
                    tracing::error!(%error, "the session is not wholly taken out of the data plane");
                }
            }
            ClientEvent::Ended { reason, again } => {
                tracing::info!(reason = meaning(reason), again = again.is_some(), "ended");
                self.note(|outcome| outcome.reason = Some(reason));
            }
            // IPv6 is not asked for.
            ClientEvent::Install { .. }
            | ClientEvent::Advertised { .. }
            | ClientEvent::Delegated { .. }
            | ClientEvent::Withdrawn => {}
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
                teller.lock().unwrap_or_else(PoisonError::into_inner)(PortId(0), data);
            }
        }
        usher_pppoe::Event::Carried(_) => {}
        usher_pppoe::Event::Failed(why) => tracing::error!("the data plane has failed: {why}"),
    };
    let config = Config {
        ports: vec![PortConfig { interface: told.interface.clone() }],
        mode: Mode::User,
        device: told.device.clone(),
        report: None,
    };
    let plane = Arc::new(Plane::start(&config, Box::new(hears))?);
    let (mac, mtu) = plane.ports().first().map_or(([0; 6], 1500), |port| (port.mac, port.mtu));
    let offers: [Box<dyn PeerOffer>; 2] = [
        Box::new(mschapv2::Account::new(told.user.as_bytes(), &told.password)),
        Box::new(md5::Password::new(&told.password)),
    ];
    let credentials = Credentials {
        name: told.user.into_bytes(),
        password: told.password,
        protocols: told.protocols,
        eap_methods: Arc::new(offers),
    };
    let config = ClientConfig {
        mtu,
        service: told.service,
        concentrator: told.concentrator,
        ipv6: None,
        persist: told.keep,
        attempts: if told.keep { 0 } else { 5 },
        ..ClientConfig::new(PortId(0), MacAddress(mac), credentials)
    };
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let mut hear =
        Hear { plane: plane.clone(), networks: told.networks, session: None, outcome: outcome.clone() };
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
        helper: Arc::new(|job| match job.what {}),
        helpers: 1,
        said: Box::new(move |event| hear.say(event)),
        over: Box::new(|event| matches!(event, ClientEvent::Ended { again: None, .. })),
        counted: |client| client.counters().iter().collect(),
        reload: Box::new(|| None),
        sources: vec![Box::new(|teller| {
            teller(ClientCommand::Connect);
        })],
        farewell: Box::new(|| Some(ClientCommand::Disconnect)),
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

/// Reads a network of IPv4: `10.0.0.0/8`.
///
/// # Errors
/// What is wrong with it.
pub fn network(text: &str) -> Result<(Ipv4Addr, u8), String> {
    match usher_config::Prefix::parse(text)? {
        usher_config::Prefix { network: IpAddr::V4(network), bits } => Ok((network, bits)),
        _ => Err(format!("{text} is no network of IPv4, as 0.0.0.0/0 is")),
    }
}
