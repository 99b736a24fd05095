"""Tokens per CPU second: our sampler next to transformers' generate, and the training half (score with gradient).

One process, one intra-op thread, the same random 0.8 M-parameter Llama (hidden 128, 4 layers) for both. Process time
is the fair number on a shared machine; calls take turns and the best of the repeats counts. One JSON line each.

    python bench/sampler.py                      # all
    python bench/sampler.py --only sample --rows 16 --repeats 5
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from trainer.policy.load import Policy
from trainer.policy.scoring import score
from trainer.rollout.sampler import Request, SamplingParams, StreamKey
from trainer.rollout.torch_sampler import TorchSampler
from trainer.testing.tiny import tiny_policy

PROMPT, NEW = 16, 32


def model(hidden: int = 128) -> Policy:
    """The measured policy; no end-of-sequence id, so that every row runs to the limit in both engines."""
    policy = tiny_policy(
        scale=3.0, hidden_size=hidden, layers=4, heads=4, kv_heads=4, intermediate_size=hidden * 43 // 16
    )
    policy.model.generation_config.eos_token_id = None
    return policy


def best_cpu_seconds(calls: list[Callable[[], object]], repeats: int) -> list[float]:
    """Least process seconds of each call, the calls taking turns; the first round is warm-up."""
    best = [float("inf")] * len(calls)
    for round_ in range(repeats + 1):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            if round_:
                best[i] = min(best[i], time.process_time() - start)
    return best


def measure_sampling(policy: Policy, rows: int, group: int, repeats: int) -> dict[str, float | int | str]:
    """``rows`` samples in groups of ``group`` with one prompt each, plain sampling at temperature 1."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(4, len(policy.tokenizer), (rows // group, PROMPT), generator=generator)
    requests = [Request(str(i), tuple(ids), group) for i, ids in enumerate(prompts.tolist())]
    params, stream = SamplingParams(1.0, max_new_tokens=NEW), StreamKey(0, 0)
    sampler = TorchSampler(policy.model)
    repeated = prompts.repeat_interleave(group, 0)

    def ours() -> object:
        return sampler.generate(requests, params, stream)

    def theirs() -> object:
        return policy.model.generate(
            input_ids=repeated, attention_mask=torch.ones_like(repeated), max_new_tokens=NEW, do_sample=True, top_k=0
        )

    a, b = best_cpu_seconds([ours, theirs], repeats)
    return {
        "what": "sample", "rows": rows, "group": group, "prompt_tokens": PROMPT, "new_tokens": NEW,
        "tokens_per_cpu_s": round(rows * NEW / a), "transformers_tokens_per_cpu_s": round(rows * NEW / b),
        "ratio": round(b / a, 2),
    }  # fmt: skip


def measure_training(policy: Policy, rows: int, group: int, micro: int, repeats: int) -> dict[str, float | int | str]:
    """Score with gradient and backward: ``rows`` completions of 8 to 24 tokens, ``group`` a prompt, ``micro`` rows at
    once; next to transformers' forward on right-padded rows."""
    generator = torch.Generator().manual_seed(0)
    vocabulary = len(policy.tokenizer)
    prompts = torch.randint(4, vocabulary, (rows // group, PROMPT), generator=generator).repeat_interleave(group, 0)
    ids = torch.randint(4, vocabulary, (rows, 24), generator=generator)
    length = torch.randint(8, 25, (rows,), generator=generator)
    prompt_len = torch.full((rows,), PROMPT)
    real = torch.arange(24)[None] < length[:, None]
    policy.model.train()

    def ours() -> None:
        policy.model.zero_grad()
        for at in range(0, rows, micro):
            part = slice(at, at + micro)
            scores = score(policy.model, prompts[part], prompt_len[part], ids[part], length[part], temperature=1.0)
            scores.logprobs_NT.sum().backward()

    def theirs() -> None:
        policy.model.zero_grad()
        for at in range(0, rows, micro):
            part = slice(at, at + micro)
            joined = torch.cat([prompts[part], ids[part]], 1)
            mask = torch.cat([torch.ones_like(prompts[part]), real[part].long()], 1)
            logits = policy.model(input_ids=joined, attention_mask=mask, logits_to_keep=25).logits[:, :-1]
            logprobs = logits.log_softmax(-1)
            (logprobs.exp() * logprobs).sum(-1).detach()
            logprobs.gather(2, ids[part][..., None])[..., 0][real[part]].sum().backward()

    a, b = best_cpu_seconds([ours, theirs], repeats)
    policy.model.eval()
    tokens = int(length.sum())
    return {
        "what": "score and backward", "rows": rows, "group": group, "rows_at_once": micro, "prompt_tokens": PROMPT,
        "completion_tokens": tokens, "tokens_per_cpu_s": round(tokens / a),
        "transformers_tokens_per_cpu_s": round(tokens / b), "ratio": round(b / a, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["sample", "train"])
    parser.add_argument("--rows", type=int, nargs="*", default=[16, 64, 512])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    policy = model()
    parameters = sum(p.numel() for p in policy.model.parameters())
    print(json.dumps({"what": "model", "parameters": parameters, "torch": torch.__version__}), flush=True)
    if args.only != "train":
        for rows in args.rows:
            print(json.dumps(measure_sampling(policy, rows, min(16, rows), args.repeats)), flush=True)
    if args.only != "sample":
        for micro in (64, 512):
            print(json.dumps(measure_training(policy, 512, 16, micro, args.repeats)), flush=True)


if __name__ == "__main__":
    main()
