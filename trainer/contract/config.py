"""The run configuration: one pydantic document in, and nothing else.

``parse_config`` turns a JSON document into a `RunConfig`. Whoever launches (command line, browser, API, study) goes
through it, so a wrong setting is refused with the same words everywhere and before anything takes a device. Parameters
of methods and tasks live with them and are checked by `trainer.methods.resolve`, which calls this first.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo

SCHEMA_VERSION: Literal[1] = 1


def setting(default: Any, title: str, help: str, *, unit: str = "", advanced: bool = False, **limits: Any) -> Any:
    """A config field with what a launch form needs: title, help text, unit, and whether it is folded away."""
    extra: dict[str, JsonValue] = {"unit": unit, "advanced": advanced}
    return Field(default, title=title, description=help, json_schema_extra=extra, **limits)


class Section(BaseModel):
    """Base of every part of the document: unknown keys are errors, values are frozen, NaN is no setting."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Architecture(Section):
    """A fresh decoder in the standard transformers layout, used when a run starts from no checkpoint."""

    family: Literal["llama", "qwen2"] = setting("llama", "Family", "Model class of transformers.")
    hidden_size: int = setting(128, "Width", "Size of the residual stream.", ge=8, le=16384)
    layers: int = setting(4, "Layers", "Number of decoder layers.", ge=1, le=200)
    heads: int = setting(4, "Attention heads", "Must divide the width.", ge=1, le=256)
    kv_heads: int = setting(4, "Key/value heads", "Must divide the attention heads.", ge=1, le=256, advanced=True)
    intermediate_size: int = setting(384, "MLP width", "Hidden size of the feed-forward layer.", ge=8, le=65536)
    max_positions: int = setting(128, "Positions", "Longest sequence, prompt and answer together.", unit="tokens", ge=8)
    tie_embeddings: bool = setting(True, "Tie embeddings", "One matrix embeds tokens and predicts them.", advanced=True)

    @model_validator(mode="after")
    def _divides(self) -> Architecture:
        if self.hidden_size % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"width {self.hidden_size}, heads {self.heads}, key/value heads {self.kv_heads}: heads must divide the "
                "width and key/value heads must divide the heads"
            )
        return self


class PolicySection(Section):
    """Where the policy's weights come from: a checkpoint folder, or a fresh architecture."""

    checkpoint: str | None = setting(
        None, "Base checkpoint", "Folder in the transformers layout, relative to the file storage (or a local path)."
    )
    architecture: Architecture | None = setting(
        None, "New architecture", "Start from random weights instead of a checkpoint.", advanced=True
    )

    @model_validator(mode="after")
    def _one(self) -> PolicySection:
        if (self.checkpoint is None) == (self.architecture is None):
            raise ValueError(
                "give either policy.checkpoint (a folder) or policy.architecture (a fresh model), not both"
            )
        return self


class TaskSection(Section):
    """Which problems the run trains on."""

    name: str = setting("countdown", "Task", "Procedural task; `python -m trainer tasks` lists them.")
    params: dict[str, JsonValue] = setting({}, "Task parameters", "Parameters of the task.")
    problems: int = setting(2000, "Training problems", "Distinct problems of the training split.", ge=1, le=1_000_000)
    seed: int = setting(
        0, "Problem seed", "Which problems are generated; independent of the run's seed.", ge=0, advanced=True
    )


class SamplingSection(Section):
    """How rollouts are drawn while training."""

    temperature: float = setting(1.0, "Temperature", "Divides the logits, when sampling and when scoring.", gt=0, le=5)
    max_new_tokens: int = setting(
        24, "Longest answer", "Tokens after the prompt, end-of-sequence included.", unit="tokens", ge=1, le=32768
    )


class EvaluationSection(Section):
    """Validation during training, and the final evaluation on the test split."""

    every: int = setting(10, "Validate every", "0 validates only at start and end.", unit="iterations", ge=0)
    problems: int = setting(
        100, "Validation problems", "From the validation split, fixed for the run.", ge=1, le=100_000
    )
    samples: int = setting(16, "Samples per problem", "n of (n, c); pass@k exists for k ≤ n.", ge=1, le=4096)
    final_problems: int = setting(
        200, "Test problems", "0 leaves the final evaluation out; 200 or more for a headline.", ge=0, le=100_000
    )
    final_samples: int = setting(64, "Test samples per problem", "n of the final evaluation.", ge=1, le=4096)
    temperature: float = setting(1.0, "Evaluation temperature", "Of both evaluations.", gt=0, le=5, advanced=True)
    seed: int = setting(
        0, "Evaluation seed", "Fixed across runs so that curves share their problems and draws.", ge=0, advanced=True
    )


