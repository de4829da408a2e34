//! Prepares a simulation from a plan's file: reads files, applies defaults and lists the assumptions.

use crate::deployment::{DeploymentInputs, ServerDeployment, UserTlsConfig};
use crate::file::{PlanFile, parse_plan};
use crate::{LoginMethod, PlanSettings};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use usher_config::disk::{DiskEnvironment, read_file_text};
use usher_config::units::{Percentage, PositiveCount};
use usher_core::WallTime;
use usher_crypto::tls::{TlsCredentials, TrustRoots};
use usher_crypto::x509::CertificateInfo;
use usher_profile::MachineSpeedFactors;

/// Default replications, and default logins in a step: without TLS, and with TLS, whose handshakes are computed.
const REPLICATIONS: u32 = 4;
const LOGINS: u32 = 4_000;
const TLS_LOGINS: u32 = 600;
/// The divisor of both for a quick plan.
const QUICK: u32 = 4;

/// The effort of a plan's simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanSimulationSettings {
    /// True for a first look: fewer logins, two replications.
    pub quick: bool,
    /// Number of replications, each with its own random streams; `None` for 4.
    pub replications: Option<u32>,
    /// Approximate number of logins in a step; `None` for 4000, with TLS 600.
    pub logins: Option<u32>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Number of steps simulated at once.
    pub jobs: usize,
}

/// A prepared plan with its description.
#[derive(Debug)]
pub struct PreparedPlan {
    /// The settings of the simulation.
    pub settings: PlanSettings,
    /// The deployment.
    pub deployment: ServerDeployment,
    /// The profile with the cost of logins.
    pub profile: usher_profile::ServerProfile,
    /// The plan in a sentence.
    pub summary: String,
    /// The assumptions.
    pub assumptions: Vec<String>,
    /// One of them: another version of the program measured the profile.
    pub version_note: Option<String>,
}

/// The reason why a plan cannot be simulated: a sentence, or the faults of a file with their lines.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PrepareError(String);

impl PrepareError {
    fn new(cause: impl std::fmt::Display) -> Self {
        Self(cause.to_string())
    }
    fn with_file_path(path: &Path, cause: impl std::fmt::Display) -> Self {
        Self(format!("{}: {cause}", path.display()))
    }
}

impl PlanFile {
    /// Reads a plan from disk. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// It cannot be read, or all its faults with their lines.
    pub fn read_file(path: &Path) -> Result<Self, PrepareError> {
        let text = read_file_text(path).map_err(PrepareError::new)?;
        let mut file =
            parse_plan(&path.display().to_string(), &text, &DiskEnvironment).map_err(PrepareError::new)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for named in [&mut file.profile, &mut file.config, &mut file.certificate, &mut file.key, &mut file.ca]
        {
            *named = named.take().map(|named: PathBuf| folder.join(named));
        }
        Ok(file)
    }

