//! `snellen study run`: which trials are due, in which order, and what became of them.

use super::change::Change;
use super::children::{Ended, Orders};
use super::state::{self, State};
use super::{RunArgs, dry, trial};
use crate::args::GlobalArgs;
use crate::command_line::CommandLine;
use crate::commands::estimate;
use crate::failure::{Exit, Failure};
use ::report::schema::{StudyTrial, TrialStatus};
use ::report::text::plural;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use train::data::recall::Group;
use train::study::{CheckedTrial, Study, Trial, check};

/// Runs the verb.
pub(super) fn run(args: &RunArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let (study, trials) = read(&args.file)?;
    if args.dry_run {
        return dry::run(args, &trials, global);
    }
    let Some(to) = args.to.as_deref() else {
        return Err(Failure::error("--to DIR is missing"));
    };
    if args
        .max_minutes
        .is_some_and(|m| !(m.is_finite() && m > 0.0))
    {
        return Err(Failure::error("--max-minutes: expected a number above 0"));
    }
    let checked = check(&trials, |_, _| ()).map_err(|error| in_file(&args.file, error))?;
    let chosen = choose(&checked, &args.only)?;
    check_memory(&chosen, args.jobs, global)?;
    let mut due = VecDeque::new();
    let mut tally = Tally::default();
    for checked in chosen {
        match state::of(to, checked)? {
            State::Done => {
                if !args.keep_checkpoints {
                    trial::drop_checkpoints(&state::folder(to, &checked.trial.name));
                }
                tally.before += 1;
            }
            State::Failed(reason) => tally.failed.push((checked.trial.name.clone(), reason)),
            State::MeasuredOtherwise if !args.evaluate_again => {
                return Err(Failure::error(format!(
                    "trial {}: [evaluate] is another than it was measured with; add --evaluate-again to measure finished trials anew \
                     (their training is kept), or use another --to",
                    checked.trial.name
                )));
            }
            State::Open | State::MeasuredOtherwise => due.push_back(checked),
        }
    }
    keep_study_file(to, &args.file)?;
    global.talk().say(&format!(
        "{}: {} to run, {} done before, {} failed before",
        study.title.as_deref().unwrap_or("study"),
        plural(due.len() as u64, "trial"),
        tally.before,
        tally.failed.len()
    ));
    for (name, reason) in &tally.failed {
        global
            .talk()
            .say(&format!("{name}: failed before: {reason}"));
    }
    work(args, to, due, tally, global)
}

/// Refuses a study whose largest trials, `jobs` at a time, need too much memory.
pub(super) fn check_memory(
    chosen: &[&CheckedTrial],
    jobs: u16,
    global: &GlobalArgs,
) -> Result<(), Failure> {
    let mut needs: Vec<(u64, &str)> = chosen
        .iter()
        .map(|c| (c.estimate.memory_bytes, c.trial.name.as_str()))
        .collect();
    needs.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let Some((_, largest)) = needs.first() else {
        return Ok(());
    };
    let together = needs.iter().take(usize::from(jobs));
    let at_a_time = plural(u64::from(jobs), "trial");
    estimate::refuse_too_large(
        together.map(|(bytes, _)| bytes).sum(),
        &format!("{at_a_time} at a time, {largest} the largest"),
        "use fewer --jobs, raise schedule.micro-batches or take smaller models",
        global,
    )
}

/// The study and its trials, everything checked that needs no data.
fn read(file: &Path) -> Result<(Study, Vec<Trial>), Failure> {
    let study = Study::read(file)?;
    let trials = study.trials().map_err(|error| in_file(file, error))?;
    for text in &study.evaluate.what_if {
        Change::parse(text)
            .map_err(|error| Failure::error(format!("{}: {}", file.display(), error.message())))?;
    }
    Ok((study, trials))
}

pub(super) fn in_file(file: &Path, error: train::TrainError) -> Failure {
    Failure::error(format!("{}: {error}", file.display()))
}

/// The trials that `--only` names, all of them without it.
pub(super) fn choose<'c>(
    checked: &'c [CheckedTrial],
    only: &[String],
) -> Result<Vec<&'c CheckedTrial>, Failure> {
    let named = |pattern: &str, c: &CheckedTrial| {
        matches(pattern, &c.trial.name) || matches(pattern, &c.trial.variant)
    };
    for pattern in only {
        if !checked.iter().any(|c| named(pattern, c)) {
            let mut variants: Vec<&str> =
                checked.iter().map(|c| c.trial.variant.as_str()).collect();
            variants.dedup();
            return Err(Failure::error(format!(
                "--only {pattern}: no trial or variant has such a name{}",
                crate::suggest::did_you_mean(pattern, variants.into_iter())
            )));
        }
    }
    let wanted = |c: &&CheckedTrial| only.is_empty() || only.iter().any(|p| named(p, c));
    Ok(checked.iter().filter(wanted).collect())
}

/// Whether `text` fits `pattern`, where `*` stands for any characters and `?` for one.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    // where the last star was, and how much of the text it has taken
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Keeps the study file beside the trials, for reports.
fn keep_study_file(to: &Path, file: &Path) -> Result<(), Failure> {
    let fail =
        |path: &Path, error: std::io::Error| Failure::error(format!("{}: {error}", path.display()));
    let trials = to.join("trials");
    std::fs::create_dir_all(&trials).map_err(|error| fail(&trials, error))?;
    let text = std::fs::read(file).map_err(|error| fail(file, error))?;
    let copy = to.join("study.toml");
    if std::fs::read(&copy).is_ok_and(|found| found == text) {
        return Ok(());
    }
    crate::output::write_file(&copy, &text).map_err(|error| fail(&copy, error))
}

