//! Both flows over connections.

use crate::world::{HandoverTestConfig, HandoverTestNetwork, millis};
use usher_core::Duration;
use usher_core::TransportProtocol;
use usher_mobility::station::State;
use usher_mobility::{HandoverInitiatingSide, StationInterface};

fn test_config(initiation: HandoverInitiatingSide, transport: TransportProtocol) -> HandoverTestConfig {
    HandoverTestConfig { transport, ack: false, ..HandoverTestConfig::new(initiation) }
}

fn run_handover(setting: HandoverTestConfig) -> HandoverTestNetwork {
    let mut world = HandoverTestNetwork::new(setting);
    world.run_for(Duration::from_secs(20));
    world
}

/// Sums by hand, as over UDP, plus a handshake before the first message between two functions. It takes a round
/// trip of the wire (20 ms) for the resource check, and of 802.16 (60 ms) for the completion. The station's
/// connection over 802.11 exists since its registration, and the network uses it.
#[test]
fn connections_cost_their_handshakes() {
    for transport in [TransportProtocol::Tcp, TransportProtocol::Sctp] {
        let world = run_handover(test_config(HandoverInitiatingSide::Station, transport));
        assert_eq!(world.handover_result(), (true, None, millis(1230 + 20)), "{transport:?}");
        let expected = [
            ("scan", 150),
            ("resources", 480),
            ("commit", 460),
            ("entry", 100),
            ("redirection", 60),
            ("completion", 540),
        ];
        assert_eq!(world.step_times(), expected, "{transport:?}");
        assert_eq!(world.connection_count(), 3, "{transport:?}");
        let world = run_handover(test_config(HandoverInitiatingSide::Network, transport));
        assert_eq!(world.handover_result(), (true, None, millis(1030 + 20)), "{transport:?}");
        assert_eq!(world.step_times()[0], ("preparation", 480), "{transport:?}");
        assert_eq!(world.station().state(), State::Moved);
        assert_eq!(world.station().counters().incomplete, 0);
        assert_eq!((world.serving_pos().counters().gone, world.target_pos().counters().arrived), (1, 1));
    }
}

/// The connection repairs losses while the link is up: loss slows a handover down. The handover fails if the
/// link is down before its end.
#[test]
fn loss_makes_slow() {
    for initiation in [HandoverInitiatingSide::Station, HandoverInitiatingSide::Network] {
        let clean = run_handover(test_config(initiation, TransportProtocol::Tcp)).handover_result().2;
        let mut slower = 0;
        for seed in 0..40 {
            let mut lossy = test_config(initiation, TransportProtocol::Tcp);
            (lossy.seed, lossy.loss) = (seed, 0.4);
            let (success, failure, took) = run_handover(lossy).handover_result();
            assert_eq!((success, failure), (true, None), "{initiation:?} {seed}");
            assert!(took >= clean && took.saturating_sub(clean).as_millis() % 200 == 0, "{took:?}");
            slower += u32::from(took > clean);
        }
        assert!(slower > 20, "{slower}");
        let mut hasty = test_config(initiation, TransportProtocol::Tcp);
        hasty.leaves = millis(600);
        let world = run_handover(hasty);
        assert!(!world.handover_result().0);
        assert_eq!(world.station().state(), State::Moved);
        assert_eq!(world.received.values().last(), Some(&StationInterface::Target));
    }
}
