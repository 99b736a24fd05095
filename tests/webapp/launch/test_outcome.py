"""What an exit is called."""

import signal

from trainer.contract.exit_codes import ExitCode
from webapp.launch.outcome import outcome_of
from webapp.runs.states import RunState

ASKED = "Stopped on request."


def test_a_saved_state_is_only_claimed_when_the_trainer_said_so() -> None:
    assert outcome_of(ExitCode.STOPPED, asked=ASKED).message == "Stopped on request; the state was saved."
    left = outcome_of(-signal.SIGTERM, asked=ASKED)
    assert (left.state, left.message) == (RunState.STOPPED, "Stopped on request.")


def test_a_stop_by_another_signal_names_it() -> None:
    assert outcome_of(-signal.SIGKILL, asked=ASKED).message == "Stopped on request. It left by SIGKILL without saving."