    /// Reads the plan's files and assembles the deployment. `program` is the program's version, which must match the
    /// profile's unless the plan accepts any version.
    ///
    /// # Errors
    /// The missing or unsuitable part.
    pub fn prepare_plan(
        &self,
        effort: &PlanSimulationSettings,
        program: &str,
    ) -> Result<PreparedPlan, PrepareError> {
        let demand = self.demand.peak_rate().map_err(PrepareError)?;
        let Some(path) = &self.profile else {
            return Err(PrepareError::new(
                "the cost of a login is missing: give --profile FILE, which usher load --calibrate writes",
            ));
        };
        let names: Vec<&str> =
            usher_scenario::work::all_work_labels().map(usher_core::WorkLabel::name).collect();
        let profile = read_file_text(path).map_err(PrepareError::new)?;
        let profile =
            usher_profile::parse_profile(&path.display().to_string(), &profile, &DiskEnvironment, &names)
                .map_err(PrepareError::new)?;
        if self.mix.is_empty() {
            return Err(PrepareError(format!(
                "the methods of the logins are missing: give --mix METHOD=SHARE,...; the profile has {}",
                profile.methods.names().collect::<Vec<_>>().join(", ")
            )));
        }
        let methods: Vec<LoginMethod> = self
            .mix
            .iter()
            .map(|(name, weight)| LoginMethod { name: name.to_owned(), weight: *weight })
            .collect();
        let config = match &self.config {
            Some(path) => {
                let text = read_file_text(path).map_err(PrepareError::new)?;
                let loaded =
                    usher_aaa_config::parse(&path.display().to_string(), &text, Some(path), &DiskEnvironment);
                Some(loaded.map_err(PrepareError::new)?)
            }
            None => None,
        };
        let has_tls = methods.iter().any(LoginMethod::has_tls);
        let tls = match (&self.certificate, &self.key, &self.ca) {
            (None, None, None) if config.is_none() || !has_tls => None,
            (certificate, key, Some(ca)) => Some(read_tls(certificate.as_deref().zip(key.as_deref()), ca)?),
            (.., None) => {
                return Err(PrepareError::new(
                    "the methods use TLS: give --ca, the authorities of the server's certificate, and for EAP-TLS \
                     --certificate and --key of one user",
                ));
            }
        };
        let scale = match (self.scale, &self.reference) {
            (Some(_), Some(_)) => {
                return Err(PrepareError::new(
                    "scale and reference both set the speed: leave one of them out",
                ));
            }
            (Some(scale), None) if scale.is_finite() && scale > 0.0 => {
                MachineSpeedFactors::with_uniform_factor(scale)
            }
            (Some(_), None) => return Err(PrepareError::new("the scale must be above 0")),
            (None, Some(reference)) => MachineSpeedFactors::for_machine(&profile, reference),
            (None, None) => MachineSpeedFactors::with_uniform_factor(1.0),
        };
        let cores = self.cores.unwrap_or(PositiveCount::ONE);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let parts = DeploymentInputs {
            config,
            profile: &profile,
            program: if self.any_version { &profile.program } else { program },
            methods,
            users: self.demand.users.map_or(usize::MAX, |n| n.get() as usize),
            cores,
            scale,
            distance: self.store_distance.unwrap_or_default(),
            round_trip: self.round_trip.unwrap_or_default(),
            loss: self.loss.map_or(0.0, Percentage::get),
            tls,
            now: WallTime::from_unix_secs(unix.as_secs()),
        };
        let mut assumptions = list_assumptions(&parts);
        let version_note = (profile.program != program).then(|| {
            format!(
                "The profile is of usher {}. The costs of this usher {program} may differ.",
                profile.program
            )
        });
        assumptions.extend(version_note.clone());
        let deployment = ServerDeployment::new(parts).map_err(|e| PrepareError::with_file_path(path, e))?;
        let usual = if has_tls { TLS_LOGINS } else { LOGINS };
        let target = self.target.unwrap_or_default();
        let settings = PlanSettings {
            demand,
            share: target.share.get(),
            time_limit: target.within.get().as_secs_f64(),
            replications: effort.replications.unwrap_or(if effort.quick { 2 } else { REPLICATIONS }),
            logins: effort.logins.unwrap_or(if effort.quick { usual / QUICK } else { usual }),
            seed: effort.seed,
            jobs: effort.jobs,
        };
        let about = self.describe_plan(&deployment, &profile);
        Ok(PreparedPlan { settings, deployment, profile, summary: about, assumptions, version_note })
    }

    fn describe_plan(&self, deployment: &ServerDeployment, profile: &usher_profile::ServerProfile) -> String {
        format!(
            "Logins by {} at a server with {}, on a processor with the costs of the profile of {} ({}, {}).",
            deployment.methods.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", "),
            match self.config.as_ref() {
                Some(config) => config.display().to_string(),
                None => "the plan's own configuration".to_owned(),
            },
            profile.date,
            profile.machine.processor,
            profile.machine.kernel
        )
    }
}

fn list_assumptions(parts: &DeploymentInputs<'_>) -> Vec<String> {
    vec![
        "Logins arrive independently (exponential gaps) and spread evenly over the servers; an EAP login stays with \
         its server."
            .to_owned(),
        format!(
            "The cores of a server share one queue (cores: {}). The shards of a real server have a queue each, so with \
             several cores the real delay is a little longer.",
            parts.cores.get()
        ),
        "A server has this processor to itself; accounting, other programs, and logs beyond those of the calibration \
         are not included."
            .to_owned(),
        format!(
            "The profile was measured on {} with {} on {}.",
            parts.profile.machine.processor, parts.profile.machine.kernel, parts.profile.date
        ),
    ]
}

fn read_tls(own: Option<(&Path, &Path)>, ca: &Path) -> Result<UserTlsConfig, PrepareError> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| PrepareError::with_file_path(path, e));
    let roots = TrustRoots::from_pem(&read(ca)?).map_err(|e| PrepareError::with_file_path(ca, e))?;
    let Some((certificate, key)) = own else {
        return Ok(UserTlsConfig { credentials: None, roots, name: None });
    };
    let credentials = TlsCredentials::from_pem(&read(certificate)?, &read(key)?).map_err(|e| {
        PrepareError::with_file_path(if e.concerns_private_key() { key } else { certificate }, e)
    })?;
    let names =
        CertificateInfo::of_der(credentials.leaf_certificate()).map(|said| said.names).unwrap_or_default();
    let name = names.iter().find(|name| name.contains('@')).or(names.first()).cloned();
    Ok(UserTlsConfig { credentials: Some(credentials), roots, name })
}
