"""Problems of a dataset version: a Parquet file that `trainer.data.importers` wrote, read as the run needs it.

The file is checked against the hashes that the run was launched with before its first row is used. Only identities and
splits are kept in memory; prompts are read for the problems that a run draws.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from trainer.contract.dataset import Checking
from trainer.core.errors import ConfigError
from trainer.core.types import Message, Prompt, Verdict
from trainer.data.task import Split, Task, TaskParams

PROBLEM_COLUMNS = ("id", "uid", "prompt", "answer", "answer_type", "verifier", "meta", "split", "file", "line")


class DatasetParams(TaskParams):
    """Which version, and what happens to prompts that do not fit."""

    uri: str = Field(
        default="",
        max_length=400,
        title="File",
        description="The version's Parquet file, relative to the file storage.",
    )
    content_hash: str = Field(
        default="", max_length=64, title="Content hash", description="Identity of the version; checked before use."
    )
    sha256: str = Field(
        default="", max_length=64, title="File hash", description="SHA-256 of the file; checked before use."
    )
    long_prompts: Literal["refuse", "leave_out"] = Field(
        default="refuse",
        title="Prompts that do not fit",
        description="Refuse the run, or leave out problems that are too long for the model.",
    )


class Dataset(Task):
    """Problems with gold answers from users' own files, judged by typed comparers."""

    name = "dataset"
    title = "Dataset version"
    description = "Problems from a file that was imported into this project."
    checker_version = "1"
    Params = DatasetParams

    def __init__(self, params: TaskParams | None = None) -> None:
        super().__init__(params)
        assert isinstance(self._params, DatasetParams)
        self.params = self._params
        self.leaves_out = self.params.long_prompts == "leave_out"
        self._file: Any = None
        self._rows: dict[str, list[int]] = {}
        self._prover: Any = None
        self._gym: Any = None
        self._checks: dict[str, Checking] = {}
        self._fits: Callable[[Prompt], str | None] = lambda prompt: None
        self._say: Callable[[str], None] = lambda text: None
        if self.params.content_hash:
            # An evaluation set of another version is another set, even where its problems are the same.
            self.checker_version = f"{_compare_version()}/{self.params.content_hash[:16]}"  # type: ignore[misc]

    def prepare(self, files: Path, fits: Callable[[Prompt], str | None], say: Callable[[str], None]) -> None:
        """Opens and checks the file. Raises DatasetError or ConfigError."""
        from trainer.data.importers.store import open_version

        if not self.params.uri:
            raise ConfigError("task.params.uri is empty, expected the dataset version's file; choose a version")
        path = files / self.params.uri
        self._file = open_version(path, content_hash=self.params.content_hash, sha256=self.params.sha256)
        self._fits, self._say = fits, say
        self._index()

    def _index(self) -> None:
        """Row numbers by split: the first row of each problem."""
        from trainer.data.importers.store import column_batches
        from trainer.rewards.prover import MathProver, available

        seen: set[int] = set()
        kinds: set[str] = set()
        at = 0
        for batch in column_batches(self._file, ("uid", "split", "answer_type")):
            kinds.update(batch.column("answer_type").unique().to_pylist())
            for uid, split in zip(batch.column("uid").to_pylist(), batch.column("split").to_pylist(), strict=True):
                key = int(uid, 16)
                if key not in seen:
                    seen.add(key)
                    self._rows.setdefault(split, []).append(at)
                at += 1
        if "expr" in kinds or "float" in kinds:
            if not available():
                raise ConfigError(
                    "this dataset has answers of type expr, which need math-verify: pip install math-verify"
                )
            self._prover = MathProver()
        if "gym" in kinds:
            self._gym = _gym_scorer()

    @property
    def max_prompt_chars(self) -> int:
        return 0

    @property
    def max_completion_chars(self) -> int:
        return 0

    def draw(self, split: Split, count: int, *, seed: int) -> list[Prompt]:
        """``count`` problems of the split in an order that depends on the seed only."""
        numbers = list(self._rows.get(split, ()))
        random.Random(f"dataset/{split}/{seed}").shuffle(numbers)
        found: list[Prompt] = []
        too_long = 0
        # Read in pieces: what is left out is replaced by the next in order.
        while numbers and len(found) < count:
            piece, numbers = numbers[: count - len(found)], numbers[count - len(found) :]
            for row in self._read(piece, PROBLEM_COLUMNS):
                self._refuse_program(row)
                prompt = self._prompt(row)
                reason = self._fits(prompt)
                if reason is None:
                    found.append(prompt)
                    continue
                if self.params.long_prompts == "refuse":
                    raise ConfigError(
                        f"{row['file']}, line {row['line']}: {reason}; set task.params.long_prompts to leave_out, lower "
                        "sampling.max_new_tokens, or take a model with more positions"
                    )
                too_long += 1
        if too_long:
            self._say(f"{too_long} {split} problems were left out because they do not fit the model")
        if len(found) < count:
            there = len(self._rows.get(split, ()))
            rest = f", {too_long} of them too long for the model" if too_long else ""
            setting = {
                "train": "task.problems", "validation": "evaluation.problems", "test": "evaluation.final_problems"
            }[split]  # fmt: skip
            raise ConfigError(
                f"the dataset version has {there} {split} problems{rest}, but {count} were asked for: lower {setting}, or "
                "import it with other shares"
            )
        return found

    def _refuse_program(self, row: dict[str, Any]) -> None:
        if row["answer_type"] == "gym":
            _check_generator(row)
        elif row["answer_type"] == "program" or row["answer"] is None:
            what = (
                "is judged by tests, which this release cannot run"
                if row["answer_type"] == "program"
                else "has no gold answer"
            )
            raise ConfigError(
                f"{row['file']}, line {row['line']}: the problem {what}; it can be used for fine-tuning on its solutions only "
                "(evaluation.problems and evaluation.final_problems 0)"
            )

    def _read(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Rows by number, in the order asked for."""
        import pyarrow as pa

        wanted = sorted(numbers)
        parts, at, next_wanted = [], 0, 0
        metadata = self._file.metadata
        for group in range(metadata.num_row_groups):
            end = at + metadata.row_group(group).num_rows
            inside = []
            while next_wanted < len(wanted) and wanted[next_wanted] < end:
                inside.append(wanted[next_wanted] - at)
                next_wanted += 1
            if inside:
                parts.append(self._file.read_row_group(group, columns=list(columns)).take(pa.array(inside)))
            at = end
        rows = dict(zip(wanted, pa.concat_tables(parts).to_pylist() if parts else [], strict=True))
        for number in numbers:
            yield rows[number]

    def _prompt(self, row: dict[str, Any]) -> Prompt:
        checking = self._checking(row["verifier"]["config"])
        chance = 1 / len(checking.options) if row["answer_type"] == "choice" and checking.options else None
        return Prompt(
            uid=row["uid"],
            messages=tuple(Message(m["role"], m["content"]) for m in row["prompt"]),
            answer=row["answer"],
            task=self.name,
            meta={
                **json.loads(row["meta"] or "{}"),
                "chance": chance,
                "answer_type": row["answer_type"],
                "checking": row["verifier"]["config"],
                "row": {"id": row["id"], "file": row["file"], "line": row["line"]},
            },
        )

    def _checking(self, config: str) -> Checking:
        found = self._checks.get(config)
        if found is None:
            found = Checking.model_validate_json(config)
            if len(self._checks) < 10_000:
                self._checks[config] = found
        return found

    def generate(self, rng: random.Random) -> Prompt:
        """A random problem of any split."""
        numbers = [number for rows in self._rows.values() for number in rows]
        if not numbers:
            raise ConfigError("the dataset version holds no problem, or its file was not opened")
        return self._prompt(next(iter(self._read([rng.choice(sorted(numbers))], PROBLEM_COLUMNS))))

    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """By the row's comparer. The canonical form is the whole completion without needless blanks: another way to the
        same answer is another solution."""
        from trainer.rewards.compare import judge

        if prompt.meta["answer_type"] == "gym":
            return self._gym_verdict(completion, prompt)
        decision = judge(
            completion, prompt.answer, prompt.meta["answer_type"], self._checking(prompt.meta["checking"]), self._prover
        )
        if decision.right is None:
            return Verdict(None, decision.answer, None, decision.by)
        answer = prompt.answer if decision.right else decision.answer
        if answer == prompt.answer and not decision.right:
            answer = f"{answer} (refused)"  # an answer class of its own: right text at the wrong place
        canonical = None if answer is None else " ".join(completion.split())
        return Verdict(float(decision.right), answer, canonical, decision.by)

    def _gym_verdict(self, completion: str, prompt: Prompt) -> Verdict:
        """By the checker of the generator that the row's metadata names."""
        from trainer.data.task import WRONG
        from trainer.data.tasks.reasoning_gym import gym_verdict
        from trainer.rewards.extract import extract
        from trainer.rewards.gym import Source

        found = extract(completion, self._checking(prompt.meta["checking"]).extract)
        if found is None or not found.text:
            return WRONG
        metadata = _metadata(prompt.meta)
        entry = {"question": prompt.text, "answer": prompt.answer, "metadata": metadata}
        right, by = self._gym(Source(metadata["source_dataset"]), entry, found.text)
        return gym_verdict(right, by, found.text, completion, prompt)

    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """The gold answer itself."""
        if prompt.answer is None:
            raise ConfigError("this problem has no gold answer to show")
        return prompt.answer

    def teacher(self, prompt: Prompt, rng: random.Random) -> str | None:
        """The row's worked solution, else its gold answer, else nothing."""
        return self._solutions.get(prompt.uid, prompt.answer)

    @cached_property
    def _solutions(self) -> dict[str, str]:
        from trainer.data.importers.store import column_batches

        found: dict[str, str] = {}
        for batch in column_batches(self._file, ("uid", "completion")):
            columns = (batch.column(name).to_pylist() for name in ("uid", "completion"))
            found.update((uid, text) for uid, text in zip(*columns, strict=True) if text)
        return found

    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """The same problem: no other guise of it is known."""
        return prompt

    def demonstrations(self, split: Split, rng: random.Random) -> Iterator[tuple[Prompt, str]]:
        """(problem, worked solution) of every row of the split that has one, shuffled anew for each pass; where no row of the
        dataset has one, the gold answers."""
        from trainer.data.importers.store import column_batches

        worked: list[int] = []
        answered: list[int] = []
        at = 0
        for batch in column_batches(self._file, ("split", "completion", "answer")):
            columns = (batch.column(name).to_pylist() for name in ("split", "completion", "answer"))
            for found, completion, answer in zip(*columns, strict=True):
                if found == split:
                    worked += [at] * bool(completion)
                    answered += [at] * (answer is not None)
                at += 1
        numbers = worked or answered
        if not numbers:
            raise ConfigError(
                f"the dataset version has no {split} row with a worked solution or a gold answer to learn from; map a "
                "completion column"
            )
        while True:
            order = list(numbers)
            rng.shuffle(order)
            for begin in range(0, len(order), 2000):
                for row in self._read(order[begin : begin + 2000], (*PROBLEM_COLUMNS, "completion")):
                    yield self._prompt(row), row["completion"] or row["answer"]


def _metadata(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What a reasoning-gym dump says about a problem, as an object or as JSON text; empty where it is neither."""
    found = meta.get("metadata")
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return {}
    return found if isinstance(found, dict) else {}


def _check_generator(row: dict[str, Any]) -> None:
    """Raises ConfigError for a row of a reasoning-gym dump that no sound checker can judge."""
    from trainer.data.tasks.reasoning_gym_catalogue import LEVELS, UNSOUND

    name = _metadata(json.loads(row["meta"] or "{}")).get("source_dataset")
    if name in UNSOUND:
        problem = f"is of the generator {name}, which is not used, because {UNSOUND[name]}"
    elif name not in LEVELS:
        problem = f"names {name!r} in metadata.source_dataset, which is no generator of reasoning-gym"
    else:
        return
    raise ConfigError(f"{row['file']}, line {row['line']}: the problem {problem}; leave such rows out of the file")


def _gym_scorer() -> Any:
    from trainer.data.reasoning_gym import available
    from trainer.rewards.gym import GymScorer

    if not available():
        raise ConfigError(
            "this dataset is judged by reasoning-gym's checkers: pip install -r requirements-tasks.txt, or import it with "
            "answers of type string"
        )
    return GymScorer()


def _compare_version() -> str:
    from trainer.rewards.compare import VERSION

    return VERSION
