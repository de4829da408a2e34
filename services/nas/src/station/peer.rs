//! One attempt's EAP peer.

use super::Credentials;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{Instant, SecureRng, Work};

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Respond,
    Repeat,
    Success(Option<[u8; 64]>),
    Failure,
    Ignored,
}

#[derive(Debug)]
pub(super) struct Peer {
    identity: Vec<u8>,
    credentials: Credentials,
    done: bool,
}

impl Peer {
    pub(super) fn new(identity: Vec<u8>, credentials: Credentials, _rng: &mut SecureRng) -> Self {
        Self { identity, credentials, done: false }
    }
    pub(super) fn receive(
        &mut self,
        _now: Instant,
        packet: &[u8],
        _work: &mut VecDeque<Work>,
        out: &mut Vec<u8>,
    ) -> Step {
        match packet {
            [3, ..] if self.done => Step::Success(None),
            [4, ..] => Step::Failure,
            [1, id, _, _, 1, ..] => {
                out.extend_from_slice(&[2, *id]);
                out.extend_from_slice(&(5 + self.identity.len() as u16).to_be_bytes());
                out.push(1);
                out.extend_from_slice(&self.identity);
                Step::Respond
            }
            [1, id, _, _, 4, 16, c @ ..] => {
                let Credentials::Password(p) = &self.credentials;
                out.extend_from_slice(&[2, *id, 0, 22, 4, 16]);
                out.extend_from_slice(&usher_crypto::digest::md5(&[&[*id], p, &c[..16]]));
                self.done = true;
                Step::Respond
            }
            _ => Step::Ignored,
        }
    }
}
