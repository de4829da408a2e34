//! `usher study list | show | new | check`

use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use usher_scenario::{LoadError, PlanOverrides, Study, StudyMode, StudyPlan, TEMPLATES, founding};

const MODES: [StudyMode; 3] = [StudyMode::Quick, StudyMode::Default, StudyMode::Full];

/// Lists the built-in studies.
pub(crate) fn list_studies(output: &ConsoleOutput) -> Result<(), CommandFailure> {
    let open = |f: &founding::FoundingStudy| Study::open(f.name).map_err(CommandFailure::runtime_error);
    let studies = founding::founding_studies().iter().map(open).collect::<Result<Vec<_>, _>>()?;
    if output.json {
        let about = |s: &Study| {
            let file = s.file();
            json!({ "name": s.name(), "title": file.title, "question": file.question, "groups": file.groups })
        };
        return output.print_json(&Value::Array(studies.iter().map(about).collect()));
    }
    let mut rows = vec![["NAME", "GROUPS", "TITLE"].map(str::to_owned).to_vec()];
    rows.extend(
        studies.iter().map(|s| vec![s.name().to_owned(), s.file().groups.join(", "), s.file().title.clone()]),
    );
    output.print_text(&format_columns(&rows))
}

/// Shows one study.
pub(crate) fn show_study(output: &ConsoleOutput, name: &str, toml: bool) -> Result<(), CommandFailure> {
    let study = Study::open(name).map_err(CommandFailure::usage_error)?;
    if toml {
        return output.print_text(study.file_text());
    }
    let plans = MODES.map(|mode| study.build_plan(mode, &PlanOverrides::default()));
    let [quick, plan, full] = plans;
    let (quick, plan, full) = (
        quick.map_err(CommandFailure::usage_error)?,
        plan.map_err(CommandFailure::usage_error)?,
        full.map_err(CommandFailure::usage_error)?,
    );
    if output.json {
        return output.print_json(&as_json(&study, [&quick, &plan, &full]));
    }
    output.print_text(&as_text(&study, [&quick, &plan, &full]))
}

fn as_json(study: &Study, plans: [&StudyPlan; 3]) -> Value {
    let file = study.file();
    let axes = plans[1].axes.iter().map(|a| {
        let values: Vec<&str> = a.values.iter().map(|v| v.text.as_str()).collect();
        json!({ "name": a.name, "title": a.label, "unit": a.unit, "values": values })
    });
    let figures = file
        .figures
        .iter()
        .map(|f| json!({ "name": f.name, "title": f.title, "x": f.x, "y": f.y.0, "series": f.series }));
    let modes = plans.map(|p| {
        let (fewest, most) = p.run_count_range();
        json!({ "mode": p.mode.name(), "points": p.points.len(), "replications": [fewest, most] })
    });
    json!({
        "name": study.name(), "title": file.title, "question": file.question, "description": file.description,
        "groups": file.groups, "seed": file.run.seed, "axes": axes.collect::<Vec<_>>(),
        "figures": figures.collect::<Vec<_>>(), "modes": modes,
    })
}

