"""The methods and how a configuration is resolved against them. Import-light: no torch, no numpy.

A method is one file in this package with a ``SPEC``; `all_methods` finds it by its name. Other packages add methods
through the entry-point group ``unsqueeze.methods`` (each entry loads a `MethodSpec`), or a file listed in the environment
variable ``UNSQUEEZE_METHOD_FILES``.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from trainer.contract.algorithm import GROUP_ADVANTAGES
from trainer.contract.config import InvalidConfig, Problem, RlConfig, RunConfig, migrated, parse_config, problems_of
from trainer.contract.presets import PRESETS, fill
from trainer.core.errors import ConfigError
from trainer.core.registry import SINGLE_SLOTS, MethodParams, MethodSpec, Slot
from trainer.data.tasks import TASKS

FILES_VARIABLE = "UNSQUEEZE_METHOD_FILES"


@functools.cache
def all_methods() -> dict[str, MethodSpec]:
    """Every known method by slug, built-in ones first. Raises ConfigError when two share a slug."""
    specs = [
        importlib.import_module(f"{__name__}.{m.name}").SPEC
        for m in pkgutil.iter_modules(__path__)
        if not m.name.startswith("_")
    ]
    specs += [entry.load() for entry in entry_points(group="unsqueeze.methods")]
    specs += [_spec_of_file(p) for p in os.environ.get(FILES_VARIABLE, "").split(os.pathsep) if p]
    out: dict[str, MethodSpec] = {}
    for spec in specs:
        if spec.slug in out or spec.slug in PRESETS:
            raise ConfigError(f"two methods are called {spec.slug!r}; rename one (slug of its SPEC)")
        out[spec.slug] = spec
    return out


def _spec_of_file(path: str) -> MethodSpec:
    # Under this name its SPEC names its parts (``f"{__name__}:Part"``), so it must be importable.
    name = f"unsqueeze_method_{Path(path).stem}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise ConfigError(f"{FILES_VARIABLE}: {path!r} is no Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    module_spec.loader.exec_module(module)
    spec = getattr(module, "SPEC", None)
    if not isinstance(spec, MethodSpec):
        raise ConfigError(f"{path}: expected a module with SPEC = MethodSpec(...), found {type(spec).__name__}")
    return spec


def params_of(choice: Any) -> MethodParams:
    """The validated parameters of a method choice that `resolve` has accepted."""
    return all_methods()[choice.slug].params(**choice.params)


def starting_algorithm(slugs: Iterable[str]) -> dict[str, Any]:
    """The fields of the algorithm section that the known ones of these methods start from; later ones win."""
    known = all_methods()
    return {name: value for slug in slugs if slug in known for name, value in known[slug].algorithm.items()}


def _slugs(document: dict[str, Any]) -> list[str]:
    """The methods that an unchecked document names."""
    methods = document.get("methods")
    choices = methods if isinstance(methods, (list, tuple)) else ()
    return [str(choice.get("slug")) for choice in choices if isinstance(choice, dict)]


def resolve(document: Any) -> RunConfig:
    """A launch document as a complete configuration: presets filled in, every parameter checked and spelled out.

    Raises InvalidConfig with all problems found. Resolving a resolved document changes nothing.
    """
    document = migrated(document)
    if document.get("kind") == "rl" and isinstance(document.get("algorithm", {}), dict):
        section = document.get("algorithm", {})
        preset = section.get("preset", "grpo")
        if not isinstance(preset, str) or preset not in PRESETS:
            raise InvalidConfig([_unknown("algorithm.preset", str(preset), list(PRESETS))])
        document = {**document, "algorithm": fill(section, starting_algorithm(_slugs(document)))}
    try:
        config = parse_config(document)
    except InvalidConfig as error:
        raise InvalidConfig([*error.problems, *_parameter_problems(document)]) from error
    problems: list[Problem] = []
    changes: dict[str, Any] = {}
    task = TASKS.get(config.task.name)
    if task is None:
        problems.append(_unknown("task.name", config.task.name, list(TASKS)))
    else:
        params = _validated(task.Params, config.task.params, "task.params", problems)
        if params is not None:
            changes["task"] = config.task.model_copy(update={"params": params})
    if isinstance(config, RlConfig):
        changes["methods"] = _resolve_methods(config, problems)
        problems += _rl_problems(config)
    if config.hardware.processes > 1:
        problems += _process_problems(config)
    if config.evaluation.every and not config.evaluation.samples:
        problems.append(Problem("evaluation.samples", "is needed when validations are scheduled"))
    if problems:
        raise InvalidConfig(problems)
    return config.model_copy(update=changes)


def _parameter_problems(document: Any) -> list[Problem]:
    """What is wrong with the task's and the methods' parameters in a document whose sections were refused already."""
    problems: list[Problem] = []
    if not isinstance(document, dict):
        return problems
    task = document.get("task")
    if isinstance(task, dict) and (known := TASKS.get(str(task.get("name")))) and isinstance(task.get("params"), dict):
        _validated(known.Params, task["params"], "task.params", problems)
    methods = document.get("methods")
    for i, choice in enumerate(methods if isinstance(methods, (list, tuple)) else ()):
        if isinstance(choice, dict) and isinstance(choice.get("params"), dict):
            spec = all_methods().get(str(choice.get("slug")))
            if spec is not None:
                _validated(spec.params, choice["params"], f"methods.{i}.params", problems)
    return problems


def _rl_problems(config: RlConfig) -> list[Problem]:
    out = []
    a = config.algorithm
    if a.num_generations < 2 and (a.advantage in GROUP_ADVANTAGES or a.zero_variance != "keep"):
        out.append(
            Problem(
                "algorithm.num_generations",
                f"group advantages need at least 2 rollouts per prompt (found {a.num_generations})",
            )
        )
    if a.zero_variance == "refill" and a.prompts_per_iteration >= config.task.problems:
        out.append(
            Problem(
                "algorithm.zero_variance",
                f"found 'refill', but all {config.task.problems} training problems are drawn at once, so that there are no "
                "others; lower algorithm.prompts_per_iteration or raise task.problems",
            )
        )
    if a.overlong_buffer > config.sampling.max_new_tokens:
        out.append(
            Problem(
                "algorithm.overlong_buffer",
                f"found {a.overlong_buffer}, expected at most sampling.max_new_tokens {config.sampling.max_new_tokens}",
            )
        )
    if a.kl_target is not None and not a.kl_coef:
        out.append(Problem("algorithm.kl_target", "moves the KL coefficient, which is 0; set algorithm.kl_coef"))
    if a.prompts_per_iteration > config.task.problems:
        out.append(
            Problem(
                "algorithm.prompts_per_iteration",
                f"found {a.prompts_per_iteration}, but the training pool "
                f"has {config.task.problems} problems; lower it or raise task.problems",
            )
        )
    if a.staleness:
        out += _staleness_problems(config)
    if a.minibatches > a.prompts_per_iteration:
        out.append(
            Problem(
                "algorithm.minibatches",
                f"found {a.minibatches} for {a.prompts_per_iteration} prompts; prompts are never split",
            )
        )
    return out


_DRAWN_AHEAD: frozenset[Slot] = frozenset(
    {
        "prompting",
        "reward",
        "transform",
        "samples",
        "advantage_base",
        "advantage",
        "policy_objective",
        "objective",
        "diagnostic",
    }
)
"""Slots whose parts don't mind that batches are drawn before earlier ones are trained."""


