"""A worker that is told to leave starts no further run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Cast
from tests.webapp.making import document
from webapp.launch.services import launch_run
from webapp.launch.shutdown import leaving
from webapp.launch.tasks import supervise
from webapp.runs.models import Run


@pytest.fixture
def _leaving() -> Iterator[None]:
    leaving.set()
    yield
    leaving.clear()


@pytest.mark.usefixtures("_leaving")
def test_a_queued_run_stays_queued(cast: Cast) -> None:
    run = launch_run(cast.project, cast["member"], document())
    supervise(run.attempts.get().pk)
    found = Run.objects.get(pk=run.pk)
    assert found.state == "queued"
    assert not found.attempts.get().worker
