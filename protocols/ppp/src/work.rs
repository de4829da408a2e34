//! What the machines of this crate do that a simulated processor can be charged for.

usher_core::work_labels! {
    /// A packet of PPPoE's discovery stage received or sent.
    DISCOVERY = "ppp.discovery" per "packet";
    /// A control packet of a session received or sent: of LCP, of an authentication protocol, or of a network control protocol.
    CONTROL = "ppp.control" per "packet";
    /// A response to a challenge computed, or an AC-Cookie made or checked.
    DIGEST = "ppp.digest" per "digest";
}
