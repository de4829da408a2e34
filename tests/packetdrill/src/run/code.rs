//! Code between `%{` and `}%`: assertions about the state of the last TCP connection.

use super::ScriptFailure;
use super::shell::state_name;
use super::world::{FileSocket, TestedHost};

impl TestedHost {
    /// Checks each assertion.
    pub(super) fn check_code(&self, text: &str) -> Result<(), ScriptFailure> {
        for line in text.split(['\n', ';']).map(str::trim) {
            if line.is_empty() || line.starts_with('#') || line.starts_with("import ") {
                continue;
            }
            let unknown = || ScriptFailure::Unsupported(format!("the code `{line}`"));
            let condition = line.strip_prefix("assert").ok_or_else(unknown)?;
            // The text after a comma is a message.
            let condition = condition.split(',').next().unwrap_or("").trim();
            let condition = condition.trim_start_matches('(').trim_end_matches(')');
            for part in condition.split(" and ") {
                self.check_assertion(part.trim()).ok_or_else(unknown)??;
            }
        }
        Ok(())
    }

    fn check_assertion(&self, text: &str) -> Option<Result<(), ScriptFailure>> {
        let operators = ["==", "!=", "<=", ">=", "<", ">"];
        let (operator, at) = operators.iter().find_map(|op| text.find(op).map(|at| (*op, at)))?;
        let (left, right) = (text[..at].trim(), text[at + operator.len()..].trim());
        let (is, wanted) = (self.term_value(left)?, self.term_value(right)?);
        let holds = match operator {
            "==" => is == wanted,
            "!=" => is != wanted,
            "<=" => is <= wanted,
            ">=" => is >= wanted,
            "<" => is < wanted,
            _ => is > wanted,
        };
        Some(if holds {
            Ok(())
        } else {
            Err(ScriptFailure::Diverges(format!(
                "`{text}` does not hold: {left} is {is}, {right} is {wanted}"
            )))
        })
    }

    /// Returns the number of a term. States have the numbers of Linux's `tcp_info`.
    fn term_value(&self, term: &str) -> Option<i64> {
        const STATES: [&str; 12] = [
            "",
            "ESTABLISHED",
            "SYN_SENT",
            "SYN_RECEIVED",
            "FIN_WAIT_1",
            "FIN_WAIT_2",
            "TIME_WAIT",
            "CLOSED",
            "CLOSE_WAIT",
            "LAST_ACK",
            "LISTEN",
            "CLOSING",
        ];
        let number = |name: &str| STATES.iter().position(|s| *s == name).map(|n| n as i64);
        if let Ok(n) = term.parse() {
            return Some(n);
        }
        if let Some(state) = term.strip_prefix("TCPI_") {
            return number(if state == "SYN_RCVD" { "SYN_RECEIVED" } else { state });
        }
        let last = self.files.values().rev().find_map(|f| match f.socket {
            FileSocket::Tcp(i) => Some(&self.tcp.sockets[i]),
            FileSocket::Sctp(_) => None,
        })?;
        let connection = last.connection.as_ref();
        let micros = |d: usher_core::Duration| d.as_micros() as i64;
        Some(match term {
            "tcpi_state" => {
                let name = state_name(last);
                number(if name == "SYN_RCVD" { "SYN_RECEIVED" } else { name })?
            }
            "tcpi_options" => {
                let (timestamps, sack, scale) = connection?.negotiated_options();
                i64::from(timestamps) | i64::from(sack) << 1 | i64::from(scale) << 2
            }
            "tcpi_rto" => micros(connection?.rto()),
            "tcpi_rtt" => micros(connection?.srtt().unwrap_or_default()),
            "tcpi_snd_mss" => connection?.mss().into(),
            "tcpi_snd_cwnd" => connection?.cwnd().into(),
            "tcpi_snd_ssthresh" => connection?.ssthresh().into(),
            "tcpi_snd_wnd" => connection?.peer_window().into(),
            _ => return None,
        })
    }
}
