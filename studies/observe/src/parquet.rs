//! Rows and summaries as Parquet: texts as dictionary-encoded strings, counts as unsigned 32-bit integers, numbers as
//! doubles, unknown values as null.
//!
//! The files are uncompressed, with a fixed `created_by` and no time: the same rows give the same bytes.

use crate::columns::ResultRowUnits;
use crate::row::ResultRow;
use crate::table::{self, ColumnValues, ResultTable, TableColumn};
use crate::{RunFileError, file, summary};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Rows per row group: a few megabytes each.
const GROUP: usize = 1 << 18;

/// Writes the rows in their order, atomically.
///
/// # Errors
/// [`RunFileError::ReservedAxis`]; [`RunFileError::Io`], which keeps the earlier file; [`RunFileError::Parquet`].
pub fn write_parquet(path: &Path, rows: &[ResultRow], units: &ResultRowUnits) -> Result<(), RunFileError> {
    let bytes = encode_parquet(rows, units)?;
    file::write_file(path, |out| out.write_all(&bytes))
}

/// Returns the rows as the bytes of a Parquet file, in the columns of [`crate::columns::RESULTS`].
///
/// # Errors
/// [`RunFileError::ReservedAxis`]; [`RunFileError::Parquet`].
pub fn encode_parquet(rows: &[ResultRow], units: &ResultRowUnits) -> Result<Vec<u8>, RunFileError> {
    encode_table(&table::results_table(rows, units)?)
}

/// Writes the summary of rows atomically: the table of [`summary_table`](crate::table::summary_table).
///
/// # Errors
/// As [`write_parquet()`].
pub fn write_summary(
    path: &Path,
    rows: &[ResultRow],
    level: f64,
    units: &ResultRowUnits,
) -> Result<(), RunFileError> {
    let summaries = summary::summarise_rows(rows, level);
    let bytes = encode_table(&table::summary_table(&summaries, rows, level, units)?)?;
    file::write_file(path, |out| out.write_all(&bytes))
}

