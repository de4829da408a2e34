//! HTTP to authorities: without redirects and proxies, with limits of time and octets.

use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body, Error};

/// Creates an agent that gives up after `timeout` in total.
pub(crate) fn http_agent(timeout: Duration) -> Agent {
    Agent::config_builder().timeout_global(Some(timeout)).max_redirects(0).proxy(None).build().into()
}

/// Returns the body of a response with status 200, at most `longest` octets.
///
/// # Errors
/// A description of the other response.
pub(crate) fn body_octets(answer: Result<Response<Body>, Error>, longest: u64) -> Result<Vec<u8>, String> {
    let mut answer = answer.map_err(|e| format!("no HTTP response: {e}"))?;
    if answer.status().as_u16() != 200 {
        return Err(format!("HTTP status {}", answer.status()));
    }
    answer
        .body_mut()
        .with_config()
        .limit(longest)
        .read_to_vec()
        .map_err(|e| format!("cannot read the HTTP response: {e}"))
}
