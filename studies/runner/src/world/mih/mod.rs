//! The MIH workload: mobile nodes and points of service that exchange messages of IEEE 802.21.

mod node;
mod payload;
mod settings;

pub(super) use settings::{config, identifier};

use super::arrivals::{ArrivalProcess, Pattern};
use super::error::WorldError;
use super::machine::Endpoint;
use super::plan::Plan;
use super::topology::Topology;
use node::{NodeRole, Target};
use payload::Payload;
use usher_core::SocketId;
use usher_mih::{
    HandoverStatus, LinkId, LinkParam, LinkParamReport, LinkParamType, LinkParamValue, LinkPoaList,
    LinkStatus, LinkStatusRequest, LinkTupleId, LinkType, Message, MessageId, Mihf, MihfId, PORT, Query,
    RegisterCode, Status, Tlv,
};
use usher_scenario::model::{Mih, MihMessage, TransportProtocol};
use usher_sim::HostId;

/// Puts the workload's roles on the topology's hosts.
pub(super) fn build(plan: &mut Plan<'_>, topology: &Topology, mih: &Mih) -> Result<(), WorldError> {
    let function = mih.function();
    let stations = topology.group(&mih.mn)?;
    let points = topology.group(&mih.pos)?;
    let size = mih.size.bytes() as usize;
    let response_size = mih.response_size.map_or(size, |size| size.bytes() as usize);
    let padded = |message: Message, size: usize, from: &MihfId, to: &MihfId| {
        message.padded_to(size, from, to).map_err(|e| WorldError::Role(e.to_string()))
    };
    let sized = |message: Message, from: &MihfId, to: &MihfId| padded(message, size, from, to);
    let response = |message: Message, from: &MihfId, to: &MihfId| padded(message, response_size, from, to);
    let node = |plan: &Plan<'_>, host: HostId, id: &MihfId| {
        let mut endpoint = Endpoint::new(plan.at(host));
        // The first, which is bound where messages go by UDP.
        endpoint.socket(SocketId::own(0));
        let chance = plan.seed.stream("mih", u64::from(host.0));
        let mihf = Mihf::new(settings::config(id.clone(), function), chance);
        NodeRole::new(endpoint, mihf, mih.processing.get())
    };
    let mn_ids = (0..stations.len()).map(|i| settings::identifier("mn", i)).collect::<Result<Vec<_>, _>>()?;
    let pos_ids = (0..points.len()).map(|i| settings::identifier("pos", i)).collect::<Result<Vec<_>, _>>()?;
    let mut at_points: Vec<NodeRole> =
        points.iter().zip(&pos_ids).map(|(host, id)| node(plan, *host, id)).collect();
    let pattern = Pattern::new(&mih.arrivals, stations.len() as u64, plan.end);
    for (i, (&host, mn)) in stations.iter().zip(&mn_ids).enumerate() {
        let at = i % points.len();
        let pos = &pos_ids[at];
        let place = plan.at(host);
        let link = LinkId::mac(LinkType::Ieee80211, host.mac(0));
        let arrivals = ArrivalProcess::new(&pattern, i as u64, plan.seed.stream("arrivals", i as u64));
        let mut station = node(plan, host, mn);
        station.knows(settings::peer(pos.clone(), &place, points[at], function), Some(register(&link)));
        at_points[at].knows(settings::peer(mn.clone(), &place, host, function), None);
        match mih.message {
            MihMessage::Indication => {
                let message = sized(report(&link), mn, pos)?;
                station.sends(Target { id: pos.clone(), message, arrivals });
            }
            MihMessage::Request => {
                let message = sized(ask(&link), pos, mn)?;
                at_points[at].sends(Target { id: mn.clone(), message, arrivals });
                station.answers(pos.clone(), response(answer(&link), mn, pos)?);
            }
            MihMessage::CandidateQuery => {
                let message = sized(query_candidates(&link), pos, mn)?;
                at_points[at].sends(Target { id: mn.clone(), message, arrivals });
                station.answers(pos.clone(), response(candidates(&link), mn, pos)?);
            }
            MihMessage::Information => {
                let message = sized(query_networks(), mn, pos)?;
                station.sends(Target { id: pos.clone(), message, arrivals });
                at_points[at].answers(mn.clone(), response(networks(), pos, mn)?);
            }
            MihMessage::Registration => {
                let message = sized(register(&link), mn, pos)?;
                station.sends(Target { id: pos.clone(), message, arrivals });
            }
        }
        let app = put(plan, host, station, mih.transport)?;
        plan.builder.link_events(app, host);
    }
    for (&host, role) in points.iter().zip(at_points) {
        put(plan, host, role, mih.transport)?;
    }
    Ok(())
}

