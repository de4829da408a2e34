//! The deterministic network simulator: events, links, IP, UDP, TCP, hosts and CPUs.
