//! The bias of a step, and the gradient of learned biases.

use numerics::bias::t5_bucket;
use numerics::{BiasFunction, BiasShape};

use super::{Network, part};
use crate::attention::Bias;
use crate::shape::Position;

impl Network {
    /// The bias with the present parameters, for distances `0 .. distances`.
    pub(crate) fn bias(&self, params: &[f32], distances: usize) -> Bias {
        let heads = self.shape.heads;
        let learned = self
            .layout
            .position
            .as_ref()
            .map(|range| part(params, range));
        match (&self.position, learned) {
            (Position::Fixed { bias, slopes }, _) => {
                Bias::new(bias.clone(), slopes.clone(), distances)
            }
            (Position::KerpleLog { slopes }, Some(values)) => {
                let exp = |x: &f32| f64::from(*x).exp();
                let function = BiasFunction::with_shape(BiasShape::KerpleLog {
                    p: values[..heads].iter().map(exp).collect(),
                    a: values[heads..].iter().map(exp).collect(),
                });
                Bias::new(function, slopes.clone(), distances)
            }
            (
                Position::T5 {
                    buckets,
                    max_distance,
                },
                Some(values),
            ) => {
                let table = values
                    .chunks_exact(*buckets)
                    .map(|row| row.iter().map(|x| f64::from(*x)).collect())
                    .collect();
                let function = BiasFunction::with_shape(BiasShape::T5Buckets {
                    n_buckets: *buckets,
                    max_distance: *max_distance,
                    bidirectional: false,
                    table,
                });
                Bias::new(function, vec![0.0; heads], distances)
            }
            _ => Bias::new(
                BiasFunction::with_shape(BiasShape::None),
                vec![0.0; heads],
                distances,
            ),
        }
    }

    /// Adds the gradient of the learned position parameters, given that of the table by distance.
    ///
    /// KERPLE: `b = -e^u ln(1 + e^w d)`, so `db/du = b` and `db/dw = -e^u e^w d / (1 + e^w d)`.
    pub(super) fn position_gradient(
        &self,
        params: &[f32],
        bias: &Bias,
        d_table: &[f32],
        gradient: &mut [f32],
    ) {
        let heads = self.shape.heads;
        let by_head = d_table.chunks_exact(bias.distances.max(1)).enumerate();
        match (&self.position, &self.layout.position) {
            (Position::KerpleLog { .. }, Some(range)) => {
                let values = part(params, range);
                for (head, d) in by_head {
                    let (p, a) = (
                        f64::from(values[head]).exp(),
                        f64::from(values[heads + head]).exp(),
                    );
                    let (mut du, mut dw) = (0.0, 0.0);
                    for (distance, &d) in d.iter().enumerate() {
                        let scaled = a * distance as f64;
                        du -= f64::from(d) * p * scaled.ln_1p();
                        dw -= f64::from(d) * p * scaled / (1.0 + scaled);
                    }
                    gradient[head] += du as f32;
                    gradient[heads + head] += dw as f32;
                }
            }
            (
                Position::T5 {
                    buckets,
                    max_distance,
                },
                Some(_),
            ) => {
                for (head, d) in by_head {
                    let mut sums = vec![0.0f64; *buckets];
                    for (distance, &d) in d.iter().enumerate() {
                        sums[t5_bucket(distance as f64, *buckets, *max_distance, false)] +=
                            f64::from(d);
                    }
                    for (to, sum) in gradient[head * buckets..].iter_mut().zip(sums) {
                        *to += sum as f32;
                    }
                }
            }
            _ => {}
        }
    }
}
