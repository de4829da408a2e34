//! One unfinished session, and the EAP back end's part in it.

use super::answer::Asker;
use super::{Config, Reason};
use crate::users::{Method, User};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Instant, SecureRng, Work};

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
    /// The EAP-Response/Identity, with which the EAP server will begin.
    Eap(Vec<u8>),
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The identity was asked for under this identifier.
    Identity { identifier: u8 },
    /// The user is being looked up.
    Looking(Proof),
    /// A method is under way.
    Eap(Box<Backend>),
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) owner: Owner,
    /// The request that waits for its answer.
    pub(super) asker: Option<Asker>,
    /// What makes the session's State unguessable.
    pub(super) nonce: u64,
    pub(super) name: Vec<u8>,
    pub(super) mtu: Option<u32>,
    pub(super) user: Option<Arc<User>>,
    pub(super) stage: Stage,
}

impl Session {
    pub(super) fn new(
        owner: Owner,
        asker: Asker,
        nonce: u64,
        name: &[u8],
        mtu: Option<u32>,
        stage: Stage,
    ) -> Self {
        Self { owner, asker: Some(asker), nonce, name: name.to_vec(), mtu, user: None, stage }
    }
}

/// Where a conversation stands after a packet.
#[derive(Debug)]
pub(super) enum Step {
    Request,
    Success(Method, Option<Msk>),
    Failure(Reason),
    Ignored,
}

#[derive(Debug)]
pub(super) struct Backend {
    password: Vec<u8>,
    challenge: [u8; 16],
    identifier: Option<u8>,
}

impl Backend {
    pub(super) fn new(
        _config: &Config,
        user: &User,
        _mtu: Option<u32>,
        rng: &mut SecureRng,
    ) -> Option<Box<Self>> {
        user.may_use(Method::EapMd5).then(|| {
            Box::new(Self {
                password: user.password.clone().unwrap_or_default(),
                challenge: rng.array(),
                identifier: None,
            })
        })
    }
    pub(super) fn receive(
        &mut self,
        _now: Instant,
        packet: &[u8],
        _rng: &mut SecureRng,
        work: &mut VecDeque<Work>,
        out: &mut Vec<u8>,
    ) -> Step {
        match self.identifier {
            None => {
                let id = packet[1].wrapping_add(1);
                self.identifier = Some(id);
                out.extend_from_slice(&[1, id, 0, 22, 4, 16]);
                out.extend_from_slice(&self.challenge);
                Step::Request
            }
            Some(id) => {
                if packet.len() != 22 || packet[1] != id {
                    return Step::Ignored;
                }
                work.push_back(Work { label: "eap.md5", units: 1 });
                if usher_crypto::digest::md5(&[&[id], &self.password, &self.challenge]) == packet[6..] {
                    out.extend_from_slice(&[3, id, 0, 4]);
                    Step::Success(Method::EapMd5, None)
                } else {
                    Step::Failure(Reason::WrongCredentials)
                }
            }
        }
    }
}

/// The identity that an EAP-Response/Identity gives (RFC 3748 §5.1).
pub(super) fn identity(packet: &[u8]) -> Option<&[u8]> {
    match packet {
        [2, _, _, _, 1, name @ ..] => Some(name),
        _ => None,
    }
}
/// An EAP-Request/Identity.
pub(super) fn identity_request(identifier: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[1, identifier, 0, 5, 1]);
}
/// An EAP-Failure in answer to the response of this identifier.
pub(super) fn failure(identifier: u8) -> [u8; 4] {
    [4, identifier, 0, 4]
}
