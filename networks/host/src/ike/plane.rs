//! What carries packets of CHILD_SAs.

use usher_ike::machine::Event;

/// Carries out what IKE says of CHILD_SAs. This host has nothing that carries their packets: it says so, once for each.
#[derive(Debug)]
pub(super) struct Plane;

impl Plane {
    /// Carries out what one event says, before whatever depends on it is sent.
    pub(super) fn carry_out(&self, event: &Event) {
        match event {
            Event::Install { sa, child } => {
                let list = |of: &[usher_ike::payload::TrafficSelector]| {
                    of.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
                };
                let (inbound, outbound) =
                    (format!("{:08x}", child.inbound), format!("{:08x}", child.outbound));
                let (local, remote) = (list(&child.local), list(&child.remote));
                tracing::info!(
                    sa = sa.0,
                    name = child.name,
                    inbound,
                    outbound,
                    local,
                    remote,
                    "CHILD_SA, whose packets nothing carries here"
                );
            }
            Event::Remove { sa, inbound, .. } => {
                tracing::info!(sa = sa.0, inbound = format!("{inbound:08x}"), "CHILD_SA removed");
            }
            _ => {}
        }
    }
}
