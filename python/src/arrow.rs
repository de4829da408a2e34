//! Tables as Arrow's C stream, which polars, pandas, pyarrow and DuckDB take over without copying.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt32Array};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;
use usher_observe::table::{ColumnValues, ResultTable};

/// The name of a stream in Arrow's PyCapsule interface.
const NAME: &CStr = c"arrow_array_stream";
/// Rows of a batch: a few megabytes.
const BATCH: usize = 1 << 18;

/// The table as a capsule with an `ArrowArrayStream`: texts as strings, counts as unsigned 32-bit integers, numbers as doubles,
/// what is not known as null.
pub(crate) fn table_stream<'py>(py: Python<'py>, table: &ResultTable<'_>) -> PyResult<Bound<'py, PyCapsule>> {
    let starts = (0..table.rows.max(1)).step_by(BATCH);
    let batches = starts.map(|start| record_batch(table, start..table.rows.min(start + BATCH)));
    let batches: Vec<_> = batches.collect::<Result<_, _>>().map_err(|e| crate::faults::usher_error(py, e))?;
    let schema = batches[0].schema();
    let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), NAME)
}

fn record_batch(table: &ResultTable<'_>, rows: Range<usize>) -> Result<RecordBatch, impl ToString> {
    RecordBatch::try_from_iter_with_nullable(table.columns.iter().map(|column| {
        let array: Arc<dyn Array> = match &column.values {
            ColumnValues::Text(of) => Arc::new(rows.clone().map(of).collect::<StringArray>()),
            ColumnValues::Count(of) => Arc::new(rows.clone().map(of).collect::<UInt32Array>()),
            ColumnValues::Number(of) => Arc::new(rows.clone().map(of).collect::<Float64Array>()),
        };
        (column.name.as_str(), array, !column.required)
    }))
}
