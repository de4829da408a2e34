//! Conversion of rustls errors to fault values.

use super::TlsError;
use crate::fault::{Alert, CertificateFault, TlsFault};
use rustls::{CertificateError, Error, PeerIncompatible};

/// Returns the engine's error for an error of rustls.
pub(super) fn to_tls_error(error: &Error) -> TlsError {
    match error {
        Error::AlertReceived(alert) => TlsError::AlertReceived(Alert((*alert).into())),
        other => TlsError::Failed(to_tls_fault(other), other.to_string()),
    }
}

fn to_tls_fault(error: &Error) -> TlsFault {
    match error {
        Error::AlertReceived(alert) => TlsFault::Alert(Alert((*alert).into())),
        Error::InvalidCertificate(error) => TlsFault::Certificate(certificate_fault(error)),
        Error::InvalidCertRevocationList(_) => TlsFault::Certificate(CertificateFault::ListUnusable),
        Error::NoCertificatesPresented => TlsFault::NoCertificate,
        Error::PeerIncompatible(lack) => incompatibility_fault(lack),
        Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => TlsFault::Malformed,
        Error::DecryptError => TlsFault::Undecipherable,
        Error::PeerMisbehaved(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => TlsFault::Misbehaved,
        _ => TlsFault::Internal,
    }
}

fn incompatibility_fault(lack: &PeerIncompatible) -> TlsFault {
    match lack {
        PeerIncompatible::ExtendedMasterSecretExtensionRequired => TlsFault::NoExtendedMasterSecret,
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => TlsFault::NoCommonVersion,
        _ => TlsFault::NoCommonCipher,
    }
}

fn certificate_fault(error: &CertificateError) -> CertificateFault {
    use CertificateError as E;
    match error {
        E::UnknownIssuer => CertificateFault::UnknownAuthority,
        E::Expired | E::ExpiredContext { .. } => CertificateFault::Expired,
        E::NotValidYet | E::NotValidYetContext { .. } => CertificateFault::NotYetValid,
        E::Revoked => CertificateFault::Revoked,
        E::ExpiredRevocationList | E::ExpiredRevocationListContext { .. } => CertificateFault::ListExpired,
        E::UnknownRevocationStatus => CertificateFault::ListUnusable,
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => CertificateFault::Purpose,
        E::NotValidForName | E::NotValidForNameContext { .. } => CertificateFault::Name,
        E::BadSignature => CertificateFault::Signature,
        E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => CertificateFault::Algorithm,
        E::BadEncoding | E::UnhandledCriticalExtension => CertificateFault::Malformed,
        E::Other(other) => other.0.downcast_ref().map_or(CertificateFault::Other, classify_other_error),
        _ => CertificateFault::Other,
    }
}

/// Classifies errors that rustls does not name.
fn classify_other_error(error: &webpki::Error) -> CertificateFault {
    use webpki::Error as E;
    match error {
        E::CaUsedAsEndEntity
        | E::EndEntityUsedAsCa
        | E::MaximumPathDepthExceeded
        | E::NameConstraintViolation
        | E::PathLenConstraintViolated => CertificateFault::Constraint,
        E::SignatureAlgorithmMismatch
        | E::UnsupportedSignatureAlgorithmContext(_)
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => CertificateFault::Algorithm,
        E::UnsupportedCrlSignatureAlgorithmContext(_)
        | E::UnsupportedCrlSignatureAlgorithmForPublicKeyContext(_)
        | E::UnsupportedCrlIssuingDistributionPoint
        | E::UnsupportedCrlVersion
        | E::UnsupportedDeltaCrl
        | E::UnsupportedIndirectCrl
        | E::InvalidCrlNumber => CertificateFault::ListUnusable,
        E::EmptyEkuExtension
        | E::ExtensionValueInvalid
        | E::MalformedDnsIdentifier
        | E::MalformedExtensions
        | E::MalformedNameConstraint
        | E::InvalidSerialNumber
        | E::UnsupportedCertVersion
        | E::UnsupportedCriticalExtension => CertificateFault::Malformed,
        _ => CertificateFault::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{CertRevocationListError, InvalidMessage, OtherError, PeerMisbehaved};
    use std::sync::Arc;

    #[test]
    fn each_kind_of_refusal_has_its_fault() {
        use CertificateFault;
        let other = |e: webpki::Error| CertificateError::Other(OtherError(Arc::new(e))).into();
        let of = |c: CertificateFault| TlsFault::Certificate(c);
        for (error, want) in [
            (Error::AlertReceived(rustls::AlertDescription::UnknownCA), TlsFault::Alert(Alert(48))),
            (CertificateError::UnknownIssuer.into(), of(CertificateFault::UnknownAuthority)),
            (CertificateError::Expired.into(), of(CertificateFault::Expired)),
            (CertificateError::NotValidYet.into(), of(CertificateFault::NotYetValid)),
            (CertificateError::UnknownRevocationStatus.into(), of(CertificateFault::ListUnusable)),
            (CertificateError::InvalidPurpose.into(), of(CertificateFault::Purpose)),
            (CertificateError::NotValidForName.into(), of(CertificateFault::Name)),
            (CertificateError::BadEncoding.into(), of(CertificateFault::Malformed)),
            (CertificateError::Revoked.into(), of(CertificateFault::Revoked)),
            (CertificateError::ExpiredRevocationList.into(), of(CertificateFault::ListExpired)),
            (CertRevocationListError::BadSignature.into(), of(CertificateFault::ListUnusable)),
            (CertificateError::BadSignature.into(), of(CertificateFault::Signature)),
            (other(webpki::Error::PathLenConstraintViolated), of(CertificateFault::Constraint)),
            (other(webpki::Error::UnsupportedCriticalExtension), of(CertificateFault::Malformed)),
            (other(webpki::Error::UnsupportedDeltaCrl), of(CertificateFault::ListUnusable)),
            (Error::NoCertificatesPresented, TlsFault::NoCertificate),
            (PeerIncompatible::Tls12NotOffered.into(), TlsFault::NoCommonVersion),
            (PeerIncompatible::NoCipherSuitesInCommon.into(), TlsFault::NoCommonCipher),
            (
                PeerIncompatible::ExtendedMasterSecretExtensionRequired.into(),
                TlsFault::NoExtendedMasterSecret,
            ),
            (InvalidMessage::InvalidContentType.into(), TlsFault::Malformed),
            (PeerMisbehaved::InvalidKeyShare.into(), TlsFault::Misbehaved),
            (Error::DecryptError, TlsFault::Undecipherable),
            (Error::FailedToGetRandomBytes, TlsFault::Internal),
        ] {
            assert_eq!(super::to_tls_error(&error).fault(), want, "{error:?}");
        }
    }
}
