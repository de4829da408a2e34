//! What can be typed. The documentation of these items is the program's help.

use crate::lab::LabCommand;
#[cfg(feature = "live")]
use crate::{
    aaa::args::AaaCommand, ident::IdentCommand, ike::IkeCommand, load::args::LoadCommand, mih::MihCommand,
    plan::PlanArgs, pppoe::AddressQueryArgs, pppoe::PppoeCommand,
};
use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, Parser, Subcommand};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use usher_scenario::TEMPLATES;

/// Network access protocols, studied in simulation: the code that is simulated is the code that is deployed.
#[derive(Parser, Debug)]
#[command(
    name = "usher",
    version,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage or a faulty study (nothing was run), 3 an import that has not taken all of a file, 130 interrupted before it was done."
)]
pub(crate) struct CliArguments {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: UsherCommand,
}

#[derive(Args, Debug)]
pub(crate) struct CommonArgs {
    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print no progress bar.
    #[arg(long, global = true)]
    pub(crate) plain: bool,
    /// Say more.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum UsherCommand {
    /// Studies: list, read, write, check, run and compare them.
    Study {
        #[command(subcommand)]
        command: StudyCommand,
    },
    /// Run every analytic formula and published vector against this program's code, and show both values.
    #[command(
        after_help = "Examples:\n  usher verify\n  usher verify radius\n  usher verify queues/mm1 --json\n  \
                      usher verify --automata eap-peer --dot | dot -Tsvg\n\n\
                      Ends with code 1 when something does not hold."
    )]
    Verify {
        /// Only what has this in its group or name.
        filter: Option<String>,
        /// Run nothing: say what there is.
        #[arg(long)]
        list: bool,
        /// Run nothing: print the state tables that the program runs, or those with this in their name.
        #[arg(long, conflicts_with = "list")]
        automata: bool,
        /// Print them as graphs for Graphviz.
        #[arg(long, requires = "automata")]
        dot: bool,
    },
    /// Hold published statements against results: theirs, ours, the verdict and why.
    #[command(after_help = "Examples:
  usher claims out/aaa-hol-quick
  usher claims --json

Without a folder, the best run of each study below out is taken: at the study's own settings, complete, full before
default before quick, and the newest of those. Statements whose studies were not run are listed as such.")]
    Claims {
        /// The folder of a run, or one that holds such folders.
        dir: Option<PathBuf>,
    },
    #[cfg(feature = "live")]
    /// The AAA server: RADIUS, RadSec and Diameter with EAP, and what an operator does with it.
    Aaa {
        #[command(subcommand)]
        command: Box<AaaCommand>,
    },
    #[cfg(feature = "live")]
    /// IDENT (RFC 1413): say who stands behind a connection, and ask who does.
    Ident {
        #[command(subcommand)]
        command: IdentCommand,
    },
    /// Studies on kernel sockets: what this machine offers for them, what runs, what was left.
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
    #[cfg(feature = "live")]
    /// An IKEv2 gateway, and a client.
    Ike {
        #[command(subcommand)]
        command: Box<IkeCommand>,
    },
    #[cfg(feature = "live")]
    /// Media independent handover (IEEE 802.21 over RFC 5677): tell others of this host's links, and ask others of theirs.
    Mih {
        #[command(subcommand)]
        command: Box<MihCommand>,
    },
    #[cfg(feature = "live")]
    /// A PPPoE access concentrator that knows who its hosts' users are, and a client.
    Pppoe {
        #[command(subcommand)]
        command: Box<PppoeCommand>,
    },
    #[cfg(feature = "live")]
    /// Say who had an address, and a port of it, at a time: of the log of a PPPoE access concentrator.
    #[command(after_help = "Examples:
  usher who 10.0.0.7
  usher who 192.0.2.1:40022 --at 2026-11-26T12:00:00Z
  usher who 2001:db8:1:2::9 --at 2026-11-26T21:00:00+09:00 --json

