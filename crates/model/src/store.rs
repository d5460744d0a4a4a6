//! Weights as tensors: fetched when needed, dropped after use or kept.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, Int, Tensor, TensorData};
use kernels::matrix::transposed;

use crate::ops::{self, FinishParams, NormParams};
use crate::spec::{ModelSpec, NormSpec, QkNormExtent};
use crate::weights::{LayerRole, Weight, WeightError, WeightRole, WeightSource, check_finite};

/// `y = x W' + b`.
pub(crate) struct Linear {
    /// `[in, out]`: the weight transposed in memory. A transposed view would be repacked by each product, which costs a
    /// fifth of the rate at 512 rows.
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
}

impl Linear {
    /// `activation(clamp(x W' + b)) * factor + residual`.
    pub(crate) fn apply(
        &self,
        x: Tensor<2>,
        params: FinishParams,
        factor: Option<Tensor<2>>,
        residual: Option<Tensor<2>>,
    ) -> Tensor<2> {
        let y = x.matmul(self.weight.clone());
        let nothing_left = self.bias.is_none()
            && factor.is_none()
            && residual.is_none()
            && params.clamp.is_none()
            && params.activation.is_none();
        if nothing_left {
            return y;
        }
        ops::finish(y, self.bias.clone(), factor, residual, params)
    }
}

/// A norm with its weights.
pub(crate) struct Norm {
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    params: NormParams,
}

impl Norm {
    pub(crate) fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        ops::normalise(x, self.weight.clone(), self.bias.clone(), self.params)
    }
}

/// Weights of one block.
pub(crate) struct LayerWeights {
    pub(crate) norm1: Norm,
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) query_norm: Option<Norm>,
    pub(crate) key_norm: Option<Norm>,
    pub(crate) output: Option<Linear>,
    pub(crate) norm2: Option<Norm>,
    pub(crate) up: Linear,
    pub(crate) gate: Option<Linear>,
    pub(crate) down: Linear,
}

/// What has been read and is kept.
#[derive(Default)]
struct Kept {
    layers: HashMap<usize, Arc<LayerWeights>>,
    tables: HashMap<WeightRole, Tensor<2>>,
}

/// Reads weights for a model.
pub(crate) struct Store {
    spec: Arc<ModelSpec>,
    source: Arc<dyn WeightSource>,
    device: Device,
    kept: Option<Mutex<Kept>>,
}

impl Store {
    pub(crate) fn new(
        spec: Arc<ModelSpec>,
        source: Arc<dyn WeightSource>,
        keep: bool,
        device: Device,
    ) -> Self {
        Self {
            spec,
            source,
            device,
            kept: keep.then(Mutex::default),
        }
    }

    pub(crate) fn source(&self) -> Arc<dyn WeightSource> {
        self.source.clone()
    }

