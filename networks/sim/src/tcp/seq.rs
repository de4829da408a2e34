//! Sequence number comparison modulo 2³² (RFC 9293 §3.4): each number is "before" the 2³¹ that follow it.

/// True if `a` comes before `b`.
pub(crate) const fn lt(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
/// True if `a` comes before `b` or equals it.
pub(crate) const fn le(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) <= 0
}
/// Returns the later of two.
pub(crate) const fn max(a: u32, b: u32) -> u32 {
    if lt(a, b) { b } else { a }
}
/// Returns the earlier of two.
pub(crate) const fn min(a: u32, b: u32) -> u32 {
    if lt(a, b) { a } else { b }
}
/// Returns the distance of `to` beyond `from`; zero if it is not beyond.
pub(crate) const fn octets_ahead(from: u32, to: u32) -> u32 {
    if lt(from, to) { to.wrapping_sub(from) } else { 0 }
}
