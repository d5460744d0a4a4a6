//! Curves of a run as a TensorBoard event file.
//!
//! The crates that write event files are unmaintained or bring a protobuf compiler with them; what is needed is a length, two checksums
//! and three small messages, so they are written here. A record is its length `u64`, the masked CRC-32C of these eight bytes,
//! the message, its masked CRC-32C, all little-endian; source: `tensorflow/core/lib/io/record_writer.cc`. Messages: `Event { 1: wall_time
//! double, 2: step int64, 3: file_version string, 5: summary }`, `Summary { 1: repeated Value }`, `Value { 1: tag string, 2:
//! simple_value float }`; source: `event.proto` and `summary.proto`.
//!
//! The bytes are always made from all of `metrics.jsonl`, so resuming, falling back to an older checkpoint or calling it twice cannot put
//! it out of step with the run. Its times are the steps, as seconds: what a run leaves does not depend on the clock.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::metrics::{self, Metric};
use crate::error::TrainError;
use crate::files;

/// Name of the file; TensorBoard looks for `tfevents` in it.
const FILE: &str = "events.out.tfevents.0000000000.snellen";

/// Writes the curves of the run in `run` into `folder`, which is made if need be. Returns the file and the number of points.
///
/// # Errors
/// A folder without metrics, a damaged line, what the system says.
pub fn write_events(run: &Path, folder: &Path) -> Result<(PathBuf, u64), TrainError> {
    let metrics = metrics::read(&run.join("metrics.jsonl"))?;
    let mut points = 0;
    let mut bytes = Vec::new();
    let mut event = double(1, 0.0);
    event.extend(text(3, "brain.Event:2"));
    record(&event, &mut bytes);
    for metric in &metrics {
        let values = scalars(metric);
        if values.is_empty() {
            continue;
        }
        points += values.len() as u64;
        record(&message(metric.step(), &values), &mut bytes);
    }
    std::fs::create_dir_all(folder).map_err(|e| TrainError::io(folder, &e))?;
    let path = folder.join(FILE);
    put(&path, &bytes)?;
    Ok((path, points))
}

/// A file that already begins so gets the rest appended, which a TensorBoard that watches it sees; any other is written anew.
fn put(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let before = std::fs::read(path).unwrap_or_default();
    let Some(rest) = bytes
        .strip_prefix(before.as_slice())
        .filter(|_| !before.is_empty())
    else {
        return files::write_whole(path, |out| out.write_all(bytes));
    };
    let append = || {
        std::fs::OpenOptions::new()
            .append(true)
            .open(path)?
            .write_all(rest)
    };
    append().map_err(|e| TrainError::io(path, &e))
}

/// The points of a line: tag and value.
fn scalars(metric: &Metric) -> Vec<(String, f64)> {
    let mut values: Vec<(String, f64)> = Vec::new();
    let mut add = |tag: &str, value: f64| values.push((tag.to_owned(), value));
    match metric {
        Metric::Begin { .. } | Metric::Stopped { .. } => {}
        Metric::Step {
            length,
            loss,
            text,
            passkey,
            pair,
            needle,
            lr,
            gradient_norm,
            ..
        } => {
            add("train/loss", *loss);
            add("train/loss_text", *text);
            for (tag, value) in [("passkey", passkey), ("pair", pair), ("needle", needle)] {
                if let Some(value) = value {
                    add(&format!("train/loss_{tag}"), *value);
                }
            }
            add("train/lr", *lr);
            add("train/gradient_norm", *gradient_norm);
            add("train/length", *length as f64);
        }
        Metric::Eval { loss, .. } => add("held/loss", *loss),
        Metric::Recall { cells, .. } => {
            for cell in cells.iter().filter(|cell| cell.questions > 0) {
                let tag = format!("recall/{} {}-{}", cell.task, cell.from, cell.to - 1);
                add(&tag, cell.right as f64 / cell.questions as f64);
            }
        }
        Metric::Heads { heads, .. } => {
            let share = |blind: u64, pairs: u64| blind as f64 / pairs.max(1) as f64;
            let blind = heads.iter().map(|h| h.blind_pairs).sum();
            add(
                "heads/blind",
                share(blind, heads.iter().map(|h| h.pairs).sum()),
            );
            for head in heads {
                let tag = format!("blind/layer {} head {}", head.layer, head.head);
                add(&tag, share(head.blind_pairs, head.pairs));
            }
        }
    }
    values
}

