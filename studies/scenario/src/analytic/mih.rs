//! MIH messages: what `docs/mih.md` derives, for a scenario.

use super::both_ways;
use crate::mih::{Exchange, Expected, Lone, Means, Message, Stream};
use crate::model::{
    AckCounts, Arrivals, Direction, IpVersion, LossFrom, Mih, MihMessage, MihTransport, Preamble,
    RtoMinBounds, Scenario, Workload,
};
use std::collections::VecDeque;
use usher_core::Duration;
use usher_sim::radio::wifi::Rate;

/// Before a frame of 802.11b: SIFS and two slots.
const DIFS: Duration = Duration::from_micros(50);
/// MAC header, LLC and SNAP, check sequence.
const DATA_HEADER: u64 = 36;
/// The share of messages that may leave in segments beyond the MSS.
const CROWDED: f64 = 0.01;

/// Both ways between the sender of the message and its receiver: delays, and chances that a packet is lost.
struct Ways {
    delay: [Duration; 2],
    loss: [f64; 2],
}

pub(super) fn success(scenario: &Scenario) -> Option<f64> {
    expected(scenario).map(|e| e.success)
}

pub(super) fn success_bound(scenario: &Scenario) -> Option<f64> {
    exchange(scenario).map(|x| x.success_bound())
}

pub(super) fn delay(scenario: &Scenario) -> Option<f64> {
    expected(scenario).map(|e| e.delay).filter(|delay| delay.is_finite())
}

pub(super) fn overhead(scenario: &Scenario) -> Option<f64> {
    expected(scenario).map(|e| e.overhead())
}

pub(super) fn tcp_delay(scenario: &Scenario) -> Option<f64> {
    let (mih, ways) = over_tcp(scenario)?;
    if mih.message == MihMessage::Indication {
        return means(scenario).map(|m| m.delay);
    }
    let lone = lone(scenario, &ways);
    let [back, there] = [[1, 0], [0, 1]].map(|[a, b]| Lone {
        loss: [lone.loss[a], lone.loss[b]],
        delay: [lone.delay[a], lone.delay[b]],
        ..lone
    });
    let sound = ways.loss.iter().all(|p| *p < 1.0);
    sound.then(|| there.mean() + mih.processing.get().as_secs_f64() + back.mean())
}

pub(super) fn tcp_segments(scenario: &Scenario) -> Option<f64> {
    means(scenario).map(|m| m.segments)
}

fn expected(scenario: &Scenario) -> Option<Expected> {
    exchange(scenario)?.expected()
}

fn exchange(scenario: &Scenario) -> Option<Exchange> {
    let mih = mih(scenario, MihTransport::Udp)?;
    // The times of what waits to be acknowledged with its answer, or has a limit that tells, are not followed.
    let tries = mih.timing.retransmission.get() * (u64::from(mih.timing.retransmissions) + 1);
    let longest = tries + tries + mih.processing.get() + Duration::from_secs(1);
    let plain = mih.ack_delay.get().is_zero()
        && !mih.late_responses
        && mih.transaction.get().is_none_or(|limit| limit.get() > longest)
        && mih.timing.response.get().is_none()
        && mih.timing.by_message.is_empty()
        && mih.timing.by_service.iter().all(|(_, change)| change.is_none());
    let Ways { delay, loss } = ways(scenario, mih)?;
    plain.then(|| Exchange {
        message: match mih.message {
            MihMessage::Indication => Message::Indication,
            _ => Message::Request,
        },
        ack: mih.ack,
        loss,
        delay,
        processing: mih.processing.get(),
        timeout: mih.timing.retransmission.get(),
        retransmissions: mih.timing.retransmissions,
    })
}

fn mih(scenario: &Scenario, transport: MihTransport) -> Option<&Mih> {
    match &scenario.workload {
        // Other messages than these two have sizes and senders of their own.
        Workload::Mih(mih) if mih.transport == transport && mih.response_size.is_none() => {
            matches!(mih.message, MihMessage::Indication | MihMessage::Request).then_some(mih)
        }
        _ => None,
    }
}

fn over_tcp(scenario: &Scenario) -> Option<(&Mih, Ways)> {
    let mih = mih(scenario, MihTransport::Tcp).filter(|mih| !mih.ack)?;
    Some((mih, ways(scenario, mih)?))
}

