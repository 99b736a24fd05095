"""The storm itself: runs in flight, a trouble a round, and the verdict on every run."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.installed.documents import SPS, rl, sft
from tests.installed.processes import OVER, wait_until
from tests.storm.installation import ADA, WORKERS, Weathered
from tests.storm.plan import Round
from tests.storm.reader import Reader
from tests.storm.trouble import KINDS, NOBODY

Say = Callable[[str], None]
IN_FLIGHT = 4
AIM_SECONDS = 10.0
ARRIVE_SECONDS = 900.0
TOLD_SECONDS = 30.0
NEAR_THE_END = 0.9
# What nobody did to the run: the trainer's own errors.
OWN_FAULTS = ("Unexpected error", "A method's part", "A loss or weight", "The configuration or the base")


def documents(iterations: int) -> dict[str, dict[str, Any]]:
    """Launch documents by name: three kinds of run, each with evaluations, rollouts and checkpoints all the time."""
    short = {"budget": {"iterations": iterations}, "checkpoints": {"every": 2}}
    return {
        "grpo": rl(**short),
        "sps": rl(**short | {"methods": SPS, "checkpoints": {"every": 1}, "seed": 1}),
        "sft": sft(budget={"iterations": 2 * iterations}, checkpoints={"every": 3}),
    }


@dataclass
class Tally:
    """What happened and what came of it."""

    troubles: Counter[str] = field(default_factory=Counter)
    without_victim: int = 0
    by_hand: Counter[str] = field(default_factory=Counter)
    started_again: Counter[str] = field(default_factory=Counter)
    automatic: int = 0
    attempts: int = 0
    connections: int = 0
    passed: int = 0
    faults: list[str] = field(default_factory=list)


class Storm:
    """Drives one installation through the rounds. `tally` is what it found."""

    def __init__(
        self,
        there: Weathered,
        *,
        iterations: int,
        kinds: Sequence[str] = ("grpo", "sps", "sft"),
        in_flight: int = IN_FLIGHT,
        aim_seconds: float = AIM_SECONDS,
        say: Say = print,
    ) -> None:
        self.there, self.say, self.in_flight, self.aim_seconds = there, say, in_flight, aim_seconds
        self.documents = {name: document for name, document in documents(iterations).items() if name in kinds}
        self.undisturbed: dict[str, dict[str, Any]] = {}
        self.kind_of: dict[str, str] = {}
        self.judged: set[str] = set()
        self.cookie: str = there.ask("cookie", email=ADA)
        self.readers: dict[str, Reader] = {}
        self.tally = Tally()

    def calm(self) -> None:
        """What each document leaves when nothing happens."""
        for name in self.documents:
            self._launch(name)
        for run, name in self.kind_of.items():
            ended = self.there.here.wait_for(run)
            assert (ended["state"], ended["attempt"]) == ("finished", 1), ended
            self.undisturbed[name] = self.there.ask("whole_record", run=run)
            self._judge(run)

    def weather(self, rounds: Iterator[Round]) -> None:
        """The rounds, one after the other."""
        for one in rounds:
            self.fill()
            self._aim(one)
            trouble = KINDS[one.trouble](self.there, one.lot)
            victim = trouble.begin()
            try:
                if trouble.lasts and victim != NOBODY:
                    time.sleep(one.hold)
            finally:
                trouble.end()
            self.there.start_missing()
            self.tally.troubles[one.trouble] += victim != NOBODY
            self.tally.without_victim += victim == NOBODY
            open_runs = self.tend()
            done = f"{self.tally.passed} came through, {len(self.tally.faults)} faults"
            self.say(f"{one.number:>4}  {one}: {victim}; {open_runs} in flight, {done}")

    def fill(self) -> None:
        """Launches until enough runs are in flight."""
        names = list(self.documents)
        while len(self.kind_of) - len(self.judged) < self.in_flight:
            # Stored evaluations of the same weights would else spare the runs theirs.
            for stored in (self.there.here.files / "evaluations").glob("*.json"):
                stored.unlink(missing_ok=True)
            self._launch(names[len(self.kind_of) % len(names)])

    def _launch(self, name: str) -> None:
        run = self.there.ask("launch", document=self.documents[name])
        self.kind_of[run] = name
        self.readers[run] = Reader(self.there.here.address + self.there.ask("stream", run=run), self.cookie)

    def tend(self) -> int:
        """Judges runs that have arrived, and goes on with those that wait for a person; how many are still open."""
        open_runs = 0
        for run in self.there.situation():
            if run["id"] in self.judged:
                continue
            if run["state"] == "finished":
                # What is only on a worker that is not there now comes to the bucket later.
                if self.there.bucket is None:
                    self._judge(run["id"])
                else:
                    self.judged.add(run["id"])
                    self.tally.passed += 1
                self.tally.attempts += run["attempt"]
                self.tally.automatic += sum(
                    "automatically" in reason or "another worker" in reason for reason in run["reasons"]
                )
                continue
            open_runs += 1
            if run["state"] in OVER:
                self._resume(run)
        return open_runs

    def _resume(self, run: dict[str, Any]) -> None:
        if run["message"].startswith(OWN_FAULTS):
            self.tally.faults.append(f"{run['id']} ({self.kind_of[run['id']]}) failed by itself: {run['message']}")
        self.tally.by_hand[f"{run['state']}: {run['message'].splitlines()[0][:100]}"] += 1
        try:
            self.there.ask("resume", run=run["id"])
        except RuntimeError as error:  # it goes on by itself meanwhile
            if "BadTransition" not in str(error):
                raise

    def arrive(self) -> None:
        """Fair weather, until every run has arrived and no trainer is left; then everything is looked at once more."""
        self.there.wait_for_web()
        wait_until(lambda: not self.tend(), seconds=ARRIVE_SECONDS, pause=1.0)
        wait_until(lambda: not self.there.strangers(), seconds=60, fail=False)
        self.tally.faults += [f"a process is left: {line}" for line in self.there.strangers()]
        if self.there.bucket is not None:
            # The start of a worker looks for files that a dead one left.
            for name in WORKERS:
                self.there.kill(name)
            self.there.start_missing()
            wait_until(lambda: not self.there.ask("unstored"), seconds=60, pause=1.0, fail=False)
            self.tally.faults += [f"only on this host: {uri}" for uri in self.there.ask("unstored")]
        for name, code in self.there.left_by_themselves:
            # A service that cannot start (its disk is full, its database away) says so by its code, and is started again.
            if code:
                self.tally.started_again[f"{name}, code {code}"] += 1
            else:
                self.tally.faults.append(f"{name} left by itself as if it had been asked to")
        arrived, self.judged, self.tally.passed = list(self.judged), set(), 0
        told = set(self.tally.faults)
        for run in arrived:
            self._judge(run, told=told)

    def _judge(self, run: str, *, told: set[str] | None = None) -> None:
        name = self.kind_of[run]
        faults = [
            f"{run} ({name}): {fault}"
            for fault in self.there.ask("faults", run=run, undisturbed=self.undisturbed[name])
        ]
        if run in self.readers:
            faults += [f"{run} ({name}): {fault}" for fault in self._told(run)]
        self.tally.faults += [fault for fault in faults if fault not in (told or ())]
        self.tally.passed += not faults
        self.judged.add(run)
        for fault in faults:
            self.say(f"FAULT {fault}")

    def _told(self, run: str) -> list[str]:
        """What the page that followed the run was not told, or twice."""
        reader = self.readers.pop(run)

        def caught_up() -> dict[str, Any] | None:
            stored: dict[str, Any] = self.there.ask("shown", run=run)
            return stored if reader.page.cursor == stored["cursor"] else None

        stored = wait_until(caught_up, seconds=TOLD_SECONDS, pause=0.3, fail=False)
        reader.close()
        self.tally.connections += reader.connections
        return reader.page.missed(stored or self.there.ask("shown", run=run))

    def _aim(self, one: Round) -> None:
        """Until some run is in the phase that the round is for, or for a while; then as long as the round says."""
        until = time.monotonic() + self.aim_seconds
        while one.aim != "any" and time.monotonic() < until:
            if any(_is_in(one.aim, run) for run in self.there.situation()):
                break
            time.sleep(0.2)
        time.sleep(one.wait)


def _is_in(aim: str, run: dict[str, Any]) -> bool:
    if aim == "ending":
        return bool(run["state"] == "running" and run["iteration"] >= NEAR_THE_END * run["total"])
    return bool(run["state"] == aim)


def summary(tally: Tally, seconds: float) -> str:
    """A few lines for a person, and one JSON line for a table."""
    lines = [
        f"{sum(tally.troubles.values())} troubles, {tally.without_victim} found nobody; {tally.passed} runs came through in "
        f"{tally.attempts} attempts; {tally.automatic} automatic resumes, {sum(tally.by_hand.values())} by hand; "
        f"{tally.connections} connections of {tally.passed} readers; {len(tally.faults)} faults; {seconds / 60:.1f} minutes",
        *(f"  resumed by hand {count}×: {reason}" for reason, count in tally.by_hand.most_common()),
        *(f"  left by itself and started again {count}×: {name}" for name, count in tally.started_again.items()),
        *(f"  FAULT {fault}" for fault in tally.faults),
        json.dumps({"troubles": dict(sorted(tally.troubles.items())), "seconds": round(seconds)}),
    ]
    return "\n".join(lines)
