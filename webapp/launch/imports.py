"""The scheduler's job about datasets: imports that wait, one after another, each in a process of the trainer's command."""

import json
import logging
import shutil
from pathlib import Path

from webapp.datasets import services
from webapp.datasets.models import Import
from webapp.datasets.selectors import running_claims, running_imports, versions_to_compare
from webapp.datasets.tool import ToolError, importing
from webapp.launch.queue import Watch
from webapp.runs import storage

log = logging.getLogger(__name__)

LOOK_EVERY = 15.0
# Five minutes: storing a large file in a bucket shows no sign of life.
_watch = Watch(patience=20)


def run_waiting() -> int:
    """Imports until none waits; how many. An import that another scheduler holds, or holds by now, is left to it."""
    done = 0
    while (job := services.claim_next()) is not None:
        run_import(job)
        done += 1
    return done


def run_import(job: Import) -> None:
    """One claimed import, to its version or to the reason why there is none."""
    folder = _work() / f"{job.pk}-{job.claim}"
    try:
        source = storage.fetch(job.uri, size=job.size_bytes)
        others = [
            {"id": version.pk, "name": str(version), "path": str(storage.fetch(version.uri, size=version.size_bytes))}
            for version in versions_to_compare(job.dataset.project)
        ]
        with importing(source, job.filename, out=folder, mapping=job.mapping or {}, others=others) as lines:
            for line in lines:
                services.beat(job=job, rows=line.get("rows", job.rows), share=line.get("share", 1.0))
        services.publish(job=job, folder=folder)
    except ToolError as error:
        services.fail(job=job, message=str(error), broken=_broken(folder))
    except services.ImportLost:
        log.info("Import %s was taken over or discarded.", job.pk)
    except OSError as error:
        services.fail(job=job, message=f"Files cannot be read or written: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work() -> Path:
    """Where this host keeps what imports write, each in a folder of its own."""
    return storage.files_root() / "imports"


def _broken(folder: Path) -> dict[str, object] | None:
    report = folder / "report.json"
    found: dict[str, object] | None = json.loads(report.read_text()).get("broken") if report.is_file() else None
    return found


def reap(watch: Watch = _watch) -> int:
    """One look: ends imports whose scheduler has been silent over several looks; how many. What imports left behind that
    nobody works on is removed."""
    ended = sum(services.abandon(job_id=job, beats=beats) for job, beats in watch.look(running_imports()))
    # Listed first: a folder is made after its claim, so one whose claim is unknown is nobody's.
    found = list(_work().iterdir()) if _work().is_dir() else []
    claims = running_claims()
    for folder in found:
        if folder.name.rpartition("-")[2] not in claims:
            shutil.rmtree(folder, ignore_errors=True)
    return ended
