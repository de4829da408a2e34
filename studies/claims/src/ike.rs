//! The claims of "Evaluation of IKEv2 authentication methods", one function for each. Read from `ike-auth` and
//! `ike-remote`.

use crate::common::{FindingResult, JudgeFunction, judge_configuration, paired_difference, require_finite};
use crate::data::{self, Claim};
use crate::judge::{
    ClaimFinding, ClaimValue, FindingError, Verdict, format_digits, format_percent, format_with_interval,
    judge_deviation, list_part_verdicts,
};
use crate::measure::{
    IntervalSign, MetricEstimate, MetricValues, estimate_mean, estimate_ratio, interval_sign,
};
use crate::results::{CurveSelector, ValuesByMetric, VariantResults};
use std::collections::BTreeMap;
use usher_observe::stats::RegressionLine;

mod applications;

/// The function of each claim.
pub(crate) const FUNCTIONS: [(&str, JudgeFunction); 18] = [
    ("ike.setup", judge_setup),
    ("ike.messages", judge_messages),
    ("ike.bytes", judge_certificate_bytes),
    ("ike.delay.linear", judge_delay_linearity),
    ("ike.delay.chains", judge_chain_length_delay),
    ("ike.delay.methods", judge_method_delays),
    ("ike.cpu.initiator", judge_initiator_cpu_ratio),
    ("ike.cpu.server", judge_server_cpu_ratio),
    ("ike.cpu.expected", judge_expectations),
    ("ike.cpu.order", judge_cpu_time_order),
    ("ike.cpu.libraries", judge_library_cpu_times),
    ("ike.methods", judge_key_deriving_methods),
    ("ike.cpu.formula", judge_published_cpu_formula),
    ("ike.auth", judge_auth_payload),
    ("ike.ping.outlier", judge_maximum_delay_outliers),
    ("ike.bandwidth", judge_deciding_path_factors),
    ("ike.applications", applications::judge_applications),
    ("ike.dimensioning", judge_dimensioning),
];

const STUDY: &str = "ike-auth";
/// The document's authentication methods by their names in the study.
const METHOD_NAMES: [&str; 7] = ["PSK", "MD5", "TLS-2-2", "TLS-2-4", "TLS-4-2", "TLS-3-3", "TLS-4-4"];

/// The measurements of each authentication method.
struct IkeMethodResults(BTreeMap<String, ValuesByMetric>);

impl IkeMethodResults {
    fn from_view(view: &VariantResults<'_>) -> Result<Self, FindingError> {
        Self::of_study(view, STUDY)
    }
    fn of_study(view: &VariantResults<'_>, study: &str) -> Result<Self, FindingError> {
        if !view.has_study(study) {
            return Err(view.missing_study(study));
        }
        view.require_default_settings(study)?;
        let places = view.measured_choices(study, &["way"]);
        Ok(Self(places.into_iter().next().map(|(_, ways)| ways.into_iter().collect()).unwrap_or_default()))
    }
    fn get(&self, way: &str, metric: &str) -> Result<&MetricValues, FindingError> {
        let measured = self.0.get(way).ok_or_else(|| {
            FindingError::NotRun(format!(
                "{STUDY} has no {way}: run the complete study (usher study run {STUDY})."
            ))
        })?;
        measured.get(metric).ok_or_else(|| {
            FindingError::NotComparable(format!(
                "{STUDY} has no {metric} with {way}: nothing completed there."
            ))
        })
    }
    fn mean_value(&self, way: &str, metric: &str) -> Result<f64, FindingError> {
        Ok(require_finite(estimate_mean(self.get(way, metric)?), metric)?.mean)
    }
    /// Evaluates whether a metric is surely less with one method than with another.
    fn judge_metric_below(&self, metric: &str, less: &str, more: &str) -> Result<Verdict, FindingError> {
        let by = paired_difference(self.get(more, metric)?, self.get(less, metric)?, metric)?;
        Ok(verdict_if(interval_sign(&by) == IntervalSign::Above))
    }
    /// Evaluates several such pairs, each with its name.
    fn judge_metric_pairs(
        &self,
        metric: &str,
        pairs: &[(&str, &str)],
    ) -> Result<Vec<(String, Verdict)>, FindingError> {
        let part = |(less, more): &(&str, &str)| {
            Ok((format!("{less} below {more}"), self.judge_metric_below(metric, less, more)?))
        };
        pairs.iter().map(part).collect()
    }
    /// Formats means as in `PSK 4, MD5 10`.
    fn list_means(&self, metric: &str, scale: f64, ways: &[&str]) -> Result<String, FindingError> {
        let of = |way: &&str| Ok(format!("{way} {}", format_digits(self.mean_value(way, metric)? * scale)));
        Ok(ways.iter().map(of).collect::<Result<Vec<_>, FindingError>>()?.join(", "))
    }
}

