//! Requests that the service answers: subscriptions, parameters, actions, candidates.

use super::{
    DelayedInterfaceSwitch, MihService, MihServiceJob, MihServiceLimits, PendingLinkWork, PendingRequest,
    RequestingPeer,
};
use crate::link::{InterfaceState, KernelLinkReport, link_status};
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::{Duration, Instant};
use usher_mih::{
    HandoverStatus, IncomingRequestId, LinkAction, LinkActionAttributes, LinkActionOutcome, LinkActionResult,
    LinkActionType, LinkGoingDownReason, LinkId, MessageId, MihfId, MihfMessage, PreferredLink, Status, Tlv,
    kind,
};

impl MihService {
    /// True if the peer can receive later messages: it is registered or configured.
    fn can_be_notified(&self, peer: &MihfId) -> bool {
        self.neighbours.contains_key(peer) || self.mihf.is_registered(peer)
    }

    pub(super) fn update_subscription(&mut self, peer: &MihfId, message: &MihfMessage) -> Vec<Tlv> {
        let on = message.id == MessageId::EVENT_SUBSCRIBE_REQUEST;
        let (Some(Tlv::LinkIdentifier(link)), Some(Tlv::EventList(events))) =
            (message.get(kind::LINK_IDENTIFIER), message.get(kind::EVENT_LIST))
        else {
            return [Tlv::Status(Status::UnspecifiedFailure)].into();
        };
        let granted = if on { events.common(self.config.events) } else { *events };
        let name = self.interface_of_tuple(link).cloned();
        let Some(name) = name.filter(|_| !granted.is_empty() && (!on || self.can_be_notified(peer))) else {
            return [Tlv::Status(Status::Rejected)].into();
        };
        if on {
            let MihServiceLimits { subscriptions, subscriptions_per_peer, .. } = self.config.limits;
            if !self.subscriptions.add(&name, peer, granted, (subscriptions_per_peer, subscriptions)) {
                self.counters.subscriptions_full += 1;
                return [Tlv::Status(Status::Rejected)].into();
            }
        } else {
            self.subscriptions.remove(&name, peer, granted);
        }
        [Tlv::Status(Status::Success), Tlv::LinkIdentifier(link.clone()), Tlv::EventList(granted)].into()
    }

    /// True if `more` requests and delayed actions of a peer fit into the limits.
    fn has_room(&mut self, now: Instant, peer: &MihfId, more: usize) -> bool {
        let life = self.config.mih.transaction.unwrap_or(Duration::MAX);
        self.pending.retain(|_, p| now.duration_since(p.since) < life);
        let pending_ids = &self.pending;
        self.jobs.retain(|_, (request, _)| pending_ids.contains_key(request));
        let requests = self.pending.values().filter(|pending| pending.peer.peer == *peer);
        let actions = self.delayed.values().filter(|action| action.peer == *peer);
        let of_peer = requests.count() + actions.count();
        let all = self.pending.len() + self.delayed.len();
        let MihServiceLimits { requests, requests_per_peer, .. } = self.config.limits;
        all.saturating_add(more) <= requests && of_peer.saturating_add(more) <= requests_per_peer
    }

    fn refuse_request_when_full(
        &mut self,
        now: Instant,
        asked: RequestingPeer,
        transaction: IncomingRequestId,
        request: MessageId,
    ) {
        self.counters.requests_full += 1;
        self.refuse_request(now, asked, transaction, request, Status::UnspecifiedFailure);
    }

    /// Adds a request that waits for the kernel.
    fn enqueue_request(&mut self, pending: PendingRequest) -> u64 {
        self.token += 1;
        self.pending.insert(self.token, pending);
        self.token
    }

    fn start_job(&mut self, request: u64, parts: Vec<usize>, what: MihServiceJob) {
        self.token += 1;
        self.jobs.insert(self.token, (request, parts));
        self.outputs.push_job(usher_core::JobRequest::new(self.token, what));
    }

