//! The labelled work of the server beside its protocols', and of what stands behind it.

usher_core::work_labels! {
    /// A verdict on a login: applying the user's policy and building the reply.
    VERDICT = "aaa.verdict" per "login";
    /// A user lookup in the store.
    LOOKUP = "store.lookup" per "user";
    /// A durable write of an accounting record to the store.
    WRITE = "store.write" per "record";
    /// A comparison of a password with its Argon2 hash.
    ARGON2 = "password.argon2" per "comparison";
    /// A check of a certificate's name and issuers after its handshake.
    CERTIFICATE = "certificate.check" per "certificate";
}
