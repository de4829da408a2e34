//! Logins: each proof of a host goes to the AAA server or the local users, and the verdict comes back.

use crate::api::AccessConcentratorEvent;
use crate::service::AccessConcentrator;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_access::{
    ChapResponse, LoginAnswer, LoginAttempt, LoginFailure, MsChapV2Response, SubscriberGrant,
    SubscriberPlace, TerminateCause, UserCredentials, is_identity_response,
};
use usher_core::{Instant, JobRequester};
use usher_ppp::auth::AuthenticationProof;
use usher_ppp::concentrator::{AuthenticationReply, ConcentratorCommand, PppoeSessionId, SubscriberInfo};
use usher_radius::attribute::{AttributeList, kind, vendor};

/// Framed-Protocol PPP (RFC 2865 §5.7).
pub(crate) const PPP: u32 = 1;

/// Returns the credentials of a proof.
fn user_credentials(proof: &AuthenticationProof) -> UserCredentials<'_> {
    match proof {
        AuthenticationProof::Pap(password) => UserCredentials::Pap(&password[..]),
        AuthenticationProof::Chap { identifier, challenge, response } => {
            UserCredentials::Chap(ChapResponse { identifier: *identifier, challenge, response: *response })
        }
        AuthenticationProof::MsChapV2 { identifier, challenge, peer_challenge, response } => {
            UserCredentials::MsChapV2(MsChapV2Response {
                identifier: *identifier,
                challenge: *challenge,
                peer_challenge: *peer_challenge,
                response: *response,
            })
        }
        AuthenticationProof::Eap(packet) => UserCredentials::Eap(packet),
    }
}

impl AccessConcentrator {
    /// Returns the place of a host in requests and records.
    fn place_of_host(&self, subscriber: &SubscriberInfo) -> SubscriberPlace {
        // RFC 3580, 3.21: the format of station addresses.
        let dashed = |address: [u8; 6]| {
            let octets: Vec<String> = address.iter().map(|octet| alloc::format!("{octet:02X}")).collect();
            octets.join("-")
        };
        let port = self.config.ppp.ports.iter().find(|port| port.port == subscriber.port);
        let mut attributes = AttributeList::new();
        attributes.push_u32(kind::FRAMED_PROTOCOL, PPP);
        for (number, id) in [
            (vendor::AGENT_CIRCUIT_ID, &subscriber.circuit_id),
            (vendor::AGENT_REMOTE_ID, &subscriber.remote_id),
        ] {
            // A line identifier too long for one attribute is left out.
            if let Some(id) = id {
                let _ = attributes.push_vendor(vendor::ADSL_FORUM, number, id);
            }
        }
        let n = usize::try_from(subscriber.port.0).unwrap_or(usize::MAX);
        SubscriberPlace {
            number: Some(subscriber.number.into()),
            port: self.config.ports.get(n).cloned().unwrap_or_default(),
            station: dashed(subscriber.address.0),
            called_station: Some(port.map(|port| dashed(port.address.0)).unwrap_or_default()),
            attributes,
        }
    }

    /// Handles a host's proof.
    pub(crate) fn authenticate_host(
        &mut self,
        now: Instant,
        (session, mtu): (PppoeSessionId, u16),
        user: &[u8],
        proof: &AuthenticationProof,
    ) {
        // A proof for a session that is running means that the host has renegotiated its link. Its earlier session
        // ends.
        if let Some(id) = self.current.get(&session).copied() {
            self.finish_session(now, id, TerminateCause::UserRequest, "renegotiated");
        }
        let Some(host) = self.attached.get(&session) else { return };
        let place = host.place.clone().unwrap_or_else(|| Arc::new(self.place_of_host(&host.subscriber)));
        let Some(host) = self.attached.get_mut(&session) else { return };
        let place = &*host.place.insert(place);
        // The origin of a login is its port, and its circuit if that is trusted or else its station.
        let SubscriberInfo { port, circuit_id, address, .. } = &host.subscriber;
        let station = circuit_id.is_none().then_some(address);
        let attempt = LoginAttempt {
            name: user,
            starts_login: !matches!(proof, AuthenticationProof::Eap(packet) if !is_identity_response(packet)),
            proof: user_credentials(proof),
            backend: self.config.judge,
            trusts_certificate_names: self.config.trusts_certificate_names,
            place,
            mtu: Some(mtu),
            origin: (port, circuit_id, station),
            requester: &JobRequester::default(),
        };
        self.subscribers.authenticate(now, session, &attempt);
    }

    /// Passes the reply to a proof on to the host.
    pub(crate) fn answer_login(&mut self, now: Instant, session: PppoeSessionId, answer: LoginAnswer) {
        let answer = match answer {
            LoginAnswer::Continue(packet) => AuthenticationReply::Continue(packet),
            LoginAnswer::Accept { grant, message, .. } => {
                return self.admit_user(now, session, grant, message);
            }
            LoginAnswer::Reject { user, why, message } => {
                self.report_failed_login(session, user, why);
                AuthenticationReply::Reject { message }
            }
            LoginAnswer::Unanswered { user, why } => {
                self.report_failed_login(session, user, why);
                AuthenticationReply::Unanswered
            }
        };
        self.send_ppp_command(now, ConcentratorCommand::Answer { session, answer });
    }

    fn report_failed_login(&mut self, session: PppoeSessionId, user: Vec<u8>, why: LoginFailure) {
        let Some(host) = self.attached.get(&session) else { return };
        let subscriber = host.subscriber.clone();
        self.outputs.push_event(AccessConcentratorEvent::LoginFailed { subscriber, user, why });
    }

    /// Admits a user, once the log has stored the session.
    fn admit_user(
        &mut self,
        now: Instant,
        session: PppoeSessionId,
        grant: Box<SubscriberGrant>,
        message: Vec<u8>,
    ) {
        if !self.attached.contains_key(&session) {
            return self.subscribers.abandon_grant(now, &grant, TerminateCause::UserError);
        }
        let Err((why, grant)) = self.open_session(now, session, grant, message) else { return };
        match why {
            LoginFailure::NoAddress => self.counters.addresses_exhausted += 1,
            LoginFailure::AddressInUse => self.counters.addresses_in_use += 1,
            LoginFailure::TooManySessions => self.counters.users_full += 1,
            _ => {}
        }
        // The server has accepted the session and counts it as open: end it there.
        self.subscribers.reject_grant(now, &grant);
        self.report_failed_login(session, grant.login, why);
        let answer = AuthenticationReply::Reject { message: Vec::new() };
        self.send_ppp_command(now, ConcentratorCommand::Answer { session, answer });
    }
}

/// Returns the reply that accepts a host.
pub(crate) fn accept_reply(
    message: Vec<u8>,
    assignment: usher_ppp::AddressAssignment,
) -> AuthenticationReply {
    AuthenticationReply::Accept { message, assignment: Box::new(assignment) }
}
