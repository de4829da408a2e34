//! Rows and summaries as Parquet: texts as dictionary-encoded strings, counts as unsigned 32-bit integers, numbers as
//! doubles, what is not known as null.
//!
//! Beside each axis whose values are quantities stands a column of their numbers, called by the axis and the unit
//! (`loss [%]`), so that a data frame can draw it at once; an axis of plain numbers is one itself. Uncompressed, one fixed
//! `created_by`, no time: the same rows give the same bytes.

use crate::columns::{self, AxisColumn, Units};
use crate::row::Row;
use crate::summary::{self, Summary};
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
pub fn write(path: &Path, rows: &[Row], units: &Units) -> Result<(), Error> {
    let bytes = encode(rows, units)?;
    file::write(path, |out| out.write_all(&bytes))
}

/// The rows as the bytes of a Parquet file, in the columns of [`columns::RESULTS`].
///
/// # Errors
/// [`Error::ReservedAxis`]; [`Error::Parquet`].
pub fn encode(rows: &[Row], units: &Units) -> Result<Vec<u8>, Error> {
    let mut columns: Vec<Column<'_, Row>> = vec![Column::text("study", |r: &Row| &r.study)];
    columns.extend(
        columns::of_axes(rows, units, &columns::RESULTS)?
            .into_iter()
            .map(|a| Column::axis(a, |r: &Row| &r.point)),
    );
    columns.push(Column::count("replication", |r: &Row| r.replication));
    columns.push(Column::text("metric", |r: &Row| &r.metric));
    columns.push(Column::unit(units, |r: &Row| &r.metric));
    columns.push(Column::number("value", |r: &Row| r.value));
    encoded(&columns, rows)
}

/// Writes the summary of rows, whole or not at all: the table of [`summary::write()`].
///
/// # Errors
/// As [`write()`].
pub fn write_summary(path: &Path, rows: &[Row], level: f64, units: &Units) -> Result<(), Error> {
    let summaries = summary::summarise(rows, level);
    let mut columns: Vec<Column<'_, Summary>> = vec![Column::text("study", |s: &Summary| &s.study)];
    columns.extend(
        columns::of_axes(rows, units, &columns::SUMMARY)?
            .into_iter()
            .map(|a| Column::axis(a, |s: &Summary| &s.point)),
    );
    columns.push(Column::text("metric", |s: &Summary| &s.metric));
    columns.push(Column::unit(units, |s: &Summary| &s.metric));
    columns.push(Column::count("n", |s: &Summary| s.estimate.n));
    for (name, value) in summary::NUMBERS {
        let of = move |s: &Summary| value(s, level).filter(|v| v.is_finite());
        columns.push(match name {
            "moved_by" => Column::maybe_count(name, move |s: &Summary| of(s).map(|v| v as u32)),
            _ => Column::maybe_number(name, of),
        });
    }
    let bytes = encoded(&columns, &summaries)?;
    file::write(path, |out| out.write_all(&bytes))
}

/// A column, and where it has its values from.
struct Column<'a, R> {
    name: String,
    required: bool,
    of: Of<'a, R>,
}

type TextOf<'a, R> = Box<dyn Fn(&R, &mut Texts) -> Option<ByteArray> + 'a>;
type ValueOf<'a, R, V> = Box<dyn Fn(&R) -> Option<V> + 'a>;