const fn verdict_if(holds: bool) -> Verdict {
    if holds { Verdict::Reproduced } else { Verdict::Differs }
}

/// Returns a finding of several parts: reproduced if all hold, partly if at least half do.
fn of_parts(ours: String, said: &str, parts: &[(String, Verdict)]) -> ClaimFinding {
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, verdict)| *verdict).collect();
    let named = list_part_verdicts(parts.iter().map(|(name, verdict)| (name.as_str(), *verdict)));
    ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&verdicts), format!("{said}{named}"))
}

fn judge_setup(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let stated = "an initiator and a responder on an idle 802.11g link, a router and a RADIUS server over \
                  100 Mb/s, IKE_SAs of 6 s, and an authentication every 12 s";
    judge_configuration(claim, view, stated)
}

/// Evaluates: four messages by PSK, more by EAP-MD5, most by EAP-TLS, and more with longer chains.
fn judge_messages(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let of = |way, metric| ways.mean_value(way, metric);
    let psk = of("PSK", "ike.initiator.messages")? + of("PSK", "ike.gateway.messages")?;
    let radius = of("PSK", "ike.radius-request.messages")?;
    let stated = claim.claim_parameter("psk_ike");
    let mut parts = vec![(
        format!("{} IKE messages with PSK, none of RADIUS", format_digits(stated)),
        verdict_if(psk == stated && radius == 0.0),
    )];
    let pairs = [("PSK", "MD5"), ("MD5", "TLS-2-2"), ("TLS-2-2", "TLS-3-3"), ("TLS-3-3", "TLS-4-4")];
    parts.extend(ways.judge_metric_pairs("ike.messages", &pairs)?);
    let ours = ways.list_means("ike.messages", 1.0, &METHOD_NAMES)?;
    Ok(of_parts(ours.clone(), &format!("Messages of IKE and RADIUS: {ours}."), &parts))
}

/// Evaluates the octets of an additional certificate on a link, and of all eight of TLS-4-4.
fn judge_certificate_bytes(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let more =
        paired_difference(ways.get("TLS-4-4", "ike.bytes")?, ways.get("TLS-2-2", "ike.bytes")?, "ike.bytes")?;
    // TLS-4-4 sends four more certificates than TLS-2-2, each over two links.
    let each = more.scale_by(1.0 / 8.0).mean;
    let all = 8.0 * each;
    let [one, eight] = ["certificate_B", "tls_4_4_certificates_B"].map(|name| claim.claim_parameter(name));
    let verdict = Verdict::worst_part_verdict(&[
        Verdict::compare_with_published(each, one, false),
        Verdict::compare_with_published(all, eight, false),
    ]);
    let reason = format!(
        "From TLS-2-2 to TLS-4-4, each link carries {} B more for each further certificate of 1500 B. This \
         includes the headers of its packets and the EAP-TLS acknowledgements of its fragments. For eight \
         certificates that is {} B. Frames of both links in total: {}.",
        format_digits(each),
        format_digits(all),
        ways.list_means("ike.bytes", 1.0, &METHOD_NAMES)?
    );
    let ours = vec![("certificate_B".to_owned(), each), ("tls_4_4_certificates_B".to_owned(), all)];
    Ok(ClaimFinding { ours: ClaimValue::Named(ours), interval: None, verdict, reason })
}

