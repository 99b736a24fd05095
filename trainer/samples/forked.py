"""Samples of a forked trajectory: every piece after its context, or all pieces in one tree. Both give the same loss."""

from __future__ import annotations

from trainer.core.context import Context
from trainer.core.types import Group, Sample, Trajectory
from trainer.loop.batching import sample_of
from trainer.rollout.fork_join import predecessors


class Units:
    """A sample for each node with trained tokens: its path is the context, its spans from the first trained one are scored.
    Copies and what the orchestrator wrote are context; a piece is trained where it was sampled, once."""

    def samples(self, trajectory: Trajectory, group: Group, ctx: Context) -> list[Sample]:
        """In the order of the nodes."""
        out = []
        for node in trajectory.nodes:
            cut = next((i for i, s in enumerate(node.spans) if s.trained), None)
            if cut is None:
                continue
            before = [s for n in trajectory.path(node.id)[:-1] for s in n.spans] + node.spans[:cut]
            out.append(sample_of(before, node.spans[cut:], group, trajectory))
        return out


class Tree:
    """One sample with all pieces, each seeing its ancestors only (see `trainer.policy.tree_scoring`)."""

    def samples(self, trajectory: Trajectory, group: Group, ctx: Context) -> list[Sample]:
        """A single sample; nodes stand in their order."""
        spans = [s for n in trajectory.nodes for s in n.spans]
        prompt = [s for s in spans if s.kind == "prompt"]
        body = [s for s in spans if s.kind != "prompt"]
        return [sample_of(prompt, body, group, trajectory, predecessors(trajectory))]
