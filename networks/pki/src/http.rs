//! What authorities publish and answer comes by HTTP: without redirects and proxies, bounded in time and octets.

use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body, Error};

/// An agent that gives up after `timeout`, whatever it waits for.
pub(crate) fn http_agent(timeout: Duration) -> Agent {
    Agent::config_builder().timeout_global(Some(timeout)).max_redirects(0).proxy(None).build().into()
}

/// The octets of an answer of status 200, at most `longest` of them.
///
/// # Errors
/// Says what came instead.
pub(crate) fn body_octets(answer: Result<Response<Body>, Error>, longest: u64) -> Result<Vec<u8>, String> {
    let mut answer = answer.map_err(|e| e.to_string())?;
    if answer.status().as_u16() != 200 {
        return Err(format!("HTTP status {}", answer.status()));
    }
    answer.body_mut().with_config().limit(longest).read_to_vec().map_err(|e| e.to_string())
}
