//! Independent calculations of the checks, by other libraries and the standards' formulas.

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use sha2::Sha256;

/// MD5 (RFC 1321) of the concatenated parts.
pub(crate) fn md5(parts: &[&[u8]]) -> [u8; 16] {
    Md5::digest(parts.concat()).into()
}

/// HMAC-MD5 (RFC 2104) of the concatenated parts.
pub(crate) fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> Result<[u8; 16], String> {
    let mut mac = Hmac::<Md5>::new_from_slice(key).map_err(|e| e.to_string())?;
    mac.update(&parts.concat());
    Ok(mac.finalize().into_bytes().into())
}

/// SHA-256 of the concatenated parts.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    Sha256::digest(parts.concat()).into()
}

/// HMAC-SHA-256 of the concatenated parts.
pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Result<[u8; 32], String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|e| e.to_string())?;
    mac.update(&parts.concat());
    Ok(mac.finalize().into_bytes().into())
}

/// The PRF of TLS 1.2 with SHA-256 (RFC 5246 section 5): P_hash of the secret over label and seed.
pub(crate) fn tls12_prf(secret: &[u8], label: &str, seed: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let (mut out, mut a) = (Vec::new(), hmac_sha256(secret, &[label.as_bytes(), seed])?);
    while out.len() < length {
        out.extend(hmac_sha256(secret, &[&a, label.as_bytes(), seed])?);
        a = hmac_sha256(secret, &[&a])?;
    }
    out.truncate(length);
    Ok(out)
}

/// HKDF-Expand with SHA-256 (RFC 5869 section 2.3).
pub(crate) fn hkdf_expand(prk: &[u8], info: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let mut out: Vec<u8> = Vec::new();
    let mut block: Vec<u8> = Vec::new();
    for counter in 1..=u8::MAX {
        if out.len() >= length {
            break;
        }
        block = hmac_sha256(prk, &[&block, info, &[counter]])?.to_vec();
        out.extend(&block);
    }
    out.truncate(length);
    Ok(out)
}

/// HKDF-Expand-Label with SHA-256 (RFC 8446 section 7.1).
pub(crate) fn expand_label(
    secret: &[u8],
    label: &str,
    context: &[u8],
    length: usize,
) -> Result<Vec<u8>, String> {
    let label = [b"tls13 ", label.as_bytes()].concat();
    let mut info = (length as u16).to_be_bytes().to_vec();
    info.push(label.len() as u8);
    info.extend(&label);
    info.push(context.len() as u8);
    info.extend(context);
    hkdf_expand(secret, &info, length)
}

/// Parses octets in hexadecimal; ignores blanks.
pub(crate) fn parse_hex(hex: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    let pair = |p: &[char]| u8::from_str_radix(&p.iter().collect::<String>(), 16);
    digits.chunks(2).map(|p| pair(p).map_err(|e| format!("{hex}: {e}"))).collect()
}
