//! Changes of the host's links and their indications.

use super::{LinkChange, MihService, MihServiceEvent, TransactionPurpose};
use crate::link::{InterfaceConfig, InterfaceState, KernelLinkReport};
use usher_core::{Duration, Instant, Machine};
use usher_mih::{
    self as mih, EventList, LinkDownReason, LinkGoingDownReason, LinkParam, LinkParamReport, LinkParamType,
    LinkParamValue, MessageId, MihfMessage, Tlv,
};

impl MihService {
    /// Handles the kernel's report of an interface.
    pub(super) fn link_report(&mut self, now: Instant, report: KernelLinkReport) {
        if self.config.interfaces.is_empty() && report.present && report.address.is_some() {
            let known = || InterfaceState::new(InterfaceConfig::with_name(&report.name));
            self.links.entry(report.name.clone()).or_insert_with(known);
        }
        let Some(known) = self.links.get_mut(&report.name) else { return };
        let name = report.name.clone();
        let before = core::mem::replace(&mut known.report, report);
        let after = known.report.clone();
        if before.up != after.up {
            known.going_down = false;
        }
        let moved = before.address != after.address || before.present != after.present;
        if moved {
            self.update_capabilities(now);
        }
        match (before.up, after.up) {
            (false, true) => self.notify_subscribers(now, &name, LinkChange::Up),
            (true, false) => {
                let reason = match after.present && after.enabled {
                    true => LinkDownReason::PacketTimeout,
                    false => LinkDownReason::ExplicitDisconnect,
                };
                self.notify_subscribers(now, &name, LinkChange::Down(reason));
            }
            (true, true) if before.rate.is_some() && before.rate != after.rate => {
                self.notify_rate_subscribers(now, &name, after.rate);
            }
            _ => {}
        }
    }

    /// Reports the predicted loss of a link, once until it has recovered.
    pub(super) fn report_link_going_down(
        &mut self,
        now: Instant,
        name: &str,
        reason: LinkGoingDownReason,
        within: Duration,
    ) {
        let Some(known) = self.links.get_mut(name) else { return };
        if known.report.up && !core::mem::replace(&mut known.going_down, true) {
            self.notify_subscribers(now, name, LinkChange::GoingDown(reason, within));
        }
    }

    pub(super) fn check_watched_value(&mut self, now: Instant, name: &str, value: f64) {
        let Some(known) = self.links.get_mut(name) else { return };
        let Some(watch) = known.settings.watch.clone() else { return };
        if value < watch.below {
            self.report_link_going_down(
                now,
                name,
                LinkGoingDownReason::ParameterDegrading,
                watch.time_to_loss,
            );
        } else if value >= watch.below + watch.hysteresis {
            known.going_down = false;
        }
    }

    /// Sends a link's change to subscribers.
    fn notify_subscribers(&mut self, now: Instant, name: &str, change: LinkChange) {
        let Some(link) = self.links.get(name).and_then(InterfaceState::link_tuple_id) else { return };
        let link = Tlv::LinkIdentifier(link);
        let (event, message) = match change {
            LinkChange::Up => {
                self.counters.link_up += 1;
                (EventList::LINK_UP, MihfMessage::new(MessageId::LINK_UP_INDICATION, [link]))
            }
            LinkChange::Down(reason) => {
                self.counters.link_down += 1;
                let params = [link, Tlv::LinkDownReason(reason)];
                (EventList::LINK_DOWN, MihfMessage::new(MessageId::LINK_DOWN_INDICATION, params))
            }
            LinkChange::GoingDown(reason, within) => {
                self.counters.link_going_down += 1;
                let within = u16::try_from(within.as_millis()).unwrap_or(u16::MAX);
                let params = [link, Tlv::TimeInterval(within), Tlv::LinkGoingDownReason(reason)];
                (EventList::LINK_GOING_DOWN, MihfMessage::new(MessageId::LINK_GOING_DOWN_INDICATION, params))
            }
        };
        let told = self.send_indications(now, name, event, &message);
        self.outputs.push_event(MihServiceEvent::Link {
            interface: name.into(),
            change,
            notified_subscribers: told,
        });
    }

    fn notify_rate_subscribers(&mut self, now: Instant, name: &str, rate: Option<u64>) {
        let (Some(link), Some(rate)) = (self.links.get(name).and_then(InterfaceState::link_tuple_id), rate)
        else {
            return;
        };
        let value = LinkParamValue::Number(u16::try_from(rate).unwrap_or(u16::MAX));
        let param = LinkParam { kind: LinkParamType::DATA_RATE, value };
        let reports = [LinkParamReport { param, threshold: None }].into();
        let params = [Tlv::LinkIdentifier(link), Tlv::LinkParameterReports(reports)];
        let message = MihfMessage::new(MessageId::LINK_PARAMETERS_REPORT_INDICATION, params);
        self.send_indications(now, name, EventList::LINK_PARAMETERS_REPORT, &message);
    }

    /// Sends an indication to its subscribers and returns their number.
    fn send_indications(
        &mut self,
        now: Instant,
        name: &str,
        event: EventList,
        message: &MihfMessage,
    ) -> usize {
        if !self.config.events.has(event) {
            return 0;
        }
        let mut told = 0;
        for peer in self.subscriptions.subscribers_of(name, event) {
            let open = self.unacknowledged.entry(peer.clone()).or_default();
            if *open >= self.config.limits.indications_per_peer {
                self.counters.indications_dropped += 1;
                continue;
            }
            *open += 1;
            self.token += 1;
            let token = self.token;
            self.open.insert(token, TransactionPurpose::Indication(peer.clone()));
            let command = mih::MihfCommand::Send { token, to: peer, message: message.clone() };
            if self.mihf.handle_command(now, command).is_ok() {
                self.counters.indications += 1;
                told += 1;
            } else {
                self.handle_transaction_result(now, token, Err(mih::TransactionError::Transport));
            }
        }
        told
    }
}