class BudgetSection(Section):
    """When the run ends: the first limit reached."""

    iterations: int = setting(
        60,
        "Iterations",
        "An iteration draws prompts, rolls out and updates once (SFT: one optimiser step).",
        ge=1,
        le=10_000_000,
    )
    sampled_tokens: int | None = setting(
        None,
        "Sampled training tokens",
        "Stop at this many; the axis of equal compute.",
        unit="tokens",
        ge=1,
        advanced=True,
    )
    device_seconds: float | None = setting(
        None, "Device time", "Stop after this much training time.", unit="s", gt=0, advanced=True
    )


class CheckpointSection(Section):
    """How often the whole training state is saved."""

    every: int = setting(10, "Checkpoint every", "0 saves only at the end and when stopped.", unit="iterations", ge=0)
    keep: int = setting(2, "Keep", "Newest checkpoints kept; the final one always is.", ge=1, le=1000, advanced=True)


class OptimizerSection(Section):
    """AdamW."""

    learning_rate: float = setting(1e-4, "Learning rate", "0 freezes the policy (a control run).", ge=0, le=1)
    warmup_steps: int = setting(0, "Warm-up", "Optimiser steps of linear warm-up.", unit="steps", ge=0, advanced=True)
    schedule: Literal["constant", "cosine"] = setting("constant", "Schedule", "After the warm-up.", advanced=True)
    weight_decay: float = setting(0.01, "Weight decay", "Decoupled, on matrices only.", ge=0, le=1, advanced=True)
    beta1: float = setting(0.9, "β₁", "First-moment decay.", ge=0, lt=1, advanced=True)
    beta2: float = setting(0.999, "β₂", "Second-moment decay.", ge=0, lt=1, advanced=True)
    max_grad_norm: float = setting(1.0, "Gradient clip", "Global L2 norm.", gt=0, advanced=True)


class AlgorithmSection(Section):
    """The base algorithm: a row over independent parts. ``preset`` fills what is not given (contract/presets.py)."""

    preset: str = setting("grpo", "Base algorithm", "A named row of defaults; every field below may differ from it.")
    prompts_per_iteration: int = setting(32, "Prompts per iteration", "Distinct prompts drawn.", ge=1, le=65536)
    num_generations: int = setting(16, "Rollouts per prompt", "Group size G.", ge=1, le=4096)
    advantage: Literal["group_zscore", "group_mean", "leave_one_out"] = setting(
        "group_zscore", "Advantage", "(R − mean)/(std + ε), R − mean, or R − mean of the others.", advanced=True
    )
    std_unbiased: bool = setting(True, "Unbiased std", "Divide by G − 1.", advanced=True)
    adv_eps: float = setting(1e-6, "Advantage ε", "Added to the group's std.", ge=0, le=1, advanced=True)
    surrogate: Literal["clip", "cispo", "reinforce"] = setting(
        "clip", "Surrogate", "PPO clip, CISPO (stopped, capped ratio), or plain log-prob.", advanced=True
    )
    ratio: Literal["token", "sequence"] = setting(
        "token", "Ratio level", "Token ratio, or its geometric mean (GSPO).", advanced=True
    )
    epsilon: float = setting(0.2, "Clip below", "1 − ε is the lower bound of the ratio.", ge=0, le=1, advanced=True)
    epsilon_high: float = setting(
        0.2, "Clip above", "1 + ε_high is the upper bound of the ratio.", ge=0, le=100, advanced=True
    )
    dual_clip: float | None = setting(None, "Dual clip", "Bounds the loss at −A·c where A < 0.", gt=1, advanced=True)
    aggregation: Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"] = (
        setting("seq-mean-token-mean", "Aggregation", "How token losses become one number.", advanced=True)
    )
    kl_coef: float = setting(0.0, "KL coefficient β", "Weight of the KL to the base in the loss.", ge=0, le=10)
    measure_kl: bool = setting(
        True,
        "Measure KL to the base",
        "Where β is 0: on the rollouts of iterations that validate. Keeps the base model in memory.",
        advanced=True,
    )
    kl_estimator: Literal["k1", "k2", "k3"] = setting("k3", "KL estimator", "Used as a loss term.", advanced=True)
    entropy_coef: float = setting(0.0, "Entropy bonus", "Weight of the mean token entropy.", ge=0, le=10)
    num_iterations: int = setting(
        1, "Epochs per batch", "Passes over one batch of rollouts (μ).", ge=1, le=64, advanced=True
    )
    minibatches: int = setting(
        1, "Mini-batches", "Optimiser steps per pass; prompts are never split.", ge=1, le=1024, advanced=True
    )
    microbatch_tokens: int = setting(
        16384,
        "Micro-batch",
        "Tokens per forward pass; does not change the result.",
        unit="tokens",
        ge=64,
        advanced=True,
    )


class MethodChoice(Section):
    """One method on top of the base algorithm."""

    slug: str = setting("sps", "Method", "`python -m trainer methods` lists them.")
    params: dict[str, JsonValue] = setting({}, "Method parameters", "Checked by the method's own class.")


