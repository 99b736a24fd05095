"""What a trainer tells the world: one union of events, JSONL on disk and JSON over HTTP. Nothing else is serialised.

Every event sits in an `Envelope` with a gapless ``seq`` per writer, so that a reader knows what it has and what it
misses. Non-finite numbers travel as null plus a flag (`Numbers`), because JSON has no word for them and a chart must
still show them. ``iteration`` is a counter that never goes back except by a `Rewind` mark.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from trainer.contract.versions import EVENT, UnreadableVersion

EVENT_VERSION: Literal[2] = 2
NonFinite = Literal["nan", "inf", "-inf"]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Iteration = Annotated[int, Field(ge=0, lt=2**31)]


def _finite(value: Any) -> Any:
    """Refuses numbers that no JSON has: 1e400 is read as infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no JSON number; send null, and a flag where the kind has one")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _finite(item)
    return value


Json = Annotated[JsonValue, AfterValidator(_finite)]
# Row, column and kind of a cell that is no number.
Cell = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)], NonFinite]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Axes(_Part):
    """Where on every x axis a point lies. Counts are cumulative over the whole run, all attempts together."""

    iteration: Iteration = Field(description="One counter that never resets.")
    optimizer_step: Count = 0
    phase: str = Field(default="rl", description="The phase that the iteration belonged to.")
    policy_version: Count = 0
    prompts: Count = 0
    rollouts: Count = 0
    sampled_tokens: Count = Field(default=0, description="Tokens drawn for training, end-of-sequence included.")
    trained_tokens: Count = Field(default=0, description="Tokens that entered a loss, once per pass.")
    discarded_tokens: Count = Field(default=0, description="Sampled but thrown away (filters, stops).")
    evaluation_tokens: Count = Field(
        default=0, description="Tokens of the evaluations, drawn here or reused; never part of sampled_tokens."
    )
    device_seconds: float = Field(
        default=0.0, ge=0, description="Wall seconds in which the trainer held its device, in training."
    )


class Numbers(_Part):
    """Named numbers; a key stands in ``values`` as a finite number or as null with its kind in ``nonfinite``."""

    model_config = ConfigDict(allow_inf_nan=True)

    values: dict[str, float | None]
    nonfinite: dict[str, NonFinite] = {}

    @model_validator(mode="after")
    def _flags_match(self) -> Numbers:
        for key, value in self.values.items():
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{key}: {value} is not finite; send null and a flag in 'nonfinite'")
            if (value is None) != (key in self.nonfinite):
                raise ValueError(f"{key}: null needs a flag in 'nonfinite' and a number has none")
        return self


def pack_numbers(values: Mapping[str, float]) -> dict[str, Any]:
    """``values`` and ``nonfinite`` fields for a `Scalars` event from plain floats."""
    flags: dict[str, str] = {}
    out: dict[str, float | None] = {}
    for key, raw in values.items():
        value = float(raw)
        if math.isfinite(value):
            out[key] = value
        else:
            out[key] = None
            flags[key] = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return {"values": out, "nonfinite": flags}


class State(_Part):
    """The trainer's own view of its life; the web's state machine decides what the run is."""

    kind: Literal["state"] = "state"
    state: Literal["starting", "running", "stopping", "finished", "stopped", "failed"]
    message: str = ""
    versions: dict[str, str] = {}


class Progress(_Part):
    """How far the run is. ``stage`` names what goes on now, ``done`` of ``total`` inside it."""

    kind: Literal["progress"] = "progress"
    iteration: Iteration
    total_iterations: Iteration
    stage: str = ""
    done: Count = 0
    total: Count = 0
    eta_seconds: float | None = None


class Scalars(Numbers):
    """One batch of named numbers at one place on all axes."""

    kind: Literal["scalars"] = "scalars"
    axes: Axes