    pub(super) fn handle_get_parameters(
        &mut self,
        now: Instant,
        asked: RequestingPeer,
        transaction: IncomingRequestId,
        message: &MihfMessage,
    ) {
        let request = message.id;
        let (Some(Tlv::LinkIdentifierList(links)), Some(Tlv::StatusRequest(wanted))) =
            (message.get(kind::LINK_IDENTIFIER_LIST), message.get(kind::STATUS_REQUEST))
        else {
            return self.refuse_request(now, asked, transaction, request, Status::UnspecifiedFailure);
        };
        let found: Vec<(LinkId, String)> = links
            .iter()
            .filter_map(|link| Some((link.clone(), self.find_interface(link)?.0.clone())))
            .collect();
        if found.is_empty() {
            return self.refuse_request(now, asked, transaction, request, Status::Rejected);
        }
        if !self.has_room(now, &asked.peer, 1) {
            return self.refuse_request_when_full(now, asked, transaction, request);
        }
        let interfaces = found.iter().map(|(_, name)| name.clone()).collect();
        let what = PendingLinkWork::Measure(found, wanted.clone());
        let of = self.enqueue_request(PendingRequest {
            peer: asked,
            transaction,
            request,
            since: now,
            work: what,
        });
        self.start_job(of, Vec::new(), MihServiceJob::Measure { interfaces });
    }

    pub(super) fn finish_measurement(&mut self, now: Instant, token: u64, reports: Vec<KernelLinkReport>) {
        let Some((request, _)) = self.jobs.remove(&token) else {
            self.counters.late += 1;
            return;
        };
        if let Some(PendingRequest {
            peer: asked,
            transaction,
            request,
            work: PendingLinkWork::Measure(links, wanted),
            ..
        }) = self.pending.remove(&request)
        {
            let of = |name: &String| reports.iter().find(|report| report.name == *name && report.present);
            let known =
                links.into_iter().filter_map(|(link, name)| Some(link_status(link, of(&name)?, &wanted)));
            let known: Vec<_> = known.collect();
            let status = if known.is_empty() { Status::UnspecifiedFailure } else { Status::Success };
            let params = [Tlv::Status(status), Tlv::StatusResponses(known)];
            self.send_response(now, asked, transaction, request, params.into());
        }
        for report in reports {
            self.link_report(now, report);
        }
    }

    /// Returns the result of an action that needs no job; `None`: the kernel must act.
    fn immediate_result(&self, action: &LinkAction) -> Option<LinkActionResult> {
        let Some((_, known)) = self.find_interface(&action.link) else {
            return Some(LinkActionResult::Failure);
        };
        let scans = action.attributes.has(LinkActionAttributes::SCAN);
        match action.action {
            LinkActionType::LowPower | LinkActionType::Other(_) => Some(LinkActionResult::Incapable),
            _ if scans => Some(LinkActionResult::Incapable),
            LinkActionType::None => Some(LinkActionResult::Success),
            _ if !known.settings.allow_actions => Some(LinkActionResult::Refused),
            LinkActionType::Disconnect | LinkActionType::PowerDown | LinkActionType::PowerUp => None,
        }
    }

