//! Watching attention without changing it.

use std::fmt::Debug;
use std::sync::Arc;

use kernels::AttentionObserver;

/// Hands out an attention observer per layer. Observers read scores; the forward pass computes the same bits with and
/// without them.
pub trait LayerObserver: Send + Sync + Debug {
    /// Observer of one layer, or `None` to let it pass unobserved. Called once per layer and forward call, in order.
    fn layer(&self, layer: usize) -> Option<Arc<dyn AttentionObserver>>;

    /// Called when all heads of a layer have been observed.
    fn layer_done(&self, layer: usize) {
        let _ = layer;
    }
}
