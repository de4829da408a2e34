//! The claims of "Implementation and Evaluation of Authorized Access LAN Sockets Using PPPoE", one function for each.
//! Read from the measurements of `benches/peers/pppoe-rate` on the machine (`pppoe-rate`, `pppoe-cpu`, `pppoe-ident`),
//! and from simulated studies.

use crate::common::{FindingResult, JudgeFunction, judge_configuration};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, FindingError, Verdict, format_digits, format_percent, format_with_interval,
    judge_deviation, list_part_verdicts,
};
use crate::measure::{MetricEstimate, MetricValues, estimate_mean, estimate_ratio};
use crate::results::{ValuesByMetric, VariantResults};
use std::collections::BTreeMap;

mod octets;

/// The function of each claim.
pub(crate) const FUNCTIONS: [(&str, JudgeFunction); 14] = [
    ("pppoe.setup", judge_setup),
    ("pppoe.rate.line", judge_line_saturation),
    ("pppoe.rate.kernel", judge_kernel_mode),
    ("pppoe.rate.user", judge_user_mode),
    ("pppoe.rate.metric", judge_rate_computation),
    ("pppoe.rate.ident", judge_ident_rate_ratio),
    ("pppoe.cpu.kernel", judge_kernel_mode_cpu),
    ("pppoe.cpu.ident", judge_ident_cpu),
    ("pppoe.timeline", judge_transfer_completion_order),
    ("pppoe.overhead", octets::judge_overhead),
    ("pppoe.future", judge_many_sessions),
    ("ident.nat", judge_ident_with_nat),
    ("ident.masq", judge_ident_with_masquerade),
    ("ident.applications", judge_applications),
];

const RATE: &str = "pppoe-rate";
const CPU: &str = "pppoe-cpu";
const IDENT: &str = "pppoe-ident";
/// The maximum rate by wall-clock time. The paper's is by processor time. Current kernels count idle time exactly and
/// the rest by samples, so their sum is less than wall-clock time, and a rate by it is too high.
const MOST: &str = "rate.by_clock_kB_s";
const BY_PROCESSOR: &str = "rate.max_kB_s";
/// The processor share of the concentrator's own threads, including their kernel time; the paper's is reported beside
/// it.
const USAGE: &str = "cpu.threads";
const BY_SAMPLES: &str = "cpu.usage";
/// The paper's kernel mode: packets of sessions stay in the kernel.
const KERNEL: &str = "ebpf";
const ROUTER: &str = "router";
const USER: &str = "user";
const PROCESSORS: [&str; 3] = ["100 %", "55 %", "23 %"];
/// Tolerance of an interval of rates for "no change".
const UNCHANGED: f64 = 0.01;

/// The measurements at each point of a study, by its axes in order.
struct PppoePointResults {
    study: &'static str,
    all: BTreeMap<String, ValuesByMetric>,
}

impl PppoePointResults {
    fn from_view(
        view: &VariantResults<'_>,
        study: &'static str,
        axes: &[&str],
    ) -> Result<Self, FindingError> {
        if !view.has_study(study) {
            return Err(FindingError::NoStudy(format!(
                "{study} has no results here: measure it on this machine with benches/peers/pppoe-rate."
            )));
        }
        let places = view.measured_choices(study, axes);
        Ok(Self {
            study,
            all: places.into_iter().next().map(|(_, all)| all.into_iter().collect()).unwrap_or_default(),
        })
    }
    fn from_rate_study(view: &VariantResults<'_>, study: &'static str) -> Result<Self, FindingError> {
        Self::from_view(view, study, &["mode", "ident", "clients", "processor"])
    }
    fn get(&self, at: &[&str], metric: &str) -> Result<&MetricValues, FindingError> {
        let at = at.join(", ");
        self.all.get(&at).and_then(|measured| measured.get(metric)).ok_or_else(|| {
            FindingError::NotRun(format!(
                "{} has no {metric} at {at}: run all of benches/peers/pppoe-rate.",
                self.study
            ))
        })
    }
    fn mean_value(&self, at: &[&str], metric: &str) -> Result<f64, FindingError> {
        Ok(estimate_mean(self.get(at, metric)?).mean)
    }
    /// Returns the ratio of two points' values by round.
    fn ratio_between_points(
        &self,
        at: &[&str],
        to: &[&str],
        metric: &str,
    ) -> Result<MetricEstimate, FindingError> {
        let found = estimate_ratio(self.get(at, metric)?, self.get(to, metric)?);
        if found.mean.is_finite() {
            return Ok(found);
        }
        Err(FindingError::NotComparable(format!(
            "{} has no common round of {} and {}.",
            self.study,
            at.join(", "),
            to.join(", ")
        )))
    }
}

const fn verdict_if(holds: bool) -> Verdict {
    if holds { Verdict::Reproduced } else { Verdict::Differs }
}

