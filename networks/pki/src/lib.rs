//! Certificates: a small authority, its revocation lists, and status checks by OCSP.
