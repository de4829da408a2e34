//! Stations, access servers and AAA servers in one virtual world.

mod build;
mod connections;
mod diameter;
mod keyed;
mod noise;
mod password;
mod pkm;
mod radius_md5;
mod tls;
mod world;
