//! State diagrams of SAs that are rekeyed and deleted by one side, the other, or both at the same time (RFC 7296
//! §2.8, §2.25).

use usher_core::{automaton, names};

names! {
    /// Where a CHILD_SA stands.
    pub(super) ChildState {
        Installed = "installed",
        /// Our request to replace it is out.
        Rekeying = "our rekeying is pending",
        /// Both have asked to replace it.
        Collided = "both rekey",
        /// Both have, and the other side has deleted it already.
        Bereft = "both rekey, deleted by the peer",
        /// Another of ours has taken its place.
        Outdated = "replaced by ours",
        /// Another of the other side's has taken its place.
        Replaced = "replaced by the peer's",
        Deleting = "our deletion is pending",
        Gone = "gone",
    }
}

names! {
    /// The events of a CHILD_SA.
    pub(super) ChildEvent {
        Rekey = "it is time to rekey",
        PeerRekeys = "request to rekey",
        Answered = "rekeying answered",
        Refused = "rekeying refused",
        NotFound = "CHILD_SA_NOT_FOUND",
        Delete = "it is to be deleted",
        PeerDeletes = "request to delete",
        DeleteAnswered = "deletion answered",
    }
}

names! {
    /// The condition between two that were made at the same time.
    pub(super) Lowest {
        Ours = "the lowest of the four nonces is of our exchange",
    }
}

names! {
    /// The actions on a CHILD_SA.
    pub(super) ChildAction {
        Request = "request rekeying",
        Answer = "answer with a new SA",
        Remember = "remember its nonces",
        TemporaryFailure = "answer TEMPORARY_FAILURE",
        DeleteOld = "plan its deletion",
        DeleteOurs = "plan the deletion of the SA that we have made",
        RequestDelete = "request deletion",
        AnswerDelete = "answer with its SPI",
        AnswerEmpty = "answer without its SPI",
        Remove = "remove it",
    }
}

automaton! {
    /// A CHILD_SA that is replaced or deleted. Choices that the RFC leaves open:
    ///
    /// - A CHILD_SA that has been replaced is not replaced once more: TEMPORARY_FAILURE, as for one that is being closed.
    /// - Of a pair that was made at the same time, whoever made the one with the lowest nonce deletes that, and the other
    ///   side deletes the old SA.
    pub(super) ChildRekeying("ike-child-rekeying", "RFC 7296, 2.8.1 and 2.25.1"):
        ChildState from Installed, on ChildEvent if Lowest, do ChildAction;
    Installed {
        Rekey => [Request] Rekeying;
        PeerRekeys => [Answer] Replaced;
        Delete => [RequestDelete] Deleting;
        PeerDeletes => [Remove, AnswerDelete] Gone;
        ! never [Answered, Refused, NotFound, DeleteAnswered]: "no request about it is pending";
    }
    Rekeying {
        PeerRekeys => [Answer, Remember] Collided;
        Answered => [DeleteOld] Outdated;
        Refused => [] Installed;
        NotFound => [Remove] Gone;
        PeerDeletes => [Remove, AnswerDelete] Gone;
        ! never [Rekey, Delete, DeleteAnswered]: "one request is pending at a time";
    }
    Collided {
        Answered if Ours => [DeleteOurs] Replaced;
        Answered => [DeleteOld] Outdated;
        Refused => [] Replaced;
        NotFound => [] Replaced;
        PeerDeletes => [Remove, AnswerDelete] Bereft;
        PeerRekeys => [TemporaryFailure] Collided;
        ! never [Rekey, Delete, DeleteAnswered]: "one request is pending at a time";
    }
    Bereft {
        Answered if Ours => [DeleteOurs] Gone;
        Answered => [] Gone;
        Refused => [] Gone;
        NotFound => [] Gone;
        ! never [Rekey, Delete, DeleteAnswered]: "one request is pending at a time";
        ! never [PeerRekeys, PeerDeletes]: "it can no longer be found";
    }
    Outdated {
        Delete => [RequestDelete] Deleting;
        PeerDeletes => [Remove, AnswerDelete] Gone;
        PeerRekeys => [TemporaryFailure] Outdated;
        ! ignored [Rekey]: "it has been replaced";
        ! never [Answered, Refused, NotFound, DeleteAnswered]: "no request about it is pending";
    }
    Replaced {
        PeerDeletes => [Remove, AnswerDelete] Gone;
        PeerRekeys => [TemporaryFailure] Replaced;
        Delete => [RequestDelete] Deleting;
        ! ignored [Rekey]: "it has been replaced";
        ! never [Answered, Refused, NotFound, DeleteAnswered]: "no request about it is pending";
    }
    Deleting {
        DeleteAnswered => [Remove] Gone;
        PeerDeletes => [AnswerEmpty] Deleting;
        PeerRekeys => [TemporaryFailure] Deleting;
        ! ignored [Rekey]: "it ends";
        ! never [Answered, Refused, NotFound, Delete]: "one request is pending at a time";
    }
    Gone {
        ! never [Rekey, PeerRekeys, Answered, Refused, NotFound, Delete, PeerDeletes, DeleteAnswered]: "it is forgotten";
    }
}

