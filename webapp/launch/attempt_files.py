"""Bringing an attempt's files from its worker to the bucket, beside the supervisor and never in its way.

What is in the bucket is written down in the attempt's folder (`.stored.json`: name → size and time), so that a worker
that was killed goes on where it stopped: its next start looks for attempts that are not stored completely. A
checkpoint's manifest goes up last, and only then is its row available. Nothing of this happens where the storage is a
folder.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from django.db import Error as DatabaseError
from django.db import close_old_connections, connection

from webapp.checkpoints import retention
from webapp.checkpoints.manifests import MANIFEST
from webapp.checkpoints.services import mark_stored
from webapp.launch.secrets import redactor_of, scrub
from webapp.runs.copies import note
from webapp.runs.models import Run
from webapp.runs.storage import attempt_uri, files_root, is_local, locked, path_of, put

log = logging.getLogger(__name__)

LEDGER = ".stored.json"
GROWING = ("events.jsonl", "log.txt")
ROUND_EVERY = 2.0
GROWING_EVERY = 30.0


@dataclass
class Round:
    """What one look at an attempt's folder did. `left` are the files that are still on this host only."""

    stored: list[str] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    error: str = ""


def upload_attempt(run_id: str, number: int, *, over: bool, growing: bool = True) -> Round:
    """Stores what is not in the bucket yet. `over` says that nothing is written any more: files that grow are stored as
    well, and with `growing` now and then before. A second process that looks at the same attempt waits.
    """
    uri = attempt_uri(run_id, number)
    folder, found = path_of(uri), Round()
    if not folder.is_dir():
        return found
    with locked(f"upload {uri}"):
        ledger = _read_ledger(folder)
        for name in _names(folder, over=over, growing=growing):
            path = folder / name
            try:
                now = path.stat()
                if ledger.get(name) != [now.st_size, now.st_mtime_ns]:
                    put(path, f"{uri}/{name}")
                    ledger[name] = [now.st_size, now.st_mtime_ns]
                    _write_ledger(folder, ledger)
                    found.stored.append(name)
            except FileNotFoundError:
                # Retention has taken it since.
                continue
            except OSError as error:
                found.left.append(name)
                found.error = str(error)
                # The others would fail as well, and a manifest must not overtake its files.
                break
        found.checkpoints = [
            f"{uri}/{name.removesuffix('/' + MANIFEST)}" for name in ledger if name.endswith(f"/{MANIFEST}")
        ]
        done = [name for name in _names(folder, over=True) if _is_stored(folder, name, ledger)]
        found.left = sorted(set(_names(folder, over=True)) - set(done))
        if over and not found.left:
            note(uri, sum(size for size, _time in ledger.values()))
    return found


def _names(folder: Path, *, over: bool, growing: bool = True) -> Iterator[str]:
    """Files in the order in which they are stored: of a checkpoint only complete ones, the manifest last."""
    plain: list[str] = []
    manifests: list[str] = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or any(part.startswith(".") for part in parts) or path.suffix == ".partial":
            continue
        name = "/".join(parts)
        if parts[0] == "checkpoints":
            if not (folder / parts[0] / parts[1] / MANIFEST).is_file():
                continue
            (manifests if path.name == MANIFEST and len(parts) == 3 else plain).append(name)
        elif name in GROWING:
            if over or (growing and _is_due(folder, name)):
                manifests.append(name)
        else:
            plain.append(name)
    yield from plain
    yield from manifests


def _is_due(folder: Path, name: str) -> bool:
    """Whether a file that grows has grown, and was not stored just now."""
    ledger, now = folder / LEDGER, (folder / name).stat()
    old = _read_ledger(folder).get(name)
    if old is None:
        return True
    return old[0] != now.st_size and time.time() - ledger.stat().st_mtime > GROWING_EVERY


def _is_stored(folder: Path, name: str, ledger: dict[str, list[int]]) -> bool:
    try:
        now = (folder / name).stat()
    except FileNotFoundError:
        return True
    return ledger.get(name) == [now.st_size, now.st_mtime_ns]


