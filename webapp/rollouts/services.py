"""Writes of the index. The caller holds the run's lock and gives the live number."""

from collections.abc import Mapping
from typing import Any

from webapp.rollouts.models import RolloutGroup, RolloutPart
from webapp.runs.storage import run_uri


def store_part(*, run_id: str, attempt: int, event: Mapping[str, Any], seq: int) -> RolloutPart:
    """Stores the contract's rollouts event (as a dictionary). Idempotent on (attempt, uri). Raises BadUri."""
    iteration = event["axes"]["iteration"]
    part, _made = RolloutPart.objects.update_or_create(
        run_id=run_id,
        attempt=attempt,
        uri=run_uri(run_id, event["uri"]),
        defaults={"iteration": iteration, "rows": event["rows"], "live_seq": seq},
    )
    part.groups.all().delete()
    RolloutGroup.objects.bulk_create(
        [
            RolloutGroup(
                part=part,
                run_id=run_id,
                iteration=iteration,
                **{name: group[name] for name in ("uid", "text", "answer", "n", "c", "first_row", "mean_reward")},
            )
            for group in event["groups"]
        ],
        batch_size=500,
    )
    return part


def rewind(*, run_id: str, attempt: int, iteration: int, seq: int) -> None:
    """Hides the rollouts of earlier attempts after `iteration`."""
    RolloutPart.objects.filter(run_id=run_id, attempt__lt=attempt, iteration__gt=iteration, retired=False).update(
        retired=True, live_seq=seq
    )
