//! `usher aaa`: the AAA server and its administration.

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

use crate::output::{CommandFailure, ConsoleOutput};
use args::{AaaCommand, AaaConfigArgs};
use usher_aaa_daemon::control::{self, ControlError, ControlReply, ControlRequest};
use usher_aaa_daemon::{InstallationError, ServerInstallation};

pub(crate) fn run_aaa_command(output: &ConsoleOutput, command: AaaCommand) -> Result<(), CommandFailure> {
    match command {
        AaaCommand::Serve(config) => serve::serve_aaa(output, &config),
        AaaCommand::Check { file, connect } => serve::check_aaa_config(output, file.as_deref(), connect),
        AaaCommand::User { command } => user::run_user_command(output, command),
        AaaCommand::Group { command } => group::run_group_command(output, command),
        AaaCommand::Schema => output.print_text(&usher_store::postgres_script()),
        AaaCommand::Client { command } => client::run_client_command(output, command),
        AaaCommand::Session { command } => session::run_session_command(output, command),
        AaaCommand::Cert(command) => cert::run_cert_command(output, &command),
        AaaCommand::Status(config) => running::show_status(output, &config),
        AaaCommand::Reload(config) => running::reload_server(output, &config),
        AaaCommand::Trace(trace) => running::follow_trace(output, &trace),
        AaaCommand::Test(test) => test::run_login_test(output, &test),
    }
}

/// Opens the configuration and the paths that it names.
fn open_installation(config: &AaaConfigArgs) -> Result<ServerInstallation, CommandFailure> {
    ServerInstallation::from_config(config.config.as_deref()).map_err(|error| match error {
        InstallationError::Config(_) => CommandFailure::usage_error(error),
        error => CommandFailure::runtime_error(error),
    })
}

/// Sends a request to the running server.
fn query_aaa_server(
    place: &ServerInstallation,
    request: &ControlRequest,
) -> Result<ControlReply, CommandFailure> {
    control::request_reply(&place.control_socket(), request).map_err(CommandFailure::runtime_error)
}

/// Notifies the running server, if there is one. Its reply is printed as a note.
fn notify_aaa_server(output: &ConsoleOutput, place: &ServerInstallation, request: &ControlRequest) {
    match control::request_reply(&place.control_socket(), request) {
        Ok(_) | Err(ControlError::NotRunning { .. }) => {}
        Err(error) => output.print_note(&format!("cannot notify the running server: {error}")),
    }
}
