//! The rules of this repository, which tests enforce. This file has the exemptions, each with its reason.
//!
//! The tests read the repository's files and the usage of its benches. They need no build.

use std::fs;
use std::path::{Path, PathBuf};

/// The floors from the lowest to the highest. A crate uses those below its own.
pub const FLOORS: [&str; 5] = ["protocols", "services", "networks", "studies", "cli"];

/// Permitted uses between crates of a floor, with reasons. A floor in first place stands for each of its
/// crates.
pub const SIBLINGS: &[(&str, &str, &str)] = &[
    ("protocols", "usher-core", "the machine shape, codecs, timers, chance"),
    ("protocols", "usher-crypto", "digests, keys, the TLS engine"),
    ("usher-ike", "usher-eap", "IKE_AUTH carries EAP"),
    ("usher-ppp", "usher-eap", "PPP carries EAP"),
    ("usher-ike", "usher-esp", "a CHILD_SA is two SAs of ESP, for traffic that both select alike"),
    ("services", "usher-config", "a service's file is read by the one reader"),
    ("networks", "usher-live", "what serves is machines on live sockets"),
    ("networks", "usher-service", "what every daemon is built with"),
    ("usher-ike-daemon", "usher-access-host", "the gateway is an access server"),
    ("usher-pppoe-daemon", "usher-access-host", "the concentrator is an access server"),
    ("usher-aaa-daemon", "usher-access-host", "the AAA server may be inside of an access server"),
    ("networks", "usher-device", "TUN devices and rtnetlink are asked for in one way"),
    ("networks", "usher-sctp", "associations of a live host are sockets of the kernel"),
    ("usher-aaa-config", "usher-aaa", "its file is read into what the server is made of"),
    ("usher-access-config", "usher-access", "its tables are read into what an access server is made of"),
    ("usher-concentrator", "usher-access", "a concentrator asks an AAA server, and has address pools"),
    ("usher-concentrator", "usher-access-config", "its file has the tables of an access server"),
    ("usher-concentrator", "usher-ident-service", "it answers whose the connections of its hosts are"),
    ("usher-gateway", "usher-access-config", "its file has the tables of an access server"),
    ("usher-gateway", "usher-access", "a gateway asks an AAA server, and has address pools"),
    ("usher-nas", "usher-access", "an authenticator asks an AAA server"),
    ("usher-mih-service", "usher-mobility", "its handovers are led by those controllers"),
    ("usher-aaa", "usher-access", "the ledger's address pools are those of any access server"),
    ("usher-aaa-daemon", "usher-store", "its users and accounting are in a store"),
    ("usher-aaa-daemon", "usher-pki", "whose certificates are looked after"),
    ("usher-ike-daemon", "usher-ipsec", "ESP carries the packets of its CHILD_SAs"),
    ("usher-pppoe-daemon", "usher-pppoe", "a data plane carries the packets of its PPPoE sessions"),
    ("usher-ike-daemon", "usher-pki", "whose peers' certificates are looked after"),
    ("usher-lab", "usher-sim", "it builds what the simulator builds: the same links, counts and captures"),
    ("usher-load", "usher-observe", "what a load shows are rows"),
    ("usher-load", "usher-report", "and ends in a report"),
    ("usher-load", "usher-profile", "what a login costs is written as a profile"),
    ("usher-scenario", "usher-profile", "a study charges a profile to its processors"),
    ("usher-plan", "usher-profile", "a plan rests on what logins were measured to cost"),
    ("usher-plan", "usher-load", "whose logins are the load generator's"),
    ("usher-plan", "usher-runner", "at a server on a simulated host"),
    ("usher-plan", "usher-scenario", "with a processor as a study's host has it"),
    ("usher-plan", "usher-theory", "closed forms stand beside what was simulated"),
    ("usher-plan", "usher-observe", "estimates have their intervals"),
    ("usher-plan", "usher-report", "and the answer ends in a report"),
    ("usher-report", "usher-observe", "a report is made from estimates"),
    ("usher-experiment", "usher-claims", "a run ends in verdicts"),
    ("usher-experiment", "usher-observe", "of its rows"),
    ("usher-experiment", "usher-report", "and in a report"),
    ("usher-experiment", "usher-runner", "of a sweep"),
    ("usher-experiment", "usher-scenario", "of a study's plan"),
    ("usher-experiment", "usher-browser", "whose reader may run the study, too"),
    ("usher-browser", "usher-observe", "it answers by rows"),
    ("usher-browser", "usher-runner", "of replications"),
    ("usher-browser", "usher-scenario", "of the study that it was given"),
    ("usher-claims", "usher-observe", "claims are held against rows"),
    ("usher-claims", "usher-report", "a verdict is shown in tables"),
    ("usher-claims", "usher-scenario", "a claim on the setting is held against the study"),
    ("usher-claims", "usher-theory", "a claim's own formula is a closed form"),
    ("usher-runner", "usher-scenario", "a run is of a scenario"),
    ("usher-runner", "usher-theory", "a report draws closed forms beside what was simulated"),
    ("usher-theory", "usher-scenario", "a closed form is evaluated for a scenario"),
    ("usher-verify", "usher-scenario", "some oracles are of a scenario"),
    ("usher-verify", "usher-theory", "closed forms are oracles"),
    ("usher-verify", "usher-runner", "and are held against its runs"),
    ("usher-runner", "usher-observe", "a run gives rows"),
    ("usher-runner", "usher-report", "a sweep ends in a report"),
];

