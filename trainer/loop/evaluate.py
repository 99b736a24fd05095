"""Evaluations: per-problem (n, c) on a fixed set, never a ready-made pass@k, reused for equal weights and set.

The draws of an evaluation depend on the set's seed and not on the run or iteration, so the same weights on the same set
give the same result wherever the same engine measures them, and a stored result may stand in for a repetition.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.contract import events as ev
from trainer.contract.config import EvaluateConfig, EvaluationSection, RlConfig, SftConfig
from trainer.contract.known import KnownEvaluation, read_known, write_known
from trainer.contract.passk import collision_mass, cover_at, kappa, mean_pass_at_k
from trainer.core.context import Context
from trainer.core.types import Prompt, content_hash
from trainer.data.task import Task
from trainer.data.task import problems as draw_problems
from trainer.diagnostics import squeezing
from trainer.policy.load import Policy
from trainer.rewards.exact import checked
from trainer.rewards.worker import failed
from trainer.rollout.sampler import Completion, Request, SamplingParams, StreamKey

MAX_ANSWERS = 20
ENTROPY_SAMPLES = 4
"""Samples per problem whose exact token entropies are averaged."""
CHUNK_SEQUENCES = 2048


@dataclass(frozen=True)
class Evaluator:
    """One evaluation set with everything needed to measure a policy on it. ``name`` is ``validation`` or ``test``."""

    name: str
    set: ev.EvaluationSet
    prompts: tuple[Prompt, ...]
    seed: int

    @classmethod
    def make(cls, name: str, task: Task, config: RlConfig | SftConfig | EvaluateConfig) -> Evaluator:
        """The validation set (every n-th iteration) or the test set (final) of a configuration."""
        e: EvaluationSection = config.evaluation
        final = name == "test"
        count, n = (e.final_problems, e.final_samples) if final else (e.problems, e.samples)
        prompts = tuple(draw_problems(task, "test" if final else "validation", count, seed=config.task.seed))
        s = config.sampling
        sampler = ev.SamplerSettings(temperature=e.temperature, max_new_tokens=s.max_new_tokens, stop=sorted(s.stop))
        identity = content_hash([p.uid for p in prompts], task.name, task.checker_version, sampler.identity(), n)
        listed = [ev.SetProblem(uid=p.uid, text=p.text, answer=p.answer, chance=p.meta.get("chance")) for p in prompts]
        return cls(
            name,
            ev.EvaluationSet(
                id=identity,
                task=task.name,
                split="test" if final else "validation",
                checker_version=task.checker_version,
                sampler=sampler,
                n=n,
                problems=listed,
            ),
            prompts,
            e.seed,
        )


@dataclass(frozen=True)
class Library:
    """Evaluations that need not be repeated: those of this run in ``folder``, and those that whoever launched the run
    knows of in ``known`` (a file of `trainer.contract.known`, which may be missing)."""

    folder: Path
    known: Path

    def find(self, wanted: ev.Evaluation, evaluator: Evaluator, ctx: Context) -> ev.Evaluation | None:
        """An evaluation of ``wanted``'s weights, set, seed and engine that agrees with its own fingerprint, as an event
        that names its source. What only looks like one is refused in the log."""
        entries, faults = read_known(self.path_of(wanted))
        if not entries:
            entries, more = read_known(self.known)
            faults += more
        for entry in entries:
            found = entry.evaluation
            if _same(found, wanted):
                fault = _fault(found, evaluator)
                if not fault:
                    own = {"axes": wanted.axes, "name": wanted.name, "set": wanted.set, "reused": entry.source}
                    return found.model_copy(update=own)
                faults.append(f"that of {entry.source.run or 'an unknown run'}: {fault}")
        for fault in faults:
            ctx.emit.log(f"A known evaluation was refused, and is measured anew: {fault}", "warning")
        return None

    def keep(self, event: ev.Evaluation, ctx: Context) -> None:
        """Remembers what this run has measured."""
        source = ev.Source(run=ctx.emit.run, attempt=ctx.emit.attempt, iteration=event.axes.iteration)
        entry = KnownEvaluation(source=source, evaluation=event.model_copy(update={"set": None}))
        write_known(self.path_of(event), [entry], redact=ctx.emit.redact.json_line)

    def path_of(self, event: ev.Evaluation) -> Path:
        return self.folder / f"{event.weights_hash[:32]}-{event.set_id}-{event.seed}.json"


def _same(a: ev.Evaluation, b: ev.Evaluation) -> bool:
    names = ("weights_hash", "set_id", "seed", "engine", "policy")
    return all(getattr(a, name) == getattr(b, name) for name in names)


def _fault(event: ev.Evaluation, evaluator: Evaluator) -> str:
    """What is wrong with a stored evaluation that claims to be of this set; empty when nothing is."""
    if event.fingerprint != ev.fingerprint_of(event):
        return "its numbers do not agree with its fingerprint"
    if event.tokens is None:
        return "it does not say how many tokens it took"
    if [(p.uid, p.n) for p in event.problems] != [(p.uid, evaluator.set.n) for p in evaluator.prompts]:
        return "its problems are not those of the set"
    return ""


def evaluate(evaluator: Evaluator, ctx: Context, *, library: Library | None, announced: bool) -> ev.Evaluation:
    """Measures (or looks up) the policy in training on the set and returns the event. Its tokens are counted either way,
    so that a reused evaluation changes nothing of what follows.

    ``announced`` leaves the set's problems out of the event. Raises SamplingStopped when asked to stop; nothing is
    counted then.
    """
    blank = ev.Evaluation(
        axes=ctx.state.axes(),
        name=evaluator.name,
        set_id=evaluator.set.id,
        set=None if announced else evaluator.set,
        weights_hash=ctx.policy.weights_hash,
        seed=evaluator.seed,
        engine=ctx.sampler.engine,
        problems=[],
    )
    event = ctx.world.first_only(lambda: library.find(blank, evaluator, ctx)) if library else None
    if event is None:
        event = blank.model_copy(update=_measure(evaluator, ctx))
        event = event.model_copy(update={"fingerprint": ev.fingerprint_of(event)})
        if library:
            done = event
            ctx.world.first_only(lambda: library.keep(done, ctx))
    ctx.state.counters.evaluation_tokens += event.tokens or 0
    return event.model_copy(update={"axes": ctx.state.axes()})


def _measure(evaluator: Evaluator, ctx: Context) -> dict[str, Any]:
    """The measured fields of the event."""
    policy, settings, n = ctx.policy, evaluator.set.sampler, evaluator.set.n
    params = SamplingParams.of(settings, policy.eos_ids)
    stream = StreamKey(seed=evaluator.seed, purpose="evaluation", iteration=0)
    requests = [Request(uid=p.uid, prompt_ids=policy.encode_prompt(p.messages), n=n) for p in evaluator.prompts]
    step = max(1, CHUNK_SEQUENCES // n)
    results: list[ev.ProblemResult] = []
    scored: list[tuple[Request, Completion]] = []
    tokens = sequences = 0
    for first in range(0, len(requests), step):
        part = requests[first : first + step]
        completions = ctx.sampler.generate(part, params, stream, should_stop=ctx.should_stop)
        pairs = list(zip(evaluator.prompts[first : first + step], completions, strict=True))
        results += ctx.spread(pairs, lambda pair: judge(*pair, ctx))
        for request, samples in zip(part, completions, strict=True):
            tokens += sum(len(c.ids) for c in samples)
            sequences += len(samples)
            scored += [(request, c) for c in samples[:ENTROPY_SAMPLES]]
        ctx.emit(
            ev.Progress(
                iteration=ctx.state.counters.iteration,
                total_iterations=total_iterations(ctx),
                stage=f"evaluating ({evaluator.name})",
                done=min(first + step, len(requests)),
                total=len(requests),
            )
        )
    entropy = mean_entropy(policy, scored, settings.temperature)
    return {
        "problems": results,
        "mean_length": tokens / sequences if sequences else None,
        "token_entropy": entropy if math.isfinite(entropy) else None,
        "tokens": tokens,
    }


def total_iterations(ctx: Context) -> int:
    """The iteration budget; 0 for a pure evaluation."""
    return 0 if isinstance(ctx.config, EvaluateConfig) else ctx.config.budget.iterations


def judge(prompt: Prompt, samples: Sequence[Completion], ctx: Context) -> ev.ProblemResult:
    """Counts of one problem's samples. A truncated sample is wrong and an answer class of its own."""
    answers: Counter[tuple[str, bool]] = Counter()
    forms: Counter[str] = Counter()
    correct = truncated = 0
    for sample in samples:
        if sample.finish == "length":
            truncated += 1
            answers["truncated", False] += 1
            continue
        verdict = checked(ctx.policy.decode_completion(sample.ids), prompt, ctx)
        if failed(verdict.by):
            ctx.warn_once(f"The checker failed on samples of the evaluation ({verdict.by}); they count as wrong")
        right = verdict.reward is not None and verdict.reward >= 1.0
        correct += right
        answers[verdict.answer if verdict.answer is not None else "__none__", right] += 1
        if right:
            forms[verdict.canonical or ""] += 1
    ranked = answers.most_common()
    shown = [ev.AnswerCount(key=k, count=c, correct=ok) for (k, ok), c in ranked[:MAX_ANSWERS]]
    rest = sum(c for _, c in ranked[MAX_ANSWERS:])
    if rest:
        shown.append(ev.AnswerCount(key="__other__", count=rest, correct=False))
    return ev.ProblemResult(
        uid=prompt.uid,
        n=len(samples),
        c=correct,
        truncated=truncated,
        answers=shown,
        correct_forms=sorted(forms.values(), reverse=True),
    )


