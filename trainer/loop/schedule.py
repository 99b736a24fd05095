"""What surrounds every kind of training step: evaluations, checkpoints, stops and the budget, in one loop.

At an iteration boundary the state is complete. A stop is honoured there, in a rollout (the boundary before it is saved) and
in an evaluation (which a resumed run repeats); an update that has begun is finished first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.contract import events as ev
from trainer.contract.config import RlConfig, SftConfig
from trainer.core.context import Context
from trainer.core.errors import StopRequested
from trainer.core.guard import guarded
from trainer.core.slots import Diagnostic
from trainer.core.types import Group
from trainer.loop.evaluate import Evaluator, Library, evaluate, evaluation_metrics
from trainer.loop.figures import evaluation_figures
from trainer.rollout.sampler import SamplingStopped


@dataclass
class Schedule:
    """What a run does besides updating.

    ``save`` writes a checkpoint (its argument: the final one), ``keep_rollouts`` a Parquet part of an iteration; ``test``
    makes the final evaluator when it is needed, because its problems take time to draw.
    """

    save: Callable[[bool], None]
    keep_rollouts: Callable[[list[Group], dict[int, float]], None]
    library: Library | None
    validation: Evaluator | None
    test: Callable[[], Evaluator] | None
    announced: set[str] = field(default_factory=set)


def drive(
    config: RlConfig | SftConfig,
    ctx: Context,
    schedule: Schedule,
    step: Callable[[], Any],
    *,
    validate_start: bool,
    diagnostics: Sequence[Diagnostic] = (),
) -> None:
    """Calls ``step`` (one iteration) until the budget ends, from any boundary state.

    Raises StopRequested after saving; other errors leave the last checkpoint.
    """
    counters = ctx.state.counters
    while True:
        _evaluate_if_due(config, ctx, schedule, diagnostics, validate_start=validate_start)
        if finished(config, ctx):
            break
        if ctx.stop_wanted():
            raise _stopped(ctx, schedule, f"stopped after iteration {counters.iteration}")
        try:
            step()
        except SamplingStopped:
            raise _stopped(ctx, schedule, f"stopped in a rollout; saved iteration {counters.iteration}") from None
        every = config.checkpoints.every
        if every and counters.iteration % every == 0 and not finished(config, ctx):
            _evaluate_if_due(config, ctx, schedule, diagnostics, validate_start=validate_start)
            schedule.save(False)
    schedule.save(True)


def _stopped(ctx: Context, schedule: Schedule, text: str) -> StopRequested:
    """Saves the state and marks the place; what to raise."""
    schedule.save(False)
    ctx.emit(ev.Mark(mark="stop", iteration=ctx.state.counters.iteration, message=text))
    return StopRequested(text)


def finished(config: RlConfig | SftConfig, ctx: Context) -> bool:
    """Whether a limit of the budget is reached."""
    b, c = config.budget, ctx.state.counters
    return (
        c.iteration >= b.iterations
        or (b.sampled_tokens is not None and c.sampled_tokens >= b.sampled_tokens)
        or (b.device_seconds is not None and c.device_seconds >= b.device_seconds)
    )


def is_scheduled(config: RlConfig | SftConfig, ctx: Context) -> bool:
    """Whether the iteration just completed is one that validates by schedule."""
    iteration, every = ctx.state.counters.iteration, config.evaluation.every
    return bool(iteration and every and iteration % every == 0)


def _evaluate_if_due(
    config: RlConfig | SftConfig,
    ctx: Context,
    schedule: Schedule,
    diagnostics: Sequence[Diagnostic],
    *,
    validate_start: bool,
) -> None:
    """The validation of the current iteration, and the test at the end, unless the state says that it was done."""
    iteration = ctx.state.counters.iteration
    if ctx.state.evaluated >= iteration:
        return
    last = finished(config, ctx)
    at_start = iteration == 0 and validate_start
    # A run that was stopped between two evaluations has told the first one already.
    measured: list[str] = ctx.state.memory_of("schedule").setdefault("measured", [])
    due: list[Evaluator | None] = []
    if at_start or last or is_scheduled(config, ctx):
        due.append(schedule.validation)
    if last and schedule.test is not None:
        due.append(schedule.test())
    try:
        for evaluator in due:
            if evaluator is not None and evaluator.name not in measured:
                numbers = _measure(evaluator, ctx, schedule, diagnostics)
                if evaluator is schedule.validation:
                    ctx.state.validation, ctx.state.validated = numbers, iteration
                measured.append(evaluator.name)
    except SamplingStopped:
        raise _stopped(ctx, schedule, f"stopped in an evaluation; saved iteration {iteration}") from None
    measured.clear()
    ctx.state.evaluated = iteration


def _measure(
    evaluator: Evaluator, ctx: Context, schedule: Schedule, diagnostics: Sequence[Diagnostic]
) -> dict[str, float]:
    """Measures and emits; the numbers of a validation, nothing of a test."""
    event = evaluate(evaluator, ctx, library=schedule.library, announced=evaluator.set.id in schedule.announced)
    schedule.announced.add(evaluator.set.id)
    ctx.emit(event)
    for figure in evaluation_figures(event, evaluator.set):
        ctx.emit(figure)
    if evaluator.name != "validation":
        return {}
    values = evaluation_metrics(event, ctx)
    for part in diagnostics:
        with guarded("diagnostic", part):
            part.measure(ctx, event, evaluator.prompts)
    if diagnostics:
        values |= ctx.collect()
    ctx.emit.scalars(ctx.state.axes(), values)
    return {name: value for name, value in values.items() if math.isfinite(value)}
