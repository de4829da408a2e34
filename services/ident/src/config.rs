//! The configuration file of an IDENT service.

use crate::disclosure::{DisclosureLevel, DisclosurePolicy};
use crate::service;
use crate::token::TokenKey;
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use usher_config::log::LogConfig;
use usher_config::tree::TreeNode;
use usher_config::units::{PositiveCount, TimeSpan};
use usher_config::{
    CheckedConfig, ConfigDiagnostic, ConfigEnvironment, ConfigErrors, ConfigFormat, DiagnosticCollector,
    KeyPathError, Prefix, named, secret,
};
use usher_ident::{IdentToken, PORT, ServerConfig};

/// Default path of the configuration file.
pub const DEFAULT_PATH: &str = "/etc/usher/ident.toml";
/// Minimum octets of an unpredictable secret.
const SECRET: usize = 16;

/// The format of configuration files.
pub const FORMAT: ConfigFormat =
    ConfigFormat { description: "the IDENT server's configuration", version: 1, retired: &[] };

/// The configuration of `usher ident serve`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Usher's IDENT server")]
pub struct IdentConfigFile {
    /// The addresses and ports to listen on, IPv4 and IPv6: `"0.0.0.0:113"`, `"[::]:113"`.
    pub listen: Vec<SocketAddr>,
    /// The permitted askers and their disclosure levels. The longest matching prefix counts. Others get no answer.
    pub asker: Vec<AskerTable>,
    /// Users who are never named, by name or number: the answer is HIDDEN-USER.
    pub hide: Vec<String>,
    /// The operating system in answers with a user's name. With numbers and tokens it is always OTHER.
    pub opsys: String,
    /// The character set in answers with a user's name. Without it, names are US-ASCII, or UTF-8 if they have other
    /// characters.
    pub charset: Option<String>,
    /// The key of tokens.
    pub token: Option<IdentTokenKeyTable>,
    /// Limits.
    pub limits: LimitsTable,
    /// Logs.
    pub log: LogConfig,
}

impl Default for IdentConfigFile {
    /// Only loopback addresses, to listen on and as askers.
    fn default() -> Self {
        let both: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let asker = |(network, bits)| AskerTable {
            prefix: Prefix { network, bits },
            disclose: DisclosureLevel::UserName,
        };
        Self {
            listen: both.map(|address| SocketAddr::new(address, PORT)).to_vec(),
            asker: [(Ipv4Addr::new(127, 0, 0, 0).into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)]
                .map(asker)
                .to_vec(),
            hide: Vec::new(),
            opsys: "UNIX".to_owned(),
            charset: None,
            token: None,
            limits: LimitsTable::default(),
            log: LogConfig::default(),
        }
    }
}

/// A permitted network of askers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskerTable {
    /// The addresses of the network.
    pub prefix: Prefix,
    /// The disclosure level: what its askers learn about a connection's owner.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<DisclosureLevel>")]
    pub disclose: DisclosureLevel,
}

/// The key of tokens, for askers with `disclose = "token"`. With the key, `usher ident reveal` shows the user of a
/// token.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdentTokenKeyTable {
    /// A file with the key, readable only by its owner and group. The key has at least 16 characters without the final
    /// line end.
    pub key_file: Option<PathBuf>,
    /// An environment variable with the key.
    pub key_env: Option<String>,
}

/// Limits.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsTable {
    /// Maximum time of a connection without a query; RFC 1413 recommends 60 to 180 s.
    pub idle_timeout: TimeSpan,
    /// Maximum time of an owner lookup; then the answer is UNKNOWN-ERROR.
    pub answer_timeout: TimeSpan,
    /// Concurrent connections. Beyond the limit, the one that is idle longest is closed.
    pub connections: PositiveCount,
    /// Concurrent connections from one network: an IPv4 address, or 64 bits of an IPv6 address.
    pub connections_per_network: PositiveCount,
    /// Pending queries of a connection. With one more it is closed.
    pub pipeline: PositiveCount,
    /// Concurrent owner lookups of all connections. Beyond the limit, the answer is UNKNOWN-ERROR.
    pub lookups: PositiveCount,
    /// Queries of one network per second. Beyond the limit, the answer is UNKNOWN-ERROR, without a lookup and a log
    /// line.
    pub queries_per_network: PositiveCount,
}

