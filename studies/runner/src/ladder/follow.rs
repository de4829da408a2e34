//! Selects the messages of one user where many users share a link.

use super::PacketFlight;
use super::name::{MessageLabel, MessageOwner};
use std::collections::HashSet;

/// The followed user, and the identifiers that lead to the user's messages.
#[derive(Debug, Default)]
pub(super) struct UserMessageFilter {
    user: Option<Vec<u8>>,
    /// The user's RADIUS requests without a reply: from, to, identifier.
    requests: HashSet<(usize, usize, u8)>,
    /// The user's Diameter sessions.
    sessions: HashSet<Vec<u8>>,
    /// The user's Diameter requests: from, to, hop-by-hop identifier.
    hops: HashSet<(usize, usize, u32)>,
}

impl UserMessageFilter {
    /// True if a message belongs to the followed user or to no particular user. The first named user is followed.
    pub(super) fn accepts_message(&mut self, named: &MessageLabel, flight: &PacketFlight) -> bool {
        match &named.owner {
            MessageOwner::Data | MessageOwner::Peers => true,
            MessageOwner::User(user) => self.matches_followed_user(user),
            MessageOwner::Radius { request: true, identifier, user } => {
                let ours = user.as_deref().is_none_or(|user| self.matches_followed_user(user));
                let key = (flight.from, flight.to, *identifier);
                // Forget the identifier when another user's request uses it, so that the response to that request is
                // not followed.
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
                let ours = known || user.as_deref().is_some_and(|user| self.matches_followed_user(user));
                if ours {
                    self.hops.insert((flight.from, flight.to, *hop));
                    self.sessions.extend(session.clone());
                }
                ours
            }
            MessageOwner::Diameter { hop, .. } => self.hops.contains(&(flight.to, flight.from, *hop)),
        }
    }

    fn matches_followed_user(&mut self, user: &[u8]) -> bool {
        self.user.get_or_insert_with(|| user.to_vec()) == user
    }
}
