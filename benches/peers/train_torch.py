"""The same training step in PyTorch: configurations A and B, eager, SDPA with the ALiBi mask, fused AdamW.

    python train_torch.py A|B|S [--threads N] [--steps N] [--from FOLDER] [--compile] [--name NAME]

With --from FOLDER it starts from the weights and batch that `train_step --dump FOLDER` wrote, so that the losses can be compared:
ten steps within 1e-4 relative is the goal. Prints one RESULT line.
"""

import argparse
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIGURATIONS = {
    "A": dict(width=256, layers=6, heads=8, length=512, batch=8, vocab=4096),
    "B": dict(width=768, layers=12, heads=12, length=1024, batch=1, vocab=32000),
    "S": dict(width=64, layers=2, heads=4, length=64, batch=2, vocab=256),
}


def slopes(heads):
    power = 2 ** math.floor(math.log2(heads))
    own = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    if power == heads:
        return own
    double = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(2 * power)]
    return own + double[0::2][: heads - power]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, bias):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.vocab = c["vocab"]
        self.embedding = nn.Embedding(c["vocab"], c["width"])
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(Block(c["width"], c["heads"]) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(c["width"])
        i = torch.arange(c["length"])
        distance = (i[:, None] - i[None, :]).float()
        bias = -torch.tensor(slopes(c["heads"]))[:, None, None] * distance
        bias = bias.masked_fill((distance < 0)[None], float("-inf"))[None].contiguous()
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.bias)
        logits = self.norm(x) @ self.embedding.weight.t()
        return F.cross_entropy(logits.view(-1, self.vocab), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("configuration", choices=CONFIGURATIONS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--from", dest="folder")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--name", help="of this side in the RESULT line")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    c = CONFIGURATIONS[args.configuration]
    model = Decoder(c)
    shape = (c["batch"], c["length"])
    if args.folder:
        from safetensors.torch import load_file

        model.load_state_dict(load_file(os.path.join(args.folder, "initial.safetensors")), strict=True)
        read = lambda name: torch.tensor([int(w) for w in open(os.path.join(args.folder, name)).read().split()]).view(shape)
        ids, targets = read("ids.txt"), read("targets.txt")
    else:
        ids, targets = torch.randint(0, c["vocab"], shape), torch.randint(0, c["vocab"], shape)
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2]
    others = [p for n, p in model.named_parameters() if p.dim() != 2]
    groups = [dict(params=matrices, weight_decay=0.01), dict(params=others, weight_decay=0.0)]
    optimiser = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.999), eps=1e-8, fused=True)
    step = torch.compile(model) if args.compile else model
    walls, cpus, losses = [], [], []
    for i in range(args.steps + 2):
        began, cpu = time.perf_counter(), time.process_time()
        loss = step(ids, targets)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if i >= 2:
            walls.append(time.perf_counter() - began)
            cpus.append(time.process_time() - cpu)
    walls.sort()
    cpus.sort()
    median = walls[len(walls) // 2]
    peak = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) / 1024
    kind = args.name or ("torch-compile" if args.compile else "torch")
    rows = c["batch"] * c["length"]
    print(
        f"RESULT {kind} cfg={args.configuration} threads={args.threads} step_med={median:.3f}s cpu_med={cpus[len(cpus) // 2]:.3f}s min={walls[0]:.3f} "
        f"tok/s={rows / median:.0f} peakMiB={peak:.0f} losses={','.join(f'{l:.7f}' for l in losses)}"
    )


main()
