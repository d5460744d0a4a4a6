//! What a training file may say.

use super::*;

const MINIMAL: &str = "snellen-run = 1\n[data]\ntrain = \"a\"\nheld = \"b\"\n\
                       [schedule]\nstages = \"64:10\"\ntokens-per-step = 128\nlr = 1e-3\n";

fn with(more: &str) -> Result<RunConfig, TrainError> {
    let config = RunConfig::parse(&format!("{MINIMAL}{more}"))?;
    config.validate()?;
    config.shape(300)?;
    config.position.resolve(8, 64)?;
    Ok(config)
}

#[test]
fn presets_have_the_sizes_they_are_named_for() {
    for (name, vocab, millions, tolerance) in [
        ("nano", 2048, 1.05, 0.03),
        ("small", 2048, 3.05, 0.03),
        ("medium", 8192, 12.4, 0.03),
        ("148m", 50_304, 148.0, 0.02),
    ] {
        let config = with(&format!("[model]\npreset = {name:?}\n")).unwrap();
        let shape = config.shape(vocab).unwrap();
        let position = config.position.resolve(shape.heads, shape.context).unwrap();
        let n = crate::params::Layout::new(&shape, &position).len() as f64 / 1e6;
        assert!(
            (n / millions - 1.0).abs() < tolerance,
            "{name}: {n} million"
        );
    }
}

#[test]
fn mistakes_name_the_key() {
    for (more, wanted) in [
        ("[model]\npreset = \"huge\"\n", "model.preset"),
        ("[model]\nheads = 7\n", "model.heads = 7"),
        ("[model]\nlayer = 7\n", "unknown field `layer`"),
        ("[position]\nremedy = \"clamp\"\n", "position.remedy"),
        (
            "[position]\nkind = \"rope\"\nremedy = \"log\"\n",
            "position.remedy",
        ),
        ("[attention]\nplan = \"ftzz\"\n", "attention.plan"),
        (
            "[attention]\nplan = \"ftz\"\nzero-beyond = 3.0\n",
            "exclude",
        ),
        ("[optimiser]\nbeta1 = 1.0\n", "optimiser.beta1"),
        ("[watch]\nkeep-last = 0\n", "watch.keep-last"),
    ] {
        let error = with(more).unwrap_err().to_string();
        assert!(error.contains(wanted), "{more}: {error}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
    for (from, to, wanted) in [
        ("64:10", "64", "LENGTH:STEPS"),
        ("64:10", "60:10", "no multiple"),
        ("lr = 1e-3", "lr = -1", "schedule.lr"),
        ("snellen-run = 1", "snellen-run = 2", "snellen-run"),
    ] {
        let text = MINIMAL.replace(from, to);
        let error = RunConfig::parse(&text)
            .and_then(|c| c.validate())
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{to}: {error}");
    }
}

#[test]
fn learning_rates_rise_and_fall() {
    let mut config = with("").unwrap();
    config.schedule = ScheduleConfig {
        warmup: 10,
        lr: 1.0,
        lr_end: 0.1,
        ..config.schedule
    };
    let rate = |config: &RunConfig, step| config.learning_rate(step, 110);
    assert_eq!((rate(&config, 1), rate(&config, 10)), (0.1, 1.0));
    assert!((rate(&config, 60) - 0.55).abs() < 1e-12 && (rate(&config, 110) - 0.1).abs() < 1e-12);
    config.schedule.shape = Shape::Wsd;
    assert_eq!((rate(&config, 11), rate(&config, 88)), (1.0, 1.0));
    assert!((rate(&config, 110) - 0.1).abs() < 1e-12 && rate(&config, 99) < 0.6);
}

#[test]
fn a_file_reads_back_what_it_writes() {
    let config = with("[recall]\npairs = 2\n[attention]\nplan = \"ftz\"\n").unwrap();
    assert_eq!(RunConfig::parse(&config.canonical()).unwrap(), config);
}
