//! The discovery stage of a concentrator (RFC 2516 §5).

use super::unauthenticated::{self, AccessLine};
use super::{
    ConcentratorEvent, ConcentratorPort, ExcessSessionPolicy, PppoeConcentrator, PppoeSession,
    PppoeSessionId, StationKey, SubscriberInfo,
};
use crate::ipv6::dhcp::link_layer_duid;
use crate::link::{EndReason, PppLink, PppLinkRole};
use crate::pppoe::cookie::CookieSecrets;
use crate::pppoe::{DiscoveryTags, MAX_PAYLOAD, PppoeCode, PppoeErrorTag, PppoeFrame};
use crate::work;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng};

/// Burst of a station's unmatched PADTs, after which PADTs without Host-Uniq are dropped. The limit regains one per
/// [`UNMATCHED_PADT_INTERVAL`]: guessing through half of all SESSION_IDs takes four days.
const UNMATCHED_PADT_BURST: u32 = 5;
const UNMATCHED_PADT_INTERVAL: Duration = Duration::from_secs(10);

/// The time after the start of a session in which a PADR with its Host-Uniq is taken for a retransmission, although
/// packets of the session have come. Hosts retransmit after 1, 3 and 7 s. A host that has restarted within this
/// time negotiates anew in the same session.
const REPEATED_REQUESTS: Duration = Duration::from_secs(10);

impl PppoeConcentrator {
    pub(super) fn handle_discovery(&mut self, now: Instant, own: ConcentratorPort, frame: PppoeFrame<'_>) {
        self.record_work(work::DISCOVERY);
        match frame.code {
            PppoeCode::PADI if frame.session == 0 => self.handle_padi(now, own, frame),
            PppoeCode::PADR if frame.session == 0 => self.handle_padr(now, own, frame),
            PppoeCode::PADT if frame.session != 0 => self.handle_padt(now, own, frame),
            _ => self.counters.unexpected += 1,
        }
    }

