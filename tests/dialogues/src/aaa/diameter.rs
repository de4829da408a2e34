//! The access server that speaks Diameter: it sends the same requests as AVPs (RFC 4072, RFC 7155, RFC 6733 §9).

use super::wire::{self, DIAMETER, NUMBER, SentRequest};
use super::world::AaaTestNetwork;
use crate::InvariantBreach;
use std::net::{IpAddr, SocketAddr};
use usher_aaa::DIAMETER_LISTENER;
use usher_core::{
    CloseReason, ConnId, Instant, Machine, MachineInput, MachineOutput, Seed, StreamEvent, StreamOp, Transmit,
};
use usher_diameter::ResultCode;
use usher_diameter::accounting::{AccountingRecordType, AccountingRequest};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application};
use usher_diameter::eap::DiameterEapRequest;
use usher_diameter::nasreq::{AaRequest, AuthRequestType, ChapAuth, NasInfo};
use usher_diameter::node::{self, DiameterNode, DiameterNodeCommand, DiameterNodeEvent};
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;

const SERVER: &str = "aaa.example.org";
const CLIENT: &str = "nas.example.org";
const REALM: &str = "example.org";

fn diameter_applications() -> [DiameterApplication; 3] {
    [
        DiameterApplication::for_authentication(application::EAP),
        DiameterApplication::for_authentication(application::NASREQ),
        DiameterApplication::for_accounting(application::ACCOUNTING),
    ]
}

/// The server's Diameter node.
pub(super) fn diameter_server_config() -> node::DiameterNodeConfig {
    let mut config = node::DiameterNodeConfig::new(SERVER, REALM, &diameter_applications());
    config.local.addresses.push(wire::SERVER.into());
    config.accept_from(CLIENT)
}

/// The access server's Diameter node.
pub(super) fn client_node(now: Instant) -> DiameterNode {
    let mut config = node::DiameterNodeConfig::new(CLIENT, REALM, &diameter_applications());
    config.local.addresses.push(wire::access_server_address(DIAMETER).into());
    let server = SocketAddr::new(IpAddr::V4(wire::SERVER), 3868);
    DiameterNode::new(config.connect_to(SERVER, server), now, Seed::new(2).derive_secure_rng("diameter", 0))
}

/// Converts a request's attributes to a message. `password` is in clear. `None`: Diameter has no such request.
pub(super) fn build_message(
    token: u64,
    session: String,
    code: PacketCode,
    attributes: &AttributeList,
    password: Option<&str>,
) -> Option<node::DiameterRequest> {
    let address = attributes.get_ipv4(kind::NAS_IP_ADDRESS).map(IpAddr::V4);
    let nas = NasInfo {
        address,
        port: attributes.get_u32(kind::NAS_PORT),
        calling_station: attributes.get_text(kind::CALLING_STATION_ID),
        ..NasInfo::default()
    };
    let (user_name, state) = (attributes.get_text(kind::USER_NAME), attributes.get(kind::STATE));
    let (request_type, realm) = (AuthRequestType::AuthorizeAuthenticate, REALM.to_string());
    let mut eap = Vec::new();
    let mut request = if code == PacketCode::ACCOUNTING_REQUEST {
        let record_type = match attributes.get_u32(kind::ACCT_STATUS_TYPE)? {
            1 => AccountingRecordType::Start,
            2 => AccountingRecordType::Stop,
            3 => AccountingRecordType::Interim,
            _ => return None,
        };
        let acr = AccountingRequest {
            user_name,
            acct_session_id: attributes.get(kind::ACCT_SESSION_ID),
            framed_ip: attributes.get_ipv4(kind::FRAMED_IP_ADDRESS),
            class: attributes.get(kind::CLASS),
            nas,
            // Numbers distinguish the records of a session.
            ..AccountingRequest::new(record_type, token as u32)
        };
        acr.to_request(token, session, realm, None)
    } else if attributes.read_eap_packet(&mut eap) {
        DiameterEapRequest { request_type, eap: &eap, user_name, state, nas }
            .to_request(token, session, realm, None)
    } else {
        let challenge = attributes.get(kind::CHAP_CHALLENGE).unwrap_or_default();
        let chap = attributes.get(kind::CHAP_PASSWORD).and_then(|value| {
            let (&identifier, response) = value.split_first()?;
            Some(ChapAuth { identifier, response: response.try_into().ok()?, challenge })
        });
        if chap.is_none() && password.is_none() {
            return None;
        }
        let password = password.filter(|_| chap.is_none()).map(str::as_bytes);
        AaRequest { request_type, user_name, password, chap, state, nas }
            .to_request(token, session, realm, None)
    };
    if let Some(number) = attributes.get(NUMBER) {
        request.avps.push(codes::CONNECT_INFO, number);
    }
    Some(request)
}