class Histogram(_Part):
    """Counts between edges (one more edge than counts). ``nonfinite`` counts the values that have no place on the axis.

    This and the other drawn kinds are made by `trainer.contract.drawn`, which also keeps them to a size that a page can
    show; ``note`` says what was left out.
    """

    kind: Literal["histogram"] = "histogram"
    axes: Axes
    key: str
    edges: list[float]
    counts: list[Count]
    nonfinite: dict[NonFinite, Count] = {}
    note: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Histogram:
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError(f"{self.key}: {len(self.counts)} counts need one edge more, found {len(self.edges)}")
        if any(b <= a for a, b in pairwise(self.edges)):
            raise ValueError(f"{self.key}: the edges must ascend")
        return self


class Heatmap(_Part):
    """A matrix ``z`` with named rows ``y`` and columns ``x``; null is an empty cell, or what ``nonfinite`` says."""

    kind: Literal["heatmap"] = "heatmap"
    axes: Axes
    key: str
    x: list[str]
    y: list[str]
    z: list[list[float | None]]
    nonfinite: list[Cell] = []
    note: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Heatmap:
        if len(self.z) != len(self.y) or any(len(row) != len(self.x) for row in self.z):
            raise ValueError(f"{self.key}: z must have {len(self.y)} rows of {len(self.x)} values")
        return self


class Scatter(_Part):
    """Points with optional labels; a null coordinate is what ``nonfinite`` (point, "x" or "y", kind) says."""

    kind: Literal["scatter"] = "scatter"
    axes: Axes
    key: str
    x: list[float | None]
    y: list[float | None]
    labels: list[str] = []
    x_title: str = ""
    y_title: str = ""
    nonfinite: list[tuple[Count, Literal["x", "y"], NonFinite]] = []
    note: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Scatter:
        if len(self.x) != len(self.y) or len(self.labels) not in (0, len(self.x)):
            found = f"{len(self.x)} x, {len(self.y)} y, {len(self.labels)} labels"
            raise ValueError(f"{self.key}: each point needs an x, a y and, if any has one, a label; found {found}")
        return self


class Table(_Part):
    """Rows of JSON values under named columns; ``nonfinite`` names the cells that are NaN or infinite."""

    kind: Literal["table"] = "table"
    axes: Axes
    key: str
    columns: list[str]
    rows: list[list[Json]]
    nonfinite: list[Cell] = []
    note: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Table:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"{self.key}: every row must have {len(self.columns)} values")
        return self


class Text(_Part):
    """A longer text, shown as plain text."""

    kind: Literal["text"] = "text"
    axes: Axes
    key: str
    text: str
    note: str = ""


class SamplerSettings(_Part):
    """How an evaluation sampled; part of the evaluation set's identity."""

    temperature: float
    top_p: float = 1.0
    top_k: int = Field(default=0, ge=0, description="0: all tokens.")
    stop: list[str] = Field(default=[], description="Texts that end a sample, besides the end-of-sequence token.")
    max_new_tokens: int

    def identity(self) -> dict[str, Any]:
        """What enters a set's identity: settings that came later count only where they are used, so that a set keeps
        the identity it had before they existed."""
        later = {name: value for name in ("top_k", "stop") if (value := getattr(self, name))}
        return {"temperature": self.temperature, "top_p": self.top_p, "max_new_tokens": self.max_new_tokens, **later}


class AnswerCount(_Part):
    """How often one final answer was given; key ``__other__`` pools what is beyond the 20 most frequent."""

    key: str
    count: int
    correct: bool


class ProblemResult(_Part):
    """One problem of an evaluation: n samples, c correct, and what they were.

    ``correct_forms`` are the counts of distinct canonical forms among the correct samples; they sum to c.
    """

    uid: str
    n: int
    c: int
    truncated: int = 0
    answers: list[AnswerCount] = []
    correct_forms: list[int] = []

    @model_validator(mode="after")
    def _adds_up(self) -> ProblemResult:
        if not 0 <= self.c <= self.n or sum(self.correct_forms) != self.c:
            raise ValueError(f"problem {self.uid}: n={self.n}, c={self.c}, correct forms {self.correct_forms}")
        return self


