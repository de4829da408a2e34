//! From a plan's file to what is simulated: files are read, defaults taken, and what is taken for granted is said.

use crate::deployment::{Deployment, Parts, TlsFor};
use crate::file::{File, parse};
use crate::{Method, Settings};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use usher_config::disk::{Disk, text};
use usher_config::units::{Count, Share};
use usher_core::WallTime;
use usher_crypto::tls::{Credentials, Roots};
use usher_crypto::x509::Information;
use usher_profile::Scale;

/// Replications and logins in a step where nothing is said; with TLS, whose handshakes are computed, and without.
const REPLICATIONS: u32 = 4;
const LOGINS: u32 = 4_000;
const TLS_LOGINS: u32 = 600;
/// A first look has so many times fewer.
const QUICK: u32 = 4;

/// How thoroughly a plan is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// For a first look: fewer logins, two replications.
    pub quick: bool,
    /// How often everything is simulated, with other chance; `None`: 4 times.
    pub replications: Option<u32>,
    /// About how many logins one step has; `None`: 4000, with TLS 600.
    pub logins: Option<u32>,
    /// The seed of all chance.
    pub seed: u64,
    /// Steps that are simulated at once.
    pub jobs: usize,
}

/// What is simulated, and what is said of it.
#[derive(Debug)]
pub struct Prepared {
    /// How.
    pub settings: Settings,
    /// What is deployed.
    pub deployment: Deployment,
    /// What a login costs.
    pub profile: usher_profile::File,
    /// What was planned, in a sentence.
    pub about: String,
    /// What is taken for granted.
    pub assumptions: Vec<String>,
}

/// Why nothing can be simulated: a sentence, or the faults of a file with their lines.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PrepareError(String);

impl PrepareError {
    fn new(cause: impl std::fmt::Display) -> Self {
        Self(cause.to_string())
    }
    fn of(path: &Path, cause: impl std::fmt::Display) -> Self {
        Self(format!("{}: {cause}", path.display()))
    }
}

impl File {
    /// Reads a plan from the disk. The files that it names are taken from its folder.
    ///
    /// # Errors
    /// It cannot be read, or everything that is wrong with it, each fault with its line.
    pub fn read(path: &Path) -> Result<Self, PrepareError> {
        let text = text(path).map_err(PrepareError::new)?;
        let mut file = parse(&path.display().to_string(), &text, &Disk).map_err(PrepareError::new)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for named in [&mut file.profile, &mut file.config, &mut file.certificate, &mut file.key, &mut file.ca]
        {
            *named = named.take().map(|named: PathBuf| folder.join(named));
        }
        Ok(file)
    }

