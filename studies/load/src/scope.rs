//! Addresses that may be loaded without a confirmation.

use std::fs;
use std::net::IpAddr;

/// True if load on this address affects only this machine: a loopback address, or any address from a network namespace
/// other than the system's first.
#[must_use]
pub fn is_own(address: IpAddr) -> bool {
    address.to_canonical().is_loopback() || is_in_network_namespace()
}

/// True in a network namespace other than that of the system's first process. False if that cannot be read without
/// privileges; the user must then confirm.
#[must_use]
pub fn is_in_network_namespace() -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    matches!((of("self"), of("1")), (Ok(own), Ok(first)) if own != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_ours() {
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(is_own(address.parse().unwrap()), "{address}");
        }
        assert_eq!(is_own("192.0.2.1".parse().unwrap()), is_in_network_namespace());
    }
}
