//! Certificates from weights, evidence from texts, and the checks that read them.