def _staleness_problems(config: RlConfig) -> list[Problem]:
    out, path = [], "algorithm.staleness"
    if config.algorithm.mismatch == "off":
        out.append(
            Problem(
                path,
                f"found {config.algorithm.staleness} without a sampler correction: the batch is from older weights; set "
                "algorithm.mismatch, e.g. token_truncate",
            )
        )
    if config.sampling.truncated:
        out.append(
            Problem(
                path,
                "found with top_k, top_p or min_p: the tokens that the older weights kept are not known any more when the "
                "batch is trained; leave sampling whole or set this to 0",
            )
        )
    for choice in config.methods:
        spec = all_methods().get(choice.slug)
        if spec is not None and (slots := sorted(spec.parts.keys() - _DRAWN_AHEAD)):
            out.append(
                Problem(
                    path,
                    f"found with {spec.title}, whose {', '.join(slots)} must see an iteration trained before the next one is "
                    "drawn; set this to 0",
                )
            )
    return out


_IN_PROCESSES: frozenset[Slot] = frozenset(
    {
        "curriculum",
        "prompting",
        "transform",
        "samples",
        "advantage_base",
        "advantage",
        "objective",
        "phases",
        "diagnostic",
    }
)
"""Slots whose parts see every process's samples, and neither draw, judge nor step by themselves."""


