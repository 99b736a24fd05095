"""Exit codes of ``python -m trainer``: what the supervisor, a script or Slurm can rely on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Each value's meaning is in `MEANING`; `RESUMABLE` tells which leave a checkpoint worth resuming."""

    FINISHED = 0
    CRASHED = 1
    CONFIG = 2
    STORAGE = 3
    NUMERIC = 4
    METHOD = 5
    STOPPED = 10
    SUPERSEDED = 11


MEANING: dict[ExitCode, str] = {
    ExitCode.FINISHED: "The run reached its budget.",
    ExitCode.CRASHED: "Unexpected error; the log holds the traceback.",
    ExitCode.CONFIG: "The configuration or the base checkpoint cannot be used; nothing was trained.",
    ExitCode.STORAGE: "A file could not be read or written (disk full, folder gone, checkpoint damaged).",
    ExitCode.NUMERIC: "A loss or weight became NaN or infinite; the last checkpoint is from before.",
    ExitCode.METHOD: "A method's part raised or broke its protocol.",
    ExitCode.STOPPED: "Stopped on request; the state was saved and can be resumed.",
    ExitCode.SUPERSEDED: "A later attempt of the run has begun; this one saved nothing more.",
}
RESUMABLE = frozenset({ExitCode.CRASHED, ExitCode.STORAGE, ExitCode.NUMERIC, ExitCode.METHOD, ExitCode.STOPPED})
