//! Delivery over lossy channels.

use crate::statistics::compare_mean_with_theory;
use crate::study::{parse_study_plan, simulate_metric};
use crate::{OracleFinding, VerificationOracle};
use usher_core::impair::{Channel, ChannelConfig, ContinuousGilbertElliott, LossModel, PacketOutcome};
use usher_core::{Duration, Instant, Seed};

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "channels",
        name: "bernoulli",
        description: "the share of lost packets if each is lost with probability p",
        source: "p",
        run: check_bernoulli,
    },
    VerificationOracle {
        group: "channels",
        name: "gilbert-elliott",
        description: "the share lost and the mean burst length of a Markov chain that steps with each \
                      packet. Its good state loses no packet, its bad state loses all. With probabilities a \
                      of turning bad and b of turning good, the share is a / (a + b) and the length 1 / b",
        source: "E. N. Gilbert, Capacity of a Burst-Noise Channel, Bell System Technical Journal 39, 1960",
        run: check_gilbert_elliott,
    },
    VerificationOracle {
        group: "channels",
        name: "timed-gilbert-elliott",
        description: "the share lost, and the share lost a time t after a lost packet. The good state lasts \
                      g on average, and the bad state, which loses all packets, b. The shares are π = b / (g \
                      + b) at every packet rate, and π + (1 - π) exp(-t / g - t / b)",
        source: "the two-state Markov process in continuous time; E. O. Elliott, Estimates of Error Rates for Codes on \
                 Burst-Noise Channels, Bell System Technical Journal 42, 1963",
        run: check_timed_gilbert_elliott,
    },
    VerificationOracle {
        group: "channels",
        name: "tries",
        description: "the share of UDP dialogues that succeed within n tries: 1 - qⁿ. The probability q that \
                      a try fails is p with loss in one direction, and 1 - (1 - p)² with loss in both",
        source: "independent trials",
        run: check_tries,
    },
];

const REPLICATIONS: u64 = 24;
const PACKETS: u64 = 20_000;

/// Returns the share of lost packets and the mean burst length, by replication.
fn simulate_losses(loss: &LossModel) -> (Vec<f64>, Vec<f64>) {
    let one = |replication| {
        let config = ChannelConfig { loss: loss.clone(), ..Default::default() };
        let mut channel = Channel::new(config, Seed::new(5).derive_rng("channel", replication));
        let (mut lost, mut bursts, mut before) = (0_u32, 0_u32, false);
        for i in 0..PACKETS {
            let now = matches!(channel.offer_packet(Instant::from_nanos(i), 100), PacketOutcome::Lost { .. });
            lost += u32::from(now);
            bursts += u32::from(now && !before);
            before = now;
        }
        (f64::from(lost) / PACKETS as f64, f64::from(lost) / f64::from(bursts.max(1)))
    };
    (0..REPLICATIONS).map(one).unzip()
}

fn check_bernoulli() -> Result<Vec<OracleFinding>, String> {
    let one = |p: f64| {
        compare_mean_with_theory(
            format!("p = {p}"),
            "",
            p,
            &simulate_losses(&LossModel::Bernoulli(p)).0,
            0.05,
        )
    };
    Ok([0.01, 0.1, 0.3].map(one).to_vec())
}

fn check_gilbert_elliott() -> Result<Vec<OracleFinding>, String> {
    let mut findings = Vec::new();
    for (to_bad, to_good) in [(0.01, 0.5), (0.02, 0.2), (0.005, 0.1)] {
        let (shares, lengths) =
            simulate_losses(&LossModel::GilbertElliott { to_bad, to_good, good: 0.0, bad: 1.0 });
        let case = |what: &str| format!("a = {to_bad}, b = {to_good}, {what}");
        findings.push(compare_mean_with_theory(
            case("share"),
            "",
            to_bad / (to_bad + to_good),
            &shares,
            0.05,
        ));
        findings.push(compare_mean_with_theory(case("length"), "packets", 1.0 / to_good, &lengths, 0.05));
    }
    Ok(findings)
}

