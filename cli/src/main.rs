//! The `usher` program: what the user typed, handed to the rooms below, and what they say, printed.

#[cfg(feature = "live")]
mod aaa;
mod args;
mod claims;
mod common_args;
mod config;
#[cfg(feature = "live")]
mod ident;
#[cfg(feature = "live")]
mod ike;
mod lab;
#[cfg(feature = "live")]
mod load;
mod man;
#[cfg(feature = "live")]
mod mih;
mod output;
#[cfg(test)]
mod pages;
#[cfg(feature = "live")]
mod plan;
#[cfg(feature = "live")]
mod pppoe;
mod progress;
#[cfg(feature = "live")]
mod service;
#[cfg(feature = "live")]
mod session_id;
mod study;
mod verify;

use args::{CliArguments, ConfigCommand, StudyCommand, UsherCommand};
use clap::{CommandFactory, Parser};
use output::{CommandFailure, ConsoleOutput};
use std::process::ExitCode;

/// The server and the simulator alike allocate some tens of small pieces a login: the system's allocator takes a seventh of
/// what a login by Diameter costs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match CliArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(said) => {
            let code = u8::try_from(said.exit_code()).unwrap_or(2);
            let described = describe_usage_error(&said);
            if code != 0 && std::env::args().any(|word| word == "--json") {
                let message = described.unwrap_or_else(|| said.to_string()).trim_end().to_owned();
                ConsoleOutput::JSON.print_failure(&CommandFailure { code, message });
            } else if let Some(text) = described {
                eprint!("{text}");
            } else {
                // clap also reports help and version as errors, with exit code 0. A write error is ignored: the reader
                // may have gone.
                let _ = said.print();
            }
            return ExitCode::from(code);
        }
    };
    let output = ConsoleOutput::new(&arguments.common);
    match dispatch_command(arguments.command, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.print_failure(&failure);
            ExitCode::from(failure.code)
        }
    }
}

/// Returns the text of a usage error about a value that a parser of the standard library refused, in our words.
fn describe_usage_error(said: &clap::Error) -> Option<String> {
    let text = said.to_string();
    let (first, rest) = text.split_once('\n')?;
    let (value, reason) = first.rsplit_once("': ")?;
    let ours = usher_config::describe_parse_error(reason)?;
    (said.kind() == clap::error::ErrorKind::ValueValidation).then(|| format!("{value}': {ours}\n{rest}"))
}

fn dispatch_command(command: UsherCommand, output: &ConsoleOutput) -> Result<(), CommandFailure> {
    match command {
        UsherCommand::Study { command } => match command {
            StudyCommand::List => study::list_studies(output),
            StudyCommand::Show { name, toml } => study::show_study(output, &name, toml),
            StudyCommand::New { file, kind } => study::new(output, &file, &kind),
            StudyCommand::Check { files } => study::check_studies(output, &files),
            StudyCommand::Run(run) => study::run_studies(output, &run),
            StudyCommand::Compare { a, b, out } => study::compare_runs(output, &a, &b, out.as_deref()),
        },
        UsherCommand::Verify { filter, automata: true, dot, .. } => {
            verify::print_automata(output, filter, dot)
        }
        UsherCommand::Verify { filter, list, .. } => {
            let oracles = usher_verify::oracles();
            if list {
                verify::list_oracles(output, &oracles, filter)
            } else {
                verify::run_oracles(output, &oracles, filter)
            }
        }
        UsherCommand::Claims { dir } => claims::judge_claims(output, dir.as_deref()),
        #[cfg(feature = "live")]
        UsherCommand::Aaa { command } => aaa::run_aaa_command(output, *command),
        #[cfg(feature = "live")]
        UsherCommand::Ident { command } => ident::run_ident_command(output, command),
        #[cfg(feature = "live")]
        UsherCommand::Ike { command } => ike::run_ike_command(output, *command),
        #[cfg(feature = "live")]
        UsherCommand::Mih { command } => mih::run_mih_command(output, *command),
        #[cfg(feature = "live")]
        UsherCommand::Pppoe { command } => pppoe::run_pppoe_command(output, *command),
        #[cfg(feature = "live")]
        UsherCommand::Who(args) => pppoe::find_subscriber(output, args),
        UsherCommand::Lab { command } => lab::run_lab_command(output, command),
        #[cfg(feature = "live")]
        UsherCommand::Load { command } => load::run_load(output, &command),
        #[cfg(feature = "live")]
        UsherCommand::Plan(plan) => plan::run_plan(output, &plan),
        UsherCommand::Config { command: ConfigCommand::Upgrade { files, write } } => {
            config::upgrade_files(output, &files, write)
        }
        UsherCommand::Man { dir } => man::write_man_pages(output, &dir),
        UsherCommand::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut completion_command(), "usher", &mut script);
            output.print_text(&String::from_utf8_lossy(&script))?;
            // The fish script that clap generates does not complete values of positional arguments.
            if shell == clap_complete::Shell::Fish {
                output.print_text(&fish_study_completions())
            } else {
                Ok(())
            }
        }
    }
}

/// The names of studies that come with the program.
fn study_names() -> Vec<&'static str> {
    usher_scenario::founding::founding_studies().iter().map(|study| study.name).collect()
}

/// Completes the names of studies in fish, by what clap's script defines.
fn fish_study_completions() -> String {
    format!(
        "complete -c usher -n \"__fish_usher_using_subcommand study; and __fish_seen_subcommand_from run check show\" -a \"{}\"\n",
        study_names().join(" ")
    )
}

/// The command line with the names of studies where such are asked for, for a shell to complete.
fn completion_command() -> clap::Command {
    let names = study_names();
    let known = |command: clap::Command, argument: &'static str| {
        let parser = clap::builder::PossibleValuesParser::new(names.clone());
        command.mut_arg(argument, |argument| argument.value_parser(parser))
    };
    CliArguments::command().mut_subcommand("study", |study| {
        let study = study.mut_subcommand("run", |run| known(run, "names"));
        let study = study.mut_subcommand("check", |check| known(check, "files"));
        study.mut_subcommand("show", |show| known(show, "name"))
    })
}
