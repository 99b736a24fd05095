"""The rules by which counts become a verdict, on counts whose truth is known."""

from __future__ import annotations

import json
import random

import pytest

from tests.trainer.contract.test_study import study
from trainer.contract.findings import findings, frontier
from trainer.contract.intervals import over_resampled, over_seeds, seed_interval
from trainer.contract.results import CountRecord, RunRecord, SetRecord, StudyResults, study_hash
from trainer.contract.study import Study

PROBLEMS, SAMPLES = 120, 16
QUICK = {"seeds": [0, 1, 2]}
EVALUATION = {"samples": SAMPLES, "validation_samples": SAMPLES, "ks": [1, 4, 16], "problems": PROBLEMS}
ARMS = [
    {"name": "grpo", "title": "GRPO", "role": "baseline"},
    {"name": "slow", "title": "Slow", "role": "control", "family": "grpo", "budget_share": 0.5},
    {"name": "sps", "title": "SPS", "role": "method"},
    {"name": "frozen", "title": "Frozen", "role": "null"},
]


def made(**changes) -> Study:
    primary = {"arm": "sps", "against": "grpo", "metric": "pass@1"}
    return study(**{"arms": ARMS, "evaluation": EVALUATION, "quick": QUICK, "primary": primary, **changes})


def measured(
    one: Study, success: dict[str, float], *, seeds=range(5), spread=0.01, form="full", temperatures=(1.0,), chance=0.0
) -> StudyResults:
    """Counts drawn for arms of these success probabilities, which differ a little between problems and seeds."""
    rng = random.Random(0)
    sets = [
        SetRecord(
            id=f"{split}-{t}", split=split, temperature=t, samples=SAMPLES,
            uids=tuple(map(str, range(PROBLEMS))), chance=(chance,) * PROBLEMS,
        )
        for split in ("validation", "test") for t in temperatures
    ]  # fmt: skip
    runs, weights = [], {"base": success.get("base", 0.3)}
    for arm, p in success.items():
        for seed in seeds if arm != "base" else ():
            digest = "base" if arm == "frozen" else f"{arm}-{seed}"
            runs.append(RunRecord(arm=arm, seed=seed, weights_hash=digest, sampled_tokens=1000, phases={"rl": 3}))
            weights.setdefault(digest, p + rng.uniform(-spread, spread))
    counts = []
    for digest, p in weights.items():
        for s in sets:
            hotter = p * (1 - 0.2 * abs(s.temperature - 1.0))
            drawn = [sum(rng.random() < hotter for _ in range(SAMPLES)) for _ in range(PROBLEMS)]
            counts.append(CountRecord(weights_hash=digest, set_id=s.id, correct=tuple(drawn)))
    return StudyResults(
        slug="small", form=form, study_hash=study_hash(one, form), base_weights_hash="base",
        runs=tuple(runs), sets=tuple(sets), counts=tuple(counts),
    )  # fmt: skip


def verdict(success, one=None, **options):
    one = one or made()
    return findings(one, measured(one, success, **options))


CLEAR = {"grpo": 0.4, "slow": 0.35, "sps": 0.6, "frozen": 0.3}


def test_five_seeds_a_clear_effect_and_a_tuned_control_confirm() -> None:
    found = verdict(CLEAR)
    assert (found.verdict, found.reasons) == ("confirmed here", ())
    assert found.primary is not None
    assert found.primary.estimate.value == pytest.approx(0.2, abs=0.03)
    assert found.primary.estimate.seeds == 5
    assert found.nulls == {"frozen": "silent: the base's weights, bit for bit"}
    assert found.configurations == {"grpo": 2, "sps": 1, "frozen": 1}


def test_three_seeds_are_a_direction() -> None:
    found = verdict(CLEAR, seeds=range(3))
    assert found.verdict == "direction seen"
    assert found.reasons == ("3 seeds, 5 are needed",)


@pytest.mark.parametrize(("seeds", "expected"), [(0, "not run yet"), (1, "not run yet"), (2, "not run yet")])
def test_too_few_seeds_are_no_verdict(seeds, expected) -> None:
    found = verdict(CLEAR, seeds=range(seeds))
    assert found.verdict == expected
    assert f"{seeds} of 5 seeds" in found.reasons[0]


