//! The labelled work of this crate's machines, which a simulated processor is charged for.

usher_core::work_labels! {
    /// A query sent or received, or the reply to it.
    MESSAGE = "ident.message" per "message";
}