/// The products: each is built without the laboratory.
pub const PRODUCTS: [&str; 4] =
    ["usher-aaa-daemon", "usher-ike-daemon", "usher-pppoe-daemon", "usher-ident-daemon"];

/// Crates of the laboratory, and of the protocols that only the founding studies and `usher mih` need. No product uses
/// one.
pub const NOT_IN_PRODUCTS: [&str; 9] = [
    "usher-sim",
    "usher-lab",
    "usher-nas",
    "usher-mih",
    "usher-mih-service",
    "usher-mih-daemon",
    "usher-mip",
    "usher-mobility",
    "usher-pkm",
];

/// Files of the lower floors that may use their environment, and why.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "protocols/crypto/build.rs",
        "it runs while compiling, and writes the vectors that the crate is held against for Cargo to find",
    ),
    ("protocols/crypto/src/tls", "the TLS engine adapter: rustls and aws-lc-rs need std"),
    (
        "services/config/src/disk.rs",
        "the files of hosts that have a disk, which else each host would read by itself",
    ),
];

/// Files that may hold unsafe code, one to a crate, and why.
pub const UNSAFE: &[(&str, &str)] = &[
    ("networks/live/src/mmsg.rs", "datagrams in batches: no safe interface to recvmmsg and sendmmsg exists"),
    (
        "networks/lab/src/sys.rs",
        "packets of all links by a ring that the kernel fills: no safe interface to packet sockets exists",
    ),
    (
        "networks/ipsec/src/sys.rs",
        "datagrams in batches with their class: no safe interface to recvmmsg and sendmmsg exists",
    ),
    (
        "networks/device/src/sys.rs",
        "a TUN device that leaves segmentation to us: no safe interface to it exists",
    ),
    (
        "networks/pppoe/src/sys.rs",
        "Ethernet frames in batches by packet sockets that leave checksums to us: no safe interface to them exists",
    ),
    (
        "studies/browser/src/abi.rs",
        "functions that a WebAssembly module exports: their names have to be kept, which safe code may not ask for",
    ),
    (
        "networks/sctp/src/system.rs",
        "SCTP's socket options, control messages and flags: no safe interface to them exists",
    ),
];

/// Protocol crates without a fuzz target of their own, and why.
pub const UNFUZZED: &[(&str, &str)] = &[
    ("usher-core", "its codecs are run by every other target"),
    ("usher-crypto", "it reads no message; EAP's target runs the TLS engine"),
    ("usher-ipfix", "it reads no message: it is an exporter, and properties hold what it writes"),
];

/// The repository's root.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("this crate is two below the root")
}

/// A text file of the project.
#[derive(Debug)]
pub struct SourceFile {
    /// Its path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
    /// True for a file that is compiled for tests only.
    pub test: bool,
}

impl SourceFile {
    /// The file's name extension.
    pub fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, e)| e)
    }

    /// Numbered lines that are compiled into the product: those before the test module, without comments.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let end = lines
            .windows(2)
            .position(|w| w[0].trim() == "#[cfg(test)]" && w[1].contains("mod ") && w[1].ends_with('{'))
            .unwrap_or(lines.len());
        let code = |line: &'_ str| -> usize {
            // A `//` in a string counts as the start of a comment: the rules read only code.
            line.find("//").unwrap_or(line.len())
        };
        lines.into_iter().take(end).enumerate().map(move |(i, line)| (i + 1, &line[..code(line)]))
    }
}

