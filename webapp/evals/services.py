"""Writes of evaluations. The caller holds the run's lock and gives the live number."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from webapp.evals.models import Evaluation, EvaluationSet
from webapp.runs.models import Run


class UnknownSet(ValueError):
    """An evaluation names a set that was never sent."""


def store_evaluation(*, run: Run, attempt: int, event: Mapping[str, Any], time: datetime, seq: int) -> Evaluation:
    """Stores the contract's evaluation event (as a dictionary). Idempotent on (attempt, iteration, name, policy,
    set).
    """
    problems = event["problems"]
    counts = {
        "uid": [p["uid"] for p in problems],
        "n": [p["n"] for p in problems],
        "c": [p["c"] for p in problems],
        "truncated": [p["truncated"] for p in problems],
        "forms": [p["correct_forms"] for p in problems],
    }
    answers = [[[a["key"], a["count"], a["correct"]] for a in p["answers"]] for p in problems]
    source = event["reused"] or {"run": "", "attempt": 0, "iteration": 0}
    evaluation, _made = Evaluation.objects.update_or_create(
        run=run,
        attempt=attempt,
        iteration=event["axes"]["iteration"],
        name=event["name"][:60],
        policy=event["policy"][:60],
        set=_set_of(run, event),
        defaults={
            "weights_hash": event["weights_hash"],
            "seed": event["seed"],
            "engine": event["engine"][:120],
            "tokens": event["tokens"],
            "fingerprint": event["fingerprint"][:64],
            "reused": event["reused"] is not None,
            "source_run": source["run"][:40],
            "source_attempt": source["attempt"],
            "source_iteration": source["iteration"],
            "counts": counts,
            "answers": answers,
            "mean_length": event["mean_length"],
            "token_entropy": event["token_entropy"],
            "created_at": time,
            "live_seq": seq,
        },
    )
    return evaluation


def _set_of(run: Run, event: Mapping[str, Any]) -> EvaluationSet:
    sent = event["set"]
    if sent is not None:
        found, _made = EvaluationSet.objects.get_or_create(
            project_id=run.project_id,
            uid=sent["id"],
            defaults={name: sent[name] for name in ("task", "split", "checker_version", "sampler", "n", "problems")},
        )
        return found
    known = EvaluationSet.objects.filter(project_id=run.project_id, uid=event["set_id"]).first()
    if known is None:
        raise UnknownSet(
            f"the evaluation {event['name']!r} names the set {event['set_id']!r}, whose problems were not sent; "
            "the first evaluation of an attempt must carry its set"
        )
    return known


def rewind(*, run_id: str, attempt: int, iteration: int, seq: int) -> None:
    """Hides the evaluations of earlier attempts after `iteration`."""
    Evaluation.objects.filter(run_id=run_id, attempt__lt=attempt, iteration__gt=iteration, retired=False).update(
        retired=True, live_seq=seq
    )
