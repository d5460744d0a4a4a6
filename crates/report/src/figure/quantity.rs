//! The eye chart of a quantity other than the verb's own: what the page offers under *Show*.

use super::Figure;
use super::eye::{self, Bar, Grid, Place, Words};
use super::scale::{Kind, Scale};
use crate::document::Document;
use crate::number::{Distance, percent, short};
use crate::schema::{
    AuditHead, AuditPlanCertificate, AuditReport, FindingRecord, HorizonHead, HorizonPlan,
    HorizonReport, MeasureHead, MeasurePlanEvidence, MeasureReport, PlanInfo,
};

/// What a quantity is compared with.
#[derive(Clone, Copy, Debug)]
struct Context {
    /// Tokens.
    length: f64,
    /// The largest score bound of all heads, nats.
    bound: f64,
}

/// A quantity of heads of type `H` under plans of type `P`.
struct Quantity<H, P> {
    /// Name of the field, as in the schema.
    name: &'static str,
    title: &'static str,
    /// What a bar is.
    bar: &'static str,
    /// Whether it differs by plan.
    planned: bool,
    of: fn(&H, &P, Context) -> Option<Bar>,
}

const fn quantity<H, P>(
    name: &'static str,
    title: &'static str,
    bar: &'static str,
    planned: bool,
    of: fn(&H, &P, Context) -> Option<Bar>,
) -> Quantity<H, P> {
    Quantity {
        name,
        title,
        bar,
        planned,
        of,
    }
}

const HORIZON: [Quantity<HorizonHead, ()>; 4] = [
    quantity(
        "blind_share_last_row",
        "What the last token sees",
        "the share of the last row that is seen",
        true,
        |head, (), _| seen(head.blind_share_last_row),
    ),
    quantity(
        "blind_share",
        "Pairs seen",
        "the share of all pairs that is seen",
        true,
        |head, (), _| seen(Some(head.blind_share)),
    ),
    quantity(
        "first_blind_distance",
        "First blind distance",
        DISTANCE,
        true,
        |head, (), context| distance(head.first_blind_distance, context, full("never")),
    ),
    quantity(
        "distinct_bias_last_20",
        "Distinct biases of the last 20 keys",
        "distinct biases out of 20",
        true,
        |head, (), _| {
            #[allow(clippy::cast_precision_loss)] // 20 at most
            let share = head.distinct_bias_last_20 as f64 / 20.0;
            Some(Bar {
                text: head.distinct_bias_last_20.to_string(),
                ..Bar::of_share(share)
            })
        },
    ),
];

const AUDIT: [Quantity<AuditHead, AuditPlanCertificate>; 4] = [
    quantity(
        "expected_horizon",
        "Expected horizon",
        DISTANCE,
        true,
        |_, own, context| distance(own.expected_horizon, context, never(own)),
    ),
    quantity(
        "guaranteed_visible",
        "Guaranteed visible",
        DISTANCE,
        true,
        |head, own, context| {
            // a bounded head of which nothing is guaranteed sees 0 for certain; of an unbounded one nothing is known
            let nothing = head.score_bound.map(|_| bar(0.0, 0.0, "0".to_owned()));
            distance(own.guaranteed_visible, context, nothing)
        },
    ),
    quantity(
        "certified_horizon",
        "Certified horizon",
        DISTANCE,
        true,
        |_, own, context| distance(own.certified_horizon, context, never(own)),
    ),
    quantity(
        "score_bound",
        "Score bound",
        "the score bound in nats, against the largest",
        false,
        |head, _, context| {
            let share = head.score_bound? / context.bound.max(f64::MIN_POSITIVE);
            Some(bar(share, 1.0 - share, short(head.score_bound?)))
        },
    ),
];

