//! EAP-TLS in studies: certificates of `vectors/certs`, real or recorded handshakes.

use super::super::WorldError;
use std::sync::Arc;
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Credentials, KeyLog, Resumption, Roots, ServerConfig, ServerOptions,
    TlsError, WallClock, fixtures, record,
};
use usher_eap::method::ServerOffer;
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_nas::station;
use usher_scenario::model::{Eap, EapTls, Handshake};

/// Both sides' TLS for a run.
#[derive(Debug)]
pub(super) struct Tls {
    right: Source,
    wrong: Source,
    server: Arc<dyn ServerOffer>,
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
    /// One handshake stands for all only where all are alike: each is computed where credentials may be
    /// wrong or sessions resumed.
    pub(super) fn new(eap: &Eap, key_log: &KeyLog) -> Result<Self, WorldError> {
        let tls = &eap.eap_tls;
        let client = client(tls, fixtures::client(chain(tls.client_chain.get())), key_log)?;
        let foreign = self::client(tls, fixtures::foreign_client(), key_log)?;
        let server = ServerConfig::new(ServerOptions {
            versions: tls.version.into(),
            credentials: fixtures::server(chain(tls.server_chain.get())),
            client_roots: Some(roots()),
            resumption: tls.resumption.then(Resumption::default),
            clock: WallClock::at(fixtures::WALL_TIME),
            key_log: Some(key_log.clone()),
        })?;
        let fragment = tls.fragment.bytes() as usize;
        let alike = eap.wrong_credentials.get() == 0.0 && !tls.resumption;
        if tls.handshake == Handshake::Recorded && alike {
            let recording = Arc::new(record(&client, &server)?);
            return Ok(Self {
                right: Source::Recorded(recording.clone()),
                wrong: Source::Recorded(recording.clone()),
                server: Arc::new(ServerMethodTls { tls: ServerTls::Recorded(recording), fragment }),
                fragment,
            });
        }
        Ok(Self {
            right: Source::Real(client),
            wrong: Source::Real(foreign),
            server: Arc::new(ServerMethodTls { tls: ServerTls::Real(server), fragment }),
            fragment,
        })
    }

    pub(super) fn server(&self) -> Arc<dyn ServerOffer> {
        self.server.clone()
    }

    /// What a station proves itself with, rightly or wrongly.
    pub(super) fn credentials(&self, right: bool, station: u64) -> station::Credentials {
        let tls = match if right { &self.right } else { &self.wrong } {
            Source::Real(config) => PeerTls::Real(config.clone(), station),
            Source::Recorded(recording) => PeerTls::Recorded(recording.clone()),
        };
        station::Credentials::method(PeerMethodTls { tls, fragment: self.fragment })
    }
}

fn client(tls: &EapTls, credentials: Credentials, key_log: &KeyLog) -> Result<ClientConfig, TlsError> {
    ClientConfig::new(ClientOptions {
        versions: tls.version.into(),
        credentials: Some(credentials),
        roots: roots(),
        server_name: None,
        resumption: tls.resumption.then(Resumption::default),
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: Some(key_log.clone()),
    })
}

pub(super) fn roots() -> Roots {
    Roots::from_der([fixtures::root()])
}

fn chain(length: u32) -> u8 {
    length.min(u32::from(u8::MAX)) as u8
}
