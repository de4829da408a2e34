//! The steps of a handover, for reports of their durations.

use core::fmt;
use usher_core::names;

names! {
    /// A step of a handover. The station's steps before [`Step::Completion`] follow each other without a gap, so that their
    /// times add up to the handover's; the point of service's lie within them.
    pub Step {
        /// Station: the scan of the new network.
        Scan = "scan",
        /// Station: MIH_MN_HO_Candidate_Query, from request to response. Point of service: MIH_N2N_HO_Query_Resources,
        /// likewise.
        Resources = "resources",
        /// Station: MIH_MN_HO_Commit, from request to response. Point of service: MIH_Net_HO_Commit, likewise.
        Commit = "commit",
        /// Station, network-initiated: from Link_Going_Down until it begins the scan that the network asks for.
        Preparation = "preparation",
        /// Station, network-initiated: from its answer to the query until MIH_Net_HO_Commit request.
        Decision = "decision",
        /// Station, failed: from the end of its last step until the old link is lost or given up.
        Wait = "wait",
        /// Station: entry into the new network.
        Entry = "entry",
        /// Station: Binding Update, until the acknowledgement.
        Redirection = "redirection",
        /// Station: MIH_MN_HO_Complete, from request to response; after the handover's end.
        Completion = "completion",
        /// Point of service: MIH_Net_HO_Candidate_Query, from request to response, the scan included.
        Candidate = "candidate",
        /// Point of service: MIH_N2N_HO_Commit, from request to response.
        Reservation = "reservation",
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