Who asks for whom is written into the audit. Ends with code 1 when nobody had it.")]
    Who(AddressQueryArgs),
    #[cfg(feature = "live")]
    /// Load a RADIUS or Diameter server or an IKEv2 gateway with logins, or an MIH function with requests, verify every answer, and
    /// report rates and latencies.
    Load {
        #[command(subcommand)]
        command: Box<LoadCommand>,
    },
    #[cfg(feature = "live")]
    /// How many servers a deployment needs: its logins, simulated on processors that a measured profile charges.
    #[command(after_help = "Examples:
  usher load eap 127.0.0.1 --secret-file secret --users-file users.csv --ca ca.pem --mix pap=1,peap-mschapv2=1 \\
      --calibrate profile.toml --server-pid $(pidof usher) --server-config aaa.toml
  usher plan --profile profile.toml --mix peap-mschapv2=70,pap=30 --users 50000 --within '30 min' --target '99 % within 200 ms'
  usher plan --profile profile.toml --config aaa.toml --mix pap=1 --users 200000 --reauthentication '1 h' --peak 3 --out out/plan
  usher plan plan.toml --json

docs/plan.md says how to calibrate, how to read the answer, and what it leaves out.")]
    Plan(Box<PlanArgs>),
    /// Files of studies and servers that an earlier version understood.
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
        /// The folder; it is made when missing.
        dir: PathBuf,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Show how files are written in the newest version of their format; comments stay.
    #[command(
        after_help = "Examples:\n  usher config upgrade /etc/usher/aaa.toml\n  usher config upgrade --write *.toml"
    )]
    Upgrade {
        /// Study files, and configurations of servers.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Write the files so, and show nothing.
        #[arg(long)]
        write: bool,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum StudyCommand {
    /// List the studies that come with the program.
    List,
    /// Show a study: its question, axes, figures and defaults.
    #[command(
        after_help = "Examples:\n  usher study show aaa-hol\n  usher study show aaa-hol --toml > mine.toml"
    )]
    Show {
        /// A study's name, or a file.
        name: String,
        /// Print the study's file instead.
        #[arg(long)]
        toml: bool,
    },
    /// Write a commented template to begin a study of your own from.
    New {
        /// The file to write; one that is there is kept.
        file: PathBuf,
        /// What is studied: plain requests and answers, logins by EAP at NASes, messages of IEEE 802.21, or handovers.
        #[arg(long, default_value = "dialogue", value_parser = PossibleValuesParser::new(TEMPLATES.iter().map(|t| t.kind)))]
        kind: String,
    },
    /// Check study files without running them: every fault with its line.
    Check {
        /// Study files, or names of studies.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
    /// Run studies; each ends in a folder with rows, figures and a report.
    #[command(after_help = "Examples:
  usher study run aaa-hol --quick
  usher study run mine.toml --set 'loss=1 %,5 %' --replications 10
  usher study run mine.toml --dry-run
  usher study run aaa-hol --quick --point 'loss=5 %; protocol=Diameter/TCP; method=eap-md5' --replication 2
  usher study run ike-auth --quick --ladder
  usher study run aaa --backend dask --address tcp://head:8786

The folder holds results.csv, results.parquet, summary.csv, summary.parquet, claims.json, manifest.json, figures/*.svg and
report.html, and in study/ the study itself, so that the folder alone is enough to run it again:
  usher study run out/aaa-hol-quick --out out/again
A run that was interrupted goes on where it stopped when the same command is given again.")]
    Run(StudyRunArgs),
    /// Compare two runs, point by point and metric by metric.
    #[command(
        after_help = "Examples:\n  usher study compare out/before out/after\n  usher study compare out/before out/after --out out/both"
    )]
    Compare {
        /// The folder of one run.
        a: PathBuf,
        /// The folder of the other; differences are its values less the first's.
        b: PathBuf,
        /// Write a report into this folder, with the figures of the first run and the second's curves laid over them.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// What a study runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum RunTarget {
    /// The simulator.
    Sim,
    /// A lab: network namespaces of this machine's kernel.
    Lab,
    /// Both, held against each other.
    Both,
}

/// Who computes replications elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum ClusterEngine {
    /// A cluster of Ray's.
    Ray,
    /// A cluster of Dask's.
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
    /// Names of studies, files, names of groups, or folders of runs, which are run again.
    #[arg(required = true, value_name = "NAME|FILE|GROUP|FOLDER")]
    pub(crate) names: Vec<String>,
    /// For a first look: fewer values, shorter runs.
    #[arg(long, group = "mode")]
    pub(crate) quick: bool,
    /// For publication: more values, longer runs, narrower intervals.
    #[arg(long, group = "mode")]
    pub(crate) full: bool,
    /// Each choice of the study that its source leaves open, in turn, at the points that tell most.
    #[arg(long, group = "mode")]
    pub(crate) sensitivity: bool,
    /// The points that the lab runs, those of [lab].
    #[arg(long, group = "mode")]
    pub(crate) lab: bool,
    /// On the simulator; on the lab, which are network namespaces of this machine's kernel, in real time; or on both, held
    /// against each other. The lab runs the points of [lab].
    #[arg(long, value_enum, value_name = "WHERE", default_value = "sim", conflicts_with_all = ["quick", "full", "sensitivity"])]
    pub(crate) on: RunTarget,
    /// On the lab, a setting of the kernel in all namespaces, such as net.ipv4.tcp_recovery=0; may be repeated.
    #[arg(long, value_name = "SYSCTL=VALUE")]
    pub(crate) kernel: Vec<String>,
    /// On the lab, also say in whose code each host's processor time went, by library, where Linux's perf can.
    #[arg(long)]
    pub(crate) perf: bool,
    /// The seed, in place of the study's.
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// Exactly this many replications of every point.
    #[arg(long, value_name = "N")]
    pub(crate) replications: Option<NonZeroU32>,
    /// How many replications run at once [default: one per core, on the lab one less, with --threads one per two cores].
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Let up to N threads share one replication that can be divided and is not captured; it changes no row. For a long run of
    /// thousands of hosts: two are used, one for the hosts that ask and one for the others [default: 1].
    #[arg(long, value_name = "N", conflicts_with_all = ["on", "lab", "backend"])]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Have a cluster compute the replications, by the Python package usher: the rows are the same.
    #[arg(long, value_enum, value_name = "ENGINE", conflicts_with_all = [
        "on", "lab", "kernel", "perf", "pcap", "ladder", "live_report", "dry_run", "point", "replication",
    ])]
    pub(crate) backend: Option<ClusterEngine>,
    /// Where the cluster is, such as tcp://head:8786 [default: one that is started on this machine].
    #[arg(long, requires = "backend")]
    pub(crate) address: Option<String>,
    /// Other values for an axis, or another value for a setting by its path; may be repeated.
    #[arg(long, value_name = "AXIS=VALUES")]
    pub(crate) set: Vec<String>,
    /// Capture every point's first replication: this link, of the studies that have it, or those that the study names.
    #[arg(long, value_name = "LINK", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) pcap: Vec<String>,
    /// Draw the messages of one dialogue between the hosts, of the first replication at each of the study's cases, as SVG and
    /// text into the folder's ladders and into the report; with --point, print those of that replication.
    #[arg(long)]
    pub(crate) ladder: bool,
    /// Put the simulator into the report, as a module for browsers: its reader moves the axes and runs points there.
    #[arg(long, conflicts_with_all = ["on", "lab", "dry_run", "point"])]
    pub(crate) live_report: bool,
    /// The folder for the results [default: out/NAME-MODE]; with several studies, a folder each in it and a report
    /// of all.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Begin anew in a folder that holds an earlier run.
    #[arg(long)]
    pub(crate) force: bool,
    /// Run nothing: say how many points and replications there are, and about how long they take.
    #[arg(long, conflicts_with_all = ["pcap", "ladder", "force", "point"])]
    pub(crate) dry_run: bool,
    /// Run one replication of one point, and print its metrics.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["force", "replications", "jobs"])]
    pub(crate) point: Option<String>,
    /// Which replication of the point, from 0 [default: 0].
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
