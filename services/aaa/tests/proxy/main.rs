//! A proxy between a NAS and home servers, in virtual time: RADIUS, RadSec and Diameter.

mod homes;
mod translation;
mod world;
