//! The client of the control socket.

use crate::{ControlReply, ControlRequest};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a request has no reply.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No server listens on the socket.
    #[error("no server is running (cannot connect to {}: {error}); start it with: usher aaa serve", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The connection failed.
    #[error("the server stopped answering: {0}")]
    Lost(#[from] io::Error),
    /// The reply cannot be parsed.
    #[error("unexpected reply from the server ({0}); check that it has the version of this program")]
    Strange(#[from] serde_json::Error),
    /// The server could not carry out the request.
    #[error("{0}")]
    Failed(String),
}

fn send_request(path: &Path, request: &ControlRequest) -> Result<BufReader<UnixStream>, ControlError> {
    let mut stream = UnixStream::connect(path)
        .map_err(|error| ControlError::NotRunning { path: path.to_owned(), error })?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(BufReader::new(stream))
}

fn read_reply(reader: &mut BufReader<UnixStream>) -> Result<Option<ControlReply>, ControlError> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    match serde_json::from_str(&line)? {
        ControlReply::Failed { message } => Err(ControlError::Failed(message)),
        answer => Ok(Some(answer)),
    }
}

/// Sends a request and returns its reply.
///
/// # Errors
/// No server runs, or it could not carry out the request.
pub fn request_reply(path: &Path, request: &ControlRequest) -> Result<ControlReply, ControlError> {
    let mut reader = send_request(path, request)?;
    reader.get_ref().set_read_timeout(Some(Duration::from_secs(60)))?;
    read_reply(&mut reader)?.ok_or_else(|| ControlError::Lost(io::ErrorKind::UnexpectedEof.into()))
}

/// Sends a request and passes each reply to `each`, until `each` returns false or the server closes the connection.
///
/// # Errors
/// No server runs, or it could not carry out the request.
pub fn follow_replies(
    path: &Path,
    request: &ControlRequest,
    each: &mut dyn FnMut(ControlReply) -> bool,
) -> Result<(), ControlError> {
    let mut reader = send_request(path, request)?;
    while let Some(answer) = read_reply(&mut reader)? {
        if !each(answer) {
            break;
        }
    }
    Ok(())
}
