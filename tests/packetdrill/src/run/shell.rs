//! The shell commands that scripts use, answered from the host's state.

use super::ScriptFailure;
use super::tcp::{LOCAL_PORT, REMOTE_PORT, TcpSocket};
use super::world::FileSocket;
use super::world::TestedHost;
use usher_sim::tcp::{FastOpenCache, TcpState};

/// Returns a state's name as in `sockstat` and `tcpdrop`.
pub(super) fn state_name(socket: &TcpSocket) -> &'static str {
    match socket.connection.as_ref().map(|c| c.state()) {
        _ if socket.listening => "LISTEN",
        None | Some(TcpState::Closed) => "CLOSED",
        Some(TcpState::SynSent) => "SYN_SENT",
        Some(TcpState::SynReceived) => "SYN_RCVD",
        Some(TcpState::Established) => "ESTABLISHED",
        Some(TcpState::FinWait1) => "FIN_WAIT_1",
        Some(TcpState::FinWait2) => "FIN_WAIT_2",
        Some(TcpState::CloseWait) => "CLOSE_WAIT",
        Some(TcpState::Closing) => "CLOSING",
        Some(TcpState::LastAck) => "LAST_ACK",
        Some(TcpState::TimeWait) => "TIME_WAIT",
    }
}

impl TestedHost {
    /// Runs pipelines of commands. A failure is a divergence.
    pub(super) fn run_shell(&mut self, text: &str) -> Result<(), ScriptFailure> {
        for line in text.split(['\n', ';']).flat_map(|l| l.split("&&")) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut piped = Vec::new();
            let mut succeeded = true;
            for command in line.split('|') {
                let words: Vec<&str> = command.split_whitespace().collect();
                (piped, succeeded) = self.run_command(&words, &piped)?;
            }
            if !succeeded {
                return Err(ScriptFailure::Diverges(format!("`{line}` fails")));
            }
        }
        self.collect_sent();
        Ok(())
    }

    /// Runs one command on its input. Returns its output and success.
    fn run_command(
        &mut self,
        words: &[&str],
        piped: &[String],
    ) -> Result<(Vec<String>, bool), ScriptFailure> {
        let unknown = || ScriptFailure::Unsupported(format!("the command `{}`", words.join(" ")));
        let (program, args) = words.split_first().ok_or_else(unknown)?;
        match *program {
            "sysctl" => {
                for setting in args.iter().filter(|a| !a.starts_with('-')) {
                    let (name, value) = setting.split_once('=').ok_or_else(unknown)?;
                    self.settings.set_sysctl(name, value)?;
                    if !self.settings.fast_open_client {
                        // FreeBSD then clears its cookies.
                        self.tcp.fast_open = FastOpenCache::default();
                    }
                }
                Ok((Vec::new(), true))
            }
            "grep" => {
                let pattern = args.iter().find(|a| !a.starts_with('-')).ok_or_else(unknown)?;
                let known = ["-c", "-v", "-q", "-F", "-w"];
                if args.iter().any(|a| a.starts_with('-') && !known.contains(a)) {
                    return Err(unknown());
                }
                let pattern = pattern.trim_matches(['\'', '"']);
                let keeps = |line: &&String| line.contains(pattern) != args.contains(&"-v");
                let found: Vec<String> = piped.iter().filter(keeps).cloned().collect();
                let succeeded = !found.is_empty();
                let shown = if args.contains(&"-c") { vec![found.len().to_string()] } else { found };
                Ok((shown, succeeded))
            }
            "sockstat" => self.list_sockets(args).ok_or_else(unknown).map(|lines| (lines, true)),
            "tcpdrop" => match args {
                ["-s", state] => {
                    let all = 0..self.tcp.sockets.len();
                    let meant: Vec<usize> =
                        all.filter(|&i| state_name(&self.tcp.sockets[i]) == *state).collect();
                    for i in meant {
                        self.tcp.abort(self.now, i);
                    }
                    Ok((Vec::new(), true))
                }
                ["-a"] => {
                    for i in 0..self.tcp.sockets.len() {
                        self.tcp.abort(self.now, i);
                    }
                    Ok((Vec::new(), true))
                }
                _ => Err(unknown()),
            },
            "true" | "sync" => Ok((Vec::new(), true)),
            _ => Err(unknown()),
        }
    }

    /// Lists the sockets as FreeBSD's `sockstat`. `None` for unknown options.
    fn list_sockets(&self, args: &[&str]) -> Option<Vec<String>> {
        let (mut family, mut port) = (None, None);
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match *arg {
                "-4" => family = Some(false),
                "-6" => family = Some(true),
                "-s" | "-n" => {}
                "-P" if *rest.next()? == "tcp" => {}
                "-p" => port = Some(rest.next()?.parse::<u16>().ok()?),
                _ => return None,
            }
        }
        let meant = family.is_none_or(|six| six == self.settings.ipv6)
            && port.is_none_or(|p| p == LOCAL_PORT || p == REMOTE_PORT);
        let held = |i: usize| {
            self.files
                .iter()
                .find(|(_, f)| matches!(f.socket, FileSocket::Tcp(s) if s == i))
                .map(|(fd, _)| *fd)
        };
        let line = |(i, s): (usize, &TcpSocket)| {
            let state = state_name(s);
            let fd = held(i);
            // Closed sockets without an application are not listed.
            if !meant || (fd.is_none() && state == "CLOSED") {
                return None;
            }
            let owner = fd.map_or("? ? ? ?".to_owned(), |fd| format!("root packetdril 1 {fd}"));
            let kind = if self.settings.ipv6 { "tcp6" } else { "tcp4" };
            Some(format!("{owner} {kind} local:{LOCAL_PORT} remote:{REMOTE_PORT} {state}"))
        };
        Some(self.tcp.sockets.iter().enumerate().filter_map(line).collect())
    }
}