impl Default for LimitsTable {
    fn default() -> Self {
        let server = ServerConfig::default();
        let count = |n| PositiveCount::from_u32(u32::try_from(n).unwrap_or(u32::MAX));
        Self {
            idle_timeout: TimeSpan(server.idle),
            answer_timeout: TimeSpan(server.response_timeout),
            connections: count(server.connections),
            connections_per_network: count(server.connections_per_network),
            pipeline: count(server.pipeline),
            lookups: PositiveCount::from_u32(4096),
            queries_per_network: PositiveCount::from_u32(1000),
        }
    }
}

/// A checked configuration, with its key.
#[derive(Clone, Debug)]
pub struct LoadedIdentConfig {
    /// The file's content.
    pub file: IdentConfigFile,
    /// The machine's configuration.
    pub config: service::IdentServiceConfig,
    /// Warnings about valid settings that should be written differently.
    pub warnings: Vec<ConfigDiagnostic>,
}

/// Parses and checks a file. `origin` is the file's path, or its name in faults. Relative paths start from its folder.
///
/// # Errors
/// All faults of the file.
pub fn parse(
    origin: &str,
    text: &str,
    outside: &dyn ConfigEnvironment,
) -> Result<LoadedIdentConfig, ConfigErrors> {
    let check = |file: &mut IdentConfigFile, base: &Path| check_file(file, base, outside);
    usher_config::parse(&FORMAT, origin, text, outside, check).map(LoadedIdentConfig::from)
}

/// Parses and checks a configuration that is a table of another file, such as a study. Faults and warnings have the
/// lines of that file. Relative paths start from `base`. `None`: `faults` has the errors.
pub fn read_tree(
    tree: TreeNode,
    base: &Path,
    outside: &dyn ConfigEnvironment,
    faults: &mut DiagnosticCollector,
) -> Option<LoadedIdentConfig> {
    let check = |file: &mut IdentConfigFile, base: &Path| check_file(file, base, outside);
    usher_config::read_tree(&FORMAT, tree, base, check, faults).map(LoadedIdentConfig::from)
}

impl From<CheckedConfig<IdentConfigFile, service::IdentServiceConfig>> for LoadedIdentConfig {
    fn from(
        CheckedConfig { file, built_config: made, warnings }: CheckedConfig<
            IdentConfigFile,
            service::IdentServiceConfig,
        >,
    ) -> Self {
        Self { file, config: made, warnings }
    }
}