/// Returns a finding of several parts.
fn of_parts(ours: String, said: &str, parts: &[(String, Verdict)]) -> ClaimFinding {
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, verdict)| *verdict).collect();
    let named = list_part_verdicts(parts.iter().map(|(name, verdict)| (name.as_str(), *verdict)));
    ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&verdicts), format!("{said}{named}"))
}

fn judge_setup(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    PppoePointResults::from_rate_study(view, RATE)?;
    judge_configuration(
        claim,
        view,
        "100 Mb/s, one to four clients, a file of 10 MB five times each by FTP, three processors",
    )
}

fn judge_line_saturation(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = PppoePointResults::from_rate_study(view, RATE)?;
    let (least, line) = (claim.claim_parameter("least"), claim.claim_parameter("line"));
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for mode in [ROUTER, KERNEL] {
        for processor in PROCESSORS {
            let rate = points.mean_value(&[mode, "off", "4", processor], MOST)?;
            parts.push((format!("{mode} at {processor}"), verdict_if(rate > least)));
            said.push(format!("{mode} {} at {processor}", format_digits(rate)));
        }
    }
    let reason = format!(
        "Frames by the clock with four clients, in kB/s: {}. The claim needs more than {} of the line's {}. \
         eBPF mode stands for the paper's kernel mode.",
        said.join(", "),
        format_digits(least),
        format_digits(line)
    );
    let ours = points.mean_value(&[KERNEL, "off", "4", PROCESSORS[0]], MOST)?;
    Ok(of_parts(format!("{} kB/s in eBPF mode", format_digits(ours)), &reason, &parts))
}

fn judge_kernel_mode(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = PppoePointResults::from_rate_study(view, RATE)?;
    let ours = points.ratio_between_points(
        &[KERNEL, "off", "4", PROCESSORS[0]],
        &[ROUTER, "off", "4", PROCESSORS[0]],
        MOST,
    )?;
    let limit = claim.published_number_by_name("ratio_min");
    let verdict = if ours.low() >= limit {
        Verdict::Reproduced
    } else if ours.high() >= limit {
        Verdict::Partly
    } else {
        Verdict::Differs
    };
    let reason = format!(
        "With four clients, eBPF mode (for the paper's kernel mode) has {} of the routed rate; the claim \
         needs {}. PPPoE's 8 octets in each packet alone take about half a percent of a full line.",
        format_with_interval(&ours, ""),
        format_digits(limit)
    );
    Ok(ClaimFinding::from_estimate(&ours, verdict, reason))
}

fn judge_user_mode(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = PppoePointResults::from_rate_study(view, RATE)?;
    let (mut said, mut fastest) = (Vec::new(), None);
    for processor in PROCESSORS {
        let ours = points.ratio_between_points(
            &[USER, "off", "4", processor],
            &[ROUTER, "off", "4", processor],
            MOST,
        )?;
        said.push(format!("{} at {processor}", format_with_interval(&ours, "")));
        fastest = fastest.or(Some(ours));
    }
    let Some(ours) = fastest else {
        return Err(FindingError::NotComparable("There are no processors.".to_owned()));
    };
    let (verdict, off) = judge_deviation(&ours, claim.published_number(), "");
    let usage = PppoePointResults::from_rate_study(view, CPU)?
        .mean_value(&[USER, "off", "4", PROCESSORS[0]], USAGE)?;
    let reason = format!(
        "User mode has {} of the routed rate, {off} at the fastest. It differs where its processor is not \
         full, while the paper's was: ours takes {} of its time. It moves packets in batches with one thread \
         for each direction. The paper's had a process for each session and a context switch for each \
         packet.",
        said.join(", "),
        format_percent(usage)
    );
    Ok(ClaimFinding::from_estimate(&ours, verdict, reason))
}

fn judge_rate_computation(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = PppoePointResults::from_rate_study(view, RATE)?;
    let at = [ROUTER, "off", "4", PROCESSORS[0]];
    let (samples, rate, clock) = (
        points.mean_value(&at, "samples")?,
        points.mean_value(&at, BY_PROCESSOR)?,
        points.mean_value(&at, MOST)?,
    );
    let reason = format!(
        "Each second, the bench samples the octets and the processor time of the concentrator so far, idle \
         time included. The maximum is the mean of the samples above {} of the largest. With four clients \
         and plain routing, {} samples give {} kB/s by that processor's time and {} kB/s by the clock. The \
         first is too high: a current kernel counts idle time exactly and the rest by samples, and their sum \
         is less than the clock's time. Other verdicts use the clock.",
        format_percent(claim.claim_parameter("share_of_largest")),
        format_digits(samples),
        format_digits(rate),
        format_digits(clock)
    );
    Ok(ClaimFinding::from_verdict_text("computed so", verdict_if(samples >= 1.0), reason))
}

