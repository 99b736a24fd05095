"""What a trainer tells the world: one union of events, JSONL on disk and JSON over HTTP. Nothing else is serialised.

Every event sits in an `Envelope` with a gapless ``seq`` per writer, so that a reader knows what it has and what it
misses. Non-finite numbers travel as null plus a flag (`Numbers`), because JSON has no word for them and a chart must
still show them. ``iteration`` is a counter that never goes back except by a `Rewind` mark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, model_validator

EVENT_VERSION: Literal[1] = 1
NonFinite = Literal["nan", "inf", "-inf"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Axes(_Part):
    """Where on every x axis a point lies. Counts are cumulative over the whole run, all attempts together."""

    iteration: int = Field(ge=0, description="One counter that never resets.")
    optimizer_step: int = 0
    phase: str = "rl"
    policy_version: int = 0
    prompts: int = 0
    rollouts: int = 0
    sampled_tokens: int = Field(0, description="Tokens drawn for training, end-of-sequence included.")
    trained_tokens: int = Field(0, description="Tokens that entered a loss, once per pass.")
    discarded_tokens: int = Field(0, description="Sampled but thrown away (filters, stops).")
    evaluation_tokens: int = Field(0, description="Tokens drawn for evaluations; never part of sampled_tokens.")
    device_seconds: float = Field(0.0, description="Wall seconds in which the trainer held its device, in training.")


class Numbers(_Part):
    """Named numbers; a key stands in ``values`` as a finite number or as null with its kind in ``nonfinite``."""

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
    iteration: int
    total_iterations: int
    stage: str = ""
    done: int = 0
    total: int = 0
    eta_seconds: float | None = None


class Scalars(Numbers):
    """One batch of named numbers at one place on all axes."""

    kind: Literal["scalars"] = "scalars"
    axes: Axes


class Histogram(_Part):
    """Counts between edges (one more edge than counts)."""

    kind: Literal["histogram"] = "histogram"
    axes: Axes
    key: str
    edges: list[float]
    counts: list[int]


class Heatmap(_Part):
    """A matrix ``z`` with named rows ``y`` and columns ``x``."""

    kind: Literal["heatmap"] = "heatmap"
    axes: Axes
    key: str
    x: list[str]
    y: list[str]
    z: list[list[float | None]]


class Scatter(_Part):
    """Points with optional labels."""

    kind: Literal["scatter"] = "scatter"
    axes: Axes
    key: str
    x: list[float]
    y: list[float]
    labels: list[str] = []


class Table(_Part):
    """Rows of JSON values under named columns."""

    kind: Literal["table"] = "table"
    axes: Axes
    key: str
    columns: list[str]
    rows: list[list[JsonValue]]


class Text(_Part):
    """A longer text, shown as plain text."""

    kind: Literal["text"] = "text"
    axes: Axes
    key: str
    text: str


class SamplerSettings(_Part):
    """How an evaluation sampled; part of the evaluation set's identity."""

    temperature: float
    top_p: float = 1.0
    max_new_tokens: int


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


class Evaluation(_Part):
    """Per-problem (n, c) of one policy on one set; pass@k is computed by whoever reads it.

    The set's problems are sent with its first evaluation of an attempt; later events name it by id (``set`` null).
    """

    kind: Literal["evaluation"] = "evaluation"
    axes: Axes
    name: str = Field(description="'validation' during training, 'test' for the final one.")
    set_id: str
    set: EvaluationSet | None = None
    weights_hash: str
    policy: str = "policy"
    reused: bool = False
    problems: list[ProblemResult]
    mean_length: float | None = None
    token_entropy: float | None = Field(None, description="Exact mean token entropy of the samples, nats.")


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
    """A complete checkpoint; ``uri`` is relative to the run folder. Its manifest was written last."""

    kind: Literal["checkpoint"] = "checkpoint"
    axes: Axes
    uri: str
    weights_hash: str
    size_bytes: int
    final: bool = False


class CheckpointRemoved(_Part):
    """Retention removed a checkpoint's files."""

    kind: Literal["checkpoint_removed"] = "checkpoint_removed"
    uri: str


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
    iteration: int
    message: str = ""
    data: dict[str, JsonValue] = {}


class Log(_Part):
    """A line for the log tail."""

    kind: Literal["log"] = "log"
    level: Literal["debug", "info", "warning", "error"] = "info"
    message: str


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
        Phase,
        Mark,
        Log,
    ],
    Field(discriminator="kind"),
]


class Envelope(_Part):
    """One line of ``events.jsonl``. ``seq`` counts from 1 without gaps per (run, attempt, writer)."""

    v: Literal[1] = EVENT_VERSION
    run: str
    attempt: int = Field(ge=1)
    writer: str = "trainer"
    seq: int = Field(ge=1)
    time: datetime
    monotonic: float
    event: Event


_ENVELOPE = TypeAdapter(Envelope)


def parse_line(line: str | bytes) -> Envelope:
    """One complete JSONL line. Raises pydantic.ValidationError (a ValueError) naming what is wrong with it."""
    return _ENVELOPE.validate_json(line)
