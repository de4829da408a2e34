//! The messages of both flows, written and parsed. Optional parameters that the study does not mention are left out.

use alloc::vec;
use usher_core::Duration;
use usher_mih::{
    EventList, HandoverCause, HandoverResult, HandoverStatus, LinkAction, LinkActionAttributes,
    LinkActionType, LinkAddr, LinkGoingDownReason, LinkId, LinkPoaList, LinkTupleId, LinkType, MessageId,
    MihfId, MihfMessage, Opcode, PreferredLink, QosList, RegisterCode, RequestedResources, Status,
    TargetNetwork, Tlv,
};

/// Returns the candidate of a link: its interface and point of attachment.
fn poa_list_of_link(link: &LinkTupleId) -> LinkPoaList {
    LinkPoaList { link: link.link.clone(), poas: link.poa.clone().into_iter().collect() }
}

/// Returns the target network of a link.
fn target_network(link: &LinkTupleId) -> TargetNetwork {
    TargetNetwork::Poa(link.poa.clone().unwrap_or_else(|| link.link.address.clone()))
}

/// MIH_Register request of a station with these interfaces.
pub(crate) fn register_request(links: [&LinkTupleId; 2]) -> MihfMessage {
    let interfaces = links.map(|link| link.link.clone()).to_vec();
    let params = vec![Tlv::LinkIdentifierList(interfaces), Tlv::RegisterCode(RegisterCode::Register)];
    MihfMessage::new(MessageId::REGISTER_REQUEST, params)
}

/// MIH_Event_Subscribe request for Link_Going_Down of a link.
pub(crate) fn subscribe_request(link: &LinkTupleId) -> MihfMessage {
    let params = vec![Tlv::LinkIdentifier(link.clone()), Tlv::EventList(EventList::LINK_GOING_DOWN)];
    MihfMessage::new(MessageId::EVENT_SUBSCRIBE_REQUEST, params)
}

/// MIH_Link_Going_Down indication. The prediction is limited to the parameter's range.
pub(crate) fn going_down(link: &LinkTupleId, within: Duration) -> MihfMessage {
    let milliseconds = u16::try_from(within.as_millis()).unwrap_or(u16::MAX);
    let params = vec![
        Tlv::LinkIdentifier(link.clone()),
        Tlv::TimeInterval(milliseconds),
        Tlv::LinkGoingDownReason(LinkGoingDownReason::ParameterDegrading),
    ];
    MihfMessage::new(MessageId::LINK_GOING_DOWN_INDICATION, params)
}

/// MIH_MN_HO_Candidate_Query request: from the serving to the target link.
pub(crate) fn mn_candidate_query_request(serving: &LinkTupleId, target: &LinkTupleId) -> MihfMessage {
    let params =
        vec![Tlv::LinkIdentifier(serving.clone()), Tlv::LinkPoaLists(vec![poa_list_of_link(target)])];
    MihfMessage::new(MessageId::MN_HO_CANDIDATE_QUERY_REQUEST, params)
}

/// MIH_MN_HO_Commit request to the target link.
pub(crate) fn mn_commit_request(target: &LinkTupleId) -> MihfMessage {
    let params = vec![Tlv::LinkType(target.link.technology), Tlv::TargetNetwork(target_network(target))];
    MihfMessage::new(MessageId::MN_HO_COMMIT_REQUEST, params)
}

/// MIH_MN_HO_Complete request: a successful handover from the serving to the target link.
pub(crate) fn mn_complete_request(serving: &LinkTupleId, target: &LinkTupleId) -> MihfMessage {
    let params = vec![
        Tlv::LinkIdentifier(serving.clone()),
        Tlv::NewLinkIdentifier(target.clone()),
        Tlv::HandoverResult(HandoverResult::Success),
    ];
    MihfMessage::new(MessageId::MN_HO_COMPLETE_REQUEST, params)
}

/// MIH_Net_HO_Candidate_Query response with the station's preferred link. Without a target it declines.
pub(crate) fn net_candidate_query_response(
    serving: &LinkTupleId,
    target: Option<&LinkTupleId>,
) -> MihfMessage {
    let status = if target.is_some() { HandoverStatus::Permitted } else { HandoverStatus::Declined };
    let mut params =
        vec![Tlv::Status(Status::Success), Tlv::LinkIdentifier(serving.clone()), Tlv::HandoverStatus(status)];
    if let Some(target) = target {
        params.push(Tlv::PreferredLinks(vec![PreferredLink::new(poa_list_of_link(target))]));
    }
    MihfMessage::new(MessageId::NET_HO_CANDIDATE_QUERY_RESPONSE, params)
}

