//! A proxy between a NAS and home servers, in virtual time: RADIUS, RadSec and Diameter.

mod diameter_home;
mod filter;
mod homes;
mod translation;
mod world;
