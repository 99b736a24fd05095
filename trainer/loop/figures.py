"""Pictures beside the numbers: how the iteration's rollouts and a validation's problems are spread, and what they look like.

Cheap functions of what is there anyway, called where a validation is scheduled and never in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainer.contract import drawn
from trainer.contract import events as ev
from trainer.core.types import Group, Trajectory

ANSWERS = 8
HEAT_PROBLEMS = 48
EXAMPLES = 24
LABELLED = 60


def rollout_figures(groups: Sequence[Group], axes: ev.Axes) -> list[ev.Event]:
    """Of an iteration's rollouts: histograms of lengths and rewards, length against reward, examples, and one in full."""
    pairs = [(group, t) for group in groups for t in group.trajectories]
    if not pairs:
        return []
    judged = [(group, t, t.reward) for group, t in pairs if t.reward is not None]
    out: list[ev.Event] = [
        drawn.histogram(axes, "rollouts/length", [t.sampled_tokens for _, t in pairs]),
        drawn.histogram(axes, "rollouts/reward", [reward for _, _, reward in judged]),
        drawn.scatter(
            axes, "rollouts/length_reward", [(t.sampled_tokens, reward) for _, t, reward in judged],
            labels=[_short(f"{group.prompt.text} → {t.text}") for group, t, _ in judged],
            x_title="Completion length, tokens", y_title="Reward",
        ),
        drawn.table(
            axes, "rollouts/examples", columns=["Prompt", "Completion", "Reward", "Tokens", "Ended by"],
            rows=[
                [group.prompt.text, t.text, math.nan if t.reward is None else t.reward, t.sampled_tokens, t.end]
                for group, t in _spread(pairs)
            ],
        ),
    ]  # fmt: skip
    group, t = max(pairs, key=lambda pair: pair[1].sampled_tokens)
    reward = "no verdict" if t.reward is None else f"reward {t.reward:g}"
    header = f"The longest completion: {t.sampled_tokens} tokens, {reward}, ended by {t.end}"
    out.append(drawn.text(axes, "rollouts/longest", f"{header}\n\n{group.prompt.text}\n\n{t.text}"))
    return out


def evaluation_figures(event: ev.Evaluation, the_set: ev.EvaluationSet) -> list[ev.Event]:
    """Of an evaluation: how success is spread over problems, and which share of each problem's samples its most frequent
    answers have. Functions of the counts alone, so that a reused evaluation gives the same."""
    problems = event.problems
    if not problems:
        return []
    texts = {problem.uid: problem.text for problem in the_set.problems}
    shown = sorted(problems[:HEAT_PROBLEMS], key=lambda p: (-p.c / max(1, p.n), p.uid))
    return [
        drawn.histogram(
            event.axes, f"{event.name}/success", [p.c / p.n if p.n else math.nan for p in problems], span=(0.0, 1.0)
        ),
        drawn.heatmap(
            event.axes,
            f"{event.name}/answer_mass",
            x=[f"answer {rank}" for rank in range(1, ANSWERS + 1)],
            y=[_short(texts.get(p.uid, p.uid)) for p in shown],
            z=[_answer_shares(p) for p in shown],
        ),
    ]


def _answer_shares(problem: ev.ProblemResult) -> list[float | None]:
    shares = sorted((a.count / problem.n for a in problem.answers if a.key != "__other__"), reverse=True)[:ANSWERS]
    return [*shares, *[None] * (ANSWERS - len(shares))]


def _spread(pairs: Sequence[tuple[Group, Trajectory]]) -> Sequence[tuple[Group, Trajectory]]:
    """Evenly chosen, so that every part of the batch is there, whatever its order."""
    count = min(EXAMPLES, len(pairs))
    return [pairs[i * len(pairs) // count] for i in range(count)]


def _short(text: str) -> str:
    return text if len(text) <= LABELLED else f"{text[: LABELLED - 1]}…"
