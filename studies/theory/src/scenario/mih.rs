//! MIH messages: the forms of `docs/explanation/mih.md` for a scenario.

use super::two_way_delay;
use crate::mih::{
    ExpectedOutcome, IsolatedTcpSegment, MessageKind, MessageStreamMeans, MihResponse, MihTransaction,
    TcpMessageStream,
};
use std::collections::VecDeque;
use usher_core::Duration;
use usher_scenario::model::{
    AckTimer, ArrivalSettings, Bss, ChannelDirection, DelayedAckCounting, IpVersion, LossFrom, MihMessage,
    MihWorkload, RtoMinBounds, Scenario, TransportProtocol, Workload,
};
use usher_sim::radio::wifi::{self, WifiDataRate};

/// Octets of the MAC header, LLC and SNAP, and frame check sequence.
const DATA_HEADER: u64 = 36;
/// Time before an acknowledgement.
const SIFS: Duration = Duration::from_micros(10);
/// Octets of an acknowledgement.
const ACK: u32 = 14;
/// Octets of the MIH header (IEEE 802.21, 8.4) and of both MIHF identifiers, which each fragment has.
const MIH_HEADER: u64 = 8 + 13;
/// Maximum share of messages in segments beyond the MSS.
const CROWDED: f64 = 0.01;

/// Delays and loss probabilities between the sender of the message and its receiver, in both directions.
struct RoundTripPath {
    delay: [Duration; 2],
    loss: [f64; 2],
}

pub(super) fn success_probability(scenario: &Scenario) -> Option<f64> {
    expected_outcome(scenario).map(|e| e.success)
}

pub(super) fn success_bound(scenario: &Scenario) -> Option<f64> {
    build_mih_transaction(scenario).filter(|(_, answer)| answer.packets == 1).map(|(x, _)| x.success_bound())
}

pub(super) fn udp_delay(scenario: &Scenario) -> Option<f64> {
    expected_outcome(scenario).map(|e| e.delay).filter(|delay| delay.is_finite())
}

pub(super) fn packet_overhead(scenario: &Scenario) -> Option<f64> {
    expected_outcome(scenario).map(|e| e.overhead())
}

pub(super) fn tcp_delay(scenario: &Scenario) -> Option<f64> {
    let (mih, ways) = over_tcp(scenario)?;
    if mih.message == MihMessage::Indication {
        return indication_stream_means(scenario)
            .map(|m| m.delay)
            .or_else(|| lossless_stream(scenario).map(|c| c.delay));
    }
    let lone = lone_segment(scenario, &ways);
    let [back, there] = [[1, 0], [0, 1]].map(|[a, b]| IsolatedTcpSegment {
        loss: [lone.loss[a], lone.loss[b]],
        delay: [lone.delay[a], lone.delay[b]],
        ..lone
    });
    let sound = ways.loss.iter().all(|p| *p < 1.0);
    sound.then(|| there.mean_delay() + mih.processing.get().as_secs_f64() + back.mean_delay())
}

pub(super) fn tcp_segments(scenario: &Scenario) -> Option<f64> {
    indication_stream_means(scenario)
        .map(|m| m.segments)
        .or_else(|| lossless_stream(scenario).map(|c| c.segments))
}

fn expected_outcome(scenario: &Scenario) -> Option<ExpectedOutcome> {
    let (exchange, answer) = build_mih_transaction(scenario)?;
    exchange.outcome_with_response(answer)
}

