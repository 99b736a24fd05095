"""The formats that users hold, recognised by their columns: each gives the mapping that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.contract.dataset import Checking, Shares
from trainer.contract.dataset import Mapping as ColumnMapping
from trainer.contract.events import clean

Columns = Mapping[str, Any]
"""Dotted path → the first value that is there; nested structs appear both whole and by their parts."""
DEEPEST = 4


@dataclass(frozen=True)
class Format:
    """``make`` gives the mapping where the columns are this format's, else None."""

    slug: str
    title: str
    make: Callable[[Columns], ColumnMapping | None]


def columns_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every path in the records with a value that is not null, where there is one; order of first appearance. Names that
    no database stores are left out."""
    found: dict[str, Any] = {}

    def walk(value: Mapping[str, Any], prefix: str, depth: int) -> None:
        for key, inner in value.items():
            path = f"{prefix}{key}"
            if clean(path) != path:  # no mapping can name it
                continue
            if found.get(path) is None:
                found[path] = inner
            if isinstance(inner, Mapping) and depth < DEEPEST:
                walk(inner, f"{path}.", depth + 1)

    for record in records:
        walk(record, "", 1)
    return found


def recognise(records: Sequence[Mapping[str, Any]]) -> tuple[str, ColumnMapping]:
    """(title, mapping) of the first format that fits; by hand, with the likeliest columns, where none does."""
    columns = columns_of(records)
    for one in FORMATS:
        mapping = one.make(columns)
        if mapping is not None:
            return one.title, mapping.model_copy(update={"format": one.slug, **_shared(mapping, columns)})
    return TITLES["by_hand"], _likeliest(columns)


def _shared(mapping: ColumnMapping, columns: Columns) -> dict[str, Any]:
    """What every format may have besides: an id, a split, a system prompt, and the rest kept along."""
    given: dict[str, Any] = {}
    if mapping.id is None:
        given["id"] = _first(columns, "id", "unique_id", "uuid", "task_id", "problem_id", "extra_info.index")
    if mapping.split is None:
        given["split"] = _first(columns, "split", "extra_info.split")
    if mapping.system is None and isinstance(columns.get("system"), str):
        given["system"] = "system"
    if not mapping.meta:
        kept = ("level", "type", "subject", "data_source", "ability", "dataset", "source", "problem_type", "question_type",
                "metadata", "extra_info", "domain", "difficulty", "rejected", "entry_point", "test", "tests", "test_cases",
                "correctness_math_verify")  # fmt: skip
        used = {mapping.prompt, mapping.answer, mapping.completion, mapping.options}
        given["meta"] = tuple(name for name in kept if name in columns and name not in used)
    return given


def _first(columns: Columns, *names: str) -> str | None:
    return next(
        (name for name in names if columns.get(name) is not None and not isinstance(columns[name], (dict, list))), None
    )


def _is_messages(value: Any) -> bool:
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        try:
            value = json.loads(value)
        except ValueError:
            return False
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(one, Mapping) and ({"role", "content"} <= set(one) or {"from", "value"} <= set(one))
            for one in value
        )
    )


def _answered(value: Any) -> bool:
    """Whether messages end with the assistant's."""
    if isinstance(value, str):
        value = json.loads(value)
    last = value[-1]
    return str(last.get("role", last.get("from", ""))).lower() in ("assistant", "gpt", "model")


def _gsm8k(c: Columns) -> ColumnMapping | None:
    if isinstance(c.get("question"), str) and isinstance(c.get("answer"), str) and "####" in c["answer"]:
        checking = Checking(extract=("tag", "boxed", "hashes", "last_line"))
        return ColumnMapping(
            prompt="question",
            answer="answer",
            gold="hashes",
            completion="answer",
            answer_type="auto",
            checking=checking,
        )
    return None


