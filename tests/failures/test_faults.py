"""Wrong configurations, methods that raise, and losses that are no numbers: refused or ended, and said in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cast
from tests.failures.conftest import Lab, rl
from trainer.methods import FILES_VARIABLE, all_methods
from webapp.launch.services import InvalidConfig, launch_run
from webapp.metrics.selectors import load_series
from webapp.runs.models import Attempt, Run
from webapp.runs.selectors import log_tail


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "expected a JSON object, found list"),
        ({"kind": "dance"}, "kind: found 'dance'"),
        (rl(optimiser={}), "did you mean 'optimizer'?"),
        (rl(budget={"iterations": 0}), "budget.iterations"),
        (rl(optimizer={"learning_rate": float("nan")}), "optimizer.learning_rate"),
        (rl(task={"name": "mod_chian"}), "did you mean 'mod_chain'?"),
        (rl(methods=[{"slug": "sps", "params": {"alhpa": 1}}]), "did you mean 'alpha'?"),
        (rl(policy={}), "policy"),
        (rl(algorithm={"num_generations": 1}), "algorithm.num_generations"),
    ],
)
def test_a_malformed_configuration_is_refused_before_anything_is_made(cast: Cast, document: Any, text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        launch_run(cast.project, cast["member"], document)
    assert text in str(refused.value)
    assert not Run.objects.exists()
    assert not Attempt.objects.exists()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(FILES_VARIABLE, str(Path(__file__).with_name("faulty_method.py")))
    all_methods.cache_clear()
    yield
    monkeypatch.undo()
    all_methods.cache_clear()


def broken(fault: str) -> dict[str, Any]:
    return rl(methods=[{"slug": "faulty", "params": {"fault": fault, "at": 6}}])


@pytest.mark.slow
@pytest.mark.usefixtures("faulty")
def test_a_method_that_raises_is_named_with_the_line(lab: Lab, tmp_path: Path) -> None:
    run = lab.supervise(lab.launch(broken("raise"), tmp_path))
    assert (run.state, run.attempts.get().exit_code) == ("failed", 5), run.message
    assert "Faulty (slot 'advantage') raised RuntimeError: the moon is in the wrong place" in run.message
    assert "faulty_method.py:" in run.message
    assert any("Traceback" in line["message"] for line in log_tail(run))
    [reward] = load_series(run, ["reward"])
    assert reward.iteration == [1, 2, 3, 4, 5]
    assert run.checkpoints.get(removed_at=None).iteration == 4


@pytest.mark.slow
@pytest.mark.usefixtures("faulty")
def test_a_loss_that_is_no_number_is_shown_and_ends_the_run(lab: Lab, tmp_path: Path) -> None:
    run = lab.supervise(lab.launch(broken("nan"), tmp_path))
    assert (run.state, run.attempts.get().exit_code) == ("failed", 4), run.message
    assert "NaN" in run.message
    [loss] = load_series(run, ["loss"])
    assert (loss.iteration[-1], loss.y[-1], loss.nonfinite) == (6, None, [(5, "nan")])
    assert run.checkpoints.get(removed_at=None).iteration == 4
