"""The checkpoints that a launch form offers, each with where it comes from."""

from dataclasses import dataclass

from trainer.contract.config import Problem
from webapp.checkpoints.models import Checkpoint, RunInput
from webapp.checkpoints.selectors import bases_for, checkpoints_in
from webapp.projects.models import Project

SHOWN = 60


@dataclass(frozen=True)
class Base:
    """`uri` is what the configuration holds. `lineage` reads from the newest step to the oldest."""

    uri: str
    name: str
    lineage: str
    checkpoint: Checkpoint | None


def bases_in(project: Project, *, chosen: str = "") -> list[Base]:
    """Imported checkpoints first, then final ones of runs, newest first; the chosen one is always among them."""
    rows = list(bases_for(project)[:SHOWN])
    if chosen and all(row.policy_uri != chosen for row in rows):
        rows += list(checkpoints_in(project).filter(policy_uri=chosen)[:1])
    inputs = RunInput.objects.filter(run__project=project, role="base").values_list("run_id", "checkpoint_id")
    parents = dict(inputs)
    wanted = set(parents.values())
    known = {row.pk: row for row in Checkpoint.objects.filter(pk__in=wanted).select_related("run")} if wanted else {}
    rows.sort(key=lambda row: row.run_id is not None)  # type: ignore[attr-defined]
    return [Base(row.policy_uri, row.name, _lineage(row, parents, known), row) for row in rows]


def _lineage(checkpoint: Checkpoint, parents: dict[str, int], known: dict[int, Checkpoint]) -> str:
    steps: list[str] = []
    here: Checkpoint | None = checkpoint
    while here is not None and len(steps) < 6:
        run = here.run
        if run is None:
            steps.append("imported" if here is checkpoint else f"{here.name} (imported)")
            break
        steps.append(f"iteration {here.iteration} of {run.name}")
        parent = parents.get(run.pk)
        if parent is None:
            steps.append(
                "fresh weights" if (run.config.get("policy") or {}).get("architecture") else "an unknown folder"
            )
        here = known.get(parent) if parent is not None else None
    return " ← ".join(steps)


def check_base(project: Project, uri: str) -> list[Problem]:
    """What is wrong with a base: only checkpoints of the project may be read, and only while their files are there."""
    if not uri:
        return [Problem("policy.checkpoint", "choose a base checkpoint, or a new architecture for fine-tuning")]
    found = Checkpoint.objects.filter(project=project, policy_uri=uri).order_by("removed_at").first()
    if found is None:
        text = f"found {uri!r}, which is no checkpoint of this project; import it first, or choose one of the list"
    elif found.removed_at is not None:
        text = "the files of this checkpoint were removed by retention; choose another one"
    elif found.stored_at is None:
        text = f"the files of this checkpoint are still on {found.stored_on} only; wait until they are stored"
    elif found.damage:
        text = f"this checkpoint is damaged: {found.damage}; choose another one"
    elif found.retired:
        text = "a resumed attempt has gone back before this checkpoint; choose another one"
    else:
        return []
    return [Problem("policy.checkpoint", text)]