class SetProblem(_Part):
    """A problem of an evaluation set, for display and for the chance line."""

    uid: str
    text: str
    answer: str | None = None
    chance: float | None = None


class EvaluationSet(_Part):
    """Identity of what is measured: curves over different ``id`` are not comparable without a warning."""

    id: str
    task: str
    split: Literal["train", "validation", "test"]
    checker_version: str
    sampler: SamplerSettings
    n: int
    problems: list[SetProblem]


class Source(_Part):
    """Where a reused evaluation was measured; ``run`` is empty where that was not recorded."""

    run: str
    attempt: int = Field(ge=0)
    iteration: Iteration


class Evaluation(_Part):
    """Per-problem (n, c) of one policy on one set; pass@k is computed by whoever reads it.

    The set's problems are sent with its first evaluation of an attempt; later events name it by id (``set`` null).
    ``seed`` chose the draws and ``engine`` drew them: neither is part of the set's identity, since other draws measure
    the same thing, but only an evaluation that agrees in both is the same evaluation and may be reused.
    ``fingerprint`` is what `fingerprint_of` gave where it was measured.
    """

    kind: Literal["evaluation"] = "evaluation"
    axes: Axes
    name: str = Field(description="'validation' during training, 'test' for the final one.")
    set_id: str
    set: EvaluationSet | None = None
    weights_hash: str
    policy: str = "policy"
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    engine: str = ""
    reused: Source | None = None
    problems: list[ProblemResult]
    mean_length: float | None = None
    token_entropy: float | None = Field(default=None, description="Exact mean token entropy of the samples, nats.")
    tokens: Count | None = Field(default=None, description="Sampled tokens, end-of-sequence included.")
    fingerprint: str = ""


def fingerprint_of(event: Evaluation) -> str:
    """SHA-256 over everything that was measured and how, so that a copy that differs in anything is found out."""
    names = ("set_id", "weights_hash", "policy", "seed", "engine", "problems", "mean_length", "token_entropy", "tokens")
    document = event.model_dump(mode="json", include=set(names))
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


class RolloutGroup(_Part):
    """Index entry of one prompt's rollouts inside a part."""

    uid: str
    text: str
    answer: str | None = None
    n: int
    c: int
    first_row: int
    mean_reward: float | None = None


class Rollouts(_Part):
    """A Parquet part with an iteration's rollouts; ``uri`` is relative to the run folder."""

    kind: Literal["rollouts"] = "rollouts"
    axes: Axes
    uri: str
    rows: int
    groups: list[RolloutGroup]


class Checkpoint(_Part):
    """A complete checkpoint; ``uri`` is relative to the run folder. Its manifest was written last. ``metrics``: of the
    validation of these very weights, where there was one."""

    kind: Literal["checkpoint"] = "checkpoint"
    axes: Axes
    uri: str
    weights_hash: str
    size_bytes: Count
    final: bool = False
    metrics: dict[str, float] = {}


class CheckpointRemoved(_Part):
    """Retention removed a checkpoint's files."""

    kind: Literal["checkpoint_removed"] = "checkpoint_removed"
    uri: str


class CheckpointRefused(_Part):
    """A checkpoint was not loaded, because its files are not what its manifest says; ``reason`` names the file."""

    kind: Literal["checkpoint_refused"] = "checkpoint_refused"
    uri: str
    reason: str


class Phase(_Part):
    """A phase begins at ``axes.iteration``; it ends where the next begins."""

    kind: Literal["phase"] = "phase"
    axes: Axes
    name: str
    title: str


