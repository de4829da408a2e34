//! A certificate authority in a folder.
//!
//! Its files are `ca.crt` (with its superior authorities, if any), `ca.key`, `ca.crl`, `issued/NAME.crt` (the chain
//! to send, leaf first), `issued/NAME.key`, and `index.json` with the issued certificates. Only the owner can read
//! keys.

use crate::{PkiError, atomic_file, folder as folders, format_error};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CrlDistributionPoint,
    CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevocationReason, RevokedCertParams, RsaKeySize, SanType, SerialNumber,
};
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};
use usher_core::WallTime;
use usher_crypto::x509::CertificateInfo;

/// id-kp-eapOverLAN (RFC 4334 §2).
const EAP_OVER_LAN: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 14];
/// The validity of a revocation list. A server that gets no new one by then has an expired list.
const LIST: usher_core::Duration = usher_core::Duration::from_secs(30 * 86_400);
/// The longest validity in days.
const MOST_DAYS: u32 = 36_500;

/// The kind of a new key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// ECDSA on P-256: short signatures, and cheap for the server.
    #[default]
    EcdsaP256,
    /// RSA with 2048 bits, for clients without ECDSA.
    Rsa2048,
    /// RSA with 3072 bits.
    Rsa3072,
    /// Ed25519, which few EAP clients support.
    Ed25519,
}

impl KeyKind {
    fn generate(self) -> Result<KeyPair, PkiError> {
        let rsa = |size| KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
        match self {
            Self::EcdsaP256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::Rsa2048 => rsa(RsaKeySize::_2048),
            Self::Rsa3072 => rsa(RsaKeySize::_3072),
            Self::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        }
        .map_err(|e| format_error("cannot generate a key", e))
    }
}

/// The purpose of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateKind {
    /// A server: EAP, RadSec, Diameter.
    Server,
    /// A user or a client.
    Client,
    /// A subordinate authority.
    Authority,
}

/// The reason of a revocation (RFC 5280 §5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RevokeReason {
    /// Unspecified.
    #[default]
    Unspecified,
    /// The private key is compromised.
    KeyCompromise,
    /// Another certificate replaces it.
    Superseded,
    /// It is no longer needed.
    CessationOfOperation,
}

/// The settings of a new authority.
#[derive(Clone, Debug)]
pub struct AuthorityInitOptions {
    /// Its common name.
    pub name: String,
    /// Its key.
    pub key: KeyKind,
    /// Its validity in days.
    pub days: u32,
    /// The current time.
    pub now: WallTime,
}

/// A request for a certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CertificateRequest {
    /// The common name and the file name: a user's name, or a server's DNS name.
    pub name: String,
    /// Its purpose.
    pub kind: CertificateKind,
    /// Additional names of a server: DNS names and addresses.
    #[serde(default)]
    pub names: Vec<String>,
    /// Its key.
    pub key: KeyKind,
    /// Its validity in days.
    pub days: u32,
    /// The URL of its OCSP responder.
    #[serde(default)]
    pub ocsp: Option<String>,
    /// The URL of the revocation list.
    #[serde(default)]
    pub crl: Option<String>,
}

/// An issued certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuedCertificate {
    /// The chain in PEM, leaf first.
    pub certificate: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
    /// The end of its validity.
    pub not_after: WallTime,
}

/// An entry of the index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexEntry {
    /// The request.
    pub request: CertificateRequest,
    /// The serial number, hexadecimal.
    pub serial: String,
    /// The end of its validity, Unix seconds.
    pub not_after: u64,
    /// The time and the reason of its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<(u64, RevokeReason)>,
}

#[derive(Default, Serialize, Deserialize)]
struct AuthorityIndex {
    /// The number of revocation lists so far.
    lists: u64,
    entries: Vec<IndexEntry>,
}

/// An authority in a folder.
pub struct CertificateAuthority {
    folder: PathBuf,
    /// The chain in PEM, its own certificate first.
    chain: String,
    issuer: Issuer<'static, KeyPair>,
    index: AuthorityIndex,
    prepare: Option<KeyFilePreparer>,
}

