//! TLS of EAP methods in studies. A workload's own server uses the certificates of `vectors/certs` with real or
//! recorded handshakes. A host's service uses the study's files.

use super::super::error::ScenarioRunError;
use super::super::handshakes;
use super::users::{PASSWORD, WRONG_PASSWORD};
use std::sync::Arc;
use usher_aaa::AuthMethod;
use usher_core::WallTime;
use usher_crypto::tls::{
    ClientConfig, KeyLog, ServerConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsError,
    TlsResumptionConfig, TlsServerOptions, TrustRoots, fixtures, record_handshake,
};
use usher_eap::method::peap::{CryptobindingPolicy, PeapPeerFactory, PeapServerFactory};
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory, TtlsServerFactory};
use usher_eap::method::{InnerMethod, PeerMethodFactory, mschapv2};
use usher_eap::packet::EapType;
use usher_nas::station;
use usher_scenario::certificates::TlsClientCredentials;
use usher_scenario::model::{EapTls, EapWorkload, Scenario};

/// TLS of both sides for a run.
#[derive(Debug)]
pub(super) struct EapTlsSetup {
    method: AuthMethod,
    right: EapTlsHandshakeSource,
    wrong: EapTlsHandshakeSource,
    /// TLS of a workload's own server.
    server: Option<ServerTlsBackend>,
    fragment: usize,
}

#[derive(Debug)]
enum EapTlsHandshakeSource {
    Real(ClientConfig),
    Recorded(Arc<usher_crypto::tls::TlsHandshakeRecording>),
}

impl From<TlsError> for ScenarioRunError {
    fn from(e: TlsError) -> Self {
        Self::Role(e.to_string())
    }
}

impl EapTlsSetup {
    /// Creates TLS for a workload's own server.
    pub(super) fn new(eap: &EapWorkload, key_log: &KeyLog) -> Result<Self, ScenarioRunError> {
        let (tls, method) = (&eap.eap_tls, eap.method);
        let mutual = method == AuthMethod::EapTls;
        let with = |credentials| {
            build_client_config(
                tls,
                (mutual.then_some(credentials), fixture_roots()),
                fixtures::WALL_TIME,
                key_log,
            )
        };
        let client = || with(fixtures::client_credentials(chain_length(tls.client_chain.get())));
        let server = || {
            ServerConfig::new(TlsServerOptions {
                versions: tls.version.into(),
                credentials: fixtures::server_credentials(chain_length(tls.server_chain.get())),
                client_roots: mutual.then(fixture_roots),
                resumption: tls.resumption.then(TlsResumptionConfig::default),
                clock: SharedWallClock::from_time(fixtures::WALL_TIME),
                key_log: Some(key_log.clone()),
            })
        };
        let fragment = tls.fragment.bytes() as usize;
        if eap.replays_handshakes() {
            let (version, chains) = (tls.version, (tls.client_chain.get(), tls.server_chain.get()));
            let name = format!("eap {version:?} {} {}", chains.0, chains.1);
            let recording =
                handshakes::recorded_handshake(name, || record_handshake(&client()?, &server()?))?;
            let (right, wrong) = (
                EapTlsHandshakeSource::Recorded(recording.clone()),
                EapTlsHandshakeSource::Recorded(recording.clone()),
            );
            let server = Some(ServerTlsBackend::Recorded(recording));
            return Ok(Self { method, right, wrong, server, fragment });
        }
        let server = Some(ServerTlsBackend::Real(server()?));
        let (right, wrong) = (
            EapTlsHandshakeSource::Real(client()?),
            EapTlsHandshakeSource::Real(with(fixtures::untrusted_client_credentials())?),
        );
        Ok(Self { method, right, wrong, server, fragment })
    }

