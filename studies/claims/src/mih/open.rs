//! What the document leaves open, read from the studies that look into it.

use crate::common::{Found, count};
use crate::data::Claim;
use crate::judge::{Finding, ROUNDING, Verdict, digits};
use crate::measure::{Side, Values, mean, minus, side};
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

/// From more choices than these that are not told apart, the others are listed, where they are fewer.
const MANY: usize = 3;

/// What a study says at one place of its other axes.
enum Answer {
    /// This choice, or one of these, which are not told apart; all others are surely worse or beyond the limit.
    Best(String),
    /// Nothing is told apart.
    Undecided,
    /// Nothing is within the limit, or there is nothing to choose from.
    Nothing,
}

/// What a question comes to over all places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Answered,
    Undecided,
    None,
}

impl Question {
    /// The best of the choices at one place: that with the smallest metric, and those that are not surely worse. A tie is no
    /// choice.
    fn best(&self, choices: &[(String, Measured)]) -> Answer {
        let finite = |values: &&Values| mean(values).mean.is_finite();
        let measured =
            choices.iter().filter_map(|(name, m)| Some((name, m, m.get(self.metric).filter(finite)?)));
        let measured: Vec<_> = measured.collect();
        let within = |m: &Measured| match self.limit {
            Some((metric, most)) => m.get(metric).is_some_and(|v| mean(v).mean <= most + ROUNDING),
            None => true,
        };
        let allowed: Vec<_> = measured.iter().filter(|(_, m, _)| within(m)).collect();
        let least = allowed.iter().min_by(|a, b| mean(a.2).mean.total_cmp(&mean(b.2).mean));
        let Some((.., least)) = least.filter(|_| measured.len() > 1) else { return Answer::Nothing };
        let worse = |values: &Values| side(&mean(&minus(values, least))) == Side::Above;
        let first = |name: &str| allowed.iter().any(|(known, _, values)| *known == name && !worse(values));
        let (best, rest): (Vec<&str>, Vec<&str>) =
            measured.iter().map(|(name, ..)| name.as_str()).partition(|name| first(name));
        if rest.is_empty() {
            Answer::Undecided
        } else if best.len() > MANY && rest.len() < best.len() {
            Answer::Best(format!("all but {}", rest.join(" or ")))
        } else {
            Answer::Best(best.join(" or "))
        }
    }

    /// Whether there is an answer at any place, or else whether choices are there that are not told apart; and what it is.
    fn answer(&self, view: &View<'_>) -> (Outcome, String) {
        let places = view.choices(self.study, self.choose);
        let mut best: Vec<(String, usize)> = Vec::new();
        let mut undecided = 0;
        for (_, choices) in &places {
            let name = match self.best(choices) {
                Answer::Best(name) => name,
                Answer::Undecided => {
                    undecided += 1;
                    continue;
                }
                Answer::Nothing => continue,
            };
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
        let open = match undecided {
            0 => String::new(),
            n => format!(", undecided at {}", count(n, places.len(), "places")),
        };
        if answered == 0 {
            let outcome = if undecided > 0 { Outcome::Undecided } else { Outcome::None };
            return (outcome, format!("{} recommends nothing {what}{open}", self.study));
        }
        let list: Vec<String> = best.iter().map(|(name, times)| format!("{name} (at {times})")).collect();
        let text = format!(
            "{} recommends something {what} at {}{open}, as {}: {}",
            self.study,
            count(answered, places.len(), "places"),
            self.choose.join(" and "),
            list.join("; ")
        );
        (Outcome::Answered, text)
    }
}

/// Done where every study that looks into it was run and each of its questions has an answer at one place at least.
pub(super) fn open(claim: &Claim, view: &View<'_>) -> Found {
    let (run, missing): (Vec<&Question>, Vec<&Question>) = QUESTIONS.iter().partition(|q| view.has(q.study));
    if run.is_empty() {
        return Err(view.missing(&claim.studies.join(" ")));
    }
    run.iter().try_for_each(|q| view.at_defaults(q.study))?;
    let answers: Vec<(Outcome, String)> = run.iter().map(|q| q.answer(view)).collect();
    let with = |wanted: Outcome| answers.iter().filter(|(outcome, _)| *outcome == wanted).count();
    let (answered, undecided) = (with(Outcome::Answered), with(Outcome::Undecided));
    let mut said: Vec<String> = answers.into_iter().map(|(_, text)| text).collect();
    let mut missing: Vec<&str> = missing.iter().map(|q| q.study).collect();
    missing.dedup();
    said.extend(missing.iter().map(|study| format!("{study} was not run: usher study run {study}")));
    let (ours, verdict) = match answered {
        n if n == QUESTIONS.len() => ("done".to_owned(), Verdict::Reproduced),
        0 if undecided > 0 => ("nothing told apart".to_owned(), Verdict::NotComparable),
        0 => ("nothing answered".to_owned(), Verdict::Differs),
        n => (format!("{n} of {} answered", QUESTIONS.len()), Verdict::Partly),
    };
    Ok(Finding::words(ours, verdict, format!("{}.", said.join(". "))))
}
