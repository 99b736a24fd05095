"""Runs a study: every arm with every seed, each measured alike, as ordinary runs in one folder and one process.

OUT/study.json              the study and its form; another one is refused
OUT/base/                   the run that made the base, where the study trains it
OUT/runs/<arm>/<seed>/      training runs
OUT/evaluations/<…>/        evaluations, named by weights: equal weights are measured once, whichever arms have them
OUT/results.json            what was measured and found so far

Everything can be stopped at any point; the same command goes on. An arm that differs from another one by stopping later
goes on from where that one stopped, which gives the same bits as running it alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import BaseModel
from transformers.utils import logging as transformers_logging

from trainer.contract import events as ev
from trainer.contract.config import RunConfig
from trainer.contract.exit_codes import ExitCode
from trainer.contract.files import write_whole
from trainer.contract.findings import Findings, findings
from trainer.contract.results import CountRecord, RunRecord, SetRecord, Split, StudyResults, study_hash
from trainer.contract.study import Arm, Form, Study
from trainer.core.errors import ConfigError, StopRequested, UnsqueezeError
from trainer.loop.run import Attempt, base_policy, next_attempt, run_attempt
from trainer.methods import resolve
from trainer.studies import ASSETS

TRAINING, MEASURING = "training", "evaluation"


class RunFailed(UnsqueezeError):
    """One of the study's runs ended with an error; ``code`` is its exit code."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Runner:
    """One study in one folder. ``arms`` and ``seeds`` narrow what is run now; results take in all that is there."""

    study: Study
    form: Form
    out: Path
    files: Path = Path(".")
    arms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    stop: Callable[[], bool] = lambda: False
    show: TextIO = sys.stderr
    _spent: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    _left: Counter[str] = field(default_factory=Counter)

    def run(self) -> Findings:
        """Runs what is missing and returns what was found. Raises StopRequested and RunFailed; what was done is kept."""
        transformers_logging.disable_progress_bar()
        self._claim()
        arms = [arm for arm in self.study.chosen(self.form) if not self.arms or arm.name in self.arms]
        # Shorter ones first: the longer ones go on from them.
        arms.sort(key=lambda arm: arm.budget_share)
        seeds = self.seeds or self.study.seeds_of(self.form)
        base = self._base()
        base_hash = base_policy(resolve(self._document(arms[0], 0, base)), self.files).weights_hash
        for arm in arms:
            self._left[TRAINING] += round(self.study.amount(arm, self.form)) * len(seeds)
            self._left[MEASURING] += self._cost(self._splits(arm)) * len(seeds)
        self._left[MEASURING] += self._cost(("test",))
        self._evaluate(base, base_hash, ("test",), "base")
        for seed in seeds:
            for arm in arms:
                record, checkpoint = self._train(arm, seed, base)
                self._evaluate(checkpoint, record.weights_hash, self._splits(arm), f"{arm.title}, seed {seed}")
            self._write(base_hash, base)
        return self._write(base_hash, base)

    def _claim(self) -> None:
        wanted = {
            "form": self.form,
            "hash": study_hash(self.study, self.form),
            "study": self.study.model_dump(mode="json"),
        }
        path = self.out / "study.json"
        if path.exists():
            found = json.loads(path.read_text())
            if (found["form"], found["hash"]) != (wanted["form"], wanted["hash"]):
                raise ConfigError(
                    f"{self.out} holds the {found['form']} form of study {found['study']['slug']} ({found['hash']}), expected "
                    f"{self.form} of {self.study.slug} ({wanted['hash']}); choose another --out"
                )
        self.out.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(wanted, indent=1))

    def _base(self) -> str:
        """The base's folder, made first where the study trains it."""
        given = self.study.base
        if given.checkpoint is not None:
            known = ASSETS / given.checkpoint
            return str(known if known.is_dir() else (self.files / given.checkpoint).resolve())
        folder = self.out / "base"
        self._run(given.train, folder, "base", TRAINING, 0)
        return str(_final_checkpoint(folder)[0])

    def _document(self, arm: Arm, seed: int, base: str) -> dict[str, Any]:
        return self.study.document(arm, seed=seed, checkpoint=base, form=self.form)

    def _splits(self, arm: Arm) -> tuple[Split, ...]:
        """Validation is measured where something is chosen on it: never for null arms."""
        return ("test",) if arm.role == "null" else ("validation", "test")

    def _cost(self, splits: Sequence[Split]) -> int:
        p = self.study.protocol(self.form)
        sizes = {"test": p.problems * p.samples, "validation": p.validation_problems * p.validation_samples}
        return sum(sizes[split] for split in splits) * len(p.temperatures)

    def _train(self, arm: Arm, seed: int, base: str) -> tuple[RunRecord, Path]:
        folder = self._folder(arm, seed)
        document = self._document(arm, seed, base)
        amount = self.study.amount(arm, self.form)
        before = self._shorter(arm, seed, base)
        paid = 0.0 if before is None else self.study.amount(before, self.form)
        checkpoints = None if before is None else (_final_checkpoint(self._folder(before, seed))[0],)
        self._left[TRAINING] -= round(paid)
        self._run(
            document, folder, f"{arm.title}, seed {seed}", TRAINING, round(amount - paid), checkpoints=checkpoints
        )
        return self._record(arm, seed, base), _final_checkpoint(folder)[0]

    def _folder(self, arm: Arm, seed: int) -> Path:
        return self.out / "runs" / arm.name / str(seed)

    def _shorter(self, arm: Arm, seed: int, base: str) -> Arm | None:
        """The longest arm that is this one stopped earlier and has finished."""
        if self.study.budget.axis == "device_seconds":
            return None
        mine = _without_budget(resolve(self._document(arm, seed, base)))
        best: Arm | None = None
        for other in self.study.chosen(self.form):
            if other.budget_share >= arm.budget_share or (best and other.budget_share <= best.budget_share):
                continue
            same = _without_budget(resolve(self._document(other, seed, base))) == mine
            if same and mine["optimizer"]["schedule"] == "constant" and _finished(self._folder(other, seed)):
                best = other
        return best

    def _evaluate(self, checkpoint: str | Path, weights: str, splits: Sequence[Split], label: str) -> None:
        # The base's weights are measured on test alone, whoever has them.
        split: Literal["test", "both"] = "both" if len(splits) > 1 else "test"
        folder = self.out / "evaluations" / f"{weights[:16]}-{split}"
        document = self.study.evaluation_document(checkpoint=str(checkpoint), split=split, form=self.form)
        self._run(document, folder, label, MEASURING, self._cost(splits))

    def _run(
        self,
        document: Any,
        folder: Path,
        label: str,
        kind: str,
        cost: int,
        *,
        checkpoints: tuple[Path, ...] | None = None,
    ) -> None:
        """Brings one run to its end. ``cost`` is what it counts for in the estimate of the time left."""
        if not _finished(folder):
            if self.stop():
                raise StopRequested("stopped between two runs")
            self._say(f"{label}: {kind}", kind)
            started_before = (folder / "attempts").is_dir()
            began = time.monotonic()
            attempt = Attempt(
                run=folder,
                number=next_attempt(folder),
                files=self.files,
                resume=started_before or checkpoints is not None,
                stop=self.stop,
                echo=self._echo(label, kind),
                checkpoints=None if _own_checkpoint(folder) else checkpoints,
            )
            code = run_attempt(document, attempt)
            if code == ExitCode.STOPPED:
                raise StopRequested(f"{label}: stopped; the same command goes on from there")
            if code != ExitCode.FINISHED:
                raise RunFailed(code, f"{label}: {_last_message(attempt.folder)} ({attempt.folder})")
            if cost:
                self._spent[kind].append((time.monotonic() - began, float(cost)))
        self._left[kind] -= cost

    def _say(self, text: str, kind: str) -> None:
        self.show.write(f"{text}{self._time_left()}\n")
        self.show.flush()

    def _time_left(self) -> str:
        """From what runs of either kind have taken so far; empty until both kinds are known."""
        seconds = 0.0
        for kind, cost in self._left.items():
            done = self._spent.get(kind)
            if cost > 0 and not done:
                return ""
            if done:
                seconds += sum(s for s, _ in done) / sum(c for _, c in done) * max(cost, 0)
        return f" · about {seconds / 60:.0f} min left" if seconds >= 90 else f" · about {seconds:.0f} s left"

    def _echo(self, label: str, kind: str) -> Callable[[BaseModel], None] | None:
        """On a terminal, one line that follows the run."""
        if not self.show.isatty():
            return None

        def follow(event: BaseModel) -> None:
            if isinstance(event, ev.Progress):
                where = f"{event.done} of {event.total} problems" if event.total else f"iteration {event.iteration}"
                self.show.write(f"\r\033[K{label}: {where}")
                self.show.flush()
            if isinstance(event, ev.State) and event.state in ("finished", "stopped", "failed"):
                self.show.write("\r\033[K")

        return follow

    # What was measured

    def _write(self, base_hash: str, base: str) -> Findings:
        results = self.results(base_hash, base)
        found = findings(self.study, results)
        document = {"results": results.model_dump(mode="json"), "findings": found.json()}
        write_whole(self.out / "results.json", json.dumps(document, ensure_ascii=False) + "\n")
        return found

    def results(self, base_hash: str, base: str) -> StudyResults:
        """All finished runs and evaluations in the folder."""
        runs = [
            self._record(arm, int(folder.name), base)
            for arm in self.study.chosen(self.form)
            for folder in sorted((self.out / "runs" / arm.name).glob("*"), key=lambda p: int(p.name))
            if _finished(folder)
        ]
        known = {base_hash, *(run.weights_hash for run in runs)}
        sets: dict[str, SetRecord] = {}
        counts: dict[tuple[str, str], CountRecord] = {}
        for folder in sorted((self.out / "evaluations").glob("*")):
            if not _finished(folder):
                continue
            for event in _events(folder):
                if isinstance(event, ev.Evaluation) and event.weights_hash in known and event.set is not None:
                    sets[event.set_id] = _set_record(event.set)
                    counts[event.weights_hash, event.set_id] = _count_record(event)
        return StudyResults(
            slug=self.study.slug,
            form=self.form,
            study_hash=study_hash(self.study, self.form),
            base_weights_hash=base_hash,
            runs=tuple(runs),
            sets=tuple(sets.values()),
            counts=tuple(counts.values()),
        )

    def _record(self, arm: Arm, seed: int, base: str) -> RunRecord:
        """The run as its events tell it, with the part it took over from a shorter arm."""
        phases: dict[int, str] = {}
        before = self._shorter(arm, seed, base)
        chain = [before] if before else []
        while chain and (earlier := self._shorter(chain[-1], seed, base)):
            chain.append(earlier)
        metric: float | None = None
        axes = ev.Axes(iteration=0)
        folder = self._folder(arm, seed)
        for one in [*(self._folder(a, seed) for a in reversed(chain)), folder]:
            for event in _events(one):
                if isinstance(event, ev.Mark) and event.mark == "rewind":
                    phases = {i: name for i, name in phases.items() if i <= event.iteration}
                if isinstance(event, ev.Scalars):
                    axes = event.axes
                    if "step_time" in event.values:
                        phases[axes.iteration] = axes.phase
                    metric = event.values.get(self.study.primary.metric, metric)
        _, weights_hash, axes = _final_checkpoint(folder)
        return RunRecord(
            arm=arm.name,
            seed=seed,
            weights_hash=weights_hash,
            iterations=axes.iteration,
            optimizer_steps=axes.optimizer_step,
            sampled_tokens=axes.sampled_tokens,
            device_seconds=round(axes.device_seconds, 3),
            phases=dict(Counter(phases.values())),
            metric=metric,
        )


