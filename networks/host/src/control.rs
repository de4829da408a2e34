//! The control socket of a service: a Unix socket that only its owner can open. Each request and each answer is one
//! line of JSON.

use crate::bounded_listener::REST;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The number of connections at one time.
const CONNECTIONS: usize = 16;
/// The octets of one request, at most.
const REQUEST: usize = 1 << 16;
/// The time limit for receiving a request, and for sending an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks that no other server listens at `path`.
///
/// # Errors
/// Another server listens there.
pub fn ensure_control_socket_unused(path: &Path) -> io::Result<()> {
    if UnixStream::connect(path).is_ok() {
        let said = format!("another server listens on {}; stop it first", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, said));
    }
    Ok(())
}

/// Listens at a path. Replaces a stale socket on which no server listens.
///
/// Other users can never open the socket. It is created in a folder that only its owner can enter, and moves to its
/// path after its mode is set. (A umask would affect all threads.) The folder's name has the socket's name and the
/// process id, so servers can start side by side.
///
/// # Errors
/// An error of the system, or a file that cannot be created.
pub fn bind_control_socket(path: &Path) -> io::Result<UnixListener> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot create the socket {}: {error}", path.display()))
    };
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // Another process with this id may have died and left a folder of the same name, so remove that first.
    name.push(format!(".{}", std::process::id()));
    let folder = path.with_file_name(name);
    let new = folder.join("new");
    for (gone, path) in [(fs::remove_file(&new), &new), (fs::remove_dir(&folder), &folder)] {
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(path, error)),
            _ => {}
        }
    }
    fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|error| named(&folder, error))?;
    let made = UnixListener::bind(&new).and_then(|listener| {
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        Ok(listener)
    });
    if made.is_err() {
        // An error is ignored: if creating the file failed, there is none to remove.
        let _ = fs::remove_file(&new);
    }
    let emptied = fs::remove_dir(&folder).map_err(|error| named(&folder, error));
    let listener = made.map_err(|error| named(path, error))?;
    emptied?;
    Ok(listener)
}

/// The user id of the peer, if the system provides it.
#[must_use]
pub fn peer_user_id(stream: &UnixStream) -> Option<u32> {
    rustix::net::sockopt::socket_peercred(stream).ok().map(|peer| peer.uid.as_raw())
}

/// Writes one answer as a line.
///
/// # Errors
/// The peer does not read it.
pub fn write_answer<A: Serialize>(mut stream: &UnixStream, answer: &A) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads one line within `patience`.
///
/// # Errors
/// The line does not arrive in time, or is too long.
pub fn read_line(mut stream: &UnixStream, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let (mut line, mut part) = (Vec::new(), [0; 4096]);
    while line.last() != Some(&b'\n') {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || line.len() > REQUEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            n => line.extend_from_slice(&part[..n]),
        }
    }
    Ok(line)
}

/// Accepts connections without end. Pauses when the system gives none, mostly for lack of descriptors.
pub fn accepted_connections(listener: &UnixListener) -> impl Iterator<Item = UnixStream> {
    listener.incoming().filter_map(|came| match came {
        Ok(stream) => Some(stream),
        Err(_) => {
            thread::sleep(REST);
            None
        }
    })
}

/// Starts to answer requests at a path, on threads that run until the program ends. `answer` receives a request and
/// the peer's user id, if the system provides it. `failed` makes an answer from an error in a request.
///
/// # Errors
/// Another server listens there, or the socket cannot be created.
pub fn serve_requests<Q, A>(
    path: &Path,
    failed: fn(String) -> A,
    answer: impl Fn(Q, Option<u32>) -> A + Send + Sync + 'static,
) -> io::Result<()>
where
    Q: DeserializeOwned,
    A: Serialize + 'static,
{
    ensure_control_socket_unused(path)?;
    let listener = bind_control_socket(path)?;
    let (answer, open) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let accept = move || {
        for stream in accepted_connections(&listener) {
            let (answer, open) = (answer.clone(), open.clone());
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                open.fetch_sub(1, Ordering::Relaxed);
                let said = failed(format!("{CONNECTIONS} requests are in progress; try again"));
                // A failed write is ignored, and the write does not block: a slow reader must not delay the accept
                // loop.
                let _ = stream.set_nonblocking(true).and_then(|()| write_answer(&stream, &said));
                continue;
            }
            let serve = move || {
                let served = stream
                    .set_write_timeout(Some(REQUEST_TIMEOUT))
                    .and_then(|()| read_line(&stream, REQUEST_TIMEOUT));
                let user = peer_user_id(&stream);
                let said = served.map(|line| match serde_json::from_slice(&line) {
                    Ok(request) => answer(request, user),
                    Err(error) => failed(format!("not a request: {error}")),
                });
                // An error is ignored: a peer that has disconnected needs no answer.
                let _ = said.and_then(|said| write_answer(&stream, &said));
                open.fetch_sub(1, Ordering::Relaxed);
            };
            let _ = thread::Builder::new().name("usher-control".to_owned()).spawn(serve);
        }
    };
    thread::Builder::new().name("usher-control".to_owned()).spawn(accept)?;
    Ok(())
}