/// MIH_Net_HO_Commit response: success.
pub(crate) fn net_commit_response(target: &LinkTupleId) -> MihfMessage {
    let params = vec![
        Tlv::Status(Status::Success),
        Tlv::LinkType(target.link.technology),
        Tlv::TargetNetwork(target_network(target)),
    ];
    MihfMessage::new(MessageId::NET_HO_COMMIT_RESPONSE, params)
}

/// Returns a station's link to a target network, as the serving network names it. The serving network knows the
/// station's serving interface and the target's point of attachment, but not the station's target interface.
pub(crate) fn target_link(station: &LinkTupleId, technology: LinkType, poa: &LinkAddr) -> LinkTupleId {
    LinkTupleId { link: LinkId { technology, address: station.link.address.clone() }, poa: Some(poa.clone()) }
}

/// MIH_N2N_HO_Query_Resources request for a station.
pub(crate) fn query_resources_request(station: &MihfId, target: &LinkTupleId) -> MihfMessage {
    let params = vec![
        Tlv::ResourceQuery(QosList::default()),
        Tlv::MnMihfId(station.clone()),
        Tlv::LinkPoaLists(vec![poa_list_of_link(target)]),
    ];
    MihfMessage::new(MessageId::N2N_HO_QUERY_RESOURCES_REQUEST, params)
}

/// MIH_N2N_HO_Query_Resources response.
pub(crate) fn query_resources_response(there: bool) -> MihfMessage {
    let status = if there { Status::Success } else { Status::Rejected };
    let params = vec![Tlv::Status(status), Tlv::ResourceStatus(there)];
    MihfMessage::new(MessageId::N2N_HO_QUERY_RESOURCES_RESPONSE, params)
}

/// MIH_MN_HO_Candidate_Query response: the target has resources.
pub(crate) fn mn_candidate_query_response(serving: &LinkTupleId, target: &LinkTupleId) -> MihfMessage {
    let params = vec![
        Tlv::Status(Status::Success),
        Tlv::LinkIdentifier(serving.clone()),
        Tlv::PreferredLinks(vec![PreferredLink::new(poa_list_of_link(target))]),
    ];
    MihfMessage::new(MessageId::MN_HO_CANDIDATE_QUERY_RESPONSE, params)
}

/// MIH_N2N_HO_Commit request for a station.
pub(crate) fn n2n_commit_request(station: &MihfId, target: &LinkTupleId) -> MihfMessage {
    let resources = RequestedResources {
        qos: QosList::default(),
        container: usher_mih::TspContainer::None,
        cause: HandoverCause::NoBroadcast,
    };
    let params = vec![
        Tlv::MnMihfId(station.clone()),
        Tlv::MnLinkIdentifier(target.link.clone()),
        Tlv::Poa(target.poa.clone().unwrap_or_else(|| target.link.address.clone())),
        Tlv::RequestedResources(resources),
    ];
    MihfMessage::new(MessageId::N2N_HO_COMMIT_REQUEST, params)
}

/// MIH_MN_HO_Commit response: success.
pub(crate) fn mn_commit_response(target: &LinkTupleId) -> MihfMessage {
    let params = vec![
        Tlv::Status(Status::Success),
        Tlv::LinkType(target.link.technology),
        Tlv::TargetNetwork(target_network(target)),
    ];
    MihfMessage::new(MessageId::MN_HO_COMMIT_RESPONSE, params)
}

/// MIH_Net_HO_Candidate_Query request for the target link.
pub(crate) fn net_candidate_query_request(target: &LinkTupleId) -> MihfMessage {
    let params = vec![Tlv::LinkPoaLists(vec![poa_list_of_link(target)]), Tlv::QueryResourceReport(false)];
    MihfMessage::new(MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, params)
}

/// MIH_Net_HO_Commit request to the target link.
pub(crate) fn net_commit_request(target: &LinkTupleId) -> MihfMessage {
    let action = LinkAction {
        link: target.link.clone(),
        poa: target.poa.clone(),
        action: LinkActionType::PowerUp,
        attributes: LinkActionAttributes::default(),
        delay: 0,
    };
    let params = vec![
        Tlv::LinkType(target.link.technology),
        Tlv::TargetNetworks(vec![target_network(target)]),
        Tlv::LinkActions(vec![action]),
    ];
    MihfMessage::new(MessageId::NET_HO_COMMIT_REQUEST, params)
}

