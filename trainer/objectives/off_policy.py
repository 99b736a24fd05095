"""The term of tokens that are trained and that nobody sampled: a teacher's. Source: LUFFY (arXiv 2504.14945) and the hapo
card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import torch

from trainer.contract.config import RlConfig
from trainer.core.errors import ConfigError
from trainer.core.slots import Scores, Term
from trainer.core.types import AUTHOR, Batch

if TYPE_CHECKING:
    from trainer.core.context import Context

Mode = Literal["luffy", "detached", "true_ratio"]


class OffPolicyParams(Protocol):
    """What a method's parameters say about it."""

    @property
    def off_policy(self) -> Mode: ...

    @property
    def gamma(self) -> float: ...


def shaped(probability: torch.Tensor, gamma: float) -> torch.Tensor:
    """f(ρ) = ρ/(ρ + γ): rare tokens of a teacher keep a gradient. Any shape."""
    return probability / (probability + gamma)


def off_policy_weight(
    now_NT: torch.Tensor, author_NT: torch.Tensor, mode: Mode, *, gamma: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight w (N, T) with its gradient, and the ratio ρ that it is made of.

    ``luffy``: f(π) with the teacher's probability taken as 1 · ``detached``: 1, with the gradient of log π ·
    ``true_ratio``: π/π_teacher from ``author_NT``.
    """
    if mode == "luffy":
        ratio = now_NT.exp()
        return shaped(ratio, gamma), ratio
    ratio = (now_NT - (now_NT.detach() if mode == "detached" else author_NT)).exp()
    return ratio, ratio


class OffPolicy:
    """−w·A on the tokens that are trained and not sampled, reduced as the policy term is; ``true_ratio`` is clipped as the
    base algorithm clips. Without such tokens the term is 0. Logs the share of |A·w| that they have among all tokens, and
    their probability, under ``prefix``."""

    needs = frozenset({"advantage"})
    prefix = "hapo"

    def __init__(self, params: OffPolicyParams, config: RlConfig) -> None:
        self.mode, self.gamma, self.a = params.off_policy, params.gamma, config.algorithm

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Refuses a true ratio to a teacher whose log-probs are unknown."""
        foreign = batch.mask_NT > batch.on_policy_NT
        if self.mode != "true_ratio" or not bool(foreign.any()):
            return
        author = batch.columns.get(AUTHOR)
        if author is None or bool(author[foreign].isnan().any()):
            raise ConfigError(
                "found a teacher's tokens without log-probs, expected them for off_policy 'true_ratio'; store them with the "
                "teacher's completions, or choose 'luffy' or 'detached'"
            )

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """One token-level term."""
        now, a, advantage = scores.logprobs_NT, self.a, micro.columns["advantage"]
        own, foreign = micro.on_policy_NT > 0, micro.mask_NT > micro.on_policy_NT
        author = micro.columns.get(AUTHOR, now.detach())
        weight, ratio = off_policy_weight(now, torch.where(foreign, author, now.detach()), self.mode, gamma=self.gamma)
        gain = advantage * weight
        if self.mode == "true_ratio":
            gain = torch.minimum(gain, advantage * ratio.clamp(1 - a.epsilon, 1 + a.epsilon_high))
        old = micro.columns.get("old_logprobs", now.detach())
        on_policy = float((advantage * (now.detach() - old).exp()).abs()[own].double().sum())
        off_policy = float((advantage * weight.detach()).abs()[foreign].double().sum())
        ctx.tally(f"{self.prefix}/offpolicy_grad_mass", off_policy, on_policy + off_policy)
        ctx.tally(f"{self.prefix}/teacher_token_prob", float(now.detach().exp()[foreign].sum()), float(foreign.sum()))
        return [Term("off_policy", torch.where(foreign, -gain, 0.0), 1.0, a.aggregation)]
