"""Batches drawn before earlier ones are trained: by the right weights, no older than allowed, corrected, never wasted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.trainer.faults.making import PROMPT
from trainer.contract import events as ev
from trainer.contract.algorithm import AlgorithmSection
from trainer.contract.config import InvalidConfig
from trainer.contract.exit_codes import ExitCode
from trainer.core.errors import MethodError
from trainer.core.state import Counters
from trainer.core.types import Group, Node, Span, Trajectory
from trainer.data.task import problems
from trainer.data.tasks import make_task
from trainer.loop import ahead
from trainer.methods import resolve
from trainer.policy.load import load_policy
from trainer.rollout.sampler import Request, SamplingParams, StreamKey
from trainer.rollout.torch_sampler import TorchSampler
from trainer.testing.replay import events_of, story_of

ITERATIONS = 5
Runner = Callable[..., ExitCode]
Document = Callable[..., dict[str, Any]]


def stale(document: Document, staleness: int, **changes: Any) -> dict[str, Any]:
    algorithm = {"prompts_per_iteration": 4, "num_generations": 4, "staleness": staleness, "mismatch": "token_truncate"}
    return document(
        algorithm={**algorithm, **changes},
        optimizer={"learning_rate": 0.02},
        budget={"iterations": ITERATIONS},
        checkpoints={"every": 1, "keep": 9},
        evaluation={"every": 0, "problems": 0, "final_problems": 0},
    )


def checkpoint(folder: Path, iteration: int) -> Path:
    return folder / f"attempts/1/checkpoints/it-{iteration:08d}"


def rows_at(folder: Path, iteration: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / f"attempts/1/rollouts/part-{iteration:08d}.parquet").to_pylist()
    return rows


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_batch_is_what_the_weights_of_so_many_updates_ago_draw(
    staleness: int, run: Runner, document: Document, base: Path, tmp_path: Path
) -> None:
    wanted = stale(document, staleness)
    assert run(wanted, tmp_path / "r") == ExitCode.FINISHED
    config = resolve(wanted)
    pool = {p.uid: p for p in problems(make_task(config.task.name, config.task.params), "train", 24, seed=0)}
    seen = set()
    for iteration in range(1, ITERATIONS + 1):
        version = max(0, iteration - 1 - staleness)
        policy = load_policy(checkpoint(tmp_path / "r", version) / "policies/policy" if version else base / "base")
        rows = rows_at(tmp_path / "r", iteration)
        requests = [
            Request(u, policy.encode_prompt(pool[u].messages), 4) for u in dict.fromkeys(r["uid"] for r in rows)
        ]
        stream = StreamKey(seed=0, iteration=iteration)
        groups = TorchSampler(policy.model).generate(
            requests, SamplingParams.of(config.sampling, policy.eos_ids), stream
        )
        found = [(policy.decode_completion(c.ids), sum(c.logprobs)) for group in groups for c in group]
        assert [text for text, _ in found] == [r["text"] for r in rows]
        assert [logprob for _, logprob in found] == pytest.approx([r["logprob"] for r in rows], abs=1e-6)
        seen.add(policy.weights_hash)
    assert len(seen) == ITERATIONS - staleness


@pytest.mark.parametrize("staleness", [1, 2])
def test_the_lag_is_told_bounded_and_corrected(staleness: int, run: Runner, document: Document, tmp_path: Path) -> None:
    assert run(stale(document, staleness), tmp_path / "r") == ExitCode.FINISHED
    scalars = story_of(tmp_path / "r").scalars
    lags = [min(i, staleness) for i in range(ITERATIONS)]
    for name in ("staleness/mean", "staleness/max"):
        assert [scalars[i + 1, name] for i in range(ITERATIONS)] == lags
    assert scalars[1, "sampling/sampling_logp_difference/max"] < 1e-4
    assert scalars[1, "sampling/importance_sampling_ratio/max"] == pytest.approx(1, abs=1e-4)
    for iteration in range(2, ITERATIONS + 1):
        assert scalars[iteration, "sampling/kl/k3"] > 1e-4
        assert scalars[iteration, "sampling/effective_sample_size"] < 0.999
        assert scalars[iteration, "sampling/importance_sampling_ratio/max"] > 1.05
    axes = story_of(tmp_path / "r").axes
    assert [axes[i]["rollouts"] for i in range(1, ITERATIONS + 1)] == [16 * i for i in range(1, ITERATIONS + 1)]


def test_left_to_itself_the_correction_fits_the_engine_and_the_lag(
    run: Runner, document: Document, tmp_path: Path
) -> None:
    for name, staleness, mismatch in (("auto", 1, "auto"), ("plain", 1, "token_truncate"), ("now", 0, "auto")):
        assert run(stale(document, staleness, mismatch=mismatch), tmp_path / name) == ExitCode.FINISHED
    assert story_of(tmp_path / "auto").scalars == story_of(tmp_path / "plain").scalars
    assert not [key for _, key in story_of(tmp_path / "now").scalars if "importance_sampling_ratio" in key]
    told = [e.event.message for e in events_of(tmp_path / "auto") if isinstance(e.event, ev.Log)]
    assert [text for text in told if "sampler correction: token_truncate, because" in text]
    assert {AlgorithmSection(mismatch="sequence_mask", staleness=1).correction(e) for e in ("torch", "vllm")} == {
        "sequence_mask"
    }
    assert [AlgorithmSection().correction(e) for e in ("torch", "vllm")] == ["off", "sequence_mask"]


def test_what_waits_is_in_the_checkpoint_and_nothing_is_left_at_the_end(
    run: Runner, document: Document, tmp_path: Path
) -> None:
    assert run(stale(document, 2), tmp_path / "r") == ExitCode.FINISHED
    waiting = []
    for iteration in range(1, ITERATIONS + 1):
        state = json.loads((checkpoint(tmp_path / "r", iteration) / "state.json").read_text())
        batches = state["memory"]["ahead"]["batches"]
        waiting.append(len(batches))
        for batch, later in zip(batches, range(iteration + 1, ITERATIONS + 1), strict=False):
            texts = [t["text"] for g in batch["groups"] for t in g["trajectories"]]
            assert texts == [r["text"] for r in rows_at(tmp_path / "r", later)]
    assert waiting == [2, 2, 2, 1, 0]


def test_without_staleness_nothing_waits_and_nothing_is_told(run: Runner, document: Document, tmp_path: Path) -> None:
    assert run(stale(document, 0), tmp_path / "r") == ExitCode.FINISHED
    assert "ahead" not in json.loads((checkpoint(tmp_path / "r", 1) / "state.json").read_text())["memory"]
    assert not [key for _, key in story_of(tmp_path / "r").scalars if key.startswith("staleness")]


def group_of(version: int) -> Group:
    span = Span((4,), "answer", sampled=True, logprobs=(-1.0,), policy_version=version)
    return Group(PROMPT, [Trajectory([Node(0, [span])], "p", 0, "eos")], "g")


@pytest.mark.parametrize("version", [4, 8])
def test_weights_older_than_allowed_or_not_yet_there_are_an_error(document: Document, version: int) -> None:
    config: Any = resolve(stale(document, 2))
    ctx: Any = SimpleNamespace(state=SimpleNamespace(counters=Counters(policy_version=7)), iteration=8)
    assert ahead.staleness(config, [group_of(5), group_of(7)], ctx) == {"staleness/mean": 1.0, "staleness/max": 2.0}
    assert ahead.staleness(config, [], ctx) == {}
    with pytest.raises(MethodError, match="expected 0 to 2"):
        ahead.staleness(config, [group_of(7), group_of(version)], ctx)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mismatch": "off"}, "set algorithm.mismatch"),
        ({"sampling": {"top_p": 0.9}}, "leave sampling whole"),
        ({"methods": [{"slug": "sps"}]}, "phases"),
        ({"staleness": 9}, "less than or equal to 8"),
    ],
)
def test_what_cannot_be_drawn_ahead_is_refused_with_the_reason(
    document: Document, changes: dict[str, Any], text: str
) -> None:
    sections = {key: value for key, value in changes.items() if key in ("sampling", "methods")}
    options: Any = {"staleness": 1, **{key: value for key, value in changes.items() if key not in sections}}
    wanted = {**stale(document, **options), **sections}
    with pytest.raises(InvalidConfig, match=text) as caught:
        resolve(wanted)
    assert [p.path for p in caught.value.problems] == ["algorithm.staleness"]
