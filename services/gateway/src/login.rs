//! EAP logins of initiators: each packet goes to the AAA server or to the local users, and the reply comes back.

use crate::api::GatewayEvent;
use crate::initiator::InitiatorLogin;
use crate::service::IkeGateway;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_access::{
    AuthenticationBackend, LoginAnswer, LoginAttempt, LoginFailure, SubscriberGrant, TerminateCause,
    UserCredentials,
};
use usher_core::Instant;
use usher_core::address::host_of;
use usher_eap::packet::{EapPacket, EapType};
use usher_ike::machine::{self as ike, EapAnswer, IkeSaId};
use usher_ike::payload::Identification;

/// Returns the identity for a name of an AAA server or of EAP.
fn identity_from_name(name: &[u8]) -> Identification {
    match core::str::from_utf8(name) {
        Ok(text) => Identification::of_text(text),
        Err(_) => Identification { kind: usher_ike::code::IdType::ID_KEY_ID, data: name.to_vec() },
    }
}

/// Returns the identity of an accepted user. A tunnelled method does not authenticate the outer identity. Without a
/// name from the server, the result is unique to this IKE_SA.
fn accepted_user_identity(grant: &SubscriberGrant, sa: IkeSaId) -> Identification {
    if grant.is_nameless {
        let name = usher_access::fallback_user_name(&grant.user, &alloc::format!("IKE_SA {}", sa.0));
        return Identification { kind: usher_ike::code::IdType::ID_KEY_ID, data: name };
    }
    identity_from_name(&grant.user)
}

/// Returns the name of an EAP Identity response.
fn eap_identity(packet: &[u8]) -> Option<Vec<u8>> {
    let packet = EapPacket::parse(packet).ok()?;
    (packet.kind() == Some(EapType::IDENTITY)).then(|| packet.data().to_vec())
}

impl IkeGateway {
    /// Handles an EAP packet of an initiator.
    pub(crate) fn handle_eap(
        &mut self,
        now: Instant,
        (sa, identity, connection, remote): (IkeSaId, Identification, String, SocketAddr),
        packet: &[u8],
    ) {
        let peer = self.config.peers.iter().find(|peer| peer.connection.name == connection);
        let backend = peer.map_or(AuthenticationBackend::Aaa, |peer| peer.judge);
        let trusts_certificate_names = peer.is_some_and(|peer| peer.trusts_certificate_names);
        let login = self.logins.entry(sa).or_insert_with(|| {
            let name = eap_identity(packet).unwrap_or_default();
            InitiatorLogin { name, ..InitiatorLogin::new(identity, connection, remote) }
        });
        let attempt = LoginAttempt {
            name: &login.name,
            // An IKE_SA has one login: another identity is no new attempt.
            starts_login: false,
            // RFC 3579, 2.1: the packet is relayed, whatever its method.
            proof: UserCredentials::Eap(packet),
            backend,
            trusts_certificate_names,
            place: &login.place,
            mtu: None,
            origin: host_of(login.remote.ip()),
            requester: &login.job_requester(),
        };
        self.subscribers.authenticate(now, sa, &attempt);
    }

    /// Passes the reply to an EAP packet on to the initiator.
    pub(crate) fn answer_login(&mut self, now: Instant, sa: IkeSaId, answer: LoginAnswer) {
        let answer = match answer {
            LoginAnswer::Continue(packet) => EapAnswer::Continue(packet),
            LoginAnswer::Reject { why, message: packet, .. } => {
                self.report_failure(sa, why);
                EapAnswer::Reject { packet }
            }
            LoginAnswer::Unanswered { why, .. } => {
                self.report_failure(sa, why);
                EapAnswer::Unanswered
            }
            LoginAnswer::Accept { mut grant, message: packet, msk } => {
                self.counters.logins_accepted += 1;
                let identity = accepted_user_identity(&grant, sa);
                // The letter case of a name from a certificate does not distinguish local users, so such a user gets
                // the canonical name.
                let passwords = &self.subscribers.config().users.passwords;
                if grant.token.is_none() && !passwords.contains_key(&grant.user) {
                    grant.user = identity.comparison_octets().into_owned();
                }
                let Some(login) = self.logins.get_mut(&sa) else {
                    return self.subscribers.abandon_grant(now, &grant, TerminateCause::UserError);
                };
                login.grant = *grant;
                EapAnswer::Accept { packet, msk, identity }
            }
        };
        self.send_ike_command(now, ike::IkeCommand::Eap { sa, answer });
    }

    pub(crate) fn report_failure(&mut self, sa: IkeSaId, why: LoginFailure) {
        let Some(login) = self.logins.get(&sa) else { return };
        let (remote, connection) = (login.remote, login.connection.clone());
        // The login is for the EAP identity, so the IKE identity is reported only if there is none.
        let identity =
            if login.name.is_empty() { login.identity.clone() } else { identity_from_name(&login.name) };
        self.outputs.push_event(GatewayEvent::LoginFailed { remote, connection, identity, why });
    }

    /// Removes a login without a session and cancels its AAA request.
    pub(crate) fn drop_login(&mut self, now: Instant, sa: IkeSaId) {
        let was_pending = self.subscribers.abort_login(now, sa);
        if was_pending {
            self.report_failure(sa, LoginFailure::Unanswered);
        }
        let Some(login) = self.logins.remove(&sa) else { return };
        if !was_pending {
            self.subscribers.abandon_grant(now, &login.grant, TerminateCause::UserError);
        }
        for lease in login.leases {
            self.subscribers.release_lease(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_outside_a_tunnel_is_nobodys() {
        let grant = |is_nameless| SubscriberGrant { is_nameless, ..SubscriberGrant::for_local_user(b"ann") };
        let (ann, other) = (
            accepted_user_identity(&grant(true), IkeSaId(1)),
            accepted_user_identity(&grant(true), IkeSaId(2)),
        );
        assert!(ann != other && ann != identity_from_name(b"ann"), "{ann:?} {other:?}");
        assert_eq!(accepted_user_identity(&grant(false), IkeSaId(1)), identity_from_name(b"ann"));
    }
}
