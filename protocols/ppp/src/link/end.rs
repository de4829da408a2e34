//! The reasons for the end of a session.

usher_core::named! {
    "why a session ended";
    /// Why a session ended, or never came to be.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum EndReason {
        /// This side was told to end it.
        Closed = "closed",
        /// The other side ended it by LCP.
        PeerClosed = "peer-closed",
        /// The other side ended it by PADT.
        Padt = "padt",
        /// The other side does not answer.
        Unreachable = "unreachable",
        /// Both answer, and do not come to agree.
        NotConverging = "not-converging",
        /// What is sent comes back: the link is looped.
        Looped = "looped",
        /// Setting up took too long.
        SetupTimeout = "setup-timeout",
        /// The other side has no way of showing who it is that this side takes.
        NoAuthentication = "no-authentication",
        /// The concentrator asks for no proof of who this side is, and so shows none of its own.
        AuthenticationNotRequested = "unasked",
        /// The other side did not prove who it is.
        AuthenticationFailed = "authentication-failed",
        /// This side was not believed.
        Refused = "refused",
        /// The concentrator does not know the password that it let this side in by.
        Impostor = "impostor",
        /// Whoever judges proofs did not answer.
        Unjudged = "unjudged",
        /// No network protocol is left that both want.
        NoNetwork = "no-network",
        /// The same host began another session and may not have both.
        Replaced = "replaced",
        /// The other side leaves what was agreed to again and again.
        Renegotiating = "renegotiating",
        /// Others wanted its place before its host was let in.
        CrowdedOut = "crowded-out",
        /// The other side does not know LCP, or what is fundamental to it.
        Protocol = "protocol",
        /// A packet of authentication is longer than the other side takes, or a name or password longer than PAP can say.
        TooLong = "too-long",
        /// No concentrator offers what is asked for.
        NoConcentrator = "no-concentrator",
    }
}
