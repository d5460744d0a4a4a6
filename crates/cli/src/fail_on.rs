//! `--fail-on`: which findings make the exit code 1.

use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use crate::suggest::did_you_mean;
use report::schema::{FindingRecord, Severity};

/// One rule of `--fail-on`.
#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// Findings of at least this severity.
    Severity(Severity),
    /// Findings of this code, with a value of at least the limit where one is given.
    Code {
        code: &'static str,
        value_min: Option<f64>,
    },
}

impl Rule {
    fn parse(text: &str) -> Result<Self, Failure> {
        if let Some(severity) = audit::Severity::parse(text) {
            return Ok(Self::Severity(severity.into()));
        }
        let (name, limit) = match text.split_once(':') {
            Some((name, limit)) => (name, Some(limit)),
            None => (text, None),
        };
        if limit.is_some() && audit::Severity::parse(name).is_some() {
            return Err(Failure::error(format!(
                "--fail-on {text:?}: a limit goes with the code of a check, such as SN001:0.5; {name} takes none"
            )));
        }
        let Some(check) = crate::commands::explain::find(name) else {
            let known = audit::checks::CHECKS
                .iter()
                .flat_map(|check| [check.doc.code, check.doc.name]);
            let known = known.chain(audit::Severity::ALL.iter().map(|severity| severity.name()));
            return Err(Failure::error(format!(
                "--fail-on {name:?}: expected note, warning, error or the code of a check{}; `snellen explain` lists them",
                did_you_mean(name, known)
            )));
        };
        let value_min = match limit.map(str::parse::<f64>) {
            None => None,
            Some(Ok(limit)) if limit.is_finite() => Some(limit),
            Some(_) => {
                return Err(Failure::error(format!(
                    "--fail-on {text:?}: expected a number after the colon, such as {}:0.5",
                    check.doc.code
                )));
            }
        };
        Ok(Self::Code {
            code: check.doc.code,
            value_min,
        })
    }

    fn matches(&self, finding: &FindingRecord) -> bool {
        match self {
            Self::Severity(least) => finding.severity >= *least,
            Self::Code { code, value_min } => {
                finding.code == *code
                    && value_min
                        .is_none_or(|least| finding.value.is_some_and(|value| value >= least))
            }
        }
    }
}

/// The rules of a run.
#[derive(Debug)]
pub(crate) struct Rules(Vec<Rule>);

impl Rules {
    /// Those of `--fail-on`; without it, warnings and errors count.
    pub(crate) fn of(global: &GlobalArgs) -> Result<Self, Failure> {
        if global.fail_on.is_empty() {
            return Ok(Self(vec![Rule::Severity(Severity::Warning)]));
        }
        let rules = global.fail_on.iter().map(|text| Rule::parse(text));
        rules.collect::<Result<Vec<_>, _>>().map(Self)
    }

    /// Whether the finding counts.
    pub(crate) fn matches(&self, finding: &FindingRecord) -> bool {
        self.0.iter().any(|rule| rule.matches(finding))
    }

    /// The exit code for these findings.
    pub(crate) fn judge(&self, findings: &[&FindingRecord], global: &GlobalArgs) -> Exit {
        let fails = findings.iter().any(|finding| self.matches(finding));
        if fails && !global.exit_zero {
            Exit::Findings
        } else {
            Exit::Clean
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(code: &str, severity: Severity, value: Option<f64>) -> FindingRecord {
        FindingRecord {
            code: code.to_owned(),
            name: String::new(),
            severity,
            layer: None,
            head: None,
            plan: None,
            value,
            threshold: None,
            message: String::new(),
            next_command: None,
        }
    }

    #[test]
    fn rules_match_severity_code_and_value() {
        let blind = finding("SN001", Severity::Warning, Some(0.4));
        let rule = |text: &str| Rule::parse(text).unwrap();
        assert!(
            rule("warning").matches(&blind)
                && rule("note").matches(&blind)
                && !rule("error").matches(&blind)
        );
        assert!(rule("SN001").matches(&blind) && rule("blind-head").matches(&blind));
        assert!(rule("sn001:0.4").matches(&blind) && !rule("SN001:0.41").matches(&blind));
        assert!(!rule("SN002").matches(&blind));
        assert!(!rule("SN001:0").matches(&finding("SN001", Severity::Note, None)));
        for bad in ["SN999", "fatal", "SN001:x", "SN001:inf", ""] {
            assert!(Rule::parse(bad).is_err(), "{bad}");
        }
    }
}
