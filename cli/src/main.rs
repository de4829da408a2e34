//! The `usher` program: what the user typed, handed to the rooms below, and what they say, printed.

#[cfg(feature = "live")]
mod aaa;
mod args;
mod claims;
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

use args::{Arguments, Command, ConfigCommand, StudyCommand};
use clap::{CommandFactory, Parser};
use output::{Failure, Output};
use std::process::ExitCode;

/// The server and the simulator alike allocate some tens of small pieces a login: the system's allocator takes a seventh of
/// what a login by Diameter costs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(said) => {
            let code = u8::try_from(said.exit_code()).unwrap_or(2);
            if code != 0 && std::env::args().any(|word| word == "--json") {
                Output::JSON.failure(&Failure { code, message: said.to_string().trim_end().to_owned() });
            } else {
                // Help and version come this way too, with exit code 0. A reader that went away is no fault.
                let _ = said.print();
            }
            return ExitCode::from(code);
        }
    };
    let output = Output::new(&arguments.common);
    match dispatch(arguments.command, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Study { command } => match command {
            StudyCommand::List => study::list(output),
            StudyCommand::Show { name, toml } => study::show(output, &name, toml),
            StudyCommand::New { file, kind } => study::new(output, &file, &kind),
            StudyCommand::Check { files } => study::check(output, &files),
            StudyCommand::Run(run) => study::run(output, &run),
            StudyCommand::Compare { a, b, out } => study::compare(output, &a, &b, out.as_deref()),
        },
        Command::Verify { filter, automata: true, dot, .. } => verify::automata(output, filter, dot),
        Command::Verify { filter, list, .. } => {
            let oracles = usher_verify::oracles();
            if list { verify::list(output, &oracles, filter) } else { verify::run(output, &oracles, filter) }
        }
        Command::Claims { dir } => claims::claims(output, dir.as_deref()),
        #[cfg(feature = "live")]
        Command::Aaa { command } => aaa::aaa(output, *command),
        #[cfg(feature = "live")]
        Command::Ident { command } => ident::ident(output, command),
        #[cfg(feature = "live")]
        Command::Ike { command } => ike::ike(output, *command),
        #[cfg(feature = "live")]
        Command::Mih { command } => mih::mih(output, *command),
        #[cfg(feature = "live")]
        Command::Pppoe { command } => pppoe::pppoe(output, *command),
        #[cfg(feature = "live")]
        Command::Who(args) => pppoe::who(output, args),
        Command::Lab { command } => lab::lab(output, command),
        #[cfg(feature = "live")]
        Command::Load { command } => load::load(output, &command),
        #[cfg(feature = "live")]
        Command::Plan(plan) => plan::plan(output, &plan),
        Command::Config { command: ConfigCommand::Upgrade { files, write } } => {
            config::upgrade(output, &files, write)
        }
        Command::Man { dir } => man::man(output, &dir),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut completed(), "usher", &mut script);
            output.text(&String::from_utf8_lossy(&script))?;
            // clap's script for fish has no values of arguments without an option.
            if shell == clap_complete::Shell::Fish { output.text(&studies_for_fish()) } else { Ok(()) }
        }
    }
}

/// The names of studies that come with the program.
fn studies() -> Vec<&'static str> {
    usher_scenario::founding::all().iter().map(|study| study.name).collect()
}

/// Completes the names of studies in fish, by what clap's script defines.
fn studies_for_fish() -> String {
    format!(
        "complete -c usher -n \"__fish_usher_using_subcommand study; and __fish_seen_subcommand_from run check show\" -a \"{}\"\n",
        studies().join(" ")
    )
}

/// The command line with the names of studies where such are asked for, for a shell to complete.
fn completed() -> clap::Command {
    let names = studies();
    let known = |command: clap::Command, argument: &'static str| {
        let parser = clap::builder::PossibleValuesParser::new(names.clone());
        command.mut_arg(argument, |argument| argument.value_parser(parser))
    };
    Arguments::command().mut_subcommand("study", |study| {
        let study = study.mut_subcommand("run", |run| known(run, "names"));
        let study = study.mut_subcommand("check", |check| known(check, "files"));
        study.mut_subcommand("show", |show| known(show, "name"))
    })
}
