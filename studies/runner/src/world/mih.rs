//! The MIH workload: mobile nodes and points of service that exchange messages of IEEE 802.21.

mod node;
mod payload;
mod settings;

pub(super) use settings::{function_config, member_identifier};

use super::arrivals::{ArrivalPattern, ArrivalProcess};
use super::error::ScenarioRunError;
use super::machine::MachineSockets;
use super::plan::NetworkPlan;
use super::topology::NetworkTopology;
use node::{MessageTarget, MihFunctionRole};
use payload::TransactionPayload;
use usher_core::SocketId;
use usher_mih::{
    BinaryQuery, HandoverStatus, LinkId, LinkParam, LinkParamReport, LinkParamType, LinkParamValue,
    LinkPoaList, LinkStatus, LinkStatusRequest, LinkTupleId, LinkType, MessageId, Mihf, MihfId, MihfMessage,
    PORT, RegisterCode, Status, Tlv,
};
use usher_scenario::model::{MihMessage, MihWorkload, TransportProtocol};
use usher_sim::HostId;

/// Places the workload's roles on the topology's hosts.
pub(super) fn build_mih_roles(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
    mih: &MihWorkload,
) -> Result<(), ScenarioRunError> {
    let function = mih.mih_function();
    let stations = topology.host_group(&mih.mn)?;
    let points = topology.host_group(&mih.pos)?;
    let size = mih.size.bytes() as usize;
    let response_size = mih.response_size.map_or(size, |size| size.bytes() as usize);
    let padded = |message: MihfMessage, size: usize, from: &MihfId, to: &MihfId| {
        message.with_padding_to_length(size, from, to).map_err(|e| ScenarioRunError::Role(e.to_string()))
    };
    let sized = |message: MihfMessage, from: &MihfId, to: &MihfId| padded(message, size, from, to);
    let response =
        |message: MihfMessage, from: &MihfId, to: &MihfId| padded(message, response_size, from, to);
    let node = |plan: &NetworkPlan<'_>, host: HostId, id: &MihfId| {
        let mut endpoint = MachineSockets::new(plan.host_address(host));
        // Number the host's first socket, which is bound if messages go by UDP.
        endpoint.socket_number(SocketId::from_number(0));
        let chance = plan.seed.derive_rng("mih", u64::from(host.0));
        let mihf = Mihf::new(settings::function_config(id.clone(), function), chance);
        MihFunctionRole::new(endpoint, mihf, mih.processing.get())
    };
    let mn_ids =
        (0..stations.len()).map(|i| settings::member_identifier("mn", i)).collect::<Result<Vec<_>, _>>()?;
    let pos_ids =
        (0..points.len()).map(|i| settings::member_identifier("pos", i)).collect::<Result<Vec<_>, _>>()?;
    let mut at_points: Vec<MihFunctionRole> =
        points.iter().zip(&pos_ids).map(|(host, id)| node(plan, *host, id)).collect();
    let pattern = ArrivalPattern::new(&mih.arrivals, stations.len() as u64, plan.end);
    for (i, (&host, mn)) in stations.iter().zip(&mn_ids).enumerate() {
        let at = i % points.len();
        let pos = &pos_ids[at];
        let place = plan.host_address(host);
        let link = LinkId::from_mac(LinkType::Ieee80211, host.mac_address(0));
        let arrivals = ArrivalProcess::new(&pattern, i as u64, plan.seed.derive_rng("arrivals", i as u64));
        let mut station = node(plan, host, mn);
        station.add_peer(
            settings::function_peer(pos.clone(), &place, points[at], function),
            Some(register_request(&link)),
        );
        at_points[at].add_peer(settings::function_peer(mn.clone(), &place, host, function), None);
        match mih.message {
            MihMessage::Indication => {
                let message = sized(parameters_report(&link), mn, pos)?;
                station.add_message_target(MessageTarget { id: pos.clone(), message, arrivals });
            }
            MihMessage::Request => {
                let message = sized(parameters_request(&link), pos, mn)?;
                at_points[at].add_message_target(MessageTarget { id: mn.clone(), message, arrivals });
                station.add_prepared_response(pos.clone(), response(parameters_response(&link), mn, pos)?);
            }
            MihMessage::CandidateQuery => {
                let message = sized(query_candidates(&link), pos, mn)?;
                at_points[at].add_message_target(MessageTarget { id: mn.clone(), message, arrivals });
                station.add_prepared_response(pos.clone(), response(candidates_response(&link), mn, pos)?);
            }
            MihMessage::Information => {
                let message = sized(query_networks(), mn, pos)?;
                station.add_message_target(MessageTarget { id: pos.clone(), message, arrivals });
                at_points[at].add_prepared_response(mn.clone(), response(networks_response(), pos, mn)?);
            }
            MihMessage::Registration => {
                let message = sized(register_request(&link), mn, pos)?;
                station.add_message_target(MessageTarget { id: pos.clone(), message, arrivals });
            }
        }
        let app = place_mih_node(plan, host, station, mih.transport)?;
        plan.builder.link_events(app, host);
    }
    for (&host, role) in points.iter().zip(at_points) {
        place_mih_node(plan, host, role, mih.transport)?;
    }
    Ok(())
}

