//! Family conventions and known models.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use snellen_numerics::{
    BiasForm, Family, Format, KeyOrigin, ScaleOrder, SlopeSchedule, SlopeStorage, known_model,
    known_models,
};

/// docs/FAMILIES.md, Overview, one row a family.
#[test]
fn conventions_as_surveyed() {
    use BiasForm::{KeyPosition, Relative};
    for (family, form, origin, causal) in [
        (Family::Bloom, KeyPosition, KeyOrigin::Zero, true),
        (Family::Mpt, KeyPosition, KeyOrigin::LengthEnd, true),
        (Family::Falcon, KeyPosition, KeyOrigin::Zero, true),
        (Family::Baichuan, KeyPosition, KeyOrigin::Zero, true),
        (Family::Jais, Relative, KeyOrigin::Zero, true),
        (Family::Refact, KeyPosition, KeyOrigin::One, true),
        (Family::Replit, KeyPosition, KeyOrigin::LengthEnd, true),
        (Family::JinaBert, Relative, KeyOrigin::Zero, false),
        (Family::MosaicBert, Relative, KeyOrigin::Zero, false),
        (Family::Custom, Relative, KeyOrigin::Zero, true),
    ] {
        let convention = family.convention();
        assert_eq!(
            (convention.form, convention.key_origin, convention.causal),
            (form, origin, causal),
            "{family}"
        );
        let falcon = family == Family::Falcon;
        assert_eq!(
            convention.scale_order == ScaleOrder::BiasBeforeScale,
            falcon,
            "{family}"
        );
        assert_eq!(convention.storage.is_some(), falcon, "{family}");
        assert_eq!(
            convention.slope_storage == SlopeStorage::ModelDtype,
            family == Family::Jais,
            "{family}"
        );
    }
}

/// docs/FAMILIES.md, Falcon: position 257 is stored as 256, and keys from 257 on come in tied groups.
#[test]
fn falcon_rounds_position_and_product_to_bf16() {
    let storage = Family::Falcon.convention().storage.unwrap();
    assert_eq!(storage.store(0.5, 257.0), storage.store(0.5, 256.0));
    let m = 2.0_f64.powf(-0.25);
    let tables_differ = (0..2048)
        .map(f64::from)
        .filter(|j| storage.store(m, *j) != Format::Bf16.round(m * j))
        .count();
    assert!(tables_differ > 0);
    // Exactly representable below 257 for a slope that is a power of two.
    assert!(
        (0..=256)
            .map(f64::from)
            .all(|j| storage.store(0.25, j) == 0.25 * j)
    );
}

#[test]
fn names_are_read_back() {
    for family in Family::ALL {
        assert_eq!(Family::parse(family.name()), Some(family));
        assert_eq!(
            Family::parse(&family.to_string().to_uppercase()),
            Some(family)
        );
    }
    assert_eq!(Family::parse("bloomz"), Some(Family::Bloom));
    assert_eq!(Family::parse("btlm"), Some(Family::Jais));
    assert_eq!(Family::parse("llama"), None);
}

#[test]
fn slope_rules() {
    assert_eq!(
        Family::Bloom.slope_schedule(Some(16.0)),
        Some(SlopeSchedule::Press)
    );
    assert_eq!(
        Family::Mpt.slope_schedule(None),
        Some(SlopeSchedule::Mpt { bias_max: 8.0 })
    );
    assert_eq!(Family::Custom.slope_schedule(None), None);
}

/// Every known model: a unique name that is found, a possible shape, slopes, and a source that owns up to memory.
#[test]
fn known_models_are_consistent() {
    for (i, model) in known_models().iter().enumerate() {
        assert_eq!(known_model(model.name), Some(model));
        assert!(
            known_models()[..i]
                .iter()
                .all(|other| other.name != model.name),
            "{}",
            model.name
        );
        assert!(model.width().is_multiple_of(64), "{}", model.name);
        assert_ne!(model.family, Family::Custom);
        let schedule = model.slope_schedule();
        assert_eq!(schedule.slopes(model.n_heads).unwrap().len(), model.n_heads);
        assert!(!model.source.is_empty());
    }
}

/// docs/FAMILIES.md, Known models: width, heads, layers.
#[test]
fn published_sizes() {
    for (name, width, n_heads, n_layers) in [
        ("bloom-560m", 1024, 16, 24),
        ("bloom-3b", 2560, 32, 30),
        ("bloom-7b1", 4096, 32, 30),
        ("bloom", 14336, 112, 70),
        ("mpt-7b", 4096, 32, 32),
        ("mpt-30b", 7168, 64, 48),
        ("baichuan-13b", 5120, 40, 40),
        ("refact-1.6b", 2048, 32, 32),
        ("replit-code-1.5", 3072, 24, 32),
        ("jina-v2-base", 768, 12, 12),
    ] {
        let model = known_model(name).unwrap();
        assert_eq!(
            (model.width(), model.n_heads, model.n_layers),
            (width, n_heads, Some(n_layers)),
            "{name}"
        );
    }
    assert_eq!(known_model("bloom-1b7").unwrap().width(), 2048);
    assert_eq!(known_model("falcon-rw-1b").unwrap().width(), 2048);
}

#[test]
fn look_up() {
    assert_eq!(
        known_model("bigscience/BLOOM-560m").unwrap().name,
        "bloom-560m"
    );
    assert_eq!(known_model("bloom-176b").unwrap().name, "bloom");
    assert_eq!(known_model("mpt-7b-storywriter").unwrap().bias_max, 16.0);
    assert_eq!(known_model("llama-7b"), None);
}
