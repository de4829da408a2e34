//! Replies, and requests that go without one.

use super::identifier::Slot;
use super::machine::{Client, GroupState, Pending, Timer, canonical};
use super::{Event, Response, Transport};
use crate::attribute::kind;
use crate::auth::{MessageAuthenticator, check_reply};
use crate::packet::{Code, HEADER_LEN, Packet};
use usher_core::{Instant, Path};

/// Why a request is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Again {
    /// Its wait is over.
    Waited,
    /// Its server is left: it goes to another where that is possible.
    Left,
    /// Its server had all its chances: it goes to another, or is given up.
    Spent,
}

/// What a reply shows of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// Nothing amiss, or nothing that a server would not do.
    Fine,
    /// It does not know the secret.
    Foreign,
}

impl Client {
    pub(super) fn receive(&mut self, now: Instant, path: Path, data: &[u8]) {
        self.work.response();
        let Ok(reply) = Packet::parse(data) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(servers) = self.by_address.get(&canonical(path.remote)) else {
            self.counters.wrong_source += 1;
            return;
        };
        let socket = path.socket.n;
        let found = servers.iter().find_map(|&server| {
            (self.transport(server) == Transport::Udp).then_some(())?;
            self.asked(Slot { server, socket, identifier: reply.identifier() })
        });
        match found {
            Some(index) => {
                self.take(now, index, &reply);
            }
            None => self.counters.unknown_identifier += 1,
        }
    }

    /// The place of the request that has a slot.
    pub(super) fn asked(&self, slot: Slot) -> Option<u32> {
        let index = self.by_slot.get(&slot.key()).copied()?;
        let p = self.pending.get(index as usize)?.as_ref()?;
        (p.slot == slot).then_some(index)
    }

    /// Takes what answers the request at a place.
    pub(super) fn take(&mut self, now: Instant, index: u32, reply: &Packet<'_>) -> Shown {
        let Some(p) = self.pending.get(index as usize).and_then(Option::as_ref) else { return Shown::Fine };
        let server = &self.config.servers[usize::from(p.slot.server)];
        let request = Code(p.bytes[0]);
        let mut request_authenticator = [0; 16];
        request_authenticator.copy_from_slice(&p.bytes[4..HEADER_LEN]);
        if !reply.code().answers(request) {
            self.counters.wrong_code += 1;
            return Shown::Fine;
        }
        let (genuine, message_authenticator) = check_reply(reply, &request_authenticator, &server.secret);
        if !genuine {
            self.counters.bad_authenticator += 1;
            return Shown::Foreign;
        }
        match message_authenticator {
            MessageAuthenticator::Good => {}
            MessageAuthenticator::Bad => {
                self.counters.bad_message_authenticator += 1;
                return Shown::Foreign;
            }
            MessageAuthenticator::Absent => {
                let policy = request == Code::ACCESS_REQUEST && server.require_message_authenticator;
                if policy || reply.get(kind::EAP_MESSAGE).is_some() {
                    self.counters.missing_message_authenticator += 1;
                    return Shown::Fine;
                }
            }
        }
        let dynamic = matches!(request, Code::COA_REQUEST | Code::DISCONNECT_REQUEST);
        let freshness = self.config.freshness.filter(|_| dynamic);
        if freshness.and_then(|f| f.judge(now.wall(self.epoch), reply)) == Some(false) {
            self.counters.stale += 1;
            return Shown::Fine;
        }
        let (secret, repeated) = (server.secret.clone(), p.tries > 1);
        let waited = now.since(p.start);
        let Some(p) = self.release(now, index, repeated) else { return Shown::Fine };
        self.heard(now, p.slot, p.token.is_none());
        if let Some(token) = p.token {
            let asked = &mut self.asked_of[usize::from(p.slot.server)];
            asked.answers += 1;
            // Which transmission of several is answered is not known.
            if !repeated {
                asked.timed += 1;
                asked.round_trips += waited;
            }
            let mut attributes = self.attributes();
            attributes.refill(reply);
            self.counters.responses += 1;
            self.say(Event::Response(Response {
                token,
                server: p.slot.server,
                code: reply.code(),
                attributes,
                request_authenticator,
                secret,
            }));
        }
        self.recycle(p);
        Shown::Fine
    }

