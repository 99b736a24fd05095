"""One attempt of a run, from a configuration document to an exit code. Everything the browser launches runs from here.

RUN/config.json                      the resolved configuration
RUN/evaluations/                     what was measured, so that a resumed run need not measure it again
RUN/attempts/<n>/known_evaluations.json  what others have measured, from whoever launched the attempt (may be missing)
RUN/attempts/<n>/events.jsonl        what happened
RUN/attempts/<n>/checkpoints/it-…/   the whole state
RUN/attempts/<n>/rollouts/           Parquet parts
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from trainer.contract import events as ev
from trainer.contract.config import EvaluateConfig, InvalidConfig, RlConfig, RunConfig, SftConfig
from trainer.contract.exit_codes import ExitCode
from trainer.contract.files import write_whole
from trainer.contract.known import KNOWN_FILE
from trainer.contract.redaction import SHORTEST, Redactor
from trainer.core.errors import (
    CheckpointError,
    ConfigError,
    DatasetError,
    MethodError,
    NumericError,
    StopRequested,
    Superseded,
    UnsqueezeError,
)
from trainer.core.world import World
from trainer.loop.emitter import EventWriter, SilentWriter

RUN_VARIABLE = "UNSQUEEZE_RUN_ID"


@dataclass(frozen=True)
class Attempt:
    """Where and as what an attempt runs. ``files`` is the storage root that relative checkpoint paths refer to; ``stop``
    takes the place of signals and the parent pipe where a run is nested in another program.

    A resumed attempt goes on from the first of ``checkpoints`` (folders) that is whole; None stands for the newest one in
    the run's folder, an empty tuple for the start. ``retain`` off leaves every checkpoint where it is. ``world`` are the
    processes that run it together."""

    run: Path
    number: int
    files: Path
    resume: bool
    parent_fd: int | None = None
    echo: Callable[[BaseModel], None] | None = None
    stop: Callable[[], bool] | None = None
    checkpoints: tuple[Path, ...] | None = None
    retain: bool = True
    world: World = field(default_factory=World)

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
    redact, world = redactor_for(document), attempt.world
    if world.first:
        path = attempt.folder / "events.jsonl"
        emit = EventWriter(path, run=run_id, attempt=attempt.number, echo=attempt.echo, redact=redact)
    else:
        emit = SilentWriter(run=run_id, attempt=attempt.number, redact=redact)
    code, message, trace = ExitCode.CRASHED, "", ""
    state: Literal["finished", "stopped", "failed"] = "failed"
    try:
        emit(ev.State(state="starting"))
        config = resolve(document)
        check_secrets(config)
        text = json.dumps(config.model_dump(mode="json"), indent=1)
        world.first_only(lambda: write_whole(attempt.run / "config.json", text))
        with contextlib.ExitStack() as held:
            _run(config, attempt, emit, held)
        code, message, state = ExitCode.FINISHED, "finished", "finished"
    except StopRequested as stop:
        code, message, state = ExitCode.STOPPED, str(stop), "stopped"
    except Superseded as error:
        code, message = ExitCode.SUPERSEDED, str(error)
    except (InvalidConfig, ConfigError, DatasetError) as error:
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
    if trace and not world.first:
        sys.stderr.write(trace)
    agreed, message = world.leave(code, message)
    return _last_words(emit, ExitCode(agreed), ev.State(state=state, message=message), trace)


def redactor_for(document: Any) -> Redactor:
    """What takes the values of the document's secrets out of texts, valid or not as the document may be."""
    names = document.get("secrets") if isinstance(document, dict) else None
    names = [name for name in names if isinstance(name, str)] if isinstance(names, (list, tuple)) else []
    return Redactor({name: os.environ[name] for name in names if name in os.environ})


def check_secrets(config: RunConfig) -> None:
    """Raises ConfigError for a secret that is not in the environment, or too short to be kept out of texts."""
    for name in config.secrets:
        if name not in os.environ:
            raise ConfigError(f"secrets: {name} is not set in the environment; set it, or leave it out")
        if len(os.environ[name]) < SHORTEST:
            raise ConfigError(
                f"secrets: the value of {name} has fewer than {SHORTEST} characters; expected a longer one, because "
                "so short a text cannot be told from others"
            )


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