fn as_text(study: &Study, plans: [&StudyPlan; 3]) -> String {
    let file = study.file();
    let mut text = format!("{}: {}\n\n{}\n", study.name(), file.title, file.question);
    if !file.description.is_empty() {
        text.push_str(&format!("\n{}\n", file.description.trim_end()));
    }
    let mut section = |title: &str, rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            text.push_str(&format!("\n{title}\n"));
            format_columns(&rows).lines().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
    };
    let axis = |a: &usher_scenario::PlannedAxis| {
        let values: Vec<&str> = a.values.iter().map(|v| v.text.as_str()).collect();
        vec![a.name.clone(), a.label.clone(), values.join("; ")]
    };
    section("Axes", plans[1].axes.iter().map(axis).collect());
    let figure = |f: &usher_scenario::model::StudyFigure| {
        let by = if f.series.is_empty() { String::new() } else { format!(", by {}", f.series.join(", ")) };
        vec![f.name.clone(), format!("{} over {}{by}", f.y.0.join(", "), f.x), f.title.clone()]
    };
    section("Figures", file.figures.iter().map(figure).collect());
    let mode = |p: &&StudyPlan| {
        let (fewest, most) = p.run_count_range();
        let runs = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
        let flag = if p.mode == StudyMode::Default { String::new() } else { format!("--{}", p.mode.name()) };
        vec![p.mode.name().to_owned(), format!("{} points, {runs} replications", p.points.len()), flag]
    };
    section("Modes", plans.iter().map(mode).collect());
    let run = &file.run;
    let rule = &run.replications;
    section(
        "Defaults",
        vec![
            vec!["duration".to_owned(), format!("{} s", run.duration.get().as_secs_f64())],
            vec!["warm-up".to_owned(), format!("{} s", run.warmup.get().as_secs_f64())],
            vec!["seed".to_owned(), run.seed.to_string()],
            vec![
                "replications".to_owned(),
                format!(
                    "{} to {}, until {} is within {} % (confidence {} %)",
                    rule.min.get(),
                    rule.max.get(),
                    rule.metric,
                    usher_observe::row::format_number(rule.precision.get() * 100.0),
                    usher_observe::row::format_number(rule.confidence.get() * 100.0)
                ),
            ],
        ],
    );
    text.push_str(&format!("\nRun it: usher study run {} --quick\n", study.name()));
    text
}

/// Writes the template.
pub(crate) fn new(output: &ConsoleOutput, file: &Path, kind: &str) -> Result<(), CommandFailure> {
    let template = TEMPLATES.iter().find(|template| template.kind == kind);
    let text = template.map_or("", |template| template.text);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .and_then(|mut f| f.write_all(text.as_bytes()));
    let name = file.display();
    match written {
        Ok(()) if output.json => output.print_json(&json!({ "file": name.to_string(), "kind": kind })),
        Ok(()) => output.print_text(&format!(
            "{name} is written. Edit it, then run:\n  usher study check {name}\n  usher study run {name} \
             --quick\n"
        )),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(CommandFailure::usage_error(format!(
            "{name} already exists: choose another name, or remove it first"
        ))),
        Err(e) => Err(CommandFailure::runtime_error(format!("cannot write {name}: {e}"))),
    }
}

/// Checks studies.
pub(crate) fn check_studies(output: &ConsoleOutput, files: &[String]) -> Result<(), CommandFailure> {
    let mut text = String::new();
    let mut values = Vec::new();
    let mut faulty = 0;
    for name in files {
        let checked = Study::open(name).and_then(|study| {
            study.check_plans()?;
            let plans = MODES.map(|mode| study.build_plan(mode, &PlanOverrides::default()));
            let mut warnings = study.warnings().to_vec();
            for warning in plans.iter().flatten().flat_map(|plan| &plan.warnings) {
                if !warnings.contains(warning) {
                    warnings.push(warning.clone());
                }
            }
            warnings.iter().for_each(|warning| output.print_note(&format!("warning: {warning}")));
            Ok(plans.map(|plan| plan.map_or(0, |p| p.points.len())))
        });
        match checked {
            Ok([quick, points, full]) => {
                text.push_str(&format!("{name}: valid; {points} points ({quick} quick, {full} full)\n"));
                let modes = json!({ "quick": quick, "default": points, "full": full });
                values.push(json!({ "study": name, "ok": true, "points": modes, "faults": [] }));
            }
            Err(error) => {
                faulty += 1;
                if !output.json {
                    output.print_note(&error.to_string());
                }
                values.push(json!({ "study": name, "ok": false, "faults": load_error_json(&error) }));
            }
        }
    }
    if output.json {
        output.print_json(&Value::Array(values))?;
    } else {
        output.print_text(&text)?;
    }
    if faulty > 0 {
        return Err(CommandFailure::usage_error(format!("{faulty} of {} studies are faulty", files.len())));
    }
    Ok(())
}

fn load_error_json(error: &LoadError) -> Vec<Value> {
    match error {
        LoadError::Faults(faults) => faults
            .faults
            .iter()
            .map(|f| json!({ "file": f.file, "line": f.line, "column": f.column, "message": f.message }))
            .collect(),
        other => vec![json!({ "message": other.to_string() })],
    }
}
