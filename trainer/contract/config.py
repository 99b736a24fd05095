"""The run configuration: one pydantic document in, and nothing else.

``parse_config`` turns a JSON document into a `RunConfig`. Whoever launches (command line, browser, API, study) goes
through it, so a wrong setting is refused with the same words everywhere and before anything takes a device. Parameters
of methods and tasks live with them and are checked by `trainer.methods.resolve`, which calls this first.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import (
    BaseModel,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from trainer.contract.algorithm import AlgorithmSection as AlgorithmSection
from trainer.contract.settings import Section as Section
from trainer.contract.settings import setting as setting
from trainer.contract.versions import CONFIG, UnreadableVersion

SCHEMA_VERSION: Literal[1] = 1


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


LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LoraTarget = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class LoraSection(Section):
    """Low-rank adapters (LoRA, arXiv 2106.09685): W + (α/r)·B·A with W frozen, so that only A and B are trained and saved."""

    rank: int | None = setting(
        None,
        "LoRA rank r",
        "Empty trains all weights, or goes on with the adapter where the base checkpoint is one.",
        ge=1,
        le=1024,
        advanced=True,
        part="LoRA",
    )
    alpha: int = setting(32, "LoRA α", "The update is scaled by α/r.", ge=1, le=4096, advanced=True, part="LoRA")
    dropout: float = setting(
        0.0,
        "LoRA dropout",
        "Of the adapters' input, in fine-tuning only: in RL it would make ratios to the sampler noise.",
        ge=0,
        lt=1,
        advanced=True,
        part="LoRA",
    )
    targets: tuple[LoraTarget, ...] = setting(
        LORA_TARGETS,
        "LoRA on",
        "Projections that get an adapter, in every layer.",
        min_length=1,
        advanced=True,
        part="LoRA",
    )


class PolicySection(Section):
    """Where the policy's weights come from (a checkpoint folder, or a fresh architecture), and which of them are trained."""

    checkpoint: str | None = setting(
        None,
        "Base checkpoint",
        "Folder in the transformers layout or GGUF file, relative to the file storage (or a local path); or org/name on the "
        "Hugging Face hub.",
    )
    architecture: Architecture | None = setting(
        None, "New architecture", "Start from random weights instead of a checkpoint.", advanced=True
    )
    lora: LoraSection = LoraSection()

    @model_validator(mode="after")
    def _adapts_a_checkpoint(self) -> PolicySection:
        if self.architecture is not None and self.lora.rank is not None:
            raise ValueError(
                "found policy.lora.rank with policy.architecture; adapters are trained on a checkpoint, so leave the rank empty"
            )
        return self

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


StopString = Annotated[str, Field(min_length=1, max_length=200)]


_truncation = partial(setting, part="Truncated sampling", advanced=True)


