//! What a forward pass will need, said before it starts.

use crate::args::GlobalArgs;
use crate::failure::Failure;
use ::audit::evidence::EvidenceCollector;
use model::{MemoryRequest, ModelSpec, memory_estimate};
use report::number::bytes;

/// An estimate below this is not worth a line.
const SAID_FROM_BYTES: u64 = 256 << 20;

/// Prints the estimate of an observed pass over `length` tokens where it is worth saying, and refuses one beyond
/// `--max-memory`. `n_heads` are those observed in a layer: their counts are kept until the layer is done.
pub(super) fn check(
    spec: &ModelSpec,
    length: usize,
    n_plans: usize,
    n_heads: usize,
    global: &GlobalArgs,
) -> Result<(), Failure> {
    let causal = spec.alibi.convention.causal;
    let per_head = EvidenceCollector::bytes_per_head(length as u64, causal, n_plans as u64);
    let request = MemoryRequest {
        observed: true,
        evidence: n_heads as u64 * per_head,
        ..MemoryRequest::new(length)
    };
    let total = memory_estimate(spec, &request).peak;
    judge(
        total,
        &report::text::plural(length as u64, "token"),
        "use a smaller --length or fewer --heads",
        global,
    )
}

/// All weights are kept in memory up to this size, unless `--max-memory` allows less.
const WEIGHTS_KEPT_BYTES: u64 = 16 << 30;

/// The same for many unobserved passes of at most `length` tokens, with `caches` key/value caches, at least one. Gives whether
/// all weights may be kept in memory between passes; otherwise each pass reads them again.
pub(super) fn check_repeated(
    spec: &ModelSpec,
    length: usize,
    caches: u64,
    global: &GlobalArgs,
) -> Result<bool, Failure> {
    let cache = 2 * (size_of::<f32>() * spec.n_layers * spec.kv_width()) as u64 * length as u64;
    let estimate = |keep_weights| {
        let request = MemoryRequest {
            cache: true,
            evidence: (caches - 1) * cache,
            keep_weights,
            ..MemoryRequest::new(length)
        };
        memory_estimate(spec, &request)
    };
    let kept = estimate(true);
    let keep = kept.weights <= WEIGHTS_KEPT_BYTES
        && global.max_memory.is_none_or(|limit| kept.peak <= limit);
    judge(
        if keep {
            kept.peak
        } else {
            estimate(false).peak
        },
        &report::text::plural(length as u64, "token"),
        "use a smaller length",
        global,
    )?;
    Ok(keep)
}

/// The same for bounds from weights, whatever the length: the query and key projections of two layers in f32, and of one in
/// f64 with a copy to work on.
pub(super) fn check_bounds(spec: &ModelSpec, global: &GlobalArgs) -> Result<(), Failure> {
    let projections = spec.width as u64 * (spec.query_width() + spec.kv_width()) as u64;
    let total = projections * (2 * size_of::<f32>() + 2 * size_of::<f64>()) as u64;
    judge(
        total,
        "the weights of two layers",
        "raise the limit",
        global,
    )
}

/// Bytes of main memory and of swap space, where the system says so.
fn memory_of_the_machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |key: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((kib("MemTotal:")? + kib("SwapTotal:").unwrap_or(0)) << 10)
}

/// Says an estimate that is worth a line, and refuses one that is too large.
fn judge(total: u64, what: &str, way_out: &str, global: &GlobalArgs) -> Result<(), Failure> {
    let what = format!("{what}, beyond the mapped weights");
    refuse_too_large(total, &what, way_out, global)?;
    if total >= SAID_FROM_BYTES {
        global.talk().say(&said(total, &what));
    }
    Ok(())
}

fn said(total: u64, what: &str) -> String {
    format!("estimate: about {} of memory for {what}", bytes(total))
}

/// Refuses what needs more memory than `--max-memory` allows, or than the machine has where no limit is given: it would be killed in the
/// end. `way_out`: what to do about it.
pub(super) fn refuse_too_large(
    total: u64,
    what: &str,
    way_out: &str,
    global: &GlobalArgs,
) -> Result<(), Failure> {
    let refusal = |than: String, or: &str| {
        let said = said(total, what);
        Err(Failure::error(format!(
            "{said}, more than {than}; {way_out}{or}"
        )))
    };
    match (global.max_memory, memory_of_the_machine()) {
        (Some(limit), _) if total > limit => refusal(format!("--max-memory {}", bytes(limit)), ""),
        (None, Some(all)) if total > all => refusal(
            format!("the {} of this machine", bytes(all)),
            ", or say --max-memory to try all the same",
        ),
        _ => Ok(()),
    }
}
