//! Tests of data planes between network namespaces: a host, the concentrator and a server. They need root.

mod attack;
mod carry;
mod netfilter;
mod place;

/// Otherwise eBPF mode would go untested without clang.
#[test]
#[cfg(feature = "ebpf")]
#[expect(clippy::assertions_on_constants, reason = "it is constant in a build, and not the same in each")]
fn ebpf_mode_was_compiled() {
    assert!(
        usher_pppoe::HAS_EBPF_MODE,
        "install clang (scripts/setup test does), then cargo clean -p usher-pppoe"
    );
}