/// Returns the project's text files, by path, without built, fetched and recorded ones.
pub fn source_files() -> Vec<SourceFile> {
    let mut found = Vec::new();
    collect_files(&repository_root(), "", &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let modules: Vec<String> = found.iter().flat_map(test_modules).collect();
    for source in &mut found {
        let beside = ["/tests/", "/benches/", "/examples/"].iter().any(|f| source.path.contains(f));
        let within =
            |m: &String| source.path == format!("{m}.rs") || source.path.starts_with(&format!("{m}/"));
        source.test = beside || source.path.starts_with("tests/") || modules.iter().any(within);
    }
    assert!(found.len() > 50, "the project's files were not found below {}", repository_root().display());
    found
}

/// The modules that a file declares for tests only, as paths without `.rs`.
fn test_modules(source: &SourceFile) -> Vec<String> {
    let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let own = match file {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ => format!("{folder}/{}", file.trim_end_matches(".rs")),
    };
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let declared = |w: &[&str]| {
        let name = w[1].trim_start_matches("pub(crate) ").strip_prefix("mod ")?.strip_suffix(';')?;
        (w[0] == "#[cfg(test)]" || w[0].starts_with("#[cfg(all(test,")).then(|| format!("{own}/{name}"))
    };
    lines.windows(2).filter_map(declared).collect()
}

fn collect_files(folder: &Path, path: &str, found: &mut Vec<SourceFile>) {
    const PASSED_OVER: [&str; 8] =
        ["target", "out", ".git", "corpus", "artifacts", "coverage", "vectors", "Cargo.lock"];
    const TEXTS: [&str; 11] = ["rs", "toml", "md", "sh", "py", "yml", "json", "html", "js", "css", ""];
    for entry in fs::read_dir(folder).expect("a folder can be read").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if PASSED_OVER.contains(&name.as_str()) {
            continue;
        }
        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        let extension = name.rsplit_once('.').map_or("", |(_, e)| e);
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            collect_files(&entry.path(), &path, found);
        } else if TEXTS.contains(&extension) || name.starts_with('.') {
            // A file that is not UTF-8 is no text.
            found.extend(fs::read_to_string(entry.path()).ok().map(|text| SourceFile {
                path,
                text,
                test: false,
            }));
        }
    }
}

/// A crate of the workspace, as in its manifest.
#[derive(Debug)]
pub struct WorkspaceCrate {
    /// Its folder from the root.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Its manifest.
    pub manifest: toml::Table,
}

impl WorkspaceCrate {
    /// True if an entry of [`SIBLINGS`] is this crate's or its floor's.
    pub fn matches_entry(&self, entry: &str) -> bool {
        self.name == entry || self.floor_index().is_some_and(|floor| FLOORS[floor] == entry)
    }

    /// Returns the index of its floor, from the lowest; `None` for crates outside the floors.
    pub fn floor_index(&self) -> Option<usize> {
        let first = self.path.split('/').next();
        FLOORS.iter().position(|f| Some(*f) == first)
    }

    /// Returns the crates of the workspace that it uses; true if only its tests do.
    pub fn used_crates(&self) -> Vec<(&str, bool)> {
        let names = |key: &str, tests: bool| {
            let table = self.manifest.get(key).and_then(|t| t.as_table());
            let own = |(name, _): (&'_ String, _)| -> bool { name.starts_with("usher-") };
            table
                .into_iter()
                .flatten()
                .filter(move |entry| own((entry.0, ())))
                .map(move |(name, _)| (name.as_str(), tests))
                .collect::<Vec<_>>()
        };
        [names("dependencies", false), names("build-dependencies", false), names("dev-dependencies", true)]
            .concat()
    }
}

/// Reads a manifest.
pub fn read_manifest(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the names in a manifest's array.
pub fn array_names<'a>(table: &'a toml::Table, path: &[&str]) -> Vec<&'a str> {
    let at = path.split_last().and_then(|(last, tables)| {
        tables.iter().try_fold(table, |t, key| t.get(*key)?.as_table())?.get(*last)?.as_array()
    });
    at.into_iter().flatten().filter_map(|v| v.as_str()).collect()
}

/// The workspace's crates.
pub fn workspace_crates() -> Vec<WorkspaceCrate> {
    let workspace = read_manifest(&repository_root().join("Cargo.toml"));
    let member = |path: &str| {
        let manifest = read_manifest(&repository_root().join(path).join("Cargo.toml"));
        let name = manifest["package"]["name"].as_str().expect("a package has a name").to_owned();
        WorkspaceCrate { path: path.to_owned(), name, manifest }
    };
    array_names(&workspace, &["workspace", "members"]).into_iter().map(member).collect()
}