class SamplingSection(Section):
    """How rollouts are drawn while training. ``max_new_tokens`` and ``stop`` hold for evaluations too.

    Truncation is of rollouts only, and of all that is trained on them: the loss has the log-probs of the truncated
    distribution (`trainer.policy.truncation`).
    """

    temperature: float = setting(1.0, "Temperature", "Divides the logits, when sampling and when scoring.", gt=0, le=5)
    max_new_tokens: int = setting(
        24, "Longest answer", "Tokens after the prompt, end-of-sequence included.", unit="tokens", ge=1, le=32768
    )
    top_k: int = _truncation(0, "Top-k", "Only the k most likely tokens are drawn; 0: all.", ge=0, le=1_000_000)
    top_p: float = _truncation(
        1.0, "Top-p", "Only the fewest tokens that together have this probability are drawn; 1: all.", gt=0, le=1
    )
    min_p: float = _truncation(
        0.0,
        "Min-p",
        "Only tokens with at least this share of the likeliest one's probability are drawn; 0: all.",
        ge=0,
        le=1,
    )
    stop: tuple[StopString, ...] = setting(
        (),
        "Stop strings",
        "Texts that end an answer as the end-of-sequence token does. Their tokens stay in the answer, are judged with it "
        "and are trained. They end the answers of evaluations too.",
        max_length=16,
        advanced=True,
    )

    @field_validator("stop")
    @classmethod
    def _each_stop_once(cls, strings: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(strings))

    @property
    def truncated(self) -> bool:
        """Whether rollouts are drawn from less than the whole distribution."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


class RolloutSection(Section):
    """Which engine draws the answers of rollouts and evaluations."""

    engine: Literal["auto", "torch", "vllm"] = setting(
        "auto", "Engine", "auto: vLLM on a host with a GPU where it is installed, torch otherwise.", advanced=True
    )
    gpu_memory: float = setting(
        0.3,
        "GPU memory for vLLM",
        "Share of the GPU's memory for vLLM's copy of the weights and its cache.",
        gt=0,
        lt=1,
        advanced=True,
    )


class HardwareSection(Section):
    """On what a run computes."""

    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", "Device", "auto: the GPU where the run's host has one.", advanced=True
    )
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto",
        "Matrix products in",
        "auto: bfloat16 on a GPU that has it, float32 otherwise. Weights and optimiser are float32 always.",
        advanced=True,
    )
    processes: int = setting(
        1,
        "Processes",
        "Train together on this host, with a GPU each where there are GPUs (FSDP2).",
        ge=1,
        le=64,
        advanced=True,
    )


class EvaluationSection(Section):
    """Validation during training, and the final evaluation on the test split."""

    every: int = setting(10, "Validate every", "0 validates only at start and end.", unit="iterations", ge=0)
    problems: int = setting(
        100, "Validation problems", "Fixed for the run; 0 leaves validations out.", ge=0, le=100_000
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
    keep_best: int = setting(
        0,
        "Keep best",
        "Of those with a validation, this many of the best are kept as well.",
        ge=0,
        le=100,
        advanced=True,
    )
    best_metric: str = setting(
        "eval/accuracy", "Best by", "Metric of the validation; the highest value is the best.", advanced=True
    )


class OptimizerSection(Section):
    """AdamW."""

    learning_rate: float = setting(1e-4, "Learning rate", "0 freezes the policy (a control run).", ge=0, le=1)
    warmup_steps: int = setting(0, "Warm-up", "Optimiser steps of linear warm-up.", unit="steps", ge=0, advanced=True)
    schedule: Literal["constant", "cosine"] = setting("constant", "Schedule", "After the warm-up.", advanced=True)
    weight_decay: float = setting(0.01, "Weight decay", "Decoupled, on matrices only.", ge=0, le=1, advanced=True)
    beta1: float = setting(0.9, "β₁", "First-moment decay.", ge=0, lt=1, advanced=True)
    beta2: float = setting(0.999, "β₂", "Second-moment decay.", ge=0, lt=1, advanced=True)
    max_grad_norm: float = setting(1.0, "Gradient clip", "Global L2 norm.", gt=0, advanced=True)


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


SECRET_NAME = r"^[A-Z][A-Z0-9_]{1,63}$"
SecretName = Annotated[str, Field(pattern=SECRET_NAME)]
Temperature = Annotated[float, Field(gt=0, le=5)]


class _Common(Section):
    schema_version: Literal[1] = SCHEMA_VERSION
    seed: int = setting(
        0, "Seed", "Same seed, same bits (one machine kind, versions and thread count).", ge=0, le=2**63 - 1
    )
    policy: PolicySection
    task: TaskSection = TaskSection()
    evaluation: EvaluationSection = EvaluationSection()
    sampling: SamplingSection = SamplingSection()
    rollout: RolloutSection = RolloutSection()
    hardware: HardwareSection = HardwareSection()
    save_rollouts_every: int = setting(
        1, "Keep rollouts every", "0 keeps none.", unit="iterations", ge=0, advanced=True
    )
    secrets: tuple[SecretName, ...] = setting(
        (),
        "Secrets",
        "Names of environment variables that the run may read, such as HF_TOKEN; their values are in nothing it writes.",
        max_length=32,
    )

    @field_validator("secrets")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))


class RlConfig(_Common):
    """Reinforcement learning with verifiable rewards."""

    kind: Literal["rl"] = "rl"
    algorithm: AlgorithmSection = AlgorithmSection()
    methods: tuple[MethodChoice, ...] = ()
    optimizer: OptimizerSection = OptimizerSection()
    budget: BudgetSection = BudgetSection()
    checkpoints: CheckpointSection = CheckpointSection()

    @model_validator(mode="after")
    def _without_dropout(self) -> RlConfig:
        if self.policy.lora.dropout:
            raise ValueError(
                f"policy.lora.dropout is {self.policy.lora.dropout}, expected 0: with dropout the ratios to the sampler are noise"
            )
        return self


class SftConfig(_Common):
    """Fine-tuning on oracle solutions; also how a base checkpoint is made."""

    kind: Literal["sft"] = "sft"
    sft: SftSection = SftSection()
    optimizer: OptimizerSection = OptimizerSection(learning_rate=1e-3, schedule="cosine", warmup_steps=50)
    budget: BudgetSection = BudgetSection(iterations=1000)
    checkpoints: CheckpointSection = CheckpointSection(every=200)


class EvaluateConfig(_Common):
    """One evaluation of one checkpoint."""

    kind: Literal["evaluate"] = "evaluate"
    split: Literal["test", "validation", "both"] = setting(
        "test",
        "Problems of",
        "The validation split is for choosing, such as a temperature; the test split for results.",
        advanced=True,
    )
    temperatures: tuple[Temperature, ...] = setting(
        (), "Also at temperatures", "Each is an evaluation of its own.", advanced=True, max_length=16
    )

    @property
    def names(self) -> tuple[Literal["validation", "test"], ...]:
        """The evaluations that it makes at each temperature."""
        return ("validation", "test") if self.split == "both" else (self.split,)

    @model_validator(mode="after")
    def _trains_nothing(self) -> EvaluateConfig:
        if self.policy.lora.rank is not None:
            raise ValueError("policy.lora.rank is given, but an evaluation trains nothing; leave it empty")
        return self


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


def migrated(document: Any) -> dict[str, Any]:
    """A document of this or an older version in the form of this one. Raises InvalidConfig for a newer one, and for what
    is no JSON object."""
    if not isinstance(document, dict):
        raise InvalidConfig([Problem("", f"expected a JSON object, found {type(document).__name__}")])
    try:
        return CONFIG.migrate(document)
    except UnreadableVersion as error:
        raise InvalidConfig([Problem("schema_version", str(error))]) from error


def parse_config(document: Any) -> RlConfig | SftConfig | EvaluateConfig:
    """Validates a JSON document. Raises InvalidConfig with every problem found; unknown keys name the nearest known."""
    document = migrated(document)
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(KINDS)
        raise InvalidConfig([Problem("kind", f"found {kind!r}, expected one of {known}")])
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