fn lone(scenario: &Scenario, ways: &Ways) -> Lone {
    let tcp = &scenario.transport.tcp;
    Lone { loss: ways.loss, delay: ways.delay, rto_min: tcp.rto_min.get(), rto_max: tcp.rto_max.get() }
}

/// The means of indications over TCP, where the model holds.
fn means(scenario: &Scenario) -> Option<Means> {
    let (mih, ways) = over_tcp(scenario)?;
    let tcp = &scenario.transport.tcp;
    let Arrivals::Constant { interval, .. } = &mih.arrivals else { return None };
    let at_once = tcp.delayed_ack.get().is_none()
        || (tcp.delayed_ack_segments.get() == 1 && tcp.delayed_ack_counts == AckCounts::Segments);
    let one_each = scenario.members(&mih.mn) == Some(1);
    let bounded = tcp.rto_min_bounds == RtoMinBounds::Timeout;
    if mih.message != MihMessage::Indication
        || !bounded
        || !tcp.nagle
        || !at_once
        || tcp.timestamps
        || !one_each
    {
        return None;
    }
    let room = tcp.mss?.bytes() as f64 / mih.size.bytes() as f64;
    let stream = Stream { lone: lone(scenario, &ways), every: interval.get(), room };
    stream.means().filter(|m| m.crowded <= CROWDED)
}

/// From the sender of the indication or request to its receiver and back, along the fewest hops. Of links their
/// propagation counts, of an 802.11 cell that is otherwise quiet the time of a frame.
fn ways(scenario: &Scenario, mih: &Mih) -> Option<Ways> {
    let (from, to) = match mih.message {
        MihMessage::Indication => (&mih.mn, &mih.pos),
        _ => (&mih.pos, &mih.mn),
    };
    let octets = mih.size.bytes() + headers(scenario, mih.transport);
    let mut reached = vec![(from.as_str(), [Duration::ZERO; 2], [1.0; 2])];
    let mut queue = VecDeque::from([0]);
    while let Some(at) = queue.pop_front() {
        let (here, delay, survives) = reached[at];
        if here == to {
            return Some(Ways { delay, loss: survives.map(|s| 1.0 - s) });
        }
        for (next, more, chance) in hops(scenario, here, octets) {
            if reached.iter().all(|(name, ..)| *name != next) {
                let [chance, other] = chance?;
                let delay = [delay[0] + more[0], delay[1] + more[1]];
                reached.push((next, delay, [survives[0] * chance, survives[1] * other]));
                queue.push_back(reached.len() - 1);
            }
        }
    }
    None
}

/// Of IP and the transport.
fn headers(scenario: &Scenario, transport: MihTransport) -> u64 {
    let ip = match scenario.run.ip {
        IpVersion::V4 => 20,
        IpVersion::V6 => 40,
    };
    ip + if transport == MihTransport::Udp { 8 } else { 20 }
}

/// A neighbour, the delays there and back, and the chances that both ways are survived, if those are independent.
type Hop<'a> = (&'a str, [Duration; 2], Option<[f64; 2]>);

fn hops<'a>(scenario: &'a Scenario, here: &str, octets: u64) -> Vec<Hop<'a>> {
    let mut hops: Vec<Hop<'a>> = Vec::new();
    for (_, link) in scenario.links.iter() {
        let [a, b] = &link.between;
        let (next, first, second) = match (a == here, b == here) {
            (true, _) => (b, Direction::Up, Direction::Down),
            (_, true) => (a, Direction::Down, Direction::Up),
            _ => continue,
        };
        let delay = [first, second].map(|way| link.channel(way).delay);
        hops.push((next, delay, both_ways(link, first).map(|(_, survives)| survives)));
    }
    for (_, bss) in scenario.bss_in_use() {
        let (a, b) = (&bss.access_point, &bss.stations);
        let next = match (a == here, b == here) {
            (true, _) => b,
            (_, true) => a,
            _ => continue,
        };
        let preamble = match bss.preamble {
            Preamble::Long => 192,
            Preamble::Short => 96,
        };
        let frame = Rate::from(bss.rate).time(u32::try_from(octets + DATA_HEADER).unwrap_or(u32::MAX));
        let delay = DIFS + Duration::from_micros(preamble) + frame;
        let lost = match bss.packet_loss_from {
            LossFrom::Always => bss.packet_loss.get(),
            LossFrom::GoingDown => 0.0,
        };
        let quiet = bss.frame_loss.get() == 0.0;
        hops.push((next, [delay; 2], quiet.then_some([1.0 - lost; 2])));
    }
    hops
}