def _set_record(one: ev.EvaluationSet) -> SetRecord:
    chance = [p.chance for p in one.problems if p.chance is not None]
    return SetRecord(
        id=one.id,
        split="test" if one.split == "test" else "validation",
        temperature=one.sampler.temperature,
        samples=one.n,
        uids=tuple(p.uid for p in one.problems),
        chance=tuple(chance) if len(chance) == len(one.problems) else None,
    )


def _count_record(event: ev.Evaluation) -> CountRecord:
    return CountRecord(
        weights_hash=event.weights_hash,
        set_id=event.set_id,
        correct=tuple(p.c for p in event.problems),
        truncated=sum(p.truncated for p in event.problems),
    )


def _without_budget(config: RunConfig) -> dict[str, Any]:
    return config.model_dump(mode="json", exclude={"budget"})


def _attempts(run: Path) -> list[Path]:
    return sorted((p for p in (run / "attempts").glob("*") if p.name.isdigit()), key=lambda p: int(p.name))


def _events(run: Path) -> Iterator[Any]:
    """Events of all attempts, in order; a last line that was cut off by a kill is left out."""
    for attempt in _attempts(run):
        path = attempt / "events.jsonl"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for line in text.rpartition("\n")[0].splitlines():
            yield ev.parse_line(line).event


def _finished(run: Path) -> bool:
    """Whether the newest attempt says that the run reached its budget."""
    attempts = _attempts(run)
    path = attempts[-1] / "events.jsonl" if attempts else None
    if path is None or not path.is_file():
        return False
    lines = path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
    last = ev.parse_line(lines[-1]).event if lines else None
    return isinstance(last, ev.State) and last.state == "finished"


def _own_checkpoint(run: Path) -> bool:
    return any((run / "attempts").glob("*/checkpoints/it-*"))


def _final_checkpoint(run: Path) -> tuple[Path, str, ev.Axes]:
    """(folder, weights hash, axes) of a finished run's last checkpoint."""
    last: ev.Checkpoint | None = None
    for event in _events(run):
        if isinstance(event, ev.Checkpoint) and event.final:
            last = event
    if last is None:
        raise ConfigError(f"{run} has no final checkpoint; remove the folder, and the study runs it again")
    return (run / last.uri).resolve(), last.weights_hash, last.axes


def _last_message(attempt: Path) -> str:
    states = [event for event in _events(attempt.parents[1]) if isinstance(event, ev.State)]
    return states[-1].message if states else "no word of how it ended"
