//! The native module of the Python package `usher`: studies, plans, runs and their results, as Python's objects.
//!
//! Python's users see the package in `python/usher`. Its classes wrap the objects of this module, which need the
//! simulator. Slow functions let other threads of Python run meanwhile.

mod arrow;
mod faults;
mod judge;
mod results;
mod run;
mod sizing;
mod study;

use pyo3::prelude::*;

/// The interface for the package's own modules. It may change without notice.
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