/// Builds the machine's configuration, and checks beyond the types: that values fit each other, and that the key
/// exists.
pub fn check_file(
    file: &IdentConfigFile,
    folder: &Path,
    outside: &dyn ConfigEnvironment,
) -> (Option<service::IdentServiceConfig>, Vec<KeyPathError>) {
    let mut found: Vec<KeyPathError> = Vec::new();
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let mut token = |key: &str, text: &str| {
        let token = IdentToken::new(text);
        token.map_err(|e| found.push((keys(&[key]), format!("\"{text}\" is not valid here: {e}")))).ok()
    };
    let opsys = token("opsys", &file.opsys);
    let charset = file.charset.as_deref().and_then(|charset| token("charset", charset));
    for (i, asker) in file.asker.iter().enumerate() {
        let at = |key: &str| keys(&["asker", &i.to_string(), key]);
        if let Some(earlier) =
            file.asker.iter().take(i).position(|e| is_same_network(&e.prefix, &asker.prefix))
        {
            let message =
                format!("{} is the prefix of asker[{earlier}] already; keep one of them", asker.prefix);
            found.push((at("prefix"), message));
        }
        if asker.disclose == DisclosureLevel::Token && file.token.is_none() {
            let message = "tokens need a key: write one to a file (head -c 16 /dev/urandom | base64), and name it in \
                           \"key_file\" of [token]";
            found.push((at("disclose"), message.to_owned()));
        }
    }
    let mut key = None;
    if let Some(table) = &file.token {
        let path = table.key_file.as_ref().map(|path| folder.join(path));
        match secret::resolve_secret("key", None, path.as_deref(), table.key_env.as_deref(), outside) {
            Ok(Some(secret)) if secret.0.len() >= SECRET => key = Some(TokenKey::new(secret.0.as_bytes())),
            Ok(Some(_)) => {
                let named = if table.key_file.is_some() { "key_file" } else { "key_env" };
                let message =
                    format!("the key needs at least {SECRET} characters (head -c 16 /dev/urandom | base64)");
                found.push((keys(&["token", named]), message));
            }
            Ok(None) => {
                found.push((keys(&["token"]), "\"key_file\" or \"key_env\" is missing in token".to_owned()))
            }
            Err((at, message)) => {
                let path = ["token", &at];
                found.push((keys(if at.is_empty() { &path[..1] } else { &path }), message));
            }
        }
    }
    let policy = opsys.map(|opsys| DisclosurePolicy {
        askers: file.asker.iter().map(|asker| (asker.prefix, asker.disclose)).collect(),
        hide: file.hide.clone(),
        opsys,
        charset,
        key,
    });
    let limits = &file.limits;
    let count = |count: PositiveCount| usize::try_from(count.get()).unwrap_or(usize::MAX);
    let server = ServerConfig {
        idle: limits.idle_timeout.get(),
        response_timeout: limits.answer_timeout.get(),
        connections: count(limits.connections),
        connections_per_network: count(limits.connections_per_network),
        pipeline: count(limits.pipeline),
    };
    let config = policy.map(|policy| service::IdentServiceConfig {
        server,
        policy,
        lookups: count(limits.lookups),
        queries: limits.queries_per_network.get(),
    });
    (config, found)
}

/// True if two notations mean the same network.
fn is_same_network(a: &Prefix, b: &Prefix) -> bool {
    a.bits == b.bits && a.contains(b.network)
}

