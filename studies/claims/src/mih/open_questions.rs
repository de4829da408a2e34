//! Questions that the document leaves open, answered by further studies.

use crate::common::{FindingResult, format_count_of_total};
use crate::data::Claim;
use crate::judge::{ClaimFinding, ROUNDING, Verdict, format_digits};
use crate::measure::{IntervalSign, MetricValues, estimate_mean, interval_sign, subtract_values};
use crate::results::{ValuesByMetric, VariantResults};

/// A question: among the choices within the limit, the one with the smallest metric.
pub(crate) struct OpenQuestion {
    pub(crate) study: &'static str,
    /// The axes of the choice.
    pub(crate) choose: &'static [&'static str],
    pub(crate) metric: &'static str,
    /// Another metric and its maximum.
    pub(crate) limit: Option<(&'static str, f64)>,
}

/// The questions of the studies.
pub(crate) const QUESTIONS: [OpenQuestion; 6] = [
    OpenQuestion {
        study: "mih-timers",
        choose: &["timer", "limit"],
        metric: "delay.mean",
        limit: Some(("failures", 0.05)),
    },
    OpenQuestion {
        study: "mih-response",
        choose: &["unanswered", "timer"],
        metric: "delay.mean",
        limit: None,
    },
    OpenQuestion { study: "mih-response", choose: &["unanswered", "timer"], metric: "failures", limit: None },
    OpenQuestion {
        study: "mih-lifetime",
        choose: &["lifetime"],
        metric: "mih.memory",
        limit: Some(("mih.duplicates", 0.001)),
    },
    OpenQuestion {
        study: "mih-services",
        choose: &["timer", "limit"],
        metric: "delay.mean",
        limit: Some(("failures", 0.05)),
    },
    OpenQuestion { study: "mih-services", choose: &["response"], metric: "failures", limit: None },
];

/// If more choices than this are indistinguishable, and the others are fewer, the answer lists the others.
const MANY: usize = 3;

/// The answer of a study at one place of its other axes.
enum PointRecommendation {
    /// This choice, or one of these indistinguishable ones; all others are surely worse or beyond the limit.
    Best(String),
    /// All choices are indistinguishable.
    Undecided,
    /// No choice is within the limit, or there are no choices.
    NoCandidate,
}

/// The outcome of a question over all places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QuestionOutcome {
    Answered,
    Undecided,
    None,
}

impl OpenQuestion {
    /// Returns the best of the choices at one place: the smallest metric, and all that are not surely worse. A tie of
    /// all is undecided.
    fn recommend_point_choice(&self, choices: &[(String, ValuesByMetric)]) -> PointRecommendation {
        let finite = |values: &&MetricValues| estimate_mean(values).mean.is_finite();
        let measured =
            choices.iter().filter_map(|(name, m)| Some((name, m, m.get(self.metric).filter(finite)?)));
        let measured: Vec<_> = measured.collect();
        let within = |m: &ValuesByMetric| match self.limit {
            Some((metric, most)) => m.get(metric).is_some_and(|v| estimate_mean(v).mean <= most + ROUNDING),
            None => true,
        };
        let allowed: Vec<_> = measured.iter().filter(|(_, m, _)| within(m)).collect();
        let least = allowed.iter().min_by(|a, b| estimate_mean(a.2).mean.total_cmp(&estimate_mean(b.2).mean));
        let Some((.., least)) = least.filter(|_| measured.len() > 1) else {
            return PointRecommendation::NoCandidate;
        };
        let worse = |values: &MetricValues| {
            interval_sign(&estimate_mean(&subtract_values(values, least))) == IntervalSign::Above
        };
        let first = |name: &str| allowed.iter().any(|(known, _, values)| *known == name && !worse(values));
        let (best, rest): (Vec<&str>, Vec<&str>) =
            measured.iter().map(|(name, ..)| name.as_str()).partition(|name| first(name));
        if rest.is_empty() {
            PointRecommendation::Undecided
        } else if best.len() > MANY && rest.len() < best.len() {
            PointRecommendation::Best(format!("all but {}", rest.join(" or ")))
        } else {
            PointRecommendation::Best(best.join(" or "))
        }
    }

    /// Returns the outcome of a question, with its text: answered at some place, or else undecided at some.
    fn answer_open_question(&self, view: &VariantResults<'_>) -> (QuestionOutcome, String) {
        let places = view.measured_choices(self.study, self.choose);
        let mut best: Vec<(String, usize)> = Vec::new();
        let mut undecided = 0;
        for (_, choices) in &places {
            let name = match self.recommend_point_choice(choices) {
                PointRecommendation::Best(name) => name,
                PointRecommendation::Undecided => {
                    undecided += 1;
                    continue;
                }
                PointRecommendation::NoCandidate => continue,
            };
            match best.iter_mut().find(|(known, _)| *known == name) {
                Some((_, times)) => *times += 1,
                None => best.push((name, 1)),
            }
        }
        best.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let answered: usize = best.iter().map(|(_, times)| times).sum();
        let limit = self.limit.map_or_else(String::new, |(metric, most)| {
            format!(" with {metric} up to {}", format_digits(most))
        });
        let what = format!("for the smallest {}{limit}", self.metric);
        let open = match undecided {
            0 => String::new(),
            n => format!(", undecided at {}", format_count_of_total(n, places.len(), "points")),
        };
        if answered == 0 {
            let outcome = if undecided > 0 { QuestionOutcome::Undecided } else { QuestionOutcome::None };
            return (outcome, format!("{} has no recommendation {what}{open}", self.study));
        }
        let list: Vec<String> = best.iter().map(|(name, times)| format!("{name} (at {times})")).collect();
        let text = format!(
            "{} has a recommendation {what} at {}{open}, by {}: {}",
            self.study,
            format_count_of_total(answered, places.len(), "points"),
            self.choose.join(" and "),
            list.join("; ")
        );
        (QuestionOutcome::Answered, text)
    }
}

/// Reproduced if all studies of it were run and each question has an answer at one place at least.
pub(super) fn judge_open_questions(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (run, missing): (Vec<&OpenQuestion>, Vec<&OpenQuestion>) =
        QUESTIONS.iter().partition(|q| view.has_study(q.study));
    if run.is_empty() {
        return Err(view.missing_study(&claim.studies.join(" ")));
    }
    run.iter().try_for_each(|q| view.require_default_settings(q.study))?;
    let answers: Vec<(QuestionOutcome, String)> = run.iter().map(|q| q.answer_open_question(view)).collect();
    let with = |wanted: QuestionOutcome| answers.iter().filter(|(outcome, _)| *outcome == wanted).count();
    let (answered, undecided) = (with(QuestionOutcome::Answered), with(QuestionOutcome::Undecided));
    let mut said: Vec<String> = answers.into_iter().map(|(_, text)| text).collect();
    let mut missing: Vec<&str> = missing.iter().map(|q| q.study).collect();
    missing.dedup();
    said.extend(missing.iter().map(|study| format!("{study} was not run: usher study run {study}")));
    let (ours, verdict) = match answered {
        n if n == QUESTIONS.len() => ("done".to_owned(), Verdict::Reproduced),
        0 if undecided > 0 => ("no choice is significantly better".to_owned(), Verdict::NotComparable),
        0 => ("no question answered".to_owned(), Verdict::Differs),
        n => (format!("{n} of {} answered", QUESTIONS.len()), Verdict::Partly),
    };
    Ok(ClaimFinding::from_verdict_text(ours, verdict, format!("{}.", said.join(". "))))
}
