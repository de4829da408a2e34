//! Stations, access servers and AAA servers in one virtual world.

mod accounting;
mod anonymous;
mod asked;
mod bounds;
mod build;
mod connections;
mod diameter;
mod handover;
mod held_back;
mod keyed;
mod limits;
mod methods;
mod noise;
mod pair;
mod password;
mod peers;
mod pkm;
mod radius_md5;
mod resumption;
mod rules;
mod sequences;
mod tls;
mod told_apart;
mod traces;
mod tunnels;
mod world;
