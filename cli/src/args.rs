//! The command line. The documentation of these items is the program's help.

use crate::common_args::CommonArgs;
use crate::lab::LabCommand;
#[cfg(feature = "live")]
use crate::{
    aaa::args::AaaCommand, ident::IdentCommand, ike::IkeCommand, load::args::LoadCommand, mih::MihCommand,
    plan::PlanArgs, pppoe::PppoeCommand, pppoe::SubscriberLookupArgs,
};
use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, Parser, Subcommand};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use usher_scenario::TEMPLATES;

/// Network access servers, clients, load tests and simulated studies: RADIUS, Diameter, EAP, IKEv2, PPPoE, IDENT and
/// MIH.
#[derive(Parser, Debug)]
#[command(
    name = "usher",
    version,
    after_help = "Exit codes:
  0    success
  1    failure
  2    invalid command line, study or configuration; nothing was run
  3    partial import, or an unmet expectation of `usher load`
  130  interrupted"
)]
pub(crate) struct CliArguments {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: UsherCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum UsherCommand {
    /// List, show, create, check, run and compare studies.
    Study {
        #[command(subcommand)]
        command: StudyCommand,
    },
    /// Check this program's code against analytic formulas and published test vectors.
    #[command(
        after_help = "Examples:\n  usher verify\n  usher verify radius\n  usher verify queues/mm1 --json\n  \
                      usher verify --automata eap-peer --dot | dot -Tsvg\n\nExit code 1: a check failed."
    )]
    Verify {
        /// Select the checks with this text in GROUP/NAME.
        filter: Option<String>,
        /// List the checks without running them.
        #[arg(long)]
        list: bool,
        /// Print the program's state tables, filtered by name, and run no check.
        #[arg(long, conflicts_with = "list")]
        automata: bool,
        /// Print the state tables as Graphviz graphs.
        #[arg(long, requires = "automata")]
        dot: bool,
    },
    /// Compare published claims with results: the published value, ours, the verdict and the reason.
    #[command(after_help = "Examples:
  usher claims out/aaa-hol-quick
  usher claims --json

Without a folder, usher takes the best run of each study below out/. It prefers a complete run at the
study's own settings, then full to default to quick, then the newest. Claims without a run are listed as such.")]
    Claims {
        /// The folder of a run, or a folder of such folders [default: the best runs below out/].
        dir: Option<PathBuf>,
    },
    #[cfg(feature = "live")]
    /// Run and administer the AAA server: RADIUS, RadSec and Diameter with EAP.
    Aaa {
        #[command(subcommand)]
        command: Box<AaaCommand>,
    },
    #[cfg(feature = "live")]
    /// IDENT (RFC 1413): report the user of a TCP connection, or query another host.
    Ident {
        #[command(subcommand)]
        command: IdentCommand,
    },
    /// Labs (studies on kernel sockets): check this machine, show running labs, clean up.
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
    #[cfg(feature = "live")]
    /// Run and control an IKEv2 gateway or client.
    Ike {
        #[command(subcommand)]
        command: Box<IkeCommand>,
    },
    #[cfg(feature = "live")]
    /// Media-independent handover (IEEE 802.21 over RFC 5677): report this host's links, query other hosts, hand
    /// over.
    Mih {
        #[command(subcommand)]
        command: Box<MihCommand>,
    },
    #[cfg(feature = "live")]
    /// Run and control a PPPoE access concentrator or client.
    Pppoe {
        #[command(subcommand)]
        command: Box<PppoeCommand>,
    },
    #[cfg(feature = "live")]
    /// Find the subscriber of an address and port at a given time, in the log of a PPPoE access concentrator.
    #[command(after_help = "Examples:
  usher who 10.0.0.7
  usher who 192.0.2.1:40022 --at 2026-11-26T12:00:00Z
  usher who 2001:db8:1:2::9 --at 2026-11-26T21:00:00+09:00 --json

