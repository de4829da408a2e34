//! The labelled work of the methods; the public-key operations of TLS are `usher_crypto`'s.

usher_core::work_labels! {
    /// The digest of an EAP-MD5 challenge (RFC 3748, 5.4) made or checked.
    MD5 = "eap.md5" per "digest";
    /// The responses of an MS-CHAP-V2 challenge (RFC 2759) made or checked.
    MSCHAPV2 = "eap.mschapv2" per "response";
    /// A packet of EAP-TLS, PEAP or EAP-TTLS read: its fragment, and its TLS processing without public-key operations.
    PACKET = "eap.tls" per "packet";
}
