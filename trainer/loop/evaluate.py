"""Evaluations: per-problem (n, c) on a fixed set, never a ready-made pass@k, reused for equal weights and set.

The draws of an evaluation depend on the set's seed and not on the run or iteration, so the same weights on the same set
give the same result wherever they are measured, and a stored result may stand in for a repetition.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.contract import events as ev
from trainer.contract.config import EvaluateConfig, EvaluationSection, RlConfig, SftConfig
from trainer.contract.passk import collision_mass, cover_at, kappa, mean_pass_at_k
from trainer.core.context import Context
from trainer.core.types import Prompt, content_hash
from trainer.data.task import Task
from trainer.data.task import problems as draw_problems
from trainer.policy.fingerprint import weights_hash
from trainer.policy.load import Policy
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
        sampler = ev.SamplerSettings(temperature=e.temperature, max_new_tokens=config.sampling.max_new_tokens)
        identity = content_hash([p.uid for p in prompts], task.name, task.checker_version, sampler.model_dump(), n)
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
class Measured:
    """What one evaluation found."""

    problems: list[ev.ProblemResult]
    mean_length: float
    token_entropy: float
    tokens: int


def evaluate(evaluator: Evaluator, ctx: Context, *, cache: Path | None, announced: bool) -> ev.Evaluation:
    """Measures (or looks up) the policy in training on the set and returns the event; counts evaluation tokens.

    ``cache`` is a folder of results by (weights, set); ``announced`` leaves the set's problems out of the event.
    Raises SamplingStopped when asked to stop; nothing is counted then.
    """
    digest = weights_hash(ctx.policy.model)
    path = cache / f"{digest[:32]}-{evaluator.set.id}-{evaluator.seed}.json" if cache else None
    found = _read(path)
    reused = found is not None
    if found is None:
        found = _measure(evaluator, ctx)
        _write(path, found)
        ctx.state.counters.evaluation_tokens += found.tokens
    return ev.Evaluation(
        axes=ctx.state.axes(),
        name=evaluator.name,
        set_id=evaluator.set.id,
        set=None if announced else evaluator.set,
        weights_hash=digest,
        reused=reused,
        problems=found.problems,
        mean_length=found.mean_length,
        token_entropy=found.token_entropy,
    )


def _measure(evaluator: Evaluator, ctx: Context) -> Measured:
    policy, settings, n = ctx.policy, evaluator.set.sampler, evaluator.set.n
    params = SamplingParams(
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_new_tokens=settings.max_new_tokens,
        eos_ids=policy.eos_ids,
    )
    stream = StreamKey(seed=evaluator.seed, purpose="evaluation", iteration=0)
    requests = [Request(uid=p.uid, prompt_ids=policy.encode_prompt(p.messages), n=n) for p in evaluator.prompts]
    step = max(1, CHUNK_SEQUENCES // n)
    results: list[ev.ProblemResult] = []
    scored: list[tuple[Request, Completion]] = []
    tokens = sequences = 0
    for first in range(0, len(requests), step):
        part = requests[first : first + step]
        completions = ctx.sampler.generate(part, params, stream, should_stop=ctx.should_stop)
        for prompt, request, samples in zip(evaluator.prompts[first : first + step], part, completions, strict=True):
            results.append(judge(ctx.task, policy, prompt, samples))
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
    return Measured(results, tokens / sequences if sequences else math.nan, entropy, tokens)


def total_iterations(ctx: Context) -> int:
    """The iteration budget; 0 for a pure evaluation."""
    return 0 if isinstance(ctx.config, EvaluateConfig) else ctx.config.budget.iterations


def judge(task: Task, policy: Policy, prompt: Prompt, samples: Sequence[Completion]) -> ev.ProblemResult:
    """Counts of one problem's samples. A truncated sample is wrong and an answer class of its own."""
    answers: Counter[tuple[str, bool]] = Counter()
    forms: Counter[str] = Counter()
    correct = truncated = 0
    for sample in samples:
        if sample.finish == "length":
            truncated += 1
            answers["truncated", False] += 1
            continue
        verdict = task.score(policy.decode_completion(sample.ids), prompt)
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
    memory = ctx.state.memory_of("evaluation")
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


def _read(path: Path | None) -> Measured | None:
    if path is None or not path.is_file():
        return None
    document = json.loads(path.read_text())
    rows = [ev.ProblemResult.model_validate(p) for p in document.pop("problems")]
    return Measured(problems=rows, **document)


def _write(path: Path | None, found: Measured) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "problems": [p.model_dump() for p in found.problems],
        "mean_length": found.mean_length,
        "token_entropy": found.token_entropy,
        "tokens": found.tokens,
    }
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(document))
    os.replace(partial, path)