def test_a_quick_form_never_gets_beyond_a_direction() -> None:
    one = made(quick={"seeds": [0, 1, 2, 3, 4]})
    assert verdict(CLEAR, one, form="quick").verdict == "direction seen"
    assert verdict(CLEAR, one, form="quick", seeds=range(1)).verdict == "quick run only"
    assert verdict({**CLEAR, "sps": 0.4}, one, form="quick").verdict == "not seen"


@pytest.mark.parametrize("sps", [0.2, 0.4, 0.41])
def test_the_other_sign_or_less_than_the_smallest_effect_is_not_seen(sps) -> None:
    assert verdict({**CLEAR, "sps": sps}).verdict == "not seen"


def test_an_effect_lost_in_the_spread_of_seeds_is_a_direction() -> None:
    found = verdict({**CLEAR, "sps": 0.5}, spread=0.29)
    assert found.primary is not None
    assert found.primary.estimate.lo < 0 < 0.02 < found.primary.estimate.value
    assert (found.verdict, found.reasons[0]) == ("direction seen", "the interval includes 0")


def test_an_untuned_control_holds_the_verdict_back() -> None:
    arms = [arm for arm in ARMS if arm["name"] != "slow"]
    found = verdict({k: v for k, v in CLEAR.items() if k != "slow"}, made(arms=arms))
    assert found.verdict == "direction seen"
    assert found.reasons == ("grpo was not tuned: 1 of its configurations tried",)


def test_the_strongest_control_counts_and_not_only_the_named_one() -> None:
    arms = [*ARMS, {"name": "bonus", "title": "Bonus", "role": "control"}]
    found = verdict({**CLEAR, "bonus": 0.6}, made(arms=arms))
    assert found.verdict == "direction seen"
    assert "not resolved against the strongest control, bonus" in found.reasons
    assert [c.against for c in found.contrasts] == ["grpo", "bonus"]


def test_a_base_that_guesses_holds_the_verdict_back() -> None:
    found = verdict(CLEAR, chance=0.28)
    assert found.verdict == "direction seen"
    assert "below the base" in found.reasons[0]


def test_a_null_arm_that_moves_holds_the_verdict_back() -> None:
    one = made()
    results = measured(one, CLEAR)
    runs = tuple(
        run.model_copy(update={"weights_hash": f"grpo-{run.seed}"}) if run.arm == "frozen" else run
        for run in results.runs
    )
    found = findings(one, results.model_copy(update={"runs": runs}))
    assert found.verdict == "direction seen"
    assert found.nulls["frozen"].startswith("moved: +0.1")


def test_lower_is_better_where_the_claim_says_so() -> None:
    primary = {"arm": "sps", "against": "grpo", "metric": "pass@1", "direction": "lower"}
    assert verdict({**CLEAR, "sps": 0.2}, made(primary=primary)).verdict == "confirmed here"
    assert verdict(CLEAR, made(primary=primary)).verdict == "not seen"


def test_a_metric_of_the_runs_decides_by_seeds() -> None:
    primary = {"arm": "sps", "against": "grpo", "metric": "long/accuracy"}
    one = made(primary=primary)
    results = measured(one, CLEAR)
    values = {
        "grpo": [0.1, 0.2, 0.1, 0.2, 0.15],
        "slow": [0.0] * 5,
        "sps": [0.4, 0.5, 0.45, 0.5, 0.4],
        "frozen": [None] * 5,
    }
    runs = tuple(run.model_copy(update={"metric": values[run.arm][run.seed]}) for run in results.runs)
    found = findings(one, results.model_copy(update={"runs": runs}))
    assert found.verdict == "confirmed here"
    assert found.primary is not None
    differences = [a - b for a, b in zip(values["sps"], values["grpo"], strict=True)]
    estimate = found.primary.estimate
    assert (estimate.value, estimate.lo, estimate.hi) == pytest.approx(seed_interval(differences))
    assert verdict(CLEAR, one).verdict == "not run yet"