def _run(config: RunConfig, attempt: Attempt, emit: EventWriter, held: contextlib.ExitStack) -> None:
    """``held`` closes what the attempt holds, such as an engine with its memory."""
    from transformers.utils import logging as transformers_logging

    from trainer.core.context import Context
    from trainer.data.task import problems
    from trainer.data.tasks import make_task
    from trainer.loop import checkpoint as ck
    from trainer.loop import checkpoint_files
    from trainer.loop.evaluate import Evaluator, Library, evaluate
    from trainer.loop.fence import Fence
    from trainer.loop.figures import evaluation_figures
    from trainer.loop.fitting import check_lengths, check_stop, misfit
    from trainer.loop.rollout_store import write_part
    from trainer.loop.schedule import Schedule
    from trainer.loop.sft import train_sft
    from trainer.loop.stopping import StopFlag
    from trainer.loop.train import train
    from trainer.policy.adapters import set_dropout
    from trainer.policy.hardware import device_of, make_deterministic
    from trainer.rollout.engines import chosen_engine, make_sampler
    from trainer.rollout.sampler import SamplingStopped

    transformers_logging.disable_progress_bar()
    world = attempt.world
    [device, *_] = world.together(lambda: device_of(config.hardware))
    make_deterministic(device)
    chosen_engine(config.rollout, device, processes=world.size)
    stop = attempt.stop or StopFlag(attempt.parent_fd)
    fence = Fence(attempt.folder)
    task = make_task(config.task.name, config.task.params)
    state = _resumed_state(config, attempt, emit) if attempt.resume and not isinstance(config, EvaluateConfig) else None
    if state is None:
        state = fresh_state(config, attempt.files)
        if attempt.resume:
            world.first_only(lambda: checkpoint_files.note_rewind(attempt.folder, -1))
            emit(ev.Mark(mark="rewind", iteration=-1, message="no checkpoint yet: starts again"))
    set_dropout(state.policies["policy"].policy, config.policy.lora.dropout)
    add_reference(state, config, attempt.files)
    share_weights(state, config, world)
    check_stop(config, state.policies["policy"].policy)
    emit(ev.State(state="running", versions=ck.versions()))

    def should_stop() -> bool:
        fence.check()
        return stop()

    def draw_pool() -> list[Any]:
        pool = problems(task, "train", config.task.problems, seed=config.task.seed)
        check_lengths(config, ctx, pool)
        return pool

    ctx = Context(
        config=config,
        task=task,
        draw_pool=draw_pool,
        state=state,
        sampler=held.enter_context(
            contextlib.closing(make_sampler(state.policies["policy"].policy, config.rollout, world))
        ),
        emit=emit,
        should_stop=should_stop,
        world=world,
        files=attempt.files,
    )
    task.prepare(attempt.files, lambda prompt: misfit(config, ctx, prompt), lambda text: emit.log(text, "warning"))
    e = config.evaluation
    library = Library(attempt.run / "evaluations", attempt.folder / KNOWN_FILE)
    if isinstance(config, EvaluateConfig):
        for name in config.names:
            count = "final_problems" if name == "test" else "problems"
            if not getattr(e, count):
                raise ConfigError(f"evaluation.{count} is 0, expected how many {name} problems to evaluate")
        try:
            # The temperature of the evaluation section last: it is the one that pages show first.
            for temperature in (*(t for t in config.temperatures if t != e.temperature), e.temperature):
                for name in config.names:
                    evaluator = Evaluator.make(name, task, at_temperature(config, temperature))
                    event = evaluate(evaluator, ctx, library=library, announced=False)
                    for one in (event, *evaluation_figures(event, evaluator.set)):
                        emit(one)
        except SamplingStopped:
            raise StopRequested("stopped in the evaluation; resumed, it goes on with what is missing") from None
        return
    validation = Evaluator.make("validation", task, config) if e.problems else None
    if validation is not None:
        check_lengths(config, ctx, validation.prompts)

    def save(final: bool) -> None:
        world.first_only(lambda: fence.check(now=True))
        parent = attempt.folder / "checkpoints"
        folder = parent / f"it-{state.counters.iteration:08d}"
        manifest = ck.save_checkpoint(folder, state, config, fence=lambda: fence.check(now=True), world=world)
        if not world.first:
            return
        emit(
            ev.Checkpoint(
                axes=state.axes(),
                uri=str(folder.relative_to(attempt.run)),
                final=final,
                weights_hash=manifest["weights_hash"],
                size_bytes=checkpoint_files.folder_size(folder),
                metrics=manifest["metrics"],
            )
        )
        if not attempt.retain:
            return
        c = config.checkpoints
        for old in checkpoint_files.expired(attempt.run, keep=c.keep, keep_best=c.keep_best, metric=c.best_metric):
            checkpoint_files.remove_checkpoint(old)
            emit(ev.CheckpointRemoved(uri=str(old.relative_to(attempt.run))))

    def keep_rollouts(groups: Any, advantages: Any) -> None:
        every = config.save_rollouts_every
        if world.first and every and state.counters.iteration % every == 0:
            write_part(attempt.folder / "rollouts", attempt.run, groups, advantages, ctx)

    schedule = Schedule(
        save=save,
        keep_rollouts=keep_rollouts,
        library=library,
        validation=validation,
        test=(lambda: Evaluator.make("test", task, config)) if e.final_problems else None,
    )
    if isinstance(config, SftConfig):
        train_sft(config, ctx, schedule)
    else:
        train(config, ctx, schedule)


