//! TLS with deployed certificates: RadSec, Diameter over TLS and EAP methods at servers of hosts.

use crate::MetricMap;
use crate::services::{TempStudyDir, all_in, metric_value, service_study};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use usher_core::WallTime;
use usher_pki::{AuthorityInitOptions, CertificateAuthority, CertificateKind, CertificateRequest, KeyKind};
use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, StudyMode};

/// 2026-07-01, the default date of studies.
const NOW: WallTime = WallTime::from_unix_secs(1_782_864_000);

/// Creates an authority, as `usher aaa cert` does, with certificates for `whom`.
fn create_authority(folder: &Path, name: &str, key: KeyKind, whom: &[(&str, CertificateKind)]) {
    let options = AuthorityInitOptions { name: name.to_owned(), key, days: 365, now: NOW };
    let mut authority = CertificateAuthority::init(&folder.join(name), &options).unwrap();
    for (whose, kind) in whom {
        let (kind, ocsp, crl) = (*kind, None, None);
        let name = (*whose).to_owned();
        let request = CertificateRequest { name, kind, names: Vec::new(), key, days: 90, ocsp, crl };
        authority.issue(&request, NOW).unwrap();
    }
}

/// Creates all certificates in the folder of a study, and the server's configuration in its own folder.
fn deploy_certificates(name: &str, key: KeyKind) -> TempStudyDir {
    let folder = TempStudyDir::new(name);
    let whom = [
        ("radius.example.org", CertificateKind::Server),
        ("home.example.org", CertificateKind::Server),
        ("switches.example.org", CertificateKind::Client),
        ("guest.example.org", CertificateKind::Client),
        ("ann@example.org", CertificateKind::Client),
    ];
    create_authority(&folder.0, "pki", key, &whom);
    create_authority(
        &folder.0,
        "other",
        key,
        &[("switches.example.org", CertificateKind::Client), ("ann@example.org", CertificateKind::Client)],
    );
    std::fs::create_dir_all(folder.0.join("server")).unwrap();
    folder.write_file("server/aaa.toml", SERVER);
    folder
}

const SERVER: &str = r#"
reject_delay = "0 s"
listen = { auth = ["0.0.0.0:1812"], acct = [], radsec = ["0.0.0.0:2083"], diameter_tls = ["0.0.0.0:5658"] }
methods = { order = ["eap-tls", "peap", "ttls", "eap-md5"] }
[[client]]
name = "switches"
prefix = "192.0.2.0/24"
secret = "a secret of 23 octets.."
certificate = "switches.example.org"
[tls]
certificate = "../pki/issued/radius.example.org.crt"
key = "../pki/issued/radius.example.org.key"
ca = "../pki/ca.crt"
[diameter]
identity = "radius.example.org"
realm = "example.org"
peer = [
    { identity = "nas-0.example.org", transport = "tls", certificate = "switches.example.org" },
    { identity = "nas-1.example.org", transport = "tls", certificate = "switches.example.org" },
]
"#;

/// Returns the section of an authority's NASes under a name.
fn nas_section(authority: &str, name: &str) -> String {
    format!(
        "[workload.tls]\ncertificate = \"{authority}/issued/{name}.crt\"\nkey = \"{authority}/issued/{name}.key\"\n\
         ca = \"pki/ca.crt\"\n"
    )
}

const RADSEC: &str = "aaa = \"radsec\"\n";
const DIAMETER: &str = "aaa = \"diameter\"\ndiameter = { transport = \"tls\" }\n";
const SWITCHES: &str = "switches.example.org";

/// Runs a study in a folder that contains the server's configuration.
fn run_in_folder(folder: &TempStudyDir, workload: &str) -> MetricMap {
    folder.write_file("study.toml", &service_study("config = \"server/aaa.toml\"", workload));
    let plan =
        folder.open_study().unwrap().build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
    let world =
        ScenarioRun::new(&plan.points[0].scenario, plan.points[0].replication_seed(0), &[], None).unwrap();
    world.run_to_end().unwrap().metrics.into_iter().collect()
}

#[test]
fn radsec_and_diameter_over_tls_reach_the_deployed_server() {
    // The default keys of `usher aaa cert`, whose signatures vary in length.
    let folder = deploy_certificates("inward", KeyKind::EcdsaP256);
    // Without TLS a Diameter server identifies its NASes by their addresses.
    let plain = SERVER.replace(
        "transport = \"tls\", certificate = \"switches.example.org\"",
        "prefix = [\"192.0.2.0/24\"]",
    );
    folder.write_file(
        "server/aaa.toml",
        &plain.replace("diameter_tls = [\"0.0.0.0:5658\"]", "diameter = [\"0.0.0.0:3868\"]"),
    );
    all_in(&run_in_folder(&folder, "aaa = \"diameter\"\n"));
    folder.write_file("server/aaa.toml", SERVER);
    for workload in [RADSEC, DIAMETER] {
        let workload = format!("{workload}{}", nas_section("pki", SWITCHES));
        let metrics = run_in_folder(&folder, &workload);
        all_in(&metrics);
        assert!(
            120.0 * metric_value(&metrics, "bytes.core") > 2.0 * 2000.0 + 120.0 * 2.0 * 100.0,
            "{metrics:?}"
        );
        for _ in 0..4 {
            assert_eq!(
                run_in_folder(&folder, &workload),
                metrics,
                "TLS draws its keys anew, and nothing of it shows"
            );
        }
    }
}

