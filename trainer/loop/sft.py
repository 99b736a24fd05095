"""Supervised fine-tuning on a task's oracle solutions: how a base checkpoint is made. One iteration is one step."""

from __future__ import annotations

import itertools
import math
import time
from functools import partial

import torch

from trainer.contract import events as ev
from trainer.contract.config import SftConfig
from trainer.core import rng
from trainer.core.context import Context
from trainer.core.errors import ConfigError, NumericError, StopRequested
from trainer.core.rng import python_rng
from trainer.loop.fitting import refuse_unknown
from trainer.loop.forward import score_ids
from trainer.loop.optim import learning_rate, set_rate
from trainer.loop.schedule import Schedule, drive, finished
from trainer.policy.shards import gathered

Row = tuple[tuple[int, ...], tuple[int, ...]]


def make_rows(config: SftConfig, ctx: Context) -> list[Row]:
    """(prompt ids, completion ids) of the training split's demonstrations, the same for the same task seed."""
    stream = ctx.task.demonstrations("train", python_rng(config.task.seed, "sft-rows"))
    policy = ctx.policy
    limit = policy.max_positions
    rows: list[Row] = []
    left_out = 0
    for i, (prompt, completion) in enumerate(itertools.islice(stream, config.sft.rows)):
        row = (policy.encode_prompt(prompt.messages), policy.encode_completion(completion))
        refuse_unknown(policy, prompt.text + completion, row[0] + row[1], prompt)
        if ctx.task.leaves_out and limit is not None and len(row[0]) + len(row[1]) > limit:
            left_out += 1
            continue
        rows.append(row)
        if i % 5000 == 4999:
            if ctx.stop_wanted():
                raise StopRequested("stopped while preparing rows")
            ctx.emit(
                ev.Progress(
                    iteration=ctx.state.counters.iteration,
                    total_iterations=config.budget.iterations,
                    stage="preparing rows",
                    done=i + 1,
                    total=config.sft.rows,
                )
            )
    if left_out:
        ctx.emit.log(f"{left_out} of {config.sft.rows} rows were left out because they do not fit the model", "warning")
    if not rows:
        raise ConfigError(f"no row fits the model's {limit} positions; raise policy.architecture.max_positions")
    longest = max(len(p) + len(c) for p, c in rows)
    if limit is not None and longest > limit:
        raise ConfigError(
            f"the longest row has {longest} tokens, the model takes {limit}; raise "
            "policy.architecture.max_positions or narrow the task"
        )
    return rows


class EpochOrder:
    """Which rows step t sees: consecutive pieces of one shuffled epoch after another, from the seed alone."""

    def __init__(self, rows: int, batch: int, seed: int) -> None:
        self.rows, self.batch, self.seed = rows, batch, seed
        self._epoch = -1
        self._order: list[int] = []

    def at(self, step: int) -> list[int]:
        """Row indices of step ``step`` (from 0)."""
        first = step * self.batch
        return [self._row(i) for i in range(first, first + self.batch)]

    def _row(self, position: int) -> int:
        epoch, place = divmod(position, self.rows)
        if epoch != self._epoch:
            self._order = list(range(self.rows))
            python_rng(self.seed, "sft-epoch", epoch).shuffle(self._order)
            self._epoch = epoch
        return self._order[place]


def train_sft(config: SftConfig, ctx: Context, schedule: Schedule) -> None:
    """Runs to the budget; stops, evaluates and saves as the RL loop does."""
    rows = make_rows(config, ctx)
    order = EpochOrder(len(rows), config.sft.batch_size, config.seed)
    counters = ctx.state.counters
    if counters.iteration == 0:
        ctx.state.phase.name = "sft"
        ctx.emit(ev.Phase(axes=ctx.state.axes(iteration=1), name="sft", title="Fine-tuning"))

    def step() -> None:
        began = time.monotonic()
        _step(config, ctx, [rows[i] for i in order.at(counters.iteration)])
        counters.iteration += 1
        counters.device_seconds += ctx.world.first_only(lambda: time.monotonic() - began)
        if counters.iteration % config.sft.log_every == 0 or finished(config, ctx):
            ctx.emit.scalars(ctx.state.axes(), ctx.collect())
            left = config.budget.iterations - counters.iteration
            ctx.emit(
                ev.Progress(
                    iteration=counters.iteration,
                    total_iterations=config.budget.iterations,
                    stage="fine-tuning",
                    eta_seconds=counters.device_seconds / counters.iteration * left,
                )
            )

    drive(config, ctx, schedule, step, validate_start=False)


def _step(config: SftConfig, ctx: Context, rows: list[Row]) -> None:
    entry = ctx.state.policies["policy"]
    assert entry.optimizer is not None
    model, world, shards = entry.policy.model, ctx.world, entry.shards
    rate = learning_rate(config.optimizer, ctx.state.counters.optimizer_step, config.budget.iterations)
    set_rate(entry.optimizer, rate)
    entry.optimizer.zero_grad(set_to_none=True)
    model.train()
    if config.policy.lora.dropout:
        torch.manual_seed(rng.key(config.seed, "dropout", ctx.state.counters.optimizer_step) >> 1)
    tokens = sum(len(completion) for _, completion in rows)

    def work() -> float:
        # A process without a row takes part with one whose gradient is 0.
        own, weight = rows[world.rank :: world.size], 1.0
        if not own:
            own, weight = rows[:1], 0.0
        through = None if shards is None else partial(shards.score, last=True)
        scores, mask = score_ids(entry.policy, [p for p, _ in own], [c for _, c in own], 1.0, through=through)
        mask = mask * weight
        loss = -(scores.logprobs_NT * mask).sum() / tokens
        loss.backward()
        ctx.tally("entropy", float((scores.entropy_NT.detach() * mask).sum()), float(mask.sum()))
        return float(loss.detach())

    value = sum(ctx.shared(work, lockstep=True))
    clipped = torch.nn.utils.clip_grad_norm_(entry.trained.parameters(), config.optimizer.max_grad_norm)
    norm = float(gathered(clipped))
    if not (math.isfinite(value) and math.isfinite(norm)):
        ctx.emit.scalars(ctx.state.axes(iteration=ctx.iteration), {"loss": value, "grad_norm": norm})
        raise NumericError(
            f"step {ctx.iteration}: loss {value}, gradient norm {norm}; lower optimizer.learning_rate "
            f"(now {config.optimizer.learning_rate})"
        )
    entry.optimizer.step()
    if shards is not None:
        shards.hand_over(entry.policy)
    model.eval()
    ctx.sampler.refresh()
    c = ctx.state.counters
    c.optimizer_step += 1
    c.policy_version += 1
    c.prompts += len(rows)
    c.trained_tokens += tokens
    ctx.tally("loss", value, 1.0)
    ctx.tally("grad_norm", norm, 1.0)
    ctx.metrics["learning_rate"] = rate
