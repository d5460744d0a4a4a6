//! Per-head statistics of the fixtures of the data folder (`golden.json`, from the attention of transformers 5.24, seed 5, 200
//! tokens): exact zeros, mass on key 0, mass by distance, mean distance.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed unwrap is a failed test; a skipped test says so"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{ForwardOptions, Model};
use numerics::PrecisionPlan;
use serde_json::Value;
use snellen_audit::evidence::{Evidence, EvidenceCollector, EvidenceOptions};

/// Tolerance for probabilities, means of which these are.
const PROBABILITY: f64 = 1e-5;

fn fixture(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("SNELLEN_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = shared.join("fixtures").join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: {} not found", folder.display());
    None
}

/// `input_ids` (I64) of a safetensors file.
fn input_ids(path: &Path) -> Vec<u32> {
    let bytes = std::fs::read(path).unwrap();
    let header = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let json: Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    let tensor = &json["input_ids"];
    assert_eq!(tensor["dtype"], "I64");
    let offset = |index: usize| {
        header + usize::try_from(tensor["data_offsets"][index].as_u64().unwrap()).unwrap()
    };
    bytes[offset(0)..offset(1)]
        .chunks_exact(8)
        .map(|id| u32::try_from(i64::from_le_bytes(id.try_into().unwrap())).unwrap())
        .collect()
}

fn measure(folder: &Path, plan: &str) -> (Evidence, usize) {
    let checkpoint = checkpoint::open(folder).unwrap();
    let spec = checkpoint.runnable().unwrap().clone();
    let ids = input_ids(&folder.join("golden.safetensors"));
    let plans = vec![PrecisionPlan::parse(plan, spec.family).unwrap()];
    let options = EvidenceOptions {
        length: ids.len(),
        ..EvidenceOptions::default()
    };
    let collector = EvidenceCollector::new(&spec, plans, options);
    let model = Model::new(spec, Arc::new(checkpoint)).unwrap();
    let observer = Arc::new(collector.clone());
    model
        .forward(
            &ids,
            ForwardOptions {
                observer: Some(observer),
                ..ForwardOptions::default()
            },
        )
        .unwrap();
    (collector.finish(), ids.len())
}

fn against_golden(name: &str, plan: &str) {
    let Some(folder) = fixture(name) else { return };
    let golden: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("golden.json")).unwrap())
            .unwrap();
    let stats = &golden["stats"];
    let (evidence, length) = measure(&folder, plan);
    let edges: Vec<u64> = stats["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| edge.as_u64().unwrap())
        .collect();
    assert_eq!(evidence.edges, edges);
    assert!(!evidence.heads.is_empty());
    for head in &evidence.heads {
        let at = |key: &str| &stats[key][head.layer][head.head];
        let label = format!("{name} layer {} head {}", head.layer, head.head);
        let near = |found: f64, expected: f64, tolerance: f64, what: &str| {
            let distance = (found - expected).abs();
            assert!(
                distance <= tolerance,
                "{label}, {what}: {found}, expected {expected}, off by {distance:e}"
            );
        };
        assert_eq!(head.pairs, stats["pairs"].as_u64().unwrap(), "{label}");
        let zeros = (at("zero_frac").as_f64().unwrap() * head.pairs as f64).round() as u64;
        let plan = &head.plans[0];
        assert!(
            plan.blind_pairs.abs_diff(zeros) <= plan.undecided_pairs,
            "{label}: {} blind, {zeros} expected, {} undecided",
            plan.blind_pairs,
            plan.undecided_pairs
        );
        near(
            head.key0_mass.unwrap(),
            at("bos_mass").as_f64().unwrap(),
            PROBABILITY,
            "key 0",
        );
        for (bin, mass) in at("mass").as_array().unwrap().iter().enumerate() {
            near(
                head.mass_by_distance[bin],
                mass.as_f64().unwrap(),
                PROBABILITY,
                "mass",
            );
        }
        // A mass that is off by 1e-5 may lie at any distance.
        near(
            head.mean_distance.unwrap(),
            at("mean_dist").as_f64().unwrap(),
            PROBABILITY * length as f64,
            "mean distance",
        );
    }
}

#[test]
fn bloom_equals_transformers() {
    against_golden("tiny_bloom", "hf-eager");
}

#[test]
fn mpt_equals_transformers() {
    against_golden("tiny_mpt", "hf-eager");
}

/// The golden has the bias once, which is what the model means; hf-eager would be the doubled one. vllm-paged normalises in
/// f32 as the golden does.
#[test]
fn falcon_equals_transformers_with_the_bias_once() {
    against_golden("tiny_falcon", "vllm-paged");
}

/// Watching changes no bit of the result.
#[test]
fn evidence_does_not_change_the_logits() {
    let Some(folder) = fixture("tiny_bloom") else {
        return;
    };
    let checkpoint = checkpoint::open(&folder).unwrap();
    let spec = checkpoint.runnable().unwrap().clone();
    let ids = input_ids(&folder.join("golden.safetensors"));
    let plans =
        ["ftz", "hf-eager:bf16"].map(|plan| PrecisionPlan::parse(plan, spec.family).unwrap());
    let options = EvidenceOptions {
        length: ids.len(),
        ..EvidenceOptions::default()
    };
    let collector = Arc::new(EvidenceCollector::new(&spec, plans.to_vec(), options));
    let model = Model::new(spec, Arc::new(checkpoint)).unwrap();
    let logits = |options: ForwardOptions<'_>| {
        let hidden = model.forward(&ids, options).unwrap();
        model.logits(&hidden, 0..ids.len()).unwrap()
    };
    let plain = logits(ForwardOptions::default());
    let watched = logits(ForwardOptions {
        observer: Some(collector),
        ..ForwardOptions::default()
    });
    assert!(
        plain
            .iter()
            .zip(&watched)
            .all(|(a, b)| a.to_bits() == b.to_bits())
    );
}