/// Sends one request to a running service and returns its answer.
///
/// # Errors
/// No service answers at `path`, or its answer cannot be parsed.
pub fn send_request<Q: Serialize, A: DeserializeOwned>(path: &Path, request: &Q) -> io::Result<A> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write_answer(&stream, request)?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Like [`send_request`]. `what` names the service for messages, and `command` starts it.
///
/// # Errors
/// A sentence that says why there is no answer.
pub(crate) fn request_service<Q: Serialize, A: DeserializeOwned>(
    path: &Path,
    request: &Q,
    what: &str,
    command: &str,
) -> Result<A, String> {
    send_request(path, request).map_err(|error| {
        format!("no {what} is running (no answer at {}: {error}); start it with: {command}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_request_is_answered_and_what_is_none_is_refused() {
        let path = std::env::temp_dir().join(format!("usher-control-ask-{}.sock", std::process::id()));
        type TestAnswer = Result<(u32, Option<u32>), String>;
        serve_requests(&path, TestAnswer::Err, |n: u32, user| Ok((n + 1, user))).unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(send_request::<_, TestAnswer>(&path, &41).unwrap(), Ok((42, Some(own))));
        let refused = send_request::<_, TestAnswer>(&path, &"x").unwrap().unwrap_err();
        assert!(refused.starts_with("not a request: "), "{refused}");
        assert_eq!(ensure_control_socket_unused(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn nobody_else_reaches_the_socket_from_its_first_moment() {
        let folder = std::env::temp_dir().join(format!("usher-control-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control.sock");
        let (done, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // Between two attempts the file may be absent.
                    if let Ok(said) = fs::metadata(&path) {
                        assert_eq!(said.permissions().mode() & 0o777, 0o600);
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let mut times = 0;
            // Until the other thread has run, too.
            while !watch.is_finished() && (times < 2000 || seen.load(Ordering::Relaxed) < 100) {
                let listener = bind_control_socket(&path).unwrap();
                assert!(UnixStream::connect(&path).is_ok());
                drop(listener);
                fs::remove_file(&path).unwrap();
                times += 1;
            }
            // A dead server's leftover does not prevent a start.
            drop(bind_control_socket(&path).unwrap());
            let left = folder.join(format!(".control.sock.{}", std::process::id()));
            fs::create_dir(&left).unwrap();
            drop(UnixListener::bind(left.join("new")).unwrap());
            drop(bind_control_socket(&path).unwrap());
            done.store(true, Ordering::Relaxed);
            watch.join().unwrap();
        });
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn servers_with_sockets_beside_each_other_begin_at_one_time() {
        let folder = std::env::temp_dir().join(format!("usher-control-beside-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        thread::scope(|scope| {
            for name in ["one.sock", "two.sock"] {
                let path = folder.join(name);
                scope.spawn(move || {
                    for _ in 0..500 {
                        drop(bind_control_socket(&path).unwrap());
                    }
                });
            }
        });
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["one.sock", "two.sock"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_socket_that_cannot_be_made_is_named() {
        let path = std::env::temp_dir().join(format!("usher-control-none-{}/c.sock", std::process::id()));
        let error = bind_control_socket(&path).unwrap_err().to_string();
        assert!(error.contains(path.parent().unwrap().to_str().unwrap()), "{error}");
        // Longer than the address of a socket may be (unix(7)).
        let folder = std::env::temp_dir().join(format!("usher-control-long-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("s".repeat(100));
        let error = bind_control_socket(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_request_comes_within_its_time_or_not_at_all() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"\"Status\"\n").unwrap();
        assert_eq!(read_line(&near, Duration::from_secs(60)).unwrap(), b"\"Status\"\n");
        // One octet at a time, each well before a single read times out.
        let slow = thread::spawn(move || {
            while far.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let (begun, patience) = (Instant::now(), Duration::from_millis(300));
        assert!(read_line(&near, patience).is_err());
        assert!(begun.elapsed() >= patience);
        drop(near);
        slow.join().unwrap();
    }

    #[test]
    fn a_request_without_end_is_not_read_to_its_end() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let endless = thread::spawn(move || while far.write_all(&[b' '; 4096]).is_ok() {});
        assert!(read_line(&near, Duration::from_secs(600)).is_err());
        drop(near);
        endless.join().unwrap();
    }
}
