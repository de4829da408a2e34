//! `usher lab`: what this machine offers to studies on kernel sockets, which labs run, and what was left of those that do not.

use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use usher_lab::{DelayMeasurement, DelayStats, LabError, LabRegistry, RemovedStaleLabs, RunningLabInfo};

/// Datagrams a second at which precision is measured: few, where each wakes the relay up, and many.
const RATES: [u32; 2] = [1000, 20_000];

#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    /// Check whether this machine can run a lab, and measure the lab's precision.
    #[command(after_help = "Examples:
  usher lab check
  usher lab check --seconds 10 --json

The command builds two hosts with a link of 5 ms between them, and sends datagrams at two rates.
It shows the delay that the relay adds to the link, then the delay that the programs see beyond the link.
The second includes the kernel and the scheduling of the programs.
Exit code 1: this machine cannot run a lab.")]
    Check {
        /// Seconds to measure at each rate.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
        seconds: u32,
        #[command(flatten)]
        list: LabRegistryArgs,
    },
    /// Clean up after labs with a killed process: end the programs that they started, and remove their entries in the
    /// list.
    #[command(after_help = "Example:
  usher lab clean

Networks need no cleanup: a lab's namespaces, interfaces and routes disappear with its process.
The next lab also cleans up.")]
    Clean {
        #[command(flatten)]
        list: LabRegistryArgs,
    },
    /// Show the running labs: their hosts and links, and the command to enter a host.
    #[command(after_help = "Examples:
  usher lab show
  usher lab show --json

To capture packets of a host, in another shell:
  nsenter --net=/proc/PROCESS/fd/NUMBER tcpdump -n -i eth0")]
    Show {
        #[command(flatten)]
        list: LabRegistryArgs,
    },
}

/// The list of labs.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabRegistryArgs {
    /// The folder with the list of labs [default: /run/usher/lab, or a folder of the user].
    #[arg(long, value_name = "DIR")]
    list: Option<PathBuf>,
}

impl LabRegistryArgs {
    fn open_registry(&self) -> Result<LabRegistry, CommandFailure> {
        let opened = match &self.list {
            Some(folder) => LabRegistry::open_at(folder),
            None => LabRegistry::of_user(),
        };
        opened.map_err(CommandFailure::runtime_error)
    }
}

pub(crate) fn run_lab_command(output: &ConsoleOutput, command: LabCommand) -> Result<(), CommandFailure> {
    match command {
        LabCommand::Check { seconds, list } => check_lab(output, seconds, &list.open_registry()?),
        LabCommand::Clean { list } => clean_labs(output, &list.open_registry()?),
        LabCommand::Show { list } => show_labs(output, &list.open_registry()?),
    }
}

fn check_lab(output: &ConsoleOutput, seconds: u32, list: &LabRegistry) -> Result<(), CommandFailure> {
    let offers = usher_lab::check_features(list);
    let able = offers.iter().all(|offer| offer.there || !offer.needed);
    let measure = |rate: u32| usher_lab::measure_precision(list, rate, rate.saturating_mul(seconds));
    let measured: Result<Vec<DelayMeasurement>, LabError> =
        if able { RATES.into_iter().map(measure).collect() } else { Ok(Vec::new()) };
    let measured = measured.map_err(CommandFailure::runtime_error)?;
    if output.json {
        output.print_json(&json!({ "able": able, "offers": offers, "precision": measured }))?;
    } else {
        let row = |offer: &usher_lab::LabFeature| {
            vec![
                offer.name.to_owned(),
                if offer.there { "yes" } else { "no" }.to_owned(),
                offer.detail.clone(),
            ]
        };
        output.print_text(&format_columns(&offers.iter().map(row).collect::<Vec<_>>()))?;
        if !measured.is_empty() {
            output.print_text("\ndelay beyond the link's 5 ms, in microseconds:\n")?;
            output.print_text(&format_columns(&precision_rows(&measured)))?;
        }
    }
    if able { Ok(()) } else { Err(CommandFailure::runtime_error("this machine cannot run a lab as it is")) }
}

