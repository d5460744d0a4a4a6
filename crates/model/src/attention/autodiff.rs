//! The backward pass as burn's gradient of the operation. Generic over the inner backend: whoever implements
//! [`AttentionOps`] gets it.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend};

use super::ops::{AttentionOps, AttentionParams};

/// The step recorded in the graph.
#[derive(Debug)]
struct Attend;

/// What the backward pass needs. Inputs are kept as node identifiers, so that gradient checkpointing may recompute them;
/// results of this operation are kept as they are.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    inputs: [NodeId; 4],
    out: FloatTensor<B>,
    lse: FloatTensor<B>,
    params: AttentionParams,
}

impl<B: Backend + AttentionOps> Backward<B, 4> for Attend {
    type State = Saved<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 4>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let Saved {
            inputs,
            out,
            lse,
            params,
        } = ops.state;
        let gradient = grads.consume::<B>(&ops.node);
        let [q, k, v, bias] =
            inputs.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        let bias_gradient = ops.parents[3].is_some();
        let (dq, dk, dv, dbias) =
            B::attend_backward(q, k, v, bias, out, lse, gradient, params, bias_gradient);
        for (parent, gradient) in ops.parents.into_iter().zip([dq, dk, dv, dbias]) {
            // `None` is an input that needs no gradient.
            if let Some(node) = parent {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}

impl<B: Backend + AttentionOps, C: CheckpointStrategy> AttentionOps for Autodiff<B, C> {
    fn attend(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        params: AttentionParams,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let prepared = Attend
            .prepare::<C>([q.node(), k.node(), v.node(), bias.node()])
            .compute_bound()
            .stateful();
        match prepared {
            OpsKind::Tracked(mut prepared) => {
                let inputs = [&q, &k, &v, &bias].map(|input| prepared.checkpoint(input));
                // The backward pass recomputes the scores and must not report them a second time.
                let saved_params = AttentionParams {
                    observer: None,
                    ..params.clone()
                };
                let [q, k, v, bias] = [q, k, v, bias].map(|input| input.into_primitive());
                let (out, lse) = B::attend(q, k, v, bias, params);
                let saved = Saved {
                    inputs,
                    out: out.clone(),
                    lse: lse.clone(),
                    params: saved_params,
                };
                (prepared.finish(saved, out), Self::from_inner(lse))
            }
            OpsKind::UnTracked(prepared) => {
                let [q, k, v, bias] = [q, k, v, bias].map(|input| input.into_primitive());
                let (out, lse) = B::attend(q, k, v, bias, params);
                (prepared.finish(out), Self::from_inner(lse))
            }
        }
    }

    fn attend_backward(
        _q: FloatTensor<Self>,
        _k: FloatTensor<Self>,
        _v: FloatTensor<Self>,
        _bias: FloatTensor<Self>,
        _out: FloatTensor<Self>,
        _lse: FloatTensor<Self>,
        _gradient: FloatTensor<Self>,
        _params: AttentionParams,
        _bias_gradient: bool,
    ) -> (
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
    ) {
        panic!("burn's autodiff is of first order: the backward pass has no gradient of its own");
    }
}