def mean_entropy(policy: Policy, scored: Sequence[tuple[Request, Completion]], temperature: float) -> float:
    """Exact softmax entropy in nats, mean over the tokens of the given samples; NaN without any."""
    from trainer.loop.forward import score_ids

    if not scored:
        return math.nan
    total = count = 0.0
    with torch.no_grad():
        for first in range(0, len(scored), 512):
            part = scored[first : first + 512]
            scores, mask = score_ids(
                policy, [r.prompt_ids for r, _ in part], [tuple(c.ids) for _, c in part], temperature
            )
            total += float((scores.entropy_NT * mask).double().sum())
            count += float(mask.sum())
    return total / count if count else math.nan


def evaluation_metrics(event: ev.Evaluation, ctx: Context) -> dict[str, float]:
    """Scalars of a validation, the squeezing ones against the run's first. Keys without a value are left out.

    The effective number compares problems with c ≥ 2 at both checkpoints and enters the memory ``evaluation``.
    """
    problems = event.problems
    counts = [(p.n, p.c) for p in problems]
    n = min((p.n for p in problems), default=0)
    if not counts or n == 0:
        return {}
    pass1, passn = mean_pass_at_k(counts, 1), mean_pass_at_k(counts, n)
    ended = sum(p.n - p.truncated for p in problems)
    out = {
        "eval/accuracy": pass1,
        "eval/truncated": sum(p.truncated for p in problems) / sum(p.n for p in problems),
        **{f"eval/cover@{t}": cover_at(counts, t) for t in (0.1, 0.5, 0.9)},
        "squeeze/stuck_fraction": sum(
            any(not a.correct and a.key != "__other__" and a.count >= 0.9 * p.n for a in p.answers) for p in problems
        )
        / len(problems),
    }
    if ended:
        out["eval/accuracy_untruncated"] = sum(p.c for p in problems) / ended
    if event.token_entropy is not None:
        out["eval/entropy"] = event.token_entropy
    headroom = kappa(pass1, passn, n)
    if math.isfinite(headroom):
        out["headroom/kappa_max"] = headroom
    out |= squeezing.evaluation_metrics(problems)
    memory = ctx.state.memory_of("evaluation")
    ever: dict[str, list[int]] = memory.setdefault("ever", {})
    for p in problems:
        samples, right = ever.get(p.uid, (0, 0))
        ever[p.uid] = [samples + p.n, right + p.c]
    found = squeezing.ceiling([(p.n, p.c, ever[p.uid][0], ever[p.uid][1]) for p in problems])
    out |= {
        "squeeze/ceiling_now": found.now,
        "squeeze/ceiling_cum": found.ever,
        "squeeze/forgotten": found.forgotten,
        "squeeze/forgotten_null": found.forgotten_null,
    }
    start: dict[str, list[int]] = memory.setdefault("start_forms", {p.uid: p.correct_forms for p in problems})
    shared = [(start[p.uid], p.correct_forms) for p in problems if p.c >= 2 and sum(start.get(p.uid, [])) >= 2]
    out["squeeze/neff_problems"] = float(len(shared))
    if shared:
        before = sum(collision_mass(b) for b, _ in shared)
        now = sum(collision_mass(a) for _, a in shared)
        if before and now:
            memory["neff"], memory["neff_start"] = len(shared) / now, len(shared) / before
            out["squeeze/neff_correct"], out["squeeze/neff_correct_start"] = memory["neff"], memory["neff_start"]
    return out
