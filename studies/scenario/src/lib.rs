//! Study files: from TOML to a plan, a grid of points and the runs.
