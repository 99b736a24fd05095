"""Peak memory of a loss and its gradient against the length, with a vocabulary of 152k: our scoring beside transformers' loss.

One sequence of a small Llama (hidden size 64, two layers), so that logits decide; each measurement in a process of its own. The
figure is the peak of resident memory above what the process held with the model loaded. One JSON line each.

    PYTHONPATH=. python bench/memory.py [--lengths 512 1024 2048 4096] [--limit-gib 12]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

VOCABULARY, HIDDEN, PROMPT = 151_936, 64, 32
WAYS = ("ours", "transformers")
NAIVE_BYTES = 4 * 4
"""Of transformers' loss, for each logit: an estimate of what is alive at once, to leave out what would not fit."""


def measure(way: str, length: int) -> dict[str, float | int | str]:
    """One forward and backward pass over ``length`` completion tokens in this process."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from trainer.policy.scoring import score

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
            max_position_embeddings=8192, tie_word_embeddings=True,
        )
    )  # fmt: skip
    prompt = torch.randint(VOCABULARY, (1, PROMPT))
    ids = torch.randint(VOCABULARY, (1, length))
    # Gradients of the weights are there before and after, whatever the way.
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    if way == "ours":
        one, many = torch.tensor([PROMPT]), torch.tensor([length])
        loss = -score(model, prompt, one, ids, many, temperature=1.0).logprobs_NT.mean()
    else:
        whole = torch.cat([prompt, ids], 1)
        labels = whole.clone()
        labels[:, :PROMPT] = -100
        loss = model(input_ids=whole, labels=labels).loss
    loss.backward()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "way": way, "tokens": length, "vocabulary": VOCABULARY, "peak_mib": (after.ru_maxrss - before) / 1024,
        "cpu_s": after.ru_utime - cpu, "loss": float(loss.detach()), "logits_mib": length * VOCABULARY * 4 / 2**20,
    }  # fmt: skip


def main() -> int:
    """All lengths in both ways; those of transformers only where they fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--limit-gib", type=float, default=12.0, help="memory that a measurement may take")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "TOKENS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]))), flush=True)
        return 0
    for length in arguments.lengths:
        for way in WAYS:
            if way != "ours" and length * VOCABULARY * NAIVE_BYTES > arguments.limit_gib * 2**30:
                print(json.dumps({"way": way, "tokens": length, "skipped": "more than --limit-gib"}), flush=True)
                continue
            subprocess.run([sys.executable, str(Path(__file__)), "--one", way, str(length)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
