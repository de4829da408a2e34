//! A plan as a file: the command's arguments, for keeping beside the configuration.

use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use usher_config::units::{EventRate, Percentage, PositiveCount, TimeSpan};
use usher_config::{ConfigEnvironment, ConfigErrors, ConfigFormat, DiagnosticCollector, OrderedMap};
use usher_core::Duration;
use usher_profile::ReferenceCryptoRates;

/// The format of plan files.
pub const FORMAT: ConfigFormat = ConfigFormat { description: "a plan", version: 1, retired: &[] };

/// A plan: the logins by rate and method, and the target.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Usher's plan of a deployment")]
pub struct PlanFile {
    /// The profile of `usher load --calibrate`, relative to this file's folder.
    pub profile: Option<PathBuf>,
    /// Accepts a profile of another version of Usher.
    pub any_version: bool,
    /// The server's configuration to deploy, relative to this file's folder.
    pub config: Option<PathBuf>,
    /// The demand: the rate of logins.
    pub demand: LoginDemand,
    /// Methods with their weights, such as `eap-tls = 60`.
    pub mix: OrderedMap<f64>,
    /// The target.
    pub target: Option<LoginTimeTarget>,
    /// Cores of each server.
    pub cores: Option<PositiveCount>,
    /// All times as a multiple of those on the profile's machine.
    pub scale: Option<f64>,
    /// Instead of `scale`: the speed of a core of the servers at the operations of the profile's reference.
    pub reference: Option<ReferenceCryptoRates>,
    /// Additional round-trip time to the store, compared with the profile.
    pub store_distance: Option<TimeSpan>,
    /// Round-trip time to the access servers.
    pub round_trip: Option<TimeSpan>,
    /// Share of lost packets, in each direction.
    pub loss: Option<Percentage>,
    /// PEM: the certificate of a test user, then its chain.
    pub certificate: Option<PathBuf>,
    /// PEM: its key.
    pub key: Option<PathBuf>,
    /// PEM: the authorities of the server's certificate.
    pub ca: Option<PathBuf>,
}

/// The target: this share of the logins must end within this time.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginTimeTarget {
    /// The share.
    pub share: Percentage,
    /// The time.
    pub within: TimeSpan,
}

impl Default for LoginTimeTarget {
    /// 99 % within 100 ms, as `usher load --ramp` wants it.
    fn default() -> Self {
        Self { share: Percentage::from_percent(99), within: TimeSpan::from_millis(100) }
    }
}

/// The demand: a rate, or users with their behaviour.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoginDemand {
    /// The number of users.
    pub users: Option<PositiveCount>,
    /// All users log in once within this time, as in the morning.
    pub within: Option<TimeSpan>,
    /// Or: each user logs in again after this time, around the clock.
    pub reauthentication: Option<TimeSpan>,
    /// Or: the rate of logins.
    pub rate: Option<EventRate>,
    /// The peak as a multiple of the average.
    pub peak: Option<f64>,
}

impl LoginDemand {
    /// Logins a second at the peak.
    ///
    /// # Errors
    /// A missing or duplicate setting.
    pub fn peak_rate(&self) -> Result<f64, String> {
        let peak = self.peak.unwrap_or(1.0);
        if !(peak.is_finite() && peak >= 1.0) {
            return Err("peak is a multiple of the average: it must be 1 or more".to_owned());
        }
        let of = |users: Option<PositiveCount>, time: TimeSpan| match users {
            None => Err("the number of users is missing (users)".to_owned()),
            Some(_) if time.get() == Duration::ZERO => {
                Err("the time of the logins must be above zero".to_owned())
            }
            Some(users) => Ok(f64::from(users.get()) / time.get().as_secs_f64()),
        };
        let average = match (self.rate, self.within, self.reauthentication) {
            (Some(rate), None, None) => rate.per_second(),
            (None, Some(time), None) | (None, None, Some(time)) => of(self.users, time)?,
            (None, None, None) => {
                return Err("the rate of logins is missing: give a rate, users within a time, or users with a time of \
                            reauthentication"
                    .to_owned());
            }
            _ => {
                return Err("the rate of logins is given twice: give only one of a rate, a time within which all log \
                            in, and a time of reauthentication"
                    .to_owned());
            }
        };
        Ok(average * peak)
    }
}

/// Reads a plan's text. `origin` is the file that it was read from.
///
/// # Errors
/// All faults, each with its line.
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
                faults.add(tree.position_of(&at), format!("mix.{name}: a weight must be above 0"));
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
    use usher_config::EmptyConfigEnvironment;

    fn parse_demand(text: &str) -> Result<f64, String> {
        parse_plan("plan.toml", text, &EmptyConfigEnvironment).map_err(|e| e.to_string())?.demand.peak_rate()
    }

    #[test]
    fn demand_is_said_once() {
        assert_eq!(parse_demand("[demand]\nrate = \"5 /s\"\npeak = 2.0"), Ok(10.0));
        assert_eq!(parse_demand("[demand]\nusers = 3600\nwithin = \"1 h\""), Ok(1.0));
        assert_eq!(parse_demand("[demand]\nusers = 7200\nreauthentication = \"1 h\"\npeak = 3"), Ok(6.0));
        assert!(parse_demand("[demand]\nwithin = \"1 h\"").unwrap_err().contains("(users)"));
        assert!(parse_demand("").unwrap_err().contains("is missing"));
        assert!(
            parse_demand("[demand]\nrate = \"5 /s\"\nwithin = \"1 h\"").unwrap_err().contains("given twice")
        );
        assert!(parse_demand("[demand]\nrate = \"5 /s\"\npeak = 0.5").unwrap_err().contains("1 or more"));
        assert!(parse_demand("[demand]\nusers = 1\nwithin = \"0 s\"").unwrap_err().contains("above zero"));
    }

    #[test]
    fn faults_have_their_lines() {
        let said =
            |text: &str| parse_plan("plan.toml", text, &EmptyConfigEnvironment).unwrap_err().to_string();
        assert!(said("mix = { pap = 0.0 }").contains("plan.toml:1:15: mix.pap: a weight must be above 0"));
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
