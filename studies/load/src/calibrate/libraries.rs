//! Samples a process's CPU time by library with Linux's perf.

use std::collections::BTreeMap;
use usher_config::OrderedMap;
use usher_config::units::Percentage;
use usher_lab::{PerfSampler, ProfileSample, SampleTarget};
use usher_profile::LibraryCpuShares;

/// Runs a function while the process is sampled. `None` if perf is missing, has no permission, or got no samples.
///
/// # Errors
/// Those of the function.
pub(super) fn run_with_perf_sampling<T, E>(
    pid: u32,
    run: impl FnOnce() -> Result<T, E>,
) -> Result<Option<LibraryCpuShares>, E> {
    let sampler = PerfSampler::start(SampleTarget::Process(pid));
    run()?;
    Ok(sampler.and_then(|sampler| {
        let event = sampler.event_name();
        divide_samples_by_library(&sampler.stop(), event)
    }))
}

fn divide_samples_by_library(samples: &[ProfileSample], event: &str) -> Option<LibraryCpuShares> {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for sample in samples {
        *all.entry(sample.library).or_default() += 1;
    }
    let samples: u64 = all.values().sum();
    let mut shares = OrderedMap::default();
    let mut sorted: Vec<(&str, u64)> = all.into_iter().collect();
    sorted.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), *name));
    for (name, n) in sorted {
        let share = Percentage::parse(&format!("{:.4} %", n as f64 * 100.0 / samples as f64)).ok()?;
        shares.insert(name.to_owned(), share);
    }
    (samples > 0).then(|| LibraryCpuShares { by: event.to_owned(), samples, shares })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_divided_by_library() {
        let of = |library, n| std::iter::repeat_n(ProfileSample { at_ns: 0, library }, n);
        let all: Vec<ProfileSample> = of("libc", 50)
            .chain(of("kernel", 500))
            .chain(of("usher", 200))
            .chain(of("AWS-LC", 250))
            .collect();
        let library = divide_samples_by_library(&all, "cpu-clock").unwrap();
        let shares: Vec<(&str, f64)> =
            library.shares.iter().map(|(name, share)| (name, share.get())).collect();
        assert_eq!(shares, [("kernel", 0.5), ("AWS-LC", 0.25), ("usher", 0.2), ("libc", 0.05)]);
        assert_eq!((library.samples, library.by.as_str()), (1000, "cpu-clock"));
        assert_eq!(divide_samples_by_library(&[], "cycles"), None);
    }
}
