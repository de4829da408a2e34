//! The effects of a reauthentication on applications.

use super::{FindingResult, of_parts, verdict_if};
use crate::data::Claim;
use crate::judge::{FindingError, Verdict, format_digits, format_percent};
use crate::measure::{MetricValues, estimate_mean, subtract_values};
use crate::results::{ValuesByMetric, VariantResults};
use std::collections::BTreeMap;

const STUDY: &str = "ike-applications";
/// The longest acceptable wait for a page: Nielsen, "Usability Engineering", 1993, 5.5.
const PAGE_S: f64 = 10.0;
/// The share of lost or late packets that a voice stream tolerates unnoticed (ITU-T G.113, for G.711 with concealment).
const VOICE: f64 = 0.01;
/// The additional loss that does not affect a voice stream during reauthentications.
const NOTHING: f64 = 0.001;

/// The measurements by application, treatment of the old IKE_SA, method and distance.
struct ApplicationResults(BTreeMap<[String; 4], ValuesByMetric>);

impl ApplicationResults {
    fn from_view(view: &VariantResults<'_>) -> Result<Self, FindingError> {
        if !view.has_study(STUDY) {
            return Err(view.missing_study(STUDY));
        }
        view.require_default_settings(STUDY)?;
        let mut points = BTreeMap::new();
        for (at, choices) in view.measured_choices(STUDY, &["application"]) {
            for (application, measured) in choices {
                let axis = |name: &str| at.get(name).unwrap_or_default().to_owned();
                points.insert([application, axis("old"), axis("way"), axis("distance")], measured);
            }
        }
        Ok(Self(points))
    }
    /// Returns all methods and distances in the results.
    fn method_distance_pairs(&self) -> Vec<(&str, &str)> {
        let mut all: Vec<(&str, &str)> =
            self.0.keys().map(|[_, _, way, distance]| (&**way, &**distance)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
    fn get(
        &self,
        application: &str,
        old: &str,
        (way, distance): (&str, &str),
        metric: &str,
    ) -> Result<&MetricValues, FindingError> {
        let key = [application, old, way, distance].map(str::to_owned);
        let measured = self.0.get(&key).and_then(|measured| measured.get(metric));
        measured.ok_or_else(|| {
            FindingError::NotRun(format!(
                "{STUDY} has no {metric} of {application} with {way} at {distance}, with the old IKE_SA \
                 deleted {old}: run the complete study (usher study run {STUDY})."
            ))
        })
    }
    fn mean_value(
        &self,
        application: &str,
        old: &str,
        place: (&str, &str),
        metric: &str,
    ) -> Result<f64, FindingError> {
        Ok(estimate_mean(self.get(application, old, place, metric)?).mean)
    }
}

pub(super) fn judge_applications(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let points = ApplicationResults::from_view(view)?;
    let places = points.method_distance_pairs();
    let worst = |application: &str, old: &str, metric: &str| -> Result<f64, FindingError> {
        let of = |place: &(&str, &str)| points.mean_value(application, old, *place, metric);
        Ok(places.iter().map(of).collect::<Result<Vec<_>, _>>()?.into_iter().fold(0.0, f64::max))
    };
    // The longest reauthentication of each kind decides.
    let files = worst("file", "before", "failures.application")?;
    let pages =
        [worst("web", "before", "failures.application")?, worst("web", "before", "delay.max.application")?];
    let voice = worst("voice", "before", "failures.application")?;
    let never = worst("voice", "never", "failures.application")?;
    let mut more = 0.0_f64;
    for place in &places {
        let metric = "failures.application";
        let lost = subtract_values(
            points.get("voice", "afterwards", *place, metric)?,
            points.get("voice", "never", *place, metric)?,
        );
        more = more.max(estimate_mean(&lost).mean);
    }
    let interrupted = [
        worst("voice", "before", "ike.interruption.ike")?,
        worst("voice", "afterwards", "ike.interruption.ike")?,
    ];
    let parts = [
        ("files are transferred".to_owned(), verdict_if(files == 0.0)),
        (
            format!("pages load within {} s", format_digits(PAGE_S)),
            verdict_if(pages[0] == 0.0 && pages[1] <= PAGE_S),
        ),
        (format!("voice loses more than {}", format_percent(VOICE)), verdict_if(voice > VOICE)),
        ("no interruption if the new SAs come first".to_owned(), verdict_if(interrupted[1] == 0.0)),
        (
            format!(
                "voice then loses at most {} more than without reauthentication",
                format_percent(NOTHING)
            ),
            verdict_if(more <= NOTHING),
        ),
    ];
    let file = |old: &str| worst("file", old, "delay.mean.application");
    let said = format!(
        "Over all methods and distances, an interruption takes at most {} s, and {} s if the new SAs come \
         first. With deletion first, the slowest page takes {} s. A file of 10 MB takes at most {} s on \
         average, against {} s without reauthentication. At most {} of voice is lost or late, against {} \
         without, and at most {} more than that if the new SAs come first.",
        format_digits(interrupted[0]),
        format_digits(interrupted[1]),
        format_digits(pages[1]),
        format_digits(file("before")?),
        format_digits(file("never")?),
        format_percent(voice),
        format_percent(never),
        format_percent(more.max(0.0)),
    );
    let verdicts = parts.iter().filter(|(_, verdict)| *verdict == Verdict::Reproduced).count();
    Ok(of_parts(format!("{verdicts} of {} parts", parts.len()), &said, &parts))
}
