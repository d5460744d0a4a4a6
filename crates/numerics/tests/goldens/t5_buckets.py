"""Writes t5_buckets.txt: T5's relative position buckets as `transformers` computes them.

Run once by hand (needs torch and transformers); the test only reads the file.
    python3 t5_buckets.py > t5_buckets.txt
One line a configuration: n_buckets max_distance bidirectional : distance=bucket ...
where each entry is the first distance (query minus key, ascending from -4096 to 4096) of a run of equal buckets.
"""

import torch
import transformers
from transformers.models.t5.modeling_t5 import T5Attention

print(f"# transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, t5_buckets.py")
distances = torch.arange(-4096, 4097)
for n_buckets, max_distance in [(32, 128), (32, 1024), (16, 64), (64, 2048), (20, 100), (33, 129), (8, 8), (128, 4000)]:
    for bidirectional in [False, True]:
        buckets = T5Attention._relative_position_bucket(-distances, bidirectional, n_buckets, max_distance).tolist()
        runs, last = [], None
        for distance, bucket in zip(distances.tolist(), buckets):
            if bucket != last:
                runs.append(f"{distance}={bucket}")
                last = bucket
        print(n_buckets, max_distance, int(bidirectional), ":", *runs)
