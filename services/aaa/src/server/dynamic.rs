//! The client of dynamic authorization (RFC 5176).

use super::DYNAMIC;
use super::api::{AaaServerEvent, DynamicAuthResult};
use super::context::ServerContext;
use super::fronts::ProtocolFrontends;
use core::net::SocketAddr;
use usher_core::{ChildMachine, CommandError, Instant, Machine, MachineInput, SecureRng};
use usher_radius::EventTimestampPolicy;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};
use usher_radius::packet::PacketCode;

/// Attributes that identify the access server and session (RFC 5176 §3) in a Disconnect-Request (§3.6).
const IDENTIFICATION: [u8; 12] = [
    kind::USER_NAME,
    kind::NAS_IP_ADDRESS,
    kind::NAS_PORT,
    kind::VENDOR_SPECIFIC,
    kind::CALLED_STATION_ID,
    kind::CALLING_STATION_ID,
    kind::NAS_IDENTIFIER,
    kind::ACCT_SESSION_ID,
    kind::ACCT_MULTI_SESSION_ID,
    kind::NAS_PORT_ID,
    kind::CHARGEABLE_USER_IDENTITY,
    kind::NAS_IPV6_ADDRESS,
];
/// Service-Type Authorize Only (RFC 5176 §3.2): the access server sends a new Access-Request.
const AUTHORIZE_ONLY: u32 = 17;

/// The client. It is created at the first request.
#[derive(Debug, Default)]
pub(super) struct DynamicAuthClient {
    client: Option<ChildMachine<RadiusClient>>,
}

impl DynamicAuthClient {
    /// Returns the client if it is in this slot.
    pub(super) fn client_in_slot(&mut self, slot: u16) -> Option<&mut ChildMachine<RadiusClient>> {
        self.client.as_mut().filter(|_| slot == DYNAMIC)
    }
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(client) = &mut self.client {
            client.handle_input(now, MachineInput::Timeout);
        }
    }
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        self.client.as_mut().and_then(|client| client.poll_timeout())
    }

    /// Sends a request to an access server.
    pub(super) fn send_request(
        &mut self,
        fronts: &mut ProtocolFrontends,
        (token, to): (u64, SocketAddr),
        code: PacketCode,
        mut attributes: AttributeList,
    ) -> Result<(), CommandError> {
        if !matches!(code, PacketCode::COA_REQUEST | PacketCode::DISCONNECT_REQUEST) {
            return Err(CommandError::Invalid(
                "an access server takes a CoA-Request or Disconnect-Request only",
            ));
        }
        let identifies = |kind| IDENTIFICATION.contains(&kind) || kind == kind::EVENT_TIMESTAMP;
        // RFC 5176, 3, 3.2: a Disconnect-Request only identifies its session.
        if code == PacketCode::DISCONNECT_REQUEST && !attributes.iter().all(|a| identifies(a.kind)) {
            return Err(CommandError::Invalid(
                "a Disconnect-Request contains only attributes that identify the session",
            ));
        }
        // RFC 5176, 3.2, 3.3: Authorize Only needs a State and an Access-Request after it: not supported.
        if attributes.get_u32(kind::SERVICE_TYPE) == Some(AUTHORIZE_ONLY) {
            return Err(CommandError::Invalid("Service-Type Authorize Only is not supported"));
        }
        let known = fronts.radius.as_ref().and_then(|s| s.find_datagram_client(to.ip()));
        let (_, known) =
            known.ok_or(CommandError::Invalid("the address belongs to no RADIUS client over UDP"))?;
        let server = ServerConfig::new(to, known.secret.clone());
        let full = |_| CommandError::Full("access servers for dynamic authorization");
        let (client, index) = match &mut self.client {
            Some(client) => {
                let index = client.add_server(server).map_err(full)?;
                (client, index)
            }
            none => {
                let freshness = Some(EventTimestampPolicy::default());
                let config = client::RadiusClientConfig {
                    freshness,
                    ..client::RadiusClientConfig::for_server(server)
                };
                let mut client =
                    RadiusClient::new(config, SecureRng::from_seed(fronts.ctx.rng.random_array()))
                        .map_err(full)?;
                client.set_epoch(fronts.ctx.now, fronts.ctx.epoch);
                (none.insert(ChildMachine::new(DYNAMIC, client)), 0)
            }
        };
        if attributes.get(kind::EVENT_TIMESTAMP).is_none() {
            // RFC 5176, 6.3: an access server recognises a replay by Event-Timestamp.
            attributes.push_u32(kind::EVENT_TIMESTAMP, fronts.ctx.wall_time().unix_secs() as u32);
        }
        let target = RequestTarget::Server(index);
        client.handle_command(
            fronts.ctx.now,
            client::RadiusClientCommand::Request { token, target, code, attributes },
        )
    }

    /// Handles the client's events. True if there were any.
    pub(super) fn drain_events(&mut self, ctx: &mut ServerContext) -> bool {
        let mut heard = false;
        while let Some(event) = self.client.as_mut().and_then(|client| ctx.outputs.next_event(client)) {
            heard = true;
            let (token, result) = match event {
                client::RadiusClientEvent::Response(r) => match r.code {
                    PacketCode::COA_ACK | PacketCode::DISCONNECT_ACK => (r.token, DynamicAuthResult::Ack),
                    _ => (r.token, DynamicAuthResult::Nak(r.attributes.get_u32(kind::ERROR_CAUSE))),
                },
                client::RadiusClientEvent::TimedOut { token } => (token, DynamicAuthResult::TimedOut),
                client::RadiusClientEvent::Server { .. } => continue,
            };
            ctx.outputs.push_event(AaaServerEvent::Dynamic { token, result });
        }
        heard
    }
}
