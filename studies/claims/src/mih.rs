//! The claims of "Performance Evaluation of L3 Transport Protocols for IEEE 802.21" on MIH messages, one function for
//! each.

pub(crate) mod open_questions;
mod tcp;
mod udp;

use crate::common::{FindingResult, JudgeFunction, judge_configuration};
use crate::data::Claim;
use crate::judge::{FindingError, format_with_comparative};
use crate::measure::{MetricCurve, MetricEstimate, MetricValues};
use crate::results::{CurveSelector, VariantResults};

/// The function of each claim.
pub(crate) const FUNCTIONS: [(&str, JudgeFunction); 16] = [
    ("mih.setup", judge_setup),
    ("mih.udp.delay", udp::judge_udp_transaction_delay),
    ("mih.udp.delay-ack", udp::judge_delay_with_ack),
    ("mih.udp.success", udp::judge_success),
    ("mih.udp.overhead", udp::judge_overhead),
    ("mih.udp.throughput", udp::judge_throughput),
    ("mih.tcp.delay-loss", tcp::judge_tcp_delay_over_loss),
    ("mih.tcp.delay-maxrto", tcp::judge_delay_over_max_rto),
    ("mih.tcp.ack-hurts", tcp::judge_ack_delay_penalty),
    ("mih.tcp.shared-segment", tcp::judge_shared_segments),
    ("mih.tcp.late-dip", tcp::judge_late_delay_peak),
    ("mih.tcp.success", tcp::judge_success),
    ("mih.tcp.mih-overhead", tcp::judge_mih_overhead),
    ("mih.tcp.segments", tcp::judge_segments_per_packet),
    ("mih.tcp.load", tcp::judge_load_over_loss),
    ("mih.open", open_questions::judge_open_questions),
];

const LOSS: &str = "loss";
/// The values of the axis `message`.
const MESSAGES: [&str; 2] = ["indication", "request"];
/// The axis `ack` with MIH acknowledgements, and without.
const WITH: (&str, &str) = ("ack", "with");
const WITHOUT: (&str, &str) = ("ack", "without");
/// The link for load and throughput: all traffic of the mobile node and its point of service passes it.
const LINK: &str = "access";

/// Returns a metric of a study over loss.
fn over_loss(
    view: &VariantResults<'_>,
    study: &str,
    metric: &str,
    at: &[(&str, &str)],
) -> Result<MetricCurve, FindingError> {
    view.curve(CurveSelector { study, metric, x: LOSS, fixed_axes: at })
}

/// Returns a metric of a study at one loss.
fn metric_at_loss(
    view: &VariantResults<'_>,
    study: &str,
    metric: &str,
    at: &[(&str, &str)],
    loss: f64,
) -> Result<MetricValues, FindingError> {
    view.values_at(CurveSelector { study, metric, x: LOSS, fixed_axes: at }, loss)
}

/// Returns the seconds of a value such as `0.3 s` or `300 ms`.
fn parse_seconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    match unit {
        "s" => Some(number),
        "ms" => Some(number / 1000.0),
        _ => None,
    }
}

fn judge_setup(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let stated = "802.11 at 11 Mb/s with a radius of 50 m, wired links of 100 Mb/s and 10 ms, and IPv6. TCP: \
                  an MSS of 1280 B, a smallest RTO of 0.2 s, the five largest RTOs, and no limit of \
                  retransmissions. MIH: messages of 200 B, 2 retransmissions, 0.2 s for a request, packets \
                  of up to 1000 B over UDP, and no timeout of a transaction. The MIH timeout over TCP is \
                  three largest RTOs. Traffic: 2 messages a second from 5 s on for 4000 s, with a loss of 0 \
                  to 50 % from 5 s on";
    let mut found = judge_configuration(claim, view, stated)?.of_all(claim, view);
    found.reason.push_str(&describe_timeout_effect(view));
    Ok(found)
}

/// The study of transaction timeouts, and its axis.
const TRANSACTION: (&str, &str) = ("mih-transaction", "timeout");

/// Returns a sentence on the effect of a transaction timeout, which the document does not have.
fn describe_timeout_effect(view: &VariantResults<'_>) -> String {
    let (study, axis) = TRANSACTION;
    let (mut most, mut at) = (None::<MetricEstimate>, String::new());
    for (message, ack) in MESSAGES.into_iter().flat_map(|m| [WITHOUT, WITH].map(|ack| (m, ack))) {
        let of = |timeout| over_loss(view, study, "success", &[("message", message), ack, (axis, timeout)]);
        let (Ok(with), Ok(none)) = (of("60 s"), of("none")) else { continue };
        for (loss, e) in none.subtract_curve(&with).estimates() {
            if most.is_none_or(|most| e.mean.abs() > most.mean.abs()) {
                (most, at) = (Some(e), format!("{message}s {} acknowledgement at {loss} % loss", ack.1));
            }
        }
    }
    let Some(most) = most else {
        return format!(" To see the effect of a transaction timeout: usher study run {study}.");
    };
    format!(
        " In {study}, removing the transaction timeout of 60 s changes success the most for {at}: {}.",
        format_with_comparative(&most, "", "more", "less")
    )
}
