//! The reasons for the end of a session.

usher_core::named! {
    "an end reason";
    /// Why a session ended or was never established.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum EndReason {
        /// A command of this side ended it.
        Closed = "closed",
        /// The peer ended it by LCP.
        PeerClosed = "peer-closed",
        /// The peer ended it by PADT.
        Padt = "padt",
        /// The peer does not answer.
        Unreachable = "unreachable",
        /// The negotiation of options does not converge.
        NotConverging = "not-converging",
        /// The link is looped: sent packets come back.
        Looped = "looped",
        /// The session setup took too long.
        SetupTimeout = "setup-timeout",
        /// The peer offers no acceptable authentication protocol.
        NoAuthentication = "no-authentication",
        /// The concentrator requests no authentication, so it does not prove its own identity either.
        AuthenticationNotRequested = "authentication-not-requested",
        /// The authentication of the peer failed.
        AuthenticationFailed = "authentication-failed",
        /// The peer rejected this side's authentication.
        Refused = "refused",
        /// The concentrator accepted this side without knowing its password.
        Impostor = "impostor",
        /// The authentication backend did not answer.
        Unjudged = "unjudged",
        /// No common network protocol is left.
        NoNetwork = "no-network",
        /// A newer session of the same host replaced it.
        Replaced = "replaced",
        /// The peer renegotiates too often.
        Renegotiating = "renegotiating",
        /// It was evicted before the end of authentication.
        CrowdedOut = "crowded-out",
        /// The peer does not support LCP or a fundamental part of it.
        Protocol = "protocol",
        /// An authentication packet is too long for the peer, or a name or password is too long for PAP.
        TooLong = "too-long",
        /// No concentrator offers the requested service.
        NoConcentrator = "no-concentrator",
    }
}
