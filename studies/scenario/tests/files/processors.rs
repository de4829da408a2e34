//! Processors by a profile.

use usher_profile::StoreKind;
use usher_profile::testing::sample_profile_text;
use usher_scenario::{PlanOverrides, Study, StudyMode};

const STUDY: &str = r#"title = "t"
question = "q"
[run]
duration = "1 s"
[hosts.nas]
[hosts.server]
processor = PROCESSOR
[links.core]
between = ["nas", "server"]
[workload]
kind = "eap"
stations = "nas"
nas = "nas"
server = "server"
method = "eap-md5"
aaa = "radius"
arrivals = { kind = "poisson", rate = "5 /s" }
"#;

/// A temporary folder with a study and the profile that it names.
struct TempStudyDir(std::path::PathBuf);

impl TempStudyDir {
    fn new(name: &str, profile: &str, study: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("usher-processors-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("profile.toml"), profile).unwrap();
        std::fs::write(folder.join("study.toml"), study).unwrap();
        Self(folder)
    }
    fn load_study(&self) -> Result<Study, String> {
        Study::load(&self.0.join("study.toml")).map_err(|e| e.to_string())
    }
}

impl Drop for TempStudyDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn profile_text() -> String {
    sample_profile_text(env!("CARGO_PKG_VERSION"), StoreKind::Postgresql)
}

fn load_error(name: &str, profile: &str, processor: &str) -> String {
    let folder = TempStudyDir::new(name, profile, &STUDY.replace("PROCESSOR", processor));
    folder.load_study().map(|_| String::new()).unwrap_or_else(|e| e)
}

#[test]
fn a_profile_is_charged() {
    let folder =
        TempStudyDir::new("charged", &profile_text(), &STUDY.replace("PROCESSOR", "\"profile.toml\""));
    let study = folder.load_study().unwrap();
    let cpu = |set: &[&str]| {
        let mut overrides = PlanOverrides::default();
        set.iter().for_each(|set| overrides.add_setting(set).unwrap());
        let plan = study.build_plan(StudyMode::Default, &overrides).unwrap_or_else(|e| panic!("{e}"));
        plan.points[0].scenario.hosts.get("server").unwrap().cpu.clone().unwrap()
    };
    let us = |time: usher_scenario::units::TimeSpan| time.get().as_nanos() as f64 / 1e3;
    let mean =
        |law: Option<&usher_scenario::model::TimeDistribution>| law.unwrap().mean().as_nanos() as f64 / 1e3;
    let plain = cpu(&[]);
    assert_eq!((plain.cores.get(), us(plain.wakeup), us(plain.batch)), (1, 3.0, 1.0));
    assert_eq!(mean(plain.service.get("radius.request")), 10.0);
    // A lookup takes no time of the processor; sending it and receiving its result do.
    assert_eq!(
        (mean(plain.service.get("store.lookup")), mean(plain.aside.get("store.lookup"))),
        (300.0, 30.0)
    );
    let other = cpu(&[
        "hosts.server.processor.cores=4",
        "hosts.server.processor.scale=2.0",
        "hosts.server.processor.distance=5 ms",
    ]);
    assert_eq!((other.cores.get(), us(other.wakeup)), (4, 6.0));
    assert_eq!(
        (mean(other.service.get("tls.sign")), mean(other.service.get("store.lookup"))),
        (1200.0, 5300.0)
    );
}

#[test]
fn the_profile_is_part_of_the_study() {
    let digest = |name: &str, profile: &str| {
        let folder = TempStudyDir::new(name, profile, &STUDY.replace("PROCESSOR", "\"profile.toml\""));
        folder.load_study().unwrap().digest()
    };
    let (one, same) = (digest("one", &profile_text()), digest("same", &profile_text()));
    assert_eq!(one, same);
    assert_ne!(one, digest("other", &profile_text().replace("6 us", "5 us")));
}

#[test]
fn what_does_not_fit_is_told_with_its_line() {
    let is =
        |said: String, parts: &[&str]| parts.iter().for_each(|part| assert!(said.contains(part), "{said}"));
    let name = "\"profile.toml\"";
    let both = format!("{name}\ncpu = {{ service = {{ \"radius.request\" = \"1 us\" }} }}");
    is(load_error("both", &profile_text(), &both), &["study.toml:8:7", "has both processor and cpu"]);
    let version = profile_text().replace(env!("CARGO_PKG_VERSION"), "0.0.1");
    is(load_error("version", &version, name), &["study.toml:7:1", "of usher 0.0.1 and this is usher"]);
    assert_eq!(load_error("any", &version, "{ profile = \"profile.toml\", any_version = true }"), "");
    let method = profile_text().replace("methods.eap-md5", "methods.eap-gtc");
    is(
        load_error("method", &method, name),
        &["study.toml:7:1", "no method \"eap-md5\"", "it has pap, eap-gtc"],
    );
    let label = profile_text().replace("\"tls.sign\" =", "\"tls.sing\" =");
    is(
        load_error("label", &label, name),
        &["profile.toml:27:1", "no kind of work \"tls.sing\"; did you mean \"tls.sign\""],
    );
    is(load_error("none", &profile_text(), "{ cores = 2 }"), &["without a profile"]);
    is(load_error("gone", &profile_text(), "\"gone.toml\""), &["study.toml:7:13", "gone.toml"]);
    let scaled = |more: &str| format!("{{ profile = {name}, {more} }}");
    is(load_error("scale", &profile_text(), &scaled("scale = 0.0")), &["must be above 0"]);
    let reference = "reference = { rsa_2048_sign = \"1 /s\", ecdsa_p256_sign = \"1 /s\", md5 = \"1 /s\" }";
    is(
        load_error("twice", &profile_text(), &scaled(&format!("scale = 1.0, {reference}"))),
        &["both set the speed"],
    );
    is(
        load_error("unknown", &profile_text(), &scaled("core = 2")),
        &["unknown key \"core\"", "did you mean \"cores\""],
    );
}

#[test]
fn a_store_elsewhere_is_refused() {
    let study = STUDY.replace("PROCESSOR", "\"profile.toml\"").replace(
        "[links.core]",
        "runs = \"aaa\"\n[hosts.server.config]\nlisten = { auth = [\"0.0.0.0:1812\"] }\nusers = { store = \"memory\" }\n\
         methods = { order = [\"eap-md5\"] }\n[[hosts.server.config.client]]\nname = \"n\"\nprefix = \"10.0.0.0/8\"\nsecret = \"abcdefgh\"\n\
         [links.core]",
    );
    let folder = TempStudyDir::new("store", &profile_text(), &study);
    let said = folder.load_study().map(|_| String::new()).unwrap_or_else(|e| e);
    assert!(said.contains("users were in postgresql and yours are in memory"), "{said}");
}