    /// The wait of a request is over: send again or give up.
    pub(super) fn expire(&mut self, now: Instant, index: u32) {
        let Some(p) = self.pending.get(index as usize).and_then(Option::as_ref) else { return };
        let policy = self.config.retransmission;
        // A Status-Server is not sent again (RFC 5997 §4.1): the next has another identifier.
        let status = Code(p.bytes[0]) == Code::STATUS_SERVER;
        let once = status || self.transport(p.slot.server) == Transport::Tls;
        let spent = p.tries >= policy.max_count() || now.since(p.start) >= policy.max_duration();
        if once || spent && now.since(p.here) >= self.window(p.slot.server) {
            // A server with a long window may have taken all the time: another gets its own.
            let only = once || p.here != p.start || !self.has_other(p);
            return if only { self.give_up(now, index) } else { self.again(now, index, Again::Spent) };
        }
        self.again(now, index, Again::Waited);
    }

    /// Sends a request again: to the next server of its group where the last had its chances, or is left. Gives it up
    /// where it has no time left, or the last server had all its chances and the next has no identifier free.
    pub(super) fn again(&mut self, now: Instant, index: u32, why: Again) {
        let Some(mut p) = self.pending.get_mut(index as usize).and_then(Option::take) else { return };
        self.timers.remove(p.deadline, Timer::Request(index));
        let moved = self.renew(now, &mut p, index, why != Again::Waited);
        let tls = self.transport(p.slot.server) == Transport::Tls;
        let end =
            (p.start + self.config.retransmission.max_duration()).max(p.here + self.window(p.slot.server));
        // A wait that is over as it begins would come due again at this same time, without end.
        if !moved && (why == Again::Spent || !tls && end <= now) {
            self.pending[index as usize] = Some(p);
            return self.give_up(now, index);
        }
        p.tries += 1;
        if moved || tls {
            self.wait_anew(now, &mut p);
        } else {
            p.wait = self.config.retransmission.next(p.wait, &mut self.rng);
            p.deadline = (now + p.wait).min(end);
        }
        self.counters.retransmissions += 1;
        self.timers.insert(p.deadline, Timer::Request(index));
        self.pending[index as usize] = Some(p);
        self.dispatch(now, index);
    }

    /// Encodes a retransmission that is not the same octets again; true where it goes to another server.
    fn renew(&mut self, now: Instant, p: &mut Pending, index: u32, left: bool) -> bool {
        let Some(mut source) = p.source.take() else { return false };
        let current = p.slot.server;
        let next = match (self.config.failover, source.group) {
            (Some(f), Some(g))
                if left || source.tries_here >= f.after && now.since(p.here) >= self.window(current) =>
            {
                let members = &self.config.groups[usize::from(g)];
                let at = members.iter().position(|&s| s == current).unwrap_or(0);
                let behind = members[(at + 1) % members.len()];
                let next = self.best_from(members, behind);
                let state = &mut self.groups[usize::from(g)];
                // How a server is that is watched is known better.
                if state.position == at && self.watches[usize::from(current)].is_none() {
                    let position = members.iter().position(|&s| s == next).unwrap_or(0);
                    *state = GroupState { position, until: now + f.revive };
                }
                next
            }
            _ => current,
        };
        let delay = source.delay.map(|(given, sent)| {
            let elapsed = now.since(p.start).as_secs().min(u64::from(u32::MAX)) as u32;
            (given, sent, given.saturating_add(elapsed))
        });
        let changed = delay.is_some_and(|(_, sent, due)| sent != due);
        if (next != current || changed)
            && let Some(slot) = self.identifiers.take(now, next, &mut self.rng)
        {
            if let Some((given, _, due)) = delay {
                source.attributes.replace(kind::ACCT_DELAY_TIME, &due.to_be_bytes());
                source.delay = Some((given, due));
            }
            let code = Code(p.bytes[0]);
            let fits = self.encode(&mut p.bytes, slot, code, &source.attributes);
            debug_assert!(fits.is_ok(), "it fitted before, and no length has changed");
            self.vacate(now, p.slot, true);
            p.slot = slot;
            self.occupy(slot, index);
            self.counters.renewals += 1;
        }
        let moved = p.slot.server != current;
        if moved {
            source.tries_here = 0;
            self.counters.failovers += 1;
            self.asked_of[usize::from(current)].timeouts += 1;
            self.asked_of[usize::from(p.slot.server)].requests += 1;
        }
        source.tries_here += 1;
        p.source = Some(source);
        moved
    }
}
