//! A deployment of an IKEv2 gateway: the machine of `usher ike serve` on a simulated host, and initiators with a shared
//! key.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_core::{Duration, Seed};
use usher_crypto::SecretValue;
use usher_gateway::{GatewayConfig, GatewayConnectionConfig, NAT_SOCKET, SOCKET};
use usher_ike::machine::{self, IkeConnectionConfig};
use usher_ike::payload::{Identification, Proposal};
use usher_load::IkeConfig;
use usher_runner::world::{HostAddress, MachineSockets};
use usher_sim::{AppContext, AppDelivery};

/// The initiators' address (RFC 5737).
pub(crate) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
/// IKE's two ports.
const PORTS: [u16; 2] = [500, 4500];
const NAME: &str = "gateway.plan.example";
const KEY: &[u8] = b"a key of the plan's own";
/// The proposal of IKE_SAs. A profile includes the cost of the key exchange that it was measured with.
const PROPOSAL: &str = "aes128-sha256-x25519";
/// Number of initiators that take turns.
const INITIATORS: usize = 1000;

fn ike_proposals() -> Result<Vec<Proposal>, String> {
    Ok(vec![Proposal::parse_ike_proposal(PROPOSAL).map_err(|e| e.to_string())?])
}

/// The gateway on its host. It shares one key with all initiators, and creates IKE_SAs without a CHILD_SA.
pub(crate) struct GatewayHost {
    endpoint: MachineSockets,
    gateway: usher_gateway::IkeGateway,
}

impl GatewayHost {
    /// Creates the gateway, and its sockets with their ports.
    pub(crate) fn new(
        at: HostAddress,
        address: IpAddr,
        seed: Seed,
    ) -> Result<(Self, [(u32, u16); 2]), String> {
        let own = Identification::from_fqdn(NAME);
        let shared = IkeConnectionConfig::shared_key("plan", own, &SecretValue::from(KEY), ike_proposals()?);
        let connection = IkeConnectionConfig { fragmentation: true, ..shared };
        // All initiators share one address here.
        let allowed = machine::IkeEndpointConfig {
            cookies_from: 100,
            cookies_from_network: usize::MAX,
            ..machine::IkeEndpointConfig::default()
        };
        let config = GatewayConfig::for_peer(
            allowed,
            GatewayConnectionConfig::responder_only(connection, SocketAddr::new(address, PORTS[0])),
        );
        let gateway = usher_gateway::IkeGateway::new(config, seed.derive_secure_rng("ike.start", 0))
            .map_err(|e| e.to_string())?;
        let mut endpoint = MachineSockets::new(at);
        let sockets =
            [(endpoint.socket_number(SOCKET), PORTS[0]), (endpoint.socket_number(NAT_SOCKET), PORTS[1])];
        Ok((Self { endpoint, gateway }, sockets))
    }

    pub(crate) fn handle_delivery<R>(&mut self, ctx: &mut AppContext<'_, R>, delivery: &AppDelivery) {
        self.endpoint.deliver_to_machine(ctx, &mut self.gateway, delivery);
        // With a shared key there are no jobs for signatures or AAA.
        self.endpoint.drain_outputs(ctx, &mut self.gateway, |_, _, _| {});
    }
}

/// Returns the configuration of the initiators.
pub(crate) fn initiator_config(gateway: IpAddr) -> Result<IkeConfig, String> {
    Ok(IkeConfig {
        logins: vec![usher_load::IkeLogin::Psk],
        gateway_auth: usher_load::IkeGatewayAuth::Psk,
        anonymous: None,
        address: SocketAddr::new(gateway, PORTS[0]),
        local: SocketAddr::new(CLIENT, 0),
        gateway: Identification::from_fqdn(NAME),
        identity: "node@plan.example".to_owned(),
        initiators: INITIATORS,
        first: 0,
        secret: SecretValue::from(KEY),
        proposals: ike_proposals()?,
        keeps_sa: false,
        probes: 0,
        retransmission: Duration::from_secs(2),
        retransmissions: 3,
    })
}
