//! The labelled work of what stands behind a server.

usher_core::work_labels! {
    /// A user looked up in the store.
    LOOKUP = "store.lookup" per "user";
    /// An accounting record made durable in the store.
    WRITE = "store.write" per "record";
    /// A password compared with its Argon2 hash.
    ARGON2 = "password.argon2" per "comparison";
    /// A certificate's name and issuers looked at after its handshake.
    CERTIFICATE = "certificate.check" per "certificate";
}