def _read_ledger(folder: Path) -> dict[str, list[int]]:
    try:
        found: dict[str, list[int]] = json.loads((folder / LEDGER).read_text())
    except (OSError, ValueError):
        return {}
    return found


def _write_ledger(folder: Path, ledger: dict[str, list[int]]) -> None:
    draft = folder / f"{LEDGER}.draft"
    draft.write_text(json.dumps(ledger))
    draft.replace(folder / LEDGER)


class Uploads:
    """A thread that stores the files of one attempt while its trainer works. Nothing happens with a folder as storage.

    Without `growing` the log and the events wait for the end: until then they may hold what is still to be starred out.
    """

    def __init__(self, run_id: str, number: int, *, growing: bool) -> None:
        self.run_id, self.number, self.growing = run_id, number, growing
        self.over = threading.Event()
        self.last = Round()
        self.thread = threading.Thread(target=self._work, name=f"uploads of {run_id}", daemon=True)
        if not is_local():
            self.thread.start()

    @property
    def done(self) -> bool:
        """Whether the thread has ended: everything is stored, or nothing had to be."""
        return not self.thread.is_alive()

    def finish(self) -> None:
        """Nothing is written any more: store the rest and end."""
        self.over.set()

    def _work(self) -> None:
        try:
            while True:
                over = self.over.is_set()
                # One that the database has ended is made again.
                close_old_connections()
                try:
                    self.last = upload_attempt(self.run_id, self.number, over=over, growing=self.growing)
                    tell_stored(self.last)
                    if self.last.stored:
                        retention.apply_to_run(self.run_id)
                    if over and not self.last.left:
                        return
                except (OSError, DatabaseError) as error:
                    self.last.error = str(error)
                if self.last.error:
                    log.warning("Files of run %s are not stored yet: %s", self.run_id, self.last.error)
                self.over.wait(ROUND_EVERY) if not over else time.sleep(ROUND_EVERY)
        finally:
            connection.close()


def tell_stored(found: Round) -> None:
    """The rows of checkpoints whose manifest is stored become available."""
    if found.checkpoints:
        mark_stored(found.checkpoints)


def at_work(run_id: str, number: int, *, wait: bool = True) -> AbstractContextManager[bool]:
    """Held by the supervisor of an attempt, so that no sweep takes its files for complete."""
    return locked(f"supervise {attempt_uri(run_id, number)}", wait=wait)


def sweep() -> int:
    """Stores what earlier processes of this host left behind; how many files are still only here.

    For the start of a worker, and now and then. Attempts that are at work are stored by their supervisor. What nobody has
    starred out yet is, before anything leaves this host; without its run's row nobody could say what to look for, so such
    an attempt stays here.
    """
    if is_local():
        return 0
    left = 0
    for folder in sorted(files_root().glob("runs/*/attempts/*")):
        # Without events, it was not written here.
        if not folder.name.isdigit() or not (folder / "events.jsonl").exists():
            continue
        run_id = folder.parents[1].name
        with at_work(run_id, int(folder.name), wait=False) as free:
            if free and Run.objects.filter(pk=run_id).exists():
                scrub(run_id, int(folder.name), redactor_of(run_id))
                found = upload_attempt(run_id, int(folder.name), over=True)
                tell_stored(found)
                left += len(found.left)
    return left


def start_sweeping(every: float = 300.0) -> threading.Thread | None:
    """A thread of a worker that sweeps now and then; None with a folder as the storage."""
    if is_local():
        return None

    def work() -> None:
        while True:
            try:
                sweep()
            except (OSError, DatabaseError) as error:
                log.warning("Files that are only on this host could not be stored: %s", error)
            finally:
                connection.close()
            time.sleep(every)

    thread = threading.Thread(target=work, name="sweep", daemon=True)
    thread.start()
    return thread