/// The table of what was measured.
fn precision_rows(measured: &[DelayMeasurement]) -> Vec<Vec<String>> {
    let mut rows =
        vec![["rate", "by", "mean", "median", "99 %", "99.9 %", "most"].map(str::to_owned).to_vec()];
    let row = |rate: u32, by: &str, delays: &DelayStats| {
        let figures = [delays.mean, delays.median, delays.p99, delays.p999, delays.max];
        let mut row = vec![format!("{rate}/s"), by.to_owned()];
        row.extend(figures.map(|seconds| format!("{:.0}", seconds * 1e6)));
        row
    };
    for m in measured {
        rows.push(row(m.rate, "the relay", &m.relay.delays));
        rows.push(row(m.rate, "relay, kernel and programs", &m.programs));
    }
    rows
}

fn clean_labs(output: &ConsoleOutput, list: &LabRegistry) -> Result<(), CommandFailure> {
    let left = list.remove_remains().map_err(CommandFailure::runtime_error)?;
    if output.json {
        return output.print_json(&json!(left));
    }
    let RemovedStaleLabs { labs, programs } = &left;
    let mut text = String::new();
    for lab in labs {
        text.push_str(&format!("removed the entry of a lab that was killed: {lab}\n"));
    }
    for (process, name) in programs {
        text.push_str(&format!("ended {name} (process {process}), which a lab had started\n"));
    }
    output.print_text(if left.is_empty() { "no remains of labs\n" } else { &text })
}

fn show_labs(output: &ConsoleOutput, list: &LabRegistry) -> Result<(), CommandFailure> {
    let running = list.running_labs().map_err(CommandFailure::runtime_error)?;
    if output.json {
        return output.print_json(&json!(running));
    }
    if running.is_empty() {
        return output.print_text("no lab is running\n");
    }
    running.iter().try_for_each(|lab| output.print_text(&format_lab(lab)))
}

fn format_lab(lab: &RunningLabInfo) -> String {
    let mut text = format!("{} (process {})\n", lab.name, lab.process);
    let host = |host: &usher_lab::LabHostInfo| {
        let addresses: Vec<String> = host.addresses.iter().map(ToString::to_string).collect();
        let enter = format!("nsenter --net=/proc/{}/fd/{}", lab.process, host.descriptor);
        vec![format!("  {}", host.name), addresses.join(" "), enter]
    };
    text.push_str(&format_columns(&lab.hosts.iter().map(host).collect::<Vec<_>>()));
    let link = |(name, [a, b]): &(String, [String; 2])| vec![format!("  {name}"), format!("{a} - {b}")];
    text.push_str(&format_columns(&lab.links.iter().map(link).collect::<Vec<_>>()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_lab::{LabHostInfo, RelayReport};

    #[test]
    fn a_lab_is_shown_with_the_way_into_its_hosts() {
        let host = |name: &str, descriptor| LabHostInfo {
            name: name.to_owned(),
            addresses: vec![[10, 0, 0, 1].into()],
            descriptor,
        };
        let lab = RunningLabInfo {
            process: 7,
            name: "study".to_owned(),
            hosts: vec![host("nas", 5), host("server", 6)],
            links: vec![("wan".to_owned(), ["nas".to_owned(), "server".to_owned()])],
        };
        assert_eq!(
            format_lab(&lab),
            "study (process 7)\n  nas     10.0.0.1  nsenter --net=/proc/7/fd/5\n  server  10.0.0.1  nsenter --net=/proc/7/fd/6\n  \
             wan  nas - server\n"
        );
    }

    #[test]
    fn precision_is_shown_in_microseconds() {
        let delays = DelayStats { mean: 0.000_020_4, max: 0.001, ..DelayStats::default() };
        let relay = RelayReport { delays, ..RelayReport::default() };
        let rows = precision_rows(&[DelayMeasurement { rate: 1000, delay: 0.005, programs: delays, relay }]);
        assert_eq!(rows[1], ["1000/s", "the relay", "20", "0", "0", "0", "1000"]);
        assert_eq!(rows.len(), 3);
    }
}