#[test]
fn a_nas_whom_the_server_does_not_trust_is_refused() {
    let folder = deploy_certificates("distrusted", KeyKind::EcdsaP256);
    for workload in [RADSEC, DIAMETER] {
        for (authority, name) in [("other", SWITCHES), ("pki", "guest.example.org")] {
            let metrics = run_in_folder(&folder, &format!("{workload}{}", nas_section(authority, name)));
            // Failures are a share: each of the four stations waits for its first login until the end.
            let counts =
                ["started", "completed", "failures", "rejected"].map(|name| metric_value(&metrics, name));
            assert_eq!(counts, [4.0, 0.0, 1.0, 0.0], "{workload} {authority} {name}: {metrics:?}");
        }
        // A NAS also rejects a server that it does not trust.
        let workload = format!("{workload}{}", nas_section("pki", SWITCHES))
            .replace("\"pki/ca.crt\"", "\"other/ca.crt\"");
        assert_eq!(metric_value(&run_in_folder(&folder, &workload), "completed"), 0.0);
    }
}

#[test]
fn a_server_proxies_by_radsec_to_the_server_of_another_host() {
    let folder = deploy_certificates("outward", KeyKind::Rsa2048);
    let home = |name: &str| {
        format!(
            "[[home_server]]\nname = \"home\"\naddress = \"198.51.100.7:2083\"\ntransport = \"tls\"\ncertificate = \"{name}\"\n\
             [[realm]]\nname = \"example.org\"\nservers = [\"home\"]\n"
        )
    };
    let far = r#"
listen = { auth = [], acct = [], radsec = ["0.0.0.0:2083"] }
methods = { order = ["eap-md5"] }
client = [{ name = "proxy", prefix = "192.0.2.1", nas = ["192.0.2.0/24"], certificate = "radius.example.org" }]
[tls]
certificate = "../pki/issued/home.example.org.crt"
key = "../pki/issued/home.example.org.key"
ca = "../pki/ca.crt"
"#;
    folder.write_file("server/home.toml", far);
    let host = "[hosts.home]\naddress = \"198.51.100.7\"\nruns = \"aaa\"\nconfig = \"server/home.toml\"\n\
                [links.away]\nbetween = [\"server\", \"home\"]\ndelay = \"30 ms\"\n";
    let study = |name: &str| {
        folder.write_file("server/aaa.toml", &format!("{SERVER}{}", home(name)));
        let own = format!("{RADSEC}{}{host}[transport.tcp]\nnagle = false\n", nas_section("pki", SWITCHES));
        run_in_folder(&folder, &own)
    };
    let metrics = study("home.example.org");
    all_in(&metrics);
    // Two rounds of EAP-MD5, 40 ms away.
    assert!((metric_value(&metrics, "delay.p50") - 4.0 * 0.041).abs() < 0.004, "{metrics:?}");
    assert!(metric_value(&metrics, "bytes.away") > 0.0, "{metrics:?}");
    // A NAS sends no logins to a server with another name.
    assert_eq!(metric_value(&study("elsewhere.example.org"), "completed"), 0.0);
}

#[test]
fn stations_log_in_by_tls_with_a_certificate_the_server_trusts() {
    let folder = deploy_certificates("eap", KeyKind::EcdsaP256);
    let with = |method: &str, authority: &str, more: &str| {
        let own = format!(
            "aaa = \"radius\"\n{more}\n[workload.eap_tls]\nversion = \"1.3\"\nca = \"pki/ca.crt\"\n{}",
            if method == "eap-tls" {
                format!(
                    "certificate = \"{authority}/issued/ann@example.org.crt\"\nkey = \"{authority}/issued/ann@example.org.key\"\n"
                )
            } else {
                String::new()
            }
        );
        let text = service_study("config = \"server/aaa.toml\"", &own)
            .replace("\"eap-md5\"", &format!("\"{method}\""));
        folder.write_file("study.toml", &text);
        let plan =
            folder.open_study().unwrap().build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
        let point = &plan.points[0];
        let world = ScenarioRun::new(&point.scenario, point.replication_seed(0), &[], None).unwrap();
        world.run_to_end().unwrap().metrics.into_iter().collect::<MetricMap>()
    };
    for method in ["eap-tls", "peap", "ttls"] {
        let metrics = with(method, "pki", "");
        all_in(&metrics);
        assert!(metric_value(&metrics, "bytes.access") > 1200.0, "the certificates went over: {metrics:?}");
        assert_eq!(with(method, "pki", ""), metrics, "TLS draws its keys anew, and nothing of it shows");
        let wrong = with(method, "pki", "wrong_credentials = \"100 %\"");
        assert_eq!(metric_value(&wrong, "completed"), 0.0, "{wrong:?}");
        assert_eq!(metric_value(&wrong, "rejected"), metric_value(&wrong, "started"), "{wrong:?}");
    }
    let stranger = with("eap-tls", "other", "");
    assert_eq!(metric_value(&stranger, "rejected"), metric_value(&stranger, "started"), "{stranger:?}");
}

