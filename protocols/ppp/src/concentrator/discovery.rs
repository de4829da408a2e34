//! The discovery stage of a concentrator (RFC 2516 §5).

use super::outside::{self, Line};
use super::{Concentrator, ConcentratorEvent, Excess, Port, Session, SessionId, Station, Subscriber};
use crate::ipv6::dhcp::duid;
use crate::link::{EndReason, Link, Role};
use crate::pppoe::cookie::Cookies;
use crate::pppoe::{Code, Discovery, ErrorTag, Frame, MAX_PAYLOAD};
use crate::work;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng};

/// PADT of a station that may name no session of it before those without Host-Uniq are not taken; one more is forgiven `GUESS_EACH` time:
/// to go through half of the numbers takes four days.
const GUESSES: u32 = 5;
const GUESS_EACH: Duration = Duration::from_secs(10);

impl Concentrator {
    pub(super) fn discovery(&mut self, now: Instant, own: Port, frame: Frame<'_>) {
        self.work(work::DISCOVERY);
        match frame.code {
            Code::PADI if frame.session == 0 => self.initiation(now, own, frame),
            Code::PADR if frame.session == 0 => self.request(now, own, frame),
            Code::PADT if frame.session != 0 => self.terminated(now, own, frame),
            _ => self.counters.unexpected += 1,
        }
    }

