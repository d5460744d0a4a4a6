//! One process a trial: a crash or a kill of one does not touch the others.

use super::state;
use super::trial::record_of;
use crate::failure::Failure;
use ::report::schema::{StudyCost, StudyTrial, TrialStatus};
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use train::study::CheckedTrial;

/// Between looks at a child and at the stop flag.
const PAUSE: Duration = Duration::from_millis(40);

/// Lines of a failed child's log that are kept in the record.
const LAST_LINES: usize = 3;

/// Held while a lock of a trial is, and while a process is started: a process that is being made has a copy of every open file for a
/// moment, and with it would keep another trial's lock.
static STARTING: Mutex<()> = Mutex::new(());

fn starting() -> MutexGuard<'static, ()> {
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a trial's process ended.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    /// Its record is there.
    Recorded(Box<StudyTrial>),
    /// It stopped where it can go on.
    Stopped,
    /// Another process works on it.
    Busy,
}

/// What a child is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders<'a> {
    pub(super) study: &'a Path,
    pub(super) threads: u16,
    pub(super) keep_checkpoints: bool,
    pub(super) stop: &'a AtomicBool,
}

impl Orders<'_> {
    /// Runs one trial to its end.
    pub(super) fn run(&self, checked: &CheckedTrial) -> Result<Ended, Failure> {
        let trial = &checked.trial;
        let folder = state::folder(self.study, &trial.name);
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::error(format!("{}: {error}", folder.display())))?;
        // held while the folder is described; the child takes it again
        let alone = starting();
        let Some(lock) = state::lock(&folder)? else {
            return Ok(Ended::Busy);
        };
        state::describe(&folder, trial)?;
        let record = folder.join("trial.json");
        if record.exists() {
            // of a crash, or measured otherwise: kept until the new one is whole, but not taken for it
            let aside = folder.join(state::BEFORE);
            std::fs::rename(&record, &aside)
                .map_err(|error| Failure::error(format!("{}: {error}", record.display())))?;
        }
        let log = folder.join("log.txt");
        let from = std::fs::metadata(&log).map_or(0, |found| found.len());
        drop(lock);
        drop(alone);
        let status = self.wait(&folder, &log)?;
        if let Some(record) = state::record(&folder)? {
            let _ = std::fs::remove_file(folder.join(state::BEFORE));
            return Ok(Ended::Recorded(Box::new(record)));
        }
        if status.success() || self.stop.load(Ordering::Relaxed) {
            return Ok(Ended::Stopped);
        }
        let _alone = starting();
        let Some(_lock) = state::lock(&folder)? else {
            return Ok(Ended::Busy);
        };
        let reason = format!("{}: {}", how(status), last_lines(&log, from));
        let hash = &checked.run_hash;
        let cost = StudyCost::default();
        let record = record_of(trial, hash, TrialStatus::Crashed, Some(&reason), cost);
        state::write(&folder, &record)?;
        Ok(Ended::Recorded(Box::new(record)))
    }

    /// Starts the child and waits for it; passes a stop on by ending its standard input.
    fn wait(&self, folder: &Path, log: &Path) -> Result<ExitStatus, Failure> {
        let fail = |error: std::io::Error| Failure::error(format!("{}: {error}", folder.display()));
        let program = std::env::current_exe().map_err(fail)?;
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(fail)?;
        let mut command = Command::new(program);
        command
            .args(["study", "trial"])
            .arg(folder)
            .args(["--threads", &self.threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(file);
        if self.keep_checkpoints {
            command.arg("--keep-checkpoints");
        }
        let alone = starting();
        let mut child = command.spawn().map_err(fail)?;
        drop(alone);
        let mut stdin = child.stdin.take();
        loop {
            if let Some(status) = child.try_wait().map_err(fail)? {
                return Ok(status);
            }
            if self.stop.load(Ordering::Relaxed) {
                drop(stdin.take());
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// `ended by signal 9`, `exit code 2`.
fn how(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt as _;
        if let Some(signal) = status.signal() {
            return format!("its process was ended by signal {signal}");
        }
    }
    match status.code() {
        Some(code) => format!("its process ended with exit code {code}"),
        None => "its process was ended from outside".to_owned(),
    }
}

/// The last lines of a log from byte `from` on, in one line.
fn last_lines(log: &Path, from: u64) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
    let text = String::from_utf8_lossy(&bytes[from..]).into_owned();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    if lines.is_empty() {
        return "it said nothing".to_owned();
    }
    lines[lines.len().saturating_sub(LAST_LINES)..].join("; ")
}
