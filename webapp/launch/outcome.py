"""What an exit means: the state of the run, and a sentence for people."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.contract.exit_codes import MEANING, ExitCode
from webapp.runs.states import RunState

SHOWN_LINES = 8


@dataclass(frozen=True)
class Outcome:
    """Where the run goes, and why."""

    state: RunState
    message: str


def outcome_of(code: int, *, said: str = "", log: Sequence[str] = (), asked: str = "", killed: bool = False) -> Outcome:
    """From the trainer's exit code.

    `said` is the message of its last state event, `log` the last lines of its log. `asked` is why the supervisor
    wanted it to stop (empty: it did not), `killed` that it was killed because it did not leave in time.
    """
    if killed:
        return Outcome(
            RunState.STOPPED,
            f"{asked} It did not leave in time and was killed. What it sent is kept; resuming goes on from the newest "
            "checkpoint.",
        )
    if code == ExitCode.FINISHED:
        return Outcome(RunState.FINISHED, MEANING[ExitCode.FINISHED])
    if code == ExitCode.STOPPED:
        saved = f"{asked.removesuffix('.')}; the state was saved."
        return Outcome(RunState.STOPPED, saved if asked else MEANING[ExitCode.STOPPED])
    if code < 0:
        if asked:
            other = "" if -code == signal.SIGTERM else f" It left by {_signal(-code)} without saving."
            return Outcome(RunState.STOPPED, f"{asked}{other}")
        hint = " Often that is the system running out of memory." if -code == signal.SIGKILL else ""
        return Outcome(RunState.FAILED, f"The trainer was ended by {_signal(-code)}.{hint}{_quoted(log)}")
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
