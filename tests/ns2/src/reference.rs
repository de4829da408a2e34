//! Recorded runs of ns-2 and ns-3. The same script, command line and seed give the same mean again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// If this environment variable is set, the tests do all runs of ns-2 and ns-3, and write the recordings and the
/// pages' tables.
pub const WRITE: &str = "USHER_WRITE_NS2";

/// The source of the reference simulator's (ns-2's or ns-3's) runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReferenceRuns {
    /// Does all runs.
    Live,
    /// Does all runs and records their means in `recorded/NAME.csv`.
    Record,
    /// Reads recorded means and repeats some runs, which must match.
    Replay,
}

impl ReferenceRuns {
    /// Returns [`Self::Record`] if [`WRITE`] is set.
    #[must_use]
    pub fn from_environment() -> Self {
        if std::env::var_os(WRITE).is_some() { Self::Record } else { Self::Replay }
    }
}

/// The largest relative difference of a repeated run. The libm of another processor differs in the last digit of
/// logarithms.
const SAME: f64 = 1e-9;

/// Mean delays of the reference simulator's runs in seconds, by case and number.
#[derive(Debug)]
pub struct ReferenceMeans {
    runs: ReferenceRuns,
    path: PathBuf,
    means: BTreeMap<String, BTreeMap<u64, f64>>,
}

impl ReferenceMeans {
    /// Opens `recorded/NAME.csv`, and reads it for [`ReferenceRuns::Replay`].
    ///
    /// # Errors
    /// An unreadable file, or a malformed line.
    pub fn open(name: &str, runs: ReferenceRuns) -> Result<Self, String> {
        let path = crate::repository_root().join("tests/ns2/recorded").join(format!("{name}.csv"));
        let mut kept = Self { runs, path, means: BTreeMap::new() };
        if runs != ReferenceRuns::Replay {
            return Ok(kept);
        }
        let place = kept.path.display().to_string();
        let text = std::fs::read_to_string(&kept.path).map_err(|e| format!("{place}: {e}"))?;
        for (i, line) in text.lines().enumerate().skip(1) {
            let fault = || format!("{place}:{}: '{line}' is no run", i + 1);
            let mut fields = line.rsplitn(3, ',');
            let mean = fields.next().and_then(|f| f.parse().ok()).ok_or_else(fault)?;
            let number = fields.next().and_then(|f| f.parse().ok()).ok_or_else(fault)?;
            kept.add_mean(fields.next().ok_or_else(fault)?, number, mean);
        }
        Ok(kept)
    }

    /// Returns the mean of a run. A replay calls `run` only if `is_repeated`.
    ///
    /// # Errors
    /// An error of `run`. In a replay, also a missing mean or a repeated run with another mean.
    pub fn run_mean(
        &mut self,
        case: &str,
        number: u64,
        is_repeated: bool,
        run: impl FnOnce() -> Result<f64, String>,
    ) -> Result<f64, String> {
        if self.runs != ReferenceRuns::Replay {
            let mean = run()?;
            self.add_mean(case, number, mean);
            return Ok(mean);
        }
        let fault =
            |what: &str| format!("{}: {case}, {number}: {what}; {WRITE}=1 writes all", self.path.display());
        let kept = self.means.get(case).and_then(|runs| runs.get(&number)).copied();
        let kept = kept.ok_or_else(|| fault("no such run"))?;
        if is_repeated {
            let mean = run()?;
            if (mean / kept - 1.0).abs() > SAME {
                return Err(fault(&format!("recorded {kept} s, got {mean} s")));
            }
        }
        Ok(kept)
    }

    fn add_mean(&mut self, case: &str, number: u64, mean: f64) {
        self.means.entry(case.to_owned()).or_default().insert(number, mean);
    }

    /// Writes the recording to its file.
    ///
    /// # Errors
    /// An unwritable file.
    pub fn write_recording(self) -> Result<(), String> {
        if self.runs != ReferenceRuns::Record {
            return Ok(());
        }
        let mut text = "case,number,mean_s\n".to_owned();
        for (case, runs) in &self.means {
            for (number, mean) in runs {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{case},{number},{mean}");
            }
        }
        std::fs::write(&self.path, text).map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded_means(runs: ReferenceRuns) -> ReferenceMeans {
        let mut kept = ReferenceMeans { runs, path: "kept.csv".into(), means: BTreeMap::new() };
        kept.add_mean("loss 0", 1, 0.25);
        kept
    }

    #[test]
    fn a_repeated_run_must_give_the_recorded_mean() {
        let mut replay = recorded_means(ReferenceRuns::Replay);
        let unexpected = || -> Result<f64, String> { panic!("it is read") };
        assert_eq!(replay.run_mean("loss 0", 1, false, unexpected), Ok(0.25));
        assert_eq!(replay.run_mean("loss 0", 1, true, || Ok(0.25)), Ok(0.25));
        assert_eq!(replay.run_mean("loss 0", 1, true, || Ok(0.250_000_000_000_1)), Ok(0.25));
        assert!(replay.run_mean("loss 0", 1, true, || Ok(0.250_000_001)).is_err());
        let said = replay.run_mean("loss 0", 1, true, || Ok(0.5)).unwrap_err();
        assert!(said.contains("recorded 0.25 s, got 0.5 s"), "{said}");
        let said = replay.run_mean("loss 0", 2, false, unexpected).unwrap_err();
        assert!(said.contains("no such run"), "{said}");
    }

    #[test]
    fn live_runs_ignore_recorded_means() {
        for runs in [ReferenceRuns::Live, ReferenceRuns::Record] {
            assert_eq!(recorded_means(runs).run_mean("loss 0", 1, false, || Ok(0.5)), Ok(0.5));
        }
    }
}
