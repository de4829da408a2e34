//! Rows as Parquet, in the columns of [`crate::csv`]: texts as dictionary-encoded strings, `replication`
//! as an unsigned 32-bit integer, `value` as a double.
//!
//! An axis whose every value is a number is a column of doubles, so that a data frame can draw it at
//! once; the text as the study wrote it is in the CSV. Uncompressed, one fixed `created_by`, no time: the
//! same rows give the same bytes.

use crate::row::{Row, axes};
use crate::{Error, file};
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

/// Writes the rows in their order, whole or not at all.
///
/// # Errors
/// [`Error::ReservedAxis`]; [`Error::Io`], the earlier file being kept; [`Error::Parquet`].
pub fn write(path: &Path, rows: &[Row]) -> Result<(), Error> {
    let bytes = encode(rows)?;
    file::write(path, |out| out.write_all(&bytes))
}

/// The rows as the bytes of a Parquet file.
///
/// # Errors
/// [`Error::ReservedAxis`]; [`Error::Parquet`].
pub fn encode(rows: &[Row]) -> Result<Vec<u8>, Error> {
    let axes: Vec<Axis> = axes(rows)?.into_iter().map(|name| Axis::of(name, rows)).collect();
    let mut out = Vec::new();
    encode_into(&mut out, &axes, rows).map_err(|e| Error::Parquet(e.to_string()))?;
    Ok(out)
}

/// One axis's column.
struct Axis<'a> {
    name: &'a str,
    numeric: bool,
}

impl<'a> Axis<'a> {
    fn of(name: &'a str, rows: &[Row]) -> Self {
        let mut values = rows.iter().filter_map(|r| r.point.get(name));
        Self { name, numeric: values.all(|v| v.parse::<f64>().is_ok()) }
    }
}

fn encode_into(out: &mut Vec<u8>, axes: &[Axis<'_>], rows: &[Row]) -> Result<(), ParquetError> {
    let text = |name: &str, repetition| {
        Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
            .with_repetition(repetition)
            .with_logical_type(Some(LogicalType::String))
            .build()
    };
    let plain = |name: &str, physical, repetition| {
        Type::primitive_type_builder(name, physical).with_repetition(repetition).build()
    };
    let mut fields = vec![text("study", Repetition::REQUIRED)?];
    for axis in axes {
        fields.push(if axis.numeric {
            plain(axis.name, Physical::DOUBLE, Repetition::OPTIONAL)?
        } else {
            text(axis.name, Repetition::OPTIONAL)?
        });
    }
    fields.push(
        Type::primitive_type_builder("replication", Physical::INT32)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::integer(32, false)))
            .build()?,
    );
    fields.push(text("metric", Repetition::REQUIRED)?);
    fields.push(plain("value", Physical::DOUBLE, Repetition::REQUIRED)?);
    let fields = fields.into_iter().map(Arc::new).collect();
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;

    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by("usher".to_owned())
        .set_compression(Compression::UNCOMPRESSED)
        .set_column_dictionary_enabled(ColumnPath::from("value"), false)
        .build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    for rows in rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        let mut texts = Texts::default();
        required::<ByteArrayType, _>(&mut group, rows.iter().map(|r| texts.get(&r.study)))?;
        for axis in axes {
            let values = rows.iter().map(|r| r.point.get(axis.name));
            if axis.numeric {
                optional::<DoubleType, _>(&mut group, values.map(|v| v.and_then(|v| v.parse().ok())))?;
            } else {
                optional::<ByteArrayType, _>(&mut group, values.map(|v| v.map(|v| texts.get(v))))?;
            }
        }
        required::<Int32Type, _>(&mut group, rows.iter().map(|r| r.replication.cast_signed()))?;
        required::<ByteArrayType, _>(&mut group, rows.iter().map(|r| texts.get(&r.metric)))?;
        required::<DoubleType, _>(&mut group, rows.iter().map(|r| r.value))?;
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Each distinct text once in memory.
#[derive(Default)]
struct Texts(HashMap<String, ByteArray>);

impl Texts {
    fn get(&mut self, text: &str) -> ByteArray {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let bytes = ByteArray::from(text.as_bytes().to_vec());
        self.0.insert(text.to_owned(), bytes.clone());
        bytes
    }
}

fn required<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = T::T>,
) -> Result<(), ParquetError> {
    column::<T, W>(group, &values.collect::<Vec<_>>(), None)
}

fn optional<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<_> = values.collect();
    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let present: Vec<_> = values.into_iter().flatten().collect();
    column::<T, W>(group, &present, Some(&levels))
}

fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut writer = group.next_column()?.expect("as many columns as the schema has");
    writer.typed::<T>().write_batch(values, levels, None)?;
    writer.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Point;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    fn rows() -> Vec<Row> {
        (0..50u32)
            .map(|i| Row {
                study: "aaa-hol".into(),
                point: Point::new([
                    ("loss", format!("0.{}", i / 10)),
                    ("transport", if i % 2 == 0 { "tcp".into() } else { String::new() }),
                ]),
                replication: i % 10,
                metric: "delay_mean".into(),
                value: f64::from(i) / 3.0,
            })
            .collect()
    }

    #[test]
    fn a_reader_sees_the_rows() {
        let rows = rows();
        let file = SerializedFileReader::new(bytes::Bytes::from(encode(&rows).unwrap())).unwrap();
        let meta = file.metadata().file_metadata();
        assert_eq!(meta.created_by(), Some("usher"));
        let columns: Vec<_> = meta.schema_descr().columns().iter().map(|c| c.name().to_owned()).collect();
        assert_eq!(columns, ["study", "loss", "transport", "replication", "metric", "value"]);
        let mut n = 0;
        for (record, row) in file.get_row_iter(None).unwrap().zip(&rows) {
            let fields: Vec<Field> = record.unwrap().into_columns().into_iter().map(|(_, f)| f).collect();
            let transport = row.point.get("transport").map_or(Field::Null, |t| Field::Str(t.into()));
            let expected = [
                Field::Str("aaa-hol".into()),
                Field::Double(row.point.get("loss").unwrap().parse().unwrap()),
                transport,
                Field::UInt(row.replication),
                Field::Str("delay_mean".into()),
                Field::Double(row.value),
            ];
            assert_eq!(fields, expected);
            n += 1;
        }
        assert_eq!(n, rows.len());
    }

    #[test]
    fn the_same_rows_give_the_same_bytes() {
        assert_eq!(encode(&rows()).unwrap(), encode(&rows()).unwrap());
        assert!(encode(&[]).unwrap().ends_with(b"PAR1"));
    }
}
