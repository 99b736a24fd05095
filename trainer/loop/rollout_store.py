"""Rollouts of an iteration as one Parquet part; the event carries the index by prompt."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.contract import events as ev
from trainer.core.context import Context
from trainer.core.types import Group


def write_part(
    folder: Path, base: Path, groups: Sequence[Group], advantages: Mapping[int, float], ctx: Context
) -> None:
    """Writes ``part-<iteration>.parquet`` (one row a rollout, groups contiguous) and emits its event. The run's secrets
    are in neither.

    ``judged_by`` is the comparer that decided, empty where the task has one only.
    Columns: uid, index, text, reward, rewards (JSON), advantage (NaN where the phase has none), tokens, end, answer,
    canonical, judged_by, correct, logprob (sum over sampled tokens, nats, sampling distribution).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    index: list[ev.RolloutGroup] = []
    for group in groups:
        judged = [t.reward for t in group.trajectories if t.reward is not None]
        index.append(
            ev.RolloutGroup(
                uid=group.prompt.uid,
                text=group.prompt.text,
                answer=group.prompt.answer,
                n=len(group.trajectories),
                c=group.solved,
                first_row=len(rows),
                mean_reward=sum(judged) / len(judged) if judged else None,
            )
        )
        for t in group.trajectories:
            rows.append(
                {
                    "uid": group.prompt.uid,
                    "index": t.index,
                    "text": t.text,
                    "reward": t.reward,
                    "rewards": json.dumps(t.rewards),
                    "advantage": advantages.get(id(t), math.nan),
                    "tokens": t.sampled_tokens,
                    "end": t.end,
                    "answer": t.answer,
                    "canonical": t.canonical,
                    "judged_by": t.judged_by,
                    "correct": t.correct,
                    "logprob": sum(lp for n in t.nodes for s in n.spans if s.sampled for lp in s.logprobs or ()),
                }
            )
    axes = ctx.state.axes()
    path = folder / f"part-{axes.iteration:08d}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    rows = ctx.emit.redact.value(rows) if ctx.emit.redact else rows
    pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), partial, compression="zstd")
    os.replace(partial, path)
    ctx.emit(ev.Rollouts(axes=axes, uri=str(path.relative_to(base)), rows=len(rows), groups=index))


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("uid", pa.string()),
            ("index", pa.int32()),
            ("text", pa.string()),
            ("reward", pa.float64()),
            ("rewards", pa.string()),
            ("advantage", pa.float64()),
            ("tokens", pa.int32()),
            ("end", pa.string()),
            ("answer", pa.string()),
            ("canonical", pa.string()),
            ("judged_by", pa.string()),
            ("correct", pa.bool_()),
            ("logprob", pa.float64()),
        ]
    )
