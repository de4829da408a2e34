//! What links do to packets.

use crate::support::{build, link, network, udp, v4};
use std::time::Instant as Moment;
use usher_core::Duration;
use usher_core::impair::ChannelConfig;
use usher_live::Clock;

#[test]
fn a_packet_takes_the_links_delay() {
    let channel = ChannelConfig { delay: Duration::from_millis(5), ..Default::default() };
    let (mut lab, _scratch) = build(network(&[v4(0), v4(1)], vec![link(0, 1, channel)]));
    lab.start(Clock::start(), None).unwrap();
    let (a, b) = (udp(&lab, 0, 9000), udp(&lab, 1, 9000));
    let mut buffer = [0; 100];
    for i in 0..20u8 {
        let sent = Moment::now();
        a.send_to(&[i; 40], (v4(1), 9000)).unwrap();
        let (length, from) = b.recv_from(&mut buffer).unwrap();
        let took = sent.elapsed();
        assert_eq!((&buffer[..length], from.ip()), (&[i; 40][..], v4(0)));
        assert!(took.as_micros() >= 5000, "{took:?}");
    }
    let outcome = lab.stop().unwrap().unwrap();
    assert_eq!(outcome.links[0][0].offered, 20);
    assert_eq!(outcome.links[0][0].offered_bytes, 20 * (40 + 8 + 20 + 18));
}
