"""Wrong configurations, methods that raise, and losses that are no numbers: refused or ended, and said in words."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from tests.conftest import Cast
from tests.failures.conftest import Lab
from tests.installed.documents import rl
from tests.webapp.launch.test_secrets import everything_in_the_database
from trainer.methods import FILES_VARIABLE, all_methods
from webapp.launch.services import InvalidConfig, launch_run
from webapp.metrics.selectors import load_series
from webapp.rollouts.selectors import rows_of
from webapp.runs.models import Attempt, Run
from webapp.runs.selectors import log_tail
from webapp.runs.storage import attempt_uri, path_of
from webapp.teams.secret_services import set_secret


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


@pytest.mark.slow
@pytest.mark.usefixtures("faulty")
def test_a_method_that_tells_its_secret_to_everyone_is_not_heard(lab: Lab, tmp_path: Path) -> None:
    """In configuration, environment, log, error text, tables and rollouts of a real trainer; then the whole data folder and
    the whole database are searched."""
    token = "tok/en+with=every&thing 42"
    set_secret(team=lab.cast.team, name="HF_TOKEN", value=token, user=None)
    run = lab.supervise(lab.launch({**broken("leak"), "secrets": ["HF_TOKEN"], "save_rollouts_every": 1}, tmp_path))
    assert (run.state, run.attempts.get().exit_code) == ("failed", 5), run.message
    assert "raised RuntimeError: cannot log in with [secret HF_TOKEN]" in run.message
    logged = [line["message"] for line in log_tail(run)]
    assert logged.count("[secret HF_TOKEN]") == 2  # as it is, and as a URL writes it
    [part] = run.rollout_parts.filter(iteration=5)
    rows = rows_of(part.groups.first())
    assert {(row["text"], row["answer"]) for row in rows} == {("I know [secret HF_TOKEN]", "[secret HF_TOKEN]")}
    written = path_of(attempt_uri(run.pk, 1, "log.txt")).read_text()
    assert "[secret HF_TOKEN]" in written  # printed through Python
    assert "from C: " + "*" * len(token) in written  # past it

    forms = {token, quote(token), token[:-6], base64.b64encode(f"user:{token}".encode()).decode()[8:-4]}
    searched = 0
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = repr(pq.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else path.read_bytes()
            assert not [form for form in forms if form.encode() in content], path
            searched += 1
    assert searched > 10
    database = everything_in_the_database()
    assert not [form for form in forms if form in database]


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