/// An event with a summary.
fn message(step: u64, values: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in values {
        let mut entry = text(1, tag);
        entry.push(2 << 3 | 5);
        entry.extend((*value as f32).to_le_bytes());
        summary.extend(bytes(1, &entry));
    }
    let mut event = double(1, step as f64);
    event.push(2 << 3);
    varint(step, &mut event);
    event.extend(bytes(5, &summary));
    event
}

fn double(field: u8, value: f64) -> Vec<u8> {
    let mut out = vec![field << 3 | 1];
    out.extend(value.to_le_bytes());
    out
}

fn text(field: u8, text: &str) -> Vec<u8> {
    bytes(field, text.as_bytes())
}

fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    varint(content.len() as u64, &mut out);
    out.extend(content);
    out
}

/// Seven bits a byte, the lowest first.
fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn record(message: &[u8], out: &mut Vec<u8>) {
    let length = (message.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(masked_crc32c(&length).to_le_bytes());
    out.extend(message);
    out.extend(masked_crc32c(message).to_le_bytes());
}

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), rotated and shifted as the format asks.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_crc32c() {
        let unmasked = |bytes: &[u8]| {
            masked_crc32c(bytes)
                .wrapping_sub(0xa282_ead8)
                .rotate_left(15)
        };
        // The check value of the algorithm, and RFC 3720, appendix B.4: 32 zeros, 32 ones.
        assert_eq!(unmasked(b"123456789"), 0xe306_9283);
        assert_eq!(unmasked(&[0; 32]), 0x8a91_36aa);
        assert_eq!(unmasked(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn messages_are_protobuf() {
        let values = [("a".to_owned(), 1.0)];
        let mut wanted = vec![0x09, 0, 0, 0, 0, 0, 0xc0, 0x72, 0x40];
        wanted.extend([0x10, 0xac, 0x02, 0x2a, 10, 0x0a, 8]);
        wanted.extend([0x0a, 1, b'a', 0x15, 0, 0, 0x80, 0x3f]);
        assert_eq!(message(300, &values), wanted);
    }

    #[test]
    fn every_record_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "{\"kind\":\"begin\",\"schema_version\":1,\"parameters\":1,\"steps\":2}\n\
            {\"kind\":\"step\",\"step\":1,\"length\":8,\"tokens\":8,\"loss\":2.5,\"text\":2.5,\"lr\":0.1,\"gradient_norm\":1.0}\n\
            {\"kind\":\"eval\",\"step\":2,\"length\":8,\"tokens\":8,\"loss\":2.25}\n";
        std::fs::write(folder.path().join("metrics.jsonl"), lines).unwrap();
        let to = folder.path().join("events");
        let (path, points) = write_events(folder.path(), &to).unwrap();
        assert_eq!(points, 6);
        let first = std::fs::read(&path).unwrap();
        let (mut rest, mut records) = (first.as_slice(), 0);
        while !rest.is_empty() {
            let (length, tail) = rest.split_first_chunk::<8>().unwrap();
            let n = u64::from_le_bytes(*length) as usize;
            assert_eq!(tail[..4], masked_crc32c(length).to_le_bytes());
            let (message, tail) = tail[4..].split_at(n);
            assert_eq!(tail[..4], masked_crc32c(message).to_le_bytes());
            rest = &tail[4..];
            records += 1;
        }
        assert_eq!(records, 3);
        // Again, after the file was cut inside a record, and after it held something else: always the same bytes.
        let more = [first.clone(), b"more".to_vec()].concat();
        for before in [&first[..], &first[..50], b"", b"other", &more] {
            std::fs::write(&path, before).unwrap();
            write_events(folder.path(), &to).unwrap();
            assert!(std::fs::read(&path).unwrap() == first);
        }
        assert_eq!(std::fs::read_dir(&to).unwrap().count(), 1);
        assert!(write_events(&folder.path().join("none"), &to).is_err());
    }
}
