//! When protocols send again, in virtual time.

use crate::{Finding, Oracle};
use usher_core::{Duration, Input, Instant, Machine, Output, Seed, Transmit};
use usher_radius::attribute::kind;
use usher_radius::client::{Client, Command, Config, Event, Retransmission, ServerConfig, Target};
use usher_radius::{Attributes, Code, Secret};

pub(crate) const ORACLES: &[Oracle] = &[Oracle {
    group: "timing",
    name: "rfc5080",
    about: "a RADIUS client without jitter whose requests are never answered: IRT 2 s, doubled up to MRT 16 s, \
            at most MRC 5 times, given up after MRD 30 s",
    source: "RFC 5080 section 2.2.1",
    run: rfc5080,
}];

fn seconds(times: &[Instant]) -> String {
    let texts: Vec<String> = times.iter().map(|t| t.since(Instant::ZERO).to_string()).collect();
    texts.join(", ")
}

fn rfc5080() -> Result<Vec<Finding>, String> {
    let server = "10.0.0.2:1812".parse().map_err(|e| format!("{e}"))?;
    let mut config = Config::single(ServerConfig::new(server, Secret::new(b"sixteen octets!!")));
    config.retransmission = match Retransmission::default() {
        Retransmission::Backoff { initial, max, max_count, max_duration, .. } => {
            Retransmission::Backoff { initial, max, max_count, max_duration, jitter: 0.0 }
        }
        fixed => fixed,
    };
    let mut client = Client::new(config, Seed::new(1).secure("client", 0)).map_err(|e| e.to_string())?;
    let mut attributes = Attributes::new();
    attributes.push_text(kind::USER_NAME, "alice").map_err(|e| e.to_string())?;
    let request =
        Command::Request { token: 1, target: Target::Server(0), code: Code::ACCESS_REQUEST, attributes };
    client.command(Instant::ZERO, request).map_err(|e| e.to_string())?;
    let (mut now, mut sent, mut ended, mut buf) = (Instant::ZERO, Vec::new(), Vec::new(), Vec::new());
    // Nothing of it lasts longer than a day.
    while now < Instant::ZERO + Duration::from_secs(86_400) {
        while let Some(output) = client.poll_output(&mut buf) {
            match output {
                Output::Transmit(Transmit::Datagram { .. }) => sent.push(now),
                Output::Event(Event::TimedOut { token: 1 }) => ended.push(now),
                _ => {}
            }
        }
        let Some(next) = client.poll_timeout() else { break };
        now = next;
        client.handle(now, Input::Timeout);
    }
    Ok(vec![
        Finding::equal("sent after", "0 s, 2 s, 6 s, 14 s", seconds(&sent)),
        Finding::equal("given up after", "30 s", seconds(&ended)),
    ])
}
