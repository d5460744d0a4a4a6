"""What `measure` is compared with, each in a process of its own (`run.py` starts them).

    python measure_sides.py SIDE FOLDER TOKENS THREADS

FOLDER holds a BLOOM checkpoint and its ids (`run.py` makes them). Sides:
- `documented`: transformers with output_attentions=True, then counts of every map;
- `expert`: transformers with its attention replaced by one in blocks of queries that counts and forgets: what someone who knows torch
  would write;
- `llama.cpp`: the forward pass alone, without any evidence, through xllamacpp. The checkpoint is written as GGUF on the first run.

Prints wall and CPU seconds of the work, without what importing and loading takes: the comparison is in their favour, since our side's process
is counted whole. Evidence of the torch sides: exact zeros, mass on key 0 and mass by distance of every head, in f32: less than `measure` gives.
"""

import pathlib
import sys
import time


class Clock:
    """Times a `with` block and prints it."""

    def __enter__(self):
        self.start = time.perf_counter(), time.process_time()

    def __exit__(self, *error):
        if not any(error):
            print(time.perf_counter() - self.start[0], time.process_time() - self.start[1])


def ids_of(folder, n):
    import numpy

    return numpy.fromfile(pathlib.Path(folder) / "ids.i32", dtype=numpy.int32)[:n].astype("int64")


def bloom(folder):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


class Counts:
    """Evidence of the heads of one layer."""

    def __init__(self, heads, n):
        import torch

        self.torch, self.n = torch, n
        self.zeros = torch.zeros(heads, dtype=torch.int64)
        self.first = torch.zeros(heads)
        self.by_distance = torch.zeros(heads, n)

    def add(self, weights, start):
        """`weights` [heads, rows, keys] of the queries from `start` on; keys end with the last query."""
        heads, rows, keys = weights.shape
        # Above the diagonal every weight is zero and no pair.
        self.zeros += (weights == 0).sum((1, 2)) - rows * (rows - 1) // 2
        self.first += weights[:, 1 if start == 0 else 0 :, 0].sum(1)
        # Each row a step further left in a wider array: its columns are distances then.
        wide = weights.new_zeros(heads, rows, keys + rows - 1)
        wide[:, :, rows - 1 :] = weights
        shifted = wide.as_strided((heads, rows, keys), (rows * (keys + rows - 1), keys + rows, 1))
        self.by_distance[:, :keys] += shifted.sum(1).flip(-1)


def documented(folder, n, threads):
    import torch

    torch.set_num_threads(threads)
    ids = torch.from_numpy(ids_of(folder, n))[None]
    model = bloom(folder)
    with torch.inference_mode(), Clock():
        for maps in model(ids, output_attentions=True, use_cache=False).attentions:
            counts = Counts(maps.shape[1], n)
            for start in range(0, n, 256):
                end = min(n, start + 256)
                counts.add(maps[0, :, start:end, :end], start)


def expert(folder, n, threads, rows=256):
    import torch
    import transformers.models.bloom.modeling_bloom as code

    torch.set_num_threads(threads)
    ids = torch.from_numpy(ids_of(folder, n))[None]
    model = bloom(folder)

    def attention(self, hidden_states, residual, alibi, attention_mask, **_):
        q, k, v = (x[0] for x in self._reshape(self.query_key_value(hidden_states)))
        k, v, out = k.contiguous(), v.contiguous(), torch.empty_like(q)
        counts = Counts(q.shape[0], n)
        for start in range(0, n, rows):
            end = min(n, start + rows)
            scores = torch.baddbmm(
                alibi[:, :, :end], q[:, start:end], k[:, :end].transpose(1, 2), alpha=self.inv_norm_factor
            )
            future = torch.ones(end - start, end - start, dtype=torch.bool).triu_(1)
            scores[:, :, start:end].masked_fill_(future, -torch.inf)
            weights = scores.softmax(-1)
            counts.add(weights, start)
            torch.bmm(weights, v[:, :end], out=out[:, start:end])
        return self.dense(out.transpose(0, 1).reshape(1, n, -1)) + residual, None

    code.BloomAttention.forward = attention
    # The mask of all pairs is what this side does without.
    code.create_causal_mask = lambda **_: None
    with torch.inference_mode(), Clock():
        model(ids, use_cache=False, logits_to_keep=1)


def write_gguf(folder, path):
    """The checkpoint as GGUF in f32, with a vocabulary of placeholders: prompts are ids."""
    import gguf
    import json
    from safetensors.numpy import load_file

    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    hidden, heads, layers = config["hidden_size"], config["n_head"], config["n_layer"]
    weights = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("transformer."): value for name, value in weights.items()}
    out = gguf.GGUFWriter(path, "bloom")
    out.add_context_length(1 << 16)
    out.add_embedding_length(hidden)
    out.add_feed_forward_length(4 * hidden)
    out.add_block_count(layers)
    out.add_head_count(heads)
    out.add_head_count_kv(heads)
    out.add_layer_norm_eps(config["layer_norm_epsilon"])
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    vocabulary = config["vocab_size"]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("bloom")
    out.add_token_list([f"t{i}" for i in range(vocabulary)])
    out.add_token_types([gguf.TokenType.NORMAL] * vocabulary)
    out.add_token_merges(["t 0"])
    names = {
        "input_layernorm": "attn_norm",
        "self_attention.query_key_value": "attn_qkv",
        "self_attention.dense": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    }
    out.add_tensor("token_embd.weight", weights["word_embeddings.weight"])
    for kind in ("weight", "bias"):
        out.add_tensor(f"token_embd_norm.{kind}", weights[f"word_embeddings_layernorm.{kind}"])
        out.add_tensor(f"output_norm.{kind}", weights[f"ln_f.{kind}"])
        for layer in range(layers):
            for theirs, name in names.items():
                value = weights[f"h.{layer}.{theirs}.{kind}"]
                if name == "attn_qkv":
                    # BLOOM keeps query, key and value of a head together; GGUF all queries, all keys, all values.
                    parts = value.reshape(heads, 3, hidden // heads, -1)
                    value = parts.transpose(1, 0, 2, 3).reshape(value.shape).copy()
                out.add_tensor(f"blk.{layer}.{name}.{kind}", value)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def llama_cpp(folder, n, threads):
    import json

    import xllamacpp

    path = pathlib.Path(folder) / "model.gguf"
    if not path.exists():
        aside = path.with_suffix(".part")
        write_gguf(folder, aside)
        aside.rename(path)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = n + 64
    params.n_parallel = 1
    params.warmup = False
    params.verbosity = -1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    server = xllamacpp.Server(params)
    with Clock():
        answer = server.handle_completions({"prompt": ids_of(folder, n).tolist(), "n_predict": 1})
    answer = json.loads(answer) if isinstance(answer, str) else answer
    if "error" in answer or answer["usage"]["prompt_tokens"] != n:
        sys.exit(f"llama.cpp: {answer.get('error', answer['usage'])}")


def main():
    side, folder, n, threads = sys.argv[1:]
    sides = {"documented": documented, "expert": expert, "llama.cpp": llama_cpp}
    sides[side](folder, int(n), int(threads))


if __name__ == "__main__":
    main()