fn build_mih_transaction(scenario: &Scenario) -> Option<(MihTransaction, MihResponse)> {
    let mih = mih_workload(scenario, TransportProtocol::Udp)?;
    // The formula does not cover acknowledgements that wait for their answer, or time limits that take effect.
    let tries = mih.timing.retransmission.get() * (u64::from(mih.timing.retransmissions) + 1);
    let longest = tries + tries + mih.processing.get() + Duration::from_secs(1);
    let plain = mih.ack_delay.get().is_zero()
        && !mih.late_responses
        && mih.transaction.get().is_none_or(|limit| limit.get() > longest)
        && mih.timing.response.get().is_none()
        && mih.timing.by_message.is_empty()
        && mih.timing.by_service.iter().all(|(_, change)| change.is_none());
    // The MIH function answers a registration immediately, so it has no processing time. Such a response may
    // acknowledge the request.
    let at_once = mih.message == MihMessage::Registration;
    let processing = if at_once { Duration::ZERO } else { mih.processing.get() };
    let sound = at_once || mih.message == MihMessage::Indication || !mih.ack || !processing.is_zero();
    if !plain || !sound || mih.size.bytes() > mih.max_message.bytes() {
        return None;
    }
    let RoundTripPath { delay, loss } = round_trip_path(scenario, mih, mih.size.bytes())?;
    let exchange = MihTransaction {
        message: match mih.message {
            MihMessage::Indication => MessageKind::Indication,
            _ => MessageKind::Request,
        },
        ack: mih.ack,
        loss,
        delay,
        processing,
        timeout: mih.timing.retransmission.get(),
        retransmissions: mih.timing.retransmissions,
    };
    Some((exchange, build_mih_response(scenario, mih)?))
}

/// Returns the response: one packet, or fragments. All fragments but the last are full, and each waits for the earlier
/// ones in the 802.11 cells.
fn build_mih_response(scenario: &Scenario, mih: &MihWorkload) -> Option<MihResponse> {
    let (whole, most) = (mih.response_size.unwrap_or(mih.size).bytes(), mih.max_message.bytes());
    if whole <= most {
        return Some(MihResponse { packets: 1, delay: round_trip_path(scenario, mih, whole)?.delay[1] });
    }
    let room = most.checked_sub(MIH_HEADER).filter(|room| *room > 0)?;
    let content = whole - MIH_HEADER;
    let packets = content.div_ceil(room);
    let last = MIH_HEADER + content - room * (packets - 1);
    let octets = most + header_octets(scenario, mih.transport);
    let before = scenario.bss_in_use().map(|(_, bss)| {
        let acknowledged = SIFS + WifiDataRate::from(bss.basic_rate).airtime(bss.preamble.into(), ACK);
        frame_duration(bss, octets) + acknowledged + mean_backoff(bss)
    });
    let longest = before.max().unwrap_or(Duration::ZERO);
    let delay = round_trip_path(scenario, mih, last)?.delay[1] + longest * (packets - 1);
    Some(MihResponse { packets: u32::try_from(packets).ok()?, delay })
}

fn mih_workload(scenario: &Scenario, transport: TransportProtocol) -> Option<&MihWorkload> {
    match scenario.sole_workload() {
        Some(Workload::Mih(mih)) if mih.transport == transport => Some(mih),
        _ => None,
    }
}

fn over_tcp(scenario: &Scenario) -> Option<(&MihWorkload, RoundTripPath)> {
    // The formula does not apply to other messages, which have their own sizes and senders.
    let alike = |mih: &&MihWorkload| {
        !mih.ack
            && mih.response_size.is_none()
            && matches!(mih.message, MihMessage::Indication | MihMessage::Request)
    };
    let mih = mih_workload(scenario, TransportProtocol::Tcp).filter(alike)?;
    Some((mih, round_trip_path(scenario, mih, mih.size.bytes())?))
}

fn lone_segment(scenario: &Scenario, ways: &RoundTripPath) -> IsolatedTcpSegment {
    let tcp = &scenario.transport.tcp;
    IsolatedTcpSegment {
        loss: ways.loss,
        delay: ways.delay,
        rto_min: tcp.rto_min.get(),
        rto_max: tcp.rto_max.get(),
    }
}

