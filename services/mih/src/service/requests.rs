//! What other functions ask that is not the MIH function's own affair: subscriptions, parameters, actions, candidates.

use super::{Asked, Job, Limits, MihService, Pending, Waits};
use crate::link::{Known, LinkReport, status};
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::{Duration, Instant};
use usher_mih::{
    HandoverStatus, Incoming, LinkAction, LinkActionAttributes, LinkActionOutcome, LinkActionResult,
    LinkActionType, LinkGoingDownReason, LinkId, Message, MessageId, MihfId, PreferredLink, Status, Tlv,
    kind,
};

impl MihService {
    /// Who is not registered and no peer of the configuration cannot be told anything later.
    fn can_be_told(&self, peer: &MihfId) -> bool {
        self.neighbours.contains_key(peer) || self.mihf.is_registered(peer)
    }

    pub(super) fn subscribe(&mut self, peer: &MihfId, message: &Message) -> Vec<Tlv> {
        let on = message.id == MessageId::EVENT_SUBSCRIBE_REQUEST;
        let (Some(Tlv::LinkIdentifier(link)), Some(Tlv::EventList(events))) =
            (message.get(kind::LINK_IDENTIFIER), message.get(kind::EVENT_LIST))
        else {
            return [Tlv::Status(Status::UnspecifiedFailure)].into();
        };
        let granted = if on { events.common(self.config.events) } else { *events };
        let name = self.of_tuple(link).cloned();
        let Some(name) = name.filter(|_| !granted.is_empty() && (!on || self.can_be_told(peer))) else {
            return [Tlv::Status(Status::Rejected)].into();
        };
        if on {
            let Limits { subscriptions, subscriptions_per_peer, .. } = self.config.limits;
            if !self.subscriptions.add(&name, peer, granted, (subscriptions_per_peer, subscriptions)) {
                self.counters.subscriptions_full += 1;
                return [Tlv::Status(Status::Rejected)].into();
            }
        } else {
            self.subscriptions.remove(&name, peer, granted);
        }
        [Tlv::Status(Status::Success), Tlv::LinkIdentifier(link.clone()), Tlv::EventList(granted)].into()
    }

    /// Puts a request among those that wait for the kernel; `None`: too many do, and it is refused.
    fn wait(&mut self, now: Instant, pending: Pending) -> Option<u64> {
        let life = self.config.mih.transaction.unwrap_or(Duration::MAX);
        self.pending.retain(|_, p| now.since(p.since) < life);
        let pending_ids = &self.pending;
        self.jobs.retain(|_, (request, _)| pending_ids.contains_key(request));
        let of_peer = self.pending.values().filter(|p| p.asked.peer == pending.asked.peer).count();
        let Limits { requests, requests_per_peer, .. } = self.config.limits;
        if self.pending.len() >= requests || of_peer >= requests_per_peer {
            self.counters.requests_full += 1;
            let Pending { asked, transaction, request, .. } = pending;
            self.refuse(now, asked, transaction, request, Status::UnspecifiedFailure);
            return None;
        }
        self.token += 1;
        self.pending.insert(self.token, pending);
        Some(self.token)
    }

    fn job(&mut self, request: u64, part: usize, what: Job) {
        self.token += 1;
        self.jobs.insert(self.token, (request, part));
        self.outputs.job(usher_core::Job::new(self.token, what));
    }

    pub(super) fn parameters(
        &mut self,
        now: Instant,
        asked: Asked,
        transaction: Incoming,
        message: &Message,
    ) {
        let request = message.id;
        let (Some(Tlv::LinkIdentifierList(links)), Some(Tlv::StatusRequest(wanted))) =
            (message.get(kind::LINK_IDENTIFIER_LIST), message.get(kind::STATUS_REQUEST))
        else {
            return self.refuse(now, asked, transaction, request, Status::UnspecifiedFailure);
        };
        let found: Vec<(LinkId, String)> =
            links.iter().filter_map(|link| Some((link.clone(), self.interface(link)?.0.clone()))).collect();
        if found.is_empty() {
            return self.refuse(now, asked, transaction, request, Status::Rejected);
        }
        let interfaces = found.iter().map(|(_, name)| name.clone()).collect();
        let what = Waits::Measure(found, wanted.clone());
        if let Some(of) = self.wait(now, Pending { asked, transaction, request, since: now, what }) {
            self.job(of, 0, Job::Measure { interfaces });
        }
    }

    pub(super) fn measured(&mut self, now: Instant, token: u64, reports: Vec<LinkReport>) {
        let Some((request, _)) = self.jobs.remove(&token) else {
            self.counters.late += 1;
            return;
        };
        if let Some(Pending { asked, transaction, request, what: Waits::Measure(links, wanted), .. }) =
            self.pending.remove(&request)
        {
            let of = |name: &String| reports.iter().find(|report| report.name == *name && report.present);
            let known = links.into_iter().filter_map(|(link, name)| Some(status(link, of(&name)?, &wanted)));
            let known: Vec<_> = known.collect();
            let status = if known.is_empty() { Status::UnspecifiedFailure } else { Status::Success };
            let params = [Tlv::Status(status), Tlv::StatusResponses(known)];
            self.respond(now, asked, transaction, request, params.into());
        }
        for report in reports {
            self.link_report(now, report);
        }
    }

