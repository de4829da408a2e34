//! The labelled work of the handover's roles.

usher_core::work_labels! {
    /// What a link said of itself taken in: Link_Going_Down and its kin.
    LINK = "mobility.link" per "link event";
    /// A request of the handover acted upon.
    REQUEST = "mobility.request" per "message";
    /// A Binding Update or its acknowledgement sent or received.
    BINDING = "mobility.binding" per "message";
    /// A packet of the flow sent or received.
    DATA = "mobility.data" per "packet";
}
