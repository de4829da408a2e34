//! Data planes between network namespaces: a host, the concentrator and a server elsewhere. Root may make them.

mod attack;
mod carry;
mod netfilter;
mod place;

/// Or eBPF mode would go untested where clang is missing.
#[test]
#[cfg(feature = "ebpf")]
fn ebpf_mode_was_compiled() {
    assert!(
        usher_pppoe::HAS_EBPF_MODE,
        "install clang (scripts/setup test does), then cargo clean -p usher-pppoe"
    );
}