class SftSection(Section):
    """Supervised fine-tuning on a task's oracle solutions."""

    rows: int = setting(
        20_000, "Rows", "Distinct (problem, solution) pairs generated from the training split.", ge=1, le=10_000_000
    )
    batch_size: int = setting(128, "Batch size", "Rows per optimiser step.", ge=1, le=65536)
    log_every: int = setting(
        10, "Log every", "Optimiser steps averaged into one point.", unit="steps", ge=1, advanced=True
    )


class _Common(Section):
    schema_version: Literal[1] = SCHEMA_VERSION
    seed: int = setting(0, "Seed", "Same seed, same bits (one machine kind, versions and thread count).", ge=0)
    policy: PolicySection
    task: TaskSection = TaskSection()
    evaluation: EvaluationSection = EvaluationSection()
    sampling: SamplingSection = SamplingSection()
    save_rollouts_every: int = setting(
        1, "Keep rollouts every", "0 keeps none.", unit="iterations", ge=0, advanced=True
    )


class RlConfig(_Common):
    """Reinforcement learning with verifiable rewards."""

    kind: Literal["rl"] = "rl"
    algorithm: AlgorithmSection = AlgorithmSection()
    methods: tuple[MethodChoice, ...] = ()
    optimizer: OptimizerSection = OptimizerSection()
    budget: BudgetSection = BudgetSection()
    checkpoints: CheckpointSection = CheckpointSection()


class SftConfig(_Common):
    """Fine-tuning on oracle solutions; also how a base checkpoint is made."""

    kind: Literal["sft"] = "sft"
    sft: SftSection = SftSection()
    optimizer: OptimizerSection = OptimizerSection(learning_rate=1e-3, schedule="cosine", warmup_steps=50)
    budget: BudgetSection = BudgetSection(iterations=1000)
    checkpoints: CheckpointSection = CheckpointSection(every=200)


class EvaluateConfig(_Common):
    """One evaluation of one checkpoint on the test split."""

    kind: Literal["evaluate"] = "evaluate"


RunConfig = Annotated[Union[RlConfig, SftConfig, EvaluateConfig], Field(discriminator="kind")]
KINDS: dict[str, type[_Common]] = {"rl": RlConfig, "sft": SftConfig, "evaluate": EvaluateConfig}
_ADAPTER: TypeAdapter[Any] = TypeAdapter(RunConfig)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration: where (dotted path), and a sentence that says what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or 'config'}: {self.message}"


class InvalidConfig(ValueError):
    """The document is not a valid configuration; ``problems`` lists everything found at once."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(str(p) for p in problems))
        self.problems = problems


def parse_config(document: Any) -> RlConfig | SftConfig | EvaluateConfig:
    """Validates a JSON document. Raises InvalidConfig with every problem found; unknown keys name the nearest known."""
    if not isinstance(document, dict):
        raise InvalidConfig([Problem("", f"expected a JSON object, found {type(document).__name__}")])
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(KINDS)
        raise InvalidConfig([Problem("kind", f"found {kind!r}, expected one of {known}")])
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        text = f"found version {version!r}; this release reads version {SCHEMA_VERSION}"
        raise InvalidConfig([Problem("schema_version", text)])
    try:
        parsed: RlConfig | SftConfig | EvaluateConfig = _ADAPTER.validate_python(document)
    except ValidationError as error:
        raise InvalidConfig(problems_of(error, KINDS[kind], prefix="")) from error
    return parsed


def problems_of(error: ValidationError, model: type[BaseModel], *, prefix: str) -> list[Problem]:
    """A ValidationError of ``model`` as problems with dotted paths under ``prefix``."""
    out = []
    for item in error.errors(include_url=False):
        loc = [str(p) for p in item["loc"] if p not in KINDS]
        path = ".".join(([prefix] if prefix else []) + loc)
        if item["type"] == "extra_forbidden":
            message = _unknown_key(loc, model)
        elif item["type"] == "missing":
            message = "is required"
        else:
            message = item["msg"].removeprefix("Value error, ")
            if "input" in item and not isinstance(item["input"], (dict, list)):
                message += f" (found {item['input']!r})"
        out.append(Problem(path, message))
    return out


def _unknown_key(loc: list[str], model: type[BaseModel]) -> str:
    known = list(_parent_of(loc, model).model_fields)
    near = difflib.get_close_matches(loc[-1], known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known settings here: {', '.join(known) or 'none'}"
    return f"unknown setting {loc[-1]!r}; {hint}"


def _parent_of(loc: list[str], model: type[BaseModel]) -> type[BaseModel]:
    for part in loc[:-1]:
        if part.isdigit():
            continue
        field = model.model_fields.get(part)
        nested = next(_models_in(field.annotation), None) if field else None
        if nested is None:
            return model
        model = nested
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for arg in get_args(annotation):
        yield from _models_in(arg)


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The pydantic model a field holds, if it holds one."""
    return next(_models_in(field.annotation), None)
