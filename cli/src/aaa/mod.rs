//! `usher aaa`: the AAA server and what an operator does with it.

pub(crate) mod args;
mod cert;
mod client;
mod group;
mod import;
mod running;
mod secret;
mod serve;
mod session;
mod test;
mod user;

use crate::output::{Failure, Output};
use args::{AaaCommand, Config};
use usher_control::{self as control, Answer, ControlError, Request};
use usher_daemon::{Installation, InstallationError};

pub(crate) fn aaa(output: &Output, command: AaaCommand) -> Result<(), Failure> {
    match command {
        AaaCommand::Serve(config) => serve::serve(output, &config),
        AaaCommand::Check { file, connect } => serve::check(output, file.as_deref(), connect),
        AaaCommand::User { command } => user::user(output, command),
        AaaCommand::Group { command } => group::group(output, command),
        AaaCommand::Schema => output.text(&usher_store::postgres_script()),
        AaaCommand::Client { command } => client::client(output, command),
        AaaCommand::Session { command } => session::session(output, command),
        AaaCommand::Cert(command) => cert::cert(output, &command),
        AaaCommand::Status(config) => running::status(output, &config),
        AaaCommand::Reload(config) => running::reload(output, &config),
        AaaCommand::Trace(trace) => running::trace(output, &trace),
        AaaCommand::Test(test) => test::test(output, &test),
    }
}

/// The configuration, and where things are.
fn place(config: &Config) -> Result<Installation, Failure> {
    Installation::open(config.config.as_deref()).map_err(|error| match error {
        InstallationError::Config(_) => Failure::usage(error),
        error => Failure::failed(error),
    })
}

/// Asks the running server.
fn ask(place: &Installation, request: &Request) -> Result<Answer, Failure> {
    control::ask(&place.control_socket(), request).map_err(Failure::failed)
}

/// Tells the running server, where there is one; what it says is a note.
fn tell(output: &Output, place: &Installation, request: &Request) {
    match control::ask(&place.control_socket(), request) {
        Ok(_) | Err(ControlError::NotRunning { .. }) => {}
        Err(error) => output.note(&format!("the running server was not told: {error}")),
    }
}
