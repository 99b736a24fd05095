"""A case through this project's parts: the very objectives that a run assembles, on given tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from tests.anchor.cases import LONGEST, ROWS, Case, Tensors, tensors
from trainer.contract.algorithm import AlgorithmSection
from trainer.core.slots import Scores
from trainer.core.state import TrainState
from trainer.core.types import Batch
from trainer.loop.assemble import base_objectives
from trainer.loop.batching import rows_of
from trainer.objectives.aggregate import Denominators, reduce_term


def context() -> Any:
    """What objectives ask a context for, without a run around it."""
    return SimpleNamespace(state=TrainState({}), metrics={}, tally=lambda *a: None)


def batch_of(t: Tensors) -> Batch:
    """The tensors as a batch whose rows are all of full width."""
    rows, width = t.mask.shape
    advantage = t.advantage if t.advantage.ndim == 2 else t.advantage[:, None].expand(rows, width)
    columns = {
        "advantage": advantage, "old_logprobs": t.old, "reference_logprobs": t.reference, "sampler_logprobs": t.sampler,
        "old_entropy": t.entropy.detach(),
    }  # fmt: skip
    full = torch.full((rows,), width)
    ids = torch.zeros(rows, width, dtype=torch.long)
    samples: list[Any] = [None] * rows
    return Batch(samples, ids[:, :1], full * 0 + 1, ids, full, t.mask, list("aabbcc"), t.advantage, columns)


def loss_of(case: Case, t: Tensors, *, split: tuple[tuple[int, ...], ...] | None = None) -> torch.Tensor:
    """The loss of one optimiser step, its rows in micro-batches as ``split`` says."""
    section = AlgorithmSection(**case.settings)
    objectives, ctx, batch = base_objectives(section), context(), batch_of(t)
    for one in objectives:
        one.prepare(batch, ctx)
    counts = Denominators.of(batch, max_length=LONGEST, count_empty=section.count_empty)
    total = t.now.new_zeros(())
    for rows in split or (tuple(range(ROWS)),):
        index = list(rows)
        micro = rows_of(batch, index)
        scores = Scores(t.now[index], t.entropy[index])
        for one in objectives:
            total = total + sum(
                reduce_term(term, micro.mask_NT, counts, micro) for term in one.terms(micro, scores, ctx)
            )
    return total


def ours(case: Case, dtype: torch.dtype, **options: Any) -> tuple[float, torch.Tensor]:
    """(loss, gradient by the log-probs and the entropies, (2, N, T))."""
    t = tensors(case, dtype)
    return graded(loss_of(case, t, **options), t)


def graded(loss: torch.Tensor, t: Tensors) -> tuple[float, torch.Tensor]:
    """The loss and its gradient by the leaves; 0 for one that it doesn't depend on."""
    found = torch.autograd.grad(loss, [t.now, t.entropy], allow_unused=True)
    gradient = [torch.zeros_like(t.now) if g is None else g for g in found]
    return float(loss.detach()), torch.stack(gradient)
