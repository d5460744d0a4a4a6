//! The crate graph of `ARCHITECTURE.md`, held by a test: a crate may use crates upstream of it and nothing else.

use std::collections::BTreeMap;
use std::path::Path;

/// The crates in their only permitted direction: each may depend on those before it.
const ORDER: [&str; 8] = [
    "numerics",
    "kernels",
    "model",
    "checkpoint",
    "audit",
    "train",
    "report",
    "cli",
];

/// Dependencies a crate must never gain, because of what it must not know.
const FORBIDDEN: &[(&str, &[&str])] = &[
    // No tensors, files, threads.
    (
        "numerics",
        &["burn", "rayon", "gemm", "memmap2", "serde_json", "toml"],
    ),
    // No models, files.
    (
        "kernels",
        &["burn", "memmap2", "serde_json", "toml", "tokenizers"],
    ),
    // No file formats.
    (
        "model",
        &["memmap2", "serde_json", "toml", "tokenizers", "half"],
    ),
    // Statistics belong to audit, which opens no files.
    ("audit", &["memmap2", "toml", "tokenizers", "burn"]),
    // A sibling of audit; the step is its own.
    ("train", &["audit", "burn", "memmap2"]),
    // The result schema knows no tensors.
    (
        "report",
        &["burn", "gemm", "memmap2", "tokenizers", "rayon"],
    ),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The names in `[dependencies]` of every crate folder.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let mut graph = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("crates/ exists") {
        let folder = entry.expect("readable folder").path();
        let manifest =
            std::fs::read_to_string(folder.join("Cargo.toml")).expect("each crate has a manifest");
        let manifest: toml::Table = manifest.parse().expect("a manifest is TOML");
        let names = manifest
            .get("dependencies")
            .and_then(|d| d.as_table())
            .map(|d| d.keys().cloned().collect())
            .unwrap_or_default();
        let name = folder.file_name().expect("a name").to_string_lossy();
        graph.insert(name.into_owned(), names);
    }
    graph
}

#[test]
fn the_crates_are_those_of_the_list() {
    let found: Vec<String> = dependencies().into_keys().collect();
    let mut listed: Vec<String> = ORDER.iter().map(|s| (*s).to_owned()).collect();
    listed.sort();
    assert_eq!(found, listed, "crates/ and ORDER disagree");
}

#[test]
fn edges_point_upstream_only() {
    let rank = |name: &str| ORDER.iter().position(|o| *o == name);
    for (name, used) in dependencies() {
        let own = rank(&name).expect("listed");
        for dep in used {
            if let Some(theirs) = rank(&dep) {
                assert!(
                    theirs < own,
                    "{name} depends on {dep}, which is not upstream of it"
                );
            }
        }
    }
}

#[test]
fn no_crate_gains_what_it_must_not_know() {
    let graph = dependencies();
    for (name, forbidden) in FORBIDDEN {
        for dep in *forbidden {
            assert!(
                !graph[*name].iter().any(|d| d == dep),
                "{name} must not depend on {dep}"
            );
        }
    }
}

/// `unsafe` stays in `kernels` and in the memory map of `checkpoint`.
#[test]
fn unsafe_code_stays_where_it_is_argued() {
    fn visit(folder: &Path, offenders: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("readable folder") {
            let path = entry.expect("readable entry").path();
            if path.is_dir() {
                visit(&path, offenders);
                continue;
            }
            if path.extension().is_none_or(|e| e != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("UTF-8 source");
            let has = text
                .lines()
                .filter(|l| !l.trim_start().starts_with("//"))
                .any(|l| {
                    l.contains(concat!("uns", "afe {")) || l.contains(concat!("uns", "afe fn"))
                });
            let shown = path.to_string_lossy().replace('\\', "/");
            let allowed = shown.contains("/crates/kernels/src/")
                || shown.ends_with("/crates/checkpoint/src/safetensors/file.rs");
            if has && !allowed {
                offenders.push(shown);
            }
        }
    }
    let mut offenders = Vec::new();
    for name in ORDER {
        visit(
            &root().join("crates").join(name).join("src"),
            &mut offenders,
        );
    }
    assert!(offenders.is_empty(), "unsafe code in {offenders:?}");
}
