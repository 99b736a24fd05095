"""PIPO: the card's numbers, its edges, and the second update in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.contract.config import InvalidConfig
from trainer.contract.exit_codes import ExitCode
from trainer.methods import resolve
from trainer.objectives.surrogate import clipped
from trainer.testing.replay import story_of
from trainer.updates.retrospective import attribution, damped, progress, restored

HISTORY = [0.40, 0.42, 0.44, 0.46]
ONE_RIGHT, ONE_WRONG = [1.5, -0.5, -0.5, -0.5], [0.5, 0.5, 0.5, -1.5]


@pytest.mark.parametrize(
    ("mean", "xi", "phi"), [(0.50, 2.711088, 2.711088), (0.38, -1.936492, -0.193649), (0.43, 0, 0)]
)
def test_progress_against_the_window(mean: float, xi: float, phi: float) -> None:
    found, expected, std = progress(mean, HISTORY)
    assert (expected, std) == (pytest.approx(0.43), pytest.approx(0.025820, abs=1e-6))
    assert found == pytest.approx(xi, abs=1e-5)
    assert damped(found, 0.1) == pytest.approx(phi, abs=1e-6)


def test_the_window_after_the_push() -> None:
    _, expected, std = progress(0.0, [*HISTORY, 0.50][-4:])
    assert (expected, std) == (pytest.approx(0.455), pytest.approx(0.034157, abs=1e-6))


def test_a_flat_history_is_no_division_by_zero() -> None:
    assert progress(0.4, [0.4] * 4)[0] == 0
    assert progress(0.402, [0.4] * 4)[0] == pytest.approx(2)
    assert progress(0.9, [0.4] * 4)[0] == 5
    assert progress(-9.0, HISTORY)[0] == -5


def test_steady_progress_is_a_trend_and_not_the_last_update() -> None:
    line = [0.1 * i for i in range(1, 9)]
    assert progress(0.9, line)[0] == pytest.approx(1.84, abs=0.005)
    assert progress(0.9, line, detrended=True)[0] == pytest.approx(0, abs=1e-6)
    assert progress(0.5, [*line[:-1], 0.85], detrended=True)[0] < -1


def attributed(advantages: list[float]) -> list[float]:
    found: list[float] = attribution(torch.tensor(advantages), ["a"] * len(advantages)).tolist()
    return found


def test_attributions_have_no_scale() -> None:
    assert attributed(ONE_RIGHT) == pytest.approx([2, *[-0.666667] * 3], abs=1e-5)
    assert attributed([10 * a for a in ONE_RIGHT]) == pytest.approx(attributed(ONE_RIGHT), abs=1e-5)
    assert attributed(ONE_WRONG) == pytest.approx([*[0.666667] * 3, -2], abs=1e-5)
    assert attributed([0.0] * 4) == [0.0] * 4


def kept(advantages: list[float]) -> dict[str, Any]:
    rows = len(advantages)
    return {
        "prefix": torch.ones(rows, 1, dtype=torch.long), "prefix_len": torch.ones(rows, dtype=torch.long),
        "ids": torch.ones(rows, 2, dtype=torch.long), "length": torch.full((rows,), 2), "mask": torch.ones(rows, 2),
        "reward": torch.zeros(rows), "groups": ["a"] * rows,
        "attribution": attribution(torch.tensor(advantages), ["a"] * rows), "columns": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("phi", "expected"), [(2.711088, [5.422177, *[-1.807392] * 3]), (-0.193649, [-0.387298, *[0.129099] * 3])]
)
def test_the_rewards_of_the_second_update(phi: float, expected: list[float]) -> None:
    batch = restored(kept(ONE_RIGHT), phi)
    assert batch.columns["advantage"][:, 0].tolist() == pytest.approx(expected, abs=1e-5)
    assert batch.columns["advantage"][:, 1].tolist() == batch.columns["advantage"][:, 0].tolist()
    assert restored(kept(ONE_RIGHT), 5.5).columns["advantage"][0, 0] == 10


def test_a_negative_reward_is_not_clipped_above() -> None:
    loss = clipped(torch.tensor(1.5), torch.tensor(-1.0), epsilon=0.2, epsilon_high=0.2)
    assert float(loss) == pytest.approx(1.5)


def test_the_second_update_comes_when_the_window_is_full(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked = document(
        methods=[{"slug": "pipo", "params": {"window": 3, "least": 2, "xi": "one"}}],
        algorithm={"preset": "grpo", "prompts_per_iteration": 4, "num_generations": 4},
        budget={"iterations": 4},
    )
    assert run(asked, tmp_path / "r") == ExitCode.FINISHED
    found = story_of(tmp_path / "r")
    assert [found.axes[i]["optimizer_step"] for i in (1, 2, 3, 4)] == [1, 2, 4, 6]
    assert (2, "pipo/xi") not in found.scalars
    assert found.scalars[3, "pipo/phi"] == 1
    assert (found.scalars[3, "pipo/retro_kl"] or 0) > 0
    assert found.scalars[3, "pipo/mu"] == pytest.approx(found.scalars[3, "reward"])


def test_what_it_cannot_look_back_on_is_refused(document) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidConfig, match="pipo: found a start after 9"):
        resolve(document(methods=[{"slug": "pipo", "params": {"least": 9}}]))
    with pytest.raises(InvalidConfig, match="when PIPO looks back"):
        resolve(document(methods=[{"slug": "pipo"}], sampling={"max_new_tokens": 4, "top_p": 0.9}))