def at_temperature(config: EvaluateConfig, temperature: float) -> EvaluateConfig:
    """The same evaluation, hotter or colder."""
    section = config.evaluation.model_copy(update={"temperature": temperature})
    return config.model_copy(update={"evaluation": section})


def _resumed_state(config: RlConfig | SftConfig, attempt: Attempt, emit: EventWriter) -> Any:
    """The state of the first checkpoint that is whole, after the mark that says so; None where there is none to go on
    from. Each one that is refused is told. Raises CheckpointError when all are, offering an older one."""
    from trainer.loop import checkpoint as ck
    from trainer.loop import checkpoint_files

    newest = checkpoint_files.newest_checkpoint(attempt.run)
    wanted = attempt.checkpoints if attempt.checkpoints is not None else (newest,) if newest else ()
    refused: CheckpointError | None = None
    for folder in wanted:
        try:
            state = ck.load_checkpoint(folder, config, files=attempt.files)
        except CheckpointError as error:
            refused = error
            emit(ev.CheckpointRefused(uri=_inside(folder, attempt.run), reason=str(error)))
            emit.log(f"refused: {error}", "error")
            continue
        where = state.counters.iteration
        text = f"resumed from iteration {where}"
        if refused is not None:
            text += f", because a newer checkpoint was refused: {refused}"
            emit.log(text, "warning")
        # Before anything else is written: what earlier attempts saved after this iteration counts no more.
        attempt.world.first_only(partial(checkpoint_files.note_rewind, attempt.folder, where))
        emit(ev.Mark(mark="rewind", iteration=where, message=text))
        return state
    if refused is None:
        return None
    older = checkpoint_files.older_whole(attempt.run, wanted[-1])
    if older is None:
        raise CheckpointError(
            f"{refused}; there is no older complete checkpoint: --from-start begins again"
        ) from refused
    at = checkpoint_files.iteration_of(older)
    raise CheckpointError(
        f"{refused}; the checkpoint of iteration {at} is complete: resume with --checkpoint {_inside(older, attempt.run)}"
    ) from refused


def _inside(folder: Path, run: Path) -> str:
    """The folder as seen from the run's folder."""
    return os.path.relpath(folder.resolve(), run.resolve())


