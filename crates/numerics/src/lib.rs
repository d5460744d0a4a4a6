//! Float formats, thresholds, slopes, bias functions, precision plans and closed-form counts for ALiBi attention.