    /// Performs link actions. A delayed action is answered at once, and subscribers receive its prediction. Each
    /// delayed action counts as a waiting request. All immediate ones count as one, with at most two jobs for each
    /// interface.
    pub(super) fn handle_link_actions(
        &mut self,
        now: Instant,
        asked: RequestingPeer,
        transaction: IncomingRequestId,
        message: &MihfMessage,
    ) {
        let request = message.id;
        let Some(Tlv::LinkActions(actions)) = message.get(kind::LINK_ACTION_LIST) else {
            return self.refuse_request(now, asked, transaction, request, Status::UnspecifiedFailure);
        };
        let mut results = Vec::new();
        let mut delayed: Vec<(Duration, String, bool)> = Vec::new();
        let mut jobs: Vec<((String, bool), Vec<usize>)> = Vec::new();
        for action in actions {
            let verdict = self.immediate_result(action);
            let name = self.find_interface(&action.link).map(|(name, _)| name.clone());
            let on = action.action == LinkActionType::PowerUp;
            let result = match (verdict, name) {
                (None, Some(name)) if action.delay > 0 => {
                    delayed.push((Duration::from_millis(action.delay.into()), name, on));
                    Some(LinkActionResult::Success)
                }
                (None, Some(name)) => {
                    let switch = (name, on);
                    match jobs.iter_mut().find(|(known, _)| *known == switch) {
                        Some((_, parts)) => parts.push(results.len()),
                        None => jobs.push((switch, [results.len()].into())),
                    }
                    None
                }
                (verdict, _) => verdict.or(Some(LinkActionResult::Failure)),
            };
            results.push((action.link.clone(), result));
        }
        let more = delayed.len() + usize::from(!jobs.is_empty());
        if more > 0 && !self.has_room(now, &asked.peer, more) {
            return self.refuse_request_when_full(now, asked, transaction, request);
        }
        for (delay, interface, on) in delayed {
            if !on {
                self.report_link_going_down(now, &interface, LinkGoingDownReason::ExplicitDisconnect, delay);
            }
            self.token += 1;
            let action = DelayedInterfaceSwitch { peer: asked.peer.clone(), interface, on };
            self.delayed.insert((now + delay, self.token), action);
        }
        if jobs.is_empty() {
            return self.respond_link_actions(now, asked, transaction, request, results);
        }
        let what = PendingLinkWork::Act(results);
        let of = self.enqueue_request(PendingRequest {
            peer: asked,
            transaction,
            request,
            since: now,
            work: what,
        });
        for ((interface, on), parts) in jobs {
            self.start_job(of, parts, MihServiceJob::Switch { interface, on });
        }
    }

    pub(super) fn finish_link_action(&mut self, now: Instant, token: u64, done: bool) {
        // The request of a delayed action was answered before the action ran, so its result is not sent.
        let Some((request, parts)) = self.jobs.remove(&token) else { return };
        let Some(pending) = self.pending.get_mut(&request) else {
            self.counters.late += 1;
            return;
        };
        let PendingLinkWork::Act(results) = &mut pending.work else { return };
        for part in parts {
            if let Some((_, result)) = results.get_mut(part) {
                *result = Some(if done { LinkActionResult::Success } else { LinkActionResult::Failure });
            }
        }
        if results.iter().any(|(_, result)| result.is_none()) {
            return;
        }
        if let Some(PendingRequest {
            peer: asked,
            transaction,
            request,
            work: PendingLinkWork::Act(results),
            ..
        }) = self.pending.remove(&request)
        {
            self.respond_link_actions(now, asked, transaction, request, results);
        }
    }

    fn respond_link_actions(
        &mut self,
        now: Instant,
        asked: RequestingPeer,
        transaction: IncomingRequestId,
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
        self.send_response(now, asked, transaction, request, params.into());
    }

    /// Returns the candidates among the links that the network suggests: interfaces that carry packets, except the
    /// current one.
    pub(super) fn candidate_query_params(&self, message: &MihfMessage) -> Vec<Tlv> {
        let Some(Tlv::LinkPoaLists(lists)) = message.get(kind::LINK_POA_LIST) else {
            return [Tlv::Status(Status::UnspecifiedFailure)].into();
        };
        let up = |known: &&InterfaceState| known.report.up;
        let suggested =
            |known: &&InterfaceState| lists.iter().any(|list| Some(&list.link) == known.link_id().as_ref());
        let here = self.links.values().filter(up).find(|known| !suggested(known));
        let here = here.or_else(|| self.links.values().find(up)).and_then(InterfaceState::link_tuple_id);
        let Some(here) = here else {
            return [Tlv::Status(Status::NetworkError)].into();
        };
        let could = lists.iter().filter(|list| {
            list.link != here.link
                && self.find_interface(&list.link).is_some_and(|(_, known)| known.report.up)
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
