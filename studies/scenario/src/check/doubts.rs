//! Warnings about valid but misleading settings: a difference of points beside the compared setting, and burst losses
//! counted in packets.

use super::{CheckFinding, keys};
use crate::lab;
use crate::model::Scenario;
use crate::setting;
use std::collections::BTreeSet;
use usher_config::tree::TreeNode;
use usher_core::impair;

/// Returns the misleading settings of a plan's points. `given` is the study with its mode applied; `varied` are the
/// paths that axes and choices set.
pub(crate) fn find_doubts(points: &[&Scenario], given: &TreeNode, varied: &[String]) -> Vec<CheckFinding> {
    find_nagle_difference(points, given, varied).into_iter().chain(find_packet_bursts(points)).collect()
}

/// Finds burst losses measured in packets: the burst lasts as long as the sender is silent.
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

/// Finds TCP and SCTP points with different Nagle settings, unless the study sets both.
fn find_nagle_difference(points: &[&Scenario], given: &TreeNode, varied: &[String]) -> Option<CheckFinding> {
    let of = |carrier: &str, nagle: fn(&Scenario) -> bool| {
        let carried = points.iter().filter(|scenario| lab::used_transports(scenario).contains(carrier));
        carried.map(|scenario| nagle(scenario)).collect::<BTreeSet<bool>>()
    };
    let tcp = of("tcp", |scenario| scenario.transport.tcp.nagle);
    let sctp = of("sctp", |scenario| scenario.transport.sctp.nagle);
    // Only a plan with points of both has a comparison.
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