The audit file records each query with its user.
Exit code 1: no subscriber had the address.")]
    Who(SubscriberLookupArgs),
    #[cfg(feature = "live")]
    /// Load-test a RADIUS, Diameter, IKEv2, PPPoE or MIH server: verify every reply, and report rates and latencies.
    Load {
        #[command(subcommand)]
        command: Box<LoadCommand>,
    },
    #[cfg(feature = "live")]
    /// Compute how many servers a deployment needs, by simulating its logins with a measured processor profile.
    #[command(after_help = "Examples:
  usher load eap 127.0.0.1 --secret-file secret --users-file users.csv --ca ca.pem --mix pap=1,peap-mschapv2=1 \\
      --calibrate profile.toml --server-pid $(pidof usher) --server-config aaa.toml
  usher plan --profile profile.toml --mix peap-mschapv2=70,pap=30 --users 50000 --within '30 min' --target '99 % within 200 ms'
  usher plan --profile profile.toml --config aaa.toml --mix pap=1 --users 200000 --reauthentication '1 h' --peak 3 --out out/plan
  usher plan plan.toml --json

docs/howto/plan.md explains the calibration, the result and its limits.")]
    Plan(Box<PlanArgs>),
    /// Upgrade study files and server configurations of earlier versions.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  usher completion bash > ~/.local/share/bash-completion/completions/usher"
    )]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    #[command(after_help = "Example:\n  usher man ~/.local/share/man/man1")]
    Man {
        /// The folder. It is created if it is missing.
        dir: PathBuf,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Show the changes that bring files to the newest version of their format. Comments are kept.
    #[command(
        after_help = "Examples:\n  usher config upgrade /etc/usher/aaa.toml\n  usher config upgrade --write *.toml"
    )]
    Upgrade {
        /// Study files and server configurations.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Write the files instead of showing the changes.
        #[arg(long)]
        write: bool,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum StudyCommand {
    /// List the built-in studies.
    List,
    /// Show a study: its question, axes, figures and defaults.
    #[command(
        after_help = "Examples:\n  usher study show aaa-hol\n  usher study show aaa-hol --toml > mine.toml"
    )]
    Show {
        /// A study's name or file.
        name: String,
        /// Print the study's TOML file instead.
        #[arg(long)]
        toml: bool,
    },
    /// Write a commented template for a study of your own.
    New {
        /// The file to write. An existing file is not overwritten.
        file: PathBuf,
        /// The workload: plain requests and answers, EAP logins at NASs, messages of IEEE 802.21, or handovers.
        #[arg(long, default_value = "dialogue", value_parser = PossibleValuesParser::new(TEMPLATES.iter().map(|t| t.kind)))]
        kind: String,
    },
    /// Check study files without running them, and report each fault with its line.
    Check {
        /// Study files or names of studies.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
    /// Run studies. Each run writes a folder with rows, figures and a report.
    #[command(after_help = "Examples:
  usher study run aaa-hol --quick
  usher study run mine.toml --set 'loss=1 %,5 %' --replications 10
  usher study run mine.toml --dry-run
  usher study run aaa-hol --quick --point 'loss=5 %; protocol=Diameter/TCP; method=eap-md5' --replication 2
  usher study run ike-auth --quick --ladder
  usher study run aaa --backend dask --address tcp://head:8786

The folder holds results.csv, results.parquet, summary.csv, summary.parquet, claims.json,
manifest.json, figures/*.svg and report.html. Its study/ holds the study itself, so the folder is
enough to run the study again:
  usher study run out/aaa-hol-quick --out out/again
To resume an interrupted run, repeat its command.")]
    Run(StudyRunArgs),
    /// Compare two runs, for each point and metric.
    #[command(
        after_help = "Examples:\n  usher study compare out/before out/after\n  usher study compare out/before out/after --out out/both"
    )]
    Compare {
        /// The folder of run A.
        a: PathBuf,
        /// The folder of run B. Differences are B - A.
        b: PathBuf,
        /// Write a report into this folder, with the figures of A and the curves of B over them.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// Where a study runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum StudyRunTarget {
    /// The simulator.
    Sim,
    /// The lab: network namespaces of this machine's kernel.
    Lab,
    /// Both, compared with each other.
    Both,
}

/// The cluster software that computes replications.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum ClusterEngine {
    /// A Ray cluster.
    Ray,
    /// A Dask cluster.
    Dask,
}

impl ClusterEngine {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ray => "ray",
            Self::Dask => "dask",
        }
    }
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("mode"))]
pub(crate) struct StudyRunArgs {
    /// Studies or groups by name, study files, or folders of earlier runs to repeat.
    #[arg(required = true, value_name = "NAME|FILE|GROUP|FOLDER")]
    pub(crate) names: Vec<String>,
    /// For a first look: fewer values and shorter runs.
    #[arg(long, group = "mode")]
    pub(crate) quick: bool,
    /// For publication: more values, longer runs and narrower confidence intervals.
    #[arg(long, group = "mode")]
    pub(crate) full: bool,
    /// Vary each open choice of the study ([[choices]]) in turn, at the points of [sensitivity].
    #[arg(long, group = "mode")]
    pub(crate) sensitivity: bool,
    /// Run the points of the study's [lab] table.
    #[arg(long, group = "mode")]
    pub(crate) lab: bool,
    /// Run on the simulator, on the lab in real time, or on both. The lab runs the points of the study's [lab] table.
    #[arg(long, value_enum, value_name = "WHERE", default_value = "sim", conflicts_with_all = ["quick", "full", "sensitivity"])]
    pub(crate) on: StudyRunTarget,
    /// On the lab: a kernel setting for all namespaces, such as net.ipv4.tcp_recovery=0; may be repeated.
    #[arg(long, value_name = "SYSCTL=VALUE")]
    pub(crate) kernel: Vec<String>,
    /// On the lab: divide each host's processor time among libraries, if Linux perf is available.
    #[arg(long)]
    pub(crate) perf: bool,
    /// The seed of all random streams [default: the study's].
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// Run exactly N replications of every point.
    #[arg(long, value_name = "N")]
    pub(crate) replications: Option<NonZeroU32>,
    /// Replications to run at once [default: one per core; on the lab one fewer; with --threads one per two cores].
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Divide a replication among up to N threads, without a change of rows [default: 1]. It helps long runs with
    /// thousands of hosts. Two threads are used: one for the hosts that send requests, one for the others. Captured
    /// replications are not divided.
    #[arg(long, value_name = "N", conflicts_with_all = ["on", "lab", "backend"])]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Compute the replications on a cluster, with the Python package usher. The rows stay the same.
    #[arg(long, value_enum, value_name = "ENGINE", conflicts_with_all = [
        "on", "lab", "kernel", "perf", "pcap", "ladder", "live_report", "dry_run", "point", "replication",
    ])]
    pub(crate) backend: Option<ClusterEngine>,
    /// The cluster's address, such as tcp://head:8786 [default: a new cluster on this machine].
    #[arg(long, requires = "backend")]
    pub(crate) address: Option<String>,
    /// Values for an axis, or a value for a setting by its path; may be repeated.
    #[arg(long, value_name = "AXIS=VALUES")]
    pub(crate) set: Vec<String>,
    /// Capture the first replication of every point, on this link or on the links that the study names.
    #[arg(long, value_name = "LINK", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) pcap: Vec<String>,
    /// Draw the message flow of one dialogue for each of the study's cases, as SVG and text, into ladders/ and the
    /// report. With --point, print the message flow of that replication.
    #[arg(long)]
    pub(crate) ladder: bool,
    /// Embed the simulator in the report, so that its reader can change the axes and run points in a browser.
    #[arg(long, conflicts_with_all = ["on", "lab", "dry_run", "point"])]
    pub(crate) live_report: bool,
    /// The folder for the results [default: out/NAME-MODE]. Several studies get a folder each in it, and a common
    /// report.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Remove the earlier run in the folder, and start anew.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the number of points and replications and the estimated time, and run no sweep.
    #[arg(long, conflicts_with_all = ["pcap", "ladder", "force", "point"])]
    pub(crate) dry_run: bool,
    /// Run one replication of this point, and print its metrics.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["force", "replications", "jobs"])]
    pub(crate) point: Option<String>,
    /// The number of the replication, from 0 [default: 0].
    #[arg(long, value_name = "N", requires = "point")]
    pub(crate) replication: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_fit_together() {
        CliArguments::command().debug_assert();
    }

    #[test]
    fn a_capture_does_not_take_the_study_for_a_link() {
        let parse = |line: &str| match CliArguments::try_parse_from(line.split(' ')).map(|a| a.command) {
            Ok(UsherCommand::Study { command: StudyCommand::Run(run) }) => (run.names, run.pcap),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(parse("usher study run --pcap s"), (vec!["s".to_owned()], vec![String::new()]));
        assert_eq!(parse("usher study run s --pcap=core --pcap=lan").1, ["core", "lan"]);
    }
}
