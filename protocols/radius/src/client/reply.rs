//! Replies and timeouts of requests.

use super::identifier::AllocatedIdentifier;
use super::machine::{ClientTimer, GroupPreferredServer, PendingRequest, RadiusClient, canonical_address};
use super::{RadiusClientEvent, RadiusReply, ServerTransport};
use crate::attribute::kind;
use crate::auth::{MessageAuthenticator, check_reply};
use crate::packet::{HEADER_LEN, PacketCode, RadiusPacket};
use usher_core::{DatagramPath, Instant};

/// The cause of a retransmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RetransmitCause {
    /// Its retransmission time has expired.
    TimerExpired,
    /// The client leaves its server: the request moves to another if possible.
    Left,
    /// Its server had all its transmissions: the request moves to another, or ends.
    ServerExhausted,
}

/// The verdict of a reply on its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReplyVerdict {
    /// A plausible server: valid, or an error that a server could cause.
    Fine,
    /// The sender does not know the secret.
    Foreign,
}

impl RadiusClient {
    pub(super) fn receive_datagram(&mut self, now: Instant, path: DatagramPath, data: &[u8]) {
        self.work.count_reply_work();
        let Ok(reply) = RadiusPacket::parse(data) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(servers) = self.by_address.get(&canonical_address(path.remote)) else {
            self.counters.wrong_source += 1;
            return;
        };
        let socket = path.socket.n;
        let found = servers.iter().find_map(|&server| {
            (self.server_transport(server) == ServerTransport::Udp).then_some(())?;
            self.pending_index(AllocatedIdentifier { server, socket, identifier: reply.identifier() })
        });
        match found {
            Some(index) => {
                self.process_reply(now, index, &reply);
            }
            // RFC 2865, 4.2; RFC 5080, 2.2.2, 2.10: a reply to no pending request is dropped.
            None => self.counters.unknown_identifier += 1,
        }
    }

    /// Returns the index of the request that holds a slot.
    pub(super) fn pending_index(&self, slot: AllocatedIdentifier) -> Option<u32> {
        let index = self.by_slot.get(&slot.lookup_key()).copied()?;
        let p = self.pending.get(index as usize)?.as_ref()?;
        (p.slot == slot).then_some(index)
    }

    /// Handles a reply to the request at an index.
    pub(super) fn process_reply(
        &mut self,
        now: Instant,
        index: u32,
        reply: &RadiusPacket<'_>,
    ) -> ReplyVerdict {
        let Some(p) = self.pending.get(index as usize).and_then(Option::as_ref) else {
            return ReplyVerdict::Fine;
        };
        let server = &self.config.servers[usize::from(p.slot.server)];
        let request = PacketCode(p.bytes[0]);
        let mut request_authenticator = [0; 16];
        request_authenticator.copy_from_slice(&p.bytes[4..HEADER_LEN]);
        // RFC 2865, 4.2, 4.4; RFC 5176, 2.3; RFC 5997, 4.1: a reply of another code is dropped.
        if !reply.code().is_reply_code_for(request) {
            self.counters.wrong_code += 1;
            return ReplyVerdict::Fine;
        }
        let (genuine, message_authenticator) = check_reply(reply, &request_authenticator, &server.secret);
        // RFC 2865, 2.3; RFC 2866, 3; RFC 5997, 4.1: a wrong Response Authenticator drops the reply.
        if !genuine {
            self.counters.bad_authenticator += 1;
            return ReplyVerdict::Foreign;
        }
        match message_authenticator {
            MessageAuthenticator::Good => {}
            // RFC 2869, 5.14; RFC 3579, 3.2; RFC 5176, 3.4: a wrong Message-Authenticator drops the reply.
            MessageAuthenticator::Bad => {
                self.counters.bad_message_authenticator += 1;
                return ReplyVerdict::Foreign;
            }
            MessageAuthenticator::Absent => {
                let policy = request == PacketCode::ACCESS_REQUEST && server.require_message_authenticator;
                // RFC 2869, 5.13; RFC 3579, 3.1: EAP-Message needs a Message-Authenticator.
                if policy || reply.get(kind::EAP_MESSAGE).is_some() {
                    self.counters.missing_message_authenticator += 1;
                    return ReplyVerdict::Fine;
                }
            }
        }
        let dynamic = matches!(request, PacketCode::COA_REQUEST | PacketCode::DISCONNECT_REQUEST);
        let freshness = self.config.freshness.filter(|_| dynamic);
        // RFC 5176, 6.3: a reply with an old Event-Timestamp is dropped.
        if freshness.and_then(|f| f.is_timestamp_in_window(now.to_wall_time(self.epoch), reply))
            == Some(false)
        {
            self.counters.stale += 1;
            return ReplyVerdict::Fine;
        }
        let (secret, repeated) = (server.secret.clone(), p.tries > 1);
        let waited = now.duration_since(p.start);
        let Some(p) = self.release_request(now, index, repeated) else { return ReplyVerdict::Fine };
        self.record_server_reply(now, p.slot, p.token.is_none());
        // RFC 5997, 4.1: the reply to a Status-Server is no login, so it has no event.
        if let Some(token) = p.token {
            let asked = &mut self.counts_by_server[usize::from(p.slot.server)];
            asked.answers += 1;
            // After a retransmission it is unknown which transmission the reply answers, so the round-trip time is not
            // counted.
            if !repeated {
                asked.timed += 1;
                asked.round_trips += waited;
            }
            let mut attributes = self.take_attributes();
            attributes.replace_with_packet_attributes(reply);
            self.counters.responses += 1;
            self.push_event(RadiusClientEvent::Response(RadiusReply {
                token,
                server: p.slot.server,
                code: reply.code(),
                attributes,
                request_authenticator,
                secret,
            }));
        }
        self.recycle_buffer(p);
        ReplyVerdict::Fine
    }

