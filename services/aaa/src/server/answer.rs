//! Verdicts, written in the terms of the protocol that asked.

use crate::users::User;
use alloc::sync::Arc;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::Code;

/// Octets of the State attribute that names a session: its token, and a number that nobody can guess.
pub(super) const STATE_LEN: usize = 16;

/// What a session's State attribute says.
pub(super) fn write_state(token: u64, nonce: u64) -> [u8; STATE_LEN] {
    let mut state = [0; STATE_LEN];
    state[..8].copy_from_slice(&token.to_be_bytes());
    state[8..].copy_from_slice(&nonce.to_be_bytes());
    state
}

/// Token and nonce of a State attribute of ours.
pub(super) fn read_state(state: &[u8]) -> Option<(u64, u64)> {
    let state: &[u8; STATE_LEN] = state.try_into().ok()?;
    let (token, nonce) = state.split_at(8);
    let number = |half: &[u8]| half.iter().fold(0, |n, &b| n << 8 | u64::from(b));
    Some((number(token), number(nonce)))
}

/// A request that waits for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// The RADIUS server's token.
    Radius(u64),
}

/// What a request is answered.
#[derive(Debug)]
pub(super) enum Verdict<'a> {
    /// Go on: an EAP request, and the session it belongs to.
    Challenge { eap: &'a [u8], state: [u8; STATE_LEN] },
    /// Welcome.
    Accept { eap: Option<&'a [u8]>, msk: Option<&'a [u8; 64]>, user: &'a Arc<User> },
    /// Go away.
    Reject { eap: Option<&'a [u8]> },
}

/// Fills the reply's list and names its code. Session-Timeout in a challenge tells the NAS how long to
/// wait for the peer (RFC 3579 §2.1 leaves it to the server).
pub(super) fn radius(verdict: &Verdict<'_>, a: &mut Attributes) -> Code {
    a.clear();
    match *verdict {
        Verdict::Challenge { eap, ref state } => {
            a.push_eap(eap);
            let fits = a.push_bytes(kind::STATE, state);
            debug_assert!(fits.is_ok(), "16 octets fit every attribute");
            Code::ACCESS_CHALLENGE
        }
        Verdict::Accept { eap, msk, user } => {
            a.extend(&user.reply);
            if let Some(eap) = eap {
                a.push_eap(eap);
            }
            if let Some(msk) = msk {
                a.push_msk(msk);
            }
            Code::ACCESS_ACCEPT
        }
        Verdict::Reject { eap } => {
            if let Some(eap) = eap {
                a.push_eap(eap);
            }
            Code::ACCESS_REJECT
        }
    }
}