def _hendrycks(c: Columns) -> ColumnMapping | None:
    if isinstance(c.get("problem"), str) and isinstance(c.get("solution"), str) and c.get("answer") is None:
        return ColumnMapping(
            prompt="problem", answer="solution", gold="boxed", completion="solution", answer_type="expr"
        )
    return None


def _math500(c: Columns) -> ColumnMapping | None:
    if not isinstance(c.get("problem"), str) or c.get("answer") is None or _options_in(c):
        return None
    whole = isinstance(c["answer"], int) or (str(c["answer"]).strip().isdigit() and "subject" not in c)
    return ColumnMapping(
        prompt="problem",
        answer="answer",
        completion="solution" if isinstance(c.get("solution"), str) else None,
        answer_type="auto" if whole else "expr",
    )


def _openr1(c: Columns) -> ColumnMapping | None:
    if {"problem", "answer", "generations"} <= set(c) or {"problem", "answer", "problem_type", "question_type"} <= set(
        c
    ):
        trace = "messages" if _is_messages(c.get("messages")) else "generations" if c.get("generations") else "solution"
        return ColumnMapping(
            prompt="problem",
            answer="answer",
            completion=trace if c.get(trace) is not None else None,
            answer_type="expr",
        )
    return None


def _verl(c: Columns) -> ColumnMapping | None:
    if "reward_model.ground_truth" not in c or "prompt" not in c:
        return None
    gold, kind = c["reward_model.ground_truth"], "auto"
    how = "as_is"
    if isinstance(gold, list):
        how = "any_of"
    elif isinstance(gold, str) and gold.strip()[:1] in ('"', "[", "{"):
        how = "json"
    return ColumnMapping(prompt="prompt", answer="reward_model.ground_truth", gold=how, answer_type=kind)  # type: ignore[arg-type]


def _dapo(c: Columns) -> ColumnMapping | None:
    found = _verl(c)
    source = str(c.get("data_source", "")).lower()
    gold = str(c.get("reward_model.ground_truth", "")).strip()
    if found is None or not ("dapo" in source or "Answer:" in str(c.get("prompt"))) or not gold.lstrip("-").isdigit():
        return None
    return found.model_copy(update={"answer_type": "int", "duplicates": "drop"})


def _rlvr(c: Columns) -> ColumnMapping | None:
    if _is_messages(c.get("messages")) and c.get("ground_truth") is not None:
        how = "any_of" if isinstance(c["ground_truth"], list) else "as_is"
        return ColumnMapping(prompt="messages", answer="ground_truth", gold=how, answer_type="auto")  # type: ignore[arg-type]
    return None


def _reasoning_gym(c: Columns) -> ColumnMapping | None:
    metadata = c.get("metadata")
    named = "metadata.source_dataset" in c or (isinstance(metadata, str) and "source_dataset" in metadata)
    if named and isinstance(c.get("question"), str):
        checking = Checking(extract=("tag", "whole"))
        return ColumnMapping(
            prompt="question", answer="answer", answer_type="gym", checking=checking, meta=("metadata",)
        )
    return None


def _options_in(c: Columns) -> str | None:
    return next((name for name in ("options", "choices") if isinstance(c.get(name), (list, dict, str))), None)


def _choice(c: Columns) -> ColumnMapping | None:
    options = _options_in(c)
    question = _first(c, "question", "problem", "prompt", "query")
    answer = _first(c, "answer", "answerKey", "label", "answer_idx", "correct_answer", "target")
    if options is None or question is None or answer is None:
        return None
    return ColumnMapping(prompt=question, answer=answer, gold="option", options=options, answer_type="choice")


def _human_eval(c: Columns) -> ColumnMapping | None:
    """A benchmark: all of it is for tests."""
    if not all(isinstance(c.get(n), str) for n in ("task_id", "prompt", "entry_point", "canonical_solution", "test")):
        return None
    return ColumnMapping(
        prompt="prompt", answer=None, completion="canonical_solution", answer_type="program", id="task_id",
        meta=("entry_point", "test"), shares=Shares(train=0, validation=0, test=1),
    )  # fmt: skip


