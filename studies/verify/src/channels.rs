//! What gets through a lossy channel.

use crate::statistics::within;
use crate::study::{metric, plan};
use crate::{Finding, Oracle};
use usher_core::impair::{Channel, ChannelConfig, Fate, Loss};
use usher_core::{Instant, Seed};

pub(crate) const ORACLES: &[Oracle] = &[
    Oracle {
        group: "channels",
        name: "bernoulli",
        about: "the share of packets lost where each is lost with chance p",
        source: "p",
        run: bernoulli,
    },
    Oracle {
        group: "channels",
        name: "gilbert-elliott",
        about: "the share lost, and the mean length of a burst, where a Markov chain of a good state, which loses \
                nothing, and a bad one, which loses all, steps with each packet: share a / (a + b) and length 1 / b \
                with chances a of turning bad and b of turning good",
        source: "E. N. Gilbert, Capacity of a Burst-Noise Channel, Bell System Technical Journal 39, 1960",
        run: gilbert_elliott,
    },
    Oracle {
        group: "channels",
        name: "tries",
        about: "the share of UDP dialogues that succeed within n tries: 1 - qⁿ, where a try fails with q, the chance p \
                of the lossy way, or 1 - (1 - p)² where both ways are lossy",
        source: "independent trials",
        run: tries,
    },
];

const REPLICATIONS: u64 = 24;
const PACKETS: u64 = 20_000;

/// Shares lost and mean lengths of bursts, one for each replication.
fn losses(loss: &Loss) -> (Vec<f64>, Vec<f64>) {
    let one = |replication| {
        let config = ChannelConfig { loss: loss.clone(), ..Default::default() };
        let mut channel = Channel::new(config, Seed::new(5).stream("channel", replication));
        let (mut lost, mut bursts, mut before) = (0_u32, 0_u32, false);
        for i in 0..PACKETS {
            let now = matches!(channel.offer(Instant::from_nanos(i), 100), Fate::Lost { .. });
            lost += u32::from(now);
            bursts += u32::from(now && !before);
            before = now;
        }
        (f64::from(lost) / PACKETS as f64, f64::from(lost) / f64::from(bursts.max(1)))
    };
    (0..REPLICATIONS).map(one).unzip()
}

fn bernoulli() -> Result<Vec<Finding>, String> {
    let one = |p: f64| within(format!("p = {p}"), "", p, &losses(&Loss::Bernoulli(p)).0, 0.05);
    Ok([0.01, 0.1, 0.3].map(one).to_vec())
}

fn gilbert_elliott() -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for (to_bad, to_good) in [(0.01, 0.5), (0.02, 0.2), (0.005, 0.1)] {
        let (shares, lengths) = losses(&Loss::GilbertElliott { to_bad, to_good, good: 0.0, bad: 1.0 });
        let case = |what: &str| format!("a = {to_bad}, b = {to_good}, {what}");
        findings.push(within(case("share"), "", to_bad / (to_bad + to_good), &shares, 0.05));
        findings.push(within(case("length"), "packets", 1.0 / to_good, &lengths, 0.05));
    }
    Ok(findings)
}

const DIALOGUES: u32 = 2_000;

fn study(loss: &str, tries: u32) -> String {
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

/// Shares of dialogues that succeed, one for each replication.
fn successes(loss: &str, tries: u32) -> Result<Vec<f64>, String> {
    let completed = metric(&plan(&study(loss, tries))?, "completed", REPLICATIONS as u32)?;
    Ok(completed.into_iter().map(|n| n / f64::from(DIALOGUES)).collect())
}

fn tries() -> Result<Vec<Finding>, String> {
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
        findings.push(within(format!("p = {p} {ways}, n = {n}"), "", theory, &successes(&loss, n)?, 0.05));
    }
    Ok(findings)
}
