//! The work labels of this crate's machines: work for which a simulated processor is charged.

usher_core::work_labels! {
    /// A packet of PPPoE's discovery stage received or sent.
    DISCOVERY = "ppp.discovery" per "packet";
    /// A control packet of a session received or sent: of LCP, of an authentication protocol, or of a network control protocol.
    CONTROL = "ppp.control" per "packet";
    /// A response to a challenge computed, or an AC-Cookie made or checked.
    DIGEST = "ppp.digest" per "digest";
}
