"""A GGUF export against llama.cpp and against `snellen eval`: log-probabilities of the same tokens.

    pip install numpy gguf xllamacpp
    python benches/peers/gguf_check.py SNELLEN RUN TEXT [--length 256] [--dtype f32]

RUN is the folder of a run (`runs/nano` works), TEXT a text that the run's tokenizer reads. Five numbers for every token but the first:
llama.cpp's (KV cache in f32, no flash attention, one request a prefix), `snellen eval` on the run's own specification, and a decoder of a
few lines in f64 on the tensors of the GGUF file with the error-function GELU (what was trained), with the tanh GELU, and with the tanh GELU
by a table in f16 (what llama.cpp evaluates). The last explains where the difference comes from.
"""

import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy
import xllamacpp

# Nats a token, between llama.cpp and the same arithmetic in f64: what is left are f32 sums, and entries of the table that fall the other
# way. With f16 or bf16 matrices llama.cpp also rounds the other factor of each product to that format, 2^-12 or 2^-9 of each value.
TOLERANCE_MEAN = 1e-4
TOLERANCE_TOKEN = {"f32": 1e-3, "f16": 1e-2, "bf16": 8e-2}
# `snellen eval` against f64: f32 arithmetic through the layers.
TOLERANCE_OWN = 1e-5


def token_ids(snellen, tokenizer, text, folder):
    """The ids as the program encodes them."""
    run(snellen, "tokens", "encode", text, "--tokenizer", tokenizer, "--to", folder, "--held-permille", "0", "--quiet")
    data = (pathlib.Path(folder) / "train.tok").read_bytes()
    (length,) = struct.unpack_from("<I", data, 8)
    description = json.loads(data[12 : 12 + length])
    kind = numpy.uint16 if description["width"] == 16 else numpy.uint32
    return numpy.frombuffer(data, kind, description["tokens"], 12 + length).tolist()


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def gelu_erf(x):
    return 0.5 * x * (1 + numpy.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + numpy.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))


def gelu_table(x):
    """ggml's: below 10 in magnitude input and output are rounded to f16."""
    table = gelu_tanh(x.astype(numpy.float16).astype(numpy.float64)).astype(numpy.float16).astype(numpy.float64)
    return numpy.where(x <= -10, 0, numpy.where(x >= 10, x, table))


def values(tensor):
    if tensor.tensor_type == gguf.GGMLQuantizationType.BF16:
        wide = tensor.data.view(numpy.uint16).astype(numpy.uint32) << 16
        return wide.view(numpy.float32).astype(numpy.float64)
    return tensor.data.astype(numpy.float64)


def decoder(path, ids, gelu):
    """Log-probability of every next token, in f64, by the tensors of the file."""
    reader = gguf.GGUFReader(path)
    t = {tensor.name: values(tensor) for tensor in reader.tensors}
    number = lambda key: reader.fields["mpt." + key].contents()
    n_layers, n_heads = number("block_count"), number("attention.head_count")
    eps, bias_max = number("attention.layer_norm_epsilon"), number("attention.max_alibi_bias")

    def linear(name, x):
        y = x @ t[name + ".weight"].T
        return y + t[name + ".bias"] if name + ".bias" in t else y

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        y = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps) * t[name + ".weight"]
        return y + t[name + ".bias"] if name + ".bias" in t else y

    n = len(ids)
    x = t["token_embd.weight"][ids]
    width = x.shape[1] // n_heads
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-bias_max * (h + 1) / power) for h in range(power)]
    slopes += [2 ** (-bias_max / 2 * (2 * h + 1) / power) for h in range(n_heads - power)]
    distance = numpy.arange(n)[:, None] - numpy.arange(n)[None, :]
    for layer in range(n_layers):
        at = f"blk.{layer}."
        q, k, v = numpy.split(linear(at + "attn_qkv", norm(at + "attn_norm", x)), 3, axis=1)
        out = numpy.empty_like(q)
        for head, slope in enumerate(slopes):
            part = slice(head * width, (head + 1) * width)
            score = q[:, part] @ k[:, part].T / math.sqrt(width) - slope * distance
            score[distance < 0] = -numpy.inf
            weight = numpy.exp(score - score.max(1, keepdims=True))
            out[:, part] = weight / weight.sum(1, keepdims=True) @ v[:, part]
        x = x + linear(at + "attn_output", out)
        x = x + linear(at + "ffn_down", gelu(linear(at + "ffn_up", norm(at + "ffn_norm", x))))
    logits = norm("output_norm", x) @ t.get("output.weight", t["token_embd.weight"]).T
    logits -= logits.max(1, keepdims=True)
    logits -= numpy.log(numpy.exp(logits).sum(1, keepdims=True))
    return logits[numpy.arange(n - 1), ids[1:]]