/// What became of the trials.
#[derive(Debug, Default)]
struct Tally {
    before: usize,
    done: usize,
    stopped: usize,
    busy: usize,
    failed: Vec<(String, String)>,
}

/// Runs what is due, `--jobs` at a time.
fn work(
    args: &RunArgs,
    to: &Path,
    due: VecDeque<&CheckedTrial>,
    tally: Tally,
    global: &GlobalArgs,
) -> Result<Exit, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    crate::commands::train::catch_interrupt(&stop);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u16);
    let threads = global.threads.unwrap_or(cores);
    let orders = Orders {
        study: to,
        threads: (threads / args.jobs).max(1),
        keep_checkpoints: args.keep_checkpoints,
        stop: &stop,
    };
    let deadline = args
        .max_minutes
        .map(|m| Instant::now() + Duration::from_secs_f64(60.0 * m));
    let all = due.len();
    let queue = Mutex::new((due, tally));
    let open = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let talk = global.talk();
    let worker = || -> Result<(), Failure> {
        loop {
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if late || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let Some(checked) = open().0.pop_front() else {
                return Ok(());
            };
            let began = Instant::now();
            let ended = orders.run(checked)?;
            let mut guard = open();
            let tally = &mut guard.1;
            let seconds = began.elapsed().as_secs_f64();
            let said = tally.count(&checked.trial.name, ended);
            let ended = tally.done + tally.stopped + tally.busy + tally.failed.len();
            talk.say(&format!(
                "[{ended}/{}] {}: {said}, {seconds:.0} s",
                all, checked.trial.name
            ));
        }
    };
    let results: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(worker)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Result<(), Failure>>| {
            worker
                .join()
                .unwrap_or_else(|_| Err(Failure::error("a worker ended without a result")))
        };
        workers.into_iter().map(join).collect()
    });
    results.into_iter().collect::<Result<(), Failure>>()?;
    let (left, tally) = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    let end = tally.end(left.len(), args, to, global);
    let interrupted = stop.load(Ordering::Relaxed) && end.open > 0;
    Ok(match end.failed {
        _ if interrupted => Exit::Interrupted,
        true if !global.exit_zero => Exit::Findings,
        _ => Exit::Clean,
    })
}

impl Tally {
    /// Counts a trial; what is said of it.
    fn count(&mut self, name: &str, ended: Ended) -> String {
        match ended {
            Ended::Recorded(record) if record.status == TrialStatus::Done => {
                self.done += 1;
                format!("done{}", found(&record))
            }
            Ended::Recorded(record) => {
                let reason = record.reason.unwrap_or_default();
                self.failed.push((name.to_owned(), reason.clone()));
                format!("{}: {reason}", record.status.name())
            }
            Ended::Stopped => {
                self.stopped += 1;
                "stopped".to_owned()
            }
            Ended::Busy => {
                self.busy += 1;
                "another process is working on it".to_owned()
            }
        }
    }

    /// Says what there is and what is not; `left` trials were not begun.
    fn end(self, left: usize, args: &RunArgs, to: &Path, global: &GlobalArgs) -> End {
        let open = left + self.stopped;
        let talk = global.talk();
        talk.say(&format!(
            "{} done, {} failed, {open} not done; `snellen study report {}` sums up",
            self.before + self.done,
            self.failed.len(),
            to.display()
        ));
        if open > 0 {
            talk.say(&format!("go on with `{}`", again(args, to, global)));
        }
        End {
            open,
            failed: !self.failed.is_empty(),
        }
    }
}

/// What is left at the end of a sitting.
struct End {
    /// Trials that are not done.
    open: usize,
    /// Whether one failed.
    failed: bool,
}

/// The command that goes on with the same choice of trials. A budget of minutes was for this sitting.
fn again(args: &RunArgs, to: &Path, global: &GlobalArgs) -> String {
    let mut line = CommandLine::new("snellen study run");
    line.word(&args.file.display().to_string());
    line.option("--to", Some(to.display()));
    let only = args.only.join(",");
    line.option("--only", (!only.is_empty()).then_some(only));
    line.option("--jobs", (args.jobs > 1).then_some(args.jobs));
    line.flag("--keep-checkpoints", args.keep_checkpoints);
    line.flag("--evaluate-again", args.evaluate_again);
    line.option("--threads", global.threads);
    line.option("--max-memory", global.max_memory);
    line.text()
}

/// Recall at the longest length, in short.
fn found(record: &StudyTrial) -> String {
    let measured = record.result.iter().flat_map(|result| &result.measured);
    let own = measured.filter(|m| m.change.is_none());
    let Some(longest) = own.max_by_key(|m| m.length) else {
        return String::new();
    };
    let mut text = String::new();
    if let Some(loss) = longest.loss {
        text.push_str(&format!(", loss {loss:.3}"));
    }
    for task in Group::ASKED.map(Group::name) {
        let far = longest
            .recall
            .iter()
            .filter(|cell| cell.task == task && 2 * cell.from >= longest.length);
        let (right, questions) = far.fold((0, 0), |(r, q), c| (r + c.right, q + c.questions));
        if questions > 0 {
            text.push_str(&format!(", {task} {:.2}", right as f64 / questions as f64));
        }
    }
    format!("{text} at {} tokens", longest.length)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks_stand_for_characters() {
        for (pattern, text, fits) in [
            ("lin8", "lin8", true),
            ("lin8", "lin8-s1", false),
            ("lin*", "lin8-s1", true),
            ("*-s1", "lin8-s1", true),
            ("*-s1", "lin8-s11", false),
            ("l?n*s?", "lin8-s1", true),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "a-b-b-c", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
