//! Indexes of sharded checkpoints. No accepted name leaves the folder.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use snellen_checkpoint::safetensors::parse_index;

fuzz_target!(|text: &[u8]| {
    if let Ok(map) = parse_index(text) {
        for name in map.values() {
            assert!(
                Path::new(name)
                    .components()
                    .all(|c| matches!(c, Component::Normal(_)))
            );
        }
    }
});
