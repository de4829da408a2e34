//! The labelled work of a node.

usher_core::work_labels! {
    /// A request sent or received.
    REQUEST = "diameter.request" per "message";
    /// An answer sent or received.
    ANSWER = "diameter.answer" per "message";
    /// A message of the base protocol sent: capabilities, watchdogs, the end of a connection.
    BASE = "diameter.base" per "message";
}
