//! An authority in a folder.
//!
//! `ca.crt` (with what it stands under, if anything), `ca.key`, `ca.crl`, `issued/NAME.crt` (the chain to send, leaf
//! first), `issued/NAME.key`, and `index.json`, which says what was issued. Keys are for their owner's eyes only.

use crate::{PkiError, folder as folders, format_error, whole};
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
/// How long a revocation list holds: a server that is given none for so long has an old one.
const LIST: usher_core::Duration = usher_core::Duration::from_secs(30 * 86_400);
/// Longest validity, days.
const MOST_DAYS: u32 = 36_500;

/// What kind of key is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// ECDSA on P-256: short, and cheap for the server.
    #[default]
    EcdsaP256,
    /// RSA of 2048 bits, for clients that know no other.
    Rsa2048,
    /// RSA of 3072 bits.
    Rsa3072,
    /// Ed25519; few EAP clients know it.
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
        .map_err(|e| format_error("new key", e))
    }
}

/// Whom a certificate is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateKind {
    /// A server: EAP, RadSec, Diameter.
    Server,
    /// A user or a client.
    Client,
    /// An authority under this one.
    Authority,
}

/// Why a certificate is taken back (RFC 5280 §5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RevokeReason {
    /// Not said.
    #[default]
    Unspecified,
    /// Its key is known to others.
    KeyCompromise,
    /// Another is in its place.
    Superseded,
    /// It is not needed any more.
    CessationOfOperation,
}

/// What a new authority is made of.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Its common name.
    pub name: String,
    /// Its key.
    pub key: KeyKind,
    /// How long it holds.
    pub days: u32,
    /// Now.
    pub now: WallTime,
}

/// What is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CertificateRequest {
    /// The common name, and the files' name: a user's name, a server's DNS name.
    pub name: String,
    /// Whom it is for.
    pub kind: CertificateKind,
    /// Further names of a server: DNS names and addresses.
    #[serde(default)]
    pub names: Vec<String>,
    /// Its key.
    pub key: KeyKind,
    /// How long it holds.
    pub days: u32,
    /// Where its status can be asked by OCSP.
    #[serde(default)]
    pub ocsp: Option<String>,
    /// Where the revocation list can be fetched.
    #[serde(default)]
    pub crl: Option<String>,
}

/// What was issued.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuedCertificate {
    /// The chain in PEM, leaf first.
    pub certificate: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
    /// Until when it holds.
    pub not_after: WallTime,
}

/// A line of the index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexEntry {
    /// What was asked for.
    pub request: CertificateRequest,
    /// The certificate's number, hexadecimal.
    pub serial: String,
    /// Until when it holds, seconds since 1970.
    pub not_after: u64,
    /// When and why it was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<(u64, RevokeReason)>,
}

#[derive(Default, Serialize, Deserialize)]
struct AuthorityIndex {
    /// How many revocation lists were made.
    lists: u64,
    entries: Vec<IndexEntry>,
}

/// An authority in a folder.
pub struct CertificateAuthority {
    folder: PathBuf,
    /// In PEM, its own first.
    chain: String,
    issuer: Issuer<'static, KeyPair>,
    index: AuthorityIndex,
    prepare: Option<PrepareKeyFile>,
}