/// The shares of variance that a line must explain for "about linear" and for "partly".
const LINEAR: [f64; 2] = [0.95, 0.8];

/// Evaluates the least-squares line of delay by messages.
fn judge_delay_linearity(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let points = METHOD_NAMES
        .iter()
        .map(|way| Ok((ways.mean_value(way, "ike.messages")?, ways.mean_value(way, "delay.mean")?)));
    let points: Vec<(f64, f64)> = points.collect::<Result<_, FindingError>>()?;
    let Some(RegressionLine { slope, at_zero, explained }) = RegressionLine::from_points(&points, 0.95)
    else {
        return Err(FindingError::NotComparable(format!(
            "{STUDY} has the same number of messages with each method."
        )));
    };
    let verdict = match explained {
        _ if slope.low() <= 0.0 => Verdict::Differs,
        share if share >= LINEAR[0] => Verdict::Reproduced,
        share if share >= LINEAR[1] => Verdict::Partly,
        _ => Verdict::Differs,
    };
    let reason = format!(
        "The least-squares line over the document's seven methods is {} ms plus {} +- {} ms for each \
         message. It explains {} of the variance of the means. The rest comes from public-key operations: \
         PSK and EAP-MD5 have only those of IKE.",
        format_digits(at_zero * 1e3),
        format_digits(slope.mean * 1e3),
        format_digits(slope.half_width * 1e3),
        format_percent(explained)
    );
    Ok(ClaimFinding::from_verdict_text(
        format!("a line explains {}", format_percent(explained)),
        verdict,
        reason,
    ))
}

fn judge_chain_length_delay(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let (two, four) = (ways.get("TLS-2-2", "delay.mean")?, ways.get("TLS-4-4", "delay.mean")?);
    let MetricEstimate { mean, below, above, n } = require_finite(estimate_ratio(four, two), "The increase")?;
    let ours = MetricEstimate { mean: mean - 1.0, below, above, n };
    let (verdict, off) = judge_deviation(&ours, claim.published_number(), "");
    let reason = format!(
        "TLS-4-4 takes {} longer than TLS-2-2, {off}. Delays: {} ms.",
        format_with_interval(&ours, ""),
        ways.list_means("delay.mean", 1e3, &["TLS-2-2", "TLS-3-3", "TLS-4-4"])?
    );
    Ok(ClaimFinding::from_estimate(&ours, verdict, reason))
}

/// The factor for "several times as long".
const SEVERAL: f64 = 2.0;

fn judge_method_delays(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let mut parts = Vec::new();
    let mut ours = Vec::new();
    for other in ["PSK", "MD5"] {
        let times = require_finite(
            estimate_ratio(ways.get("TLS-2-2", "delay.mean")?, ways.get(other, "delay.mean")?),
            "The ratio",
        )?;
        parts.push((format!("TLS-2-2 several times {other}"), verdict_if(times.low() >= SEVERAL)));
        ours.push(format!("{} times {other}", format_digits(times.mean)));
    }
    let said = format!(
        "TLS-2-2 takes {}. \"Several times\" means at least twice. Delays: {} ms.",
        ours.join(" and "),
        ways.list_means("delay.mean", 1e3, &METHOD_NAMES)?
    );
    let pings = judge_unprotected_ping_share(claim, view, &mut parts)?;
    Ok(of_parts(ours.join(", "), &format!("{said}{pings}"), &parts))
}