def _code(c: Columns) -> ColumnMapping | None:
    tests = next((name for name in ("test_cases", "tests", "test", "entry_point") if c.get(name) is not None), None)
    prompt = next((name for name in ("prompt", "question", "problem", "messages") if c.get(name) is not None), None)
    if tests is None or prompt is None or (c.get("answer") is not None and tests == "test"):
        return None
    solution = _first(c, "canonical_solution", "solution", "code", "completion")
    return ColumnMapping(prompt=prompt, answer=None, completion=solution, answer_type="program")


def _preference(c: Columns) -> ColumnMapping | None:
    if c.get("chosen") is None or c.get("rejected") is None:
        return None
    prompt = "prompt" if c.get("prompt") is not None else "chosen"
    return ColumnMapping(prompt=prompt, completion="chosen", answer_type="string", meta=("rejected",))


def _sft(c: Columns) -> ColumnMapping | None:
    for name in ("messages", "conversations"):
        if _is_messages(c.get(name)) and _answered(c[name]):
            return ColumnMapping(prompt=name, completion=name, answer_type="string")
    if c.get("prompt") is not None and c.get("completion") is not None and _answer_in(c) is None:
        return ColumnMapping(prompt="prompt", completion="completion", answer_type="string")
    return None


def _answer_in(c: Columns) -> str | None:
    return next(
        (name for name in ("answer", "ground_truth", "gold", "target", "label") if c.get(name) is not None), None
    )


def _prompt_only(c: Columns) -> ColumnMapping | None:
    if not (isinstance(c.get("prompt"), str) or _is_messages(c.get("prompt"))):
        return None
    answer = _answer_in(c) or ("solution" if isinstance(c.get("solution"), str) else None)
    completion = _first(c, "completion", "solution", "response") if answer != "solution" else "solution"
    boxed = answer == "solution" and "\\boxed" in str(c["solution"])
    how = "boxed" if boxed else "any_of" if isinstance(c.get(answer or ""), list) else "as_is"
    return ColumnMapping(prompt="prompt", answer=answer, gold=how, completion=completion, answer_type="auto")  # type: ignore[arg-type]


FORMATS: tuple[Format, ...] = (
    Format("reasoning_gym", "reasoning-gym dump", _reasoning_gym),
    Format("gsm8k", "GSM8K", _gsm8k),
    Format("choice", "Multiple choice", _choice),
    Format("openr1", "OpenR1-Math", _openr1),
    Format("dapo", "DAPO-Math-17k", _dapo),
    Format("verl", "verl", _verl),
    Format("math500", "MATH-500 / AIME", _math500),
    Format("rlvr", "open-instruct RLVR", _rlvr),
    Format("preference", "TRL preference", _preference),
    Format("human_eval", "HumanEval", _human_eval),
    Format("code", "Code with tests", _code),
    Format("math", "MATH", _hendrycks),
    Format("sft", "TRL supervised (messages, or prompt and completion)", _sft),
    Format("prompt", "TRL prompt with answer columns", _prompt_only),
)
TITLES = {one.slug: one.title for one in FORMATS} | {"by_hand": "Mapped by hand"}


def _likeliest(columns: Columns) -> ColumnMapping:
    """For unknown columns: what is called like a prompt and an answer, else the first text column."""
    texts = [name for name, value in columns.items() if isinstance(value, str) or _is_messages(value)]
    words = ("prompt", "question", "problem", "instruction", "input", "query", "text")
    prompt = next((name for word in words for name in texts if word in name.lower()), texts[0] if texts else "prompt")
    answers = ("answer", "ground_truth", "gold", "target", "label", "solution", "output", "response", "completion")
    answer = next((name for word in answers for name in columns if word in name.lower() and name != prompt), None)
    if isinstance(columns.get(answer or ""), dict):
        answer = None
    given = ColumnMapping(prompt=prompt, answer=answer)
    return given.model_copy(update=_shared(given, columns))