names! {
    /// Where an IKE_SA stands that is established.
    pub(super) SaState {
        Established = "established",
        Rekeying = "our rekeying is pending",
        Collided = "both rekey",
        Outdated = "replaced by ours",
        Replaced = "replaced by the peer's",
        Deleting = "our deletion is pending",
        Gone = "gone",
    }
}

names! {
    /// The events of an IKE_SA.
    pub(super) SaEvent {
        Rekey = "it is time to rekey",
        PeerRekeys = "request to rekey",
        Answered = "rekeying answered",
        Refused = "rekeying refused",
        Delete = "it is to be deleted",
        PeerDeletes = "request to delete",
        DeleteAnswered = "deletion answered",
    }
}

names! {
    /// The actions on an IKE_SA.
    pub(super) SaAction {
        Request = "request rekeying",
        Answer = "answer with a new IKE_SA",
        TemporaryFailure = "answer TEMPORARY_FAILURE",
        Hold = "hold the peer's new IKE_SA",
        InheritOurs = "our new IKE_SA inherits",
        InheritTheirs = "the peer's new IKE_SA inherits",
        KeepTheirs = "keep the peer's new IKE_SA until it is deleted",
        DeleteOurs = "delete the IKE_SA that we have made",
        DeleteOld = "plan its deletion",
        RequestDelete = "request deletion",
        AnswerDelete = "answer",
        End = "end it",
    }
}

automaton! {
    /// An IKE_SA that is replaced or deleted. The CHILD_SAs go over to whichever new one remains; of two that were made at
    /// the same time that is the one without the lowest nonce.
    pub(super) SaRekeying("ike-sa-rekeying", "RFC 7296, 2.8.2 and 2.25.2"):
        SaState from Established, on SaEvent if Lowest, do SaAction;
    Established {
        Rekey => [Request] Rekeying;
        PeerRekeys => [Answer, InheritTheirs] Replaced;
        Delete => [RequestDelete] Deleting;
        PeerDeletes => [AnswerDelete, End] Gone;
        ! never [Answered, Refused, DeleteAnswered]: "no request about it is pending";
    }
    Rekeying {
        PeerRekeys => [Answer, Hold] Collided;
        Answered => [InheritOurs, DeleteOld] Outdated;
        Refused => [] Established;
        PeerDeletes => [AnswerDelete, End] Gone;
        ! never [Rekey, Delete, DeleteAnswered]: "one request is pending at a time";
    }
    Collided {
        Answered if Ours => [InheritTheirs, DeleteOurs] Replaced;
        Answered => [InheritOurs, KeepTheirs, DeleteOld] Outdated;
        Refused => [InheritTheirs] Replaced;
        PeerDeletes => [InheritTheirs, AnswerDelete, End] Gone;
        PeerRekeys => [TemporaryFailure] Collided;
        ! never [Rekey, Delete, DeleteAnswered]: "one request is pending at a time";
    }
    Outdated {
        Delete => [RequestDelete] Deleting;
        ! never [PeerRekeys, PeerDeletes]: "its deletion is sent at once";
        ! never [Rekey, Answered, Refused, DeleteAnswered]: "nothing more is planned for it";
    }
    Replaced {
        PeerDeletes => [AnswerDelete, End] Gone;
        PeerRekeys => [TemporaryFailure] Replaced;
        Delete => [RequestDelete] Deleting;
        ! never [Rekey, Answered, Refused, DeleteAnswered]: "nothing more is planned for it";
    }
    Deleting {
        DeleteAnswered => [End] Gone;
        PeerDeletes => [AnswerDelete, End] Gone;
        PeerRekeys => [TemporaryFailure] Deleting;
        ! never [Rekey, Answered, Refused, Delete]: "one request is pending at a time";
    }
    Gone {
        ! never [Rekey, PeerRekeys, Answered, Refused, Delete, PeerDeletes, DeleteAnswered]: "it is forgotten";
    }
}
