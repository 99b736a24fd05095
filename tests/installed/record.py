"""What a run left in the database, in a form in which two runs can be compared: everything but times and identities."""

from __future__ import annotations

from typing import Any

from webapp.evals.models import Evaluation
from webapp.metrics.selectors import axes_at, load_series, series_of
from webapp.rollouts.models import RolloutGroup, RolloutPart
from webapp.runs.models import Run
from webapp.runs.selectors import phase_bands

TIMES = ("step_time", "time/")
# Evaluations of weights that the storage knows are reused, so what they cost depends on who came first.
UNEQUAL_AXES = ("device_seconds", "evaluation_tokens")
ALL_POINTS = 1_000_000


def record_of(run: Run) -> dict[str, Any]:
    """Series, axes, evaluations, the rollouts' index, phases and the final weights, as JSON."""
    keys = [key for key in series_of(run).values_list("key", flat=True) if not key.startswith(TIMES)]
    return {
        "series": {
            one.key: [one.iteration, one.y, [list(flag) for flag in one.nonfinite]]
            for one in load_series(run, keys, max_points=ALL_POINTS)
        },
        "axes": {
            str(iteration): {name: value for name, value in row.items() if name not in UNEQUAL_AXES}
            for iteration, row in sorted(axes_at(run).items())
        },
        "evaluations": [
            [one.iteration, one.name, one.set.uid, one.weights_hash, one.counts, one.answers, one.mean_length]
            for one in Evaluation.objects.filter(run=run, retired=False)
            .select_related("set")
            .order_by("iteration", "name")
        ],
        "rollouts": [
            list(row)
            for row in RolloutGroup.objects.filter(run=run, part__retired=False)
            .order_by("iteration", "first_row")
            .values_list("iteration", "uid", "n", "c", "first_row", "mean_reward")
        ],
        "rollout_files": [
            list(row)
            for row in RolloutPart.objects.filter(run=run, retired=False)
            .order_by("iteration")
            .values_list("iteration", "rows")
        ],
        "phases": [[band.name, band.begin, band.end] for band in phase_bands(run)],
        "final": list(run.checkpoints.filter(final=True, retired=False).values_list("iteration", "weights_hash")),
    }
