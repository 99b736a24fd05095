"""The default rollout plan: one completion a sample, straight from the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.slots import Draw
from trainer.core.types import Group, Node, Span, Trajectory
from trainer.rollout.sampler import Request, SamplingParams, StreamKey


class SinglePass:
    """G independent completions per drawn prompt."""

    def __init__(self, config: RlConfig) -> None:
        self.config = config

    def rollout(self, draws: Sequence[Draw], ctx: Context) -> list[Group]:
        """One group a draw, in order. A trajectory is one node: the prompt's span, then the sampled answer."""
        policy, sampling = ctx.policy, self.config.sampling
        params = SamplingParams.of(sampling, policy.eos_ids)
        stream = StreamKey(seed=self.config.seed, scope=ctx.scope, purpose="train", iteration=ctx.iteration)
        size = self.config.algorithm.num_generations
        requests = [
            Request(uid=d.prompt.uid, prompt_ids=policy.encode_prompt(d.prompt.messages), n=size, draw=d.ordinal)
            for d in draws
        ]
        version = ctx.state.counters.policy_version
        completions = ctx.sampler.generate(requests, params, stream, should_stop=ctx.should_stop)
        groups = []
        for draw, request, found in zip(draws, requests, completions, strict=True):
            prompt_span = Span(request.prompt_ids, "prompt", origin="env", policy_version=version)
            trajectories = []
            for i, c in enumerate(found):
                answer = Span(
                    tuple(c.ids),
                    "answer",
                    sampled=True,
                    trained=True,
                    logprobs=tuple(c.logprobs),
                    policy_version=version,
                )
                trajectories.append(
                    Trajectory(
                        [Node(0, [prompt_span, answer])],
                        draw.prompt.uid,
                        i,
                        c.finish,
                        text=policy.decode_completion(c.ids),
                    )
                )
            groups.append(
                Group(draw.prompt, trajectories, f"{draw.prompt.uid}:{draw.ordinal}", draw.ordinal, draw.probability)
            )
        return groups