/// Returns the share of an unprotected ping in the delay of a ping that waits for a reauthentication, if those were
/// run.
fn judge_unprotected_ping_share(
    claim: &Claim,
    view: &VariantResults<'_>,
    parts: &mut Vec<(String, Verdict)>,
) -> Result<String, FindingError> {
    const PINGS: &str = "ike-ping";
    if !view.has_study(PINGS) {
        parts.push(("the unprotected ping".to_owned(), Verdict::NotComparable));
        return Ok(format!(" The time of an unprotected ping needs {PINGS}, which was not run."));
    }
    let metric = "delay.mean.ping";
    let ways = IkeMethodResults::of_study(view, PINGS)?;
    let alone = ways.mean_value("no protection", metric)?;
    let [least, most] = ["ping_share_least", "ping_share_most"].map(|name| claim.claim_parameter(name));
    let mut said = Vec::new();
    for way in METHOD_NAMES {
        let share = alone / ways.mean_value(way, metric)?;
        parts.push((
            format!("the unprotected ping against {way}"),
            verdict_if((least..=most).contains(&share)),
        ));
        said.push(format!("{} of {way}", format_percent(share)));
    }
    Ok(format!(
        " An unprotected ping takes {} ms: {}. Public-key operations take milliseconds less here than on the \
         document's machines, so the share is larger.",
        format_digits(alone * 1e3),
        said.join(", ")
    ))
}

/// Compares the ratio of processor times of TLS and EAP-MD5 with the smallest and largest published ratio.
fn judge_cpu_ratio(
    claim: &Claim,
    view: &VariantResults<'_>,
    metric: &str,
    ours_of: [&str; 2],
) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let times = |way: &str| {
        require_finite(estimate_ratio(ways.get(way, metric)?, ways.get("MD5", metric)?), "The ratio")
    };
    let [least, most] = [times(ours_of[0])?, times(ours_of[1])?];
    let [stated_least, stated_most] = ["ratio_least", "ratio_most"].map(|name| claim.claim_parameter(name));
    let verdict = Verdict::worst_part_verdict(&[
        Verdict::compare_with_published(least.mean, stated_least, false),
        Verdict::compare_with_published(most.mean, stated_most, false),
    ]);
    let reason = format!(
        "EAP-TLS takes {} ({}) to {} ({}) times the processor time of EAP-MD5, published {} to {}. The study \
         charges public-key operations, and RADIUS messages at the AAA server, with the times of a current \
         machine: {} us. It does not charge the document's daemons, C library and kernels.",
        format_digits(least.mean),
        ours_of[0],
        format_digits(most.mean),
        ours_of[1],
        format_digits(stated_least),
        format_digits(stated_most),
        ways.list_means(metric, 1e6, &METHOD_NAMES)?
    );
    let text = format!("{} to {} times", format_digits(least.mean), format_digits(most.mean));
    Ok(ClaimFinding::from_verdict_text(text, verdict, reason))
}

fn judge_initiator_cpu_ratio(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    judge_cpu_ratio(claim, view, "cpu.initiator", ["TLS-2-2", "TLS-4-4"])
}

fn judge_server_cpu_ratio(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    judge_cpu_ratio(claim, view, "cpu.server", ["TLS-2-2", "TLS-4-4"])
}

/// The pairs that the authors expected, and those that they found on both sides.
const CHAINS: [(&str, &str); 3] = [("MD5", "TLS-2-2"), ("TLS-2-2", "TLS-3-3"), ("TLS-3-3", "TLS-4-4")];
const MIXED: [(&str, &str); 4] =
    [("TLS-2-2", "TLS-2-4"), ("TLS-2-2", "TLS-4-2"), ("TLS-2-4", "TLS-4-4"), ("TLS-4-2", "TLS-4-4")];

