//! Runs a study: hosts built from roles, replications on the simulator, the grid on all cores.
