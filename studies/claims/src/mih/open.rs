//! What the document leaves open, read from the studies that look into it.

use crate::common::{Found, count};
use crate::data::Claim;
use crate::judge::{Finding, ROUNDING, Verdict, digits};
use crate::measure::mean;
use crate::results::{Measured, View};

/// What a study recommends: of the choices within the limit, the one with the smallest metric.
pub(crate) struct Question {
    pub(crate) study: &'static str,
    /// The axes that are chosen on.
    pub(crate) choose: &'static [&'static str],
    pub(crate) metric: &'static str,
    /// Another metric and what it may be at most.
    pub(crate) limit: Option<(&'static str, f64)>,
}

/// The recommendations of the studies.
pub(crate) const QUESTIONS: [Question; 6] = [
    Question {
        study: "mih-timers",
        choose: &["timer", "limit"],
        metric: "delay.mean",
        limit: Some(("failures", 0.05)),
    },
    Question { study: "mih-response", choose: &["unanswered", "timer"], metric: "delay.mean", limit: None },
    Question { study: "mih-response", choose: &["unanswered", "timer"], metric: "failures", limit: None },
    Question {
        study: "mih-lifetime",
        choose: &["lifetime"],
        metric: "mih.memory",
        limit: Some(("mih.duplicates", 0.001)),
    },
    Question {
        study: "mih-services",
        choose: &["timer", "limit"],
        metric: "delay.mean",
        limit: Some(("failures", 0.05)),
    },
    Question { study: "mih-services", choose: &["response"], metric: "failures", limit: None },
];

impl Question {
    /// The best of the choices at one place; `None` where none is within the limit, or there is nothing to choose from.
    fn best(&self, choices: &[(String, Measured)]) -> Option<String> {
        let of = |measured: &Measured, metric: &str| measured.get(metric).map(|values| mean(values).mean);
        let measured = choices.iter().filter_map(|(name, m)| Some((name, m, of(m, self.metric)?)));
        let measured: Vec<_> = measured.filter(|(.., metric)| metric.is_finite()).collect();
        let within = |m: &Measured| match self.limit {
            Some((metric, most)) => of(m, metric).is_some_and(|value| value <= most + ROUNDING),
            None => true,
        };
        let best = measured.iter().filter(|(_, m, _)| within(m)).min_by(|a, b| a.2.total_cmp(&b.2))?;
        (measured.len() > 1).then(|| best.0.clone())
    }

    /// Whether there is an answer at any place, and what it is.
    fn answer(&self, view: &View<'_>) -> (bool, String) {
        let places = view.choices(self.study, self.choose);
        let mut best: Vec<(String, usize)> = Vec::new();
        for name in places.iter().filter_map(|(_, choices)| self.best(choices)) {
            match best.iter_mut().find(|(known, _)| *known == name) {
                Some((_, times)) => *times += 1,
                None => best.push((name, 1)),
            }
        }
        best.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let answered: usize = best.iter().map(|(_, times)| times).sum();
        let limit = self
            .limit
            .map_or_else(String::new, |(metric, most)| format!(" with {metric} up to {}", digits(most)));
        let what = format!("for the least {}{limit}", self.metric);
        if answered == 0 {
            return (false, format!("{} recommends nothing {what}", self.study));
        }
        let list: Vec<String> = best.iter().map(|(name, times)| format!("{name} (at {times})")).collect();
        let text = format!(
            "{} recommends something {what} at {}, as {}: {}",
            self.study,
            count(answered, places.len(), "places"),
            self.choose.join(" and "),
            list.join("; ")
        );
        (true, text)
    }
}

/// Done where every study that looks into it was run and each of its questions has an answer at one place at least. A study that
/// is not there yet leaves it open.
pub(super) fn open(claim: &Claim, view: &View<'_>) -> Found {
    let (run, missing): (Vec<&Question>, Vec<&Question>) = QUESTIONS.iter().partition(|q| view.has(q.study));
    if run.is_empty() {
        return Err(view.missing(&claim.studies.join(" ")));
    }
    run.iter().try_for_each(|q| view.at_defaults(q.study))?;
    let answers: Vec<(bool, String)> = run.iter().map(|q| q.answer(view)).collect();
    let answered = answers.iter().filter(|(answered, _)| *answered).count();
    let mut said: Vec<String> = answers.into_iter().map(|(_, text)| text).collect();
    let mut missing: Vec<&str> = missing.iter().map(|q| q.study).collect();
    missing.dedup();
    said.extend(missing.iter().map(|study| format!("{study} was not run: usher study run {study}")));
    let asked = |study: &&String| QUESTIONS.iter().any(|q| q.study == **study);
    let still_open: Vec<&String> = claim.studies.iter().filter(|study| !asked(study)).collect();
    said.extend(still_open.iter().map(|study| format!("{study} is not there yet")));
    let (ours, verdict) = match answered {
        n if n == QUESTIONS.len() && !still_open.is_empty() => ("done in part".to_owned(), Verdict::Partly),
        n if n == QUESTIONS.len() => ("done".to_owned(), Verdict::Reproduced),
        0 => ("nothing answered".to_owned(), Verdict::Differs),
        n => (format!("{n} of {} answered", QUESTIONS.len()), Verdict::Partly),
    };
    Ok(Finding::words(ours, verdict, format!("{}.", said.join(". "))))
}
