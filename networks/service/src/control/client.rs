//! The client of a control socket.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time limit of an answer. A reload of thousands of clients takes seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No server listens on the socket.
    #[error("no {} is running (cannot connect to {}: {error}); start it with: {}", service.name, path.display(), service.command)]
    NotRunning {
        /// The service.
        service: ControlService,
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The connection failed.
    #[error("the {} stopped answering: {error}", service.name)]
    Lost {
        /// The service.
        service: ControlService,
        /// The error of the system.
        error: io::Error,
    },
    /// The answer cannot be parsed.
    #[error("unexpected reply from the {} ({error}); check that it has the version of this program", service.name)]
    Unexpected {
        /// The service.
        service: ControlService,
        /// The error of the parser.
        error: serde_json::Error,
    },
    /// The service could not carry out the request.
    #[error("{0}")]
    Failed(String),
}

/// A service that has a control socket, by its words in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlService {
    /// Its name, such as `gateway`.
    pub name: &'static str,
    /// The command that starts it, such as `usher ike serve`.
    pub command: &'static str,
}

impl ControlService {
    fn connect<Q: Serialize>(self, path: &Path, request: &Q) -> Result<BufReader<UnixStream>, ControlError> {
        let mut stream = UnixStream::connect(path).map_err(|error| ControlError::NotRunning {
            service: self,
            path: path.to_owned(),
            error,
        })?;
        let mut line = serde_json::to_vec(request).map_err(|error| self.unexpected(error))?;
        line.push(b'\n');
        stream.write_all(&line).map_err(|error| self.lost(error))?;
        Ok(BufReader::new(stream))
    }

    const fn lost(self, error: io::Error) -> ControlError {
        ControlError::Lost { service: self, error }
    }

    const fn unexpected(self, error: serde_json::Error) -> ControlError {
        ControlError::Unexpected { service: self, error }
    }

    fn read_reply<A: DeserializeOwned>(
        self,
        reader: &mut BufReader<UnixStream>,
    ) -> Result<Option<A>, ControlError> {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).map_err(|error| self.lost(error))? == 0 {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).map_err(|error| self.unexpected(error))
    }

    /// Sends a request and returns its answer.
    ///
    /// # Errors
    /// [`ControlError`], but never [`ControlError::Failed`].
    pub fn request_reply<Q: Serialize, A: DeserializeOwned>(
        self,
        path: &Path,
        request: &Q,
    ) -> Result<A, ControlError> {
        let mut reader = self.connect(path, request)?;
        reader.get_ref().set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(|error| self.lost(error))?;
        self.read_reply(&mut reader)?.ok_or_else(|| self.lost(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Sends a request and passes each answer to `each`, until `each` returns false or the service closes the
    /// connection.
    ///
    /// # Errors
    /// [`ControlError`]; an error of `each`.
    pub fn follow_replies<Q: Serialize, A: DeserializeOwned>(
        self,
        path: &Path,
        request: &Q,
        each: &mut dyn FnMut(A) -> Result<bool, ControlError>,
    ) -> Result<(), ControlError> {
        let mut reader = self.connect(path, request)?;
        while let Some(answer) = self.read_reply(&mut reader)? {
            if !each(answer)? {
                break;
            }
        }
        Ok(())
    }
}
