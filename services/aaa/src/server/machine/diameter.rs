//! Diameter requests.

use super::AaaServer;
use crate::server::answer::Asker;
use crate::server::api::Event;
use crate::server::half_open::Source;
use crate::server::proof::Proof;
use crate::server::reason::Reason;
use crate::server::session::{Ask, Owner};
use alloc::sync::Arc;
use usher_core::Instant;
use usher_diameter::avp::Avps;
use usher_diameter::codes::{application, command};
use usher_diameter::eap::Der;
use usher_diameter::nasreq::Aar;
use usher_diameter::node::{self, PeerId};
use usher_diameter::{Fault, Message, ResultCode};
use usher_radius::attribute::Attributes;

impl AaaServer {
    /// Whether anything was said.
    pub(super) fn drain_diameter(&mut self, now: Instant) -> bool {
        let mut heard = false;
        while let Some(event) = self.diameter.as_mut().and_then(|child| self.outputs.next_event(child)) {
            heard = true;
            match event {
                node::Event::Request { token, peer, origin, message } => {
                    self.diameter_asked(now, token, peer, origin, message);
                }
                node::Event::PeerUp { peer } => {
                    self.outputs.event(Event::DiameterPeer { peer, up: true });
                }
                node::Event::PeerDown { peer } => {
                    self.outputs.event(Event::DiameterPeer { peer, up: false });
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
        heard
    }

    pub(super) fn diameter_request(
        &mut self,
        now: Instant,
        token: u64,
        peer: PeerId,
        origin: Arc<str>,
        message: &Message,
    ) -> Result<(), Fault> {
        let avps = message.avps.view();
        if let Some(dictionary) = &self.dictionary {
            dictionary.check_request(message.header, avps).inspect_err(|_| {
                if message.header.command == command::ACCOUNTING {
                    self.counters.accounting += 1;
                    self.counters.bad_accounting += 1;
                }
            })?;
        }
        let source = Source::Peer(peer);
        match (message.header.application, message.header.command) {
            (application::EAP, command::DIAMETER_EAP) => {
                let der = Der::parse(avps)?;
                let asker = Asker::Diameter(token, der.request_type);
                let (owner, request) = (Owner::Diameter(origin), self.as_attributes(avps));
                let ask = Ask { asker, source, owner, arrived: now, request };
                let Some(ask) = self.route_der(now, ask, &der) else { return Ok(()) };
                match der.state.map(|state| self.shard.token(state)) {
                    None => self.begin_eap(now, ask, der.eap),
                    Some(token) => self.go_on(now, ask, token, der.eap),
                }
            }
            (application::NASREQ, command::AA) => {
                let aar = Aar::parse(avps)?;
                let asker = Asker::Diameter(token, aar.request_type);
                let pap = aar.password.map(|password| Proof::Pap(password.into()));
                let (owner, request) = (Owner::Diameter(origin), self.as_attributes(avps));
                let ask = Ask { asker, source, owner, arrived: now, request };
                match pap.or_else(|| aar.chap.as_ref().map(Proof::chap)) {
                    Some(proof) => {
                        let Some(ask) = self.route_aar(now, ask) else { return Ok(()) };
                        self.begin(now, ask, proof);
                    }
                    None => self.reject_at_once(now, ask, Reason::NoProof, None),
                }
            }
            (_, command::ACCOUNTING) => self.accounting_message(now, token, &origin, message)?,
            // As a server we keep no session of whom we let in (Auth-Session-State); as a translator, none of whom a home
            // server let in.
            (_, command::SESSION_TERMINATION | command::ABORT_SESSION | command::RE_AUTH) => {
                return Err(Fault::new(ResultCode::UNKNOWN_SESSION_ID, "no session is kept here"));
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