fn place_mih_node(
    plan: &mut NetworkPlan<'_>,
    host: HostId,
    role: MihFunctionRole,
    transport: TransportProtocol,
) -> Result<u32, ScenarioRunError> {
    let app = plan.add_role(host, role);
    plan.builder.open_port_at(app, transport, 0, (host, PORT))?;
    Ok(app)
}

/// Registers a mobile node with its point of service.
fn register_request(link: &LinkId) -> MihfMessage {
    let params = [Tlv::LinkIdentifierList(vec![link.clone()]), Tlv::RegisterCode(RegisterCode::Register)];
    MihfMessage::new(MessageId::REGISTER_REQUEST, params)
}

fn data_rate_param() -> LinkParam {
    LinkParam { kind: LinkParamType::DATA_RATE, value: LinkParamValue::Number(11_000) }
}

/// An indication of the workload: a periodic report of a link's parameters.
fn parameters_report(link: &LinkId) -> MihfMessage {
    let link = LinkTupleId { link: link.clone(), poa: None };
    let report = LinkParamReport { param: data_rate_param(), threshold: None };
    let params = [
        Tlv::LinkIdentifier(link),
        Tlv::LinkParameterReports(vec![report]),
        TransactionPayload::placeholder(),
    ];
    MihfMessage::new(MessageId::LINK_PARAMETERS_REPORT_INDICATION, params)
}

/// A request of the workload for a link's parameters.
fn parameters_request(link: &LinkId) -> MihfMessage {
    let wanted = LinkStatusRequest {
        states: Default::default(),
        params: vec![LinkParamType::DATA_RATE],
        descriptors: Default::default(),
    };
    let params = [
        Tlv::LinkIdentifierList(vec![link.clone()]),
        Tlv::StatusRequest(wanted),
        TransactionPayload::placeholder(),
    ];
    MihfMessage::new(MessageId::LINK_GET_PARAMETERS_REQUEST, params)
}

/// The response to [`parameters_request`].
fn parameters_response(link: &LinkId) -> MihfMessage {
    let status = LinkStatus {
        link: link.clone(),
        states: vec![],
        params: vec![data_rate_param()],
        descriptors: vec![],
    };
    let params =
        [Tlv::Status(Status::Success), Tlv::StatusResponses(vec![status]), TransactionPayload::placeholder()];
    MihfMessage::new(MessageId::LINK_GET_PARAMETERS_RESPONSE, params)
}

/// Queries candidates for a handover of the mobile node.
fn query_candidates(link: &LinkId) -> MihfMessage {
    let list = LinkPoaList { link: link.clone(), poas: vec![] };
    let params =
        [Tlv::LinkPoaLists(vec![list]), Tlv::QueryResourceReport(false), TransactionPayload::placeholder()];
    MihfMessage::new(MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, params)
}

/// The response: the mobile node stays.
fn candidates_response(link: &LinkId) -> MihfMessage {
    let link = LinkTupleId { link: link.clone(), poa: None };
    let params = [
        Tlv::Status(Status::Success),
        Tlv::LinkIdentifier(link),
        Tlv::HandoverStatus(HandoverStatus::Declined),
        TransactionPayload::placeholder(),
    ];
    MihfMessage::new(MessageId::NET_HO_CANDIDATE_QUERY_RESPONSE, params)
}

/// Queries the available networks.
fn query_networks() -> MihfMessage {
    MihfMessage::new(
        MessageId::GET_INFORMATION_REQUEST,
        [Tlv::Queries(vec![BinaryQuery::default()]), TransactionPayload::placeholder()],
    )
}

/// The response: its padding stands for the networks.
fn networks_response() -> MihfMessage {
    MihfMessage::new(
        MessageId::GET_INFORMATION_RESPONSE,
        [Tlv::Status(Status::Success), TransactionPayload::placeholder()],
    )
}