class Mark(_Part):
    """Something happened at an iteration: resume (``rewind``), live edit, alert, stop."""

    kind: Literal["mark"] = "mark"
    mark: Literal["rewind", "live_edit", "alert", "stop"]
    iteration: int = Field(ge=-1, lt=2**31)
    message: str = ""
    data: dict[str, Json] = {}


class Log(_Part):
    """A line for the log tail."""

    kind: Literal["log"] = "log"
    level: Literal["debug", "info", "warning", "error"] = "info"
    message: str


class Opaque(_Part):
    """What a reader makes of an event that it does not know: the document as it came, and why it stays closed."""

    kind: Literal["opaque"] = "opaque"
    of: str
    reason: str
    document: dict[str, Json]


Event = Annotated[
    Union[
        State,
        Progress,
        Scalars,
        Histogram,
        Heatmap,
        Scatter,
        Table,
        Text,
        Evaluation,
        Rollouts,
        Checkpoint,
        CheckpointRemoved,
        CheckpointRefused,
        Phase,
        Mark,
        Log,
        Opaque,
    ],
    Field(discriminator="kind"),
]


EVENT_KINDS = frozenset(get_args(part.model_fields["kind"].annotation)[0] for part in get_args(get_args(Event)[0]))


class Envelope(_Part):
    """One line of ``events.jsonl``. ``seq`` counts from 1 without gaps per (run, attempt, writer)."""

    v: Literal[2] = EVENT_VERSION
    run: str
    attempt: Annotated[int, Field(ge=1, lt=2**31)]
    writer: str = "trainer"
    seq: Annotated[int, Field(ge=1, lt=2**63)]
    time: datetime
    monotonic: float
    event: Event


_ENVELOPE = TypeAdapter(Envelope)
_NUL = b"\\u0000"


def parse_line(line: str | bytes) -> Envelope:
    """One complete JSONL line, of this or an older version. Raises ValueError naming what is wrong with it.

    A line that only a newer trainer understands becomes an `Opaque` event. NUL and lone surrogates, which a model may
    well sample and no database stores, become U+FFFD.
    """
    data = line.encode(errors="surrogatepass") if isinstance(line, str) else line
    if _NUL not in data:
        try:
            return _ENVELOPE.validate_json(data)
        except ValidationError as error:
            refused: ValidationError | None = error
    else:
        refused = None
    document = cleaned(_loads(data))
    if not isinstance(document, dict):
        raise refused or ValueError(f"expected a JSON object, found {type(document).__name__}")
    return _ENVELOPE.validate_python(_known(document))


def _known(document: dict[str, Any]) -> dict[str, Any]:
    """The envelope in the current version, with what this release does not know as `Opaque`."""
    try:
        document = EVENT.migrate(document)
    except UnreadableVersion as error:
        known = {name: document[name] for name in Envelope.model_fields if name in document}
        return {**known, "v": EVENT_VERSION, "event": _opaque(document.get("event"), str(error))}
    event = document.get("event")
    kind = event.get("kind") if isinstance(event, dict) else None
    if isinstance(kind, str) and kind not in EVENT_KINDS:
        return {**document, "event": _opaque(event, f"this release knows no event of the kind {kind!r}")}
    return document


def _opaque(event: Any, reason: str) -> dict[str, Any]:
    document = event if isinstance(event, dict) else {"event": event}
    return {"kind": "opaque", "of": str(document.get("kind", "")), "reason": reason, "document": document}


def _loads(data: bytes) -> Any:
    """JSON as the standard has it: NaN and Infinity are no numbers. Raises ValueError."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is no JSON number; send null and a flag in 'nonfinite'")

    try:
        return json.loads(data.decode("utf-8", errors="replace"), parse_constant=refuse)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def cleaned(value: Any) -> Any:
    """The same document with strings that UTF-8 and databases can hold."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean(name): cleaned(item) for name, item in value.items()}
    return value


def clean(text: str) -> str:
    """The text with U+FFFD in place of NUL and of lone surrogates."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
