//! Requests that an MIH function answers itself: the management service, and Get_Information if it has a store.

use super::{Mihf, MihfEvent};
use crate::{MessageId, MihfId, MihfMessage, Status, Tlv, kind};
use alloc::vec::Vec;
use usher_core::{Duration, Instant};

impl Mihf {
    /// Returns the parameters of the response, or `None` if the request is for the user.
    pub(super) fn response_parameters(
        &mut self,
        now: Instant,
        peer: u32,
        from: &MihfId,
        message: &MihfMessage,
    ) -> Option<Vec<Tlv>> {
        match message.id {
            MessageId::CAPABILITY_DISCOVER_REQUEST => {
                let mut params = alloc::vec![Tlv::Status(Status::Success)];
                params.extend(self.config.capabilities.to_parameters());
                Some(params)
            }
            MessageId::REGISTER_REQUEST => Some(self.register_mih_peer(now, peer, from)),
            MessageId::DEREGISTER_REQUEST => {
                if self.peers.deregister(peer) {
                    self.net.outputs.push_event(MihfEvent::Deregistered { peer: from.clone() });
                }
                Some(alloc::vec![Tlv::Status(Status::Success)])
            }
            MessageId::EVENT_SUBSCRIBE_REQUEST | MessageId::EVENT_UNSUBSCRIBE_REQUEST
                if self.config.user_answers_subscriptions =>
            {
                None
            }
            MessageId::EVENT_SUBSCRIBE_REQUEST => Some(self.update_subscription(from, message, true)),
            MessageId::EVENT_UNSUBSCRIBE_REQUEST => Some(self.update_subscription(from, message, false)),
            MessageId::GET_INFORMATION_REQUEST => {
                let store = self.config.information.as_ref()?;
                Some(store.response_parameters(message))
            }
            _ => None,
        }
    }

    fn register_mih_peer(&mut self, now: Instant, peer: u32, from: &MihfId) -> Vec<Tlv> {
        let seconds = u32::try_from(self.config.registration.as_secs()).unwrap_or(u32::MAX);
        let until = now + Duration::from_secs(seconds.into());
        if !self.peers.register(peer, until, self.config.max_registered) {
            self.counters.registrations_refused += 1;
            return alloc::vec![Tlv::Status(Status::Rejected), Tlv::ValidTimeInterval(0)];
        }
        self.net.outputs.push_event(MihfEvent::Registered { peer: from.clone() });
        alloc::vec![Tlv::Status(Status::Success), Tlv::ValidTimeInterval(seconds)]
    }

    /// Begins or ends a subscription. Events that this function does not have are not granted.
    fn update_subscription(&mut self, from: &MihfId, message: &MihfMessage, on: bool) -> Vec<Tlv> {
        let (Some(Tlv::LinkIdentifier(link)), Some(Tlv::EventList(asked))) =
            (message.get(kind::LINK_IDENTIFIER), message.get(kind::EVENT_LIST))
        else {
            return alloc::vec![Tlv::Status(Status::UnspecifiedFailure)];
        };
        let ours = self.config.capabilities.events;
        let events = if on && !ours.is_empty() { asked.common(ours) } else { *asked };
        let mut params = alloc::vec![Tlv::Status(Status::Success), Tlv::LinkIdentifier(link.clone())];
        if on && events.is_empty() {
            params[0] = Tlv::Status(Status::Rejected);
            return params;
        }
        params.push(Tlv::EventList(events));
        let (peer, link) = (from.clone(), link.clone());
        self.net.outputs.push_event(if on {
            let configs = match message.get(kind::EVENT_CONFIG_LIST) {
                Some(Tlv::EventConfigs(configs)) => configs.clone(),
                _ => Vec::new(),
            };
            MihfEvent::Subscribed { peer, link, events, configs }
        } else {
            MihfEvent::Unsubscribed { peer, link, events }
        });
        params
    }
}
