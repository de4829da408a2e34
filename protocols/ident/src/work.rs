//! What the machines of this crate do that a simulated processor can be charged for.

usher_core::work_labels! {
    /// A query sent or received, or the reply to it.
    MESSAGE = "ident.message" per "message";
}