    /// Where the tensors are.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Whether weights are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.kept.is_some()
    }

    /// Weights of a block.
    pub(crate) fn layer(&self, layer: usize) -> Result<Arc<LayerWeights>, WeightError> {
        let Some(kept) = &self.kept else {
            let weights = Arc::new(self.read_layer(layer)?);
            // The f32 copies are all that this layer needs from here on; the next one may come in while it is computed.
            self.source.release(&self.spec.layer_roles(layer));
            self.source.read_ahead(&self.spec.layer_roles(layer + 1));
            return Ok(weights);
        };
        // A panic elsewhere cannot leave a half-written entry, so a poisoned lock is as good as a clean one.
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weights) = kept.layers.get(&layer) {
            return Ok(weights.clone());
        }
        let weights = Arc::new(self.read_layer(layer)?);
        self.source.release(&self.spec.layer_roles(layer));
        kept.layers.insert(layer, weights.clone());
        Ok(weights)
    }

    fn read_layer(&self, layer: usize) -> Result<LayerWeights, WeightError> {
        use LayerRole as Role;
        let spec = &self.spec;
        let at = |role| WeightRole::Layer(layer, role);
        let linear = |weight, bias| -> Result<Option<Linear>, WeightError> {
            let Some(weight) = self.read(at(weight))? else {
                return Ok(None);
            };
            let (n_out, n_in) = (weight.shape[0], weight.shape[1]);
            let columns = transposed(&weight.data, n_out, n_in);
            drop(weight);
            let weight = self.tensor(columns, [n_in, n_out]);
            let bias = self.vector(at(bias))?;
            Ok(Some(Linear { weight, bias }))
        };
        let norm =
            |spec: &NormSpec, group, weight, bias| self.norm(spec, group, at(weight), at(bias));
        let must = |part: Option<Linear>| part.expect("every block has this weight");
        let mut query_norm = None;
        let mut key_norm = None;
        if let Some(qk) = &spec.block.attention.qk_norm {
            let group = |full| match qk.extent {
                QkNormExtent::Full => full,
                QkNormExtent::PerHead => spec.head_width,
            };
            let (q, k) = (group(spec.query_width()), group(spec.kv_width()));
            query_norm = norm(&qk.norm, q, Role::QueryNormWeight, Role::QueryNormBias)?;
            key_norm = norm(&qk.norm, k, Role::KeyNormWeight, Role::KeyNormBias)?;
        }
        let block_norm = &spec.block.norm;
        Ok(LayerWeights {
            norm1: norm(block_norm, spec.width, Role::Norm1Weight, Role::Norm1Bias)?
                .expect("every block has a first norm"),
            query: must(linear(Role::QueryWeight, Role::QueryBias)?),
            key: must(linear(Role::KeyWeight, Role::KeyBias)?),
            value: must(linear(Role::ValueWeight, Role::ValueBias)?),
            query_norm,
            key_norm,
            output: linear(Role::OutputWeight, Role::OutputBias)?,
            norm2: norm(block_norm, spec.width, Role::Norm2Weight, Role::Norm2Bias)?,
            up: must(linear(Role::UpWeight, Role::UpBias)?),
            gate: linear(Role::GateWeight, Role::GateBias)?,
            down: must(linear(Role::DownWeight, Role::DownBias)?),
        })
    }

    /// The norm after the embedding.
    pub(crate) fn embedding_norm(&self) -> Result<Option<Norm>, WeightError> {
        let (weight, bias) = (
            WeightRole::EmbeddingNormWeight,
            WeightRole::EmbeddingNormBias,
        );
        match &self.spec.embedding.norm {
            Some(norm) => self.norm(norm, self.spec.width, weight, bias),
            None => Ok(None),
        }
    }

    /// The norm before the head.
    pub(crate) fn final_norm(&self) -> Result<Option<Norm>, WeightError> {
        let (weight, bias) = (WeightRole::FinalNormWeight, WeightRole::FinalNormBias);
        match &self.spec.final_norm {
            Some(norm) => self.norm(norm, self.spec.width, weight, bias),
            None => Ok(None),
        }
    }

    /// Role of the table that turns channels into logits.
    pub(crate) fn head_role(&self) -> WeightRole {
        if self.spec.head.tied {
            WeightRole::Embedding
        } else {
            WeightRole::Head
        }
    }

    /// Some rows of a vocabulary table, `[ids, width]`. Ids are in range.
    pub(crate) fn gather(&self, role: WeightRole, ids: &[u32]) -> Result<Tensor<2>, WeightError> {
        if self.kept.is_some() || !self.source.has_cheap_rows() {
            let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
            let n = ids.len();
            let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [n]), &self.device);
            return Ok(self.table(role)?.select(0, ids));
        }
        let width = self.spec.width;
        let mut data = vec![0f32; ids.len() * width];
        // Ascending ids read the file in order; every row once.
        let mut places: Vec<(u32, usize)> = ids.iter().copied().zip(0..).collect();
        places.sort_unstable();
        for same in places.chunk_by(|a, b| a.0 == b.0) {
            let id = same[0].0 as usize;
            let row = self.table_rows(role, id..id + 1)?;
            for &(_, place) in same {
                data[place * width..(place + 1) * width].copy_from_slice(&row.data);
            }
        }
        Ok(self.tensor(data, [ids.len(), width]))
    }

    /// Calls `f` with consecutive blocks of rows of a vocabulary table, each `[width, rows]`: transposed in memory if
    /// `n_products` products with it make that worth while, else as a view.
    pub(crate) fn for_blocks<E: From<WeightError>>(
        &self,
        role: WeightRole,
        rows_per_block: usize,
        n_products: usize,
        mut f: impl FnMut(Range<usize>, Tensor<2>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (n, width) = (self.spec.vocab_size, self.spec.width);
        let cheap = self.kept.is_none() && self.source.has_cheap_rows();
        let whole = if cheap { None } else { Some(self.table(role)?) };
        for start in (0..n).step_by(rows_per_block) {
            let rows = start..(start + rows_per_block).min(n);
            let block = match &whole {
                Some(table) => table.clone().slice([rows.clone(), 0..width]),
                None => {
                    let block = self.table_rows(role, rows.clone())?;
                    self.source.release(&[role]);
                    self.tensor(block.data, [rows.len(), width])
                }
            };
            let block = if n_products > 1 {
                let data: Vec<f32> = block.into_data().try_into_vec().expect("tables are f32");
                self.tensor(transposed(&data, rows.len(), width), [width, rows.len()])
            } else {
                block.transpose()
            };
            f(rows, block)?;
        }
        Ok(())
    }

    /// A whole vocabulary table.
    fn table(&self, role: WeightRole) -> Result<Tensor<2>, WeightError> {
        let read = || -> Result<Tensor<2>, WeightError> {
            Ok(self.matrix(role)?.expect("the model has this table"))
        };
        let Some(kept) = &self.kept else {
            return read();
        };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = kept.tables.get(&role) {
            return Ok(table.clone());
        }
        let table = read()?;
        kept.tables.insert(role, table.clone());
        Ok(table)
    }

    fn table_rows(&self, role: WeightRole, rows: Range<usize>) -> Result<Weight, WeightError> {
        let weight = self.source.rows(role, rows.clone())?;
        let expected = vec![rows.len(), self.spec.width];
        if weight.shape != expected || weight.data.len() != expected[0] * expected[1] {
            let found = weight.shape;
            return Err(WeightError::Shape {
                role,
                expected,
                found,
            });
        }
        check_finite(role, &weight, rows.start)?;
        Ok(weight)
    }

    fn read(&self, role: WeightRole) -> Result<Option<Weight>, WeightError> {
        let Some(expected) = self.spec.weight_shape(role) else {
            return Ok(None);
        };
        let weight = self.source.weight(role)?;
        weight.check(role, &expected)?;
        Ok(Some(weight))
    }

    fn matrix(&self, role: WeightRole) -> Result<Option<Tensor<2>>, WeightError> {
        let weight = self.read(role)?;
        Ok(weight.map(|w| self.tensor(w.data, [w.shape[0], w.shape[1]])))
    }

    fn vector(&self, role: WeightRole) -> Result<Option<Tensor<1>>, WeightError> {
        let weight = self.read(role)?;
        Ok(weight.map(|w| Tensor::from_data(TensorData::new(w.data, [w.shape[0]]), &self.device)))
    }

    fn norm(
        &self,
        spec: &NormSpec,
        group: usize,
        weight: WeightRole,
        bias: WeightRole,
    ) -> Result<Option<Norm>, WeightError> {
        let Some(weight) = self.vector(weight)? else {
            return Ok(None);
        };
        let bias = self.vector(bias)?;
        let params = NormParams {
            kind: spec.kind,
            eps: spec.eps,
            group,
        };
        Ok(Some(Norm {
            weight,
            bias,
            params,
        }))
    }

    /// Takes the values over without copying them.
    pub(crate) fn tensor(&self, data: Vec<f32>, shape: [usize; 2]) -> Tensor<2> {
        Tensor::from_data(TensorData::new(data, shape), &self.device)
    }
}