#[cfg(test)]
mod tests {
    use crate::analytic::value;
    use crate::{Mode, Overrides, Study};

    const TEXT: &str = "title = 'T'\nquestion = 'Q?'\n[run]\nduration = '9 s'\n[hosts.mn]\n[hosts.pos]\n\
        [links.l]\nbetween = ['mn', 'pos']\ndelay = '20 ms'\nloss = '30 %'\n\
        [transport.tcp]\ndelayed_ack = 'off'\nrto_min = '200 ms'\nrto_max = '200 ms'\nmss = '1280 B'\n\
        [workload]\nkind = 'mih'\nmn = 'mn'\npos = 'pos'\nmessage = 'request'\ntransport = 'udp'\n\
        processing = '200 ms'\narrivals = { kind = 'constant', interval = '500 ms' }\nack = true\n";

    #[track_caller]
    fn at(text: &str, name: &str) -> Option<f64> {
        let study = Study::parse("t", "t.toml", text).unwrap();
        let plan = study.plan(Mode::Default, &Overrides::default()).unwrap();
        value(name, &plan.points[0].scenario)
    }

    #[track_caller]
    fn close(text: &str, name: &str, expected: f64) {
        let value = at(text, name).unwrap();
        assert!((value - expected).abs() < 1e-9, "{name}: {value} is not {expected}");
    }

    #[test]
    fn over_udp() {
        let once = TEXT.replace("ack = true", "ack = false");
        close(&once, "mih-success", 0.49);
        close(&once, "mih-success-bound", 0.49);
        close(&once, "mih-delay", 0.24);
        close(&once, "mih-overhead", 1.0);
        close(TEXT, "mih-success-bound", 0.973 * 0.973);
        assert!(at(TEXT, "mih-success").unwrap() < 0.973 * 0.973);
        close(&TEXT.replace("request", "indication"), "mih-success", 0.973);
        assert!(at(TEXT, "mih-tcp-delay").is_none());
        for (from, to) in [("ack = true", "ack = true\nack_delay = '1 s'"), ("processing = '200 ms'\n", "")] {
            assert_eq!(at(&TEXT.replace(from, to), "mih-success"), None, "{to}");
        }
    }

    #[test]
    fn over_tcp() {
        let tcp = TEXT.replace("'udp'", "'tcp'").replace("ack = true", "ack = false");
        // Each way 20 ms and 0.2 s for each of 0.3 / 0.7 losses.
        close(&tcp, "mih-tcp-delay", 0.24 + 2.0 * 0.2 * 0.3 / 0.7);
        assert!(at(&tcp, "mih-tcp-segments").is_none() && at(&tcp, "mih-delay").is_none());
        let indications = tcp.replace("request", "indication");
        assert!(at(&indications, "mih-tcp-delay").unwrap() > 0.02 + 0.2 * 0.3 / 0.7);
        assert!(at(&indications, "mih-tcp-segments").unwrap() > 2.0);
        for (from, to) in
            [("'200 ms'\nmss", "'1 s'\nmss"), ("delayed_ack = 'off'\n", ""), ("mss = '1280 B'\n", "")]
        {
            assert_eq!(at(&indications.replace(from, to), "mih-tcp-delay"), None, "{to}");
        }
    }

    /// In an 802.11 cell at 11 Mb/s: 50 + 192 µs and 200 + 8 + 20 + 36 B.
    #[test]
    fn in_a_cell() {
        let cell = TEXT
            .replace("[transport", "[hosts.ap]\n[bss.w]\naccess_point = 'ap'\nstations = 'mn'\n[transport");
        let cell = cell.replace("['mn', 'pos']", "['ap', 'pos']").replace("ack = true", "ack = false");
        let frame = 242e-6 + 264.0 * 8.0 / 11e6;
        close(&cell, "mih-delay", 0.24 + 2.0 * frame);
        close(
            &cell.replace("'mn'\n[transport", "'mn'\npacket_loss = '10 %'\n[transport"),
            "mih-success",
            0.49 * 0.81,
        );
        assert_eq!(
            at(&cell.replace("'mn'\n[transport", "'mn'\nframe_loss = '10 %'\n[transport"), "mih-success"),
            None
        );
    }
}
