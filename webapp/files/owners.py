"""Who owns what lies in the storage, as the rows say; why something is nobody's."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from webapp.checkpoints.models import Checkpoint, Upload
from webapp.datasets.models import Import, ImportState, Version
from webapp.datasets.selectors import running_claims
from webapp.files.units import DEPTHS, Unit
from webapp.runs.models import Attempt, Run
from webapp.runs.states import OVER

FEW = 200
"""Up to so many units, only the rows they name are read."""


@dataclass(frozen=True)
class Verdict:
    """Why a unit is nobody's. `removable` is off for what this product did not write, and so does not understand."""

    unit: Unit
    why: str
    removable: bool = True


@dataclass
class Owners:
    """Rows that own files. `busy` are runs that are queued or at work: nothing of theirs is judged."""

    runs: set[str] = field(default_factory=set)
    busy: set[str] = field(default_factory=set)
    attempts: set[str] = field(default_factory=set)
    checkpoints: dict[str, bool] = field(default_factory=dict)
    uploads: set[str] = field(default_factory=set)
    datasets: set[str] = field(default_factory=set)
    claims: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, uris: Collection[str]) -> "Owners":
        """The owners of these units, as the rows are now. Read them after the files were listed: whoever writes a file
        and then its row is known by then.
        """
        few = len(uris) <= FEW
        runs = {uri.split("/")[1] for uri in uris if uri.startswith("runs/") and "/" in uri}
        found = cls()
        known = Run.objects.filter(pk__in=runs) if few else Run.objects.all()
        for run, state in known.values_list("pk", "state"):
            found.runs.add(run)
            if state not in OVER:
                found.busy.add(run)
        attempts = Attempt.objects.filter(run__in=runs) if few else Attempt.objects.all()
        found.attempts = {f"runs/{run}/attempts/{n}" for run, n in attempts.values_list("run", "number")}
        rows = Checkpoint.objects.filter(uri__in=list(uris)) if few else Checkpoint.objects.all()
        found.checkpoints = {uri: removed is None for uri, removed in rows.values_list("uri", "removed_at")}
        # Few rows at any time: they go when they are complete.
        found.uploads = {f"uploads/{pk}" for pk in Upload.objects.values_list("pk", flat=True)}
        unfinished = Import.objects.exclude(state=ImportState.FINISHED)
        found.uploads |= {name for uri in unfinished.values_list("uri", flat=True) for name in (uri, f"{uri}.part")}
        found.datasets = {str(PurePosixPath(uri).parent) for uri in Version.objects.values_list("uri", flat=True)}
        found.claims = set(running_claims())
        return found

    def unit_of(self, unit: Unit) -> str:
        """A unit of a run or attempt that no row knows goes with all of it."""
        parts = unit.uri.split("/")
        if unit.draft or parts[0] != "runs" or len(parts) < 3:
            return unit.uri
        if parts[1] not in self.runs:
            return "/".join(parts[:2])
        attempt = "/".join(parts[:4])
        return attempt if len(parts) > 4 and attempt not in self.attempts else unit.uri

    def judge(self, unit: Unit) -> Verdict | None:
        """Why the unit is nobody's; None when somebody owns it, or may be at work on it."""
        parts = unit.uri.split("/")
        if parts[0] == "runs" and len(parts) > 1 and parts[1] in self.busy:
            return None
        if unit.draft:
            return Verdict(unit, "A file that was being written when its process ended; nothing reads it.")
        if parts[0] not in DEPTHS or len(parts) < 2:
            return Verdict(unit, "Nothing here writes there; look at it, and move it away by hand.", removable=False)
        why = {
            "runs": self._run,
            "checkpoints": self._checkpoint,
            "datasets": self._dataset,
            "uploads": self._upload,
            "imports": self._import,
        }[parts[0]](unit, parts)
        return Verdict(unit, why) if why else None

    def _run(self, unit: Unit, parts: list[str]) -> str:
        if parts[1] not in self.runs:
            return "No run has this identifier; its row was deleted, or belongs to another installation."
        if len(parts) >= 4 and "/".join(parts[:4]) not in self.attempts:
            return "The run has no attempt of this number."
        return self._checkpoint(unit, parts) if len(parts) == 6 and parts[4] == "checkpoints" else ""

    def _checkpoint(self, unit: Unit, parts: list[str]) -> str:
        stands = self.checkpoints.get(unit.uri)
        if stands:
            return ""
        if stands is not None:
            return "Its row says that the files were removed; the storage did not answer at that time."
        if not unit.manifest:
            return "It has no manifest: saving or importing it was cut short, and nothing goes on from it."
        return "It is whole, but no row names it: its attempt was superseded, or its project was deleted."

    def _dataset(self, unit: Unit, parts: list[str]) -> str:
        if unit.uri in self.datasets:
            return ""
        return "No version of a dataset has this content; its import broke off, or it was removed."

    def _upload(self, unit: Unit, parts: list[str]) -> str:
        return "" if unit.uri in self.uploads else "No upload or import waits for it."

    def _import(self, unit: Unit, parts: list[str]) -> str:
        return "" if parts[1].rpartition("-")[2] in self.claims else "Nobody works on this import any more."
