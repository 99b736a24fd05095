"""What a policy can take: prompts within its positions, written in characters that its tokenizer knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.contract.config import RunConfig
from trainer.core.errors import ConfigError


def misfit(config: RunConfig, ctx: Any, prompt: Any) -> str | None:
    """Why the policy cannot take a prompt from a user's file: too long with its answer, or characters that the tokenizer
    does not know. None where it can."""
    ids = ctx.policy.encode_prompt(prompt.messages)
    refuse_unknown(ctx.policy, prompt.text, ids, prompt)
    limit = ctx.policy.max_positions
    if limit is None or len(ids) + config.sampling.max_new_tokens <= limit:
        return None
    return (
        f"the prompt has {len(ids)} tokens, with sampling.max_new_tokens {config.sampling.max_new_tokens} more than the "
        f"model's {limit} positions"
    )


def refuse_unknown(policy: Any, text: str, ids: Sequence[int], prompt: Any) -> None:
    """Raises ConfigError, with the row named, where a text from a user's file became the tokenizer's unknown token."""
    unknown = policy.tokenizer.unk_token_id
    if unknown is None or unknown not in ids:
        return
    row = prompt.meta.get("row")
    where = f"{row.get('file')}, line {row.get('line')}" if row else f"a problem of the task {prompt.task}"
    vocabulary = policy.tokenizer.get_vocab()
    strange = " ".join(repr(c) for c in sorted(set(text)) if c not in vocabulary)
    raise ConfigError(
        f"{where}: the policy's tokenizer does not know {strange or 'a part of the text'}; "
        "take a policy with another tokenizer, or leave these characters out"
    )


def check_stop(config: RunConfig, policy: Any) -> None:
    """Refuses a stop string that the policy cannot write: it would never end an answer."""
    unknown = policy.tokenizer.unk_token_id
    for text in config.sampling.stop:
        if unknown is not None and unknown in policy.tokenizer(text, add_special_tokens=False)["input_ids"]:
            raise ConfigError(
                f"sampling.stop: found {text!r}, which the policy's tokenizer cannot write; expected texts of its own "
                "characters"
            )


def check_lengths(config: RunConfig, ctx: Any, prompts: Sequence[Any]) -> None:
    """Refuses a run whose sequences don't fit the model, before they are sampled."""
    limit = ctx.policy.max_positions
    if limit is None:
        return
    longest = max((len(ctx.policy.encode_prompt(p.messages)) for p in prompts), default=0)
    if longest + config.sampling.max_new_tokens > limit:
        raise ConfigError(
            f"prompts of up to {longest} tokens and sampling.max_new_tokens {config.sampling.max_new_tokens} "
            f"exceed the model's {limit} positions; lower sampling.max_new_tokens"
        )
