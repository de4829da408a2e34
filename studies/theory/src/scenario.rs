//! Computes the closed forms of figures for a scenario.

mod accounts;
mod keys;
mod mih;
mod sws;

use crate::hol::HeadOfLineModel;
use std::collections::VecDeque;
use usher_aaa::AuthMethod;
use usher_core::impair::LossModel;
use usher_scenario::ClosedFormName;
use usher_scenario::model::{
    ArrivalRateScope, ArrivalSettings, ChannelDirection, DialogueConnection, EapWorkload, LinkSettings,
    NasAaaProtocol, RadiusRetransmission, Scenario, TimeDistribution, TransportProtocol, Workload,
};

/// Returns the value of a closed form for a scenario; `None` if the form does not apply.
pub fn closed_form_value(form: ClosedFormName, scenario: &Scenario) -> Option<f64> {
    match form {
        ClosedFormName::RadiusDelay => radius_delay(scenario),
        ClosedFormName::RadiusPackets => accounts::packets_per_login(scenario),
        ClosedFormName::AccountingRecords => accounts::records_per_session(scenario),
        ClosedFormName::AccountingDelay => accounts::accounting_record_delay(scenario),
        ClosedFormName::HolDelay => head_of_line_delay(scenario),
        ClosedFormName::MihSuccess => mih::success_probability(scenario),
        ClosedFormName::MihSuccessBound => mih::success_bound(scenario),
        ClosedFormName::MihDelay => mih::udp_delay(scenario),
        ClosedFormName::MihOverhead => mih::packet_overhead(scenario),
        ClosedFormName::MihTcpDelay => mih::tcp_delay(scenario),
        ClosedFormName::MihTcpSegments => mih::tcp_segments(scenario),
        ClosedFormName::TcpDataShare => sws::mean_data_fraction(scenario),
        ClosedFormName::KeysDelay => keys::traffic_key_delay(scenario),
    }
}

fn radius_delay(scenario: &Scenario) -> Option<f64> {
    let Some(Workload::Eap(eap)) = scenario.sole_workload() else { return None };
    if eap.aaa != NasAaaProtocol::Radius || eap.method != AuthMethod::EapMd5 {
        return None;
    }
    // An attempt succeeds if both request and reply arrive. Attempt k begins `times[k]` after the first one.
    let (delay, [there, back]) = round_trip(scenario, &eap.nas, &eap.server)?;
    let survives = there * back;
    let access = if eap.stations == eap.nas { 0.0 } else { one_way_delay(scenario, eap)? };
    let times = transmission_times(&eap.radius.retransmission);
    let mut waits = 0.0;
    let mut completes = 0.0;
    let mut fails_so_far = 1.0;
    for (at, chance) in times {
        waits += at * survives * chance * fails_so_far;
        completes += survives * chance * fails_so_far;
        fails_so_far *= 1.0 - survives * chance;
    }
    // Six messages cross the access link: Start, the Identity request and response, the challenge and its response, and
    // Success.
    (completes > 0.0).then(|| 2.0 * (delay + waits / completes) + 6.0 * access)
}

fn head_of_line_delay(scenario: &Scenario) -> Option<f64> {
    let Some(Workload::Dialogue(dialogue)) = scenario.sole_workload() else { return None };
    let ArrivalSettings::Poisson { rate, per, .. } = &dialogue.arrivals else { return None };
    let TimeDistribution::Constant(turnaround) = dialogue.turnaround else { return None };
    let tcp = &scenario.transport.tcp;
    let one_round = dialogue.rounds.len() == 1 && dialogue.repeat.get() == 1;
    let on_streams =
        (dialogue.transport, dialogue.connection) == (TransportProtocol::Tcp, DialogueConnection::Persistent);
    let (delay, [there, back]) = round_trip(scenario, &dialogue.clients, &dialogue.server)?;
    if !one_round || !on_streams || tcp.rto_min != tcp.rto_max || back < 1.0 || there == 0.0 {
        return None;
    }
    let streams = scenario.hosts.get(&dialogue.clients)?.count.get();
    let rate = match per {
        ArrivalRateScope::All => rate.per_second(),
        ArrivalRateScope::Client => {
            rate.per_second() * f64::from(streams) * f64::from(dialogue.per_host.get())
        }
    };
    let repair = tcp.rto_min.get().as_secs_f64();
    let added = HeadOfLineModel { rate, loss: 1.0 - there, repair, streams }.mean_delay();
    Some(delay + turnaround.get().as_secs_f64() + added)
}

