//! Live drivers: machines on real sockets (UDP in batches, TCP, TLS), a thread for each shard.
