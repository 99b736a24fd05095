"""What an exit means: the state of the run, a sentence for people, and whether the run goes on by itself.

A run goes on by itself when something outside of it ended the attempt: its worker went silent or was shut down, or a
signal that nobody here sent ended its trainer (that is also how a system without memory does it, and how a library
crashes; a run that always dies so is stopped by the limit on resumes without progress). What the trainer itself says
(a refused configuration, an exception, a NaN, a full disk) would only happen again, and a person's stop is final.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from trainer.contract.exit_codes import MEANING, ExitCode
from webapp.runs.states import RunState

SHOWN_LINES = 8


class Again(Enum):
    """Whether the run is queued again by itself."""

    NO = "no"
    COUNTED = "counted"
    """Against the limit of resumes without progress."""
    FREELY = "freely"
    """Its worker was shut down on purpose: not the run's fault, so it neither counts nor waits."""


@dataclass(frozen=True)
class Outcome:
    """Where the run goes, and why."""

    state: RunState
    message: str
    again: Again = Again.NO


@dataclass(frozen=True)
class Asked:
    """Why a supervisor wants its trainer to stop, and what follows."""

    reason: str
    again: Again = Again.NO


ON_REQUEST = Asked("Stopped on request.")
WORKER_LEAVES = Asked("Stopped, because its worker was shut down.", Again.FREELY)


def outcome_of(
    code: int, *, said: str = "", log: Sequence[str] = (), asked: Asked | None = None, killed: bool = False
) -> Outcome:
    """From the trainer's exit code.

    `said` is the message of its last state event, `log` the last lines of its log. `asked` is why the supervisor
    wanted it to stop (None: it did not), `killed` that it was killed because it did not leave in time.
    """
    again = asked.again if asked else Again.COUNTED
    if killed:
        return Outcome(
            RunState.STOPPED,
            f"{asked.reason if asked else ''} It did not leave in time and was killed. What it sent is kept; resuming "
            "goes on from the newest checkpoint.".lstrip(),
            again,
        )
    if code == ExitCode.FINISHED:
        return Outcome(RunState.FINISHED, MEANING[ExitCode.FINISHED])
    if code == ExitCode.STOPPED:
        if asked:
            return Outcome(RunState.STOPPED, f"{asked.reason.removesuffix('.')}; the state was saved.", again)
        return Outcome(RunState.STOPPED, "A signal from outside asked the trainer to stop; the state was saved.", again)
    if code < 0:
        if asked:
            other = "" if -code == signal.SIGTERM else f" It left by {_signal(-code)} without saving."
            return Outcome(RunState.STOPPED, f"{asked.reason}{other}", again)
        hint = " Often that is the system running out of memory." if -code == signal.SIGKILL else ""
        return Outcome(RunState.FAILED, f"The trainer was ended by {_signal(-code)}.{hint}{_quoted(log)}", again)
    known = ExitCode(code) if code in set(ExitCode) else None
    meaning = MEANING[known] if known else f"The trainer left with the undocumented exit code {code}."
    if said:
        return Outcome(RunState.FAILED, f"{meaning} {said}")
    return Outcome(RunState.FAILED, f"{meaning}{_quoted(log)}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _quoted(log: Sequence[str]) -> str:
    # The trainer repeats its events as JSON on standard output; a person looks for the other lines.
    lines = [line for line in log if line.strip() and not line.startswith("{")][-SHOWN_LINES:]
    return "\n" + "\n".join(lines) if lines else ""