/// What is done to a server's new key while nobody else has its name.
type PrepareKeyFile = Box<dyn Fn(&fs::File) -> std::io::Result<()> + Send>;

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Makes an authority of its own in a folder, with an empty revocation list.
    ///
    /// # Errors
    /// There is one already, or a file could not be written; or this runs as root, and somebody else can change what the
    /// folder's path leads to.
    pub fn init(folder: &Path, options: &InitOptions) -> Result<Self, PkiError> {
        let key = options.key.generate()?;
        let params = authority_params(&options.name, options.now, options.days)?;
        let certificate = params.self_signed(&key).map_err(|e| format_error("new authority", e))?;
        Self::create_in(folder, certificate.pem(), key, options.now)
    }

    /// Makes an authority in `folder` that stands under this one: its certificates come with one more in the chain.
    ///
    /// # Errors
    /// As of [`init`](Self::init) and [`issue`](Self::issue).
    pub fn create_subordinate(&mut self, folder: &Path, options: &InitOptions) -> Result<Self, PkiError> {
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
        let certificate =
            params.signed_by(&key, &self.issuer).map_err(|e| format_error("new authority", e))?;
        let _alone = self.lock_folder()?;
        self.index.entries.push(index_entry(request, certificate.der())?);
        self.save_index()?;
        let mut chain = certificate.pem();
        // The root is not sent: whoever is to believe it has it.
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
                // A server reads its certificate and key there; what it must not read has a mode of its own.
                fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
            }
            Ok(())
        };
        make().map_err(|cause| PkiError::File { path: issued.clone(), cause })?;
        // What was not there before could have been made by somebody else meanwhile.
        folders::check_folder(folder)?;
        folders::check_folder(&issued)?;
        write_file(&folder.join("ca.key"), key.serialize_pem().as_bytes(), 0o600)?;
        write_file(&folder.join("ca.crt"), chain.as_bytes(), 0o644)?;
        let issuer = Issuer::from_ca_cert_pem(&chain, key).map_err(|e| format_error("new authority", e))?;
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

    /// The authority in a folder.
    ///
    /// # Errors
    /// There is none, or its files cannot be read; or this runs as root, and somebody else can change what the folder's
    /// path leads to.
    pub fn open(folder: &Path) -> Result<Self, PkiError> {
        folders::check_folder(folder)?;
        folders::check_folder(&folder.join("issued"))?;
        let path = folder.join("ca.key");
        if !path.exists() {
            return Err(PkiError::Missing(folder.to_path_buf()));
        }
        let key = KeyPair::from_pem(&read_file(&path)?).map_err(|e| format_error("ca.key", e))?;
        let chain = read_file(&folder.join("ca.crt"))?;
        let issuer = Issuer::from_ca_cert_pem(&chain, key).map_err(|e| format_error("ca.crt", e))?;
        let index = read_index(folder)?;
        Ok(Self { folder: folder.to_path_buf(), chain, issuer, index, prepare: None })
    }

    /// Has something be done to each new key of a server, open for writing, before it takes its name: to give it to the
    /// user that the server runs as. By its name that would be too late, since the folder's owner can put a link to
    /// another file there.
    pub fn prepare_server_keys(
        &mut self,
        prepare: impl Fn(&fs::File) -> std::io::Result<()> + Send + 'static,
    ) {
        self.prepare = Some(Box::new(prepare));
    }

    /// What was issued, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[IndexEntry] {
        &self.index.entries
    }

    /// Where the certificate is that others have to trust.
    #[must_use]
    pub fn certificate_path(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The root in PEM.
    fn root_pem(&self) -> String {
        split_last(&self.chain).map_or_else(|| self.chain.clone(), |(_, root)| root.to_owned())
    }

    /// Issues a certificate with a new key.
    ///
    /// # Errors
    /// The name cannot be one or is taken, or a file could not be written.
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

    /// Issues a certificate anew, with another key, for as many days from now on; the earlier one holds until it
    /// expires, so that both may be in use while it is handed out.
    ///
    /// # Errors
    /// Nothing of that name is there, or a file could not be written.
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

    /// Takes every certificate of that name back, and writes the revocation list.
    ///
    /// # Errors
    /// Nothing of that name is there, or all was taken back already.
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

    /// Writes the revocation list `ca.crl` anew, which holds for 30 days.
    ///
    /// # Errors
    /// It could not be written.
    pub fn publish_list(&mut self, now: WallTime) -> Result<(), PkiError> {
        self.publish_for(now, LIST)
    }

    /// The same for another time than 30 days.
    ///
    /// # Errors
    /// It could not be written.
    pub fn publish_for(&mut self, now: WallTime, lifetime: usher_core::Duration) -> Result<(), PkiError> {
        let _alone = self.lock_folder()?;
        self.write_list(now, lifetime)
    }

    /// Keeps other programs from changing the folder as long as what is returned lives, and takes up what they changed
    /// before: a certificate that one revokes must not come back with a list that another writes.
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
        let list = list.signed_by(&self.issuer).map_err(|e| format_error("revocation list", e))?;
        let pem = list.pem().map_err(|e| format_error("revocation list", e))?;
        self.save_index()?;
        write_file(&self.folder.join("ca.crl"), pem.as_bytes(), 0o644)
    }

    /// The newest certificate of that name that was not taken back.
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
        let certificate =
            params.signed_by(&key, &self.issuer).map_err(|e| format_error("new certificate", e))?;
        let entry = index_entry(request.clone(), certificate.der())?;
        let not_after = WallTime::from_unix_secs(entry.not_after);
        let path =
            |extension: &str| self.folder.join("issued").join(std::format!("{}.{extension}", request.name));
        let issued = IssuedCertificate { certificate: path("crt"), key: path("key"), not_after };
        let mut chain = certificate.pem();
        if let Some((between, _root)) = split_last(&self.chain) {
            chain.push_str(between);
        }
        // The key first: a certificate beside the key of another would be of no use to anybody.
        let prepare = self.prepare.as_deref().filter(|_| request.kind == CertificateKind::Server);
        write_prepared(&issued.key, key.serialize_pem().as_bytes(), 0o600, |file| {
            prepare.map_or(Ok(()), |prepare| prepare(file))
        })?;
        write_file(&issued.certificate, chain.as_bytes(), 0o644)?;
        self.index.entries.push(entry);
        self.save_index()?;
        Ok(issued)
    }

    fn save_index(&self) -> Result<(), PkiError> {
        let text = serde_json::to_string_pretty(&self.index).map_err(|e| format_error("index.json", e))?;
        write_file(&self.folder.join("index.json"), text.as_bytes(), 0o644)
    }
}