    /// Handles the timer of a request: retransmits it or ends it.
    pub(super) fn expire_request(&mut self, now: Instant, index: u32) {
        let Some(p) = self.pending.get(index as usize).and_then(Option::as_ref) else { return };
        let policy = self.config.retransmission;
        // RFC 5997, 4.1: a Status-Server is not retransmitted. The next has another identifier.
        let status = PacketCode(p.bytes[0]) == PacketCode::STATUS_SERVER;
        // RFC 6613, 2.6.1: a connection carries a request once.
        let once = status || self.server_transport(p.slot.server) == ServerTransport::Tls;
        // RFC 5080, 2.2.1: a request ends after MRC transmissions or at MRD.
        let spent = p.tries >= policy.max_count() || now.duration_since(p.start) >= policy.max_duration();
        if once || spent && now.duration_since(p.here) >= self.response_window(p.slot.server) {
            // A server with a long response window may have used up the request's time. The next server still gets a
            // window of its own.
            let only = once || p.here != p.start || !self.has_equal_or_better_server(p);
            return if only {
                self.give_up(now, index)
            } else {
                self.retransmit_request(now, index, RetransmitCause::ServerExhausted)
            };
        }
        self.retransmit_request(now, index, RetransmitCause::TimerExpired);
    }

    /// Retransmits a request, to the next server of its group if the last is left or had all its transmissions. Ends
    /// the request if its time is over, or if no server is left or the next has no free identifier.
    pub(super) fn retransmit_request(&mut self, now: Instant, index: u32, why: RetransmitCause) {
        let Some(mut p) = self.pending.get_mut(index as usize).and_then(Option::take) else { return };
        self.timers.remove(p.deadline, ClientTimer::Request(index));
        let moved =
            self.encode_changed_retransmission(now, &mut p, index, why != RetransmitCause::TimerExpired);
        let tls = self.server_transport(p.slot.server) == ServerTransport::Tls;
        let end = (p.start + self.config.retransmission.max_duration())
            .max(p.here + self.response_window(p.slot.server));
        // If the wait were over as soon as it starts, its timer would expire again at the same time, forever.
        if !moved && (why == RetransmitCause::ServerExhausted || !tls && end <= now) {
            self.pending[index as usize] = Some(p);
            return self.give_up(now, index);
        }
        p.tries += 1;
        if moved || tls {
            self.restart_reply_wait(now, &mut p);
        } else {
            p.wait = self.config.retransmission.next_retransmission_wait(p.wait, &mut self.rng);
            p.deadline = (now + p.wait).min(end);
        }
        self.counters.retransmissions += 1;
        self.timers.insert(p.deadline, ClientTimer::Request(index));
        self.pending[index as usize] = Some(p);
        self.dispatch_request(now, index);
    }

    /// Encodes a retransmission that differs from the last. Returns true if it goes to another server.
    fn encode_changed_retransmission(
        &mut self,
        now: Instant,
        p: &mut PendingRequest,
        index: u32,
        left: bool,
    ) -> bool {
        let Some(mut source) = p.source.take() else { return false };
        let current = p.slot.server;
        let next = match (self.config.failover, source.group) {
            (Some(f), Some(g))
                if left
                    || source.server_attempts >= f.after
                        && now.duration_since(p.here) >= self.response_window(current) =>
            {
                let members = &self.config.groups[usize::from(g)];
                let at = members.iter().position(|&s| s == current).unwrap_or(0);
                let behind = members[(at + 1) % members.len()];
                let next = self.healthiest_server_from(members, behind);
                let state = &mut self.groups[usize::from(g)];
                // A server with liveness detection is chosen by its health. Only others are passed over for the time
                // `revive`.
                if state.position == at && self.watches[usize::from(current)].is_none() {
                    let position = members.iter().position(|&s| s == next).unwrap_or(0);
                    *state = GroupPreferredServer { position, until: now + f.revive };
                }
                next
            }
            _ => current,
        };
        let delay = source.delay.map(|(given, sent)| {
            let elapsed = now.duration_since(p.start).as_secs().min(u64::from(u32::MAX)) as u32;
            (given, sent, given.saturating_add(elapsed))
        });
        let changed = delay.is_some_and(|(_, sent, due)| sent != due);
        // RFC 2865, 2.5; RFC 2866, 4.1; RFC 5176, 2.3: only a changed packet has a new identifier and authenticator.
        if (next != current || changed)
            && let Some(slot) = self.identifiers.take_identifier(now, next, &mut self.rng)
        {
            if let Some((given, _, due)) = delay {
                source.attributes.replace_value(kind::ACCT_DELAY_TIME, &due.to_be_bytes());
                source.delay = Some((given, due));
            }
            let code = PacketCode(p.bytes[0]);
            let fits = self.encode_request(&mut p.bytes, slot, code, &source.attributes);
            debug_assert!(fits.is_ok(), "it fitted before, and no length has changed");
            self.release_pending_identifier(now, p.slot, true);
            p.slot = slot;
            self.register_pending_identifier(slot, index);
            self.counters.renewals += 1;
        }
        let moved = p.slot.server != current;
        if moved {
            source.server_attempts = 0;
            self.counters.failovers += 1;
            self.counts_by_server[usize::from(current)].timeouts += 1;
            self.counts_by_server[usize::from(p.slot.server)].requests += 1;
        }
        source.server_attempts += 1;
        p.source = Some(source);
        moved
    }
}