def test_temperatures_are_chosen_on_validation() -> None:
    """Hotter loses by construction, so T = 1 is chosen, and the rows at the other one are still shown."""
    one = made(evaluation={**EVALUATION, "temperatures": [2.0, 1.0]})
    found = verdict(CLEAR, one, temperatures=(2.0, 1.0))
    assert found.primary is not None
    assert found.primary.temperatures == (1.0, 1.0)
    assert [row.temperature for row in found.arms[0].rows] == [2.0, 1.0]


def test_the_frontier_leaves_out_what_is_beaten_at_both() -> None:
    assert frontier([0.1, 0.3, 0.2, 0.25], [0.9, 0.5, 0.8, 0.4]) == [(0.1, 0.9), (0.2, 0.8), (0.3, 0.5)]


def test_a_frontier_contrast_is_the_height_at_equal_pass1() -> None:
    """Without spread between problems, a policy of success p has pass@4 = 1 − (1 − p)⁴ on everybody's frontier: no gap. One
    whose problems are all or nothing lies below it."""
    primary = {"arm": "sps", "against": "grpo", "metric": "frontier@4"}
    one = made(primary=primary)
    same = verdict({**CLEAR, "grpo": 0.6, "slow": 0.3, "sps": 0.6}, one)
    assert same.primary is not None
    assert same.primary.estimate.value == pytest.approx(0.0, abs=0.03)
    results = measured(one, {**CLEAR, "sps": 0.5})
    split = (SAMPLES,) * (PROBLEMS // 2) + (0,) * (PROBLEMS // 2)
    counts = tuple(
        c.model_copy(update={"correct": split}) if c.weights_hash.startswith("sps") else c for c in results.counts
    )
    found = findings(one, results.model_copy(update={"counts": counts}))
    assert found.primary is not None
    # At pass@1 = .5, beyond the control's best point of about .4, the frontier stays at 1 − .6⁴ = .87.
    assert found.primary.estimate.value == pytest.approx(0.5 - 0.87, abs=0.03)
    assert found.verdict == "not seen"


def test_json_has_no_number_that_is_none() -> None:
    json.dumps(verdict(CLEAR, seeds=range(1)).json(), allow_nan=False)


# Intervals over seeds


def test_one_seed_has_no_interval() -> None:
    found = over_seeds([[0.1] * 50])
    assert (found.value, found.lo, found.p, found.note) == (pytest.approx(0.1), None, None, "one seed")


def test_up_to_four_seeds_it_is_the_t_interval() -> None:
    rows = [[0.1 * s + 0.01 * (i % 3) for i in range(60)] for s in range(4)]
    means = [sum(row) / 60 for row in rows]
    found = over_seeds(rows)
    assert (found.value, found.lo, found.hi) == pytest.approx(seed_interval(means))


def test_from_five_on_problems_count_too() -> None:
    """Seeds that agree closely on problems that disagree widely: t over seeds alone would be nearly a point."""
    rng = random.Random(1)
    shared = [rng.choice((0.0, 1.0)) for _ in range(200)]
    rows = [[x + rng.gauss(0, 0.001) for x in shared] for _ in range(5)]
    found = over_seeds(rows)
    assert found.hi - found.lo == pytest.approx(2 * 1.96 * 0.5 / 200**0.5, rel=0.1)


def test_an_interval_of_five_seeds_covers_as_it_says() -> None:
    """Noise of the seeds alone, the hardest case: resampling seeds alone covers .83."""
    rng = random.Random(2)
    covered = 0
    for _ in range(300):
        per_seed = [rng.gauss(0, 1) for _ in range(5)]
        found = over_resampled(per_seed, lambda per_seed=per_seed: [[x] * 500 for x in per_seed], problems=100)
        covered += found.lo <= 0 <= found.hi
    assert covered / 300 > 0.92


def test_seeds_that_agree_exactly_give_no_false_certainty() -> None:
    assert over_seeds([[0.5] * 40] * 3).lo is None
    assert over_seeds([[0.0] * 40] * 3).note == "no difference"
