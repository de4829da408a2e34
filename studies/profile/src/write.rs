//! Writes a profile as the text of its file.

use crate::{CpuCost, LoginTraffic, ServerProfile};
use std::fmt::Write;
use usher_config::units::{EventRate, TimeSpan};

/// Returns the text of a profile. [`parse`](crate::parse_profile) reads the same profile from it, to the nanosecond.
#[must_use]
pub fn format_profile(file: &ServerProfile) -> String {
    let mut text = String::from(
        "# The costs of a login at a server: written by usher load --calibrate, read by usher plan and by studies\n\
         # (processor = \"FILE\"). docs/howto/plan.md describes each figure.\n",
    );
    // The result is ignored: writing to a String cannot fail.
    let _ = write_sections(file, &mut text);
    text
}

fn write_sections(file: &ServerProfile, to: &mut String) -> std::fmt::Result {
    writeln!(to, "version = {}", crate::FORMAT.version)?;
    writeln!(to, "program = {}", quote_text(&file.program))?;
    writeln!(to, "date = {}", quote_text(&file.date))?;
    writeln!(to, "\n[machine]")?;
    writeln!(to, "processor = {}", quote_text(&file.machine.processor))?;
    writeln!(to, "cores = {}", file.machine.cores.get())?;
    writeln!(to, "kernel = {}", quote_text(&file.machine.kernel))?;
    let reference = &file.machine.reference;
    writeln!(to, "\n# Operations of one core per second.\n[machine.reference]")?;
    writeln!(to, "rsa_2048_sign = {}", format_rate(reference.rsa_2048_sign))?;
    writeln!(to, "ecdsa_p256_sign = {}", format_rate(reference.ecdsa_p256_sign))?;
    writeln!(to, "md5 = {}", format_rate(reference.md5))?;
    let configuration = &file.configuration;
    writeln!(to, "\n[configuration]")?;
    writeln!(to, "fingerprint = {}", quote_text(&configuration.fingerprint))?;
    writeln!(to, "shards = {}", configuration.shards.get())?;
    writeln!(to, "store = {}", quote_text(configuration.store.name()))?;
    writeln!(to, "cached = {}", configuration.cached)?;
    writeln!(to, "\n# CPU time of a wake-up, and of receiving a batch.")?;
    writeln!(
        to,
        "[wakeup]\n{}\n[batch]\n{}",
        format_cpu_cost_lines(file.wakeup),
        format_cpu_cost_lines(file.batch)
    )?;
    writeln!(to, "\n# CPU time of one unit of each kind of work.\n[work]")?;
    for (label, unit) in file.work.iter() {
        writeln!(to, "{} = {}", quote_text(label), format_cost(*unit))?;
    }
    if !file.within.is_empty() {
        writeln!(to, "\n# Error bound of each, with 95 % confidence.\n[within]")?;
    }
    for (label, within) in file.within.iter() {
        writeln!(to, "{} = {}", quote_text(label), format_time(*within))?;
    }
    if let Some(store) = &file.store {
        writeln!(
            to,
            "\n[store]\nlookup = {}\nround_trips = {}",
            format_time(store.lookup),
            store.round_trips.get()
        )?;
    }
    for (name, method) in file.methods.iter() {
        writeln!(to, "\n[methods.{}]", quote_text(name))?;
        writeln!(to, "received = {}", format_traffic(method.received))?;
        writeln!(to, "sent = {}", format_traffic(method.sent))?;
        writeln!(to, "server = {}", format_cost(method.server))?;
        writeln!(to, "generator = {}", format_cost(method.generator))?;
        let units: Vec<String> = method
            .units
            .iter()
            .map(|(label, n)| format!("{} = {}", quote_text(label), format_number(*n)))
            .collect();
        writeln!(to, "units = {{ {} }}", units.join(", "))?;
        writeln!(to, "loads = [")?;
        for load in &method.loads {
            writeln!(
                to,
                "    {{ rate = {}, burst = {}, logins = {}, utilisation = {}, server = {}, wakeups = {}, batches = {}, accounted = {} }},",
                format_rate(load.rate),
                load.burst.get(),
                load.logins,
                format_number(load.utilisation),
                format_cost(load.server),
                format_number(load.wakeups),
                format_number(load.batches),
                format_number(load.accounted)
            )?;
        }
        writeln!(to, "]")?;
        if let Some(libraries) = &method.libraries {
            writeln!(to, "[methods.{}.libraries]", quote_text(name))?;
            writeln!(to, "by = {}\nsamples = {}", quote_text(&libraries.by), libraries.samples)?;
            let shares: Vec<String> = libraries
                .shares
                .iter()
                .map(|(library, share)| {
                    format!("{} = \"{} %\"", quote_text(library), format_number(share.get() * 100.0))
                })
                .collect();
            writeln!(to, "shares = {{ {} }}", shares.join(", "))?;
        }
    }
    Ok(())
}

/// Formats a text as a string of TOML.
fn quote_text(plain: &str) -> String {
    let mut quoted = String::from("\"");
    for c in plain.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Formats a number with six digits and a decimal point, which TOML needs to read it as a float.
fn format_number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0.0".to_owned();
    }
    let digits = (5 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let plain = format!("{value:.digits$}");
    if plain.contains('.') { plain } else { format!("{plain}.0") }
}

fn format_rate(rate: EventRate) -> String {
    let plain = format_number(rate.per_second());
    format!("\"{} /s\"", plain.strip_suffix(".0").unwrap_or(&plain))
}

