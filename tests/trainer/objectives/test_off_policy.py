"""Tokens that are trained and not sampled: in the term of their own, and in no ratio, clip or KL."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainer.contract.algorithm import AlgorithmSection
from trainer.core.errors import ConfigError
from trainer.core.slots import Scores
from trainer.core.types import AUTHOR, Batch, Group, Node, Prompt, Span, Trajectory
from trainer.loop.batching import WholePath, build_batch, rows_of
from trainer.objectives.aggregate import Denominators, reduce_term
from trainer.objectives.kl_term import KlToBase
from trainer.objectives.off_policy import OffPolicy, off_policy_weight, shaped
from trainer.objectives.policy_gradient import PolicyGradient


def test_the_cards_shaping_and_its_derivative() -> None:
    p = torch.tensor([0.01, 0.1, 0.5, 1.0], dtype=torch.double, requires_grad=True)
    f = shaped(p, 0.1)
    assert f.tolist() == pytest.approx([0.090909, 0.5, 0.833333, 0.909091], abs=1e-6)
    (slope,) = torch.autograd.grad(f.sum(), p)
    assert slope.tolist() == pytest.approx([8.264463, 2.5, 0.277778, 0.082645], abs=1e-6)


def test_the_weights_of_the_modes() -> None:
    now = torch.tensor([[0.1, 0.5]]).log().requires_grad_()
    author = torch.tensor([[0.2, 0.25]]).log()
    luffy, ratio = off_policy_weight(now, author, "luffy", gamma=0.1)
    assert luffy[0].tolist() == pytest.approx([0.5, 0.833333], abs=1e-6)
    assert ratio[0].tolist() == pytest.approx([0.1, 0.5])
    detached, _ = off_policy_weight(now, author, "detached", gamma=0.1)
    assert detached[0].tolist() == [1.0, 1.0]
    (slope,) = torch.autograd.grad(detached.sum(), now)
    assert slope[0].tolist() == [1.0, 1.0]
    true, _ = off_policy_weight(now, author, "true_ratio", gamma=0.1)
    assert true[0].tolist() == pytest.approx([0.5, 2.0])


def context() -> Any:
    tallies: dict[str, list[float]] = {}

    def tally(key: str, a: float, b: float) -> None:
        found = tallies.setdefault(key, [0.0, 0.0])
        found[0] += a
        found[1] += b

    memory: dict[str, dict[str, Any]] = {}
    state = SimpleNamespace(memory_of=lambda name: memory.setdefault(name, {}))
    return SimpleNamespace(tally=tally, tallies=tallies, metrics={}, state=state)


def batch_of(author: tuple[float, ...] | None = None) -> Batch:
    """A sampled row of three tokens and a teacher's of two."""
    prompt = Span((1,), "prompt", origin="env")
    spans = [
        Span((3, 4, 5), "answer", sampled=True, trained=True, logprobs=(-1.0, -2.0, -3.0)),
        Span((6, 7), "answer", trained=True, logprobs=author, origin="teacher"),
    ]
    trajectories = [Trajectory([Node(0, [prompt, s])], "u", i, "eos", reward=float(i)) for i, s in enumerate(spans)]
    group = Group(Prompt("u", (), None, "t"), trajectories, "u:0")
    samples = [s for t in trajectories for s in WholePath().samples(t, group, None)]  # type: ignore[arg-type]
    batch = build_batch(samples, 0)
    batch.columns["advantage"] = torch.tensor([[-1.0], [1.0]]).expand(2, 3).contiguous()
    return batch


def test_samples_say_which_tokens_are_foreign() -> None:
    batch = batch_of((-0.5, -0.25))
    assert batch.mask_NT.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.on_policy_NT.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert batch.columns["sampler_logprobs"][0].tolist() == [-1, -2, -3]
    assert bool(batch.columns["sampler_logprobs"][1].isnan().all())
    assert batch.columns[AUTHOR][1, :2].tolist() == [-0.5, -0.25]
    assert bool(batch.columns[AUTHOR][0].isnan().all())
    assert AUTHOR not in batch_of().columns
    assert rows_of(batch, [1]).columns[AUTHOR].tolist() == [[-0.5, -0.25]]


NOW = torch.tensor([[-1.0, -2.5, -2.0], [-0.7, -2.3, 0.0]])
RLOO = AlgorithmSection(preset="x", aggregation="token-mean", kl_coef=0.1)


def test_the_base_terms_leave_a_teachers_tokens_alone_and_count_them() -> None:
    batch, ctx = batch_of(), context()
    now = NOW.clone().requires_grad_()
    batch.columns["old_logprobs"] = NOW - 0.5
    batch.columns["reference_logprobs"] = NOW - 1.0
    kl = KlToBase(RLOO)
    kl.prepare(batch, ctx)
    scores, counts = Scores(now, torch.zeros(2, 3)), Denominators.of(batch, max_length=3)
    for part in (PolicyGradient(RLOO), kl):
        (term,) = part.terms(batch, scores, ctx)
        (slope,) = torch.autograd.grad(reduce_term(term, batch.mask_NT, counts), now)
        assert slope[1].tolist() == [0, 0, 0]
        assert bool((slope[0] != 0).all())
    ratio = math.exp(0.5)
    (term,) = PolicyGradient(RLOO).terms(batch, scores, ctx)
    assert float(reduce_term(term, batch.mask_NT, counts).detach()) == pytest.approx(
        3 * ratio / 5
    )  # five trained tokens
    assert ctx.tallies["clip_ratio/low_mean"][1] == 6  # two calls of three sampled tokens


def test_the_term_of_a_teachers_tokens_and_its_share() -> None:
    batch, ctx = batch_of(), context()
    now = NOW.clone().requires_grad_()
    part = OffPolicy(SimpleNamespace(off_policy="luffy", gamma=0.1), SimpleNamespace(algorithm=RLOO))  # type: ignore[arg-type]
    part.prepare(batch, ctx)
    (term,) = part.terms(batch, Scores(now, torch.zeros(2, 3)), ctx)
    weights = [p / (p + 0.1) for p in (math.exp(-0.7), math.exp(-2.3))]
    assert term.value[0].tolist() == [0, 0, 0]
    assert term.value[1].tolist() == pytest.approx([-weights[0], -weights[1], 0.0])
    mass, total = ctx.tallies["hapo/offpolicy_grad_mass"]
    assert mass / total == pytest.approx(sum(weights) / (3 + sum(weights)))
    probability, tokens = ctx.tallies["hapo/teacher_token_prob"]
    assert (probability, tokens) == (pytest.approx(math.exp(-0.7) + math.exp(-2.3)), 2)


def test_a_true_ratio_is_clipped_and_needs_the_teachers_log_probs() -> None:
    part = OffPolicy(SimpleNamespace(off_policy="true_ratio", gamma=0.1), SimpleNamespace(algorithm=RLOO))  # type: ignore[arg-type]
    batch = batch_of((-1.7, -2.2))
    part.prepare(batch, context())
    (term,) = part.terms(batch, Scores(NOW, torch.zeros(2, 3)), context())
    assert term.value[1].tolist() == pytest.approx([-1.2, -math.exp(-0.1), 0.0])  # e¹ cut to 1 + ε
    with pytest.raises(ConfigError, match=r"without log-probs.*'luffy' or 'detached'"):
        part.prepare(batch_of(), context())
    only_own = rows_of(batch_of(), [0])
    part.prepare(only_own, context())
    (term,) = part.terms(only_own, Scores(NOW[:1], torch.zeros(1, 3)), context())
    assert not bool(term.value.any())