fn put(
    plan: &mut Plan<'_>,
    host: HostId,
    role: NodeRole,
    transport: TransportProtocol,
) -> Result<u32, WorldError> {
    let app = plan.role(host, role);
    plan.builder.serve_at(app, transport, 0, (host, PORT))?;
    Ok(app)
}

/// A mobile node makes itself known to its point of service.
fn register(link: &LinkId) -> Message {
    let params = [Tlv::LinkIdentifierList(vec![link.clone()]), Tlv::RegisterCode(RegisterCode::Register)];
    Message::new(MessageId::REGISTER_REQUEST, params)
}

fn rate() -> LinkParam {
    LinkParam { kind: LinkParamType::DATA_RATE, value: LinkParamValue::Number(11_000) }
}

/// An indication of the workload: a periodic report of a link's parameters.
fn report(link: &LinkId) -> Message {
    let link = LinkTupleId { link: link.clone(), poa: None };
    let report = LinkParamReport { param: rate(), threshold: None };
    let params = [Tlv::LinkIdentifier(link), Tlv::LinkParameterReports(vec![report]), Payload::place()];
    Message::new(MessageId::LINK_PARAMETERS_REPORT_INDICATION, params)
}

/// A request of the workload: for a link's parameters.
fn ask(link: &LinkId) -> Message {
    let wanted = LinkStatusRequest {
        states: Default::default(),
        params: vec![LinkParamType::DATA_RATE],
        descriptors: Default::default(),
    };
    let params = [Tlv::LinkIdentifierList(vec![link.clone()]), Tlv::StatusRequest(wanted), Payload::place()];
    Message::new(MessageId::LINK_GET_PARAMETERS_REQUEST, params)
}

/// Its response.
fn answer(link: &LinkId) -> Message {
    let status = LinkStatus { link: link.clone(), states: vec![], params: vec![rate()], descriptors: vec![] };
    let params = [Tlv::Status(Status::Success), Tlv::StatusResponses(vec![status]), Payload::place()];
    Message::new(MessageId::LINK_GET_PARAMETERS_RESPONSE, params)
}

/// Could the mobile node go to another link?
fn query_candidates(link: &LinkId) -> Message {
    let list = LinkPoaList { link: link.clone(), poas: vec![] };
    let params = [Tlv::LinkPoaLists(vec![list]), Tlv::QueryResourceReport(false), Payload::place()];
    Message::new(MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, params)
}

/// It stays where it is.
fn candidates(link: &LinkId) -> Message {
    let link = LinkTupleId { link: link.clone(), poa: None };
    let params = [
        Tlv::Status(Status::Success),
        Tlv::LinkIdentifier(link),
        Tlv::HandoverStatus(HandoverStatus::Declined),
        Payload::place(),
    ];
    Message::new(MessageId::NET_HO_CANDIDATE_QUERY_RESPONSE, params)
}

/// Which networks are there?
fn query_networks() -> Message {
    Message::new(MessageId::GET_INFORMATION_REQUEST, [Tlv::Queries(vec![Query::default()]), Payload::place()])
}

/// The networks; what they are is in the padding.
fn networks() -> Message {
    Message::new(MessageId::GET_INFORMATION_RESPONSE, [Tlv::Status(Status::Success), Payload::place()])
}