fn judge_ident_rate_ratio(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = PppoePointResults::from_rate_study(view, RATE)?;
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for ident in ["nat", "masquerade"] {
        let ours = points.ratio_between_points(
            &[KERNEL, ident, "4", PROCESSORS[0]],
            &[KERNEL, "off", "4", PROCESSORS[0]],
            MOST,
        )?;
        parts.push((
            format!("{ident} within {}", format_percent(UNCHANGED)),
            verdict_if((ours.mean - 1.0).abs() <= UNCHANGED),
        ));
        said.push(format!("{} with {ident}", format_with_interval(&ours, "")));
    }
    let reason = format!(
        "The rate relative to that without IDENT, in eBPF mode with four clients: {}.",
        said.join(", ")
    );
    Ok(of_parts(said.join(", "), &reason, &parts))
}

fn judge_kernel_mode_cpu(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = PppoePointResults::from_rate_study(view, CPU)?;
    let usage = |mode: &str, clients: &str, processor: &str| {
        points.mean_value(&[mode, "off", clients, processor], USAGE)
    };
    let (most, about) =
        (claim.published_number_by_name("kernel_max"), claim.published_number_by_name("user_about"));
    let [fast, middle, slow] = PROCESSORS;
    let kernel = [usage(KERNEL, "4", fast)?, usage(KERNEL, "4", middle)?, usage(KERNEL, "4", slow)?];
    let user = [usage(USER, "4", fast)?, usage(USER, "4", middle)?, usage(USER, "4", slow)?];
    let (one, four) = (usage(KERNEL, "1", fast)?, kernel[0]);
    let parts = [
        (
            format!("kernel mode below {} from the middle processor up", format_percent(most)),
            verdict_if(kernel[0] < most && kernel[1] < most),
        ),
        (format!("user mode about {}", format_percent(about)), verdict_if(user[0] >= 0.9 * about)),
        ("four clients take hardly more than one".to_owned(), verdict_if(four - one <= 0.1)),
    ];
    let list = |values: [f64; 3]| values.map(format_percent).join(", ");
    let reason = format!(
        "With four clients, at {}, the concentrator's threads and the kernel's take {} of a processor in \
         eBPF mode, {} in user mode and {} by routing. With one client they take {} in eBPF mode. The \
         paper's formula, over the kernel's samples of the whole processor, gives {} and {} in eBPF and user \
         mode. A current processor is many times faster than the paper's, even within these quotas. User \
         mode is therefore far from its limit at 100 Mb/s.",
        PROCESSORS.join(", "),
        list(kernel),
        list(user),
        format_percent(usage(ROUTER, "4", fast)?),
        format_percent(one),
        format_percent(points.mean_value(&[KERNEL, "off", "4", fast], BY_SAMPLES)?),
        format_percent(points.mean_value(&[USER, "off", "4", fast], BY_SAMPLES)?),
    );
    Ok(of_parts(
        format!("eBPF {}, user {}", format_percent(kernel[0]), format_percent(user[0])),
        &reason,
        &parts,
    ))
}

fn judge_ident_cpu(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = PppoePointResults::from_rate_study(view, CPU)?;
    let usage = |ident: &str| points.mean_value(&[KERNEL, ident, "4", PROCESSORS[0]], USAGE);
    let (off, nat, masquerade) = (usage("off")?, usage("nat")?, usage("masquerade")?);
    let parts = [("masquerade above NAT".to_owned(), verdict_if(masquerade > nat))];
    let reason = format!(
        "In eBPF mode with four clients, the processor's usage is {} without IDENT, {} by NAT and {} by \
         masquerade. In both, the kernel tracks each connection, which is most of the cost. Masquerade also \
         rewrites each packet's address and checksums.",
        format_percent(off),
        format_percent(nat),
        format_percent(masquerade)
    );
    Ok(of_parts(format!("{} and {}", format_percent(nat), format_percent(masquerade)), &reason, &parts))
}

fn judge_transfer_completion_order(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = PppoePointResults::from_rate_study(view, RATE)?;
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for mode in [ROUTER, USER, KERNEL] {
        let at = [mode, "off", "4", PROCESSORS[0]];
        let right = points.mean_value(&at, "order.right")?;
        parts.push((format!("{mode}: the fastest first, the others in turn"), verdict_if(right >= 0.5)));
        let times = ["A", "B", "C", "D"]
            .map(|client| points.mean_value(&at, &format!("done_s.{client}")).map(format_digits));
        let times: Vec<String> = times.into_iter().collect::<Result<_, _>>()?;
        said.push(format!("{mode} {} s", times.join(", ")));
    }
    let switches =
        |mode: &str| points.mean_value(&[mode, "off", "4", PROCESSORS[0]], "context_switches_per_s");
    let (user, kernel) = (switches(USER)?, switches(KERNEL)?);
    parts.push(("user mode has the most context switches".to_owned(), verdict_if(user > kernel)));
    let reason = format!(
        "The {} clients finished after {}. At the largest load, the concentrator's threads had {} context \
         switches a second in user mode and {} in eBPF mode.",
        format_digits(claim.claim_parameter("clients")),
        said.join("; "),
        format_digits(user),
        format_digits(kernel)
    );
    Ok(of_parts(
        format!("user mode {} switches a second, eBPF {}", format_digits(user), format_digits(kernel)),
        &reason,
        &parts,
    ))
}

