"""Starting the trainer: its folder, its environment, its process group, and the pipe that ties its life to ours."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from django.conf import settings

from trainer.contract.files import write_whole
from trainer.contract.known import KnownEvaluation
from webapp.launch.datasets import stage_dataset
from webapp.launch.known import hand_over
from webapp.launch.slots import ANYWHERE, Slot
from webapp.runs.models import Run
from webapp.runs.services import Claim
from webapp.runs.storage import attempt_uri, path_of, run_uri

# What a trainer may know of its host. Everything else, the database's address and the secret key first of all, stays
# here.
PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "UNSQUEEZE_METHOD_FILES", "HF_HOME",
)  # fmt: skip
PASSED_ON_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "NCCL_", "ROCM_", "HIP_")
LOG_BYTES = 64 * 1024


def start_trainer(
    run: Run,
    held: Claim,
    *,
    root: Path,
    source: Sequence[str] = (),
    slot: Slot = ANYWHERE,
    secrets: Mapping[str, str] | None = None,
    known: Sequence[KnownEvaluation] = (),
) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """The process, in a group of its own, and our end of its parent pipe: it stops when that end closes. Raises
    OSError. It keeps the lock of the slot's device for as long as it lives. `secrets` (values by name) go into its
    environment and nowhere else.

    The first attempt runs the configuration; later ones resume, and `source` says from where (`webapp.launch.inputs`).
    Which checkpoints are kept is decided by the rows (`webapp.checkpoints.retention`), so the trainer removes none.
    `known` evaluations need not be measured again.
    """
    stage_dataset(run)
    folder = path_of(run_uri(run.pk))
    attempt = path_of(attempt_uri(run.pk, held.number))
    attempt.mkdir(parents=True, exist_ok=True)
    hand_over(known, attempt)
    config = folder / "config.json"
    write_whole(config, json.dumps(run.config, indent=1))
    read_end, write_end = os.pipe()
    ours = os.fdopen(write_end, "wb", buffering=0)
    what = ["run", str(config), "--out", str(folder)] if held.number == 1 else ["resume", str(folder), *source]
    where = ["--attempt", str(held.number), "--files", str(root), "--parent-fd", str(read_end), "--keep-all", "--quiet"]
    try:
        with (attempt / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [*settings.TRAINER_COMMAND, *what, *where],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment(run.pk, device=slot.device, secrets=secrets or {}),
                pass_fds=(read_end, *([] if slot.lock is None else [slot.lock])),
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(read_end)
    return process, ours


def environment(run_id: str, *, device: str | None = None, secrets: Mapping[str, str] | None = None) -> dict[str, str]:
    """The trainer's environment variables. `device` is the one GPU that it sees, "" for none, None for all of ours."""
    kept = {
        name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    # Ours last: no secret takes the place of what decides how the trainer runs.
    return (
        dict(secrets or {})
        | kept
        | {
            "UNSQUEEZE_RUN_ID": run_id,
            "PYTHONPATH": str(settings.BASE_DIR),
            "PYTHONUNBUFFERED": "1",
            # One intra-op thread a process: several runs share a machine, and the sums are the same everywhere.
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            **({} if device is None else {"CUDA_VISIBLE_DEVICES": device}),
        }
    )


def last_lines(run_id: str, number: int) -> list[str]:
    """The end of an attempt's log, whole lines; empty when there is none."""
    path = path_of(attempt_uri(run_id, number, "log.txt"))
    if not path.is_file():
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    lines = text.splitlines()
    return lines[1:] if size > LOG_BYTES else lines
