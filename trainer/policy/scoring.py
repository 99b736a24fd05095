"""Log-probabilities and entropies of given tokens under a policy, with or without gradient.

Masks are never read off ids: what is real is said by lengths. Everything is right-padded, so that the causal mask alone
hides padding from real tokens, and positions count from the first prompt token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from trainer.core.errors import ConfigError
from trainer.core.slots import Scores
from trainer.policy.decoder import why_not_lean
from trainer.policy.heads import outputs
from trainer.policy.shared_prompt import target_states
from trainer.policy.truncation import Truncation

LOGIT_ELEMENTS = 1 << 24
"""Most logits (tokens × vocabulary, fp32: 64 MiB) alive at once; more tokens are scored in chunks."""


def score(
    model: Any, prefix_ids_NP: torch.Tensor, prefix_len_N: torch.Tensor, ids_NT: torch.Tensor, length_N: torch.Tensor,
    *, temperature: float, entropy: bool = True, entropy_grad: bool = False, logit_elements: int = LOGIT_ELEMENTS,
    heads: Mapping[str, torch.nn.Module] | None = None, truncation: Truncation | None = None, collision: bool = False,
) -> Scores:  # fmt: skip
    """Score completions ``ids_NT`` (real: the first ``length_N`` of each row) after prompts ``prefix_ids_NP`` (the
    first ``prefix_len_N`` ≥ 1); both right-padded with any valid ids.

    Returns fp32 (N, T): log π(token) at ``temperature`` > 0 (it divides the logits), with gradient where grad mode is
    on, and exact token entropies in nats, without gradient unless ``entropy_grad``; both exactly 0 on padding. Rows
    with equal prompts share one computation of it. ``entropy=False`` leaves zeros. ``heads`` are applied to the hidden
    state from which each token was drawn. ``truncation`` sees the real positions row by row, and both numbers are then those
    of what it leaves. ``collision`` adds Σ_v π_v² of each token's distribution.
    """
    heads = heads or {}
    _check(model, prefix_ids_NP, prefix_len_N, ids_NT, length_N, temperature)
    real_NT = torch.arange(ids_NT.shape[1], device=ids_NT.device)[None] < length_N[:, None]
    if not bool(real_NT.any()):
        zeros = torch.zeros(ids_NT.shape, device=ids_NT.device)
        return Scores(
            zeros, zeros.clone(), {name: zeros.clone() for name in heads}, zeros.clone() if collision else None
        )
    if why_not_lean(model, plain_linears=False) is None:
        prompts, prompt_of_N, lengths = _distinct(prefix_ids_NP, prefix_len_N)
        states_F = target_states(model, prompts, lengths, prompt_of_N, ids_NT, length_N)
        head = model.get_output_embeddings()
        values = _head(head, states_F, ids_NT[real_NT], temperature, entropy, entropy_grad, logit_elements, truncation,
                       collision)  # fmt: skip
        extra = outputs(heads, states_F)
    else:
        values, extra = _generic(
            model, prefix_ids_NP, prefix_len_N, ids_NT, length_N, temperature, entropy, entropy_grad, logit_elements,
            heads, truncation, collision,
        )  # fmt: skip
    slots = real_NT.flatten().nonzero()[:, 0]
    placed = {name: _place(value, slots, ids_NT.shape) for name, value in extra.items()}
    chosen, entropies, *collisions = (_place(value, slots, ids_NT.shape) for value in values)
    return Scores(chosen, entropies, placed, *collisions)


def sequence_logprob(logprobs_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """Sum of log-probs under the mask, (N,) fp32: the log-probability of the masked tokens given the rest."""
    if logprobs_NT.shape != mask_NT.shape:
        found = f"{tuple(logprobs_NT.shape)} and {tuple(mask_NT.shape)}"
        raise ConfigError(f"sequence_logprob: found shapes {found}, expected equal ones (N, T)")
    return torch.where(mask_NT.bool(), logprobs_NT.float(), 0.0).sum(1)


def _check(
    model: Any, prefix_ids_NP: torch.Tensor, prefix_len_N: torch.Tensor, ids_NT: torch.Tensor, length_N: torch.Tensor,
    temperature: float,
) -> None:  # fmt: skip
    rows = ids_NT.shape[0]
    if prefix_ids_NP.shape[0] != rows or prefix_len_N.shape != (rows,) or length_N.shape != (rows,):
        raise ConfigError(
            f"score: found prompts {tuple(prefix_ids_NP.shape)}, prompt lengths {tuple(prefix_len_N.shape)}, ids "
            f"{tuple(ids_NT.shape)}, lengths {tuple(length_N.shape)}; expected (N, P), (N,), (N, T), (N,)"
        )
    if not temperature > 0:
        raise ConfigError(f"score: found temperature {temperature}, expected > 0 (greedy sampling has no gradient)")
    for name, lengths, least, most in (
        ("prompt lengths", prefix_len_N, 1, prefix_ids_NP.shape[1]),
        ("lengths", length_N, 0, ids_NT.shape[1]),
    ):
        if rows and (int(lengths.min()) < least or int(lengths.max()) > most):
            found = f"{int(lengths.min())} to {int(lengths.max())}"
            raise ConfigError(f"score: {name} go from {found}, expected {least} … {most}")
    if model.training and getattr(model.config, "attention_dropout", 0.0):
        raise ConfigError(
            "score: the model is in training mode with attention_dropout > 0, so ratios to the sampler would be noise; "
            "set attention_dropout to 0 in its config or call model.eval()"
        )


def _distinct(
    prefix_ids_NP: torch.Tensor, prefix_len_N: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Distinct prompts (M, P) with lengths (M,), in order of first appearance, and each row's prompt (N,)."""
    index: dict[tuple[int, ...], int] = {}
    first: list[int] = []
    of = []
    for row, (ids, length) in enumerate(zip(prefix_ids_NP.tolist(), prefix_len_N.tolist(), strict=True)):
        prompt = tuple(ids[:length])
        if prompt not in index:
            index[prompt] = len(first)
            first.append(row)
        of.append(index[prompt])
    rows = torch.tensor(first, device=prefix_ids_NP.device)
    return prefix_ids_NP[rows], torch.tensor(of, device=prefix_ids_NP.device), prefix_len_N[rows]


