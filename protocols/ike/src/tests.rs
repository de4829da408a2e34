pub(crate) mod arbitrary;
pub(crate) mod captured;
mod codec;
mod keys;
mod networks;
mod protect;
mod suite;

pub(crate) use captured::octets_from_hex;