fn judge_expectations(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for (who, metric) in [("initiator", "cpu.initiator"), ("AAA server", "cpu.server")] {
        let pairs = [&CHAINS[..], &MIXED[..]].concat();
        parts.extend(
            ways.judge_metric_pairs(metric, &pairs)?
                .into_iter()
                .map(|(name, verdict)| (format!("{who}, {name}"), verdict)),
        );
        said.push(format!("{who}: {} us", ways.list_means(metric, 1e6, &METHOD_NAMES[1..])?));
    }
    let reason = format!(
        "Processor time of the {}. Each side verifies the other's certificates, so TLS-4-2 costs the server \
         more than TLS-2-4, and the initiator less.",
        said.join("; ")
    );
    let held = parts.iter().filter(|(_, verdict)| *verdict == Verdict::Reproduced).count();
    Ok(of_parts(format!("{held} of {} orders", parts.len()), &reason, &parts))
}

fn judge_cpu_time_order(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let mut parts = Vec::new();
    for (who, metric) in [("initiator", "cpu.initiator"), ("AAA server", "cpu.server")] {
        let pairs = ways.judge_metric_pairs(metric, &CHAINS)?;
        parts.extend(pairs.into_iter().map(|(name, verdict)| (format!("{who}, {name}"), verdict)));
    }
    // For the mixed chains, the bars of the document's figure 15 contradict the expected order.
    let mixed = [("TLS-2-4", "TLS-2-2"), ("TLS-4-4", "TLS-4-2")];
    let pairs = ways.judge_metric_pairs("cpu.server", &mixed)?;
    parts.extend(pairs.into_iter().map(|(name, verdict)| (format!("AAA server, {name}"), verdict)));
    let said = format!(
        "Processor time of the AAA server: {} us. Mixed chains lie between the others here, because the \
         charges are constant. The document does not explain its different order.",
        ways.list_means("cpu.server", 1e6, &METHOD_NAMES[1..])?
    );
    let held = parts.iter().filter(|(_, verdict)| *verdict == Verdict::Reproduced).count();
    Ok(of_parts(format!("{held} of {} orders", parts.len()), &said, &parts))
}

fn judge_library_cpu_times(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let metric = "cpu.crypto.initiator";
    let tls = &METHOD_NAMES[2..];
    let all = tls.iter().map(|way| ways.mean_value(way, metric)).collect::<Result<Vec<_>, FindingError>>()?;
    let middle = all.iter().sum::<f64>() / all.len() as f64;
    let constant = all.iter().filter(|cost| (*cost / middle - 1.0).abs() <= 0.05).count();
    let share =
        require_finite(estimate_ratio(ways.get("MD5", metric)?, ways.get("TLS-2-2", metric)?), "The share")?;
    let most = claim.claim_parameter("md5_crypto_most");
    let nothing = |what: &str| (what.to_owned(), Verdict::NotComparable);
    let parts = [
        ("crypto constant over chains".to_owned(), Verdict::from_held_point_count(constant, all.len())),
        (
            format!("MD5 at most {} of the crypto", format_percent(most)),
            Verdict::compare_with_upper_bound(&share, most),
        ),
        nothing("four modules take 70 to 80 %"),
        nothing("C library and kernel grow with chains"),
    ];
    let said = format!(
        "Cryptography on the initiator: {} us. EAP-MD5 takes {} of the time of TLS-2-2. IKE's own key \
         exchange is the larger part here with every method. Only a lab measures the time of a C library and \
         a kernel (docs/explanation/ike-studies.md).",
        ways.list_means(metric, 1e6, &METHOD_NAMES[1..])?,
        format_percent(share.mean)
    );
    Ok(of_parts(format!("MD5 {} of TLS-2-2", format_percent(share.mean)), &said, &parts))
}