/// Returns the means of indications over TCP, if the model applies.
fn indication_stream_means(scenario: &Scenario) -> Option<MessageStreamMeans> {
    let (mih, ways) = over_tcp(scenario)?;
    let tcp = &scenario.transport.tcp;
    let ArrivalSettings::Constant { interval, .. } = &mih.arrivals else { return None };
    let at_once = tcp.delayed_ack.get().is_none()
        || (tcp.delayed_ack_segments.get() == 1 && tcp.delayed_ack_counts == DelayedAckCounting::Segments);
    let one_each = scenario.member_count(&mih.mn) == Some(1);
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
    let stream = TcpMessageStream {
        lone_segment: lone_segment(scenario, &ways),
        every: interval.get(),
        segment_capacity: room,
    };
    stream.means().filter(|m| m.crowded <= CROWDED)
}

/// MIH messages over TCP without loss.
struct LosslessMihStream {
    delay: f64,
    /// Segments of both sides per MIH packet.
    segments: f64,
}

/// Returns the form without loss and with delayed acknowledgements. `docs/explanation/mih.md` derives which messages carry an
/// acknowledgement, and when Nagle's algorithm holds a message for one.
fn lossless_stream(scenario: &Scenario) -> Option<LosslessMihStream> {
    let (mih, RoundTripPath { delay, loss }) = over_tcp(scenario)?;
    let tcp = &scenario.transport.tcp;
    let ArrivalSettings::Constant { interval, .. } = &mih.arrivals else { return None };
    let timed = tcp.delayed_ack_timer == AckTimer::FromArrival
        && tcp.delayed_ack_counts != DelayedAckCounting::LargestSegment;
    let one_each = scenario.member_count(&mih.mn) == Some(1);
    if loss != [0.0; 2] || !timed || !one_each || tcp.timestamps {
        return None;
    }
    let at_once =
        tcp.delayed_ack_segments.get() == 1 && tcp.delayed_ack_counts == DelayedAckCounting::Segments;
    let waits = tcp.delayed_ack.get().filter(|_| !at_once).map_or(Duration::ZERO, |time| time.get());
    let (every, processing) = (interval.get(), mih.processing.get());
    let [there, back] = delay;
    if mih.message == MihMessage::Indication {
        let acknowledged = there + waits + round_trip_path(scenario, mih, 0)?.delay[1];
        let (cycle, every) = (acknowledged.as_secs_f64(), every.as_secs_f64());
        if cycle < every {
            return Some(LosslessMihStream { delay: there.as_secs_f64(), segments: 2.0 });
        }
        let room = tcp.mss?.bytes() / mih.size.bytes().max(1);
        let most = libm::floor(cycle / every) + 1.0;
        let calm =
            LosslessMihStream { delay: there.as_secs_f64() + cycle / 2.0, segments: 2.0 * every / cycle };
        return (tcp.nagle && most <= room as f64).then_some(calm);
    }
    let answered = there + processing + back;
    if answered >= every {
        return None;
    }
    let free = every - answered;
    let alone = [processing, free].iter().filter(|until| waits < **until).count();
    // If an acknowledgement is due just when a segment could carry it, the order of the two events decides, so there is
    // no result.
    let decided = waits != processing && waits != free;
    let segments = 1.0 + 0.5 * alone as f64;
    decided.then(|| LosslessMihStream { delay: answered.as_secs_f64(), segments })
}