def _choose(
    logits_FV: torch.Tensor, ids_F: torch.Tensor, temperature: float, entropy: bool, entropy_grad: bool,
    truncation: Truncation | None = None, first: int = 0, collision: bool = False,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """(F,) each: log-probs, entropies, and with ``collision`` Σπ², without gradient."""
    scaled = logits_FV.float() / temperature
    if truncation is not None:
        scaled = scaled.masked_fill(truncation.left_out(logits_FV.detach(), ids_F, first), -torch.inf)
    logprobs = scaled.log_softmax(-1)
    chosen = logprobs.gather(1, ids_F[:, None])[:, 0]
    collisions = ((2 * logprobs.detach()).exp().sum(-1),) if collision else ()
    if not entropy:
        return chosen, torch.zeros_like(chosen), *collisions
    source = logprobs if entropy_grad else logprobs.detach()
    mass = source.exp()
    # A banned token (log-prob -inf) adds 0, not 0 · -inf, to the entropy and to its gradient.
    return chosen, -(mass * torch.where(mass > 0, source, 0.0)).sum(-1), *collisions


def _head(
    head: Any, states_F: torch.Tensor, ids_F: torch.Tensor, temperature: float, entropy: bool, entropy_grad: bool,
    logit_elements: int, truncation: Truncation | None, collision: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Head and softmax in chunks; with gradient, chunks are computed again in backward instead of being kept."""
    size = max(1, logit_elements // head.weight.shape[0])

    def run(states: torch.Tensor, ids: torch.Tensor, first: int) -> tuple[torch.Tensor, ...]:
        return _choose(head(states), ids, temperature, entropy, entropy_grad, truncation, first, collision)

    if len(ids_F) <= size:
        return run(states_F, ids_F, 0)
    parts = []
    for first in range(0, len(ids_F), size):
        chunk = states_F[first : first + size], ids_F[first : first + size], first
        parts.append(checkpoint(run, *chunk, use_reentrant=False) if torch.is_grad_enabled() else run(*chunk))
    return tuple(torch.cat(values) for values in zip(*parts, strict=True))


def _generic(
    model: Any, prefix_ids_NP: torch.Tensor, prefix_len_N: torch.Tensor, ids_NT: torch.Tensor, length_N: torch.Tensor,
    temperature: float, entropy: bool, entropy_grad: bool, logit_elements: int,
    heads: Mapping[str, torch.nn.Module], truncation: Truncation | None, collision: bool,
) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:  # fmt: skip
    """Any causal model by its own forward, rows in chunks whose full logits stay within the bound.

    All logits are computed and the wanted ones picked by position, because not every model honours a request to keep
    only some.
    """
    total = (prefix_len_N + length_N).tolist()
    width = max(total)
    vocabulary = model.get_output_embeddings().weight.shape[0]
    size = max(1, logit_elements // (width * vocabulary))
    parts, states = [], []
    first = 0
    for at in range(0, len(total), size):
        rows = slice(at, at + size)
        wide = max(total[rows])
        prompt_len, length = prefix_len_N[rows, None], length_N[rows, None]
        column = torch.arange(wide, device=ids_NT.device)[None]
        relative = column - prompt_len
        own = ids_NT[rows].gather(1, relative.clamp(0, ids_NT.shape[1] - 1))
        before = prefix_ids_NP[rows].gather(1, column.expand(len(own), -1).clamp(max=prefix_ids_NP.shape[1] - 1))
        joined = torch.where(relative >= 0, own, before)
        positions = column.expand(len(own), -1)
        output = model(input_ids=joined, position_ids=positions, use_cache=False, output_hidden_states=bool(heads))
        logits = output.logits
        target = (relative >= 0) & (relative < length)
        wanted = joined[target]
        picked = logits[:, :-1][target[:, 1:]]
        parts.append(_choose(picked, wanted, temperature, entropy, entropy_grad, truncation, first, collision))
        first += len(wanted)
        if heads:
            states.append(output.hidden_states[-1][:, :-1][target[:, 1:]])
    extra = outputs(heads, torch.cat(states)) if heads else {}
    return tuple(torch.cat(values) for values in zip(*parts, strict=True)), extra


def _place(flat: torch.Tensor, slots: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Flat values to their places in zeros of ``shape``."""
    return flat.new_zeros(shape.numel()).index_put((slots,), flat).view(shape)
