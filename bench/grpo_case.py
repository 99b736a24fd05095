"""What both sides of `grpo.py` share: the same random model, prompts, reward and sizes. Needs torch and transformers."""

from __future__ import annotations

import random
import resource
from dataclasses import dataclass
from pathlib import Path

CHARACTERS = "0123456789+-*=() \nabcdefghijklmnopqrstuvwxyz.,:?"
LEARNING_RATE = 1e-4
PROBLEMS = 64


@dataclass(frozen=True)
class Case:
    """Completions a step, rollouts per prompt, prompt length (characters), longest completion (tokens), steps."""

    rows: int
    group: int = 8
    prompt: int = 6
    new_tokens: int = 64
    steps: int = 6


def write_model(folder: Path, *, hidden: int = 128, layers: int = 2, heads: int = 4) -> int:
    """A random Qwen2 with a character tokenizer in the standard layout; its number of parameters."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {t: i for i, t in enumerate(("<pad>", "<bos>", "<eos>", "<unk>", *CHARACTERS))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer, core.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    special = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **special)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=heads // 2, max_position_embeddings=512,
            tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip
    model.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(p.numel() for p in model.parameters())


def prompts(case: Case) -> list[tuple[str, str]]:
    """(sum as text of about the asked length, its value as text), all different."""
    draw = random.Random(0)
    found: dict[str, str] = {}
    while len(found) < PROBLEMS:
        terms = [draw.randrange(10, 100) for _ in range(max(2, case.prompt // 3))]
        found["+".join(map(str, terms)) + "="] = str(sum(terms))
    return list(found.items())


def reward(text: str, answer: str) -> float:
    """Share of digits, and one more for an answer that begins right: groups differ from the first step on."""
    return sum(c.isdigit() for c in text) / max(1, len(text)) + float(text.startswith(answer))


def peak_mb() -> float:
    """Largest resident memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
