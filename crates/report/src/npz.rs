//! The `.npz` renderer: the evidence as arrays, for NumPy and everything that reads its format.
//!
//! Every column of the table of heads is one array over its rows (a head under a plan): `layer`, `head` and `plan` say which.
//! Values are `f8` with NaN for what was not measured or does not exist; columns that always have a value and count something are
//! `u8`. `measure` adds `mass_by_distance` and `blind_by_distance` over heads and bins, with `bin_from`, `bin_to`,
//! `bins_layer` and `bins_head`, and `plan_mass_by_distance` over rows and bins.
//!
//! Results that are not about heads have the same kind of columns, named `RECORD_FIELD`: `cell_accuracy`, `step_loss`.

use crate::document::Document;
use crate::heads::{Cell, HeadTable};
use std::io::{Cursor, Write as _};
use zip::write::SimpleFileOptions;

/// The archive, or `None` where the result has no heads of its own.
///
/// # Errors
/// When the archive cannot be written, which in memory means that a member exceeds the format's size.
pub fn render(document: &Document) -> std::io::Result<Option<Vec<u8>>> {
    if let Some(tables) = crate::records::tables(document) {
        return records(&tables).map(Some);
    }
    let Some(table) = HeadTable::of(document) else {
        return Ok(None);
    };
    let mut archive = Archive::new();
    let layers = table.rows.iter().map(|row| row.layer.unwrap_or(0));
    if table.rows.iter().any(|row| row.layer.is_some()) {
        archive.unsigned("layer", &[table.rows.len()], layers)?;
    }
    let heads = table.rows.iter().map(|row| row.head);
    archive.unsigned("head", &[table.rows.len()], heads)?;
    let plans = table
        .rows
        .iter()
        .map(|row| row.plan.as_deref().unwrap_or(""));
    archive.words("plan", &plans.collect::<Vec<_>>())?;
    for (index, name) in table.columns.iter().enumerate() {
        let cells = table.rows.iter().map(|row| &row.cells[index]);
        column(&mut archive, name, &cells.collect::<Vec<_>>())?;
    }
    if let Document::Measure(report) = document {
        bins(&mut archive, report)?;
    }
    archive.finish().map(Some)
}

/// An array a column of every table.
fn records(tables: &[crate::records::Table]) -> std::io::Result<Vec<u8>> {
    let mut archive = Archive::new();
    for table in tables {
        for (index, name) in table.columns.iter().enumerate() {
            let cells: Vec<&Cell> = table.rows.iter().map(|row| &row[index]).collect();
            column(&mut archive, &format!("{}_{name}", table.record), &cells)?;
        }
    }
    archive.finish()
}

