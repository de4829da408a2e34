//! Sequence numbers compare modulo 2³² (RFC 9293 §3.4): each is "before" the 2³¹ that follow it.

/// `a` comes before `b`.
pub(crate) const fn lt(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
/// `a` comes before `b` or is `b`.
pub(crate) const fn le(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) <= 0
}
/// The later of two.
pub(crate) const fn max(a: u32, b: u32) -> u32 {
    if lt(a, b) { b } else { a }
}
/// The earlier of two.
pub(crate) const fn min(a: u32, b: u32) -> u32 {
    if lt(a, b) { a } else { b }
}
/// How far `to` lies beyond `from`; zero where it does not.
pub(crate) const fn octets_ahead(from: u32, to: u32) -> u32 {
    if lt(from, to) { to.wrapping_sub(from) } else { 0 }
}
