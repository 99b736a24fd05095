"""The inverse-RL phase on the rollouts of the iterations before it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.core.types import Group, Node, Prompt, Span, Trajectory
from trainer.rollout.packed import packed, unpacked
from trainer.testing.replay import events_of, story_of

NOTHING = {"every": 0, "problems": 0, "final_problems": 0}


def test_the_buffered_phase_samples_nothing_and_trains_what_was_sampled(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    params: dict[str, Any] = {
        "k_rl": 2,
        "k_irl": 2,
        "prompts": "all",
        "fresh": False,
        "stop_kl": 10.0,
        "irl_kl_coef": 0.0,
    }
    made = document(
        methods=[{"slug": "sps", "params": params}],
        budget={"iterations": 4},
        evaluation=NOTHING,
        checkpoints={"every": 0},
    )
    assert run(made, tmp_path / "r") == ExitCode.FINISHED, story_of(tmp_path / "r").last_message
    found = story_of(tmp_path / "r")
    sampled = [found.axes[i]["sampled_tokens"] for i in range(1, 5)]
    assert sampled[1] == sampled[2] == sampled[3] > sampled[0]
    assert found.axes[4]["rollouts"] == found.axes[2]["rollouts"] == 32
    trained = [found.axes[i]["trained_tokens"] for i in range(1, 5)]
    assert trained == sorted(set(trained))
    assert found.axes[4]["discarded_tokens"] == 0
    assert set(found.rollouts) == {1, 2}
    for i in (3, 4):
        assert found.scalars[i, "sps/demo_distinct"] >= 1  # type: ignore[operator]
        assert (i, "accuracy/train") not in found.scalars
        assert (i, "sampling/kl/k1") not in found.scalars
    phases = Counter(e.event.name for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Phase))
    assert phases == {"rl": 1, "irl": 1}


def test_packed_groups_are_the_same_groups() -> None:
    spans = [
        Span((1, 2), "prompt", origin="env"),
        Span((3,), "answer", sampled=True, trained=True, logprobs=(-0.1234567890123456,), policy_version=7),
    ]
    trajectory = Trajectory([Node(0, spans)], "u", 3, "eos", "x", {"accuracy": None}, 0.1, 0.0, "4", "4", "exact")
    group = Group(Prompt("u", (), None, "t", {"chance": 0.1, "terms": [[1, 2]]}), [trajectory], "u:0", 2, 0.25)
    assert unpacked(packed([group])) == [group]