def resolve_folder(files: Path, reference: str) -> Path:
    """A checkpoint reference as a folder, or as a GGUF file: absolute, or relative to the storage root, or the name of a
    model of the hub. A training checkpoint stands for its policy. Raises ConfigError naming where it looked."""
    from trainer.policy.hub import hub_folder, is_hub_name

    if is_hub_name(reference, files):
        return hub_folder(reference)
    folder = (files / reference).resolve()
    if folder.suffix == ".gguf" and folder.is_file():
        return folder
    if (folder / "policies" / "policy").is_dir():
        folder = folder / "policies" / "policy"
    known = (folder / "config.json", folder / "adapter_config.json")
    if not any(path.is_file() for path in known) and len(list(folder.glob("*.gguf"))) != 1:
        raise ConfigError(
            f"policy.checkpoint: found no model at {reference!r} (a relative path is below the file storage); expected a "
            "folder with config.json and model.safetensors, an adapter, a GGUF file, or the name of a model of the Hugging "
            "Face hub (org/name); choose another checkpoint"
        )
    return folder


def fresh_state(config: RunConfig, files: Path) -> Any:
    """The state before iteration 1: the base policy with a new optimiser."""
    from trainer.core.state import PolicyState, TrainState
    from trainer.loop.checkpoint import new_head_states
    from trainer.loop.optim import make_optimizer

    policy = base_policy(config, files)
    if isinstance(config, EvaluateConfig):
        return TrainState({"policy": PolicyState(policy)})
    heads = new_head_states(config, policy.model)
    return TrainState({"policy": PolicyState(policy, make_optimizer(policy.model, config.optimizer))}, heads=heads)


def base_policy(config: RunConfig, files: Path) -> Any:
    """The policy that the run starts from: as it is on disk, or fresh weights by the run's seed; with the adapter that the
    configuration asks for."""
    from trainer.data.alphabet import ALPHABET
    from trainer.policy import adapters
    from trainer.policy.char_tokenizer import char_tokenizer
    from trainer.policy.hardware import placed
    from trainer.policy.load import load_policy, new_policy

    p = config.policy
    if p.checkpoint is not None:
        policy = load_policy(resolve_folder(files, p.checkpoint), files=files)
        if policy.adapter is not None:
            policy = adapters.goes_on_with(policy, p.lora)
        elif p.lora.rank is not None:
            base = adapters.Base(p.checkpoint, policy.weights_hash)
            policy = adapters.add_adapter(policy, p.lora, base=base, seed=config.seed)
    else:
        assert p.architecture is not None
        policy = new_policy(p.architecture.model_dump(), char_tokenizer(ALPHABET), seed=config.seed)
    policy.model.eval()
    return placed(policy, config.hardware)


def share_weights(state: Any, config: RunConfig, world: World) -> None:
    """Where several processes train, gives each its share of the policy's weights and of the optimiser's moments."""
    from trainer.loop.optim import load_optimizer_tensors, make_optimizer, optimizer_tensors
    from trainer.policy.shards import Shards

    entry = state.policies["policy"]
    if world.size == 1 or isinstance(config, EvaluateConfig):
        return
    moments = optimizer_tensors(entry.trained, entry.optimizer)
    entry.shards = Shards(entry.policy, world)
    entry.optimizer = make_optimizer(entry.trained, config.optimizer)
    load_optimizer_tensors(entry.trained, entry.optimizer, moments)


def add_reference(state: Any, config: RunConfig, files: Path) -> None:
    """The frozen base beside the policy, where a KL to it is trained or measured. It is loaded anew on every start and
    is no part of a checkpoint. Of a policy with an adapter it is the same model with the adapter off, or, where the run
    started from an adapter, with that one."""
    from trainer.core.state import PolicyState
    from trainer.policy import adapters

    if not isinstance(config, RlConfig):
        return
    measured = config.algorithm.measure_kl and config.evaluation.every > 0
    if config.algorithm.needs_reference or measured:
        policy = state.policies["policy"].policy
        if policy.adapter is None:
            reference = base_policy(config, files)
        else:
            assert config.policy.checkpoint is not None
            folder = resolve_folder(files, config.policy.checkpoint)
            started = adapters.is_adapter(folder)
            reference = adapters.reference_from(policy, folder) if started else adapters.base_of(policy)
        state.policies["reference"] = PolicyState(reference)
