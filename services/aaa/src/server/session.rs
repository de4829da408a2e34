//! One unfinished session, and the EAP back end's part in it.

use super::answer::Asker;
use super::{Config, Reason};
use crate::users::{Method, User};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::Work;
use usher_eap::method::md5::Password;
use usher_eap::method::{Context, ServerMethod, ServerOffer};
use usher_eap::packet::{Code, Packet, Type};
use usher_eap::server::{Event, Server};

pub(super) type Msk = [u8; 64];

/// Whose session it is: nobody else may go on with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The RADIUS client of this index.
    Radius(u32),
    /// A Diameter session.
    Diameter,
}

/// What somebody offers who is being looked up.
#[derive(Debug)]
pub(super) enum Proof {
    /// The password.
    Pap(Vec<u8>),
    /// An EAP-Response/Identity of this identifier.
    Eap(u8),
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The identity was asked for under this identifier.
    Identity { identifier: u8 },
    /// The user is being looked up.
    Looking(Proof),
    /// A method is under way.
    Eap(Box<Server>),
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) owner: Owner,
    /// The request that waits for its answer.
    pub(super) asker: Option<Asker>,
    /// What makes the session's State unguessable.
    pub(super) nonce: u64,
    pub(super) name: Vec<u8>,
    pub(super) user: Option<Arc<User>>,
    pub(super) stage: Stage,
}

impl Session {
    pub(super) fn new(owner: Owner, asker: Asker, nonce: u64, name: &[u8], stage: Stage) -> Self {
        Self { owner, asker: Some(asker), nonce, name: name.to_vec(), user: None, stage }
    }
}

/// Where a conversation stands after a packet.
#[derive(Debug)]
pub(super) enum Step {
    /// It goes on with the request that was written.
    Request,
    /// The peer is who it says; a Success was written.
    Success(Method, Option<Msk>),
    /// It is not, or cannot show it.
    Failure(Reason),
    /// The packet was none, or answers nothing that was asked.
    Ignored,
}

/// An offer that all sessions share.
#[derive(Debug)]
struct Shared(Arc<dyn ServerOffer>);

impl ServerOffer for Shared {
    fn kind(&self) -> Type {
        self.0.kind()
    }
    fn begin(&self, context: Context<'_>) -> Box<dyn ServerMethod> {
        self.0.begin(context)
    }
}

/// What of a server's offer may admit a user, the preferred method first.
pub(super) fn offers(config: &Config, user: &User) -> Vec<Box<dyn ServerOffer>> {
    let mut offers: Vec<Box<dyn ServerOffer>> = Vec::with_capacity(config.methods.len());
    for &method in config.methods.iter().filter(|&&m| user.may_use(m)) {
        match (method, &user.password) {
            (Method::EapMd5, Some(password)) => offers.push(Box::new(Password::new(password))),
            (Method::EapTls, _) => {
                if let Some(tls) = &config.tls {
                    offers.push(Box::new(Shared(tls.clone())));
                }
            }
            (Method::Pap | Method::EapMd5, _) => {}
        }
    }
    offers
}

/// What a server's automaton says after it was given something; its packet goes to `out`.
pub(super) fn step(eap: &mut Server, work: &mut VecDeque<Work>, out: &mut Vec<u8>) -> Step {
    while let Some(done) = eap.poll_work() {
        work.push_back(done);
    }
    let sends = eap.poll_transmit(out);
    match eap.poll_event() {
        Some(Event::Success { method, keys }) => Step::Success(by_type(method), keys.map(|k| k.msk)),
        Some(Event::Failure { method: None }) => Step::Failure(Reason::NoMethod),
        Some(Event::Failure { method: Some(_) }) => Step::Failure(Reason::WrongCredentials),
        // None of this server's methods asks.
        Some(Event::Ask(_)) => Step::Failure(Reason::WrongCredentials),
        None if sends => Step::Request,
        None => Step::Ignored,
    }
}

fn by_type(kind: Type) -> Method {
    if kind == Type::TLS { Method::EapTls } else { Method::EapMd5 }
}

/// The name that an EAP-Response/Identity gives (RFC 3748 §5.1), and its identifier.
pub(super) fn identity(packet: &[u8]) -> Option<(&[u8], u8)> {
    let p = Packet::parse(packet).ok()?;
    (p.code() == Code::Response && p.kind() == Some(Type::IDENTITY)).then(|| (p.data(), p.identifier()))
}

/// An EAP-Failure in answer to the response of this identifier.
pub(super) const fn failure(identifier: u8) -> [u8; 4] {
    [4, identifier, 0, 4]
}