/// Returns the path from the sender of the indication or request to its receiver and back, over the fewest hops. A link
/// counts with its propagation, an otherwise idle 802.11 cell with the time of a frame of `size` octets.
fn round_trip_path(scenario: &Scenario, mih: &MihWorkload, size: u64) -> Option<RoundTripPath> {
    let (from, to) = match mih.message {
        MihMessage::Indication | MihMessage::Information | MihMessage::Registration => (&mih.mn, &mih.pos),
        MihMessage::Request | MihMessage::CandidateQuery => (&mih.pos, &mih.mn),
    };
    let octets = size + header_octets(scenario, mih.transport);
    let mut reached = vec![(from.as_str(), [Duration::ZERO; 2], [1.0; 2])];
    let mut queue = VecDeque::from([0]);
    while let Some(at) = queue.pop_front() {
        let (here, delay, survives) = reached[at];
        if here == to {
            return Some(RoundTripPath { delay, loss: survives.map(|s| 1.0 - s) });
        }
        for (next, more, chance) in neighbour_hops(scenario, here, octets) {
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

/// Octets of the IP and transport headers.
fn header_octets(scenario: &Scenario, transport: TransportProtocol) -> u64 {
    let ip = match scenario.run.ip {
        IpVersion::V4 => 20,
        IpVersion::V6 => 40,
    };
    ip + if transport == TransportProtocol::Udp { 8 } else { 20 }
}

/// A neighbour, the delays in both directions, and the delivery probabilities, if losses are independent.
type NeighbourHop<'a> = (&'a str, [Duration; 2], Option<[f64; 2]>);

fn neighbour_hops<'a>(scenario: &'a Scenario, here: &str, octets: u64) -> Vec<NeighbourHop<'a>> {
    let mut hops: Vec<NeighbourHop<'a>> = Vec::new();
    for (_, link) in scenario.links.iter() {
        let [a, b] = &link.between;
        let (next, first, second) = match (a == here, b == here) {
            (true, _) => (b, ChannelDirection::Up, ChannelDirection::Down),
            (_, true) => (a, ChannelDirection::Down, ChannelDirection::Up),
            _ => continue,
        };
        let delay = [first, second].map(|way| link.channel_config(way).delay);
        hops.push((next, delay, two_way_delay(link, first).map(|(_, survives)| survives)));
    }
    for (_, bss) in scenario.bss_in_use() {
        let (a, b) = (&bss.access_point, &bss.stations);
        let next = match (a == here, b == here) {
            (true, _) => b,
            (_, true) => a,
            _ => continue,
        };
        let delay = frame_duration(bss, octets);
        let lost = match bss.packet_loss_from {
            LossFrom::Always => bss.packet_loss.get(),
            LossFrom::GoingDown => 0.0,
        };
        let quiet = bss.frame_loss.get() == 0.0;
        hops.push((next, [delay; 2], quiet.then_some([1.0 - lost; 2])));
    }
    hops
}

fn wifi_slot_duration(bss: &Bss) -> Duration {
    wifi::SlotTime::from(bss.slot).duration()
}

/// Mean backoff of a station before its next frame: half the window.
fn mean_backoff(bss: &Bss) -> Duration {
    wifi_slot_duration(bss) * u64::from(bss.cw_min) / 2
}

/// Time of a packet with this number of octets in an idle cell.
fn frame_duration(bss: &Bss, octets: u64) -> Duration {
    let octets = u32::try_from(octets + DATA_HEADER).unwrap_or(u32::MAX);
    SIFS + wifi_slot_duration(bss) * 2 + WifiDataRate::from(bss.rate).airtime(bss.preamble.into(), octets)
}

#[cfg(test)]
mod tests {
    use crate::closed_form_value;
    use usher_scenario::{ClosedFormName, PlanOverrides, Study, StudyMode};

    const TEXT: &str = "title = 'T'\nquestion = 'Q?'\n[run]\nduration = '9 s'\n[hosts.mn]\n[hosts.pos]\n\
        [links.l]\nbetween = ['mn', 'pos']\ndelay = '20 ms'\nloss = '30 %'\n\
        [transport.tcp]\ndelayed_ack = 'off'\nrto_min = '200 ms'\nrto_max = '200 ms'\nmss = '1280 B'\n\
        [workload]\nkind = 'mih'\nmn = 'mn'\npos = 'pos'\nmessage = 'request'\ntransport = 'udp'\n\
        processing = '200 ms'\narrivals = { kind = 'constant', interval = '500 ms' }\nack = true\n";

