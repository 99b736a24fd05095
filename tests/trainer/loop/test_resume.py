"""Stopped, killed or broken anywhere, a run goes on to the same bits as one that was left alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.loop import checkpoint, checkpoint_files
from trainer.loop.run import Attempt, run_attempt
from trainer.testing.replay import Story, events_of, story_of

SPS = [{"slug": "sps", "params": {"k_rl": 2, "k_irl": 2, "prompts": "all", "stop_kl": 10.0, "stop_drop": 1.0}}]
KINDS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "sps": {"methods": SPS},
    "sps of a buffer": {"methods": [{"slug": "sps", "params": {**SPS[0]["params"], "fresh": False}}]},
    "hapo": {"methods": [{"slug": "hapo", "params": {"tau": 1.0, "confidence": 0.5, "annealing": "adaptive"}}]},
    "longact": {"methods": [{"slug": "longact", "params": {"refresh_every": 2, "smoothing": 0.5, "mode": "random"}}]},
    "a-grae": {"methods": [{"slug": "a-grae", "params": {"smoothing": 0.5}}]},
    "mcpo": {
        "methods": [{"slug": "mcpo"}],
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "minibatches": 2},
    },
    "f-grpo": {"methods": [{"slug": "f-grpo", "params": {"gamma": 1.0}}]},
    "heapa": {
        "methods": [{"slug": "heapa"}],
        "algorithm": {"prompts_per_iteration": 8, "num_generations": 2},
    },
    "pipo": {"methods": [{"slug": "pipo", "params": {"window": 3, "least": 2, "negative": 1.0}}]},
    "is-grpo": {
        "methods": [{"slug": "is-grpo"}],
        "algorithm": {"preset": "dr-grpo", "prompts_per_iteration": 4, "num_generations": 4},
    },
    "quatro": {
        "methods": [{"slug": "quatro"}],
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "num_iterations": 2},
    },
    "otb": {"methods": [{"slug": "otb", "params": {"zero_tail": True}}]},
    "kl and minibatches": {
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "kl_coef": 0.1, "num_iterations": 2, "minibatches": 2,
                      "entropy_coef": 0.01, "microbatch_tokens": 64}
    },
    "one step off": {
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "staleness": 1, "mismatch": "token_truncate"}
    },
    "lora": {
        "policy": {"checkpoint": "base", "lora": {"rank": 4}},
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "kl_coef": 0.1},
        "optimizer": {"learning_rate": 0.02},
    },
}  # fmt: skip


class Killed(BaseException):
    """What SIGKILL is to the process: no handler runs, what is on disk stays."""


ANYWHERE = [
    pytest.param("grpo", id="grpo"),
    pytest.param("sps", id="sps"),
    pytest.param("kl and minibatches", id="kl and minibatches", marks=pytest.mark.slow),
    pytest.param("one step off", id="one step off"),
    pytest.param("lora", id="lora"),
    pytest.param("longact", id="longact"),
    pytest.param("hapo", id="hapo"),
    pytest.param("sps of a buffer", id="sps of a buffer"),
    pytest.param("f-grpo", id="f-grpo"),
    pytest.param("mcpo", id="mcpo"),
    pytest.param("a-grae", id="a-grae"),
    pytest.param("otb", id="otb", marks=pytest.mark.slow),
    pytest.param("quatro", id="quatro", marks=pytest.mark.slow),
    pytest.param("is-grpo", id="is-grpo", marks=pytest.mark.slow),
    pytest.param("pipo", id="pipo", marks=pytest.mark.slow),
    pytest.param("heapa", id="heapa", marks=pytest.mark.slow),
]


def killer(after: int) -> Callable[[Any], None]:
    """An echo that kills after the ``after``-th event was written."""
    seen = 0

    def echo(event: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == after:
            raise Killed

    return echo


def same(a: Story, b: Story) -> None:
    assert a.scalars == b.scalars
    assert a.axes == b.axes
    assert a.evaluations == b.evaluations
    assert a.figures == b.figures
    assert a.rollouts == b.rollouts
    assert a.phases == b.phases
    last = max(b.checkpoints)
    assert a.checkpoints[last] == b.checkpoints[last]


@pytest.fixture(scope="module")
def undisturbed(base: Path, document: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = {}
    for name, changes in KINDS.items():
        out[name] = tmp_path_factory.mktemp("runs") / "plain"
        attempt = Attempt(run=out[name], number=1, files=base, resume=False, stop=lambda: False)
        assert run_attempt(document(**changes), attempt) == ExitCode.FINISHED, story_of(out[name]).last_message
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_configuration_gives_the_same_bits(
    kind: str, run, document, undisturbed, base, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    assert run(document(**KINDS[kind]), tmp_path / "again") == ExitCode.FINISHED
    same(story_of(tmp_path / "again"), story_of(undisturbed[kind]))


@pytest.mark.parametrize("kind", ANYWHERE)
def test_killed_after_any_event_it_resumes_to_the_same_bits(
    kind: str, run, document, undisturbed, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    expected = story_of(undisturbed[kind])
    total = 0

    def count(event: Any) -> None:
        nonlocal total
        total += 1

    run(document(**KINDS[kind]), tmp_path / "warm")
    run(document(**KINDS[kind]), tmp_path / "count", echo=count)
    for after in range(3, total, max(1, total // 6)):
        folder = tmp_path / str(after)
        with pytest.raises(Killed):
            run(document(**KINDS[kind]), folder, echo=killer(after))
        assert run(document(**KINDS[kind]), folder, resume=True) == ExitCode.FINISHED
        same(story_of(folder), expected)


@pytest.mark.parametrize("kind", ANYWHERE)
def test_stopped_at_any_question_it_saves_and_resumes_to_the_same_bits(
    kind: str, run, document, undisturbed, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    expected = story_of(undisturbed[kind])
    asked = 0

    def never() -> bool:
        nonlocal asked
        asked += 1
        return False

    run(document(**KINDS[kind]), tmp_path / "warm")
    run(document(**KINDS[kind]), tmp_path / "count", stop=never)
    for at in range(1, asked, max(1, asked // 5)):
        folder, count = tmp_path / str(at), iter(range(10**6))
        code = run(document(**KINDS[kind]), folder, stop=lambda count=count, at=at: next(count) >= at)
        assert code == ExitCode.STOPPED
        assert run(document(**KINDS[kind]), folder, resume=True) == ExitCode.FINISHED
        same(story_of(folder), expected)


def test_killed_while_a_checkpoint_is_written_the_older_one_serves(
    run, document, undisturbed, tmp_path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    real, calls = os.replace, []

    def replace(source: Any, target: Any) -> None:
        if "it-00000004" in str(target):
            calls.append(target)
            raise Killed
        real(source, target)

    monkeypatch.setattr(checkpoint.os, "replace", replace)
    with pytest.raises(Killed):
        run(document(), tmp_path / "r")
    monkeypatch.undo()
    assert calls
    assert run(document(), tmp_path / "r", resume=True) == ExitCode.FINISHED
    rewinds = [e.event.iteration for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Mark)]
    assert rewinds == [2]
    same(story_of(tmp_path / "r"), story_of(undisturbed["grpo"]))


def test_killed_before_any_checkpoint_it_starts_again(run, document, undisturbed, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Killed):
        run(document(), tmp_path / "r", echo=killer(8))
    assert run(document(), tmp_path / "r", resume=True) == ExitCode.FINISHED
    assert [e.event.iteration for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Mark)] == [-1]
    same(story_of(tmp_path / "r"), story_of(undisturbed["grpo"]))


def test_a_damaged_checkpoint_is_refused_by_name(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Killed):
        run(document(), tmp_path / "r", echo=killer(30))
    newest = checkpoint_files.newest_checkpoint(tmp_path / "r")
    assert newest is not None
    path = newest / "policies/policy/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert run(document(), tmp_path / "r", resume=True) == ExitCode.STORAGE
    assert "model.safetensors" in story_of(tmp_path / "r").last_message


def test_sequence_numbers_have_no_gaps(undisturbed: dict[str, Path]) -> None:
    for folder in undisturbed.values():
        assert [e.seq for e in events_of(folder)] == list(range(1, len(events_of(folder)) + 1))


def test_the_other_seed_gives_other_rollouts(run, document, undisturbed, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run(document(seed=1), tmp_path / "r")
    assert story_of(tmp_path / "r").rollouts != story_of(undisturbed["grpo"]).rollouts
