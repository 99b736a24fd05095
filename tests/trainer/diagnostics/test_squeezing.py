"""The numbers of the diagnostics reference, edges, and the null on a model that never changes."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract.events import AnswerCount, ProblemResult
from trainer.core.types import Group, Node, Prompt, Span, Trajectory
from trainer.diagnostics import squeezing as sq

KNOWN = (0.5, 0.2, 0.1, 0.05, 0.05, 0.05, 0.03, 0.02)
BEFORE = (0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05)
AFTER = (0.9, 0.04, 0.02, 0.01, 0.01, 0.01, 0.005, 0.005)
RIGHT = (0, 1, 3, 6)
SAMPLED = [math.log(p) for p in (0.5, 0.2, 0.1, 0.05)]


def test_a_known_distribution() -> None:
    assert sq.effective(KNOWN, 1) == pytest.approx(4.625187, abs=1e-6)
    assert sq.effective(KNOWN) == pytest.approx(3.238342, abs=1e-6)
    assert sq.covering(KNOWN) == 5
    assert sq.gini(KNOWN) == pytest.approx(0.545)
    assert (sq.covering([1 / 8] * 8), sq.gini([1 / 8] * 8)) == (8, pytest.approx(0))
    assert sq.gini([1.0] + [0.0] * 7) == pytest.approx(0.875)


def test_before_and_after_squeezing() -> None:
    assert sq.effective(BEFORE) == pytest.approx(5.555556, abs=1e-6)
    assert sq.effective(AFTER) == pytest.approx(1.230996, abs=1e-6)
    assert sq.effective(AFTER) / sq.effective(BEFORE) == pytest.approx(0.221579, abs=1e-6)
    assert (sq.effective(BEFORE, 1), sq.effective(AFTER, 1)) == pytest.approx((6.537300, 1.637152), abs=1e-6)
    assert (sq.covering(BEFORE), sq.covering(AFTER)) == (6, 1)
    within = []
    for p, mass in ((BEFORE, 0.65), (AFTER, 0.955)):
        right = [p[i] for i in RIGHT]
        assert math.fsum(right) == pytest.approx(mass)
        within.append(sq.effective([x / math.fsum(right) for x in right]))
    assert within == pytest.approx([2.964912, 1.123564], abs=1e-6)


def test_sampled_trajectories() -> None:
    assert (sq.top_mass(SAMPLED, 1), sq.top_mass(SAMPLED, 2)) == pytest.approx((0.5, 0.7))
    assert sq.unseen_mass(SAMPLED) == pytest.approx(0.15)
    shares = sq.group_shares(SAMPLED)
    assert shares == pytest.approx([0.588235, 0.235294, 0.117647, 0.058824], abs=1e-6)
    assert (sq.effective(shares), sq.effective(shares, 1)) == pytest.approx((2.388430, 2.918349), abs=1e-6)


@pytest.mark.parametrize(
    ("counts", "entropy", "covered"),
    [((4, 2, 1, 1), 1.426190, 0.75), ((8,), 0.0, 1.0), ((1,) * 8, 2.592857, 0.0)],
)
def test_answers(counts: tuple[int, ...], entropy: float, covered: float) -> None:
    assert sq.answer_entropy(counts) == pytest.approx(entropy, abs=1e-6)
    assert sq.coverage(counts) == covered


def test_nothing_is_undefined_and_not_zero() -> None:
    empty = (
        sq.coverage([]),
        sq.answer_entropy([]),
        sq.top_mass([], 1),
        sq.unseen_mass([]),
        sq.effective([]),
        sq.gini([]),
    )
    assert all(math.isnan(x) for x in empty)
    assert all(math.isnan(x) for x in vars(sq.ceiling([])).values())
    assert sq.rollout_metrics([]) == sq.evaluation_metrics([]) == {}


@given(st.lists(st.floats(-200, 0), min_size=1, max_size=12))
def test_shares_are_a_distribution_at_any_length(logprobs: list[float]) -> None:
    shares = sq.group_shares([x - 5000 for x in logprobs])
    assert math.fsum(shares) == pytest.approx(1)
    assert 1 - 1e-9 <= sq.effective(shares) <= len(logprobs) + 1e-9


def group_of(*rollouts: tuple[int, float]) -> Group:
    asked = Span((1,), "prompt")
    answers = [Span((i,), "answer", sampled=True, trained=True, logprobs=(lp,)) for i, lp in rollouts]
    trajectories = [Trajectory([Node(0, [asked, span])], "u", n, "eos") for n, span in enumerate(answers)]
    return Group(Prompt("u", (), None, "t"), trajectories, "u")


def test_the_rollouts_of_an_iteration() -> None:
    drawn = [(i, lp) for i, (lp, times) in enumerate(zip(SAMPLED, (4, 2, 1, 1), strict=True)) for _ in range(times)]
    found = sq.rollout_metrics([group_of(*drawn)])
    assert found["squeeze/neff"] == pytest.approx(1 / 0.31875)
    assert found["squeeze/log_n1"] == pytest.approx(1.411223, abs=1e-6)
    assert found["squeeze/top1_mass"] == pytest.approx(0.5)
    assert found["squeeze/top5_mass"] == pytest.approx(0.85)
    assert found["squeeze/unseen_mass"] == pytest.approx(0.15)
    assert found["squeeze/neff_group"] == pytest.approx(2.388430 / 4, abs=1e-6)
    far = sq.rollout_metrics([group_of((3, -2000.0), (4, -2000.0))])
    assert "squeeze/neff" not in far
    assert far["squeeze/neff_group"] == pytest.approx(1)


def test_the_answers_of_an_evaluation() -> None:
    def problem(*answers: tuple[str, int, bool]) -> ProblemResult:
        listed = [AnswerCount(key=k, count=n, correct=ok) for k, n, ok in answers]
        right = sum(n for _, n, ok in answers if ok)
        return ProblemResult(uid="u", n=8, c=right, answers=listed, correct_forms=[right] if right else [])

    found = sq.evaluation_metrics(
        [problem(("4", 6, True), ("5", 2, False)), problem(("7", 5, False), ("__other__", 3, False))]
    )
    assert found["squeeze/mass_wrong_top"] == pytest.approx((2 / 8 + 5 / 8) / 2)
    assert found["squeeze/answer_coverage"] == 1.0
    assert found["squeeze/answer_problems"] == 0.5
    assert found["squeeze/answer_entropy"] == pytest.approx(sq.answer_entropy([6, 2]))
    thin = sq.evaluation_metrics([problem(*((str(i), 1, False) for i in range(8)))])
    assert "squeeze/answer_entropy" not in thin


def test_what_a_model_that_never_changes_seems_to_forget_is_what_its_null_says() -> None:
    rng, problems, n = random.Random(0), 4000, 8
    p = [rng.random() ** 3 for _ in range(problems)]
    totals = [[0, 0] for _ in range(problems)]
    for _ in range(6):
        now = [sum(rng.random() < x for _ in range(n)) for x in p]
        for total, c in zip(totals, now, strict=True):
            total[0] += n
            total[1] += c
    found = sq.ceiling([(n, c, *total) for c, total in zip(now, totals, strict=True)])
    assert found.forgotten > 0.1
    assert found.forgotten_null == pytest.approx(found.forgotten, abs=0.01)
    first = sq.ceiling([(n, c, n, c) for c in now])
    assert (first.forgotten, first.forgotten_null) == (0.0, 0.0)
    lost = sq.ceiling([(8, 0, 16, 8)])
    assert (lost.now, lost.ever, lost.forgotten) == (0.0, 1.0, 1.0)
    assert lost.forgotten_null == pytest.approx(1 / math.comb(16, 8))
