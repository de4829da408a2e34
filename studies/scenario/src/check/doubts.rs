//! Warnings about valid but misleading settings: a difference of points beside the compared setting, and burst losses
//! counted in packets.

use super::{SettingFault, keys};
use crate::lab;
use crate::model::Scenario;
use crate::setting;
use std::collections::BTreeSet;
use usher_config::tree::TreeNode;
use usher_core::impair;

/// Returns the misleading settings of a plan's points. `given` is the study with its mode applied; `varied` are the
/// paths that axes and choices set.
pub(crate) fn find_misleading_settings(
    points: &[&Scenario],
    given: &TreeNode,
    varied: &[String],
) -> Vec<SettingFault> {
    find_nagle_difference(points, given, varied).into_iter().chain(find_packet_bursts(points)).collect()
}

/// Finds burst losses measured in packets: the burst lasts as long as the sender is silent.
fn find_packet_bursts(points: &[&Scenario]) -> Vec<SettingFault> {
    let mut found: Vec<SettingFault> = Vec::new();
    for (name, link) in points.iter().flat_map(|scenario| scenario.links.iter()) {
        let sides = [("up", link.up.loss.as_ref()), ("down", link.down.loss.as_ref())];
        let own =
            sides.iter().filter_map(|(side, loss)| Some((keys!["links", name, side, "loss"], (*loss)?)));
        for (path, loss) in own.chain([(keys!["links", name, "loss"], &link.loss)]) {
            let by_packets = matches!(loss.channel_loss(), impair::LossModel::GilbertElliott { .. });
            if by_packets && !found.iter().any(|(known, _)| *known == path) {
                let message = "bursts are counted in packets, so on a quiet link a burst outlasts every \
                               retransmission: give mean as a time, such as \"20 ms\", or set kind = \
                               \"timed-gilbert-elliott\"";
                found.push((path, message.to_owned()));
            }
        }
    }
    found
}

/// Finds TCP and SCTP points with different Nagle settings, unless the study sets both.
fn find_nagle_difference(points: &[&Scenario], given: &TreeNode, varied: &[String]) -> Option<SettingFault> {
    let of = |carrier: &str, nagle: fn(&Scenario) -> bool| {
        let carried = points.iter().filter(|scenario| lab::used_transports(scenario).contains(carrier));
        carried.map(|scenario| nagle(scenario)).collect::<BTreeSet<bool>>()
    };
    let tcp = of("tcp", |scenario| scenario.transport.tcp.nagle);
    let sctp = of("sctp", |scenario| scenario.transport.sctp.nagle);
    // A comparison needs points of both transports, so other plans have none.
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
        "Nagle's algorithm is {} over TCP and {} over SCTP, so these points differ in more than the transport: set \
         transport.nagle for both, or nagle of each",
        word(tcp),
        word(sctp)
    );
    Some((keys!["transport"], message))
}
