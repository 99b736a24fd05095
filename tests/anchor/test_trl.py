"""Our losses against TRL's own code, on the same tensors: value and gradient."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

pytestmark = pytest.mark.anchor
pytest.importorskip("trl", reason="needs tests/anchor/run.sh")

from trl import GRPOTrainer  # noqa: E402

from tests.anchor.by_trl import by_trl, inputs, trainer  # noqa: E402
from tests.anchor.cases import LONGEST, ROWS, Case, rloo_cases, tensors, trl_case, trl_cases  # noqa: E402
from tests.anchor.ours import batch_of, context, ours  # noqa: E402
from trainer.contract.algorithm import AlgorithmSection  # noqa: E402
from trainer.core.slots import Scores  # noqa: E402
from trainer.objectives.aggregate import Denominators, reduce_term  # noqa: E402
from trainer.objectives.entropy import EntropyBonus  # noqa: E402

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-6}
GAPS: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def _largest_gap(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    yield
    print("\nlargest |difference| to TRL:", {k: f"{v:.1e}" for k, v in GAPS.items()})


def note(dtype: torch.dtype, gap: float) -> float:
    GAPS[str(dtype)] = max(GAPS.get(str(dtype), 0.0), gap)
    return gap


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", [*trl_cases(), *rloo_cases()], ids=lambda c: c.name)
def test_loss_and_gradient_are_trls(case: Case, dtype: torch.dtype) -> None:
    loss, gradient = ours(case, dtype)
    theirs, their_gradient = by_trl(case, dtype)
    scale = max(1.0, abs(theirs)) if dtype == torch.float32 else 1.0
    assert note(dtype, abs(loss - theirs) / scale) <= TOLERANCE[dtype]
    assert note(dtype, float((gradient - their_gradient).abs().max())) <= TOLERANCE[dtype]


def test_the_comparison_would_notice_another_clip() -> None:
    case = trl_cases()[0]
    wrong = Case(case.name, {**case.settings, "epsilon_high": 0.2}, case.theirs)
    assert abs(ours(wrong, torch.float64)[0] - by_trl(case, torch.float64)[0]) > 1e-6


def test_the_adaptive_entropy_bonus_moves_and_is_applied_as_trls() -> None:
    target, step = 0.8, 0.005
    section = AlgorithmSection(entropy_coef=0.01, entropy_target=target, entropy_step=step, entropy_max=0.02)
    bonus, ctx = EntropyBonus(section), context()
    case = trl_case("dapo", "token", entropy_coef=0.01)
    nothing = torch.zeros(0, dtype=torch.float64)
    theirs = trainer(case, nothing, nothing)
    theirs.use_adaptive_entropy, theirs._last_world_entropy, theirs._entropy_window_stats = True, float("inf"), None
    vars(theirs.args).update(
        entropy_target=target, entropy_coef_delta=step, entropy_coef_min=0.0, entropy_coef_max=0.02
    )
    applied = []
    for seed, scale in enumerate((0.5, 0.5, 0.5, 2.0, 2.0, 0.5, 0.5)):
        t = tensors(replace(case, seed=seed), torch.float64)
        entropy = (t.entropy.detach() * scale).requires_grad_()
        theirs._get_per_token_logps_and_entropies = lambda *a, t=t, e=entropy, **k: (t.now, e, None)
        loss = GRPOTrainer._compute_loss(theirs, None, inputs(case, t, slice(0, ROWS)))
        (pull,) = torch.autograd.grad(loss, entropy)
        batch = batch_of(t)
        bonus.before_step(ctx)
        (term,) = bonus.terms(batch, Scores(t.now, entropy), ctx)
        value = reduce_term(term, batch.mask_NT, Denominators.of(batch, max_length=LONGEST))
        (ours_,) = torch.autograd.grad(value, entropy)
        applied.append(-term.coefficient)
        bonus.after_step(ctx)
        assert note(torch.float64, float((pull - ours_).abs().max())) <= 1e-9
        assert ctx.state.memory["entropy"]["coef"] == pytest.approx(theirs.entropy_coef, abs=1e-12)
    assert len(set(applied)) > 2
    assert 0.0 in applied[1:]
