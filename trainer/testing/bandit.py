"""The strategy bandit: squeezing without a network, in seconds. Source: the sps card.

A policy is a softmax over 24 strategies, the same for all prompts. Strategy 0 solves a prompt with probability .6, strategy j
with one drawn from U(.15, .4): which ones solve which prompt is drawn once. The best single strategy maximises pass@1, and
pass@k for k > 1 needs several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainer.advantages.groups import group_zscore
from trainer.objectives.irl import Target, match

STRATEGIES, PROMPTS, PER_STEP, GROUP = 24, 400, 16, 16
STEPS, SIZE = 300, 1.5
Phase = Callable[["Bandit", torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class Bandit:
    """``solves_PS`` of training, ``test_PS`` held out; ``logits_S`` move."""

    solves_PS: torch.Tensor
    test_PS: torch.Tensor
    logits_S: torch.Tensor
    generator: torch.Generator

    @classmethod
    def make(cls, seed: int) -> Bandit:
        """A problem with a policy that leans a little towards strategy 0."""
        generator = torch.Generator().manual_seed(seed)
        rate_S = 0.15 + 0.25 * torch.rand(STRATEGIES, generator=generator, dtype=torch.double)
        rate_S[0] = 0.6
        both = torch.rand(2, PROMPTS, STRATEGIES, generator=generator, dtype=torch.double) < rate_S
        logits = torch.zeros(STRATEGIES, dtype=torch.double)
        logits[0] = 0.5
        return cls(both[0].double(), both[1].double(), logits, generator)

    @property
    def p_S(self) -> torch.Tensor:
        """The policy."""
        return self.logits_S.softmax(0)

    def pass_at(self, k: int) -> float:
        """Exact on the held-out prompts: mean of 1 − (1 − a)^k."""
        return float((1 - (1 - self.test_PS @ self.p_S) ** k).mean())

    def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Strategies (PER_STEP, GROUP) of some prompts, and whether they solved them."""
        prompts = torch.randperm(PROMPTS, generator=self.generator)[:PER_STEP]
        chosen = torch.multinomial(self.p_S, PER_STEP * GROUP, replacement=True, generator=self.generator)
        chosen = chosen.view(PER_STEP, GROUP)
        return chosen, self.solves_PS[prompts].gather(1, chosen)


def reinforce(bandit: Bandit, chosen_PG: torch.Tensor, reward_PG: torch.Tensor) -> torch.Tensor:
    """GRPO's gradient by the logits (S,): mean of A·∇log π, A with the population std."""
    groups = [str(i) for i in range(len(chosen_PG)) for _ in range(chosen_PG.shape[1])]
    advantage = group_zscore(reward_PG.flatten(), groups, unbiased=False)
    return _score(bandit, chosen_PG.flatten(), advantage / advantage.numel())


def entropy_gradient(bandit: Bandit) -> torch.Tensor:
    """∇H by the logits: −p·(ln p + H)."""
    p = bandit.p_S
    return -p * (p.log() - (p * p.log()).sum())


def inverse_rl(
    bandit: Bandit, chosen_PG: torch.Tensor, reward_PG: torch.Tensor, *, target: Target, alpha: float = 0.5
) -> torch.Tensor:
    """The negative gradient of KL(q‖p) over each prompt's distinct strategies, mean over all prompts: those with fewer than
    two, or without a target, add 0."""
    logprob, out = bandit.p_S.log(), torch.zeros_like(bandit.logits_S)
    for chosen, reward in zip(chosen_PG, reward_PG, strict=True):
        distinct, place = chosen.unique(return_inverse=True)
        earned = torch.zeros(len(distinct), dtype=torch.double).scatter(0, place, reward)
        if len(distinct) < 2 or (target == "correct_uniform" and not bool(earned.any())):
            continue
        found = match(logprob[distinct], torch.ones(len(distinct)).double(), earned, target=target, alpha=alpha)
        out -= _score(bandit, distinct, found.weight)
    return out / len(chosen_PG)


def likelihood(bandit: Bandit, chosen_PG: torch.Tensor, reward_PG: torch.Tensor) -> torch.Tensor:
    """The gradient of the plain log-likelihood of the policy's own samples, whose mean is zero."""
    return _score(bandit, chosen_PG.flatten(), torch.full((chosen_PG.numel(),), 1 / chosen_PG.numel()).double())


def _score(bandit: Bandit, strategies: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Σ w·∇log π(strategy) by the logits: Σ w·(e − p)."""
    out = torch.zeros_like(bandit.logits_S).index_add_(0, strategies, weight)
    return out - weight.sum() * bandit.p_S


def train(
    bandit: Bandit,
    *,
    second: Callable[[Bandit, torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    k_rl: int = 5,
    k_second: int = 1,
    entropy: float = 0.0,
) -> None:
    """Plain gradient steps; after every ``k_rl`` of RL, ``k_second`` of the second phase."""
    for step in range(STEPS):
        chosen, reward = bandit.draw()
        if second is not None and step % (k_rl + k_second) >= k_rl:
            gradient = second(bandit, chosen, reward)
        else:
            gradient = reinforce(bandit, chosen, reward) + entropy * entropy_gradient(bandit)
        bandit.logits_S = bandit.logits_S + SIZE * gradient