/// Returns the JSON Schema of the file, as in `docs/ident.schema.json`: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<IdentConfigFile>(&FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::EmptyConfigEnvironment;

    struct MockEnvironment;

    impl ConfigEnvironment for MockEnvironment {
        fn read_text(&self, path: &Path) -> Result<String, String> {
            Err(format!("{} is not there", path.display()))
        }
        fn read_secret(&self, path: &Path) -> Result<String, String> {
            match path.to_str() {
                Some("etc/ident.key") => Ok("0123456789abcdef\n".to_owned()),
                Some("etc/short.key") => Ok("0123456789abcde\n".to_owned()),
                _ => self.read_text(path),
            }
        }
        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }

    fn expect_faults(text: &str) -> Vec<String> {
        let faults = parse("etc/ident.toml", text, &MockEnvironment).expect_err(text).faults;
        faults.iter().map(|f| format!("{}:{}: {}", f.line, f.column, f.message)).collect()
    }

    #[test]
    fn without_settings_loopback_alone_asks_and_is_told_names() {
        let loaded = parse("ident.toml", "", &EmptyConfigEnvironment).unwrap();
        assert_eq!(loaded.file.listen.len(), 2);
        assert!(loaded.file.listen.iter().all(|address| address.ip().is_loopback() && address.port() == 113));
        let policy = &loaded.config.policy;
        for (address, told) in [
            ("127.0.0.2", Some(DisclosureLevel::UserName)),
            ("::1", Some(DisclosureLevel::UserName)),
            ("192.0.2.1", None),
        ] {
            assert_eq!(policy.disclosure_for(address.parse().unwrap()), told, "{address}");
        }
        assert_eq!(loaded.config.server, ServerConfig::default());
    }

    #[test]
    fn a_whole_file_is_read() {
        let text = "listen = [\"[::]:113\"]\nopsys = \"LINUX\"\ncharset = \"UTF-8\"\nhide = [\"eve\"]\n\
                    [[asker]]\nprefix = \"192.0.2.0/24\"\ndisclose = \"user-name\"\n\
                    [[asker]]\nprefix = \"::/0\"\ndisclose = \"token\"\n\
                    [token]\nkey_file = \"ident.key\"\n\
                    [limits]\nidle_timeout = \"1 min\"\nanswer_timeout = \"1.5 s\"\nconnections = 9\n\
                    connections_per_network = 8\npipeline = 7\nlookups = 6\n\
                    queries_per_network = 5\n[log]\nlevel = \"warn\"\n";
        let LoadedIdentConfig { file, config, .. } = parse("etc/ident.toml", text, &MockEnvironment).unwrap();
        assert_eq!((file.listen[0].to_string().as_str(), file.hide[0].as_str()), ("[::]:113", "eve"));
        let server = &config.server;
        assert_eq!((server.idle.as_secs_f64(), server.response_timeout.as_secs_f64()), (60.0, 1.5));
        assert_eq!(
            (
                server.connections,
                server.connections_per_network,
                server.pipeline,
                config.lookups,
                config.queries
            ),
            (9, 8, 7, 6, 5)
        );
        assert_eq!(
            config.policy.disclosure_for("2001:db8::1".parse().unwrap()),
            Some(DisclosureLevel::Token)
        );
        assert_eq!(config.policy.key, Some(TokenKey::new(b"0123456789abcdef")));
        assert_eq!(
            (config.policy.opsys.as_str(), config.policy.charset.unwrap().as_str()),
            ("LINUX", "UTF-8")
        );
    }

    #[test]
    fn every_fault_has_its_place() {
        let asker =
            |disclose: &str| format!("[[asker]]\nprefix = \"192.0.2.0/24\"\ndisclose = \"{disclose}\"\n");
        assert_eq!(
            expect_faults("opsys = \"a b\"\ncharset = \"UTF:8\"\n"),
            [
                "1:9: \"a b\" is not valid here: a token is 1 to 64 printable US-ASCII characters \
                 without blanks, colons and commas",
                "2:11: \"UTF:8\" is not valid here: a token is 1 to 64 printable US-ASCII characters \
                 without blanks, colons and commas",
            ]
        );
        assert!(
            expect_faults(&asker("name"))[0]
                .starts_with("3:12: asker[0].disclose: \"name\" is not known here")
        );
        assert!(expect_faults(&asker("token"))[0].starts_with("3:12: tokens need a key"));
        let twice = asker("uid") + "[[asker]]\nprefix = \"192.0.2.9/24\"\ndisclose = \"hidden\"\n";
        assert_eq!(
            expect_faults(&twice),
            ["5:10: 192.0.2.9/24 is the prefix of asker[0] already; keep one of them"]
        );
        let key = |table: &str| expect_faults(&format!("[token]\n{table}\n"));
        assert_eq!(key(""), ["1:2: \"key_file\" or \"key_env\" is missing in token"]);
        assert!(key("key_file = \"short.key\"")[0].starts_with("2:12: the key needs at least 16 characters"));
        assert_eq!(key("key_file = \"no.key\""), ["2:12: etc/no.key is not there"]);
        assert!(key("key_env = \"NO\"")[0].starts_with("2:11: the environment variable NO is not set"));
        assert!(key("key_env = \"NO\"\nkey_file = \"ident.key\"")[0].contains("keep one of them"));
        assert!(
            expect_faults("[limits]\npipeline = 0\n")[0]
                .starts_with("2:12: limits.pipeline: 0 is impossible")
        );
        assert!(expect_faults("lisen = []\n")[0].contains("did you mean \"listen\"?"));
    }

    #[test]
    fn the_published_schema_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ident.schema.json");
        if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
            std::fs::write(&path, json_schema()).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            published == json_schema(),
            "docs/ident.schema.json is not what the types say; run this test with USHER_WRITE_SCHEMA=1"
        );
    }
}