fn column(archive: &mut Archive, name: &str, all: &[&Cell]) -> std::io::Result<()> {
    let cells = || all.iter().copied();
    let shape = [all.len()];
    let words: Vec<&str> = cells()
        .filter_map(|cell| match cell {
            Cell::Word(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    if !words.is_empty() {
        let all = cells().map(|cell| match cell {
            Cell::Word(text) => text.as_str(),
            _ => "",
        });
        return archive.words(name, &all.collect::<Vec<_>>());
    }
    let counts: Option<Vec<u64>> = cells()
        .map(|cell| match cell {
            Cell::Count(count) => u64::try_from(*count).ok(),
            _ => None,
        })
        .collect();
    match counts {
        Some(counts) => archive.unsigned(name, &shape, counts.into_iter()),
        None => {
            let floats = cells().map(|cell| cell.as_f64().unwrap_or(f64::NAN));
            archive.floats(name, &shape, floats)
        }
    }
}

fn bins(archive: &mut Archive, report: &crate::schema::MeasureReport) -> std::io::Result<()> {
    let Some(first) = report.heads.first() else {
        return Ok(());
    };
    let edges = |bin: &crate::schema::DistanceBin| (bin.from, bin.to);
    let same = report.heads.iter().all(|head| {
        head.mass_by_distance
            .iter()
            .map(edges)
            .eq(first.mass_by_distance.iter().map(edges))
    });
    if !same {
        // one text has one set of bins; a document that says otherwise has no matrix
        return Ok(());
    }
    let shape = [report.heads.len(), first.mass_by_distance.len()];
    let of_first = || first.mass_by_distance.iter();
    archive.unsigned("bin_from", &shape[1..], of_first().map(|bin| bin.from))?;
    archive.unsigned("bin_to", &shape[1..], of_first().map(|bin| bin.to))?;
    let heads = || report.heads.iter();
    archive.unsigned("bins_layer", &shape[..1], heads().map(|head| head.layer))?;
    archive.unsigned("bins_head", &shape[..1], heads().map(|head| head.head))?;
    let all = || heads().flat_map(|head| &head.mass_by_distance);
    archive.floats("mass_by_distance", &shape, all().map(|bin| bin.mass))?;
    archive.unsigned("pairs_by_distance", &shape, all().map(|bin| bin.pairs))?;
    archive.unsigned(
        "blind_by_distance",
        &shape,
        all().map(|bin| bin.blind_pairs),
    )?;
    let (mut masses, mut rows, mut whole) = (Vec::new(), 0, true);
    for head in &report.heads {
        for evidence in report
            .plans
            .iter()
            .filter_map(|plan| head.plans.get(&plan.plan))
        {
            rows += 1;
            whole &= evidence.mass_by_distance.len() == shape[1];
            masses.extend_from_slice(&evidence.mass_by_distance);
        }
    }
    // a document of an older version has no masses under each plan
    if whole {
        archive.floats(
            "plan_mass_by_distance",
            &[rows, shape[1]],
            masses.into_iter(),
        )?;
    }
    Ok(())
}

/// A zip archive of arrays in NumPy's format 1.0.
struct Archive(zip::ZipWriter<Cursor<Vec<u8>>>);

impl Archive {
    fn new() -> Self {
        Self(zip::ZipWriter::new(Cursor::new(Vec::new())))
    }

    fn unsigned(
        &mut self,
        name: &str,
        shape: &[usize],
        values: impl Iterator<Item = u64>,
    ) -> std::io::Result<()> {
        self.array(name, "<u8", shape, values.flat_map(u64::to_le_bytes))
    }

    fn floats(
        &mut self,
        name: &str,
        shape: &[usize],
        values: impl Iterator<Item = f64>,
    ) -> std::io::Result<()> {
        self.array(name, "<f8", shape, values.flat_map(f64::to_le_bytes))
    }

    /// Words as fixed-width UTF-32, NumPy's `U` type.
    fn words(&mut self, name: &str, words: &[&str]) -> std::io::Result<()> {
        let width = words.iter().map(|word| word.chars().count()).max();
        let width = width.unwrap_or(0).max(1);
        let units = words.iter().flat_map(|word| {
            let used = word.chars().map(u32::from);
            used.chain(std::iter::repeat(0)).take(width)
        });
        let bytes: Vec<u8> = units.flat_map(u32::to_le_bytes).collect();
        self.array(
            name,
            &format!("<U{width}"),
            &[words.len()],
            bytes.into_iter(),
        )
    }

    fn array(
        &mut self,
        name: &str,
        kind: &str,
        shape: &[usize],
        bytes: impl Iterator<Item = u8>,
    ) -> std::io::Result<()> {
        let shape: String = shape.iter().map(|n| format!("{n},")).collect();
        let mut header =
            format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
        // magic, version, length and header fill a multiple of 64 bytes and end in a newline
        let padding = 63 - (10 + header.len()) % 64;
        header.push_str(&" ".repeat(padding));
        header.push('\n');
        // stored, and with the zip format's own epoch: the same result gives the same bytes
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored)
            .last_modified_time(zip::DateTime::default());
        self.0.start_file(format!("{name}.npy"), options)?;
        self.0.write_all(b"\x93NUMPY\x01\x00")?;
        let length = u16::try_from(header.len()).map_err(std::io::Error::other)?;
        self.0.write_all(&length.to_le_bytes())?;
        self.0.write_all(header.as_bytes())?;
        self.0.write_all(&bytes.collect::<Vec<u8>>())
    }

    fn finish(self) -> std::io::Result<Vec<u8>> {
        Ok(self.0.finish()?.into_inner())
    }
}
