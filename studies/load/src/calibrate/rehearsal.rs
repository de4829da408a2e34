//! What one IKE_SA has a gateway do: it is set up and ended once between two endpoints of this program, whose work is counted. A gateway
//! that serves counts no work, and does the same.

use crate::IkeConfig;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_core::{Input, Instant, Machine, Output, Path, SecureRng, Transmit};
use usher_crypto::exchange::ExchangeAlgorithm;
use usher_ike::Endpoint;
use usher_ike::code::{KeyExchangeMethod, TransformType};
use usher_ike::machine::{Childless, Command, Config, Connection, Event, SOCKET};
use usher_ike::payload::{Identification, Proposal};
use usher_live::thread_cpu_time;

/// How long public-key operations are timed.
const TIME: std::time::Duration = std::time::Duration::from_millis(150);
/// Messages after which something is wrong.
const MOST: usize = 64;

/// Why there was no rehearsal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("two endpoints of this program do not agree on the proposals: take others with --proposal")]
pub struct Disagreed;

fn connection(config: &IkeConfig, initiator: bool) -> Connection {
    let own = Identification::of_text(&config.identity);
    let (local, remote) = match initiator {
        true => (own, Some(config.gateway.clone())),
        false => (config.gateway.clone(), None),
    };
    let shared = Connection::shared_key("rehearsal", local, &config.secret, config.proposals.clone());
    Connection { remote, childless: Childless::Force, ..shared }
}

/// Units of work of a gateway for one IKE_SA, by kind.
///
/// # Errors
/// The two do not agree.
pub fn units(config: &IkeConfig) -> Result<BTreeMap<String, f64>, Disagreed> {
    let now = Instant::ZERO;
    let at = |last: u8| SocketAddr::from(([192, 0, 2, last], 500));
    let mut ends = [1, 2].map(|n| Endpoint::new(Config::default(), SecureRng::from_seed([n; 32])));
    let command = Command::Serve(vec![Arc::new(connection(config, false))]);
    ends[1].command(now, command).map_err(|_| Disagreed)?;
    let (local, remote) = (at(1), at(2));
    let begin = Command::Initiate { token: 0, connection: Arc::new(connection(config, true)), local, remote };
    ends[0].command(now, begin).map_err(|_| Disagreed)?;
    let (mut work, mut ended, mut messages, mut buf) = (BTreeMap::new(), false, 0, Vec::new());
    loop {
        let mut sent: Vec<(usize, Path, Vec<u8>)> = Vec::new();
        for (side, end) in ends.iter_mut().enumerate() {
            let mut established = None;
            while let Some(output) = end.poll_output(&mut buf) {
                match output {
                    Output::Transmit(Transmit::Datagram { path }) => sent.push((side, path, buf.clone())),
                    Output::Work(of) if side == 1 => {
                        *work.entry(of.label.name().to_owned()).or_default() += f64::from(of.units);
                    }
                    Output::Event(Event::Established { sa, .. }) if side == 0 => established = Some(sa),
                    Output::Event(Event::Ended { .. }) if side == 1 => ended = true,
                    _ => {}
                }
            }
            if let Some(sa) = established.filter(|_| !config.keep) {
                end.command(now, Command::Delete(sa)).map_err(|_| Disagreed)?;
                while let Some(output) = end.poll_output(&mut buf) {
                    if let Output::Transmit(Transmit::Datagram { path }) = output {
                        sent.push((side, path, buf.clone()));
                    }
                }
            }
            ended |= established.is_some() && config.keep;
        }
        if sent.is_empty() {
            return if ended { Ok(work) } else { Err(Disagreed) };
        }
        for (side, path, data) in sent {
            messages += 1;
            if messages > MOST {
                return Err(Disagreed);
            }
            let path = Path { socket: SOCKET, local: path.remote, remote: path.local };
            ends[1 - side].handle(now, Input::Datagram { path, data: &data });
        }
    }
}

/// Seconds of one public-key operation of the first proposal's key exchange, as the side has it that answers.
pub fn key_exchange(proposals: &[Proposal]) -> Option<f64> {
    let method = proposals.iter().find_map(|proposal| proposal.of(TransformType::KE).next())?;
    let algorithm = usher_ike::suite::exchange(KeyExchangeMethod(method.id))?;
    let mut rng = SecureRng::from_seed([3; 32]);
    let begun = algorithm.begin(&mut rng).ok()?;
    let mut answer = || algorithm.answer(&mut rng, begun.public()).is_ok();
    if !answer() {
        return None;
    }
    Some(timed(answer) / f64::from(ExchangeAlgorithm::operations_to_answer(algorithm)))
}

/// The least of three turns.
fn timed(mut once: impl FnMut() -> bool) -> f64 {
    let mut turn = || {
        let (begun, mut times) = (thread_cpu_time(), 0_u32);
        loop {
            std::hint::black_box(once());
            times += 1;
            let taken = thread_cpu_time().saturating_sub(begun);
            if taken >= TIME / 3 {
                return taken.as_secs_f64() / f64::from(times);
            }
        }
    };
    (0..3).map(|_| turn()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Duration;
    use usher_crypto::Key;

    fn config(proposal: &str, keep: bool) -> IkeConfig {
        IkeConfig {
            address: SocketAddr::from(([192, 0, 2, 2], 500)),
            local: SocketAddr::from(([192, 0, 2, 1], 0)),
            gateway: Identification::fqdn("gw.test"),
            identity: "load@example.org".into(),
            initiators: 1,
            first: 0,
            logins: vec![crate::IkeLogin::Psk],
            gateway_auth: crate::IkeGatewayAuth::Psk,
            anonymous: None,
            secret: Key::from(&b"a key of the rehearsal"[..]),
            proposals: vec![Proposal::ike(proposal).unwrap()],
            keep,
            retransmission: Duration::from_secs(1),
            retransmissions: 1,
        }
    }

    #[test]
    fn a_gateways_work_is_that_of_one_ike_sa() {
        let kept = units(&config("aes128-sha256-x25519", true)).unwrap();
        // Two requests and two responses; both operations of the key exchange; IKE_AUTH opened and answered.
        let of = |work: &BTreeMap<String, f64>| {
            ["ike.message", "ike.key_exchange", "ike.open", "ike.protect"].map(|label| work[label])
        };
        assert_eq!(of(&kept), [4.0, 2.0, 1.0, 1.0]);
        // Its deletion is a request and a response more.
        let ended = units(&config("aes128-sha256-x25519", false)).unwrap();
        assert_eq!(of(&ended), [6.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn a_larger_group_takes_longer() {
        let of = |words: &str| key_exchange(&[Proposal::ike(words).unwrap()]).unwrap();
        let (curve, modp) = (of("aes128-sha256-x25519"), of("aes128-sha256-modp3072"));
        assert!(modp > 3.0 * curve && curve > 1e-7, "{modp} {curve}");
    }
}