    /// What comes of an action without asking the kernel; `None`: it is to be asked.
    fn verdict(&self, action: &LinkAction) -> Option<LinkActionResult> {
        let Some((_, known)) = self.interface(&action.link) else { return Some(LinkActionResult::Failure) };
        let scans = action.attributes.has(LinkActionAttributes::SCAN);
        match action.action {
            LinkActionType::LowPower | LinkActionType::Other(_) => Some(LinkActionResult::Incapable),
            _ if scans => Some(LinkActionResult::Incapable),
            LinkActionType::None => Some(LinkActionResult::Success),
            _ if !known.settings.may_act => Some(LinkActionResult::Refused),
            LinkActionType::Disconnect | LinkActionType::PowerDown | LinkActionType::PowerUp => None,
        }
    }

    /// Acts on links. What is to be done later is answered at once, and foreseen by whoever subscribed to that.
    pub(super) fn actions(&mut self, now: Instant, asked: Asked, transaction: Incoming, message: &Message) {
        let request = message.id;
        let Some(Tlv::LinkActions(actions)) = message.get(kind::LINK_ACTION_LIST) else {
            return self.refuse(now, asked, transaction, request, Status::UnspecifiedFailure);
        };
        let mut results = Vec::new();
        let mut jobs = Vec::new();
        for action in actions {
            let verdict = self.verdict(action);
            let name = self.interface(&action.link).map(|(name, _)| name.clone());
            let on = action.action == LinkActionType::PowerUp;
            let result = match (verdict, name) {
                (None, Some(name)) if action.delay > 0 => {
                    let delay = Duration::from_millis(action.delay.into());
                    self.token += 1;
                    self.later.insert((now + delay, self.token, name.clone(), on));
                    if !on {
                        self.foresee(now, &name, LinkGoingDownReason::ExplicitDisconnect, delay);
                    }
                    Some(LinkActionResult::Success)
                }
                (None, Some(name)) => {
                    jobs.push((results.len(), name, on));
                    None
                }
                (verdict, _) => verdict.or(Some(LinkActionResult::Failure)),
            };
            results.push((action.link.clone(), result));
        }
        if jobs.is_empty() {
            return self.acted_all(now, asked, transaction, request, results);
        }
        let what = Waits::Act(results);
        if let Some(of) = self.wait(now, Pending { asked, transaction, request, since: now, what }) {
            for (part, interface, on) in jobs {
                self.job(of, part, Job::Switch { interface, on });
            }
        }
    }

    pub(super) fn acted(&mut self, now: Instant, token: u64, done: bool) {
        // What was done later than it was answered has nobody to tell.
        let Some((request, part)) = self.jobs.remove(&token) else { return };
        let Some(pending) = self.pending.get_mut(&request) else {
            self.counters.late += 1;
            return;
        };
        let Waits::Act(results) = &mut pending.what else { return };
        if let Some((_, result)) = results.get_mut(part) {
            *result = Some(if done { LinkActionResult::Success } else { LinkActionResult::Failure });
        }
        if results.iter().any(|(_, result)| result.is_none()) {
            return;
        }
        if let Some(Pending { asked, transaction, request, what: Waits::Act(results), .. }) =
            self.pending.remove(&request)
        {
            self.acted_all(now, asked, transaction, request, results);
        }
    }

    fn acted_all(
        &mut self,
        now: Instant,
        asked: Asked,
        transaction: Incoming,
        request: MessageId,
        results: Vec<(LinkId, Option<LinkActionResult>)>,
    ) {
        let outcome = |(link, result): (LinkId, Option<LinkActionResult>)| LinkActionOutcome {
            link,
            result: result.unwrap_or(LinkActionResult::Failure),
            scan: None,
        };
        let outcomes = results.into_iter().map(outcome).collect();
        let params = [Tlv::Status(Status::Success), Tlv::LinkActionOutcomes(outcomes)];
        self.respond(now, asked, transaction, request, params.into());
    }

    /// Which of the links that the network suggests this host could go to: those of its interfaces that carry packets,
    /// but for the one that it is at.
    pub(super) fn candidates(&self, message: &Message) -> Vec<Tlv> {
        let Some(Tlv::LinkPoaLists(lists)) = message.get(kind::LINK_POA_LIST) else {
            return [Tlv::Status(Status::UnspecifiedFailure)].into();
        };
        let up = |known: &&Known| known.report.up;
        let suggested = |known: &&Known| lists.iter().any(|list| Some(&list.link) == known.id().as_ref());
        let here = self.links.values().filter(up).find(|known| !suggested(known));
        let here = here.or_else(|| self.links.values().find(up)).and_then(Known::tuple);
        let Some(here) = here else {
            return [Tlv::Status(Status::NetworkError)].into();
        };
        let could = lists.iter().filter(|list| {
            list.link != here.link && self.interface(&list.link).is_some_and(|(_, known)| known.report.up)
        });
        let preferred: Vec<PreferredLink> = could.map(|list| PreferredLink::new(list.clone())).collect();
        let status = if preferred.is_empty() { HandoverStatus::Declined } else { HandoverStatus::Permitted };
        let mut params: Vec<Tlv> =
            [Tlv::Status(Status::Success), Tlv::LinkIdentifier(here), Tlv::HandoverStatus(status)].into();
        if !preferred.is_empty() {
            params.push(Tlv::PreferredLinks(preferred));
        }
        params
    }
}
