"""One attempt of a run, from a configuration document to an exit code. Everything the browser launches runs from here.

RUN/config.json                      the resolved configuration
RUN/attempts/<n>/events.jsonl        what happened
RUN/attempts/<n>/checkpoints/it-…/   the whole state
RUN/attempts/<n>/rollouts/           Parquet parts
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from trainer.contract import events as ev
from trainer.contract.config import EvaluateConfig, InvalidConfig, RlConfig, RunConfig, SftConfig
from trainer.contract.exit_codes import ExitCode
from trainer.core.errors import CheckpointError, ConfigError, MethodError, NumericError, StopRequested, UnsqueezeError
from trainer.loop.emitter import EventWriter

RUN_VARIABLE = "UNSQUEEZE_RUN_ID"


@dataclass(frozen=True)
class Attempt:
    """Where and as what an attempt runs. ``files`` is the storage root that relative checkpoint paths refer to; ``stop``
    takes the place of signals and the parent pipe where a run is nested in another program."""

    run: Path
    number: int
    files: Path
    resume: bool
    parent_fd: int | None = None
    echo: Callable[[BaseModel], None] | None = None
    stop: Callable[[], bool] | None = None

    @property
    def folder(self) -> Path:
        """The attempt's own directory."""
        return self.run / "attempts" / str(self.number)


def next_attempt(run: Path) -> int:
    """One more than the newest attempt in a run folder."""
    return 1 + max((int(p.name) for p in (run / "attempts").glob("*") if p.name.isdigit()), default=0)


def run_attempt(document: Any, attempt: Attempt) -> ExitCode:
    """Runs the attempt to its end and returns how it ended; the last event says the same in words."""
    from trainer.methods import resolve

    attempt.folder.mkdir(parents=True, exist_ok=True)
    run_id = os.environ.get(RUN_VARIABLE) or attempt.run.resolve().name
    emit = EventWriter(attempt.folder / "events.jsonl", run=run_id, attempt=attempt.number, echo=attempt.echo)
    code, message, trace = ExitCode.CRASHED, "", ""
    state: Literal["finished", "stopped", "failed"] = "failed"
    try:
        emit(ev.State(state="starting"))
        config = resolve(document)
        (attempt.run / "config.json").write_text(json.dumps(config.model_dump(mode="json"), indent=1))
        _run(config, attempt, emit)
        code, message, state = ExitCode.FINISHED, "finished", "finished"
    except StopRequested as stop:
        code, message, state = ExitCode.STOPPED, str(stop), "stopped"
    except (InvalidConfig, ConfigError) as error:
        code, message = ExitCode.CONFIG, str(error)
    except NumericError as error:
        code, message = ExitCode.NUMERIC, str(error)
    except MethodError as error:
        code, message, trace = ExitCode.METHOD, str(error), traceback.format_exc()
    except (CheckpointError, OSError) as error:
        code, message = ExitCode.STORAGE, str(error)
    except UnsqueezeError as error:
        message = str(error)
    except Exception as error:
        message, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
    return _last_words(emit, code, ev.State(state=state, message=message), trace)


def _last_words(emit: EventWriter, code: ExitCode, state: ev.State, trace: str) -> ExitCode:
    """Writes how the attempt ended. On a full disk that fails too: the exit code then says it, and the log if it can."""
    try:
        if trace:
            emit.log(trace, "error")
        emit(state)
        emit.close()
    except OSError as error:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{state.message}\n{trace}\nevents.jsonl cannot be written: {error}\n")
            sys.stderr.flush()
        return ExitCode.STORAGE
    return code


