//! The versioned result schema and its renderers.