    #[track_caller]
    fn value_at(text: &str, name: ClosedFormName) -> Option<f64> {
        let study = Study::parse("t", "t.toml", text).unwrap();
        let plan = study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
        closed_form_value(name, &plan.points[0].scenario)
    }

    #[track_caller]
    fn assert_close(text: &str, name: ClosedFormName, expected: f64) {
        let value = value_at(text, name).unwrap();
        assert!((value - expected).abs() < 1e-9, "{name}: {value} is not {expected}");
    }

    #[test]
    fn over_udp() {
        let once = TEXT.replace("ack = true", "ack = false");
        assert_close(&once, ClosedFormName::MihSuccess, 0.49);
        assert_close(&once, ClosedFormName::MihSuccessBound, 0.49);
        assert_close(&once, ClosedFormName::MihDelay, 0.24);
        assert_close(&once, ClosedFormName::MihOverhead, 1.0);
        assert_close(TEXT, ClosedFormName::MihSuccessBound, 0.973 * 0.973);
        assert!(value_at(TEXT, ClosedFormName::MihSuccess).unwrap() < 0.973 * 0.973);
        assert_close(&TEXT.replace("request", "indication"), ClosedFormName::MihSuccess, 0.973);
        assert!(value_at(TEXT, ClosedFormName::MihTcpDelay).is_none());
        for (from, to) in [("ack = true", "ack = true\nack_delay = '1 s'"), ("processing = '200 ms'\n", "")] {
            assert_eq!(value_at(&TEXT.replace(from, to), ClosedFormName::MihSuccess), None, "{to}");
        }
    }

    #[test]
    fn over_tcp() {
        let tcp = TEXT.replace("'udp'", "'tcp'").replace("ack = true", "ack = false");
        // In each direction 20 ms, and 0.2 s for each of 0.3 / 0.7 losses.
        assert_close(&tcp, ClosedFormName::MihTcpDelay, 0.24 + 2.0 * 0.2 * 0.3 / 0.7);
        assert!(
            value_at(&tcp, ClosedFormName::MihTcpSegments).is_none()
                && value_at(&tcp, ClosedFormName::MihDelay).is_none()
        );
        let indications = tcp.replace("request", "indication");
        assert!(value_at(&indications, ClosedFormName::MihTcpDelay).unwrap() > 0.02 + 0.2 * 0.3 / 0.7);
        assert!(value_at(&indications, ClosedFormName::MihTcpSegments).unwrap() > 2.0);
        for (from, to) in
            [("'200 ms'\nmss", "'1 s'\nmss"), ("delayed_ack = 'off'\n", ""), ("mss = '1280 B'\n", "")]
        {
            assert_eq!(value_at(&indications.replace(from, to), ClosedFormName::MihTcpDelay), None, "{to}");
        }
    }

    /// In an 802.11 cell at 11 Mb/s: 50 + 192 µs and 200 + 8 + 20 + 36 B.
    #[test]
    fn in_a_cell() {
        let cell = TEXT
            .replace("[transport", "[hosts.ap]\n[bss.w]\naccess_point = 'ap'\nstations = 'mn'\n[transport");
        let cell = cell.replace("['mn', 'pos']", "['ap', 'pos']").replace("ack = true", "ack = false");
        let frame = 242e-6 + 264.0 * 8.0 / 11e6;
        assert_close(&cell, ClosedFormName::MihDelay, 0.24 + 2.0 * frame);
        assert_close(
            &cell.replace("'mn'\n[transport", "'mn'\npacket_loss = '10 %'\n[transport"),
            ClosedFormName::MihSuccess,
            0.49 * 0.81,
        );
        assert_eq!(
            value_at(
                &cell.replace("'mn'\n[transport", "'mn'\nframe_loss = '10 %'\n[transport"),
                ClosedFormName::MihSuccess
            ),
            None
        );
    }
}