/// Returns the share of lost packets, and the share lost among the repeats of lost packets, by replication. The repeat
/// follows a packet by `after`; pairs are `gap` apart.
fn simulate_repeated_losses(
    states: ContinuousGilbertElliott,
    gap: Duration,
    after: Duration,
) -> (Vec<f64>, Vec<f64>) {
    let one = |replication| {
        let config = ChannelConfig { loss: LossModel::TimedGilbertElliott(states), ..Default::default() };
        let mut channel = Channel::new(config, Seed::new(6).derive_rng("channel", replication));
        let (mut now, mut lost, mut again) = (Instant::ZERO, 0_u32, 0_u32);
        for _ in 0..PACKETS {
            now += gap;
            let first = matches!(channel.offer_packet(now, 100), PacketOutcome::Lost { .. });
            now += after;
            let second = matches!(channel.offer_packet(now, 100), PacketOutcome::Lost { .. });
            lost += u32::from(first);
            again += u32::from(first && second);
        }
        (f64::from(lost) / PACKETS as f64, f64::from(again) / f64::from(lost.max(1)))
    };
    (0..REPLICATIONS).map(one).unzip()
}

fn check_timed_gilbert_elliott() -> Result<Vec<OracleFinding>, String> {
    let mut findings = Vec::new();
    let ms = Duration::from_millis;
    for (good, bad, gap, after) in
        [(90, 10, 500, 5), (90, 10, 20, 20), (970, 30, 40, 200), (970, 30, 2000, 10)]
    {
        let states = ContinuousGilbertElliott { good_time: ms(good), bad_time: ms(bad), good: 0.0, bad: 1.0 };
        let (shares, repetitions) = simulate_repeated_losses(states, ms(gap), ms(after));
        let share = bad as f64 / (good + bad) as f64;
        let t = after as f64;
        let still = share + (1.0 - share) * libm::exp(-t / good as f64 - t / bad as f64);
        let case = |what: &str| format!("g = {good} ms, b = {bad} ms, pairs every {gap} ms, {what}");
        findings.push(compare_mean_with_theory(case("share"), "", share, &shares, 0.05));
        findings.push(compare_mean_with_theory(
            case(&format!("{after} ms after a loss")),
            "",
            still,
            &repetitions,
            0.05,
        ));
    }
    Ok(findings)
}

const DIALOGUES: u32 = 2_000;

fn study_text(loss: &str, tries: u32) -> String {
    format!(
        r#"
[run]
duration = "30 s"
drain = "10 s"
[run.replications]
min = 2
max = 2
[hosts.client]
[hosts.server]
[links.lossy]
between = ["client", "server"]
rate = "10 Mb/s"
delay = "1 ms"
{loss}
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "udp"
rounds = [{{ request = "20 B", answer = "20 B" }}]
give_up = "5 s"
retransmission = {{ kind = "fixed", interval = "100 ms", count = {tries} }}
arrivals = {{ kind = "constant", interval = "10 ms", count = {DIALOGUES} }}
"#
    )
}

/// Returns the share of successful dialogues, by replication.
fn success_fractions(loss: &str, tries: u32) -> Result<Vec<f64>, String> {
    let completed =
        simulate_metric(&parse_study_plan(&study_text(loss, tries))?, "completed", REPLICATIONS as u32)?;
    Ok(completed.into_iter().map(|n| n / f64::from(DIALOGUES)).collect())
}

fn check_tries() -> Result<Vec<OracleFinding>, String> {
    let mut findings = Vec::new();
    for (p, both, n) in [(0.3_f64, false, 1), (0.3, false, 2), (0.5, false, 4), (0.2, true, 3)] {
        let q = if both { 1.0 - (1.0 - p) * (1.0 - p) } else { p };
        let percent = p * 100.0;
        let (loss, ways) = if both {
            (format!("loss = \"{percent} %\""), "both ways")
        } else {
            (format!("up = {{ loss = \"{percent} %\" }}"), "one way")
        };
        let theory = 1.0 - libm::pow(q, f64::from(n));
        findings.push(compare_mean_with_theory(
            format!("p = {p} {ways}, n = {n}"),
            "",
            theory,
            &success_fractions(&loss, n)?,
            0.05,
        ));
    }
    Ok(findings)
}