fn judge_many_sessions(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    const MANY: &str = "pppoe-many";
    if !view.has_study(MANY) {
        return Err(view.missing_study(MANY));
    }
    let clients = view.axis_values(MANY, "clients");
    let reason = format!(
        "{MANY} has {} to {} clients behind one concentrator, by data plane. benches/peers/pppoe and \
         benches/peers/pppoe-rate --gigabit measure links of 1 Gb/s and the machine's limit \
         (docs/measurements/pppoe-planes.md, docs/measurements/pppoe-studies.md).",
        clients.first().unwrap_or(&"-"),
        clients.last().unwrap_or(&"-")
    );
    Ok(ClaimFinding::from_verdict_text("both studied", Verdict::Reproduced, reason))
}

/// Evaluates the IDENT responses in the two modes with sessions.
fn judge_ident_responses(
    view: &VariantResults<'_>,
    ident: &str,
) -> Result<(Vec<(String, Verdict)>, String), FindingError> {
    let points = PppoePointResults::from_view(view, IDENT, &["mode", "ident"])?;
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for mode in [USER, KERNEL] {
        let of = |metric: &str| points.mean_value(&[mode, ident], metric);
        let (asked, right, lied) = (of("asked")?, of("right")?, of("lied")?);
        parts.push((
            format!("{mode} mode: always the session's user"),
            verdict_if(asked > 0.0 && right == asked && lied == 0.0),
        ));
        said.push(format!("{} of {} in {mode} mode", format_digits(right), format_digits(asked)));
    }
    Ok((parts, said.join(", ")))
}

fn judge_ident_with_nat(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (mut parts, said) = judge_ident_responses(view, "nat")?;
    let points = PppoePointResults::from_view(view, IDENT, &["mode", "ident"])?;
    let each = points.mean_value(&[KERNEL, "nat"], "addresses_per_client")?;
    let stated = claim.claim_parameter("addresses_per_client");
    parts.push((format!("{} addresses for each client", format_digits(stated)), verdict_if(each == stated)));
    let reason = format!(
        "A server beyond the concentrator queried port {} of each client's address, while each client ran an \
         identd that names another user: {said} were right. It differs in addresses: ours takes {} for each \
         client. The kernel redirects port 113 of the client's own address to the concentrator's listener, \
         where the paper bound a second address.",
        format_digits(claim.claim_parameter("port")),
        format_digits(each)
    );
    Ok(of_parts(said, &reason, &parts))
}

fn judge_ident_with_masquerade(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (mut parts, said) = judge_ident_responses(view, "masquerade")?;
    let points = PppoePointResults::from_view(view, IDENT, &["mode", "ident"])?;
    let active = points.mean_value(&[KERNEL, "masquerade"], "active_ftp")?;
    parts.push(("protocols that carry addresses break".to_owned(), verdict_if(active == 0.0)));
    let reason = format!(
        "A server queried the concentrator's address about connections from it, while each client ran an \
         identd that names another user. By the kernel's connection table, {said} were right. Active FTP {} \
         without a helper.",
        if active == 0.0 { "fails" } else { "works" }
    );
    Ok(of_parts(said, &reason, &parts))
}

fn judge_applications(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = PppoePointResults::from_view(view, IDENT, &["mode", "ident"])?;
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for mode in [USER, KERNEL] {
        let works =
            |ident: &str| Ok::<_, FindingError>(points.mean_value(&[mode, ident], "active_ftp")? == 1.0);
        let (nat, masquerade) = (works("nat")?, works("masquerade")?);
        parts.push((format!("{mode} mode: works by NAT"), verdict_if(nat)));
        parts.push((format!("{mode} mode: fails by masquerade"), verdict_if(!masquerade)));
        let word = |works| if works { "works" } else { "fails" };
        said.push(format!("in {mode} mode it {} by NAT and {} by masquerade", word(nat), word(masquerade)));
    }
    let reason = format!(
        "Active FTP, in which the server connects to an address that the client sends: {}. The kernel's \
         helper was not enabled.",
        said.join("; ")
    );
    Ok(of_parts(said.join("; "), &reason, &parts))
}