#[test]
fn files_that_are_of_no_use_are_found_where_the_plan_is_made() {
    let folder = deploy_certificates("faults", KeyKind::EcdsaP256);
    let text =
        service_study("config = \"server/aaa.toml\"", &format!("{RADSEC}{}", nas_section("pki", SWITCHES)));
    let said = |text: &str| {
        folder.write_file("study.toml", text);
        folder.open_study().map(drop).unwrap_err()
    };
    let line = |text: &str, key: &str| {
        let at = text.lines().position(|line| line.starts_with(key)).unwrap();
        format!("study.toml:{}:", at + 1)
    };
    let (crt, key) = ("pki/issued/switches.example.org.crt", "pki/issued/switches.example.org.key");
    for (wrong, at, why) in [
        (text.replace(crt, "pki/nobody.crt"), "certificate", "nobody.crt"),
        (text.replace(crt, "server/aaa.toml"), "certificate", "no certificate in the PEM text"),
        (text.replace(key, "pki/nobody.key"), "key = ", "nobody.key"),
        (
            text.replace(key, "pki/issued/ann@example.org.key"),
            "key = ",
            "it is not the key of the certificate",
        ),
        (text.replace("\"pki/ca.crt\"", "\"study.toml\""), "ca = ", "no certificate in the PEM text"),
    ] {
        let said = said(&wrong);
        assert!(said.contains(&line(&wrong, at)) && said.contains(why), "{said}");
    }
    std::fs::set_permissions(folder.0.join(key), std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = said(&text);
    assert!(open.contains("workload.tls.key: ") && open.contains("chmod 0600"), "{open}");
    std::fs::set_permissions(folder.0.join(key), std::fs::Permissions::from_mode(0o600)).unwrap();
    let half = said(&text.replace("key = \"pki", "# key = \"pki"));
    assert!(half.contains("belong together"), "{half}");
    // The error names the file that the server's configuration refers to, with its line.
    folder.write_file("server/aaa.toml", &SERVER.replace("radius.example.org.key", "home.example.org.key"));
    let server = said(&text);
    assert!(server.contains("server/aaa.toml:") && server.contains("home.example.org.key: "), "{server}");
    folder.write_file("server/aaa.toml", SERVER);

    // Of a study in its own folder, relative to it, as `include` names files.
    std::fs::create_dir_all(folder.0.join("shared")).unwrap();
    folder.write_file(
        "shared/nas.toml",
        &nas_section("../pki", SWITCHES).replace("\"pki/ca.crt\"", "\"../pki/ca.crt\""),
    );
    let included =
        format!("include = [\"shared/nas.toml\"]\n{}", service_study("config = \"server/aaa.toml\"", RADSEC));
    folder.write_file("study.toml", &included);
    folder.open_study().unwrap();

    let tls = |more: &str| {
        let own = format!("aaa = \"radius\"\n[workload.eap_tls]\n{more}");
        service_study("config = \"server/aaa.toml\"", &own).replace("\"eap-md5\"", "\"eap-tls\"")
    };
    let unknown = said(&tls("version = \"1.3\"\n"));
    assert!(
        unknown.contains("workload.eap_tls: ") && unknown.contains("certificate and key of a user"),
        "{unknown}"
    );
    let ann = "certificate = \"pki/issued/ann@example.org.crt\"\nkey = \"pki/issued/ann@example.org.key\"\nca = \"pki/ca.crt\"\n";
    let old = said(&tls(ann));
    assert!(old.contains("workload.eap_tls.version: ") && old.contains("RSA"), "{old}");
    let own = service_study("", &format!("aaa = \"radius\"\n[workload.eap_tls]\n{ann}"))
        .replace("runs = \"aaa\"\n", "");
    folder.write_file("study.toml", &own);
    let idle = folder.open_study().unwrap().check_plans().unwrap_err().to_string();
    assert!(idle.contains("workload.eap_tls.certificate: ") && idle.contains("let its host run"), "{idle}");
}