fn column_schema(of: &TableColumn<'_>) -> Result<Type, ParquetError> {
    let (physical, logical) = match of.values {
        ColumnValues::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnValues::Count(_) => (Physical::INT32, Some(LogicalType::integer(32, false))),
        ColumnValues::Number(_) => (Physical::DOUBLE, None),
    };
    let repetition = if of.required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    Type::primitive_type_builder(&of.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

fn encode_table(table: &ResultTable<'_>) -> Result<Vec<u8>, RunFileError> {
    let mut out = Vec::new();
    encode_into(&mut out, table).map_err(|e| RunFileError::Parquet(e.to_string()))?;
    Ok(out)
}

fn encode_into(out: &mut Vec<u8>, table: &ResultTable<'_>) -> Result<(), ParquetError> {
    let fields =
        table.columns.iter().map(|c| column_schema(c).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by("usher".to_owned())
        .set_compression(Compression::UNCOMPRESSED)
        .set_column_dictionary_enabled(ColumnPath::from("value"), false)
        .build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    for start in (0..table.rows).step_by(GROUP) {
        let rows = || start..table.rows.min(start + GROUP);
        let mut group = writer.next_row_group()?;
        let mut texts = TextInterner::default();
        for TableColumn { values, required, .. } in &table.columns {
            match values {
                ColumnValues::Text(of) => {
                    let values = rows().map(|i| of(i).map(|text| texts.intern(text)));
                    write_column::<ByteArrayType, _>(&mut group, values, *required)
                }
                ColumnValues::Count(of) => {
                    let values = rows().map(|i| of(i).map(u32::cast_signed));
                    write_column::<Int32Type, _>(&mut group, values, *required)
                }
                ColumnValues::Number(of) => {
                    write_column::<DoubleType, _>(&mut group, rows().map(of), *required)
                }
            }?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Stores each distinct text once.
#[derive(Default)]
struct TextInterner(HashMap<String, ByteArray>);

impl TextInterner {
    fn intern(&mut self, text: &str) -> ByteArray {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let bytes = ByteArray::from(text.as_bytes().to_vec());
        self.0.insert(text.to_owned(), bytes.clone());
        bytes
    }
}

fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = Option<T::T>>,
    required: bool,
) -> Result<(), ParquetError> {
    let values: Vec<_> = values.collect();
    let levels: Option<Vec<i16>> =
        (!required).then(|| values.iter().map(|v| i16::from(v.is_some())).collect());
    let present: Vec<_> = values.into_iter().flatten().collect();
    let mut writer = group.next_column()?.expect("as many columns as the schema has");
    writer.typed::<T>().write_batch(&present, levels.as_deref(), None)?;
    writer.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GridPoint;
    use crate::file::tests::TempDir;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    fn test_rows() -> Vec<ResultRow> {
        (0..50u32)
            .map(|i| ResultRow {
                study: "aaa-hol".into(),
                point: GridPoint::new([
                    ("loss", format!("{} %", i / 10)),
                    ("clients", (i / 10).to_string()),
                    ("transport", if i % 2 == 0 { "tcp".into() } else { String::new() }),
                ]),
                replication: i % 10,
                metric: "delay_mean".into(),
                value: f64::from(i) / 3.0,
            })
            .collect()
    }

    fn test_units() -> ResultRowUnits {
        let mut units = ResultRowUnits::default();
        units.set_axis_unit("loss", "%", (0..5).map(|i| (format!("{i} %"), f64::from(i))));
        units.set_metric_unit("delay_mean", "s");
        units
    }

    /// Returns the names of the columns, and the fields of each record.
    fn decode_parquet(bytes: Vec<u8>) -> (Vec<String>, Vec<Vec<Field>>) {
        let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let meta = file.metadata().file_metadata();
        assert_eq!(meta.created_by(), Some("usher"));
        let columns = meta.schema_descr().columns().iter().map(|c| c.name().to_owned()).collect();
        let fields = |record: Result<parquet::record::Row, _>| {
            record.unwrap().into_columns().into_iter().map(|(_, field)| field).collect()
        };
        (columns, file.get_row_iter(None).unwrap().map(fields).collect())
    }

    #[test]
    fn a_reader_sees_the_rows_with_numbers_and_units() {
        let rows = test_rows();
        let (columns, records) = decode_parquet(encode_parquet(&rows, &test_units()).unwrap());
        let expected =
            ["study", "loss", "loss [%]", "clients", "transport", "replication", "metric", "unit", "value"];
        assert_eq!(columns, expected);
        assert_eq!(records.len(), rows.len());
        for (fields, row) in records.iter().zip(&rows) {
            let transport = row.point.get("transport").map_or(Field::Null, |t| Field::Str(t.into()));
            let loss = row.point.get("loss").unwrap();
            let expected = [
                Field::Str("aaa-hol".into()),
                Field::Str(loss.into()),
                Field::Double(loss.strip_suffix(" %").unwrap().parse().unwrap()),
                Field::Double(row.point.get("clients").unwrap().parse().unwrap()),
                transport,
                Field::UInt(row.replication),
                Field::Str("delay_mean".into()),
                Field::Str("s".into()),
                Field::Double(row.value),
            ];
            assert_eq!(*fields, expected);
        }
    }

    #[test]
    fn a_reader_sees_the_summary_that_the_csv_has() {
        let folder = TempDir::new();
        let path = folder.file_path("summary.parquet");
        let rows = test_rows();
        write_summary(&path, &rows, 0.95, &test_units()).unwrap();
        let (columns, records) = decode_parquet(std::fs::read(&path).unwrap());
        let csv = summary::summary_csv_text(&rows, 0.95, &test_units()).unwrap();
        let mut lines = csv.lines();
        assert_eq!(columns.join(","), lines.next().unwrap());
        let text = |field: &Field| match field {
            Field::Null => String::new(),
            Field::Str(text) => text.clone(),
            Field::UInt(n) => n.to_string(),
            Field::Double(x) => crate::row::format_number(*x),
            other => panic!("{other:?}"),
        };
        let written: Vec<String> =
            records.iter().map(|fields| fields.iter().map(text).collect::<Vec<_>>().join(",")).collect();
        assert_eq!(written, lines.collect::<Vec<_>>());
        assert_eq!(written.len(), 10);
    }

    #[test]
    fn the_same_rows_give_the_same_bytes() {
        assert_eq!(
            encode_parquet(&test_rows(), &test_units()).unwrap(),
            encode_parquet(&test_rows(), &test_units()).unwrap()
        );
        assert!(encode_parquet(&[], &ResultRowUnits::default()).unwrap().ends_with(b"PAR1"));
    }
}
