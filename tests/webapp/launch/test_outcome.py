"""What an exit is called."""

import signal
from typing import Any

import pytest

from trainer.contract.exit_codes import ExitCode
from webapp.launch.outcome import ON_REQUEST, WORKER_LEAVES, Again, outcome_of
from webapp.runs.states import RunState


def test_a_saved_state_is_only_claimed_when_the_trainer_said_so() -> None:
    assert outcome_of(ExitCode.STOPPED, asked=ON_REQUEST).message == "Stopped on request; the state was saved."
    left = outcome_of(-signal.SIGTERM, asked=ON_REQUEST)
    assert (left.state, left.message) == (RunState.STOPPED, "Stopped on request.")


def test_a_stop_by_another_signal_names_it() -> None:
    assert (
        outcome_of(-signal.SIGKILL, asked=ON_REQUEST).message
        == "Stopped on request. It left by SIGKILL without saving."
    )


@pytest.mark.parametrize(
    ("code", "asked", "again"),
    [
        (ExitCode.FINISHED, None, Again.NO),
        (ExitCode.CRASHED, None, Again.NO),
        (ExitCode.CONFIG, None, Again.NO),
        (ExitCode.STORAGE, None, Again.NO),
        (ExitCode.NUMERIC, None, Again.NO),
        (ExitCode.METHOD, None, Again.NO),
        (77, None, Again.NO),
        (ExitCode.STOPPED, None, Again.COUNTED),
        (-signal.SIGKILL, None, Again.COUNTED),
        (-signal.SIGSEGV, None, Again.COUNTED),
        (ExitCode.STOPPED, ON_REQUEST, Again.NO),
        (-signal.SIGKILL, ON_REQUEST, Again.NO),
        (ExitCode.STOPPED, WORKER_LEAVES, Again.FREELY),
        (-signal.SIGTERM, WORKER_LEAVES, Again.FREELY),
        (ExitCode.FINISHED, WORKER_LEAVES, Again.NO),
        (ExitCode.CRASHED, WORKER_LEAVES, Again.NO),
    ],
)
def test_only_what_came_from_outside_is_tried_again(code: int, asked: Any, again: Again) -> None:
    assert outcome_of(code, asked=asked).again is again


def test_a_trainer_that_had_to_be_killed_goes_on_elsewhere_unless_a_person_stopped_it() -> None:
    assert outcome_of(-signal.SIGKILL, asked=WORKER_LEAVES, killed=True).again is Again.FREELY
    assert outcome_of(-signal.SIGKILL, asked=ON_REQUEST, killed=True).again is Again.NO
