//! A column of text from a Parquet file, row group by row group.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::Type;
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;

use super::documents::known;
use super::unpack::Place;
use crate::error::TrainError;

/// Rows read at a time.
const ROWS: usize = 1024;

/// Hands the text of every row to `each`, in order; rows without a value are left out. `read` counts bytes of the file.
///
/// # Errors
/// A file that is no Parquet or is damaged, a column that is not there or holds no text, text that is not UTF-8; what `each` says.
pub(crate) fn rows(
    path: &Path,
    column: &str,
    read: &AtomicU64,
    each: &mut dyn FnMut(&str) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let place = Place {
        file: path,
        entry: None,
    };
    let file = std::fs::File::open(path).map_err(|e| TrainError::io(path, &e))?;
    let size = file.metadata().map_err(|e| TrainError::io(path, &e))?.len();
    let reader = guarded(place, || SerializedFileReader::new(file))?;
    let metadata = reader.metadata();
    let index = find(metadata.file_metadata().schema_descr(), column, place)?;
    let groups = reader.num_row_groups();
    let mut row = 0u64;
    for number in 0..groups {
        let group = guarded(place, || reader.get_row_group(number))?;
        let expected = group.metadata().num_rows() as u64;
        let first = row;
        let ColumnReader::ByteArrayColumnReader(mut values) =
            guarded(place, || group.get_column_reader(index))?
        else {
            return Err(place.error(format!("column {column:?} holds no text")));
        };
        loop {
            let (mut levels, mut texts): (Vec<i16>, Vec<ByteArray>) = (Vec::new(), Vec::new());
            let (records, _, _) = guarded(place, || {
                values.read_records(ROWS, Some(&mut levels), None, &mut texts)
            })?;
            if records == 0 {
                break;
            }
            for bytes in &texts {
                let text = std::str::from_utf8(bytes.data()).map_err(|e| {
                    place.error(format!(
                        "column {column:?}, a row of {row} to {}: not UTF-8 from byte {} on; convert it first",
                        row + records as u64 - 1,
                        e.valid_up_to()
                    ))
                })?;
                each(text)?;
            }
            row += records as u64;
        }
        if row - first != expected {
            return Err(place.error(format!(
                "row group {number}: expected {expected} rows, found {}",
                row - first
            )));
        }
        let upto = |done: usize| (u128::from(size) * done as u128 / groups as u128) as u64;
        read.fetch_add(upto(number + 1) - upto(number), Ordering::Relaxed);
    }
    if groups == 0 {
        read.fetch_add(size, Ordering::Relaxed);
    }
    Ok(())
}

/// A call of the Parquet library, which panics at some damaged files instead of returning its error.
fn guarded<T>(
    place: Place<'_>,
    call: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, TrainError> {
    // What the call may have left half done is dropped with the error.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|e| place.error(format!("is not a whole Parquet file: {e}"))),
        Err(_) => {
            Err(place.error("is not a whole Parquet file: its own numbers contradict one another"))
        }
    }
}

/// Index of the column among the file's leaves.
fn find(schema: &SchemaDescriptor, column: &str, place: Place<'_>) -> Result<usize, TrainError> {
    let names: Vec<String> = schema.columns().iter().map(|c| c.path().string()).collect();
    let Some(index) = names.iter().position(|name| name == column) else {
        return Err(place.error(format!(
            "no column {column:?}; there are {}",
            known(names.iter().map(String::as_str))
        )));
    };
    let found = schema.column(index);
    if found.physical_type() != Type::BYTE_ARRAY || found.max_rep_level() > 0 {
        let list = if found.max_rep_level() > 0 {
            "lists of "
        } else {
            ""
        };
        return Err(place.error(format!(
            "column {column:?}: expected text, found {list}{}",
            found.physical_type()
        )));
    }
    Ok(index)
}
