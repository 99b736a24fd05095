"""HAPO: gate, injection, what the loop makes of it, and that it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainer.advantages.groups import group_zscore
from trainer.contract.exit_codes import ExitCode
from trainer.core.types import Group, Node, Prompt, Span, Trajectory
from trainer.data.task import problems
from trainer.data.tasks import make_task
from trainer.methods.hapo import HapoParams
from trainer.testing.replay import Story, story_of
from trainer.transforms.success_injection import SuccessInjection, adaptive_threshold, linear_threshold, worst

NOTHING = {"every": 0, "problems": 0, "final_problems": 0}
EAGER: dict[str, Any] = {"tau": 1.0, "confidence": 0.5, "horizon": 1.0}
Runs = Callable[..., Story]


def attempt(reward: float | None, logprob: float = -1.0, index: int = 0) -> Trajectory:
    answer = Span((3, 4), "answer", sampled=True, trained=True, logprobs=(logprob, logprob))
    return Trajectory(
        [Node(0, [answer])], "u", index, "eos", rewards={"accuracy": reward}, reward=reward, outcome=reward
    )


def group_of(*rewards: float | None) -> Group:
    return Group(Prompt("u", (), None, "t"), [attempt(r, index=i) for i, r in enumerate(rewards)], "u:0")


def test_the_threshold_falls_to_zero() -> None:
    assert [linear_threshold(0.5, t, 100) for t in (0, 25, 50, 75, 100, 150)] == pytest.approx(
        [0.5, 0.375, 0.25, 0.125, 0, 0]
    )
    assert [adaptive_threshold(0.5, s, 0.5) for s in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([0.5, 0.25, 0, 0])


def test_the_worst_is_the_lowest_reward_then_the_least_likely_then_the_first() -> None:
    assert worst([attempt(1), attempt(0), attempt(0)]) == 1
    assert worst([attempt(0, -1), attempt(0, -2), attempt(0.5, -9)]) == 1
    assert worst([attempt(None), attempt(0.5)]) == 1
    assert worst([attempt(1), attempt(1)]) is None
    assert worst([attempt(None)]) is None


@pytest.mark.parametrize(
    ("rewards", "place", "expected"),
    [
        ((0, 0, 0, 0), 0, [1.732047, *[-0.577349] * 3]),
        ((1, 0, 0, 0, 0, 0, 0, 0), 1, [*[1.732047] * 2, *[-0.577349] * 6]),
    ],
)
def test_the_cards_advantages_after_the_injection(
    rewards: tuple[float, ...], place: int, expected: list[float]
) -> None:
    assert worst([attempt(r) for r in rewards]) == place
    after = torch.tensor([1.0 if i == place else r for i, r in enumerate(rewards)], dtype=torch.double)
    found = group_zscore(after, ["g"] * len(rewards), unbiased=False)
    assert found.tolist() == pytest.approx(expected, abs=1e-6)
    assert not bool(group_zscore(torch.zeros(4), ["g"] * 4, unbiased=False).any())


def part_at(iteration: int, **params: Any) -> tuple[SuccessInjection, Any]:
    memory: dict[str, Any] = {}
    state = SimpleNamespace(memory_of=lambda name: memory.setdefault(name, {}), memory=memory)
    part = SuccessInjection(HapoParams(**params), SimpleNamespace(budget=SimpleNamespace(iterations=100)))  # type: ignore[arg-type]
    return part, SimpleNamespace(state=state, iteration=iteration, metrics={})


@pytest.mark.parametrize(("right", "wrong", "open_"), [(0, 8, True), (1, 7, False), (2, 6, False), (4, 4, False)])
def test_the_cards_gate(right: int, wrong: int, open_: bool) -> None:
    part, ctx = part_at(1, tau=0.25)
    group = group_of(*[1.0] * right, *[0.0] * wrong)
    assert part.open(group, part.posterior(group, ctx), part.threshold(ctx), ctx) == open_
    part, ctx = part_at(61, tau=0.25)  # after the horizon of 60 iterations
    assert part.threshold(ctx) == 0
    assert not part.open(group, part.posterior(group, ctx), 0.0, ctx)


def test_posteriors_forget_and_move_once_an_iteration() -> None:
    part, ctx = part_at(1)
    first = group_of(*[0.0] * 8)
    for _ in range(3):  # asking changes nothing
        assert (part.posterior(first, ctx).a, part.posterior(first, ctx).b) == (1.0, 9.0)
    part.observe([first], ctx)
    assert ctx.state.memory["hapo"]["posteriors"]["u"] == [1.0, 9.0]
    second = part.posterior(group_of(1, 1, *[0.0] * 6), ctx)
    assert (second.a, second.b) == pytest.approx((3.0, 14.2))
    nothing = part.posterior(group_of(None, None), ctx)
    assert (nothing.a, nothing.b) == pytest.approx((1.0, 8.2))


def test_the_adaptive_threshold_never_rises() -> None:
    part, ctx = part_at(1, annealing="adaptive")
    part.observe([group_of(1, 1, 0, 0, 0, 0, 0, 0)], ctx)
    assert part.threshold(ctx) == pytest.approx(0.25)
    part.observe([group_of(0, 0)], ctx)
    assert part.threshold(ctx) == pytest.approx(0.25)
    part.observe([group_of(1, 1)] * 9, ctx)
    assert part.threshold(ctx) < 0.25


@pytest.fixture
def runs(run, document, tmp_path: Path) -> Runs:  # type: ignore[no-untyped-def]
    def make(params: dict[str, Any] | None, **changes: Any) -> Story:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        small: dict[str, Any] = {"budget": {"iterations": 4}, "evaluation": NOTHING, "checkpoints": {"every": 0}}
        methods = [] if params is None else [{"slug": "hapo", "params": params}]
        code = run(document(**{**small, "methods": methods, **changes}), folder)
        assert code == ExitCode.FINISHED, story_of(folder).last_message
        return story_of(folder)

    return make


def values(story: Story, key: str) -> list[Any]:
    return [v for (_, name), v in sorted(story.scalars.items()) if name == key]


def test_a_teachers_answer_takes_the_place_of_a_rollout_and_is_trained(runs: Runs) -> None:
    plain, own = runs(None), runs({**EAGER, "gate": "always"})
    injected = values(own, "hapo/injected")
    assert all(0 < share <= 1 for share in injected)
    assert values(own, "hapo/collapsed_after")[0] < values(own, "frac_reward_zero_std")[0]
    assert all(0 < mass < 1 for mass in values(own, "hapo/offpolicy_grad_mass"))
    assert own.rollouts[1] == plain.rollouts[1]  # the policy is the same, and so are its rollouts
    assert own.axes[1]["sampled_tokens"] == plain.axes[1]["sampled_tokens"]
    assert own.axes[1]["discarded_tokens"] > 0
    assert own.axes[1]["trained_tokens"] > own.axes[1]["sampled_tokens"] - own.axes[1]["discarded_tokens"]
    assert values(own, "sampling/kl/k1") == pytest.approx([0.0] * 4, abs=1e-5)


def test_with_the_gate_shut_it_is_the_base_algorithm_bit_for_bit(runs: Runs) -> None:
    plain, own = runs(None), runs({"tau": 0.01, "confidence": 0.99})
    assert values(own, "hapo/injected") == [0.0] * 4
    assert own.checkpoints[4] == plain.checkpoints[4]
    assert values(own, "hapo/offpolicy_grad_mass") == [0.0] * 4


def test_after_the_horizon_training_is_on_policy(runs: Runs) -> None:
    found = runs({**EAGER, "horizon": 0.5})
    assert values(found, "hapo/tau") == pytest.approx([1.0, 0.5, 0.0, 0.0])
    assert values(found, "hapo/injected")[0] > 0
    assert values(found, "hapo/injected")[2:] == [0.0, 0.0]
    assert values(found, "hapo/offpolicy_grad_mass")[2:] == [0.0, 0.0]


@pytest.mark.parametrize("mode", ["luffy", "detached"])
def test_dynamic_sampling_keeps_the_groups_that_were_rescued(mode: str, runs: Runs) -> None:
    algorithm = {"preset": "dapo", "prompts_per_iteration": 4, "num_generations": 4, "max_rounds": 3}
    changes = {"algorithm": algorithm, "sampling": {"max_new_tokens": 2}}
    found = runs({**EAGER, "gate": "always", "off_policy": mode}, **changes)
    assert values(found, "dapo/starved") == [0.0] * 4
    assert values(found, "dapo/rounds") == [1.0] * 4


def test_a_teacher_in_a_file(base: Path, runs: Runs) -> None:
    task = make_task("mod_chain")
    pool = problems(task, "train", 24, seed=0)
    rows = [{"uid": p.uid, "completion": p.answer, "logprobs": [-0.1] * (len(p.answer or "") + 1)} for p in pool[:12]]
    rows += [{"prompt": p.text, "completion": "not a number"} for p in pool[12:]]
    (base / "teacher.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    found = runs({**EAGER, "gate": "always", "teacher_file": "teacher.jsonl", "off_policy": "true_ratio"})
    assert sum(values(found, "hapo/injected")) > 0
    assert sum(values(found, "hapo/no_teacher")) > 0  # a wrong answer is no teacher's


def test_what_is_wrong_with_a_teachers_file_is_said(base: Path, run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (base / "broken.jsonl").write_text('{"uid": "x", "completion": 3}')
    for number, (name, text) in enumerate((("broken.jsonl", "broken.jsonl, line 1"), ("none.jsonl", "cannot be read"))):
        methods = [{"slug": "hapo", "params": {**EAGER, "gate": "always", "teacher_file": name}}]
        folder = tmp_path / str(number)
        assert run(document(methods=methods, evaluation=NOTHING), folder) == ExitCode.CONFIG
        assert text in story_of(folder).last_message