def server(path, length):
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 2 * length
    params.n_parallel = 1
    params.warmup = False
    params.verbosity = -1
    params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(params)


def ask(llama, prompt, tokens):
    """Tokens of the prompt, and the log-probability of every token behind it. No prompt may be as long as the trained context.

    What llama.cpp says is forced to be a letter: a token that is no whole character comes without probabilities. Those it gives are
    taken before the bias.
    """
    answer = llama.handle_completions(
        {
            "prompt": prompt,
            "n_predict": 1,
            "n_probs": len(tokens),
            "temperature": 0,
            "logit_bias": [[tokens.index("a"), 1000.0]],
            "cache_prompt": True,
        }
    )
    answer = json.loads(answer) if isinstance(answer, str) else answer
    if "error" in answer:
        sys.exit(f"llama.cpp: {answer['error']['message']}")
    rows = answer["choices"][0]["logprobs"]["content"]
    return answer["usage"]["prompt_tokens"], {entry["id"]: entry["logprob"] for entry in rows[0]["top_logprobs"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snellen")
    parser.add_argument("run")
    parser.add_argument("text")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--dtype", default="f32", choices=["f32", "f16", "bf16"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run(args.snellen, "export", args.run, "--as", "gguf", "--dtype", args.dtype, "--to", folder / "gguf")
        run(args.snellen, "export", args.run, "--as", "spec", "--dtype", args.dtype, "--to", folder / "spec")
        path = folder / "gguf" / "model.gguf"
        ids = token_ids(args.snellen, folder / "spec" / "tokenizer.json", args.text, folder)[: args.length]
        (folder / "ids.txt").write_text(" ".join(map(str, ids)))
        report = json.loads(
            run(args.snellen, "eval", folder / "spec" / "model.toml", "--tokens", folder / "ids.txt", "--length", len(ids), "--stride", len(ids), "--json", "--quiet")
        )
        own = -report["perplexity"]["nats_per_token"]
        tokens = gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"].contents()
        llama = server(path, len(ids))
        theirs = numpy.array([ask(llama, ids[:n], tokens)[1][ids[n]] for n in range(1, len(ids))])
        # The tokenizer in the file: a text as such, and as our ids.
        text = pathlib.Path(args.text).read_text()[: args.length // 2].strip()
        (folder / "part.txt").write_text(text)
        part = token_ids(args.snellen, folder / "spec" / "tokenizer.json", folder / "part.txt", folder / "part")[:-1]
        n_tokens, by_text = ask(llama, text, tokens)
        by_ids = ask(llama, part, tokens)[1]
        exact = decoder(path, ids, gelu_erf)
        tanh = decoder(path, ids, gelu_tanh)
        table = decoder(path, ids, gelu_table)
    print(f"{len(ids) - 1} tokens of {args.text}, {args.dtype}; mean log-probability, nats a token")
    print(f"  snellen eval          {own:.6f}")
    for name, values in [("f64, erf GELU", exact), ("f64, tanh GELU", tanh), ("f64, f16 tanh table", table), ("llama.cpp", theirs)]:
        worst = numpy.abs(values - theirs).max()
        print(f"  {name:20}  {values.mean():.6f}   largest difference of a token from llama.cpp {worst:.6f}")
    failures = []
    apart = max(abs(by_text[i] - by_ids[i]) for i in by_ids)
    print(f"  {len(part)} tokens of a text, {n_tokens} by llama.cpp's reading of the tokenizer; behind them {apart:.6f} apart")
    if n_tokens != len(part) or apart > TOLERANCE_TOKEN[args.dtype]:
        failures.append("llama.cpp reads the tokenizer otherwise")
    if abs(own - exact.mean()) > TOLERANCE_OWN:
        failures.append("snellen eval and f64 differ")
    if (args.dtype == "f32" and abs(theirs.mean() - table.mean()) > TOLERANCE_MEAN) or numpy.abs(theirs - table).max() > TOLERANCE_TOKEN[args.dtype]:
        failures.append("llama.cpp and its own arithmetic in f64 differ")
    sys.exit("; ".join(failures) or None)


if __name__ == "__main__":
    main()
