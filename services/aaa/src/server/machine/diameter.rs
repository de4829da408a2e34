//! Diameter requests.

use super::AaaServer;
use crate::server::answer::{Asker, Verdict};
use crate::server::api::Event;
use crate::server::half_open::Source;
use crate::server::proof::Proof;
use crate::server::session::{Ask, Owner};
use usher_core::{Instant, Machine};
use usher_diameter::avp::{AvpView, Avps};
use usher_diameter::codes::{application, command};
use usher_diameter::eap::Der;
use usher_diameter::nasreq::Aar;
use usher_diameter::node::{self, PeerId};
use usher_diameter::{Fault, Message, ResultCode};
use usher_radius::attribute::Attributes;

/// Whether an AVP is one of RADIUS, RFC 6733, RFC 7155 or RFC 4072.
const fn is_known(code: u32) -> bool {
    matches!(
        code,
        1..=255
            | 257..=274
            | 276..=285
            | 287
            | 291..=299
            | 363..=366
            | 400..=408
            | 462..=465
            | 480
            | 483
            | 485
    )
}

/// Refuses a request with an AVP that must be understood and is not (RFC 6733 §4.1, §7.1.5).
fn understood(mut avps: Avps<'_>) -> Result<(), Fault> {
    let unknown = |a: &AvpView<'_>| a.mandatory() && (a.vendor != 0 || !is_known(a.code));
    match avps.find(unknown) {
        Some(avp) => Err(Fault::of(ResultCode::AVP_UNSUPPORTED, "unknown mandatory AVP", avp.to_owned())),
        None => Ok(()),
    }
}

impl AaaServer {
    pub(super) fn drain_diameter(&mut self, now: Instant) {
        while let Some(event) = self.diameter.as_mut().and_then(Machine::poll_event) {
            match event {
                node::Event::Request { token, peer, message } => {
                    self.diameter_asked(now, token, peer, message);
                }
                node::Event::PeerUp { peer } => {
                    self.events.push_back(Event::DiameterPeer { peer, up: true });
                }
                node::Event::PeerDown { peer } => {
                    self.events.push_back(Event::DiameterPeer { peer, up: false });
                }
                node::Event::Answer { token, result, avps } => {
                    self.diameter_answered(now, token, result, &avps);
                }
                node::Event::Failed { token, .. } => {
                    if let Some(passed) = self.outward.translated.remove(token) {
                        self.home_silent(now, passed);
                    }
                }
            }
        }
    }

    pub(super) fn diameter_request(
        &mut self,
        now: Instant,
        token: u64,
        peer: PeerId,
        message: &Message,
    ) -> Result<(), Fault> {
        let avps = message.avps.view();
        let (source, owner) = (Source::Peer(peer), Owner::Diameter);
        match (message.header.application, message.header.command) {
            (application::EAP, command::DIAMETER_EAP) => {
                let der = Der::parse(avps)?;
                let asker = Asker::Diameter(token, der.request_type);
                let ask = Ask { asker, source, owner, arrived: now, request: self.as_attributes(avps) };
                let Some(ask) = self.route_der(now, ask, &der) else { return Ok(()) };
                if let Err(fault) = understood(avps) {
                    self.recycle(ask.request);
                    return Err(fault);
                }
                match der.state.map(|state| self.shard.token(state)) {
                    None => self.begin_eap(now, ask, der.eap),
                    Some(token) => self.go_on(now, ask, token, der.eap),
                }
            }
            (application::NASREQ, command::AA) => {
                let aar = Aar::parse(avps)?;
                understood(avps)?;
                let asker = Asker::Diameter(token, aar.request_type);
                match aar.password {
                    Some(password) => {
                        let ask =
                            Ask { asker, source, owner, arrived: now, request: self.as_attributes(avps) };
                        let Some(ask) = self.route_aar(now, ask) else { return Ok(()) };
                        self.begin(now, ask, Proof::Pap(password.to_vec()));
                    }
                    None => {
                        self.counters.no_proof += 1;
                        self.answer(now, asker, Verdict::Reject { eap: None, reply: Attributes::new() });
                    }
                }
            }
            (_, command::ACCOUNTING) => {
                understood(avps)?;
                self.accounting_message(now, token, message)?;
            }
            _ => return Err(Fault::new(ResultCode::COMMAND_UNSUPPORTED, "not a request for admission")),
        }
        Ok(())
    }

    /// What a request says in AVPs that are RADIUS attributes (RFC 6733 §4.1), without what proves something.
    fn as_attributes(&mut self, avps: Avps<'_>) -> Attributes {
        const PROOFS: [u32; 2] = [2, 3];
        let mut attributes = self.attributes();
        for avp in avps.filter(|a| a.vendor == 0 && !PROOFS.contains(&a.code)) {
            if let Ok(kind @ 1..) = u8::try_from(avp.code) {
                // What is too long for an attribute is none that a check or a log could name.
                let _ = attributes.push_bytes(kind, avp.data);
            }
        }
        attributes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_diameter::avp::{AvpBuf, AvpId};
    use usher_diameter::dictionary::Dictionary;

    #[test]
    fn what_the_dictionary_defines_is_understood() {
        let dictionary = Dictionary::base();
        assert!(dictionary.avps().all(|avp| is_known(avp.code)));
        // The dictionary has what the base protocol and EAP use of RFC 7155; a server has to know the rest too.
        let beyond = |code: &u32| is_known(*code) && dictionary.avp(*code).is_none();
        assert_eq!((256..100_000).filter(beyond).collect::<Vec<_>>(), [401, 406, 407, 408]);
    }

    #[test]
    fn an_avp_that_must_be_understood_is() {
        let refused = |id: AvpId| {
            let mut avps = AvpBuf::new();
            avps.push(AvpId::must(1), b"ann").push(id, b"x");
            understood(avps.view()).err().map(|fault| (fault.code, fault.avp.map(|a| a.code)))
        };
        assert_eq!(refused(AvpId::must(65_000)), Some((ResultCode::AVP_UNSUPPORTED, Some(65_000))));
        assert_eq!((refused(AvpId::may(65_000)), refused(AvpId::must(462))), (None, None));
        let vendors = AvpId { vendor: 10_415, ..AvpId::must(1) };
        assert_eq!(refused(vendors), Some((ResultCode::AVP_UNSUPPORTED, Some(1))));
    }
}
