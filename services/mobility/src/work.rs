//! The labelled work of the handover's roles.

usher_core::work_labels! {
    /// An event of a link processed, such as Link_Going_Down.
    LINK = "mobility.link" per "link event";
    /// A request of the handover acted upon.
    REQUEST = "mobility.request" per "message";
    /// A Binding Update or its acknowledgement sent or received.
    BINDING = "mobility.binding" per "message";
    /// A packet of the flow sent or received.
    DATA = "mobility.data" per "packet";
}
