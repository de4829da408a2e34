//! Exceptions: the package's own, which are written in Python, made of what is wrong here.

use pyo3::prelude::*;
use usher_config::ConfigDiagnostic;
use usher_runner::sweep::FolderError;
use usher_scenario::LoadError;

/// An exception of `usher._errors` by the name of its class.
fn raise_error<'py>(py: Python<'py>, class: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    let made = py.import("usher._errors").and_then(|errors| errors.getattr(class)?.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// A fault as Python has it: file, line and column (0 for what stands in no file), and what to do.
pub(crate) type ConfigErrorTuple = (String, usize, usize, String);

/// Faults as Python has them.
pub(crate) fn fault_tuples(faults: &[ConfigDiagnostic]) -> Vec<ConfigErrorTuple> {
    faults.iter().map(|f| (f.file.clone(), f.line, f.column, f.message.clone())).collect()
}

/// `StudyError`, of everything that is wrong with a study, or with how it is asked to run.
pub(crate) fn of_study(py: Python<'_>, faults: &[ConfigDiagnostic]) -> PyErr {
    raise_error(py, "StudyError", (fault_tuples(faults),))
}

/// `StudyError`, of one fault that stands in no file.
pub(crate) fn of_argument(py: Python<'_>, message: impl ToString) -> PyErr {
    raise_error(py, "StudyError", (vec![(String::new(), 0usize, 0usize, message.to_string())],))
}

/// `StudyError`, of a study that cannot be loaded.
pub(crate) fn of_loading(py: Python<'_>, error: &LoadError) -> PyErr {
    match error {
        LoadError::Faults(faults) => of_study(py, &faults.faults),
        LoadError::Unreadable { path, source } => {
            let told = (path.display().to_string(), 0usize, 0usize, source.to_string());
            raise_error(py, "StudyError", (vec![told],))
        }
        LoadError::UnknownName { .. } => of_argument(py, error),
    }
}

/// `FolderError`, of a folder that cannot take a run. Its sentences name options of the program; Python's are called otherwise.
pub(crate) fn of_folder(py: Python<'_>, error: &FolderError) -> PyErr {
    let text = error.to_string().replace("--force", "force=True").replace("--out", "out=");
    raise_error(py, "FolderError", (text,))
}

/// `UsherError`, of whatever else failed.
pub(crate) fn usher_error(py: Python<'_>, error: impl ToString) -> PyErr {
    raise_error(py, "UsherError", (error.to_string(),))
}