def _run(config: RunConfig, attempt: Attempt, emit: EventWriter) -> None:
    import torch
    from transformers.utils import logging as transformers_logging

    from trainer.core.context import Context
    from trainer.data.task import problems
    from trainer.data.tasks import make_task
    from trainer.loop import checkpoint as ck
    from trainer.loop.evaluate import Evaluator, evaluate
    from trainer.loop.rollout_store import write_part
    from trainer.loop.schedule import Schedule
    from trainer.loop.sft import train_sft
    from trainer.loop.stopping import StopFlag
    from trainer.loop.train import train
    from trainer.rollout.torch_sampler import TorchSampler

    transformers_logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # Nothing here reads memory it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    stop = attempt.stop or StopFlag(attempt.parent_fd)
    task = make_task(config.task.name, config.task.params)
    source = ck.newest_checkpoint(attempt.run) if attempt.resume else None
    if source is not None and not isinstance(config, EvaluateConfig):
        state = ck.load_checkpoint(source, config)
    else:
        state = fresh_state(config, attempt.files)
    add_reference(state, config, attempt.files)
    if attempt.resume:
        where = state.counters.iteration if source is not None else -1
        text = f"resumed from iteration {where}" if source is not None else "no checkpoint yet: starts again"
        emit(ev.Mark(mark="rewind", iteration=where, message=text))
    emit(ev.State(state="running", versions=ck.versions()))

    def draw_pool() -> list[Any]:
        pool = problems(task, "train", config.task.problems, seed=config.task.seed)
        check_lengths(config, ctx, pool)
        return pool

    ctx = Context(
        config=config,
        task=task,
        draw_pool=draw_pool,
        state=state,
        sampler=TorchSampler(state.policies["policy"].policy.model),
        emit=emit,
        should_stop=stop,
    )
    e = config.evaluation
    cache = attempt.files / "evaluations"
    if isinstance(config, EvaluateConfig):
        if not e.final_problems:
            raise ConfigError("evaluation.final_problems is 0, expected how many test problems to evaluate")
        emit(evaluate(Evaluator.make("test", task, config), ctx, cache=cache, announced=False))
        return
    validation = Evaluator.make("validation", task, config)
    check_lengths(config, ctx, validation.prompts)

    def save(final: bool) -> None:
        parent = attempt.folder / "checkpoints"
        folder = parent / f"it-{state.counters.iteration:08d}"
        manifest = ck.save_checkpoint(folder, state, config)
        emit(
            ev.Checkpoint(
                axes=state.axes(),
                uri=str(folder.relative_to(attempt.run)),
                final=final,
                weights_hash=manifest["weights_hash"],
                size_bytes=ck.folder_size(folder),
            )
        )
        for old in ck.complete_checkpoints(parent)[: -config.checkpoints.keep]:
            shutil.rmtree(old)
            emit(ev.CheckpointRemoved(uri=str(old.relative_to(attempt.run))))

    def keep_rollouts(groups: Any, advantages: Any) -> None:
        every = config.save_rollouts_every
        if every and state.counters.iteration % every == 0:
            write_part(attempt.folder / "rollouts", attempt.run, groups, advantages, ctx)

    schedule = Schedule(
        save=save,
        keep_rollouts=keep_rollouts,
        cache=cache,
        validation=validation,
        test=(lambda: Evaluator.make("test", task, config)) if e.final_problems else None,
    )
    if isinstance(config, SftConfig):
        train_sft(config, ctx, schedule)
    else:
        train(config, ctx, schedule)


def resolve_folder(files: Path, reference: str) -> Path:
    """A checkpoint reference as a folder: absolute, or relative to the storage root. A training checkpoint stands for
    its policy. Raises ConfigError naming where it looked."""
    folder = (files / reference).resolve()
    if (folder / "policies" / "policy").is_dir():
        folder = folder / "policies" / "policy"
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"policy.checkpoint: found no model at {reference!r} (a relative path is below the file storage); expected a "
            "folder with config.json and model.safetensors; choose another checkpoint"
        )
    return folder


def fresh_state(config: RunConfig, files: Path) -> Any:
    """The state before iteration 1: the base policy with a new optimiser."""
    from trainer.core.state import PolicyState, TrainState
    from trainer.loop.optim import make_optimizer

    policy = base_policy(config, files)
    if isinstance(config, EvaluateConfig):
        return TrainState({"policy": PolicyState(policy)})
    return TrainState({"policy": PolicyState(policy, make_optimizer(policy.model, config.optimizer))})


def base_policy(config: RunConfig, files: Path) -> Any:
    """The policy that the run starts from: as it is on disk, or fresh weights by the run's seed."""
    from trainer.data.alphabet import ALPHABET
    from trainer.policy.char_tokenizer import char_tokenizer
    from trainer.policy.load import load_policy, new_policy

    p = config.policy
    if p.checkpoint is not None:
        policy = load_policy(resolve_folder(files, p.checkpoint))
    else:
        assert p.architecture is not None
        policy = new_policy(p.architecture.model_dump(), char_tokenizer(ALPHABET), seed=config.seed)
    policy.model.eval()
    return policy


def add_reference(state: Any, config: RunConfig, files: Path) -> None:
    """The frozen base beside the policy, where a KL to it is trained or measured. It is loaded anew on every start and
    is no part of a checkpoint."""
    from trainer.core.state import PolicyState

    if isinstance(config, RlConfig) and (config.algorithm.kl_coef or config.algorithm.measure_kl):
        state.policies["reference"] = PolicyState(base_policy(config, files))


def check_lengths(config: RunConfig, ctx: Any, prompts: Sequence[Any]) -> None:
    """Refuses a run whose sequences don't fit the model, before they are sampled."""
    limit = ctx.policy.max_positions
    if limit is None:
        return
    longest = max(len(ctx.policy.encode_prompt(p.messages)) for p in prompts)
    if longest + config.sampling.max_new_tokens > limit:
        raise ConfigError(
            f"prompts of up to {longest} tokens and sampling.max_new_tokens {config.sampling.max_new_tokens} "
            f"exceed the model's {limit} positions; lower sampling.max_new_tokens"
        )
