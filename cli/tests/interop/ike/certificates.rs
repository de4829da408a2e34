//! Certificates with charon: RSASSA-PSS signatures, revocation lists on both sides, and EAP-TLS as the only
//! proof of both sides.

use super::*;

/// Copies files into charon's own folder, which it reads again on request.
fn install_files(place: &TempDir, files: &[(&str, &str)]) {
    for (file, of) in files {
        place.write_private(&format!("charon/{file}"), &std::fs::read_to_string(place.path(of)).unwrap());
    }
}

#[track_caller]
fn run_usher(place: &TempDir, words: &[&str]) {
    let done = find_program(USHER).args(words).current_dir(place.path("")).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Creates a certification authority in `pki`, and installs the files that make charon gw.test.
fn create_authority(place: &TempDir, key: &str) {
    let pki = |words: &[&str]| run_usher(place, &[&["aaa", "cert", "--dir", "pki"], words].concat());
    pki(&["init", "--server", "gw.test", "--key", key]);
    pki(&["issue", "ini.test", "--server", "--key", key]);
    install_files(
        place,
        &[
            ("x509/gw.pem", "pki/issued/gw.test.crt"),
            ("private/gw.pem", "pki/issued/gw.test.key"),
            ("x509ca/ca.pem", "pki/ca.crt"),
            ("x509crl/ca.pem", "pki/ca.crl"),
        ],
    );
}

/// Returns charon's connections as gw.test: `in` assigns an address to the initiator ini.test; `out` initiates
/// to ini.test.
fn charon_connections(local: &str, remote: &str) -> String {
    let connection = |name: &str, more: &str, theirs: &str| {
        format!(
            "{name} {{ version = 2\n proposals = aes128-sha256-x25519\n mobike = no\n local_addrs = 127.0.0.1\n\
             remote_addrs = 127.0.0.2\n local_port = 4500\n remote_port = 14500\n {more}\n local {{ {local}\n id = gw.test }}\n\
             remote {{ {remote}\n id = ini.test }}\n\
             children {{ net {{ local_ts = 10.2.0.0/16\n remote_ts = {theirs}\n\
             esp_proposals = aes128gcm16-x25519 }} }} }}\n"
        )
    };
    let both = [connection("in", "pools = inner", "dynamic"), connection("out", "", "10.1.0.0/16")].concat();
    format!("connections {{ {both} }}\npools {{ inner {{ addrs = 10.9.0.0/24 }} }}\n")
}

#[track_caller]
fn load_connections(charon: &CharonNamespace, place: &TempDir, what: &[&str]) {
    let said = charon.run_swanctl(&[what, &["--file", &place.path_text("charon/swanctl.conf")]].concat());
    assert!(said.contains("loaded ECDSA key") || said.contains("loaded RSA key"), "{said}");
}

/// Starts charon with these connections and settings of its strongswan.conf.
#[track_caller]
fn start_charon(place: &TempDir, connections: &str, settings: &str) -> CharonNamespace {
    // charon starts only with a connection, before it has its certificates.
    let charon =
        CharonNamespace::with_settings("connections { none { remote_addrs = 127.0.0.9 } }\n", &[], settings);
    place.write_private("charon/swanctl.conf", connections);
    load_connections(&charon, place, &["--load-all"]);
    charon
}

const OURS: &str = "local_id = \"ini.test\"\nlocal_auth = \"certificate\"\nremote_auth = \"certificate\"\n\
                    certificate = \"pki/issued/ini.test.crt\"\nkey = \"pki/issued/ini.test.key\"\nca = \"pki/ca.crt\"\n";

/// RFC 7427, RFC 8247 3.2: both sides sign by RSASSA-PSS.
#[test]
fn charon_and_we_sign_by_rsassa_pss() {
    let place = TempDir::new();
    create_authority(&place, "rsa-2048");
    let charon = start_charon(&place, &charon_connections("auth = pubkey", "auth = pubkey"), "rsa_pss = yes");
    let mut ours = start_client(&charon, &place, &format!("{OURS}rsa_pss = true\n"));
    ours.wait_for("addresses=\"10.9.0.");
    for who in ["'ini.test'", "'gw.test' (myself)"] {
        let line = format!("authentication of {who} with RSA_EMSA_PSS_SHA2_256_SALT_32 successful");
        assert!(charon.charon_log().contains(&line), "{}", charon.charon_log());
    }
    assert_eq!(ours.terminate(), Some(0));
}

/// RFC 5280 6.3: charon and we reject a peer whose certificate is on the revocation list.
#[test]
fn who_is_on_a_revocation_list_is_refused_by_charon_and_by_us() {
    let place = TempDir::new();
    create_authority(&place, "ecdsa-p256");
    let strict = charon_connections("auth = pubkey", "auth = pubkey\n revocation = strict");
    let charon = start_charon(&place, &strict, "");
    let lists = "[revocation]\ncrl = [\"pki/ca.crl\"]\n";
    // Both sides require the list, which is still empty.
    let begin = |more: &str| {
        place.write_private("client.toml", &format!("{LISTEN}{}{more}", home_connection(OURS)));
        let mut command = charon_command(&charon, USHER);
        command.args(["ike", "connect", "home", "--config", "client.toml"]);
        place.start_program("client", &mut command, "listening")
    };
    let mut ours = begin(lists);
    ours.wait_for("addresses=\"10.9.0.");
    assert!(charon.charon_log().contains("certificate status is good"), "{}", charon.charon_log());
    assert_eq!(ours.terminate(), Some(0));
    // charon's certificate is revoked; charon has the old list.
    run_usher(&place, &["aaa", "cert", "--dir", "pki", "revoke", "gw.test"]);
    let mut ours = begin(lists);
    ours.wait_for("certificate rejected");
    let log = ours.log();
    assert!(log.contains("gw.test") && log.to_lowercase().contains("revoked"), "{log}");
    // Our certificate is revoked; we do not check the list.
    run_usher(&place, &["aaa", "cert", "--dir", "pki", "revoke", "ini.test"]);
    install_files(&place, &[("x509crl/ca.pem", "pki/ca.crl")]);
    load_connections(&charon, &place, &["--load-creds", "--clear"]);
    let mut ours = begin("");
    ours.wait_for("rejected this side's identity or proof");
    assert!(charon.charon_log().contains("certificate was revoked on"), "{}", charon.charon_log());
}

/// RFC 5998: EAP-TLS proves both sides, and IKE carries no certificate. First we initiate, then charon.
#[test]
fn eap_tls_alone_proves_charon_and_us_in_both_roles() {
    let place = TempDir::new();
    create_authority(&place, "ecdsa-p256");
    // charon's TLS 1.2 lacks Extended Master Secret; its TLS 1.3 lacks protected success indication (RFC 9190
    // 2.1.1).
    let both = charon_connections("auth = eap-tls\n certs = gw.pem", "auth = eap-tls");
    let charon = start_charon(&place, &both, "");
    let tls = "eap_methods = [\"tls\"]\ncertificate = \"pki/issued/ini.test.crt\"\nkey = \"pki/issued/ini.test.key\"\nca = \"pki/ca.crt\"\n";
    let own = "local_id = \"ini.test\"\nlocal_auth = \"eap\"\nremote_auth = \"eap-only\"\neap_identity = \"ini.test\"\n\
               extended_master_secret = \"optional\"\n";
    let mut ours = start_client(&charon, &place, &format!("{own}{tls}"));
    ours.wait_for("addresses=\"10.9.0.");
    assert!(charon.charon_log().contains("EAP method EAP_TLS succeeded"), "{}", charon.charon_log());
    assert!(
        !charon.charon_log().contains("CERT "),
        "nobody shows a certificate in IKE:\n{}",
        charon.charon_log()
    );
    assert_eq!(ours.terminate(), Some(0));
    drop(ours);
    let gateway_text = "[[connection]]\nname = \"site\"\nlocal_id = \"ini.test\"\nlocal_auth = \"eap-only\"\nremote_auth = \"eap-local\"\n\
                        [[connection.child]]\nname = \"net\"\nlocal = [\"10.1.0.0/16\"]\nremote = [\"10.2.0.0/16\"]\n\
                        proposals = [\"aes128gcm16-x25519\"]\n[eap]\nmethods = [\"tls\"]\nextended_master_secret = \"optional\"\n\
                        tls = { certificate = \"pki/issued/ini.test.crt\", key = \"pki/issued/ini.test.key\", ca = \"pki/ca.crt\" }\n";
    let mut ours = start_gateway(&charon, &place, gateway_text);
    let said = charon.run_swanctl(&["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    assert!(
        said.contains("initiate completed successfully"),
        "{said}\n{}\n{}",
        ours.log(),
        charon.charon_log()
    );
    ours.wait_for("peer=gw.test");
    assert_eq!(ours.terminate(), Some(0));
}