    /// The tags of a request for exactly one service (RFC 2516 §5.1, §5.3).
    fn tags<'a>(&mut self, frame: &Frame<'a>) -> Option<(Discovery<'a>, &'a [u8])> {
        let Ok(tags) = Discovery::parse(frame.payload) else {
            self.counters.malformed += 1;
            return None;
        };
        let &[service] = &tags.services[..] else {
            self.counters.service_count += 1;
            return None;
        };
        Some((tags, service))
    }

    fn offers(&self, service: &[u8]) -> bool {
        let services = &self.config.services;
        services.is_empty() || service.is_empty() || services.iter().any(|name| name.as_bytes() == service)
    }

    fn initiation(&mut self, now: Instant, own: Port, frame: Frame<'_>) {
        let Some((tags, service)) = self.tags(&frame) else { return };
        let name = self.config.name.clone();
        if tags.ac_name.is_some_and(|wanted| wanted != name.as_bytes()) || !self.offers(service) {
            self.counters.not_offered += 1;
            return;
        }
        let station = (own.port, frame.source);
        if !self.initiations_of.take(now, station, self.config.initiations_per_station) {
            self.counters.limited_station += 1;
            return;
        }
        // A circuit's hosts leave the others of its port their share, as those of a port leave it to others.
        let line = self.line(own, &tags);
        let port = outside::line(own.port, None);
        let circuit = line == port || self.initiations.take(now, line, self.config.initiations_per_circuit);
        if !circuit || !self.initiations.take(now, port, self.config.initiations) {
            self.counters.limited_all += 1;
            return;
        }
        self.work(work::DIGEST);
        let Self { cookies, rng, .. } = self;
        let cookies = cookies.get_or_insert_with(|| Cookies::new(rng, now));
        let cookie = cookies.make(now, rng, own.port, frame.source);
        let services = self.config.services.clone();
        let others = services.iter().map(|name| name.as_bytes()).filter(|name| *name != service);
        let offer = Discovery {
            services: core::iter::once(service).chain(others).collect(),
            ac_name: Some(name.as_bytes()),
            cookie: Some(&cookie),
            errors: Vec::new(),
            ..answer(own, &tags)
        };
        if self.discover(own, frame.source, Code::PADO, 0, &offer) {
            self.counters.offers += 1;
        }
    }

    fn request(&mut self, now: Instant, own: Port, frame: Frame<'_>) {
        let Some((tags, service)) = self.tags(&frame) else { return };
        let station = (own.port, frame.source);
        self.work(work::DIGEST);
        let Self { cookies, rng, .. } = self;
        let cookies = cookies.get_or_insert_with(|| Cookies::new(rng, now));
        if !tags.cookie.is_some_and(|cookie| cookies.holds(now, rng, station, cookie)) {
            self.counters.bad_cookie += 1;
            return;
        }
        if !self.requests_of.take(now, station, self.config.requests_per_station) {
            self.counters.limited_requests += 1;
            return;
        }
        if !self.offers(service) {
            self.counters.no_service += 1;
            return self.refuse(own, &frame, &tags, service, (ErrorTag::ServiceName, b"no such service"));
        }
        if let Some(id) = self.unheard(station, &tags, service) {
            // Its PADS was lost: the host asks again for the same session.
            self.counters.confirmed_again += 1;
            return self.confirm(own, id);
        }
        if self.sessions_of(station) >= self.config.sessions_per_station {
            match (self.config.excess, self.oldest_of(station)) {
                (Excess::Replace, Some(oldest)) => {
                    self.counters.replaced += 1;
                    self.cut(oldest, EndReason::Replaced);
                }
                (_, oldest) => {
                    self.counters.full_station += 1;
                    // Where it has lost its power, and none is left of the sessions before, it is in when it asks again.
                    if let Some(oldest) = oldest {
                        self.probe(now, oldest);
                    }
                    let why = (ErrorTag::AcSystem, &b"too many sessions of this host"[..]);
                    return self.refuse(own, &frame, &tags, service, why);
                }
            }
        }
        if self.sessions.len() >= self.config.sessions
            && let Some(oldest) = self.oldest_of(station)
        {
            // Nobody else has less for that.
            self.counters.replaced += 1;
            self.cut(oldest, EndReason::Replaced);
        }
        let line = self.line(own, &tags);
        if self.outside.len() >= self.config.outside {
            let heard = |id| self.sessions.get(&id).is_some_and(|session| session.heard);
            if let Some(id) = self.outside.victim(line, heard) {
                self.cut(id, EndReason::CrowdedOut);
            }
        }
        let full = self.sessions.len() >= self.config.sessions || self.outside.len() >= self.config.outside;
        let free = if full { None } else { self.free_number() };
        let Some(id) = free else {
            self.counters.full += 1;
            return self.refuse(own, &frame, &tags, service, (ErrorTag::AcSystem, b"too many sessions"));
        };
        self.begin(now, own, (station, line), id, &tags, service);
    }

    /// At which line a host is.
    fn line(&self, own: Port, tags: &Discovery<'_>) -> Line {
        outside::line(own.port, tags.circuit_id.filter(|_| self.config.agent))
    }

    fn sessions_of(&self, station: Station) -> usize {
        self.stations.get(&station).map_or(0, Vec::len)
    }

    /// The session of a station that has been there for longest.
    fn oldest_of(&self, station: Station) -> Option<u16> {
        let name = self.stations.get(&station)?.first()?;
        self.names.get(name).copied()
    }

    /// Asks a session's host whether it is there.
    fn probe(&mut self, now: Instant, id: u16) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.link.probe(now);
            self.settle(id);
        }
    }

    /// The session of a station that asked for it with these tags and has not been heard in it.
    fn unheard(&self, station: Station, tags: &Discovery<'_>, service: &[u8]) -> Option<u16> {
        let names = self.stations.get(&station)?;
        let mut ids = names.iter().filter_map(|name| self.names.get(name).copied());
        ids.find(|id| {
            self.sessions.get(id).is_some_and(|session| {
                !session.heard
                    && session.host_uniq.as_deref() == tags.host_uniq
                    && session.relay_session_id.as_deref() == tags.relay_session_id
                    && session.service == service
            })
        })
    }

    /// A SESSION_ID that nobody has, and that nobody can foretell: neither 0 nor 0xffff (RFC 2516 §4).
    fn free_number(&mut self) -> Option<u16> {
        let first = self.rng.next_u32() as u16;
        let mut ids = (0..=u16::MAX).map(|n| first.wrapping_add(n));
        ids.find(|id| !matches!(*id, 0 | u16::MAX) && !self.sessions.contains_key(id))
    }

    fn begin(
        &mut self,
        now: Instant,
        own: Port,
        (station, line): (Station, Line),
        id: u16,
        tags: &Discovery<'_>,
        service: &[u8],
    ) {
        let name = SessionId(self.next);
        self.next += 1;
        let limit = own.limit(tags.max_payload);
        let role = Role::Authenticator {
            name: self.config.name.clone().into(),
            protocols: self.config.authentication.clone(),
            duid: duid(own.address.0).into(),
        };
        let rng = SecureRng::from_seed(self.rng.array());
        let link = Link::new(role, self.config.link, limit, rng, now, now.wall(self.epoch));
        let believed = |id: Option<&[u8]>| id.filter(|_| self.config.agent).map(Vec::from);
        let subscriber = Subscriber {
            port: own.port,
            address: station.1,
            number: id,
            service: service.into(),
            circuit_id: believed(tags.circuit_id),
            remote_id: believed(tags.remote_id),
        };
        let session = Session {
            name,
            at: station,
            line,
            link,
            host_uniq: tags.host_uniq.map(Vec::from),
            relay_session_id: tags.relay_session_id.map(Vec::from),
            service: service.into(),
            max_payload: tags.max_payload.filter(|_| limit > MAX_PAYLOAD),
            subscriber: subscriber.clone(),
            heard: false,
            timer: None,
        };
        self.sessions.insert(id, session);
        self.names.insert(name, id);
        self.stations.entry(station).or_default().push(name);
        self.outside.insert(line, name, id);
        self.counters.sessions += 1;
        self.outputs.event(ConcentratorEvent::Began { session: name, subscriber });
        self.confirm(own, id);
        self.settle(id);
    }

    /// PADS of a session (RFC 2516 §5.4).
    fn confirm(&mut self, own: Port, id: u16) {
        let Some(session) = self.sessions.get(&id) else { return };
        let (service, host_uniq, relay, host, max_payload) = (
            session.service.clone(),
            session.host_uniq.clone(),
            session.relay_session_id.clone(),
            session.at.1,
            session.max_payload,
        );
        let tags = Discovery {
            services: [&service[..]].into(),
            ac_name: None,
            host_uniq: host_uniq.as_deref(),
            relay_session_id: relay.as_deref(),
            max_payload,
            ..Discovery::default()
        };
        self.discover(own, host, Code::PADS, id, &tags);
    }

    /// PADS without a session, which says why.
    fn refuse(
        &mut self,
        own: Port,
        frame: &Frame<'_>,
        tags: &Discovery<'_>,
        service: &[u8],
        why: (ErrorTag, &[u8]),
    ) {
        let tags = Discovery { services: [service].into(), errors: [why].into(), ..answer(own, tags) };
        self.discover(own, frame.source, Code::PADS, 0, &tags);
    }

    /// PADT (RFC 2516 §5.5). Only the station that has the session may end it; one that had told a Host-Uniq and shows another
    /// is somebody else. A PADT need not repeat it ("does not require any TAGs"): then all that it has to know is a number of 16 bits
    /// and an address that everybody on the Ethernet sees, and whoever guesses is not believed.
    fn terminated(&mut self, now: Instant, own: Port, frame: Frame<'_>) {
        let station = (own.port, frame.source);
        let Some(id) = self.owned(own.port, &frame) else { return self.guessed(now, station) };
        let Ok(tags) = Discovery::parse(frame.payload) else {
            self.counters.malformed += 1;
            return;
        };
        let told = self.sessions.get(&id).and_then(|session| session.host_uniq.as_deref());
        if tags.host_uniq.is_some() && tags.host_uniq != told {
            self.counters.forged_padt += 1;
            return self.guessed(now, station);
        }
        if tags.host_uniq.is_none() && !self.guesses_of.has_each(now, station, GUESS_EACH, GUESSES) {
            self.counters.guessed_padt += 1;
            return;
        }
        self.cut(id, EndReason::Padt);
    }

    /// A PADT was of no session of its station.
    fn guessed(&mut self, now: Instant, station: Station) {
        // What is beyond the rate is no worse.
        let _ = self.guesses_of.take_each(now, station, GUESS_EACH, GUESSES);
    }
}

/// What of a host's tags stands in the answer to it as it came.
fn answer<'a>(own: Port, tags: &Discovery<'a>) -> Discovery<'a> {
    let more = own.limit(tags.max_payload) > MAX_PAYLOAD;
    Discovery {
        host_uniq: tags.host_uniq,
        relay_session_id: tags.relay_session_id,
        max_payload: tags.max_payload.filter(|_| more),
        ..Discovery::default()
    }
}
