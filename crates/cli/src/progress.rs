//! Progress and remarks on stderr: bars only on a terminal, nothing at all with `--quiet`.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};

/// Where a run talks to the person who started it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    /// Say nothing but errors.
    pub(crate) quiet: bool,
}

impl Talk {
    /// A remark on stderr.
    pub(crate) fn say(self, text: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "{}", report::text::escape(text));
        }
    }

    /// A bar of `steps` steps named `what`; invisible where stderr is no terminal.
    pub(crate) fn bar(self, what: &'static str, steps: u64) -> ProgressBar {
        self.styled("{msg} {wide_bar} {pos}/{len} {eta}", what, steps)
    }

    /// A bar of `bytes` bytes.
    pub(crate) fn byte_bar(self, what: &'static str, bytes: u64) -> ProgressBar {
        let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        self.styled(template, what, bytes)
    }

    fn styled(self, template: &str, what: &'static str, length: u64) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        if self.quiet || !std::io::stderr().is_terminal() {
            return bar;
        }
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_message(what);
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar
    }

    /// A spinner for work whose length is not known.
    pub(crate) fn spinner(self, what: &'static str) -> ProgressBar {
        let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if self.quiet || !std::io::stderr().is_terminal() {
            return spinner;
        }
        // without it a bar of unknown length is drawn, and no message
        spinner.set_style(ProgressStyle::default_spinner());
        spinner.set_message(what);
        spinner.set_draw_target(ProgressDrawTarget::stderr());
        spinner.enable_steady_tick(std::time::Duration::from_millis(120));
        spinner
    }
}