/// Returns the times of transmissions, in seconds after the first, and their probabilities. Jitter is taken at its
/// mean, zero. A transmission due at the moment of giving up has probability 1/2.
fn transmission_times(policy: &RadiusRetransmission) -> Vec<(f64, f64)> {
    match policy {
        RadiusRetransmission::Fixed { interval, count } => {
            (0..count.get()).map(|k| (f64::from(k) * interval.get().as_secs_f64(), 1.0)).collect()
        }
        RadiusRetransmission::Rfc5080 { initial, max, count, duration, jitter } => {
            let (max, duration) = (max.get().as_secs_f64(), duration.get().as_secs_f64());
            let mut wait = initial.get().as_secs_f64();
            let mut times = vec![(0.0, 1.0)];
            // Without a limit the series of attempts is endless. Terms after a day change no digit of the result.
            let last = if duration > 0.0 { duration } else { 86_400.0 };
            while *count == 0 || times.len() < *count as usize {
                let next = times[times.len() - 1].0 + wait;
                if next >= last {
                    if next == last && jitter.get() > 0.0 {
                        times.push((next, 0.5));
                    }
                    break;
                }
                times.push((next, 1.0));
                wait = if max > 0.0 { (2.0 * wait).min(max) } else { 2.0 * wait };
            }
            times
        }
    }
}

fn one_way_delay(scenario: &Scenario, eap: &EapWorkload) -> Option<f64> {
    round_trip(scenario, &eap.stations, &eap.nas).map(|(delay, _)| delay / 2.0)
}

/// Returns the propagation delay of a round trip and the delivery probabilities of both directions, over the path of
/// fewest links. Returns `None` without a path or with dependent losses.
fn round_trip(scenario: &Scenario, from: &str, to: &str) -> Option<(f64, [f64; 2])> {
    let mut reached = vec![(from, 0.0, [1.0; 2])];
    let mut queue = VecDeque::from([0]);
    while let Some(at) = queue.pop_front() {
        let (here, delay, [there, back]) = reached[at];
        if here == to {
            return Some((delay, [there, back]));
        }
        for (_, link) in scenario.links.iter() {
            let [a, b] = &link.between;
            let (next, first) = match (a == here, b == here) {
                (true, _) => (b, ChannelDirection::Up),
                (_, true) => (a, ChannelDirection::Down),
                _ => continue,
            };
            if reached.iter().all(|(name, ..)| name != next) {
                let (d, [out, home]) = two_way_delay(link, first)?;
                reached.push((next, delay + d, [there * out, back * home]));
                queue.push_back(reached.len() - 1);
            }
        }
    }
    None
}

