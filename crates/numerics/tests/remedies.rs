//! Remedies as text.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use proptest::prelude::*;
use snellen_numerics::{
    BiasFunction, BiasShape, CapOrder, Remedy, RobustSpacing, SlopeSchedule, SoftCap, Spacing,
};

/// Parses `input` and compares its canonical form.
#[track_caller]
fn check(input: &str, canonical: &str) {
    let remedy = Remedy::parse(input).unwrap();
    assert_eq!(remedy.to_string(), canonical);
    assert_eq!(Remedy::parse(canonical).unwrap(), remedy);
}

#[track_caller]
fn check_error(input: &str, part_of_message: &str) {
    let message = Remedy::parse(input).unwrap_err().to_string();
    assert!(message.contains(part_of_message), "{input:?}: {message}");
    assert!(!message.contains('\n'));
}

#[test]
fn canonical_forms() {
    check("none", "none");
    check("clamp=-12", "clamp=-12");
    check("log", "log");
    check("sqrt", "sqrt");
    check("nope", "nope");
    check("cap=30", "cap=30");
    check("cap-before=30", "cap=30");
    check("cap-after=30", "cap-after=30");
    check("interpolate=0.5", "interpolate=0.5");
    check("interpolate=2048/4096", "interpolate=0.5");
    check("interpolate=1", "none");
    check("robust=max-distance", "robust=max-distance");
    check("log+clamp=-20", "clamp=-20+log");
    check(
        " cap-after = 8 + log + clamp=-20.5 + robust=even + interpolate=.25",
        "robust=even+interpolate=0.25+clamp=-20.5+log+cap-after=8",
    );
}

/// docs/NUMERICS.md, Bias functions and remedies: the short forms of its table.
#[test]
fn short_codes() {
    check("C=-20+L", "clamp=-20+log");
    check("S=30+I=0.5", "interpolate=0.5+cap=30");
    check("E=geometric", "robust=geometric");
}

#[test]
fn errors_say_what_is_wrong_and_what_would_do() {
    check_error("clamp", "clamp=-12");
    check_error("clamp=12", "below 0");
    check_error("clamp=nan", "below 0");
    check_error("cap=0", "cap=30");
    check_error("cap-after", "cap-after=30");
    check_error("interpolate=2", "at most 1");
    check_error("interpolate=0", "above 0");
    check_error("interpolate=1/0", "above 0");
    check_error("robust", "robust=even");
    check_error("E", "robust=geometric");
    check_error("P", "precision plan");
    check_error("log=2", "takes no value");
    check_error("log+sqrt", "given twice");
    check_error("clamp=-1+clamp=-2", "given twice");
    check_error("cap=3+cap-after=3", "given twice");
    check_error("log+", "empty part");
    check_error("", "empty part");
    check_error("rotary", "unknown part \"rotary\"");
    check_error("none+log", "unknown part \"none\"");
}

#[test]
fn meaning() {
    let remedy = BiasFunction::parse_remedy("clamp=-20+log+cap-after=8+interpolate=0.5").unwrap();
    let expected = BiasFunction {
        shape: BiasShape::Log,
        clamp: Some(-20.0),
        soft_cap: Some(SoftCap {
            cap: 8.0,
            order: CapOrder::AfterBias,
        }),
        interpolation: 0.5,
    };
    assert_eq!(
        remedy,
        Remedy {
            bias: expected,
            robust: None
        }
    );
}

#[test]
fn robust_slopes_replace_the_schedule() {
    let own = SlopeSchedule::Press;
    assert_eq!(Remedy::none().schedule(&own, 2048, -87.0), own);
    let robust = Remedy::parse("robust=even")
        .unwrap()
        .schedule(&own, 2048, -87.0);
    assert_eq!(
        robust,
        SlopeSchedule::Robust(RobustSpacing {
            spacing: Spacing::Even,
            context: 2048,
            tau: -87.0
        })
    );
}

proptest! {
    /// Every remedy that text can hold comes back from its canonical form, bit for bit.
    #[test]
    fn display_and_parse_are_inverse(
        shape in prop_oneof![Just(BiasShape::Linear), Just(BiasShape::Log), Just(BiasShape::Sqrt), Just(BiasShape::None)],
        clamp in prop::option::of(-1e3_f64..-1e-3),
        cap in prop::option::of((1e-3_f64..1e3, any::<bool>())),
        interpolation in 1e-3_f64..=1.0,
        robust in prop::option::of(prop::sample::select(Spacing::ALL.to_vec())),
    ) {
        let soft_cap = cap.map(|(cap, after)| SoftCap {
            cap,
            order: if after { CapOrder::AfterBias } else { CapOrder::BeforeBias },
        });
        let remedy = Remedy { bias: BiasFunction { shape, clamp, soft_cap, interpolation }, robust };
        prop_assert_eq!(Remedy::parse(&remedy.to_string()), Ok(remedy));
    }

    #[test]
    fn any_text_is_answered_in_one_line(text in "[a-zCLSEIP+=./0-9 -]{0,40}") {
        if let Err(error) = Remedy::parse(&text) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}
