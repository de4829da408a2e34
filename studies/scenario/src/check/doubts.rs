//! What is right and may mislead: a setting in which the points of a plan differ beside what they compare, and losses that
//! last as long as nothing is sent.

use super::{CheckFinding, keys};
use crate::lab;
use crate::model::Scenario;
use crate::setting;
use std::collections::BTreeSet;
use usher_config::tree::TreeNode;
use usher_core::impair;

/// What may mislead in the points of a plan. `given` is the study as its file and its mode have it, `varied` are the paths that
/// axes and choices set.
pub(crate) fn find_doubts(points: &[&Scenario], given: &TreeNode, varied: &[String]) -> Vec<CheckFinding> {
    find_nagle_difference(points, given, varied).into_iter().chain(find_packet_bursts(points)).collect()
}

/// Losses whose bursts last so many packets, however long these take to come.
fn find_packet_bursts(points: &[&Scenario]) -> Vec<CheckFinding> {
    let mut found: Vec<CheckFinding> = Vec::new();
    for (name, link) in points.iter().flat_map(|scenario| scenario.links.iter()) {
        let sides = [("up", link.up.loss.as_ref()), ("down", link.down.loss.as_ref())];
        let own =
            sides.iter().filter_map(|(side, loss)| Some((keys!["links", name, side, "loss"], (*loss)?)));
        for (path, loss) in own.chain([(keys!["links", name, "loss"], &link.loss)]) {
            let by_packets = matches!(loss.channel_loss(), impair::LossModel::GilbertElliott { .. });
            if by_packets && !found.iter().any(|(known, _)| *known == path) {
                let message = "its bursts last packets and not time, so that on a quiet link one outlasts every \
                               retransmission: give mean as a time, such as \"20 ms\", or kind = \"timed-gilbert-elliott\"";
                found.push((path, message.to_owned()));
            }
        }
    }
    found
}

/// Points over TCP and points over SCTP whose Nagle's algorithm is not the same, unless the study says so of both.
fn find_nagle_difference(points: &[&Scenario], given: &TreeNode, varied: &[String]) -> Option<CheckFinding> {
    let of = |carrier: &str, nagle: fn(&Scenario) -> bool| {
        let carried = points.iter().filter(|scenario| lab::used_transports(scenario).contains(carrier));
        carried.map(|scenario| nagle(scenario)).collect::<BTreeSet<bool>>()
    };
    let tcp = of("tcp", |scenario| scenario.transport.tcp.nagle);
    let sctp = of("sctp", |scenario| scenario.transport.sctp.nagle);
    // Where one has both, there are points to compare with.
    let ([tcp], [sctp]) =
        (&tcp.into_iter().collect::<Vec<_>>()[..], &sctp.into_iter().collect::<Vec<_>>()[..])
    else {
        return None;
    };
    let told = |protocol: &str| {
        let keys = keys!["transport", protocol, "nagle"];
        let path = keys.join(".");
        given.resolve_keys(&keys).iter().try_fold(given, |node, step| node.child(step)).is_some()
            || varied.iter().any(|varied| setting::covers_setting(varied, &path))
    };
    if tcp == sctp || told("tcp") && told("sctp") {
        return None;
    }
    let word = |nagle: &bool| if *nagle { "on" } else { "off" };
    let message = format!(
        "Nagle's algorithm is {} in the points over TCP and {} in those over SCTP, so that they differ in it, too: write \
         transport.nagle, which is of both, or each one's own",
        word(tcp),
        word(sctp)
    );
    Some((keys!["transport"], message))
}