enum Of<'a, R> {
    Text(TextOf<'a, R>),
    Count(ValueOf<'a, R, u32>),
    Number(ValueOf<'a, R, f64>),
}

impl<'a, R> Column<'a, R> {
    fn text(name: &str, of: impl for<'r> Fn(&'r R) -> &'r str + 'a) -> Self {
        let text = move |r: &R, texts: &mut Texts| Some(texts.get(of(r)));
        Self { name: name.to_owned(), required: true, of: Of::Text(Box::new(text)) }
    }
    fn unit(units: &'a Units, metric: impl for<'r> Fn(&'r R) -> &'r str + 'a) -> Self {
        let text = move |r: &R, texts: &mut Texts| units.of_metric(metric(r)).map(|unit| texts.get(unit));
        Self { name: columns::UNIT.name.to_owned(), required: false, of: Of::Text(Box::new(text)) }
    }
    fn count(name: &str, of: impl Fn(&R) -> u32 + 'a) -> Self {
        Self { name: name.to_owned(), required: true, of: Of::Count(Box::new(move |r| Some(of(r)))) }
    }
    fn maybe_count(name: &str, of: impl Fn(&R) -> Option<u32> + 'a) -> Self {
        Self { name: name.to_owned(), required: false, of: Of::Count(Box::new(of)) }
    }
    fn number(name: &str, of: impl Fn(&R) -> f64 + 'a) -> Self {
        Self { name: name.to_owned(), required: true, of: Of::Number(Box::new(move |r| Some(of(r)))) }
    }
    fn maybe_number(name: &str, of: impl Fn(&R) -> Option<f64> + 'a) -> Self {
        Self { name: name.to_owned(), required: false, of: Of::Number(Box::new(of)) }
    }
    fn axis(axis: AxisColumn<'a>, point: impl Fn(&R) -> &crate::Point + 'a) -> Self {
        let name = axis.name.clone();
        let of: Of<'a, R> = if axis.is_numeric() {
            Of::Number(Box::new(move |r| axis.number(point(r))))
        } else {
            let axis = axis.axis;
            Of::Text(Box::new(move |r, texts| point(r).get(axis).map(|text| texts.get(text))))
        };
        Self { name, required: false, of }
    }

    fn schema(&self) -> Result<Type, ParquetError> {
        let (physical, logical) = match self.of {
            Of::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Of::Count(_) => (Physical::INT32, Some(LogicalType::integer(32, false))),
            Of::Number(_) => (Physical::DOUBLE, None),
        };
        let repetition = if self.required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        Type::primitive_type_builder(&self.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    }

    fn write<W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        rows: &[R],
        texts: &mut Texts,
    ) -> Result<(), ParquetError> {
        match &self.of {
            Of::Text(of) => {
                let values = rows.iter().map(|r| of(r, texts));
                column::<ByteArrayType, _>(group, values, self.required)
            }
            Of::Count(of) => {
                let values = rows.iter().map(|r| of(r).map(u32::cast_signed));
                column::<Int32Type, _>(group, values, self.required)
            }
            Of::Number(of) => column::<DoubleType, _>(group, rows.iter().map(of), self.required),
        }
    }
}

fn encoded<R>(columns: &[Column<'_, R>], rows: &[R]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    encode_into(&mut out, columns, rows).map_err(|e| Error::Parquet(e.to_string()))?;
    Ok(out)
}

fn encode_into<R>(out: &mut Vec<u8>, columns: &[Column<'_, R>], rows: &[R]) -> Result<(), ParquetError> {
    let fields = columns.iter().map(|c| c.schema().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
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
        for column in columns {
            column.write(&mut group, rows, &mut texts)?;
        }
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

fn column<T: DataType, W: Write + Send>(
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
    use crate::Point;
    use crate::file::tests::Folder;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    fn rows() -> Vec<Row> {
        (0..50u32)
            .map(|i| Row {
                study: "aaa-hol".into(),
                point: Point::new([
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

    fn units() -> Units {
        let mut units = Units::default();
        units.axis("loss", "%", (0..5).map(|i| (format!("{i} %"), f64::from(i))));
        units.metric("delay_mean", "s");
        units
    }

    /// Names of the columns, and the fields of each record.
    fn read(bytes: Vec<u8>) -> (Vec<String>, Vec<Vec<Field>>) {
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
        let rows = rows();
        let (columns, records) = read(encode(&rows, &units()).unwrap());
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
        let folder = Folder::new();
        let path = folder.file("summary.parquet");
        let rows = rows();
        write_summary(&path, &rows, 0.95, &units()).unwrap();
        let (columns, records) = read(std::fs::read(&path).unwrap());
        let csv = summary::text(&rows, 0.95, &units()).unwrap();
        let mut lines = csv.lines();
        assert_eq!(columns.join(","), lines.next().unwrap());
        let text = |field: &Field| match field {
            Field::Null => String::new(),
            Field::Str(text) => text.clone(),
            Field::UInt(n) => n.to_string(),
            Field::Double(x) => crate::row::number(*x),
            other => panic!("{other:?}"),
        };
        let written: Vec<String> =
            records.iter().map(|fields| fields.iter().map(text).collect::<Vec<_>>().join(",")).collect();
        assert_eq!(written, lines.collect::<Vec<_>>());
        assert_eq!(written.len(), 10);
    }

    #[test]
    fn the_same_rows_give_the_same_bytes() {
        assert_eq!(encode(&rows(), &units()).unwrap(), encode(&rows(), &units()).unwrap());
        assert!(encode(&[], &Units::default()).unwrap().ends_with(b"PAR1"));
    }
}
