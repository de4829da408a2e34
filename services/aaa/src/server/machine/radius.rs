//! RADIUS requests.

use super::AaaServer;
use crate::server::answer::Asker;
use crate::server::half_open::Source;
use crate::server::proof::{BadProof, Proof};
use crate::server::reason::Reason;
use crate::server::session::{Ask, Owner, failure};
use crate::users::bypass;
use usher_core::Instant;
use usher_radius::attribute::kind;
use usher_radius::packet::Code;
use usher_radius::server::{Event, Request};

impl AaaServer {
    pub(super) fn drain_radius(&mut self, now: Instant) {
        while let Some(event) = self.radius.as_mut().and_then(|child| self.outputs.next_event(child)) {
            match event {
                Event::Request(request) => self.radius_request(now, request),
            }
        }
    }

    fn radius_request(&mut self, now: Instant, request: Request) {
        if let Some(request) = self.keep_or_hand_over(request) {
            self.radius_decide(now, request);
        }
    }

    pub(super) fn radius_decide(&mut self, now: Instant, request: Request) {
        let Some(request) = self.route(now, request) else { return };
        match request.code {
            Code::ACCESS_REQUEST => self.access_request(now, request),
            Code::ACCOUNTING_REQUEST => self.accounting_request(now, request),
            _ => {
                self.counters.unsupported += 1;
                self.discard(now, Asker::Radius(request.token));
                self.recycle(request.attributes);
            }
        }
    }

    fn access_request(&mut self, now: Instant, request: Request) {
        let asker = Asker::Radius(request.token);
        let password = request.user_password();
        let mut packet = core::mem::take(&mut self.packet);
        packet.clear();
        let is_eap = request.attributes.eap(&mut packet);
        let owner = Owner::Radius(request.client);
        let source = Source::Address(request.path.remote.ip());
        let ask = Ask { asker, source, owner, arrived: now, request: request.attributes };
        let of_passwords = [kind::USER_PASSWORD, kind::CHAP_PASSWORD];
        if is_eap && of_passwords.iter().any(|&k| ask.request.get(k).is_some()) {
            let failure = packet.get(1).map(|&identifier| failure(identifier));
            self.reject_at_once(now, ask, Reason::BadEap, failure.as_ref().map(|f| &f[..]));
        } else if is_eap {
            match ask.request.get(kind::STATE).map(|state| self.shard.token(state)) {
                None => self.begin_eap(now, ask, &packet),
                Some(token) => self.go_on(now, ask, token, &packet),
            }
        } else {
            let proof = match password {
                // One proof, or it is not said what counts (RFC 2865 §4.1, RFC 3579 §3.3).
                Ok(Some(_)) if ask.request.get(kind::CHAP_PASSWORD).is_some() => Err(BadProof),
                Ok(Some(password)) => Ok(Some(Proof::Pap(password))),
                Ok(None) => Proof::read(&ask.request, &request.request_authenticator),
                Err(_) => Err(BadProof),
            };
            let bypass = if self.config.mab { bypass(&ask.request) } else { None };
            match (proof, bypass) {
                (Ok(Some(Proof::Pap(password))), Some(address)) => {
                    self.begin(now, ask, Proof::Mab(address, Some(password)));
                }
                (Ok(None), Some(address)) => self.begin(now, ask, Proof::Mab(address, None)),
                (Ok(Some(proof)), _) => self.begin(now, ask, proof),
                (Ok(None), None) => self.reject_at_once(now, ask, Reason::NoProof, None),
                // RFC 2865 §5: what has a wrong length is rejected, not passed over; the NAS would take us for dead.
                (Err(_), _) => self.reject_at_once(now, ask, Reason::BadProof, None),
            }
        }
        self.packet = packet;
    }
}
