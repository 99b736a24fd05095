"""Server time of the run page, its charts and the live deltas for a run with 200 metrics × 10,000 points.

Makes a database of its own in a temporary folder (SQLite), or fills the one of UNSQUEEZE_DATABASE_URL; the run is
removed at the end. Each figure is the best of the repeats, in milliseconds of wall time and of process time: on a
shared machine the latter is the fair one. One JSON line each.

    python bench/run_page.py
    python bench/run_page.py --metrics 20 --points 1000 --repeats 3
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
BATCH = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=int, default=200)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unsqueeze-bench-") as folder:
        os.environ["UNSQUEEZE_DATA"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        _prepare()
        measure(options)


def _prepare() -> None:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def measure(options: argparse.Namespace) -> None:
    from django.db import connection
    from django.test import Client
    from django.test.utils import setup_test_environment
    from django.urls import reverse

    from trainer.contract.charts import BASE_CHARTS
    from webapp.live.selectors import delta
    from webapp.metrics.selectors import load_series, series_of

    setup_test_environment()
    run, user = fill(options.metrics, options.points)
    try:
        report = Report(options.repeats)
        report("database", vendor=connection.vendor, metrics=options.metrics, points=options.points)
        report.time("newest values of all metrics", lambda: list(series_of(run)))
        report.time("one series", lambda: load_series(run, ["reward"]))
        report.time("three series on tokens", lambda: load_series(run, KEYS[:3], axis="sampled_tokens"))
        report.time("live delta of one iteration", lambda: delta(run.pk, run.live_seq - 1))
        client = Client()
        client.force_login(user)
        for name in ("overview", "squeezing"):
            url = reverse(f"runpage:{name}", args=run.url_args)
            report.time(f"page {name}", lambda url=url: answer(client, url))
        for chart in BASE_CHARTS[:3]:
            url = reverse("runpage:chart", args=(*run.url_args, chart.slug))
            report.time(f"chart {chart.slug} ({len(chart.series)} series)", lambda url=url: answer(client, url))
    finally:
        run.project.team.delete()
        user.delete()


def answer(client: Any, url: str) -> None:
    response = client.get(url)
    if response.status_code != 200:
        raise SystemExit(f"{url} answered {response.status_code}; expected 200")


class Report:
    """Prints JSON lines."""

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats

    def __call__(self, what: str, **fields: Any) -> None:
        print(json.dumps({"what": what, **fields}), flush=True)

    def time(self, what: str, work: Callable[[], Any]) -> None:
        work()
        wall, cpu = math.inf, math.inf
        for _ in range(self.repeats):
            began, used = time.perf_counter(), time.process_time()
            work()
            wall, cpu = min(wall, time.perf_counter() - began), min(cpu, time.process_time() - used)
        self(what, wall_ms=round(wall * 1000, 1), cpu_ms=round(cpu * 1000, 1))


def _keys() -> list[str]:
    from trainer.contract.charts import BASE_CHARTS

    return [key for chart in BASE_CHARTS for key in chart.series]


KEYS = _keys()


def fill(metrics: int, points: int) -> tuple[Any, Any]:
    """A run with that many series and points each, three hundred evaluated problems at eleven iterations, and its
    owner.
    """
    from django.db import connection, transaction

    from tests.webapp.making import evaluation, make_run
    from webapp.accounts.models import User
    from webapp.metrics.models import Series
    from webapp.projects.services import create_project
    from webapp.teams.services import create_team

    user = User.objects.create_user("bench@example.org", "bench")
    project = create_project(team=create_team(slug="bench", name="Bench", owner=user), slug="bench", name="Bench")
    run = make_run(project, user=user)
    names = [*KEYS, *(f"extra/{i}" for i in range(metrics))][:metrics]
    last = {"last_iteration": points - 1, "last_attempt": 1, "last_value": 0.5, "live_seq": points}
    series = Series.objects.bulk_create([Series(run=run, key=name, **last) for name in names])
    insert = "INSERT INTO metrics_point (series_id, iteration, attempt, value, nonfinite, live_seq) VALUES {}"
    rows: list[tuple[Any, ...]] = []
    # Iteration by iteration, as a trainer sends them: the layout on disk is part of what is measured.
    with transaction.atomic(), connection.cursor() as cursor:
        for iteration in range(points):
            value = math.sin(iteration / 100) + iteration * 7919 % 101 / 1000
            rows.extend((s.pk, iteration, 1, value, 0, iteration + 1) for s in series)
            if len(rows) >= BATCH or iteration == points - 1:
                cursor.executemany(insert.format("(%s, %s, %s, %s, %s, %s)"), rows)
                rows.clear()
        axes = (
            "INSERT INTO metrics_axisrow (run_id, iteration, attempt, optimizer_step, phase, policy_version, prompts, rollouts, "
            "sampled_tokens, trained_tokens, discarded_tokens, evaluation_tokens, device_seconds, time, live_seq) "
            "VALUES (%s, %s, 1, %s, 'rl', %s, 0, 0, %s, 0, 0, 0, %s, %s, %s)"
        )
        now = run.created_at
        cursor.executemany(axes, [(run.pk, i, i, i, 1000 * i, float(i), now, i + 1) for i in range(points)])
    for iteration in range(11):
        evaluation(run, iteration * points // 11, [(64, (i * 7 + iteration) % 40) for i in range(300)])
    type(run).objects.filter(pk=run.pk).update(
        live_seq=points, state="running", iteration=points - 1, total_iterations=points
    )
    return type(run).objects.select_related("project__team").get(pk=run.pk), user


if __name__ == "__main__":
    main()
