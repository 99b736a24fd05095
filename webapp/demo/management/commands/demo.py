"""One command from a fresh clone to a page with runs that train: see the README."""

import signal
import time
from argparse import ArgumentParser
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections

from webapp.demo import table
from webapp.demo.processes import Installation, free_port, is_free, services
from webapp.demo.services import Cast, launch_all, launch_hotter, launched_before, prepare
from webapp.runs.models import Run
from webapp.runs.states import RunState

OVER = {RunState.FINISHED, RunState.FAILED, RunState.CANCELLED, RunState.STOPPED, RunState.LOST}
UNATTENDED_LIMIT = 45 * 60


class Command(BaseCommand):
    """Sets up the database, starts web server, worker and scheduler, and launches the demo's runs."""

    help = "Start Unsqueeze on this machine with a live demonstration."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="run the demo unattended, print its table, and leave")
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, help="port (default: the first free one from 8000)")

    def handle(self, *args: Any, once: bool, host: str, port: int | None, **options: Any) -> None:
        signal.signal(signal.SIGTERM, _leave)
        # A shell that starts the demo in the background leaves SIGINT ignored; Ctrl-C and kill -INT must end it all the same.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if port is not None and not is_free(host, port):
            raise CommandError(f"port {port} on {host} is taken by another program; choose another with --port")
        self.say("Preparing the database and static files …")
        call_command("migrate", verbosity=0, interactive=False)
        call_command("collectstatic", verbosity=0, interactive=False)
        cast = prepare()
        port = port or free_port(host)
        address = f"http://{host}:{port}"
        with Installation(services(host=host, port=port), logs=Path(settings.DATA_DIR) / "logs") as installation:
            try:
                installation.wait_for(address)
                if once:
                    self.once(cast, address, installation)
                else:
                    self.stay(cast, address, installation)
            except RuntimeError as error:
                raise CommandError(str(error)) from error
            except KeyboardInterrupt:
                self.say("\nStopping; a run that trains saves its state first …")
        self.say("Stopped.")

    def stay(self, cast: Cast, address: str, installation: Installation) -> None:
        """Until Ctrl-C; the hotter evaluation is launched when GRPO has finished."""
        fresh = not launched_before(cast.project)
        runs = launch_all(cast) if fresh else {}
        self.say("")
        self.say(f"  Unsqueeze is at  {address}")
        self.say(f"  sign in as       {cast.user.email}")
        self.say(f"  password         {cast.password or 'the one you chose'}{'   (one time)' if cast.password else ''}")
        self.say("")
        if fresh:
            self.say("GRPO and SPS train from the demo's base now; open the runs and watch. Ctrl-C stops all.")
        else:
            self.say("The demo's runs are from an earlier start; launch more in the browser. Ctrl-C stops all.")
        hot: Run | None = None
        while (gone := installation.ended()) is None:
            time.sleep(1)
            if runs and hot is None and _state(runs["grpo"]) == RunState.FINISHED:
                hot = launch_hotter(cast, Run.objects.get(pk=runs["grpo"].pk))
        raise RuntimeError(gone)

    def once(self, cast: Cast, address: str, installation: Installation) -> None:
        """Launches, waits with a line of progress, prints the table. Raises RuntimeError where a run did not finish."""
        began = time.monotonic()
        runs = launch_all(cast)
        password = cast.password or "with the password you chose"
        self.say(f"Running the demo unattended; watch it at {address} as {cast.user.email}, {password}")
        shown = ""
        while True:
            states = {name: _state(run) for name, run in runs.items()}
            if states["grpo"] == RunState.FINISHED and "hot" not in runs:
                hotter = launch_hotter(cast, Run.objects.get(pk=runs["grpo"].pk))
                if hotter is not None:
                    runs["hot"] = hotter
                    continue
            shown = self.progress(runs, shown)
            broken = [name for name, state in states.items() if state in OVER - {RunState.FINISHED}]
            gone = installation.ended()
            if broken or gone or time.monotonic() - began > UNATTENDED_LIMIT:
                raise RuntimeError(gone or _why(runs, broken))
            if "hot" in runs and all(state == RunState.FINISHED for state in states.values()):
                break
            time.sleep(0.5)
        arms = table.arms_of({name: Run.objects.get(pk=run.pk) for name, run in runs.items()})
        self.say("")
        self.say(table.render(arms))
        self.say("")
        self.say(table.conclusion(arms))
        self.say(f"(measured in {time.monotonic() - began:.0f} s)")

    def progress(self, runs: dict[str, Run], shown: str) -> str:
        """A line for every tenth of a run; returns what was said last."""
        for name, run in runs.items():
            now = Run.objects.get(pk=run.pk)
            if now.state != RunState.RUNNING:
                continue
            key = f"{name} {10 * now.iteration // max(1, now.total_iterations)}"
            if key != shown:
                done = f"iteration {now.iteration} of {now.total_iterations}" if now.total_iterations else "evaluating"
                self.say(f"{now.name}: {done}")
            return key
        return shown

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _state(run: Run) -> RunState:
    close_old_connections()
    return RunState(Run.objects.values_list("state", flat=True).get(pk=run.pk))


def _why(runs: dict[str, Run], broken: list[str]) -> str:
    if not broken:
        return f"The demo did not finish within {UNATTENDED_LIMIT // 60} minutes."
    run = Run.objects.get(pk=runs[broken[0]].pk)
    return f"Run {run.name} is {run.state}: {run.message}"


def _leave(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
