//! Retransmission times of the protocols, in virtual time.

use crate::{OracleFinding, VerificationOracle};
use usher_core::{Duration, Instant, Machine, MachineInput, MachineOutput, Seed, Transmit};
use usher_radius::attribute::kind;
use usher_radius::client::{
    RadiusClient, RadiusClientCommand, RadiusClientConfig, RadiusClientEvent, RequestTarget,
    RetransmissionPolicy, ServerConfig,
};
use usher_radius::{AttributeList, PacketCode, SharedSecret};

pub(crate) const ORACLES: &[VerificationOracle] = &[VerificationOracle {
    group: "timing",
    name: "rfc5080",
    description: "a RADIUS client without jitter and without replies: IRT 2 s, doubled up to MRT 16 s, at \
                  most MRC 5 times, given up after MRD 30 s",
    source: "RFC 5080 section 2.2.1",
    run: check_rfc5080,
}];

fn format_times(times: &[Instant]) -> String {
    let texts: Vec<String> = times.iter().map(|t| t.duration_since(Instant::ZERO).to_string()).collect();
    texts.join(", ")
}

fn check_rfc5080() -> Result<Vec<OracleFinding>, String> {
    let server = "10.0.0.2:1812".parse().map_err(|e| format!("{e}"))?;
    let mut config =
        RadiusClientConfig::for_server(ServerConfig::new(server, SharedSecret::new(b"sixteen octets!!")));
    config.retransmission = match RetransmissionPolicy::default() {
        RetransmissionPolicy::Backoff { initial, max, max_count, max_duration, .. } => {
            RetransmissionPolicy::Backoff { initial, max, max_count, max_duration, jitter: 0.0 }
        }
        fixed => fixed,
    };
    let mut client =
        RadiusClient::new(config, Seed::new(1).derive_secure_rng("client", 0)).map_err(|e| e.to_string())?;
    let mut attributes = AttributeList::new();
    attributes.push_text(kind::USER_NAME, "alice").map_err(|e| e.to_string())?;
    let request = RadiusClientCommand::Request {
        token: 1,
        target: RequestTarget::Server(0),
        code: PacketCode::ACCESS_REQUEST,
        attributes,
    };
    client.handle_command(Instant::ZERO, request).map_err(|e| e.to_string())?;
    let (mut now, mut sent, mut ended, mut buf) = (Instant::ZERO, Vec::new(), Vec::new(), Vec::new());
    // Stop after a day, because no retransmission schedule is longer.
    while now < Instant::ZERO + Duration::from_secs(86_400) {
        while let Some(output) = client.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(Transmit::Datagram { .. }) => sent.push(now),
                MachineOutput::Event(RadiusClientEvent::TimedOut { token: 1 }) => ended.push(now),
                _ => {}
            }
        }
        let Some(next) = client.poll_timeout() else { break };
        now = next;
        client.handle_input(now, MachineInput::Timeout);
    }
    Ok(vec![
        OracleFinding::expect_equal("sent after", "0 s, 2 s, 6 s, 14 s", format_times(&sent)),
        OracleFinding::expect_equal("given up after", "30 s", format_times(&ended)),
    ])
}
