"""Small MPT checkpoints that both `transformers` and Snellen open: the trained model of runs/nano, or random weights."""

import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]

# name in runs/nano -> name in an MPT checkpoint; {} is the layer
NAMES = {
    "norm1.weight": "norm_1.weight",
    "norm2.weight": "norm_2.weight",
    "qkv.weight": "attn.Wqkv.weight",
    "out.weight": "attn.out_proj.weight",
    "up.weight": "ffn.up_proj.weight",
    "down.weight": "ffn.down_proj.weight",
}


def write(folder, weights, layers, width, heads, hidden, vocabulary, length, tokenizer):
    """Writes a checkpoint folder. transformers builds its bias for `length` tokens and runs no more."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["MptForCausalLM"],
        "model_type": "mpt",
        "d_model": width,
        "n_heads": heads,
        "n_layers": layers,
        "expansion_ratio": hidden // width,
        "max_seq_len": length,
        "vocab_size": vocabulary,
        "no_bias": True,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "attn_config": {
            "model_type": "",
            "attn_type": "multihead_attention",
            "alibi": True,
            "alibi_bias_max": 8,
            "attn_pdrop": 0,
            "clip_qkv": None,
            "qk_ln": False,
            "softmax_scale": None,
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    weights = {name: tensor.float().contiguous() for name, tensor in weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(tokenizer, folder / "tokenizer.json")


def nano(folder, length):
    """The million-parameter model of runs/nano, trained at 512 tokens."""
    weights = {}
    for name, tensor in load_file(ROOT / "runs/nano/model.safetensors").items():
        if name.startswith("layers."):
            _, layer, rest = name.split(".", 2)
            weights[f"transformer.blocks.{layer}.{NAMES[rest]}"] = tensor
        else:
            weights[{"embedding.weight": "transformer.wte.weight", "norm.weight": "transformer.norm_f.weight"}[name]] = tensor
    write(folder, weights, 4, 128, 8, 512, 2048, length, ROOT / "runs/nano/tokenizer.json")


def random(folder, layers, width, heads, hidden, vocabulary, length, tokenizer, seed=0):
    """Random weights of a deviation at which neither scores nor logits are extreme."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    weights = {"transformer.wte.weight": matrix(vocabulary, width), "transformer.norm_f.weight": torch.ones(width)}
    for layer in range(layers):
        block = f"transformer.blocks.{layer}."
        weights[block + "norm_1.weight"] = torch.ones(width)
        weights[block + "norm_2.weight"] = torch.ones(width)
        weights[block + "attn.Wqkv.weight"] = matrix(3 * width, width)
        weights[block + "attn.out_proj.weight"] = matrix(width, width)
        weights[block + "ffn.up_proj.weight"] = matrix(hidden, width)
        weights[block + "ffn.down_proj.weight"] = matrix(width, hidden)
    write(folder, weights, layers, width, heads, hidden, vocabulary, length, tokenizer)
    return sum(tensor.numel() for tensor in weights.values())
