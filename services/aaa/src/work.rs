//! The labelled work of the server beside its protocols', and of what stands behind it.

usher_core::work_labels! {
    /// A login decided: policy applied to its user, and the reply made.
    VERDICT = "aaa.verdict" per "login";
    /// A user looked up in the store.
    LOOKUP = "store.lookup" per "user";
    /// An accounting record made durable in the store.
    WRITE = "store.write" per "record";
    /// A password compared with its Argon2 hash.
    ARGON2 = "password.argon2" per "comparison";
    /// A certificate's name and issuers looked at after its handshake.
    CERTIFICATE = "certificate.check" per "certificate";
}