/// Evaluates table I: the methods that derive a key, by the attributes of the AAA server's accepts. Methods that are
/// not available here are not evaluated.
fn judge_key_deriving_methods(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    // Each entry has the method, its name in the study, and whether the document lists it with a key.
    const METHOD_PAIRS: [(&str, &str, bool); 6] = [
        ("TLS", "TLS-2-2", true),
        ("PEAP", "PEAP", true),
        ("TTLS", "TTLS", true),
        ("MD5", "MD5", false),
        ("MSCHAPv2", "MSCHAPv2", false),
        ("GTC", "GTC", false),
    ];
    let (mut parts, mut ours) = (Vec::new(), [Vec::new(), Vec::new()]);
    for (method, way, stated) in METHOD_PAIRS {
        let share = ways.mean_value(way, "ike.keys")?;
        let keys = share == 1.0;
        parts.push((method.to_owned(), verdict_if((keys || share == 0.0) && keys == stated)));
        ours[usize::from(!keys)].push(method);
    }
    let [with, without] = ours.map(|methods| methods.join(", "));
    let said = format!(
        "Access-Accepts carry a key with {with}, and none with {without}. The key is the MSK, from which RFC \
         7296 2.16 derives AUTH. The document writes EMSK, which never leaves the AAA server (RFC 5247). \
         MSCHAPv2 has two MPPE keys (RFC 3079). IKEv2 implementations use them as an MSK, although its own \
         text defines none. SIM (RFC 4186), AKA (RFC 4187), PSK (RFC 4764) and FAST (RFC 4851) derive an \
         MSK, and OTP (RFC 3748 5.5) derives none, as the document says. They are not implemented here. \
         PANA, which the document names, is out of scope."
    );
    Ok(of_parts(format!("keys: {with}; none: {without}"), &said, &parts))
}

/// Tolerance of a recomputed figure for rounding.
const ROUNDED: f64 = 0.005;

/// Evaluates figure 14 from table III by the formula, with the document's own numbers.
fn judge_published_cpu_formula(claim: &Claim, _: &VariantResults<'_>) -> FindingResult {
    let part =
        |id: &str, name: &str| data::find_claim(id).map_or(f64::NAN, |claim| claim.claim_parameter(name));
    let by = claim.claim_parameter("initiator_hz")
        / claim.claim_parameter("authentications")
        / claim.claim_parameter("timer_initiator_hz");
    let (mut parts, mut ours) = (Vec::new(), Vec::new());
    for way in ["md5", "tls_2_2", "tls_2_4", "tls_4_2", "tls_3_3", "tls_4_4"] {
        let samples: f64 = ["crypto", "libc", "kernel", "network"]
            .map(|module| part("ike.cpu.libraries", &format!("{way}_{module}")))
            .into_iter()
            .sum();
        let (cycles, printed) = (samples * by, part("ike.cpu.order", &format!("initiator_{way}")));
        // The claim's statement says that the bar of TLS-2-4 differs from its printed value, so here a difference is as
        // stated.
        let as_stated = ((cycles / printed - 1.0).abs() <= ROUNDED) != (way == "tls_2_4");
        parts.push((way.replace('_', "-"), verdict_if(as_stated)));
        ours.push(format!("{way} {cycles:.3e}"));
    }
    let said = format!("By the formula, Table III gives these cycles: {}.", ours.join(", "));
    Ok(of_parts("figure 14 except TLS-2-4".to_owned(), &said, &parts))
}

/// Evaluates AUTH: both sides compute the same value by each method, or logins would fail; and PSK and EAP-MD5 have the
/// same key exchanges.
fn judge_auth_payload(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let mut parts = Vec::new();
    for way in ["PSK", "MD5", "TLS-2-2"] {
        let whole = ways.mean_value(way, "completed")? == ways.mean_value(way, "started")?;
        parts.push((format!("{way}: both sides agree"), verdict_if(whole)));
    }
    let metric = "cpu.crypto.initiator";
    parts.push((
        "key exchanges alike".to_owned(),
        verdict_if(ways.mean_value("PSK", metric)? == ways.mean_value("MD5", metric)?),
    ));
    let said = "An authentication completes if both sides' AUTH agree. PSK uses the shared key, EAP-TLS the \
                MSK, and EAP-MD5 SK_pi and SK_pr (RFC 7296 2.16). charon agrees with each \
                (docs/contribute/ike-scenarios.md).";
    Ok(of_parts("agree; alike".to_owned(), said, &parts))
}