    /// Reads what the plan names, and puts the deployment together. `program` is the program's version, which the profile has to be of.
    ///
    /// # Errors
    /// What is missing or does not fit.
    pub fn prepare(&self, effort: &Effort, program: &str) -> Result<Prepared, PrepareError> {
        let demand = self.demand.rate().map_err(PrepareError)?;
        let Some(path) = &self.profile else {
            return Err(PrepareError::new(
                "what does a login cost? Give --profile FILE, which usher load --calibrate writes",
            ));
        };
        let names: Vec<&str> = usher_scenario::work::all().map(usher_core::WorkLabel::name).collect();
        let profile = text(path).map_err(PrepareError::new)?;
        let profile = usher_profile::parse(&path.display().to_string(), &profile, &Disk, &names)
            .map_err(PrepareError::new)?;
        if self.mix.is_empty() {
            return Err(PrepareError(format!(
                "by which methods do users log in? Give --mix METHOD=SHARE,...; the profile has {}",
                profile.methods.names().collect::<Vec<_>>().join(", ")
            )));
        }
        let methods: Vec<Method> =
            self.mix.iter().map(|(name, weight)| Method { name: name.to_owned(), weight: *weight }).collect();
        let config = match &self.config {
            Some(path) => {
                let text = text(path).map_err(PrepareError::new)?;
                let loaded = usher_aaa_config::parse(&path.display().to_string(), &text, Some(path), &Disk);
                Some(loaded.map_err(PrepareError::new)?)
            }
            None => None,
        };
        let has_tls = methods.iter().any(Method::has_tls);
        let tls = match (&self.certificate, &self.key, &self.ca) {
            (None, None, None) if config.is_none() || !has_tls => None,
            (certificate, key, Some(ca)) => Some(tls(certificate.as_deref().zip(key.as_deref()), ca)?),
            (.., None) => {
                return Err(PrepareError::new(
                    "the methods have TLS: give --ca, the authorities of the server's certificate, and for EAP-TLS --certificate and \
                     --key of one user",
                ));
            }
        };
        let scale = match (self.scale, &self.reference) {
            (Some(_), Some(_)) => {
                return Err(PrepareError::new("scale and reference say the same in two ways: leave one out"));
            }
            (Some(scale), None) if scale.is_finite() && scale > 0.0 => Scale::all(scale),
            (Some(_), None) => return Err(PrepareError::new("the scale must be above 0")),
            (None, Some(reference)) => Scale::to(&profile, reference),
            (None, None) => Scale::all(1.0),
        };
        let cores = self.cores.unwrap_or(Count::ONE);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let parts = Parts {
            config,
            profile: &profile,
            program,
            methods,
            users: self.demand.users.map_or(usize::MAX, |n| n.get() as usize),
            cores,
            scale,
            distance: self.store_distance.unwrap_or_default(),
            round_trip: self.round_trip.unwrap_or_default(),
            loss: self.loss.map_or(0.0, Share::get),
            tls,
            now: WallTime::from_unix_secs(unix.as_secs()),
        };
        let assumptions = assumptions(&parts);
        let deployment = Deployment::new(parts).map_err(|e| PrepareError::of(path, e))?;
        let usual = if has_tls { TLS_LOGINS } else { LOGINS };
        let target = self.target.unwrap_or_default();
        let settings = Settings {
            demand,
            share: target.share.get(),
            within: target.within.get().as_secs_f64(),
            replications: effort.replications.unwrap_or(if effort.quick { 2 } else { REPLICATIONS }),
            logins: effort.logins.unwrap_or(if effort.quick { usual / QUICK } else { usual }),
            seed: effort.seed,
            jobs: effort.jobs,
        };
        let about = self.about(&deployment, &profile);
        Ok(Prepared { settings, deployment, profile, about, assumptions })
    }

    fn about(&self, deployment: &Deployment, profile: &usher_profile::File) -> String {
        format!(
            "Logins by {} at a server of {}, on a processor that the profile of {} charges ({}, {}).",
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

fn assumptions(parts: &Parts<'_>) -> Vec<String> {
    vec![
        "Logins come independently of each other (exponential gaps) and are spread evenly over the servers; an EAP login stays with \
         its server."
            .to_owned(),
        format!(
            "The cores of a server share one queue ({} of them); the shards of a real one each have their own, so that with several \
             the real delay is a little more.",
            parts.cores.get()
        ),
        "A server has this processor for itself; accounting, logs beyond those of the calibration and other programs are not in it."
            .to_owned(),
        format!(
            "The profile was measured on {} with {} on {}.",
            parts.profile.machine.processor, parts.profile.machine.kernel, parts.profile.date
        ),
    ]
}

fn tls(own: Option<(&Path, &Path)>, ca: &Path) -> Result<TlsFor, PrepareError> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| PrepareError::of(path, e));
    let roots = Roots::from_pem(&read(ca)?).map_err(|e| PrepareError::of(ca, e))?;
    let Some((certificate, key)) = own else { return Ok(TlsFor { credentials: None, roots, name: None }) };
    let credentials = Credentials::from_pem(&read(certificate)?, &read(key)?)
        .map_err(|e| PrepareError::of(if e.is_of_key() { key } else { certificate }, e))?;
    let names = Information::of_der(credentials.leaf()).map(|said| said.names).unwrap_or_default();
    let name = names.iter().find(|name| name.contains('@')).or(names.first()).cloned();
    Ok(TlsFor { credentials: Some(credentials), roots, name })
}
