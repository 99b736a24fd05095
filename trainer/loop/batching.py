"""Trajectories → samples → tensors → mini- and micro-batches. Rows may be sorted and split freely: ids name the groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from trainer.core.context import Context
from trainer.core.types import AUTHOR, Batch, Group, Sample, Span, Trajectory


class WholePath:
    """The default sample maker: the root → leaf path as one sequence; the leading untrained prompt is its prefix."""

    def samples(self, trajectory: Trajectory, group: Group, ctx: Context) -> list[Sample]:
        """One sample a trajectory, masks from the spans' flags."""
        spans = list(trajectory.spans())
        cut = next((i for i, s in enumerate(spans) if s.kind != "prompt"), len(spans))
        return [sample_of(spans[:cut], spans[cut:], group, trajectory)]


def sample_of(
    before: Sequence[Span],
    body: Sequence[Span],
    group: Group,
    trajectory: Trajectory,
    parents: Sequence[int] | None = None,
) -> Sample:
    """A sample of the tokens of ``body`` after those of ``before``, masks from the spans' flags."""
    return Sample(
        prefix_ids=tuple(i for s in before for i in s.ids),
        ids=tuple(i for s in body for i in s.ids),
        trained=tuple(s.trained for s in body for _ in s.ids),
        sampled=tuple(s.sampled for s in body for _ in s.ids),
        sampler_logprobs=_logprobs(body, sampled=True),
        group_id=group.id,
        trajectory=trajectory,
        columns={AUTHOR: _logprobs(body, sampled=False)} if any(_foreign(s) for s in body) else {},
        parents=None if parents is None else tuple(parents),
    )


def _foreign(span: Span) -> bool:
    return span.logprobs is not None and not span.sampled


def _logprobs(spans: Sequence[Span], *, sampled: bool) -> tuple[float, ...]:
    """One per id: the spans' own where they are (not) sampled, else NaN."""
    return tuple(
        lp
        for s in spans
        for lp in (s.logprobs if s.logprobs is not None and s.sampled == sampled else (math.nan,) * len(s.ids))
    )


def build_batch(samples: Sequence[Sample], pad_id: int) -> Batch:
    """Right-padded tensors. The columns ``sampled`` and ``sampler_logprobs`` (N, T) are 0 and NaN where nothing was sampled;
    the samples' own columns are joined, NaN where a sample has none."""
    rows = len(samples)
    widest_prefix = max((len(s.prefix_ids) for s in samples), default=0)
    widest = max((len(s.ids) for s in samples), default=0)
    prefix = torch.full((rows, widest_prefix), pad_id, dtype=torch.long)
    ids = torch.full((rows, widest), pad_id, dtype=torch.long)
    mask = torch.zeros((rows, widest))
    sampled = torch.zeros((rows, widest))
    sampler = torch.full((rows, widest), math.nan)
    for i, s in enumerate(samples):
        prefix[i, : len(s.prefix_ids)] = torch.tensor(s.prefix_ids, dtype=torch.long)
        ids[i, : len(s.ids)] = torch.tensor(s.ids, dtype=torch.long)
        mask[i, : len(s.ids)] = torch.tensor(s.trained, dtype=torch.float)
        sampled[i, : len(s.ids)] = torch.tensor(s.sampled, dtype=torch.float)
        sampler[i, : len(s.ids)] = torch.tensor(s.sampler_logprobs)
    parents = None
    if any(s.parents is not None for s in samples):
        parents = torch.arange(-1, widest - 1).repeat(rows, 1)
        for i, s in enumerate(samples):
            if s.parents is not None:
                parents[i, : len(s.ids)] = torch.tensor(s.parents, dtype=torch.long)
    reward = torch.tensor([math.nan if s.trajectory.reward is None else s.trajectory.reward for s in samples])
    return Batch(
        samples=list(samples),
        prefix_ids_NP=prefix,
        prefix_len_N=torch.tensor([len(s.prefix_ids) for s in samples], dtype=torch.long),
        ids_NT=ids,
        length_N=torch.tensor([len(s.ids) for s in samples], dtype=torch.long),
        mask_NT=mask,
        group_ids=[s.group_id for s in samples],
        reward_N=reward,
        columns={"sampled": sampled, "sampler_logprobs": sampler, **_joined_columns(samples, widest)},
        parents_NT=parents,
        trajectory_ids=[id(s.trajectory) for s in samples],
    )


def _joined_columns(samples: Sequence[Sample], width: int) -> dict[str, torch.Tensor]:
    out: dict[str, torch.Tensor] = {}
    for i, sample in enumerate(samples):
        for name, value in sample.columns.items():
            shape = (len(samples), width) if isinstance(value, tuple) else (len(samples),)
            column = out.setdefault(name, torch.full(shape, math.nan))
            if isinstance(value, tuple):
                column[i, : len(value)] = torch.tensor(value)
            else:
                column[i] = value
    return out


def mask_truncated(batch: Batch) -> None:
    """Takes the samples of truncated attempts out of the loss, whatever their spans say; rewards stay."""
    cut = torch.tensor([s.trajectory.truncated for s in batch.samples], dtype=torch.bool)
    batch.mask_NT[cut] = 0


def rows_of(batch: Batch, rows: Sequence[int]) -> Batch:
    """The given rows as a batch, trimmed to their own widths; columns are the batch's rows."""
    index = torch.tensor(rows, dtype=torch.long)
    width = int(batch.length_N[index].max()) if rows else 0
    prefix_width = int(batch.prefix_len_N[index].max()) if rows else 0
    columns = {
        k: (v[index, :width] if v.ndim == 2 and v.shape[1] == batch.ids_NT.shape[1] else v[index])
        for k, v in batch.columns.items()
    }
    return Batch(
        samples=[batch.samples[i] for i in rows],
        prefix_ids_NP=batch.prefix_ids_NP[index, :prefix_width],
        prefix_len_N=batch.prefix_len_N[index],
        ids_NT=batch.ids_NT[index, :width],
        length_N=batch.length_N[index],
        mask_NT=batch.mask_NT[index, :width],
        group_ids=[batch.group_ids[i] for i in rows],
        reward_N=batch.reward_N[index],
        columns=columns,
        kept=None if batch.kept is None else [batch.kept[i] for i in rows],
        parents_NT=None if batch.parents_NT is None else batch.parents_NT[index, :width],
        trajectory_ids=[batch.trajectory_ids[i] for i in rows],
    )


def minibatches(batch: Batch, count: int, ctx: Context, epoch: int) -> Iterator[Batch]:
    """``count`` parts of whole groups, in an order drawn for the iteration and epoch (a single part keeps its order)."""
    if count == 1:
        yield batch
        return
    groups = list(dict.fromkeys(batch.group_ids))
    ctx.rng("minibatch", epoch).shuffle(groups)
    part_of = {g: i * count // len(groups) for i, g in enumerate(groups)}
    for part in range(count):
        rows = [i for i, g in enumerate(batch.group_ids) if part_of[g] == part]
        if rows:
            yield rows_of(batch, rows)


def microbatches(batch: Batch, tokens: int) -> Iterator[list[int]]:
    """Row indices in chunks of at most ``tokens`` padded tokens (at least one row), sorted by length to pad little."""
    total = (batch.prefix_len_N + batch.length_N).tolist()
    order = sorted(range(batch.size), key=lambda i: (-total[i], i))
    chunk: list[int] = []
    for row in order:
        if chunk and total[chunk[0]] * (len(chunk) + 1) > tokens:
            yield chunk
            chunk = []
        chunk.append(row)
    if chunk:
        yield chunk