fn judge_maximum_delay_outliers(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let ways = IkeMethodResults::from_view(view)?;
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for way in METHOD_NAMES {
        let most = require_finite(
            estimate_ratio(ways.get(way, "delay.max")?, ways.get(way, "delay.p50")?),
            "The ratio",
        )?;
        parts.push((way.to_owned(), verdict_if(most.low() > 1.1)));
        said.push(format!("{way} {}", format_digits(most.mean)));
    }
    let reason = format!(
        "The longest authentication of a run divided by its median: {}. Simulated daemons do not sleep or \
         read from a disk. There is no outlier at the start, so all samples count.",
        said.join(", ")
    );
    Ok(of_parts("none".to_owned(), &reason, &parts))
}

/// Maximum ratio of alike delays after division by the deciding factor.
const ALIKE: f64 = 1.25;

/// Evaluates the deciding factors: round trips to the AAA server over a long path, octets over a slow one.
fn judge_deciding_path_factors(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let study = "ike-remote";
    let ways = ["MD5", "TLS-2-2", "TLS-4-4"];
    let at = |way: &str, metric: &str, delay: f64, rate: &str| -> Result<f64, FindingError> {
        let at = [("way", way), ("rate", rate), ("loss", "0 %")];
        Ok(require_finite(
            estimate_mean(
                &view.values_at(CurveSelector { study, metric, x: "delay", fixed_axes: &at }, delay)?,
            ),
            metric,
        )?
        .mean)
    };
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for (name, delay, rate, of) in [
        ("messages at 200 ms", 200.0, "100 Mb/s", ["ike.radius-request.messages"; 2]),
        ("octets at 64 kb/s", 1.0, "64 kb/s", ["ike.radius-request.bytes", "ike.radius-response.bytes"]),
    ] {
        let each = |way: &&str| -> Result<f64, FindingError> {
            let all = at(way, of[0], delay, rate)? + at(way, of[1], delay, rate)?;
            Ok(at(way, "delay.mean", delay, rate)? / all)
        };
        let each = ways.iter().map(each).collect::<Result<Vec<_>, FindingError>>()?;
        let (least, most) =
            each.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), e| (least.min(*e), most.max(*e)));
        parts.push((name.to_owned(), verdict_if(most / least <= ALIKE)));
        said.push(format!(
            "{name}: {} to {} us for each",
            format_digits(least * 1e6),
            format_digits(most * 1e6)
        ));
    }
    let reason = format!(
        "The delay of an authentication is divided by its RADIUS messages over a long path, and by its \
         RADIUS octets over a slow one. These decide if {} agree within a factor of {}. {}.",
        ways.join(", "),
        format_digits(ALIKE),
        said.join("; ")
    );
    Ok(of_parts(said.join("; "), &reason, &parts))
}

fn judge_dimensioning(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    for study in &claim.studies {
        if !view.has_study(study) {
            return Err(view.missing_study(study));
        }
        view.require_default_settings(study)?;
    }
    let reason = "ike-parallel has parallel authentications, and the rate that fills a core. ike-remote has \
                  remote servers, and ike-auth more methods.";
    Ok(ClaimFinding::from_verdict_text("done", Verdict::Reproduced, reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_14_follows_from_table_iii() {
        let claim = data::find_claim("ike.cpu.formula").unwrap();
        let results = crate::RunResults::default();
        let found =
            judge_published_cpu_formula(claim, &VariantResults::new(&results, crate::DEFAULT_VARIANT, false))
                .unwrap();
        assert_eq!(found.verdict, Verdict::Reproduced, "{}", found.reason);
    }
}
