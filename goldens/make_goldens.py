"""Golden outputs of `transformers` for the three families that it runs natively.

    python -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.24.0 safetensors numpy
    venv/bin/python goldens/make_goldens.py

Per family: a random checkpoint (6 heads, so not a power of two; weights of deviation 0.3, so attention is far from
uniform; norm weights and biases away from 1 and 0), a batch of two rows of 320 tokens of which the second is left-padded,
and one cached step after them. Written to goldens/<family>/: config.json, model.safetensors, golden.safetensors.

golden.safetensors: input_ids [2, T], attention_mask [2, T], rows [R] (query positions kept), logits [2, R, V],
attn [layers, 2, heads, R, T] (probabilities of those query rows), step_ids [2], step_logits [2, V].
Falcon runs on its `sdpa` path: the eager path adds the bias twice (its logits are in logits_eager_doubled, first row).
"""
import json
import math
import os
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import (BloomConfig, BloomForCausalLM, FalconConfig, FalconForCausalLM, MptConfig, MptForCausalLM)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))
LENGTH, PADDING, VOCAB, HIDDEN, LAYERS, HEADS = 320, 37, 96, 48, 2, 6
ROWS = [PADDING, PADDING + 1, 63, 128, 255, 256, 257, 258, 318, 319]


def configs():
    yield "bloom", BloomForCausalLM, "eager", BloomConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS, initializer_range=0.3, seq_length=512,
        bos_token_id=1, eos_token_id=2, pad_token_id=3)
    yield "bloom_post_norm_residual", BloomForCausalLM, "eager", BloomConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS, initializer_range=0.3, seq_length=512,
        bos_token_id=1, eos_token_id=2, pad_token_id=3, apply_residual_connection_post_layernorm=True)
    yield "mpt", MptForCausalLM, "eager", MptConfig(
        vocab_size=VOCAB, d_model=HIDDEN, n_layers=LAYERS, n_heads=HEADS, max_seq_len=512, initializer_range=0.3,
        attn_config={"alibi": True, "alibi_bias_max": 8, "clip_qkv": 0.5, "softmax_scale": 0.25})
    yield "falcon", FalconForCausalLM, "sdpa", FalconConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, initializer_range=0.3,
        alibi=True, bias=True, multi_query=False, parallel_attn=False, new_decoder_architecture=False,
        bos_token_id=1, eos_token_id=2, max_position_embeddings=512)


class CaptureSdpa:
    """Records the probabilities that scaled_dot_product_attention forms and never returns."""

    def __enter__(self):
        self.maps, self.original = [], F.scaled_dot_product_attention

        def recorded(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **kw):
            scores = query @ key.transpose(-1, -2) * (scale or 1 / math.sqrt(query.shape[-1]))
            if attn_mask is not None:
                scores = scores + attn_mask
            if is_causal:
                raise SystemExit("the recipe passes an explicit mask")
            self.maps.append(torch.softmax(scores, -1))
            return self.original(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal,
                                 scale=scale, **kw)

        F.scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention = recorded
        return self

    def __exit__(self, *_):
        F.scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention = self.original


def randomise(model, generator):
    for name, p in model.named_parameters():
        is_norm = "norm" in name or "ln_" in name
        noise = torch.randn(p.shape, generator=generator)
        if is_norm and name.endswith("weight"):
            p.copy_(1 + 0.2 * noise)
        elif is_norm or name.endswith("bias"):
            p.copy_(0.2 * noise)
        else:
            p.copy_(0.3 * noise)


@torch.no_grad()
def make(family, cls, implementation, config):
    torch.manual_seed(7)
    generator = torch.Generator().manual_seed(11)
    model = cls._from_config(config, attn_implementation=implementation, dtype=torch.float32).eval()
    randomise(model, generator)
    folder = os.path.join(HERE, family)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, safe_serialization=True)
    for extra in os.listdir(folder):
        if extra not in ("config.json", "model.safetensors"):
            os.remove(os.path.join(folder, extra))

    ids = torch.randint(4, VOCAB, (2, LENGTH), generator=generator)
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    ids[1, :PADDING], mask[1, :PADDING] = 3, 0
    rows = torch.tensor(ROWS)
    if implementation == "sdpa":
        with CaptureSdpa() as capture:
            out = model(ids, attention_mask=mask, use_cache=True)
        attention = capture.maps
        assert len(attention) == LAYERS, "one map a layer"
    else:
        out = model(ids, attention_mask=mask, use_cache=True, output_attentions=True)
        attention = out.attentions
    step = torch.randint(4, VOCAB, (2, 1), generator=generator)
    step_out = model(step, attention_mask=torch.cat([mask, torch.ones(2, 1, dtype=torch.long)], 1),
                     past_key_values=out.past_key_values, use_cache=True)
    golden = {
        "input_ids": ids.int(), "attention_mask": mask.int(), "rows": rows.int(),
        "logits": out.logits[:, rows].contiguous(),
        "attn": torch.stack([a[:, :, rows] for a in attention]).contiguous(),
        "step_ids": step[:, 0].int().contiguous(), "step_logits": step_out.logits[:, -1].contiguous(),
    }
    if family == "falcon":
        eager = cls.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
        golden["logits_eager_doubled"] = eager(ids[:1], attention_mask=mask[:1]).logits[:, rows].contiguous()
    save_file(golden, os.path.join(folder, "golden.safetensors"), metadata={
        "made_by": "goldens/make_goldens.py", "torch": torch.__version__, "transformers": transformers.__version__,
        "seed": "7, 11", "attention": implementation})
    print(family, "logits", tuple(golden["logits"].shape), "max |logit|", out.logits.abs().max().item(),
          "mean max probability", torch.stack(list(attention)).amax(-1).mean().item(), file=sys.stderr)


for args in configs():
    make(*args)