/// MIH_N2N_HO_Complete request with the content of the station's MIH_MN_HO_Complete request.
pub(crate) fn n2n_complete_request(station: &MihfId, complete: &MihfMessage) -> MihfMessage {
    let mut params = vec![Tlv::MnMihfId(station.clone())];
    params.extend(complete.params.iter().cloned());
    MihfMessage::new(MessageId::N2N_HO_COMPLETE_REQUEST, params)
}

/// A response with only a status.
pub(crate) fn status_response(request: MessageId, status: Status) -> MihfMessage {
    MihfMessage::new(MessageId { opcode: Opcode::Response, ..request }, vec![Tlv::Status(status)])
}

/// True if the handover can continue: the status is success, resources are there, and the handover is permitted.
pub(crate) fn is_handover_granted(response: &MihfMessage) -> bool {
    response.status() == Some(Status::Success)
        && response.params.iter().all(|param| {
            !matches!(param, Tlv::HandoverStatus(HandoverStatus::Declined) | Tlv::ResourceStatus(false))
        })
}

/// Returns the station of a message between networks.
pub(crate) fn station_id(message: &MihfMessage) -> Option<&MihfId> {
    message.params.iter().find_map(|param| if let Tlv::MnMihfId(id) = param { Some(id) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_mih::{HeaderFlags, TransactionId};

    fn test_link(technology: LinkType) -> LinkTupleId {
        let poa = Some(LinkAddr::Mac([2, 0, 0, 0, 1, 1]));
        LinkTupleId { link: LinkId::from_mac(technology, [2, 0, 0, 0, 1, 2]), poa }
    }
    fn mihf_id(name: &str) -> MihfId {
        MihfId::new(name).unwrap()
    }

    /// Each message has its mandatory parameters and decodes to itself.
    #[test]
    fn messages_are_whole() {
        let (from, to, mn) = (test_link(LinkType::Ieee80211), test_link(LinkType::Ieee80216), mihf_id("mn"));
        let complete = mn_complete_request(&from, &to);
        let all = [
            register_request([&from, &to]),
            subscribe_request(&from),
            going_down(&from, Duration::from_secs(9)),
            mn_candidate_query_request(&from, &to),
            mn_candidate_query_response(&from, &to),
            mn_commit_request(&to),
            mn_commit_response(&to),
            n2n_complete_request(&mn, &complete),
            complete,
            net_candidate_query_request(&to),
            net_candidate_query_response(&from, Some(&to)),
            net_candidate_query_response(&from, None),
            net_commit_request(&to),
            net_commit_response(&to),
            query_resources_request(&mn, &to),
            query_resources_response(true),
            query_resources_response(false),
            n2n_commit_request(&mn, &to),
            status_response(MessageId::N2N_HO_COMMIT_REQUEST, Status::Success),
            status_response(MessageId::MN_HO_COMMIT_REQUEST, Status::Rejected),
            status_response(MessageId::MN_HO_COMPLETE_REQUEST, Status::Success),
            status_response(MessageId::N2N_HO_COMPLETE_REQUEST, Status::Success),
        ];
        for message in all {
            let mut octets = Vec::new();
            message
                .encode(HeaderFlags::default(), TransactionId::new(1), &mn, &mihf_id("pos"), &mut octets)
                .unwrap();
            let decoded = MihfMessage::decode(&octets).unwrap_or_else(|e| panic!("{message}: {e}"));
            assert_eq!(decoded.message, message);
        }
    }

    #[test]
    fn things_go_on_by_success_alone() {
        let (from, to) = (test_link(LinkType::Ieee80211), test_link(LinkType::Ieee80216));
        for granted in [
            mn_candidate_query_response(&from, &to),
            query_resources_response(true),
            net_candidate_query_response(&from, Some(&to)),
        ] {
            assert!(is_handover_granted(&granted), "{granted}");
        }
        let denied = status_response(MessageId::MN_HO_COMMIT_REQUEST, Status::NetworkError);
        for refused in [
            denied,
            query_resources_response(false),
            net_candidate_query_response(&from, None),
            mn_commit_request(&to),
        ] {
            assert!(!is_handover_granted(&refused), "{refused}");
        }
    }

    /// The parameter's 16 bits hold about a minute of milliseconds.
    #[test]
    fn a_forecast_is_cut_to_what_can_be_said() {
        for (within, said) in [(9_000, 9_000), (65_535, 65_535), (100_000, 65_535)] {
            let message = going_down(&test_link(LinkType::Ieee80211), Duration::from_millis(within));
            assert!(message.params.contains(&Tlv::TimeInterval(said)), "{message}");
        }
    }
}