/// Prepares a server's new key file before it gets its name.
type KeyFilePreparer = Box<dyn Fn(&fs::File) -> std::io::Result<()> + Send>;

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Creates a self-signed authority in a folder, with an empty revocation list.
    ///
    /// # Errors
    /// The folder has one already, or a file could not be written. As root: another user can change the folder's
    /// path.
    pub fn init(folder: &Path, options: &AuthorityInitOptions) -> Result<Self, PkiError> {
        let key = options.key.generate()?;
        let params = authority_params(&options.name, options.now, options.days)?;
        let certificate =
            params.self_signed(&key).map_err(|e| format_error("cannot create the authority", e))?;
        Self::create_in(folder, certificate.pem(), key, options.now)
    }

    /// Creates a subordinate authority in `folder`. Its chains have one more certificate.
    ///
    /// # Errors
    /// As for [`init`](Self::init) and [`issue`](Self::issue).
    pub fn create_subordinate(
        &mut self,
        folder: &Path,
        options: &AuthorityInitOptions,
    ) -> Result<Self, PkiError> {
        if folder.join("ca.key").exists() {
            return Err(PkiError::Exists(folder.to_path_buf()));
        }
        let request = CertificateRequest {
            name: options.name.clone(),
            kind: CertificateKind::Authority,
            names: Vec::new(),
            key: options.key,
            days: options.days,
            ocsp: None,
            crl: None,
        };
        let key = options.key.generate()?;
        let params = authority_params(&options.name, options.now, options.days)?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(|e| format_error("cannot create the authority", e))?;
        let _alone = self.lock_folder()?;
        self.index.entries.push(index_entry(request, certificate.der())?);
        self.save_index()?;
        let mut chain = certificate.pem();
        // The chain omits the root, because verifiers already have it.
        if let Some((above, _root)) = split_last(&self.chain) {
            chain.push_str(above);
        }
        Self::create_in(folder, chain + &self.root_pem(), key, options.now)
    }

    fn create_in(folder: &Path, chain: String, key: KeyPair, now: WallTime) -> Result<Self, PkiError> {
        if folder.join("ca.key").exists() {
            return Err(PkiError::Exists(folder.to_path_buf()));
        }
        let issued = folder.join("issued");
        folders::check_folder(&issued)?;
        let make = || -> std::io::Result<()> {
            for folder in [folder, &issued] {
                fs::create_dir_all(folder)?;
                // The folder is readable by all, because a server reads its certificate and key there. Private files
                // have a mode of their own.
                fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
            }
            Ok(())
        };
        make().map_err(|cause| PkiError::File { path: issued.clone(), cause })?;
        // Check the folders again: another user could have created missing parts of the path in the meantime.
        folders::check_folder(folder)?;
        folders::check_folder(&issued)?;
        write_file(&folder.join("ca.key"), key.serialize_pem().as_bytes(), 0o600)?;
        write_file(&folder.join("ca.crt"), chain.as_bytes(), 0o644)?;
        let issuer = Issuer::from_ca_cert_pem(&chain, key)
            .map_err(|e| format_error("cannot create the authority", e))?;
        let mut made = Self {
            folder: folder.to_path_buf(),
            chain,
            issuer,
            index: AuthorityIndex::default(),
            prepare: None,
        };
        made.write_list(now, LIST)?;
        Ok(made)
    }

    /// Opens the authority in a folder.
    ///
    /// # Errors
    /// The folder has none, or its files cannot be read. As root: another user can change the folder's path.
    pub fn open(folder: &Path) -> Result<Self, PkiError> {
        folders::check_folder(folder)?;
        folders::check_folder(&folder.join("issued"))?;
        let path = folder.join("ca.key");
        if !path.exists() {
            return Err(PkiError::Missing(folder.to_path_buf()));
        }
        let key = KeyPair::from_pem(&read_file(&path)?).map_err(|e| format_error("cannot read ca.key", e))?;
        let chain = read_file(&folder.join("ca.crt"))?;
        let issuer =
            Issuer::from_ca_cert_pem(&chain, key).map_err(|e| format_error("cannot read ca.crt", e))?;
        let index = read_index(folder)?;
        Ok(Self { folder: folder.to_path_buf(), chain, issuer, index, prepare: None })
    }

    /// Sets a function that prepares each new key file of a server, open for writing, before it gets its name: for
    /// instance, to give it to the server's user. Later it would be too late: the folder's owner could put a link to
    /// another file at that name.
    pub fn set_server_key_preparation(
        &mut self,
        prepare: impl Fn(&fs::File) -> std::io::Result<()> + Send + 'static,
    ) {
        self.prepare = Some(Box::new(prepare));
    }

    /// Returns the issued certificates, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[IndexEntry] {
        &self.index.entries
    }

    /// Returns the path of the certificate that others must trust.
    #[must_use]
    pub fn certificate_path(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Returns the root in PEM.
    fn root_pem(&self) -> String {
        split_last(&self.chain).map_or_else(|| self.chain.clone(), |(_, root)| root.to_owned())
    }

    /// Issues a certificate with a new key.
    ///
    /// # Errors
    /// The name is invalid or in use, or a file could not be written.
    pub fn issue(
        &mut self,
        request: &CertificateRequest,
        now: WallTime,
    ) -> Result<IssuedCertificate, PkiError> {
        check_name(&request.name)?;
        let _alone = self.lock_folder()?;
        if self.current_entry(&request.name).is_some() {
            return Err(PkiError::NameTaken(request.name.clone()));
        }
        self.make_certificate(request, now)
    }

    /// Issues a certificate again, with a new key and the same validity in days from now. The earlier one remains
    /// valid until it expires, so that both can be used during the rollout.
    ///
    /// # Errors
    /// No certificate has this name, or a file could not be written.
    pub fn renew(
        &mut self,
        name: &str,
        days: Option<u32>,
        now: WallTime,
    ) -> Result<IssuedCertificate, PkiError> {
        let _alone = self.lock_folder()?;
        let entry = self.current_entry(name).ok_or_else(|| PkiError::Unknown(name.to_owned()))?;
        let mut request = entry.request.clone();
        request.days = days.unwrap_or(request.days);
        self.make_certificate(&request, now)
    }

    /// Revokes all certificates of this name, and writes the revocation list.
    ///
    /// # Errors
    /// No certificate has this name, or all are revoked already.
    pub fn revoke(&mut self, name: &str, reason: RevokeReason, now: WallTime) -> Result<(), PkiError> {
        let _alone = self.lock_folder()?;
        let mut known = false;
        let mut done = false;
        for entry in self.index.entries.iter_mut().filter(|e| e.request.name == name) {
            known = true;
            if entry.revoked.is_none() {
                entry.revoked = Some((now.unix_secs(), reason));
                done = true;
            }
        }
        match (known, done) {
            (false, _) => Err(PkiError::Unknown(name.to_owned())),
            (true, false) => Err(PkiError::Revoked(name.to_owned())),
            (true, true) => self.write_list(now, LIST),
        }
    }

    /// Writes a new revocation list `ca.crl`, which is valid for 30 days.
    ///
    /// # Errors
    /// The list could not be written.
    pub fn publish_list(&mut self, now: WallTime) -> Result<(), PkiError> {
        self.publish_list_with_lifetime(now, LIST)
    }

    /// Writes a new revocation list with another validity.
    ///
    /// # Errors
    /// The list could not be written.
    pub fn publish_list_with_lifetime(
        &mut self,
        now: WallTime,
        lifetime: usher_core::Duration,
    ) -> Result<(), PkiError> {
        let _alone = self.lock_folder()?;
        self.write_list(now, lifetime)
    }

    /// Locks the folder against other programs until the return value is dropped, and reloads their earlier changes.
    /// Otherwise a list from another program could undo a revocation.
    fn lock_folder(&mut self) -> Result<fs::File, PkiError> {
        let path = self.folder.join("lock");
        let open = || -> std::io::Result<fs::File> {
            let file =
                fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        let lock = open().map_err(|cause| PkiError::File { path: path.clone(), cause })?;
        self.index = read_index(&self.folder)?;
        Ok(lock)
    }

    fn write_list(&mut self, now: WallTime, lifetime: usher_core::Duration) -> Result<(), PkiError> {
        let this_update = to_date(now)?;
        self.index.lists += 1;
        let revoked = self.index.entries.iter().filter_map(|e| e.revoked.map(|(at, why)| (e, at, why)));
        let mut revoked_certs = Vec::new();
        for (entry, at, reason) in revoked {
            revoked_certs.push(RevokedCertParams {
                serial_number: SerialNumber::from_slice(&decode_hex(&entry.serial)),
                revocation_time: to_date(WallTime::from_unix_secs(at))?,
                reason_code: Some(match reason {
                    RevokeReason::Unspecified => RevocationReason::Unspecified,
                    RevokeReason::KeyCompromise => RevocationReason::KeyCompromise,
                    RevokeReason::Superseded => RevocationReason::Superseded,
                    RevokeReason::CessationOfOperation => RevocationReason::CessationOfOperation,
                }),
                invalidity_date: None,
            });
        }
        let list = CertificateRevocationListParams {
            this_update,
            next_update: to_date(now + lifetime)?,
            crl_number: SerialNumber::from(self.index.lists),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list =
            list.signed_by(&self.issuer).map_err(|e| format_error("cannot issue the revocation list", e))?;
        let pem = list.pem().map_err(|e| format_error("cannot issue the revocation list", e))?;
        self.save_index()?;
        write_file(&self.folder.join("ca.crl"), pem.as_bytes(), 0o644)
    }

    /// Returns the newest certificate of this name that is not revoked.
    fn current_entry(&self, name: &str) -> Option<&IndexEntry> {
        self.index.entries.iter().rev().find(|e| e.request.name == name && e.revoked.is_none())
    }

    fn make_certificate(
        &mut self,
        request: &CertificateRequest,
        now: WallTime,
    ) -> Result<IssuedCertificate, PkiError> {
        let key = request.key.generate()?;
        let params = leaf_params(request, now)?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(|e| format_error("cannot issue the certificate", e))?;
        let entry = index_entry(request.clone(), certificate.der())?;
        let not_after = WallTime::from_unix_secs(entry.not_after);
        let path =
            |extension: &str| self.folder.join("issued").join(std::format!("{}.{extension}", request.name));
        let issued = IssuedCertificate { certificate: path("crt"), key: path("key"), not_after };
        let mut chain = certificate.pem();
        if let Some((between, _root)) = split_last(&self.chain) {
            chain.push_str(between);
        }
        // Write the key first: a certificate with the key of an earlier one would be useless.
        let prepare = self.prepare.as_deref().filter(|_| request.kind == CertificateKind::Server);
        write_prepared_file(&issued.key, key.serialize_pem().as_bytes(), 0o600, |file| {
            prepare.map_or(Ok(()), |prepare| prepare(file))
        })?;
        write_file(&issued.certificate, chain.as_bytes(), 0o644)?;
        self.index.entries.push(entry);
        self.save_index()?;
        Ok(issued)
    }

    fn save_index(&self) -> Result<(), PkiError> {
        let text = serde_json::to_string_pretty(&self.index)
            .map_err(|e| format_error("cannot write index.json", e))?;
        write_file(&self.folder.join("index.json"), text.as_bytes(), 0o644)
    }
}

fn read_index(folder: &Path) -> Result<AuthorityIndex, PkiError> {
    serde_json::from_str(&read_file(&folder.join("index.json"))?)
        .map_err(|e| format_error("cannot read index.json", e))
}

/// Splits a PEM text before its last certificate. `None`: it has only one.
fn split_last(chain: &str) -> Option<(&str, &str)> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    chain.rfind(BEGIN).filter(|at| *at > 0).map(|at| chain.split_at(at))
}

fn index_entry(request: CertificateRequest, der: &[u8]) -> Result<IndexEntry, PkiError> {
    let information = CertificateInfo::of_der(der)?;
    let (serial, not_after) = (information.serial, information.not_after.unix_secs());
    Ok(IndexEntry { request, serial, not_after, revoked: None })
}

fn base_certificate_params(name: &str, now: WallTime, days: u32) -> Result<CertificateParams, PkiError> {
    if !(1..=MOST_DAYS).contains(&days) {
        return Err(PkiError::Days(days));
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // Start the validity an hour early, to allow for small differences between clocks.
    params.not_before = to_date(now)? - Duration::hours(1);
    params.not_after = to_date(now)? + Duration::days(i64::from(days));
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn authority_params(name: &str, now: WallTime, days: u32) -> Result<CertificateParams, PkiError> {
    let mut params = base_certificate_params(name, now, days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = false;
    Ok(params)
}

fn leaf_params(request: &CertificateRequest, now: WallTime) -> Result<CertificateParams, PkiError> {
    let mut params = base_certificate_params(&request.name, now, request.days)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    let text = |name: &str| name.try_into().map_err(|_| PkiError::Name(name.to_owned()));
    match request.kind {
        CertificateKind::Server => {
            let over_lan = ExtendedKeyUsagePurpose::Other(EAP_OVER_LAN.to_vec());
            // A server uses the same certificate as a RadSec or Diameter client.
            let client = ExtendedKeyUsagePurpose::ClientAuth;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, client, over_lan];
            for name in std::iter::once(&request.name).chain(&request.names) {
                params.subject_alt_names.push(match name.parse::<IpAddr>() {
                    Ok(address) => SanType::IpAddress(address),
                    Err(_) => SanType::DnsName(text(name)?),
                });
            }
        }
        CertificateKind::Client | CertificateKind::Authority => {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            if request.name.contains('@') {
                params.subject_alt_names.push(SanType::Rfc822Name(text(&request.name)?));
            }
        }
    }
    if let Some(uri) = &request.crl {
        params.crl_distribution_points.push(CrlDistributionPoint { uris: vec![uri.clone()] });
    }
    if let Some(uri) = &request.ocsp {
        params.custom_extensions.push(ocsp_location(uri));
    }
    Ok(params)
}

/// Builds the authority information access extension with one OCSP URL (RFC 5280 §4.2.2.1).
fn ocsp_location(uri: &str) -> CustomExtension {
    const OCSP: [u8; 10] = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01];
    let description = [&OCSP[..], &der_element(0x86, uri.as_bytes())].concat();
    let content = der_element(0x30, &der_element(0x30, &description));
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], content)
}