fn format_time(time: TimeSpan) -> String {
    format!("\"{} us\"", time.get().as_nanos() as f64 / 1e3)
}

fn format_cost(cost: CpuCost) -> String {
    format!("{{ user = {}, system = {} }}", format_time(cost.user), format_time(cost.system))
}

fn format_cpu_cost_lines(cost: CpuCost) -> String {
    format!("user = {}\nsystem = {}", format_time(cost.user), format_time(cost.system))
}

fn format_traffic(traffic: LoginTraffic) -> String {
    format!(
        "{{ messages = {}, octets = {} }}",
        format_number(traffic.messages),
        format_number(traffic.octets)
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{ProfileMismatchError, ProfileRequirement, StoreKind, parse_profile};
    use usher_config::EmptyConfigEnvironment;

    const LABELS: [&str; 6] =
        ["radius.request", "radius.response", "diameter.request", "eap.md5", "tls.sign", "store.lookup"];

    fn test_text() -> String {
        crate::testing::sample_profile_text("0.2.0", StoreKind::Postgresql)
    }

    pub(crate) fn test_profile() -> ServerProfile {
        parse_profile("p.toml", &test_text(), &EmptyConfigEnvironment, &LABELS).unwrap()
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let file = test_profile();
        let written = format_profile(&file);
        assert_eq!(
            parse_profile("again.toml", &written, &EmptyConfigEnvironment, &LABELS).unwrap(),
            file,
            "{written}"
        );
        assert_eq!(
            format_profile(&parse_profile("again.toml", &written, &EmptyConfigEnvironment, &LABELS).unwrap()),
            written
        );
    }

    #[test]
    fn faults_have_their_lines() {
        let said = |from: &str, to: &str| {
            assert!(test_text().contains(from), "{from}");
            parse_profile("p.toml", &test_text().replacen(from, to, 1), &EmptyConfigEnvironment, &LABELS)
                .unwrap_err()
                .to_string()
        };
        let at = |place: &str, said: String| assert!(said.contains(place), "{said}");
        at("p.toml:26", said("\"eap.md5\" = {", "\"eap.md6\" = {"));
        at(
            "no kind of work \"eap.md6\"; did you mean \"eap.md5\"",
            said("\"eap.md5\" = {", "\"eap.md6\" = {"),
        );
        at("no kind of work \"eap.md6\"", said("\"eap.md5\" = \"300 ns\"", "\"eap.md6\" = \"300 ns\""));
        at("p.toml:15", said("store = \"postgresql\"", "store = \"oracle\""));
        at("lacks its unit", said("user = \"1 us\"", "user = \"1\""));
        at(
            "account for 300 % of the measured CPU time at 1000 logins a second: the profile is unusable",
            said("accounted = 1.0", "accounted = 3.0"),
        );
        at(
            "does not separate its work from the server's wake-ups",
            said("\"radius.request\" = { user = \"6 us\", system = \"4 us\" }\n", ""),
        );
        at("a figure is negative", said("wakeups = 1.0", "wakeups = -1.0"));
        at("unknown key \"programme\"", said("program =", "programme ="));
        at("a profile of version 2", said("version = 1", "version = 2"));
    }

    #[test]
    fn a_profile_that_does_not_fit_is_refused() {
        let file = test_profile();
        let pap = ["pap".to_owned()];
        let fits = ProfileRequirement { program: "0.2.0", methods: &pap, store: Some(StoreKind::Postgresql) };
        assert_eq!(file.check_requirements(&fits), Ok(()));
        assert_eq!(file.check_requirements(&ProfileRequirement { store: None, ..fits }), Ok(()));
        let said = |wanted: ProfileRequirement<'_>| file.check_requirements(&wanted).unwrap_err().to_string();
        assert!(
            said(ProfileRequirement { program: "0.3.0", ..fits })
                .contains("of usher 0.2.0 and this is usher 0.3.0")
        );
        assert!(
            said(ProfileRequirement { store: Some(StoreKind::Memory), ..fits })
                .contains("in postgresql and yours are in memory")
        );
        let tls = ["pap".to_owned(), "eap-tls".to_owned()];
        assert!(said(ProfileRequirement { methods: &tls, ..fits }).contains("no method \"eap-tls\""));
        assert!(matches!(
            file.check_requirements(&ProfileRequirement { methods: &tls, ..fits }),
            Err(ProfileMismatchError::Method { .. })
        ));
    }

    #[test]
    fn what_is_not_known_well_is_told() {
        let file = test_profile();
        // Costs of 10 us ± 1 us, 2 us ± 0.3 us and 18 us ± 20 us; signatures were timed.
        let doubtful: Vec<&str> =
            file.work.names().filter(|label| file.is_work_cost_doubtful(label)).collect();
        assert_eq!(doubtful, ["diameter.request"]);
        // Each request has a response, so no load distinguishes them.
        assert_eq!(file.uncosted_work_labels().into_iter().collect::<Vec<_>>(), ["radius.response"]);
    }

    #[test]
    fn a_busy_core_shares_a_batch_among_many() {
        let file = test_profile();
        let pap = file.methods.get("pap").unwrap();
        // 6 + 4 us for the request, and 1/64 of a batch of 1 us.
        assert!((file.busy_login_seconds(pap) - (10e-6 + 1e-6 / 64.0)).abs() < 1e-12);
    }

    #[test]
    fn the_published_schema_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profile.schema.json");
        let schema = crate::json_schema();
        if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
            std::fs::write(&path, &schema).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            published == schema,
            "docs/profile.schema.json is not what the types say; run this test with USHER_WRITE_SCHEMA=1"
        );
    }
}