/// Converts the AVPs that are RADIUS attributes.
fn attributes_from_avps(avps: &AvpBuf) -> AttributeList {
    let mut attributes = AttributeList::new();
    for avp in avps.as_sequence() {
        if let (0, Ok(kind)) = (avp.vendor, u8::try_from(avp.code)) {
            // Longer values do not fit into an attribute and are dropped.
            let _ = attributes.push_bytes(kind, avp.data);
        }
    }
    attributes
}

impl AaaTestNetwork {
    /// Carries the access server's Diameter traffic until it is idle.
    pub(super) fn carry_diameter(&mut self) -> Result<(), InvariantBreach> {
        let mut buf = Vec::new();
        while let Some(output) = self.diameter.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(Transmit::Stream { conn, op: StreamOp::Connect { remote, .. } }) => {
                    self.connections += 1;
                    let (listener, local, certificate) = (DIAMETER_LISTENER, None, None);
                    let from = SocketAddr::new(wire::access_server_address(DIAMETER).into(), 50_000);
                    let event = StreamEvent::Accepted { listener, remote: from, local, certificate };
                    let accepted = self.accepted_connection();
                    self.server.handle_input(self.now, MachineInput::Stream { conn: accepted, event });
                    let event = StreamEvent::Connected { remote, local, certificate };
                    self.connection = Some(conn);
                    self.diameter.handle_input(self.now, MachineInput::Stream { conn, event });
                }
                MachineOutput::Transmit(Transmit::Stream { op: StreamOp::Data, .. }) => {
                    let (conn, event) = (self.accepted_connection(), StreamEvent::Data(&buf));
                    self.server.handle_input(self.now, MachineInput::Stream { conn, event });
                }
                MachineOutput::Transmit(_) => self.disconnect_diameter(),
                MachineOutput::Event(DiameterNodeEvent::Answer { token, result, avps }) => {
                    self.diameter_answer(token, result, &avps)?
                }
                MachineOutput::Event(DiameterNodeEvent::Failed { .. }) => self.answered += 1,
                MachineOutput::Event(DiameterNodeEvent::PeerUp { .. }) => self.is_peer_up = true,
                MachineOutput::Event(DiameterNodeEvent::PeerDown { .. }) => self.is_peer_up = false,
                _ => {}
            }
        }
        Ok(())
    }
    /// Returns the server's id of the connection.
    pub(super) fn accepted_connection(&self) -> ConnId {
        ConnId::nth_accepted_at_listener(DIAMETER_LISTENER, self.connections)
    }
    /// Closes the connection. The access server reconnects by itself.
    pub(super) fn disconnect_diameter(&mut self) {
        if let Some(conn) = self.connection.take() {
            let accepted = self.accepted_connection();
            let event = || StreamEvent::Closed(CloseReason::Reset);
            self.server.handle_input(self.now, MachineInput::Stream { conn: accepted, event: event() });
            self.diameter.handle_input(self.now, MachineInput::Stream { conn, event: event() });
        }
    }
    /// Sends a request by Diameter, if there is a connection.
    pub(super) fn send_by_diameter(&mut self, number: usize) -> Result<(), InvariantBreach> {
        let message = self.sent.get(number).and_then(|SentRequest { message, .. }| message.clone());
        if let Some(message) = message.filter(|_| self.is_peer_up)
            && self.diameter.handle_command(self.now, DiameterNodeCommand::Request(message)).is_ok()
        {
            self.delivered_requests += 1;
            self.carry_diameter()?;
        }
        Ok(())
    }
    fn diameter_answer(
        &mut self,
        token: u64,
        result: ResultCode,
        avps: &AvpBuf,
    ) -> Result<(), InvariantBreach> {
        self.answered += 1;
        let mut attributes = attributes_from_avps(avps);
        let eap = [codes::EAP_PAYLOAD, codes::EAP_REISSUED_PAYLOAD].into_iter();
        let eap = eap.filter_map(|id| avps.as_sequence().get(id)).map(|avp| avp.data.to_vec()).next();
        if let Some(eap) = &eap {
            attributes.push_eap(eap);
        }
        let number = token as usize;
        let Some(sent) = self.sent.get(number) else {
            return Err(InvariantBreach("an answer to nothing that was asked".into()));
        };
        let code = match (sent.code, result) {
            (PacketCode::ACCOUNTING_REQUEST, ResultCode::SUCCESS) => PacketCode::ACCOUNTING_RESPONSE,
            (_, ResultCode::SUCCESS) => PacketCode::ACCESS_ACCEPT,
            (_, ResultCode::MULTI_ROUND_AUTH) => PacketCode::ACCESS_CHALLENGE,
            _ => PacketCode::ACCESS_REJECT,
        };
        self.replies.push((number, code, attributes));
        Ok(())
    }
}
