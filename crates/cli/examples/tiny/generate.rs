//! The tests' model: BLOOM's layout, 2 layers of 8 heads of 6, one token a byte, random bf16 weights.
//!
//! Query and key projections are scaled per head so that scores spread by 1 to 6 nats, as they do in trained models; with
//! the usual initialisation every head would attend uniformly and its content would show nowhere.

const SEED: u64 = 1862;
const WIDTH: usize = 48;
const N_HEADS: usize = 8;
const HEAD_WIDTH: usize = WIDTH / N_HEADS;
const N_LAYERS: usize = 2;
const VOCAB: usize = 256;
const HIDDEN: usize = 4 * WIDTH;

/// Standard deviation of the embedding, which is the output head too: small, so that the untrained loss is near that of a guess.
/// The norm behind the embedding takes the factor out again.
const EMBEDDING_DEVIATION: f32 = 0.05;

/// Standard deviation of each head's scores, nats, by layer.
const SCORE_DEVIATION: [[f32; N_HEADS]; N_LAYERS] = [
    [1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 4.0, 1.5],
    [3.0, 1.5, 6.0, 2.0, 4.0, 1.0, 2.0, 3.0],
];

/// `config.json` of the model.
pub(crate) fn config() -> String {
    format!(
        r#"{{
  "architectures": ["BloomForCausalLM"],
  "model_type": "bloom",
  "hidden_size": {WIDTH},
  "n_head": {N_HEADS},
  "n_layer": {N_LAYERS},
  "vocab_size": {VOCAB},
  "layer_norm_epsilon": 1e-05,
  "apply_residual_connection_post_layernorm": false,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16"
}}
"#
    )
}

/// `model.safetensors` of the model.
pub(crate) fn weights() -> Vec<u8> {
    let mut random = SplitMix64(SEED);
    let mut tensors: Vec<(String, Vec<usize>, Vec<f32>)> = Vec::new();
    let mut add =
        |name: String, shape: &[usize], data: Vec<f32>| tensors.push((name, shape.to_vec(), data));
    add(
        "word_embeddings.weight".into(),
        &[VOCAB, WIDTH],
        random.normal(VOCAB * WIDTH, EMBEDDING_DEVIATION),
    );
    norm(&mut add, &mut random, "word_embeddings_layernorm");
    for (layer, deviations) in SCORE_DEVIATION.iter().enumerate() {
        let name = |part: &str| format!("h.{layer}.{part}");
        norm(&mut add, &mut random, &name("input_layernorm"));
        // rows are [head, (query, key, value), channel]
        let mut fused = Vec::with_capacity(3 * WIDTH * WIDTH);
        for deviation in deviations {
            // an input of norm sqrt(WIDTH) gives scores of deviation WIDTH * s^2 with weights of deviation s
            let score_weights = (deviation / WIDTH as f32).sqrt();
            fused.extend(random.normal(2 * HEAD_WIDTH * WIDTH, score_weights));
            fused.extend(random.normal(HEAD_WIDTH * WIDTH, 0.15));
        }
        add(
            name("self_attention.query_key_value.weight"),
            &[3 * WIDTH, WIDTH],
            fused,
        );
        add(
            name("self_attention.query_key_value.bias"),
            &[3 * WIDTH],
            random.normal(3 * WIDTH, 0.05),
        );
        linear(
            &mut add,
            &mut random,
            &name("self_attention.dense"),
            WIDTH,
            WIDTH,
        );
        norm(&mut add, &mut random, &name("post_attention_layernorm"));
        linear(
            &mut add,
            &mut random,
            &name("mlp.dense_h_to_4h"),
            HIDDEN,
            WIDTH,
        );
        linear(
            &mut add,
            &mut random,
            &name("mlp.dense_4h_to_h"),
            WIDTH,
            HIDDEN,
        );
    }
    norm(&mut add, &mut random, "ln_f");
    safetensors(&tensors)
}

fn norm(add: &mut impl FnMut(String, &[usize], Vec<f32>), random: &mut SplitMix64, name: &str) {
    let gains = random
        .normal(WIDTH, 0.1)
        .into_iter()
        .map(|value| 1.0 + value)
        .collect();
    add(format!("{name}.weight"), &[WIDTH], gains);
    add(format!("{name}.bias"), &[WIDTH], random.normal(WIDTH, 0.05));
}

fn linear(
    add: &mut impl FnMut(String, &[usize], Vec<f32>),
    random: &mut SplitMix64,
    name: &str,
    outputs: usize,
    inputs: usize,
) {
    let deviation = 1.0 / (inputs as f32).sqrt();
    add(
        format!("{name}.weight"),
        &[outputs, inputs],
        random.normal(outputs * inputs, deviation),
    );
    add(
        format!("{name}.bias"),
        &[outputs],
        random.normal(outputs, 0.02),
    );
}

/// The file: length of the header, header padded to eight bytes, data in the header's order.
fn safetensors(tensors: &[(String, Vec<usize>, Vec<f32>)]) -> Vec<u8> {
    let mut header =
        String::from(r#"{"__metadata__":{"format":"pt","note":"random weights, not trained"}"#);
    let mut offset = 0;
    for (name, shape, data) in tensors {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "{name}");
        let end = offset + 2 * data.len();
        header.push_str(&format!(
            r#","{name}":{{"dtype":"BF16","shape":{shape:?},"data_offsets":[{offset},{end}]}}"#
        ));
        offset = end;
    }
    header.push('}');
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    for value in tensors.iter().flat_map(|(_, _, data)| data) {
        file.extend_from_slice(&bf16(*value).to_le_bytes());
    }
    file
}

/// Nearest bf16 code, ties to even; weights are small and finite.
fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// SplitMix64 (Steele, Lea and Flood 2014): a whole generator in five lines.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `count` values of this standard deviation. Twelve uniform values less six have mean 0 and variance 1 and need no
    /// logarithm, whose last bit differs between machines.
    fn normal(&mut self, count: usize, deviation: f32) -> Vec<f32> {
        let uniform = |bits: u64| (bits >> 40) as f32 / 16_777_216.0;
        (0..count)
            .map(|_| {
                let sum: f32 = (0..12).map(|_| uniform(self.next())).sum();
                (sum - 6.0) * deviation
            })
            .collect()
    }
}