const MEASURE: [Quantity<MeasureHead, MeasurePlanEvidence>; 6] = [
    quantity(
        "blind_share",
        "Pairs seen",
        "the share of pairs that is seen",
        true,
        |_, own, _| seen(own.blind_share),
    ),
    quantity(
        "first_blind_distance",
        "First blind distance",
        DISTANCE,
        true,
        |_, own, context| {
            let none = if own.blind_share == Some(0.0) {
                full("none")
            } else {
                None
            };
            distance(own.first_blind_distance.map(Distance::from), context, none)
        },
    ),
    quantity(
        "reach_50",
        "Reach of half of the attention",
        DISTANCE,
        false,
        |head, _, context| distance(head.reach_50.map(Distance::from), context, None),
    ),
    quantity(
        "reach_90",
        "Reach of nine tenths of the attention",
        DISTANCE,
        false,
        |head, _, context| distance(head.reach_90.map(Distance::from), context, None),
    ),
    quantity(
        "effective_horizon",
        "Effective horizon",
        DISTANCE,
        false,
        |head, _, context| distance(head.effective_horizon, context, None),
    ),
    quantity(
        "key0_excess",
        "Attention on the first token, above uniform",
        "the share on the first token",
        false,
        |head, _, _| {
            let share = head.key0_excess?.clamp(0.0, 1.0);
            Some(bar(share, 1.0 - share, percent(share)))
        },
    ),
];

const DISTANCE: &str = "the distance on a logarithmic scale up to the length";

/// Names of the quantities that a result can be drawn by.
#[must_use]
pub fn names(document: &Document) -> Vec<&'static str> {
    match document {
        Document::Horizon(_) => HORIZON.iter().map(|quantity| quantity.name).collect(),
        Document::Audit(_) => AUDIT.iter().map(|quantity| quantity.name).collect(),
        Document::Measure(_) => MEASURE.iter().map(|quantity| quantity.name).collect(),
        Document::Pair(pair) => {
            let mut both = names(&pair.a);
            both.extend(names(&pair.b));
            both.dedup();
            both
        }
        _ => Vec::new(),
    }
}

/// The charts of a quantity; `None` where the result has none of this name.
pub(super) fn figures(document: &Document, name: &str, width: f64) -> Option<Vec<Figure>> {
    match document {
        Document::Horizon(report) => horizon(report, name, width),
        Document::Audit(report) => audit(report, name, width),
        Document::Measure(report) => measure(report, name, width),
        Document::Pair(pair) => {
            let mut out = super::pair::changes(pair, name, width);
            for (letter, side) in [("A", &pair.a), ("B", &pair.b)] {
                let own = figures(side, name, width).unwrap_or_default();
                out.extend(super::pair::with_letter(letter, own));
            }
            (!out.is_empty()).then_some(out)
        }
        _ => None,
    }
}

fn bar(level: f64, good: f64, text: String) -> Bar {
    Bar {
        level: level.clamp(0.0, 1.0),
        // full colour is kept for what has no limit
        good: good.clamp(0.0, 0.999_999),
        text,
    }
}

/// Without a limit.
fn full(text: &str) -> Option<Bar> {
    Some(Bar {
        level: 1.0,
        good: 1.0,
        text: text.to_owned(),
    })
}

fn never(own: &AuditPlanCertificate) -> Option<Bar> {
    if own.always_visible {
        full("never")
    } else {
        None
    }
}

/// What is not blind.
fn seen(blind: Option<f64>) -> Option<Bar> {
    blind.map(|share| Bar::of_share(1.0 - share))
}

fn distance(at: Option<Distance>, context: Context, absent: Option<Bar>) -> Option<Bar> {
    let Some(at) = at else { return absent };
    let furthest = (context.length - 1.0).max(1.0);
    if at.tokens() >= furthest {
        return full(&at.to_string());
    }
    let share = Scale::new(Kind::Log, 0.0, furthest, (0.0, 1.0)).at(at.tokens());
    Some(bar(share, share, at.to_string()))
}

#[allow(clippy::cast_precision_loss)] // tokens
fn context(length: Option<u64>, bounds: impl Iterator<Item = f64>) -> Context {
    Context {
        length: length.unwrap_or(2048) as f64,
        bound: bounds.fold(0.0, f64::max),
    }
}

fn draw<H, P>(
    grid: &Grid,
    chosen: &Quantity<H, P>,
    plan: Option<&str>,
    width: f64,
) -> Option<Figure> {
    let under = plan.map_or(String::new(), |plan| format!(", under {plan}"));
    let words = Words {
        lead: "",
        bar: chosen.bar,
        full: "has no limit within the length",
        fulls: "have no limit within the length",
        unknown: "not measured or not provable",
    };
    eye::draw(grid, &format!("{}{under}", chosen.title), &words, width)
}

