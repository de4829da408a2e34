//! The labelled work of an exchange of keys.

usher_core::work_labels! {
    /// All keys derived from a master session key.
    DERIVE = "pkm.derive" per "key hierarchy";
    /// A message's digest made or checked.
    DIGEST = "pkm.digest" per "digest";
    /// A traffic key wrapped or unwrapped.
    KEY = "pkm.key" per "key";
}
