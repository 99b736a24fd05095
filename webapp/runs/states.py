"""The state machine of a run, as a table.

    queued ──claim──> starting ──first event──> running ──budget──> finished
      │                  │                        │ stop asked for
      └─> cancelled      └──────> stopping <──────┘──> stopped | finished | failed
                                  (any active state ──lease ran out──> lost)

A run and its current attempt always stand in the same state; `webapp.runs.services.move` is the only way to change it.
"""

from django.db import models


class RunState(models.TextChoices):
    """`stopped`, `failed`, `lost` and `cancelled` runs can be resumed; a `finished` one is over."""

    QUEUED = "queued", "Queued"
    STARTING = "starting", "Starting"
    RUNNING = "running", "Running"
    STOPPING = "stopping", "Stopping"
    FINISHED = "finished", "Finished"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"
    STOPPED = "stopped", "Stopped"
    LOST = "lost", "Lost"


S = RunState
ENDINGS = frozenset({S.FINISHED, S.FAILED, S.STOPPED, S.LOST})
TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    S.QUEUED: frozenset({S.STARTING, S.CANCELLED}),
    S.STARTING: ENDINGS | {S.RUNNING, S.STOPPING},
    S.RUNNING: ENDINGS | {S.STOPPING},
    S.STOPPING: ENDINGS,
    S.FINISHED: frozenset(),
    S.FAILED: frozenset({S.QUEUED}),
    S.CANCELLED: frozenset({S.QUEUED}),
    S.STOPPED: frozenset({S.QUEUED}),
    S.LOST: frozenset({S.QUEUED}),
}
ACTIVE = frozenset({S.STARTING, S.RUNNING, S.STOPPING})
"""A worker holds the run."""
OVER = frozenset(S) - ACTIVE - {S.QUEUED}
RESUMABLE = frozenset(state for state, after in TRANSITIONS.items() if S.QUEUED in after)


class BadTransition(Exception):
    """The state machine has no such arrow; nothing was changed."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(found, wanted)
        self.found, self.wanted = found, wanted

    def __str__(self) -> str:
        allowed = ", ".join(sorted(TRANSITIONS[RunState(self.found)])) or "nothing"
        return f"a run that is {self.found} cannot become {self.wanted}; from here it can become {allowed}"
