"""What the project has measured already, for the trainer: the base's evaluations need not be repeated by each run."""

import logging
from collections.abc import Sequence
from pathlib import Path

from django.db.models import Q
from pydantic import ValidationError

from trainer.contract.events import Axes, Evaluation, Source
from trainer.contract.known import KNOWN_FILE, KnownEvaluation, write_known
from webapp.checkpoints.models import Checkpoint
from webapp.evals.models import Evaluation as StoredEvaluation
from webapp.evals.selectors import event_of
from webapp.runs.models import Run

log = logging.getLogger(__name__)
MOST = 8


def known_evaluations(run: Run) -> list[KnownEvaluation]:
    """Evaluations of the weights that the run starts from, on sets like its own, newest first. They are suggestions: the
    trainer checks weights, set, seed and engine, and recomputes each fingerprint.
    """
    base = run.base_checkpoint
    settings = run.config.get("evaluation") or {}
    if not base:
        return []
    # Weights that other runs found under this address, and those that the checkpoint's own row names.
    named = Checkpoint.objects.filter(Q(uri=base) | Q(policy_uri=base), project_id=run.project_id)
    hashes = set(named.values_list("weights_hash", flat=True))
    alike = Run.objects.filter(project_id=run.project_id, config__policy__checkpoint=base)
    at_start = StoredEvaluation.objects.filter(run__in=alike, iteration=0, policy="policy")
    hashes |= set(at_start.values_list("weights_hash", flat=True).distinct())
    rows = (
        StoredEvaluation.objects.filter(
            run__project_id=run.project_id,
            weights_hash__in=hashes,
            policy="policy",
            reused=False,
            seed=settings.get("seed"),
            set__task=run.task,
            set__n__in=[settings.get("samples"), settings.get("final_samples")],
        )
        .exclude(fingerprint="")
        .select_related("set")
        .order_by("-pk")[:MOST]
    )
    return [entry for row in rows if (entry := _entry(row)) is not None]


def _entry(row: StoredEvaluation) -> KnownEvaluation | None:
    source = Source(run=row.run_id, attempt=row.attempt, iteration=row.iteration)  # type: ignore[attr-defined]
    try:
        event = Evaluation(axes=Axes(iteration=row.iteration), **event_of(row))
    except ValidationError as error:
        log.warning("Evaluation %s does not add up and is not handed on: %s", row.pk, error)
        return None
    return KnownEvaluation(source=source, evaluation=event)


def hand_over(entries: Sequence[KnownEvaluation], attempt: Path) -> None:
    """Puts them into the attempt's folder, where there are any."""
    if entries:
        write_known(attempt / KNOWN_FILE, entries)
