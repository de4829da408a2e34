//! Whose a message is, where many users' share a way.

use super::PacketFlight;
use super::name::{MessageLabel, MessageOwner};
use std::collections::HashSet;

/// The user whose messages are followed, and what leads to them.
#[derive(Debug, Default)]
pub(super) struct FollowedUser {
    user: Option<Vec<u8>>,
    /// RADIUS requests of the user that wait for an answer: from, to, identifier.
    requests: HashSet<(usize, usize, u8)>,
    /// Diameter sessions of the user.
    sessions: HashSet<Vec<u8>>,
    /// Diameter requests of the user: from, to, hop-by-hop identifier.
    hops: HashSet<(usize, usize, u32)>,
}

impl FollowedUser {
    /// Whether a message is the followed user's, or of nobody in particular. The first user that is named is followed.
    pub(super) fn accepts_message(&mut self, named: &MessageLabel, flight: &PacketFlight) -> bool {
        match &named.owner {
            MessageOwner::Data | MessageOwner::Peers => true,
            MessageOwner::User(user) => self.is_followed(user),
            MessageOwner::Radius { request: true, identifier, user } => {
                let ours = user.as_deref().is_none_or(|user| self.is_followed(user));
                let key = (flight.from, flight.to, *identifier);
                // An identifier may be another user's next.
                if ours {
                    self.requests.insert(key)
                } else {
                    self.requests.remove(&key)
                };
                ours
            }
            MessageOwner::Radius { identifier, .. } => {
                self.requests.contains(&(flight.to, flight.from, *identifier))
            }
            MessageOwner::Diameter { request: true, hop, session, user } => {
                let known = session.as_ref().is_some_and(|session| self.sessions.contains(session));
                let ours = known || user.as_deref().is_some_and(|user| self.is_followed(user));
                if ours {
                    self.hops.insert((flight.from, flight.to, *hop));
                    self.sessions.extend(session.clone());
                }
                ours
            }
            MessageOwner::Diameter { hop, .. } => self.hops.contains(&(flight.to, flight.from, *hop)),
        }
    }

    fn is_followed(&mut self, user: &[u8]) -> bool {
        self.user.get_or_insert_with(|| user.to_vec()) == user
    }
}