/// Returns a link's round-trip delay and the delivery probability of each direction, `first` first.
fn two_way_delay(link: &LinkSettings, first: ChannelDirection) -> Option<(f64, [f64; 2])> {
    let one = |direction| {
        let channel = link.channel_config(direction);
        let loss = match channel.loss {
            LossModel::None => 0.0,
            LossModel::Bernoulli(p) => p,
            LossModel::TimedGilbertElliott(_) | LossModel::GilbertElliott { .. } | LossModel::Script(_) => {
                return None;
            }
        };
        Some((channel.delay.as_secs_f64(), 1.0 - loss))
    };
    let second = if first == ChannelDirection::Up { ChannelDirection::Down } else { ChannelDirection::Up };
    let ((out, there), (home, back)) = (one(first)?, one(second)?);
    Some((out + home, [there, back]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_scenario::{PlanOverrides, Study, StudyMode};

    fn value_at(protocol: &str, loss: &str) -> Option<f64> {
        let study = Study::open("aaa-hol").unwrap();
        let mut overrides = PlanOverrides::default();
        for setting in [format!("protocol={protocol}"), format!("loss={loss}"), "method=eap-md5".into()] {
            overrides.add_setting(&setting).unwrap();
        }
        let plan = study.build_plan(StudyMode::Quick, &overrides).unwrap();
        closed_form_value(ClosedFormName::RadiusDelay, &plan.points[0].scenario)
    }

    #[test]
    fn the_delay_over_radius_is_what_hand_arithmetic_gives() {
        // Two round trips of 20 ms, and six access delays of 1 ms.
        assert!((value_at("RADIUS/UDP, RFC 5080", "0 %").unwrap() - 0.046).abs() < 1e-12);
        // With 50 % loss in each direction, an attempt succeeds with probability 1/4. Attempts are at 0, 2, 6, 14 s
        // and, by jitter, at 30 s half the time: probabilities of 64, 48, 36, 27 and 81/8 in 256.
        let (last, others) = (81.0 / 8.0, 64.0 + 48.0 + 36.0 + 27.0);
        let wait = (2.0 * 48.0 + 6.0 * 36.0 + 14.0 * 27.0 + 30.0 * last) / (others + last);
        let expected = 0.046 + 2.0 * wait;
        assert!((value_at("RADIUS/UDP, RFC 5080", "50 %").unwrap() - expected).abs() < 1e-9);
        assert_eq!(value_at("Diameter/TCP", "0 %"), None);
    }

    #[test]
    fn dialogues_wait_for_what_was_lost_before_them() {
        let text = "title = \"T\"\nquestion = \"Q?\"\n[run]\nduration = \"9 s\"\n[hosts.a]\ncount = 2\n[hosts.b]\n\
            [links.l]\nbetween = [\"b\", \"a\"]\ndelay = \"5 ms\"\ndown = { loss = \"10 %\" }\n\
            [transport.tcp]\nrto_min = \"500 ms\"\nrto_max = \"500 ms\"\n\
            [workload]\nkind = \"dialogue\"\nclients = \"a\"\nserver = \"b\"\ntransport = \"tcp\"\n\
            rounds = [{ request = \"20 B\", answer = \"20 B\" }]\narrivals = { kind = \"poisson\", rate = \"4 /s\" }\n";
        let at = |text: &str| {
            let study = Study::parse("t", "t.toml", text).unwrap();
            let plan = study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
            closed_form_value(ClosedFormName::HolDelay, &plan.points[0].scenario)
        };
        // Only requests are lost; the connections of two clients share the rate.
        let added = HeadOfLineModel { rate: 4.0, loss: 0.1, repair: 0.5, streams: 2 }.mean_delay();
        assert!((at(text).unwrap() - 0.01 - added).abs() < 1e-12);
        for (from, to) in
            [("down", "up"), ("rto_max = \"500 ms\"", "rto_max = \"1 s\""), ("\"tcp\"", "\"udp\"")]
        {
            assert_eq!(at(&text.replace(from, to)), None, "{to}");
        }
    }

    #[test]
    fn one_octet_of_data_is_a_packet_of_forty_one() {
        let study = Study::open("aaa-sws").unwrap();
        let at = |slow: &str, octets: &str, avoidance: &str| {
            let mut overrides = PlanOverrides::default();
            for (axis, value) in [("slow", slow), ("octets", octets), ("avoidance", avoidance)] {
                overrides.add_setting(&format!("{axis}={value}")).unwrap();
            }
            let plan = study.build_plan(StudyMode::Quick, &overrides).unwrap();
            closed_form_value(ClosedFormName::TcpDataShare, &plan.points[0].scenario)
        };
        // 5000 octets in segments of this size, and one octet of answer.
        let share = |segment: f64| 5001.0 / (5001.0 + 40.0 * (5000.0 / segment + 1.0));
        for slow in ["sender", "reader"] {
            let one = at(slow, "1 B", "none").unwrap();
            assert!((one - share(1.0)).abs() < 1e-12 && (one * 41.0 - 1.0).abs() < 1e-3, "{one}");
            assert_eq!(at(slow, "50 B", "none"), Some(share(50.0)));
        }
        // 962 octets per second, a round trip of 20 ms, and 200 ms more for a delayed acknowledgement.
        for (slow, avoidance, segment) in [
            ("sender", "Nagle", 19.24),
            ("sender", "Nagle and delayed ACK", 211.64),
            ("sender", "delayed ACK", 1.0),
            ("sender", "silly-window avoidance", 1.0),
            ("sender", "all", 211.64),
            ("reader", "Nagle", 19.24),
            ("reader", "delayed ACK", 193.0),
            ("reader", "Nagle and delayed ACK", 193.0),
            ("reader", "silly-window avoidance", 536.0),
            ("reader", "all", 536.0),
        ] {
            let form = at(slow, "1 B", avoidance).unwrap();
            assert!((form - share(segment)).abs() < 1e-9, "{slow} {avoidance}: {form}");
        }
        assert_eq!(at("sender", "50 B", "Nagle"), Some(share(50.0)), "a write each 52 ms");
        assert_eq!(at("reader", "100 B", "delayed ACK"), None, "data comes before the next read");
        assert_eq!(at("reader", "10 B", "delayed ACK"), Some(share(200.0)));
    }

    #[test]
    fn traffic_keys_take_two_round_trips_of_an_idle_cell() {
        let study = Study::open("aaa-keys").unwrap();
        let at = |settings: &[(&str, &str)]| {
            let mut overrides = PlanOverrides::default();
            let base = [("access", "802.16 with traffic keys"), ("rate", "5 /s"), ("loss", "0 %")];
            for (name, value) in base.iter().chain(settings) {
                overrides.add_setting(&format!("{name}={value}")).unwrap();
            }
            let plan =
                study.build_plan(StudyMode::Quick, &overrides).unwrap_or_else(|faults| panic!("{faults}"));
            closed_form_value(ClosedFormName::KeysDelay, &plan.points[0].scenario)
        };
        assert_eq!(at(&[]), Some(0.030));
        assert_eq!(at(&[("cells.access.frame.uplink_lead", "2")]), Some(0.040));
        assert_eq!(at(&[("cells.access.frame.duration", "10 ms")]), Some(0.060));
        for other in [
            ("loss", "2 %"),
            ("access", "802.16"),
            ("access", "wired"),
            ("cells.access.requests.opportunities", "4"),
            ("hosts.nas.cpu.service.\"pkm.key\"", "1 ms"),
        ] {
            assert_eq!(at(&[other]), None, "{other:?}");
        }
    }
}
