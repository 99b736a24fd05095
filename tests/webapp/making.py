"""Objects for tests of the web application: runs, claims, evaluations, events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainer.contract import events as ev
from webapp.accounts.models import User
from webapp.evals.models import Evaluation, EvaluationSet
from webapp.launch import ingest
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.services import Claim, Place, claim, create_run

TIME = "2026-01-01T00:00:00Z"


def document(**changes: Any) -> dict[str, Any]:
    """A launch document for a tiny fresh model; `changes` replace whole sections."""
    return {
        "kind": "rl",
        "policy": {
            "architecture": {"hidden_size": 16, "layers": 1, "heads": 2, "kv_heads": 2, "intermediate_size": 16}
        },
        "task": {"name": "parity", "problems": 40},
        "budget": {"iterations": 3},
        **changes,
    }


def make_run(project: Project, *, user: User | None = None, **fields: Any) -> Run:
    """A queued run."""
    config = fields.pop("config", {"kind": "rl", "seed": 0, "policy": {"checkpoint": "base"}})
    return create_run(project=project, name=fields.pop("name", "a run"), kind="rl", config=config, user=user, **fields)


def claimed(run: Run, *, worker: str = "w") -> Claim:
    """The claim of the run's current attempt."""
    held = claim(run.attempts.get(number=run.attempt_number).pk, place=Place(worker))
    assert held is not None
    return held


def lines(run_id: str, events: Iterable[ev.Event], *, attempt: int = 1, first_seq: int = 1) -> bytes:
    """events.jsonl as the trainer would write it."""
    out = []
    for seq, event in enumerate(events, start=first_seq):
        body = {
            "run": run_id, "attempt": attempt, "seq": seq, "time": TIME, "monotonic": float(seq),
            "event": event.model_dump(mode="json"),
        }  # fmt: skip
        ev.parse_line(json.dumps(body))
        out.append(json.dumps(body) + "\n")
    return "".join(out).encode()


def send(held: Claim, events: Iterable[ev.Event]) -> Run:
    """Stores events as the claim's attempt would have sent them next."""
    attempt = Run.objects.get(pk=held.run_id).attempts.get(number=held.number)
    seq = attempt.last_seq.get("trainer", 0) + 1
    data = lines(held.run_id, events, attempt=held.number, first_seq=seq)
    return ingest.store(held, ingest.parse(data, attempt.byte_offset))


def scalars(iteration: int, **values: float) -> ev.Scalars:
    """Named numbers at an iteration, non-finite ones too."""
    axes = ev.Axes(iteration=iteration, optimizer_step=iteration, sampled_tokens=100 * iteration)
    return ev.Scalars(axes=axes, **ev.pack_numbers(values))


def evaluation_event(
    iteration: int, counts: Sequence[tuple[int, int]], *, name: str = "validation", weights: str = "w", **fields: Any
) -> ev.Evaluation:
    """An evaluation with (n, c) of each problem; correct samples are all of one form unless `forms` says otherwise."""
    forms = fields.pop("forms", [[c] if c else [] for _, c in counts])
    chance = fields.pop("chance", 0.01)
    settings = ev.SamplerSettings(temperature=1.0, max_new_tokens=8)
    problems = [ev.SetProblem(uid=f"p{i}", text=f"problem {i}", chance=chance) for i in range(len(counts))]
    split = "test" if name == "test" else "validation"
    the_set = ev.EvaluationSet(
        id=f"{name}-{len(counts)}", task="parity", split=split, checker_version="1", sampler=settings,
        n=counts[0][0], problems=problems,
    )  # fmt: skip
    results = [ev.ProblemResult(uid=f"p{i}", n=n, c=c, correct_forms=forms[i]) for i, (n, c) in enumerate(counts)]
    return ev.Evaluation(
        axes=ev.Axes(iteration=iteration), name=name, set_id=the_set.id, set=the_set, weights_hash=weights,
        problems=results, **fields,
    )  # fmt: skip


def evaluation(run: Run, iteration: int, counts: Sequence[tuple[int, int]], **fields: Any) -> Evaluation:
    """A stored evaluation of a run that nobody supervises."""
    from django.utils.dateparse import parse_datetime

    from webapp.evals.services import store_evaluation

    event: Mapping[str, Any] = evaluation_event(iteration, counts, **fields).model_dump(mode="json")
    time = parse_datetime(TIME)
    assert time is not None
    stored = store_evaluation(run=run, attempt=1, event=event, time=time, seq=run.live_seq + 1)
    assert isinstance(stored.set, EvaluationSet)
    return stored
