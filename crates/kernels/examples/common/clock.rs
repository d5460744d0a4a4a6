//! Processor time of the threads that work (Linux).

use std::collections::BTreeMap;

/// CPU seconds so far of every thread of this process but the first, which reads this (Linux); empty elsewhere. The system
/// brings a thread's number up to date when it stops to run: that of a running one can be a tick of 4 ms old.
pub(crate) fn cpu_seconds() -> BTreeMap<String, f64> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return BTreeMap::new();
    };
    let first = std::process::id().to_string();
    tasks
        .filter_map(|task| {
            let task = task.ok()?;
            if task.file_name() == *first {
                return None;
            }
            let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            let nanoseconds: f64 = stat.split_whitespace().next()?.parse().ok()?;
            Some((
                task.file_name().to_string_lossy().into_owned(),
                nanoseconds / 1e9,
            ))
        })
        .collect()
}
