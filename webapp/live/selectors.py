"""What became visible of runs after a live number. Streams never call this, the broadcaster does for them."""

from collections.abc import Collection
from typing import Any

from webapp.checkpoints.models import Checkpoint
from webapp.evals.models import Evaluation
from webapp.metrics.selectors import delta as metrics_delta
from webapp.rollouts.models import RolloutPart
from webapp.runs.models import EventRow, Run
from webapp.runs.selectors import DRAWN, event_json, run_json

EVENT_LIMIT = 2000


def live_numbers(run_ids: Collection[str]) -> dict[str, int]:
    """The newest live number of each of the runs, in one query. Deleted runs are missing."""
    return dict(Run.objects.filter(pk__in=run_ids).values_list("pk", "live_seq"))


def delta(run_id: str, since: int) -> dict[str, Any] | None:
    """Everything of a run that is newer than `since`, None when the run is gone.

        {"cursor": 17, "run": {state and progress}, "axes": [...], "series": [...], "phases": [...], "marks": [...],
         "logs": [...], "drawn": [{"kind": "histogram", "key": ..., "iteration": ...}], "evaluations": [{"id", "name",
         "iteration"}], "rollouts": [iterations], "checkpoints": true, "rewind": 12, "reload": true}

    Keys without content are left out. `rewind` is the iteration after which everything earlier is to be forgotten;
    `reload` says that too much is new to send, and the page should ask for its series again.
    """
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return None
    # The run's row was read first: what commits after it has a larger number, and comes with the next delta alone.
    newest = run.live_seq
    out: dict[str, Any] = {"cursor": newest, "run": run_json(run)}
    points = metrics_delta(run_id, since, newest)
    if points is None:
        out["reload"] = True
    else:
        out |= {name: rows for name, rows in points.items() if rows}
    out |= _events(run_id, since, newest)
    for name, rows in (
        ("evaluations", _evaluations(run_id, since, newest)),
        ("rollouts", _rollouts(run_id, since, newest)),
        ("checkpoints", Checkpoint.objects.filter(run_id=run_id, live_seq__gt=since, live_seq__lte=newest).exists()),
    ):
        if rows:
            out[name] = rows
    return out


def _events(run_id: str, since: int, newest: int) -> dict[str, Any]:
    rows = EventRow.objects.filter(run_id=run_id, retired=False, live_seq__gt=since, live_seq__lte=newest)
    out: dict[str, Any] = {}
    for row in reversed(rows.order_by("-pk")[:EVENT_LIMIT]):
        if row.kind == "phase":
            out.setdefault("phases", []).append(event_json(row))
        elif row.kind == "log":
            out.setdefault("logs", []).append(event_json(row))
        elif row.kind == "mark":
            out.setdefault("marks", []).append(event_json(row))
            if row.key == "rewind":
                out["rewind"] = min(row.iteration or 0, out.get("rewind", row.iteration or 0))
        elif row.kind in DRAWN:
            out.setdefault("drawn", []).append({"kind": row.kind, "key": row.key, "iteration": row.iteration})
    return out


def _evaluations(run_id: str, since: int, newest: int) -> list[dict[str, Any]]:
    rows = Evaluation.objects.filter(run_id=run_id, retired=False, live_seq__gt=since, live_seq__lte=newest)
    found = rows.order_by("iteration", "pk").values_list("pk", "name", "iteration")
    return [{"id": pk, "name": name, "iteration": at} for pk, name, at in found]


def _rollouts(run_id: str, since: int, newest: int) -> list[int]:
    rows = RolloutPart.objects.filter(run_id=run_id, retired=False, live_seq__gt=since, live_seq__lte=newest)
    return list(rows.order_by("iteration").values_list("iteration", flat=True).distinct())