def _process_problems(config: RunConfig) -> list[Problem]:
    """What several processes cannot train together."""
    path, out = "hardware.processes", []
    found = f"found {config.hardware.processes} with"
    if config.rollout.engine == "vllm":
        out.append(
            Problem(path, f"{found} vLLM, which samples in one process; set rollout.engine to torch, or this to 1")
        )
    if config.policy.lora.rank is not None:
        out.append(
            Problem(path, f"{found} LoRA, whose adapters one process trains; empty policy.lora.rank, or set this to 1")
        )
    if isinstance(config, RlConfig):
        if config.algorithm.advantage == "gae":
            out.append(
                Problem(
                    path, f"{found} a value head, which one process trains; choose another advantage, or set this to 1"
                )
            )
        if config.algorithm.entropy_target is not None:
            out.append(
                Problem(path, f"{found} algorithm.entropy_target, whose controller sees one process only; empty it")
            )
        for choice in config.methods:
            spec = all_methods().get(choice.slug)
            if spec is not None and (slots := sorted(spec.parts.keys() - _IN_PROCESSES)):
                out.append(
                    Problem(path, f"{found} {spec.title}, whose {', '.join(slots)} runs in one process; set this to 1")
                )
    return out


def _resolve_methods(config: RlConfig, problems: list[Problem]) -> tuple[Any, ...]:
    known = all_methods()
    out, specs = [], []
    for i, choice in enumerate(config.methods):
        spec = known.get(choice.slug)
        if spec is None:
            problems.append(_unknown(f"methods.{i}.slug", choice.slug, list(known)))
            continue
        params = _validated(spec.params, choice.params, f"methods.{i}.params", problems)
        specs.append(spec)
        if spec.bases and config.algorithm.preset not in spec.bases:
            text = f"{spec.title} runs over {', '.join(spec.bases)}; found {config.algorithm.preset}"
            problems.append(Problem("algorithm.preset", text))
        if params is not None:
            out.append(choice.model_copy(update={"params": params}))
            if spec.refused is not None:
                problems += [Problem(*why) for why in spec.refused(spec.params(**params), config).items()]
    for i, spec in enumerate(specs):
        for other in specs[:i]:
            reason = conflict_between(spec, other)
            if reason:
                problems.append(Problem(f"methods.{i}", f"{spec.title} and {other.title}: {reason}"))
    return tuple(out)


def conflict_between(a: MethodSpec, b: MethodSpec) -> str | None:
    """Why two methods cannot run together, or None."""
    if a.slug == b.slug:
        return "the same method twice"
    declared = a.conflicts.get(b.slug) or b.conflicts.get(a.slug)
    if declared:
        return declared
    shared = sorted(s for s in SINGLE_SLOTS if a.parts.get(s) and b.parts.get(s))
    return f"both fill the slot {shared[0].replace('_', ' ')}, which holds one part" if shared else None


def _validated(model: type[BaseModel], values: Any, path: str, problems: list[Problem]) -> dict[str, Any] | None:
    try:
        return model(**values).model_dump(mode="json")
    except ValidationError as error:
        problems.extend(problems_of(error, model, prefix=path))
        return None


def _unknown(path: str, found: str, known: list[str]) -> Problem:
    near = difflib.get_close_matches(found, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return Problem(path, f"found {found!r}; {hint}")
