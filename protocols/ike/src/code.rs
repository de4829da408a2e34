//! Numbers of the RFCs, as open sets: other values may arrive.

/// Declares a newtype of a number with named values.
macro_rules! codes {
    ($(#[$meta:meta])* $type:ident($number:ty), $what:literal { $($(#[$doc:meta])* $name:ident = $value:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub $number);

        impl $type {
            $($(#[$doc])* pub const $name: Self = Self($value);)*
            /// The named values, in the order of their declaration.
            pub const NAMED: &'static [Self] = &[$(Self::$name),*];
            /// Returns the name in the RFC, if it is a named value.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{} {}", $what, self.0),
                }
            }
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

codes! {
    /// Exchange types (RFC 7296 §3.1, RFC 5723 §4.3.2, RFC 9242 §3.2).
    ExchangeType(u8), "exchange" {
        /// The first exchange of an IKE_SA.
        IKE_SA_INIT = 34;
        /// Authentication of both sides.
        IKE_AUTH = 35;
        /// Another CHILD_SA, or a new one or a new IKE_SA in the place of an old.
        CREATE_CHILD_SA = 36;
        /// Notifications, deletions, configuration; empty, a proof of life.
        INFORMATIONAL = 37;
        /// An IKE_SA from a ticket (RFC 5723).
        IKE_SESSION_RESUME = 38;
        /// Between IKE_SA_INIT and IKE_AUTH (RFC 9242).
        IKE_INTERMEDIATE = 43;
        /// Further key exchanges after CREATE_CHILD_SA (RFC 9370).
        IKE_FOLLOWUP_KE = 44;
    }
}

codes! {
    /// Payload types (RFC 7296 §3.2, RFC 7383 §2.5).
    PayloadType(u8), "payload" {
        /// No further payload follows.
        NONE = 0;
        /// Security Association.
        SA = 33;
        /// Key Exchange.
        KE = 34;
        /// Identification, of the initiator.
        IDI = 35;
        /// Identification, of the responder.
        IDR = 36;
        /// Certificate.
        CERT = 37;
        /// Certificate Request.
        CERTREQ = 38;
        /// Authentication.
        AUTH = 39;
        /// Nonce.
        NONCE = 40;
        /// Notify.
        N = 41;
        /// Delete.
        D = 42;
        /// Vendor ID.
        V = 43;
        /// Traffic Selectors, of the initiator.
        TSI = 44;
        /// Traffic Selectors, of the responder.
        TSR = 45;
        /// Encrypted and Authenticated.
        SK = 46;
        /// Configuration.
        CP = 47;
        /// Extensible Authentication.
        EAP = 48;
        /// Encrypted and Authenticated Fragment.
        SKF = 53;
    }
}

codes! {
    /// Protocols of security associations (RFC 7296 §3.3.1).
    ProtocolId(u8), "protocol" {
        /// None in particular: of a notification that is about no SA.
        NONE = 0;
        /// The IKE_SA.
        IKE = 1;
        /// Authentication Header.
        AH = 2;
        /// Encapsulating Security Payload.
        ESP = 3;
    }
}

codes! {
    /// The type of a transform (RFC 7296 §3.3.2, RFC 9370 §2.2.2).
    TransformType(u8), "transform type" {
        /// Encryption.
        ENCR = 1;
        /// Pseudorandom function.
        PRF = 2;
        /// Integrity.
        INTEG = 3;
        /// Key exchange method, once called Diffie-Hellman group.
        KE = 4;
        /// Extended sequence numbers.
        ESN = 5;
        /// The first additional key exchange.
        ADDKE1 = 6;
        /// The second.
        ADDKE2 = 7;
        /// The third.
        ADDKE3 = 8;
        /// The fourth.
        ADDKE4 = 9;
        /// The fifth.
        ADDKE5 = 10;
        /// The sixth.
        ADDKE6 = 11;
        /// The seventh.
        ADDKE7 = 12;
    }
}

codes! {
    /// Encryption algorithms (RFC 7296 §3.3.2, RFC 4106 §8.4, RFC 7634 §4).
    EncryptionId(u16), "encryption" {
        /// 3DES in CBC mode (RFC 2451).
        ENCR_3DES = 3;
        /// None (RFC 2410).
        ENCR_NULL = 11;
        /// AES in CBC mode (RFC 3602).
        ENCR_AES_CBC = 12;
        /// AES in Galois counter mode with an ICV of 16 octets (RFC 4106, RFC 5282).
        ENCR_AES_GCM_16 = 20;
        /// ChaCha20 and Poly1305 (RFC 7634).
        ENCR_CHACHA20_POLY1305 = 28;
    }
}

codes! {
    /// Pseudorandom functions (RFC 7296 §3.3.2, RFC 4434 §4, RFC 4868 §4).
    PrfId(u16), "prf" {
        /// HMAC-SHA1 (RFC 2104).
        PRF_HMAC_SHA1 = 2;
        /// AES-XCBC-MAC with a key of 128 bits (RFC 4434).
        PRF_AES128_XCBC = 4;
        /// HMAC-SHA256 (RFC 4868).
        PRF_HMAC_SHA2_256 = 5;
        /// HMAC-SHA384 (RFC 4868).
        PRF_HMAC_SHA2_384 = 6;
        /// HMAC-SHA512 (RFC 4868).
        PRF_HMAC_SHA2_512 = 7;
    }
}

codes! {
    /// Integrity algorithms (RFC 7296 §3.3.2, RFC 4868 §4).
    IntegrityId(u16), "integrity" {
        /// None: the encryption authenticates.
        NONE = 0;
        /// HMAC-SHA1, of which 96 bits are sent (RFC 2404).
        AUTH_HMAC_SHA1_96 = 2;
        /// AES-XCBC-MAC, of which 96 bits are sent (RFC 3566).
        AUTH_AES_XCBC_96 = 5;
        /// HMAC-SHA256, of which 128 bits are sent (RFC 4868).
        AUTH_HMAC_SHA2_256_128 = 12;
        /// HMAC-SHA384, of which 192 bits are sent (RFC 4868).
        AUTH_HMAC_SHA2_384_192 = 13;
        /// HMAC-SHA512, of which 256 bits are sent (RFC 4868).
        AUTH_HMAC_SHA2_512_256 = 14;
    }
}

codes! {
    /// Key exchange methods (RFC 7296 §3.3.2, RFC 3526, RFC 5903, RFC 8031).
    KeyExchangeMethod(u16), "key exchange method" {
        /// None.
        NONE = 0;
        /// A prime of 1024 bits (RFC 7296, appendix B.2).
        MODP_1024 = 2;
        /// A prime of 2048 bits (RFC 3526 §3).
        MODP_2048 = 14;
        /// A prime of 3072 bits (RFC 3526 §4).
        MODP_3072 = 15;
        /// The curve P-256 (RFC 5903).
        ECP_256 = 19;
        /// The curve P-384 (RFC 5903).
        ECP_384 = 20;
        /// X25519 (RFC 8031).
        CURVE25519 = 31;
        /// ML-KEM-768 (FIPS 203), as an additional key exchange.
        ML_KEM_768 = 36;
    }
}

codes! {
    /// Kinds of identities (RFC 7296 §3.5, RFC 7619 §2.2).
    IdType(u8), "identification type" {
        /// An IPv4 address.
        ID_IPV4_ADDR = 1;
        /// A domain name.
        ID_FQDN = 2;
        /// A mail address.
        ID_RFC822_ADDR = 3;
        /// An IPv6 address.
        ID_IPV6_ADDR = 5;
        /// A distinguished name, DER.
        ID_DER_ASN1_DN = 9;
        /// A general name, DER.
        ID_DER_ASN1_GN = 10;
        /// Octets without further meaning.
        ID_KEY_ID = 11;
        /// Nobody who says so.
        ID_NULL = 13;
    }
}

codes! {
    /// The contents of a Certificate payload (RFC 7296 §3.6).
    CertificateEncoding(u8), "certificate encoding" {
        /// An X.509 certificate, DER, whose key signs.
        X509_SIGNATURE = 4;
        /// A certificate revocation list, DER.
        CRL = 7;
        /// The SHA-1 hash of a certificate, and where it can be fetched.
        HASH_AND_URL = 12;
        /// The same of a bundle of certificates.
        HASH_AND_URL_BUNDLE = 13;
        /// A response of OCSP, DER; in a request, by whose keys it may be signed (RFC 4806 §3).
        OCSP_CONTENT = 14;
    }
}

codes! {
    /// How an Authentication payload proves who somebody is (RFC 7296 §3.8, RFC 4754, RFC 7427, RFC 7619).
    AuthMethod(u8), "authentication method" {
        /// RSASSA-PKCS1-v1_5 with SHA-1.
        RSA_DIGITAL_SIGNATURE = 1;
        /// A code by a shared key.
        SHARED_KEY_MESSAGE_INTEGRITY_CODE = 2;
        /// ECDSA with SHA-256 on P-256.
        ECDSA_SHA256_P256 = 9;
        /// ECDSA with SHA-384 on P-384.
        ECDSA_SHA384_P384 = 10;
        /// No proof.
        NULL_AUTHENTICATION = 13;
        /// A signature whose algorithm stands with it.
        DIGITAL_SIGNATURE = 14;
    }
}

codes! {
    /// Hash algorithms of digital signatures (RFC 7427 §7).
    HashAlgorithm(u16), "hash algorithm" {
        /// SHA-1.
        SHA1 = 1;
        /// SHA-256.
        SHA2_256 = 2;
        /// SHA-384.
        SHA2_384 = 3;
        /// SHA-512.
        SHA2_512 = 4;
    }
}

codes! {
    /// Whether a Configuration payload asks or tells (RFC 7296 §3.15).
    CfgType(u8), "configuration" {
        /// Asks for values.
        CFG_REQUEST = 1;
        /// Answers a request.
        CFG_REPLY = 2;
        /// Tells values.
        CFG_SET = 3;
        /// Answers that they were taken.
        CFG_ACK = 4;
    }
}

codes! {
    /// Configuration attributes (RFC 7296 §3.15.1).
    ConfigurationType(u16), "configuration attribute" {
        /// An IPv4 address.
        INTERNAL_IP4_ADDRESS = 1;
        /// A netmask.
        INTERNAL_IP4_NETMASK = 2;
        /// A name server's IPv4 address.
        INTERNAL_IP4_DNS = 3;
        /// A NetBIOS name server's address.
        INTERNAL_IP4_NBNS = 4;
        /// A DHCP server's IPv4 address.
        INTERNAL_IP4_DHCP = 6;
        /// Version and name of the software.
        APPLICATION_VERSION = 7;
        /// An IPv6 address with the length of its prefix.
        INTERNAL_IP6_ADDRESS = 8;
        /// A name server's IPv6 address.
        INTERNAL_IP6_DNS = 10;
        /// A DHCP server's IPv6 address.
        INTERNAL_IP6_DHCP = 12;
        /// An IPv4 network behind the gateway.
        INTERNAL_IP4_SUBNET = 13;
        /// The attributes that are known.
        SUPPORTED_ATTRIBUTES = 14;
        /// An IPv6 network behind the gateway.
        INTERNAL_IP6_SUBNET = 15;
        /// A domain whose names the internal name servers know (RFC 8598).
        INTERNAL_DNS_DOMAIN = 25;
    }
}

codes! {
    /// Kinds of notifications. Those below 16384 are errors.
    NotifyType(u16), "notification" {
        /// A payload that must be understood is not; with its type.
        UNSUPPORTED_CRITICAL_PAYLOAD = 1;
        /// No such IKE_SA.
        INVALID_IKE_SPI = 4;
        /// The other side's version of IKE is too new; with the highest that is known.
        INVALID_MAJOR_VERSION = 5;
        /// Something is not as it must be.
        INVALID_SYNTAX = 7;
        /// A message ID outside the window; with it.
        INVALID_MESSAGE_ID = 9;
        /// ESP or AH for no SA; with its SPI.
        INVALID_SPI = 11;
        /// None of the proposals is acceptable.
        NO_PROPOSAL_CHOSEN = 14;
        /// Another key exchange method is wanted; with it.
        INVALID_KE_PAYLOAD = 17;
        /// The claimed identity was not proved.
        AUTHENTICATION_FAILED = 24;
        /// The selectors must be of a single pair of addresses.
        SINGLE_PAIR_REQUIRED = 34;
        /// No more CHILD_SAs on this IKE_SA.
        NO_ADDITIONAL_SAS = 35;
        /// No address is there to give.
        INTERNAL_ADDRESS_FAILURE = 36;
        /// Without a Configuration payload it does not go.
        FAILED_CP_REQUIRED = 37;
        /// None of the traffic that is proposed is acceptable.
        TS_UNACCEPTABLE = 38;
        /// A packet came by an SA whose selectors it does not fit.
        INVALID_SELECTORS = 39;
        /// Not now.
        TEMPORARY_FAILURE = 43;
        /// SAs may not move to these addresses (RFC 4555).
        UNACCEPTABLE_ADDRESSES = 40;
        /// A NAT is there that must not be (RFC 4555).
        UNEXPECTED_NAT_DETECTED = 41;
        /// No such CHILD_SA.
        CHILD_SA_NOT_FOUND = 44;
        /// A further key exchange is of nothing that is under way (RFC 9370).
        STATE_NOT_FOUND = 47;
        /// The identity has no other IKE_SA that still lives.
        INITIAL_CONTACT = 16384;
        /// How many requests may be outstanding.
        SET_WINDOW_SIZE = 16385;
        /// More selectors could be had by another CHILD_SA.
        ADDITIONAL_TS_POSSIBLE = 16386;
        /// IP compression is possible.
        IPCOMP_SUPPORTED = 16387;
        /// A hash of the sender's address.
        NAT_DETECTION_SOURCE_IP = 16388;
        /// A hash of the receiver's address.
        NAT_DETECTION_DESTINATION_IP = 16389;
        /// To be sent back before anything is computed.
        COOKIE = 16390;
        /// The CHILD_SA is to be of transport mode.
        USE_TRANSPORT_MODE = 16391;
        /// Certificates may be given by URL.
        HTTP_CERT_LOOKUP_SUPPORTED = 16392;
        /// Which CHILD_SA is to be replaced.
        REKEY_SA = 16393;
        /// Padding for traffic flow confidentiality is not understood.
        ESP_TFC_PADDING_NOT_SUPPORTED = 16394;
        /// Fragments other than the first are carried too.
        NON_FIRST_FRAGMENTS_ALSO = 16395;
        /// Mobility and multihoming (RFC 4555).
        MOBIKE_SUPPORTED = 16396;
        /// A further IPv4 address (RFC 4555).
        ADDITIONAL_IP4_ADDRESS = 16397;
        /// A further IPv6 address (RFC 4555).
        ADDITIONAL_IP6_ADDRESS = 16398;
        /// No further address any more (RFC 4555).
        NO_ADDITIONAL_ADDRESSES = 16399;
        /// SAs are to move to this message's addresses (RFC 4555).
        UPDATE_SA_ADDRESSES = 16400;
        /// Proof that the other side is at its address (RFC 4555).
        COOKIE2 = 16401;
        /// Which addresses the message must have been sent from and to (RFC 4555).
        NO_NATS_ALLOWED = 16402;
        /// Another gateway can be named (RFC 5685).
        REDIRECT_SUPPORTED = 16406;
        /// Another gateway is to be used (RFC 5685).
        REDIRECT = 16407;
        /// Which gateway named this one (RFC 5685).
        REDIRECTED_FROM = 16408;
        /// A ticket with its lifetime (RFC 5723).
        TICKET_LT_OPAQUE = 16409;
        /// A ticket is wanted (RFC 5723).
        TICKET_REQUEST = 16410;
        /// A ticket will be given (RFC 5723).
        TICKET_ACK = 16411;
        /// No ticket will be given (RFC 5723).
        TICKET_NACK = 16412;
        /// A ticket (RFC 5723).
        TICKET_OPAQUE = 16413;
        /// EAP alone may prove who the responder is (RFC 5998).
        EAP_ONLY_AUTHENTICATION = 16417;
        /// An IKE_SA without a CHILD_SA is possible (RFC 6023).
        CHILDLESS_IKEV2_SUPPORTED = 16418;
        /// A token by which a lost IKE_SA is known (RFC 6290).
        QUICK_CRASH_DETECTION = 16419;
        /// Message fragmentation (RFC 7383).
        IKEV2_FRAGMENTATION_SUPPORTED = 16430;
        /// Which hashes digital signatures may use (RFC 7427).
        SIGNATURE_HASH_ALGORITHMS = 16431;
        /// IKE_INTERMEDIATE exchanges are possible (RFC 9242).
        INTERMEDIATE_EXCHANGE_SUPPORTED = 16438;
        /// Which exchange goes on (RFC 9370).
        ADDITIONAL_KEY_EXCHANGE = 16441;
    }
}

impl TransformType {
    /// True for an additional key exchange (RFC 9370 §2.2.2).
    #[must_use]
    pub const fn is_additional(self) -> bool {
        matches!(self.0, 6..=12)
    }
}

impl NotifyType {
    /// True for an error (RFC 7296 §3.10.1).
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 < 16384
    }
}