    /// Parses the tags of a request, which must have exactly one Service-Name (RFC 2516 §5.1, §5.3).
    fn parse_tags<'a>(&mut self, frame: &PppoeFrame<'a>) -> Option<(DiscoveryTags<'a>, &'a [u8])> {
        let Ok(tags) = DiscoveryTags::parse(frame.payload) else {
            self.counters.malformed += 1;
            return None;
        };
        let &[service] = &tags.services[..] else {
            self.counters.service_count += 1;
            return None;
        };
        Some((tags, service))
    }

    fn offers_service(&self, service: &[u8]) -> bool {
        let services = &self.config.services;
        services.is_empty() || service.is_empty() || services.iter().any(|name| name.as_bytes() == service)
    }

    fn handle_padi(&mut self, now: Instant, own: ConcentratorPort, frame: PppoeFrame<'_>) {
        let Some((tags, service)) = self.parse_tags(&frame) else { return };
        let name = self.config.name.clone();
        // RFC 2516, 5.2: no answer without the requested service.
        if tags.ac_name.is_some_and(|wanted| wanted != name.as_bytes()) || !self.offers_service(service) {
            self.counters.not_offered += 1;
            return;
        }
        let station = (own.port, frame.source);
        if !self.initiations_of.take_token(now, station, self.config.initiations_per_station) {
            self.counters.limited_station += 1;
            return;
        }
        // The rate is limited per circuit and per port, so that the hosts of one line cannot use up the rate of all.
        let line = self.access_line(own, &tags);
        let port = unauthenticated::circuit_line(own.port, None);
        let circuit =
            line == port || self.initiations.take_token(now, line, self.config.initiations_per_circuit);
        if !circuit || !self.initiations.take_token(now, port, self.config.initiations) {
            self.counters.limited_all += 1;
            return;
        }
        self.record_work(work::DIGEST);
        let Self { cookies, rng, .. } = self;
        let cookies = cookies.get_or_insert_with(|| CookieSecrets::new(rng, now));
        let cookie = cookies.make_cookie(now, rng, own.port, frame.source);
        let services = self.config.services.clone();
        let others = services.iter().map(|name| name.as_bytes()).filter(|name| *name != service);
        let offer = DiscoveryTags {
            // RFC 2516, 5.2: one AC-Name, the Service-Name of the PADI, and the others offered.
            services: core::iter::once(service).chain(others).collect(),
            ac_name: Some(name.as_bytes()),
            cookie: Some(&cookie),
            errors: Vec::new(),
            ..echoed_tags(own, &tags)
        };
        if self.send_discovery(own, frame.source, PppoeCode::PADO, 0, &offer) {
            self.counters.offers += 1;
        }
    }

    fn handle_padr(&mut self, now: Instant, own: ConcentratorPort, frame: PppoeFrame<'_>) {
        let Some((tags, service)) = self.parse_tags(&frame) else { return };
        let station = (own.port, frame.source);
        self.record_work(work::DIGEST);
        let Self { cookies, rng, .. } = self;
        let cookies = cookies.get_or_insert_with(|| CookieSecrets::new(rng, now));
        if !tags.cookie.is_some_and(|cookie| cookies.verify_cookie(now, rng, station, cookie)) {
            self.counters.bad_cookie += 1;
            return;
        }
        if !self.requests_of.take_token(now, station, self.config.requests_per_station) {
            self.counters.limited_requests += 1;
            return;
        }
        if !self.offers_service(service) {
            // RFC 2516, 5.4: the PADS refuses the service, with SESSION_ID 0.
            self.counters.no_service += 1;
            return self.send_pads_error(
                own,
                &frame,
                &tags,
                service,
                (PppoeErrorTag::ServiceName, b"no such service"),
            );
        }
        if let Some(id) = self.find_requested_session(now, station, &tags, service) {
            // The PADS was lost or late and the host retransmits its PADR, so it gets the same session again.
            self.counters.confirmed_again += 1;
            return self.send_pads(own, id);
        }
        if self.station_session_count(station) >= self.config.sessions_per_station {
            match (self.config.excess, self.oldest_station_session(station)) {
                (ExcessSessionPolicy::Replace, Some(oldest)) => {
                    self.counters.replaced += 1;
                    self.abort_session(oldest, EndReason::Replaced);
                }
                (_, oldest) => {
                    self.counters.full_station += 1;
                    // After a power loss, a host's dead session may take its place. A probe ends the oldest session if
                    // it is dead, and the host's next request succeeds.
                    if let Some(oldest) = oldest {
                        self.probe_session(now, oldest);
                    }
                    let why = (PppoeErrorTag::AcSystem, &b"too many sessions of this host"[..]);
                    return self.send_pads_error(own, &frame, &tags, service, why);
                }
            }
        }
        if self.sessions.len() >= self.config.sessions
            && let Some(oldest) = self.oldest_station_session(station)
        {
            // The concentrator is full. The station replaces its own session, so that it does not take another host's
            // place.
            self.counters.replaced += 1;
            self.abort_session(oldest, EndReason::Replaced);
        }
        let line = self.access_line(own, &tags);
        if self.outside.len() >= self.config.outside {
            let heard = |id| self.sessions.get(&id).is_some_and(|session| session.has_received);
            if let Some(id) = self.outside.eviction_candidate(line, heard) {
                self.abort_session(id, EndReason::CrowdedOut);
            }
        }
        let full = self.sessions.len() >= self.config.sessions || self.outside.len() >= self.config.outside;
        let free = if full { None } else { self.random_free_session_id() };
        let Some(id) = free else {
            self.counters.full += 1;
            return self.send_pads_error(
                own,
                &frame,
                &tags,
                service,
                (PppoeErrorTag::AcSystem, b"too many sessions"),
            );
        };
        self.start_session(now, own, (station, line), id, &tags, service);
    }

    /// Returns the access line of a host.
    fn access_line(&self, own: ConcentratorPort, tags: &DiscoveryTags<'_>) -> AccessLine {
        unauthenticated::circuit_line(own.port, tags.circuit_id.filter(|_| self.config.agent))
    }

    fn station_session_count(&self, station: StationKey) -> usize {
        self.stations.get(&station).map_or(0, Vec::len)
    }

    /// Returns the oldest session of a station.
    fn oldest_station_session(&self, station: StationKey) -> Option<u16> {
        let name = self.stations.get(&station)?.first()?;
        self.names.get(name).copied()
    }

    /// Probes the host of a session.
    fn probe_session(&mut self, now: Instant, id: u16) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.link.probe_link_peer(now);
            self.drain_link(id);
        }
    }

    /// Returns the station's session that it requested with these tags, if it has not sent a packet in it. With a
    /// Host-Uniq, packets may have come first: a busy network with several queues reorders them.
    fn find_requested_session(
        &self,
        now: Instant,
        station: StationKey,
        tags: &DiscoveryTags<'_>,
        service: &[u8],
    ) -> Option<u16> {
        let names = self.stations.get(&station)?;
        let mut ids = names.iter().filter_map(|name| self.names.get(name).copied());
        ids.find(|id| {
            self.sessions.get(id).is_some_and(|session| {
                let is_late = tags.host_uniq.is_some() && now < session.started_at + REPEATED_REQUESTS;
                (!session.has_received || is_late)
                    && session.host_uniq.as_deref() == tags.host_uniq
                    && session.relay_session_id.as_deref() == tags.relay_session_id
                    && session.service == service
            })
        })
    }

    /// Returns a random free SESSION_ID, neither 0 nor 0xffff (RFC 2516 §4).
    fn random_free_session_id(&mut self) -> Option<u16> {
        let first = self.rng.next_u32() as u16;
        let mut ids = (0..=u16::MAX).map(|n| first.wrapping_add(n));
        ids.find(|id| !matches!(*id, 0 | u16::MAX) && !self.sessions.contains_key(id))
    }

    fn start_session(
        &mut self,
        now: Instant,
        own: ConcentratorPort,
        (station, line): (StationKey, AccessLine),
        id: u16,
        tags: &DiscoveryTags<'_>,
        service: &[u8],
    ) {
        let name = PppoeSessionId(self.next);
        self.next += 1;
        let limit = own.mru_limit(tags.max_payload);
        let role = PppLinkRole::Authenticator {
            name: self.config.name.clone().into(),
            protocols: self.config.authentication.clone(),
            duid: link_layer_duid(own.address.0).into(),
        };
        let rng = SecureRng::from_seed(self.rng.random_array());
        let link = PppLink::new(role, self.config.link, limit, rng, now, now.to_wall_time(self.epoch));
        let believed = |id: Option<&[u8]>| id.filter(|_| self.config.agent).map(Vec::from);
        let subscriber = SubscriberInfo {
            port: own.port,
            address: station.1,
            number: id,
            service: service.into(),
            circuit_id: believed(tags.circuit_id),
            remote_id: believed(tags.remote_id),
        };
        let session = PppoeSession {
            name,
            station,
            line,
            link,
            host_uniq: tags.host_uniq.map(Vec::from),
            relay_session_id: tags.relay_session_id.map(Vec::from),
            service: service.into(),
            max_payload: tags.max_payload.filter(|_| limit > MAX_PAYLOAD),
            subscriber: subscriber.clone(),
            started_at: now,
            has_received: false,
            timer: None,
        };
        self.sessions.insert(id, session);
        self.names.insert(name, id);
        self.stations.entry(station).or_default().push(name);
        self.outside.insert(line, name, id);
        self.counters.sessions += 1;
        self.outputs.push_event(ConcentratorEvent::SessionStarted { session: name, subscriber });
        self.send_pads(own, id);
        self.drain_link(id);
    }

    /// Sends the PADS of a session (RFC 2516 §5.4).
    fn send_pads(&mut self, own: ConcentratorPort, id: u16) {
        let Some(session) = self.sessions.get(&id) else { return };
        let (service, host_uniq, relay, host, max_payload) = (
            session.service.clone(),
            session.host_uniq.clone(),
            session.relay_session_id.clone(),
            session.station.1,
            session.max_payload,
        );
        let tags = DiscoveryTags {
            services: [&service[..]].into(),
            ac_name: None,
            host_uniq: host_uniq.as_deref(),
            relay_session_id: relay.as_deref(),
            max_payload,
            ..DiscoveryTags::default()
        };
        self.send_discovery(own, host, PppoeCode::PADS, id, &tags);
    }

    /// Sends a PADS with an error tag and without a session.
    fn send_pads_error(
        &mut self,
        own: ConcentratorPort,
        frame: &PppoeFrame<'_>,
        tags: &DiscoveryTags<'_>,
        service: &[u8],
        why: (PppoeErrorTag, &[u8]),
    ) {
        let tags =
            DiscoveryTags { services: [service].into(), errors: [why].into(), ..echoed_tags(own, tags) };
        self.send_discovery(own, frame.source, PppoeCode::PADS, 0, &tags);
    }

    /// Handles a PADT (RFC 2516 §5.5). Only the session's station may end it.
    ///
    /// A PADT with another Host-Uniq than the session's is forged. A PADT need not repeat the Host-Uniq ("does not
    /// require any TAGs"). Without it, an attacker needs only the SESSION_ID (16 bits) and a MAC address that everyone
    /// on the Ethernet sees. Stations that guess are therefore ignored.
    fn handle_padt(&mut self, now: Instant, own: ConcentratorPort, frame: PppoeFrame<'_>) {
        let station = (own.port, frame.source);
        let Some(id) = self.look_up_session(own.port, &frame) else {
            return self.count_unmatched_padt(now, station);
        };
        let Ok(tags) = DiscoveryTags::parse(frame.payload) else {
            self.counters.malformed += 1;
            return;
        };
        let told = self.sessions.get(&id).and_then(|session| session.host_uniq.as_deref());
        if tags.host_uniq.is_some() && tags.host_uniq != told {
            self.counters.forged_padt += 1;
            return self.count_unmatched_padt(now, station);
        }
        if tags.host_uniq.is_none()
            && !self.unmatched_padts.has_bucket_token(
                now,
                station,
                UNMATCHED_PADT_INTERVAL,
                UNMATCHED_PADT_BURST,
            )
        {
            self.counters.guessed_padt += 1;
            return;
        }
        self.abort_session(id, EndReason::Padt);
    }

    /// Counts a PADT that matches no session of its station.
    fn count_unmatched_padt(&mut self, now: Instant, station: StationKey) {
        // If the bucket is already empty it stays empty, so the result does not matter.
        let _ = self.unmatched_padts.take_each(now, station, UNMATCHED_PADT_INTERVAL, UNMATCHED_PADT_BURST);
    }
}

/// Returns the tags of a host that its reply repeats (RFC 2516 appendix A, RFC 4638 §4).
fn echoed_tags<'a>(own: ConcentratorPort, tags: &DiscoveryTags<'a>) -> DiscoveryTags<'a> {
    let more = own.mru_limit(tags.max_payload) > MAX_PAYLOAD;
    DiscoveryTags {
        host_uniq: tags.host_uniq,
        relay_session_id: tags.relay_session_id,
        max_payload: tags.max_payload.filter(|_| more),
        ..DiscoveryTags::default()
    }
}
