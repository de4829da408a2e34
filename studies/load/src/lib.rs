//! The load generator: users who log in on real sockets, and what that shows.