fn horizon(report: &HorizonReport, name: &str, width: f64) -> Option<Vec<Figure>> {
    let chosen = HORIZON.iter().find(|quantity| quantity.name == name)?;
    let context = context(report.envelope.length, std::iter::empty());
    let findings = &report.outcome.findings;
    let row = |plan: &HorizonPlan| {
        let place = |head: &HorizonHead| {
            Some(Place {
                bar: (chosen.of)(head, &(), context),
                mark: crate::text::mark(findings, &plan.info.plan, 0, head.head),
            })
        };
        (
            plan.info.plan.clone(),
            plan.heads.iter().map(place).collect(),
        )
    };
    let grid = Grid {
        row_name: "plan",
        heads: report.heads.iter().map(|head| head.head).collect(),
        rows: report.plans.iter().map(row).collect(),
    };
    Some(draw(&grid, chosen, None, width).into_iter().collect())
}

/// The bars of one plan in rows of layers, with the letters of its findings.
fn marked(
    findings: &[FindingRecord],
    plan: &str,
    bars: impl Iterator<Item = (u64, u64, Option<Bar>)>,
) -> Grid {
    Grid::by_layer(bars.map(|(layer, head, bar)| {
        let mark = crate::text::mark(findings, plan, layer, head);
        (layer, head, Place { bar, mark })
    }))
}

fn audit(report: &AuditReport, name: &str, width: f64) -> Option<Vec<Figure>> {
    let chosen = AUDIT.iter().find(|quantity| quantity.name == name)?;
    let bounds = report.heads.iter().filter_map(|head| head.score_bound);
    let context = context(report.envelope.length, bounds);
    Some(by_plan(&report.plans, chosen, width, |plan| {
        let bars = report.heads.iter().map(|head: &AuditHead| {
            let own = head.plans.get(plan);
            let bar = own.and_then(|own| (chosen.of)(head, own, context));
            (head.layer, head.head, bar)
        });
        marked(&report.outcome.findings, plan, bars)
    }))
}

fn measure(report: &MeasureReport, name: &str, width: f64) -> Option<Vec<Figure>> {
    let chosen = MEASURE.iter().find(|quantity| quantity.name == name)?;
    let context = context(report.envelope.length, std::iter::empty());
    Some(by_plan(&report.plans, chosen, width, |plan| {
        let bars = report.heads.iter().map(|head: &MeasureHead| {
            let own = head.plans.get(plan);
            let bar = own.and_then(|own| (chosen.of)(head, own, context));
            (head.layer, head.head, bar)
        });
        marked(&report.outcome.findings, plan, bars)
    }))
}

/// A chart for each plan, or one where the quantity does not differ by plan.
fn by_plan<H, P>(
    plans: &[PlanInfo],
    chosen: &Quantity<H, P>,
    width: f64,
    grid: impl Fn(&str) -> Grid,
) -> Vec<Figure> {
    let shown = if chosen.planned { plans.len() } else { 1 };
    let figure = |info: &PlanInfo| {
        let plan = chosen.planned.then_some(info.plan.as_str());
        draw(&grid(&info.plan), chosen, plan, width)
    };
    plans.iter().take(shown).filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_colour_is_kept_for_what_has_no_limit() {
        let context = Context {
            length: 1025.0,
            bound: 0.0,
        };
        let at = |tokens: u64| distance(Some(Distance::from(tokens)), context, None).unwrap();
        assert_eq!((at(0).level, at(0).text.as_str()), (0.0, "0"));
        assert!(
            (at(31).level - 0.5).abs() < 1e-3,
            "half of the octaves: {:?}",
            at(31)
        );
        assert!(at(1023).good < 1.0 && at(1024).good == 1.0);
        assert_eq!(distance(None, context, None), None);
        assert_eq!(seen(Some(0.0)).unwrap().text, "100%");
        assert!(seen(Some(1e-9)).unwrap().good < 1.0);
    }
}