/// Builds a DER element.
pub(crate) fn der_element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut element = vec![tag];
    match length {
        0..=0x7f => element.push(length as u8),
        0x80..=0xff => element.extend([0x81, length as u8]),
        _ => element.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    element.extend_from_slice(content);
    element
}

fn to_date(at: WallTime) -> Result<OffsetDateTime, PkiError> {
    let seconds = i64::try_from(at.unix_secs()).map_err(|e| format_error("impossible date", e))?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|e| format_error("impossible date", e))
}

fn decode_hex(digits: &str) -> Vec<u8> {
    digits
        .as_bytes()
        .chunks(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn check_name(name: &str) -> Result<(), PkiError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    let sound = (1..=64).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('.');
    if sound { Ok(()) } else { Err(PkiError::Name(name.to_owned())) }
}

fn read_file(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|cause| PkiError::File { path: path.to_path_buf(), cause })
}

/// Writes a file atomically.
fn write_file(path: &Path, content: &[u8], mode: u32) -> Result<(), PkiError> {
    write_prepared_file(path, content, mode, |_| Ok(()))
}

/// Writes a file atomically, prepared before it gets its name.
fn write_prepared_file(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepare: impl FnOnce(&fs::File) -> std::io::Result<()>,
) -> Result<(), PkiError> {
    let written = atomic_file::write_whole(path, content, mode, prepare);
    written.map_err(|cause| PkiError::File { path: path.to_path_buf(), cause })
}
