//! A plan as a file: the command's arguments, for keeping beside the configuration.

use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use usher_config::units::{EventRate, Percentage, PositiveCount, TimeSpan};
use usher_config::{ConfigEnvironment, ConfigErrors, ConfigFormat, DiagnosticCollector, OrderedMap};
use usher_core::Duration;
use usher_profile::MachineReference;

/// What plans are.
pub const FORMAT: ConfigFormat = ConfigFormat { description: "a plan", version: 1, retired: &[] };

/// A plan: who logs in, how often and by what, and what is to be met.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Usher's plan of a deployment")]
pub struct PlanFile {
    /// The profile that `usher load --calibrate` wrote, from this file's folder.
    pub profile: Option<PathBuf>,
    /// The server's configuration that is to be deployed, from this file's folder.
    pub config: Option<PathBuf>,
    /// Who logs in, and how often.
    pub demand: LoginDemand,
    /// Methods by their names with their weights, as `eap-tls = 60`.
    pub mix: OrderedMap<f64>,
    /// What is to be met.
    pub target: Option<LoginTarget>,
    /// Cores of each server.
    pub cores: Option<PositiveCount>,
    /// So many times as long as on the profile's machine work takes.
    pub scale: Option<f64>,
    /// Or how often a second a core of the servers does what the profile's reference says of its own.
    pub reference: Option<MachineReference>,
    /// How far away the store is, there and back, beyond where it was in the profile.
    pub store_distance: Option<TimeSpan>,
    /// How far away access servers are, there and back.
    pub round_trip: Option<TimeSpan>,
    /// Share of packets lost, each way.
    pub loss: Option<Percentage>,
    /// PEM: the certificate of a test user, with those above it.
    pub certificate: Option<PathBuf>,
    /// PEM: its key.
    pub key: Option<PathBuf>,
    /// PEM: the authorities of the server's certificate.
    pub ca: Option<PathBuf>,
}

/// This share of the logins is to end within that time.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginTarget {
    /// The share.
    pub share: Percentage,
    /// The time.
    pub within: TimeSpan,
}

impl Default for LoginTarget {
    /// 99 % within 100 ms, as `usher load --ramp` wants it.
    fn default() -> Self {
        Self { share: Percentage::from_percent(99), within: TimeSpan::from_millis(100) }
    }
}

/// Who logs in, and how often: a rate, or users with what they do.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoginDemand {
    /// Users.
    pub users: Option<PositiveCount>,
    /// All of them log in once within this time, as in the morning.
    pub within: Option<TimeSpan>,
    /// Or each logs in again after this time, around the clock.
    pub reauthentication: Option<TimeSpan>,
    /// Or so many logins there are.
    pub rate: Option<EventRate>,
    /// At the peak so many times as many as on average.
    pub peak: Option<f64>,
}

impl LoginDemand {
    /// Logins a second at the peak.
    ///
    /// # Errors
    /// What is missing, or said twice.
    pub fn peak_rate(&self) -> Result<f64, String> {
        let peak = self.peak.unwrap_or(1.0);
        if !(peak.is_finite() && peak >= 1.0) {
            return Err("the peak is so many times the average: 1 or more".to_owned());
        }
        let of = |users: Option<PositiveCount>, time: TimeSpan| match users {
            None => Err("how many users log in is missing (users)".to_owned()),
            Some(_) if time.get() == Duration::ZERO => Err("logins within no time are no demand".to_owned()),
            Some(users) => Ok(f64::from(users.get()) / time.get().as_secs_f64()),
        };
        let average = match (self.rate, self.within, self.reauthentication) {
            (Some(rate), None, None) => rate.per_second(),
            (None, Some(time), None) | (None, None, Some(time)) => of(self.users, time)?,
            (None, None, None) => {
                return Err("how often users log in is missing: a rate, users within a time, or users with a time of \
                            reauthentication"
                    .to_owned());
            }
            _ => {
                return Err("how often users log in is said twice: a rate, a time within which all log in, or a time of \
                            reauthentication, one of them"
                    .to_owned());
            }
        };
        Ok(average * peak)
    }
}

/// Reads a plan's text. `origin` is the file that it was read from.
///
/// # Errors
/// Everything that is wrong with it, each fault with its line.
pub fn parse_plan(
    origin: &str,
    text: &str,
    outside: &dyn ConfigEnvironment,
) -> Result<PlanFile, ConfigErrors> {
    let mut faults = DiagnosticCollector::new(origin, text);
    let file = usher_config::read_document(&FORMAT, outside, &mut faults).and_then(|mut tree| {
        let read = usher_config::read_typed::<PlanFile>(&mut tree, |_| false, &mut faults);
        let file = read.value.filter(|_| read.is_complete)?;
        for (name, weight) in file.mix.iter() {
            if !(weight.is_finite() && *weight > 0.0) {
                let at = [
                    usher_config::tree::PathStep::Key("mix".to_owned()),
                    usher_config::tree::PathStep::Key(name.to_owned()),
                ];
                faults.add(tree.position_of(&at), format!("mix.{name}: a weight is above 0"));
            }
        }
        Some(file)
    });
    faults.finish(file)
}

/// The JSON Schema of plans, as `docs/plan.schema.json` holds it: indented, with a final newline.
#[must_use]
pub fn json_schema() -> String {
    usher_config::json_schema::<PlanFile>(&FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_config::NoEnvironment;

    fn parse_demand(text: &str) -> Result<f64, String> {
        parse_plan("plan.toml", text, &NoEnvironment).map_err(|e| e.to_string())?.demand.peak_rate()
    }

    #[test]
    fn demand_is_said_once() {
        assert_eq!(parse_demand("[demand]\nrate = \"5 /s\"\npeak = 2.0"), Ok(10.0));
        assert_eq!(parse_demand("[demand]\nusers = 3600\nwithin = \"1 h\""), Ok(1.0));
        assert_eq!(parse_demand("[demand]\nusers = 7200\nreauthentication = \"1 h\"\npeak = 3"), Ok(6.0));
        assert!(parse_demand("[demand]\nwithin = \"1 h\"").unwrap_err().contains("(users)"));
        assert!(parse_demand("").unwrap_err().contains("is missing"));
        assert!(
            parse_demand("[demand]\nrate = \"5 /s\"\nwithin = \"1 h\"").unwrap_err().contains("said twice")
        );
        assert!(parse_demand("[demand]\nrate = \"5 /s\"\npeak = 0.5").unwrap_err().contains("1 or more"));
        assert!(parse_demand("[demand]\nusers = 1\nwithin = \"0 s\"").unwrap_err().contains("no time"));
    }

    #[test]
    fn faults_have_their_lines() {
        let said = |text: &str| parse_plan("plan.toml", text, &NoEnvironment).unwrap_err().to_string();
        assert!(said("mix = { pap = 0.0 }").contains("plan.toml:1:15: mix.pap: a weight is above 0"));
        assert!(
            said("\nconfg = \"a\"")
                .contains("plan.toml:2:1: unknown key \"confg\" at the top; did you mean \"config\"")
        );
    }

    #[test]
    fn the_published_schema_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan.schema.json");
        let schema = json_schema();
        if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
            std::fs::write(&path, &schema).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            published == schema,
            "docs/plan.schema.json is not what the types say; run this test with USHER_WRITE_SCHEMA=1"
        );
    }
}
