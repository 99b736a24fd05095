"""What an attempt needs before its trainer can start: where to go on from, and its base checkpoint on this host.

With a folder as the storage nothing has to be brought here, and the trainer itself verifies what it loads. With a
bucket the files are staged first, and compared with the manifest on the way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db import transaction
from django.utils import timezone

from webapp.checkpoints.manifests import Damaged
from webapp.checkpoints.selectors import chosen_for, resume_points
from webapp.checkpoints.services import mark_refused
from webapp.checkpoints.staging import stage
from webapp.runs import services as runs
from webapp.runs.models import Run
from webapp.runs.services import Claim
from webapp.runs.states import RunState
from webapp.runs.storage import is_local, run_uri


@dataclass(frozen=True)
class Inputs:
    """From the database; `resume` is empty for a run that starts, or starts again.

    `resume` holds URIs of checkpoints in the order in which they are tried. One that a person chose, or the newest when
    a person asked, stands alone: its refusal is for that person to see. Where the run goes on by itself, all stand here.
    """

    first: bool
    base: str
    resume: tuple[str, ...] = ()


@dataclass
class Ready:
    """The trainer's arguments; `refused` are the URIs of checkpoints that were refused while staging, with the reason, and
    `brought` those of the copies that must stay for as long as the trainer lives.
    """

    arguments: list[str] = field(default_factory=list)
    brought: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class NothingWhole(OSError):
    """Every checkpoint to go on from was refused; `refused` as in `Ready`."""

    def __init__(self, refused: dict[str, str]) -> None:
        super().__init__("; ".join(refused.values()))
        self.refused = refused


def inputs_of(run: Run, held: Claim) -> Inputs:
    """What the claim's attempt starts from."""
    base = run.base_checkpoint or ""
    if held.number == 1:
        return Inputs(True, base)
    chosen = chosen_for(run, held.number)
    points = [chosen] if chosen is not None else resume_points(run)
    if _asked_by_a_person(run, held.number):
        points = points[:1]
    return Inputs(False, base, tuple(point.uri for point in points))


def _asked_by_a_person(run: Run, attempt: int) -> bool:
    return run.transitions.filter(attempt=attempt, target=RunState.QUEUED, actor__isnull=False).exists()


def prepare(run: Run, inputs: Inputs) -> Ready:
    """Brings here what is missing. Raises OSError: a base that is not in the storage, or NothingWhole."""
    ready = Ready()
    if is_local():
        for uri in inputs.resume:
            ready.arguments += ["--checkpoint", _inside(run, uri)]
    else:
        _bring(run, inputs, ready)
    if not inputs.first and not ready.arguments:
        ready.arguments = ["--from-start"]
    return ready


def _bring(run: Run, inputs: Inputs, ready: Ready) -> None:
    if inputs.base:
        try:
            stage(inputs.base)
        except Damaged as error:
            raise OSError(f"the base checkpoint is damaged: {error}") from error
        ready.brought.append(inputs.base)
    for uri in inputs.resume:
        try:
            stage(uri)
        except (Damaged, FileNotFoundError) as error:
            ready.refused[uri] = str(error)
            continue
        ready.brought.append(uri)
        ready.arguments = ["--checkpoint", _inside(run, uri)]
        return
    if inputs.resume:
        raise NothingWhole(ready.refused)


def _inside(run: Run, uri: str) -> str:
    return uri.removeprefix(f"{run_uri(run.pk)}/")


@transaction.atomic
def tell_refused(held: Claim, refused: Mapping[str, str]) -> None:
    """Refusals while staging: in the run's log, as a mark, and on the checkpoints, so that nobody tries them again.
    Raises ClaimLost.
    """
    run, _attempt = runs.hold(held)
    run.live_seq += 1
    rows = []
    for uri, reason in refused.items():
        mark_refused(run_id=run.pk, uri=_inside(run, uri), reason=reason, seq=run.live_seq)
        text = f"A checkpoint was refused: {reason}"
        rows.append(runs.NewEvent(kind="log", payload={"level": "error", "message": text}, time=timezone.now()))
        rows.append(
            runs.NewEvent(
                kind="mark",
                key="alert",
                payload={"message": text, "data": {}},
                time=timezone.now(),
                iteration=run.iteration,
            )
        )
    runs.add_events(run_id=run.pk, attempt=held.number, rows=rows, seq=run.live_seq)
    run.save(update_fields=["live_seq"])