fn read_index(folder: &Path) -> Result<AuthorityIndex, PkiError> {
    serde_json::from_str(&read_file(&folder.join("index.json"))?).map_err(|e| format_error("index.json", e))
}

/// The certificates of a PEM text but the last, and the last; `None` where there is only one.
fn split_last(chain: &str) -> Option<(&str, &str)> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    chain.rfind(BEGIN).filter(|at| *at > 0).map(|at| chain.split_at(at))
}

fn index_entry(request: CertificateRequest, der: &[u8]) -> Result<IndexEntry, PkiError> {
    let information = CertificateInfo::of_der(der)?;
    let (serial, not_after) = (information.serial, information.not_after.unix_secs());
    Ok(IndexEntry { request, serial, not_after, revoked: None })
}

fn base_params(name: &str, now: WallTime, days: u32) -> Result<CertificateParams, PkiError> {
    if !(1..=MOST_DAYS).contains(&days) {
        return Err(PkiError::Days(days));
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // Clocks differ a little.
    params.not_before = to_date(now)? - Duration::hours(1);
    params.not_after = to_date(now)? + Duration::days(i64::from(days));
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn authority_params(name: &str, now: WallTime, days: u32) -> Result<CertificateParams, PkiError> {
    let mut params = base_params(name, now, days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = false;
    Ok(params)
}

fn leaf_params(request: &CertificateRequest, now: WallTime) -> Result<CertificateParams, PkiError> {
    let mut params = base_params(&request.name, now, request.days)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    let text = |name: &str| name.try_into().map_err(|_| PkiError::Name(name.to_owned()));
    match request.kind {
        CertificateKind::Server => {
            let over_lan = ExtendedKeyUsagePurpose::Other(EAP_OVER_LAN.to_vec());
            // By RadSec and Diameter it shows the same to those whom it asks.
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

/// Authority information access with one way to ask for the status (RFC 5280 §4.2.2.1).
fn ocsp_location(uri: &str) -> CustomExtension {
    const OCSP: [u8; 10] = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01];
    let description = [&OCSP[..], &der_element(0x86, uri.as_bytes())].concat();
    let content = der_element(0x30, &der_element(0x30, &description));
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], content)
}

/// A DER element.
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
    let seconds = i64::try_from(at.unix_secs()).map_err(|e| format_error("time", e))?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|e| format_error("time", e))
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

/// Writes a file whole or not at all.
fn write_file(path: &Path, content: &[u8], mode: u32) -> Result<(), PkiError> {
    write_prepared(path, content, mode, |_| Ok(()))
}

/// The same, with something done to the file before it takes its name.
fn write_prepared(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepare: impl FnOnce(&fs::File) -> std::io::Result<()>,
) -> Result<(), PkiError> {
    let written = whole::write_whole(path, content, mode, prepare);
    written.map_err(|cause| PkiError::File { path: path.to_path_buf(), cause })
}
