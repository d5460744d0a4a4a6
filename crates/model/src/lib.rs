//! Decoder models as data, and their forward pass.