    /// Creates TLS for a service, which has its own server side.
    pub(super) fn for_service(
        scenario: &Scenario,
        eap: &EapWorkload,
        party: &TlsClientCredentials,
        key_log: &KeyLog,
    ) -> Result<Self, ScenarioRunError> {
        let (tls, wall) = (&eap.eap_tls, scenario.run.date.wall_time());
        let of = |credentials: Option<TlsCredentials>| {
            let credentials = credentials.filter(|_| eap.method == AuthMethod::EapTls);
            build_client_config(tls, (credentials, party.roots.clone().unwrap_or_default()), wall, key_log)
        };
        let (right, wrong) =
            (of(party.credentials.clone())?, of(Some(fixtures::untrusted_client_credentials()))?);
        let fragment = tls.fragment.bytes() as usize;
        let (right, wrong) = (EapTlsHandshakeSource::Real(right), EapTlsHandshakeSource::Real(wrong));
        Ok(Self { method: eap.method, right, wrong, server: None, fragment })
    }

    /// Makes a workload's own server offer the method.
    pub(super) fn offer_server_tls_method(&self, config: &mut usher_aaa::AaaServerConfig) {
        if let Some(tls) = &self.server {
            offer_tls_method(config, self.method, tls.clone(), self.fragment);
        }
    }

    /// Returns the right or wrong credentials of the station of this name.
    pub(super) fn station_credentials(
        &self,
        right: bool,
        (station, name): (u64, &[u8]),
    ) -> station::EapCredentials {
        let (fragment, identity) = (self.fragment, name.to_vec());
        let password = if right { PASSWORD } else { WRONG_PASSWORD };
        let tls = match if right { &self.right } else { &self.wrong } {
            EapTlsHandshakeSource::Real(config) => PeerTlsBackend::Real(config.clone(), station),
            EapTlsHandshakeSource::Recorded(recording) => PeerTlsBackend::Recorded(recording.clone()),
        };
        match self.method {
            AuthMethod::Peap => {
                let inner: Box<dyn PeerMethodFactory> =
                    Box::new(mschapv2::MsChapV2Account::new(name, password));
                let inner = Arc::new([inner]);
                station::EapCredentials::from_method(PeapPeerFactory { tls, fragment, identity, inner })
            }
            AuthMethod::Ttls => {
                let proof = TtlsInnerCredential::Pap(password.into());
                station::EapCredentials::from_method(TtlsPeerFactory { tls, fragment, identity, proof })
            }
            _ => station::EapCredentials::from_method(EapTlsPeerFactory { tls, fragment }),
        }
    }
}

/// Makes a server offer a TLS method: PEAP with EAP-MSCHAPv2 inside, EAP-TTLS with PAP inside, or EAP-TLS.
pub(in super::super) fn offer_tls_method(
    config: &mut usher_aaa::AaaServerConfig,
    method: AuthMethod,
    tls: ServerTlsBackend,
    fragment: usize,
) {
    match method {
        AuthMethod::Peap => {
            let (inner, cryptobinding) = (Arc::new([EapType::MSCHAPV2]), CryptobindingPolicy::default());
            config.peap = Some(Arc::new(PeapServerFactory { tls, fragment, inner, cryptobinding }));
        }
        AuthMethod::Ttls => {
            config.ttls =
                Some(Arc::new(TtlsServerFactory { tls, fragment, inner: Arc::new([InnerMethod::Pap]) }));
        }
        _ => config.tls = Some(Arc::new(EapTlsServerFactory { tls, fragment })),
    }
}

fn build_client_config(
    tls: &EapTls,
    (credentials, roots): (Option<TlsCredentials>, TrustRoots),
    wall: WallTime,
    key_log: &KeyLog,
) -> Result<ClientConfig, TlsError> {
    ClientConfig::new(TlsClientOptions {
        versions: tls.version.into(),
        credentials,
        roots,
        server_name: None,
        resumption: tls.resumption.then(TlsResumptionConfig::default),
        clock: SharedWallClock::from_time(wall),
        key_log: Some(key_log.clone()),
    })
}

pub(super) fn fixture_roots() -> TrustRoots {
    TrustRoots::from_der([fixtures::root_certificate()])
}

fn chain_length(length: u32) -> u8 {
    length.min(u32::from(u8::MAX)) as u8
}
