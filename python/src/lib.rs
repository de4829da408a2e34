//! The native module of the Python package `usher`: studies, plans, runs and their results, as Python's objects.
//!
//! What Python's users see stands in `python/usher`, whose classes have these within them; here is what needs the simulator.
//! Everything that takes time lets other threads of Python run meanwhile.

mod arrow;
mod faults;
mod judge;
mod results;
mod run;
mod sizing;
mod study;

use pyo3::prelude::*;

/// What the package's own modules use; nothing here is promised to others.
#[pymodule]
mod _native {
    use super::{Bound, PyModule, PyResult};
    use pyo3::types::PyModuleMethods;

    #[pymodule_export]
    use super::judge::{claims, verify};
    #[pymodule_export]
    use super::results::Results;
    #[pymodule_export]
    use super::run::{Stop, run};
    #[pymodule_export]
    use super::sizing::size;
    #[pymodule_export]
    use super::study::{Plan, Study, build, founding};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
