//! The TLS of EAP methods in studies: with a server of the workload's own certificates of `vectors/certs`, real or recorded
//! handshakes; with a service of a host the study's files.

use super::super::error::WorldError;
use super::super::handshakes;
use super::users::{PASSWORD, WRONG_PASSWORD};
use std::sync::Arc;
use usher_aaa::Method;
use usher_core::WallTime;
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Credentials, KeyLog, Resumption, Roots, ServerConfig, ServerOptions,
    TlsError, WallClock, fixtures, record,
};
use usher_eap::method::peap::{Cryptobinding, PeerMethodPeap, ServerMethodPeap};
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_eap::method::ttls::{PeerMethodTtls, Proof, ServerMethodTtls};
use usher_eap::method::{Inner, PeerOffer, mschapv2};
use usher_eap::packet::Type;
use usher_nas::station;
use usher_scenario::certificates::Party;
use usher_scenario::model::{Eap, EapTls, Scenario};

/// Both sides' TLS for a run.
#[derive(Debug)]
pub(super) struct Tls {
    method: Method,
    right: Source,
    wrong: Source,
    /// That of a server of the workload's own.
    server: Option<ServerTls>,
    fragment: usize,
}

#[derive(Debug)]
enum Source {
    Real(ClientConfig),
    Recorded(Arc<usher_crypto::tls::Recording>),
}

impl From<TlsError> for WorldError {
    fn from(e: TlsError) -> Self {
        Self::Role(e.to_string())
    }
}

impl Tls {
    /// Of a server of the workload's own.
    pub(super) fn new(eap: &Eap, key_log: &KeyLog) -> Result<Self, WorldError> {
        let (tls, method) = (&eap.eap_tls, eap.method);
        let mutual = method == Method::EapTls;
        let with =
            |credentials| client(tls, (mutual.then_some(credentials), roots()), fixtures::WALL_TIME, key_log);
        let client = || with(fixtures::client(chain(tls.client_chain.get())));
        let server = || {
            ServerConfig::new(ServerOptions {
                versions: tls.version.into(),
                credentials: fixtures::server(chain(tls.server_chain.get())),
                client_roots: mutual.then(roots),
                resumption: tls.resumption.then(Resumption::default),
                clock: WallClock::at(fixtures::WALL_TIME),
                key_log: Some(key_log.clone()),
            })
        };
        let fragment = tls.fragment.bytes() as usize;
        if eap.replays_handshakes() {
            let (version, chains) = (tls.version, (tls.client_chain.get(), tls.server_chain.get()));
            let name = format!("eap {version:?} {} {}", chains.0, chains.1);
            let recording = handshakes::recording(name, || record(&client()?, &server()?))?;
            let (right, wrong) = (Source::Recorded(recording.clone()), Source::Recorded(recording.clone()));
            let server = Some(ServerTls::Recorded(recording));
            return Ok(Self { method, right, wrong, server, fragment });
        }
        let server = Some(ServerTls::Real(server()?));
        let (right, wrong) = (Source::Real(client()?), Source::Real(with(fixtures::foreign_client())?));
        Ok(Self { method, right, wrong, server, fragment })
    }

    /// Of a service, whose side of it is its own.
    pub(super) fn served(
        scenario: &Scenario,
        eap: &Eap,
        party: &Party,
        key_log: &KeyLog,
    ) -> Result<Self, WorldError> {
        let (tls, wall) = (&eap.eap_tls, scenario.run.date.wall_time());
        let of = |credentials: Option<Credentials>| {
            let credentials = credentials.filter(|_| eap.method == Method::EapTls);
            client(tls, (credentials, party.roots.clone().unwrap_or_default()), wall, key_log)
        };
        let (right, wrong) = (of(party.credentials.clone())?, of(Some(fixtures::foreign_client()))?);
        let fragment = tls.fragment.bytes() as usize;
        let (right, wrong) = (Source::Real(right), Source::Real(wrong));
        Ok(Self { method: eap.method, right, wrong, server: None, fragment })
    }

    /// Has a server of the workload's own offer the method.
    pub(super) fn serve(&self, config: &mut usher_aaa::Config) {
        if let Some(tls) = &self.server {
            offer(config, self.method, tls.clone(), self.fragment);
        }
    }

    /// What a station of this name proves itself with, rightly or wrongly.
    pub(super) fn credentials(&self, right: bool, (station, name): (u64, &[u8])) -> station::Credentials {
        let (fragment, identity) = (self.fragment, name.to_vec());
        let password = if right { PASSWORD } else { WRONG_PASSWORD };
        let tls = match if right { &self.right } else { &self.wrong } {
            Source::Real(config) => PeerTls::Real(config.clone(), station),
            Source::Recorded(recording) => PeerTls::Recorded(recording.clone()),
        };
        match self.method {
            Method::Peap => {
                let inner: Box<dyn PeerOffer> = Box::new(mschapv2::Account::new(name, password));
                let inner = Arc::new([inner]);
                station::Credentials::method(PeerMethodPeap { tls, fragment, identity, inner })
            }
            Method::Ttls => {
                let proof = Proof::Pap(password.into());
                station::Credentials::method(PeerMethodTtls { tls, fragment, identity, proof })
            }
            _ => station::Credentials::method(PeerMethodTls { tls, fragment }),
        }
    }
}

/// Has a server offer a method of TLS: PEAP with EAP-MSCHAPv2 inside, EAP-TTLS with PAP inside, or EAP-TLS.
pub(in super::super) fn offer(
    config: &mut usher_aaa::Config,
    method: Method,
    tls: ServerTls,
    fragment: usize,
) {
    match method {
        Method::Peap => {
            let (inner, cryptobinding) = (Arc::new([Type::MSCHAPV2]), Cryptobinding::default());
            config.peap = Some(Arc::new(ServerMethodPeap { tls, fragment, inner, cryptobinding }));
        }
        Method::Ttls => {
            config.ttls = Some(Arc::new(ServerMethodTtls { tls, fragment, inner: Arc::new([Inner::Pap]) }));
        }
        _ => config.tls = Some(Arc::new(ServerMethodTls { tls, fragment })),
    }
}

fn client(
    tls: &EapTls,
    (credentials, roots): (Option<Credentials>, Roots),
    wall: WallTime,
    key_log: &KeyLog,
) -> Result<ClientConfig, TlsError> {
    ClientConfig::new(ClientOptions {
        versions: tls.version.into(),
        credentials,
        roots,
        server_name: None,
        resumption: tls.resumption.then(Resumption::default),
        clock: WallClock::at(wall),
        key_log: Some(key_log.clone()),
    })
}

pub(super) fn roots() -> Roots {
    Roots::from_der([fixtures::root()])
}

fn chain(length: u32) -> u8 {
    length.min(u32::from(u8::MAX)) as u8
}
