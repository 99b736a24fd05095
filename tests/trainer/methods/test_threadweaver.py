"""ThreadWeaver by its card: critical path, reward, advantage, the DAG of a forked rollout, and runs."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainer.advantages.estimators import Outcome, estimate
from trainer.contract.config import AlgorithmSection
from trainer.contract.exit_codes import ExitCode
from trainer.core.slots import Term
from trainer.core.types import Group, Message, Node, Prompt, Span, Trajectory
from trainer.data.alphabet import ALPHABET
from trainer.loop.batching import build_batch
from trainer.loop.forward import score_batch
from trainer.methods.threadweaver import ThreadWeaverAdvantage, ThreadWeaverParams
from trainer.objectives.aggregate import AGGREGATIONS, Denominators, reduce_term
from trainer.policy.tree_scoring import ancestors
from trainer.rewards.acceleration import bonus, well_formed
from trainer.rollout.fork_join import PIECES, STYLES, Tags, acceleration, critical_path, predecessors
from trainer.rollout.sampler import Completion
from trainer.samples.forked import Tree, Units
from trainer.testing.replay import story_of
from trainer.testing.tiny import tiny_policy

PROMPT = Prompt("p", (Message("user", "1+1="),), "2", "test")
NAMES = {"P": "parallel", "/P": "end_parallel", "T": "thread", "/T": "end_thread"}


def path(text: str) -> tuple[int, int]:
    """(T, C) of words; the card's tags, everything else is a plain token."""
    tags = {name: i for i, name in enumerate(PIECES)}
    return critical_path([tags[NAMES[w]] if w in NAMES else 99 for w in text.split()], tags)


@pytest.mark.parametrize(
    ("text", "expected", "eta"),
    [
        ("s s P o o T a a a a /T T b b /T /P s s s", (19, 17), 0.105263),
        ("s s s", (3, 3), 0.0),
        ("s P o T a a a T", (8, 8), 0.0),
        ("", (0, 0), 0.0),
        ("P T a P T /P /T /P", (8, 8), 0.0),
        ("P T a a /T T b /T /P P T a /T T b b b /T /P", (19, 17), 0.105263),
    ],
)  # fmt: skip
def test_the_critical_path_is_the_released_code_s(text: str, expected: tuple[int, int], eta: float) -> None:
    assert path(text) == expected
    assert acceleration(*expected) == pytest.approx(eta, abs=1e-6)


def advantage(rewards: list[float], name: str) -> list[float]:
    section = AlgorithmSection(advantage=name, adv_eps=1e-6)  # type: ignore[arg-type]
    outcome = Outcome(
        torch.tensor(rewards), ["g"] * len(rewards), torch.ones(len(rewards), 1), torch.zeros(len(rewards), 1)
    )
    return estimate(outcome, range(len(rewards)), section).advantage.tolist()


def test_rewards_and_advantages_are_the_card_s() -> None:
    rewards = [c + 0.5 * bonus(bool(c), eta, 0.2) for eta, c in zip([0.1, 0.3, 0, 0.25], [1, 1, 1, 0], strict=True)]
    assert rewards == pytest.approx([1.05, 1.10, 1.00, 0])
    assert advantage(rewards, "group_mean") == pytest.approx([0.2625, 0.3125, 0.2125, -0.7875])
    right = [1 + 0.5 * bonus(True, eta, 0.2) for eta in (0, 0.05, 0.1, 0.2)]
    assert right == pytest.approx([1, 1.025, 1.05, 1.1])
    assert advantage(right, "group_mean") == pytest.approx([-0.04375, -0.01875, 0.00625, 0.05625], abs=1e-6)
    assert advantage(right, "group_zscore") == pytest.approx([-1.024671, -0.439145, 0.146382, 1.317434], abs=2e-6)
    assert advantage([0.0] * 4, "group_mean") == [0.0] * 4


def span(ids: range | list[int], kind: str = "answer", **more: Any) -> Span:
    drawn = kind == "answer"
    return Span(tuple(ids), kind, sampled=drawn, trained=drawn, logprobs=(-1.0,) * len(ids) if drawn else None, **more)  # type: ignore[arg-type]


def forked(reward: float = 1.0, index: int = 0) -> Trajectory:
    """The card's trie: 1..5, then 6 7 8 | 9 10 11 | 12 13, then 14 15 16 behind all of them."""
    nodes = [
        Node(0, [span([3], "prompt"), span(range(1, 6))]),
        Node(1, [span([6], "template", role="thread"), span([7, 8])], (0,)),
        Node(2, [span([9], "template", role="thread"), span([10, 11])], (0,)),
        Node(3, [span([12], "template", role="thread"), span([13])], (0,)),
        Node(4, [span([9, 10, 11], "copy", source=2), span([12, 13], "copy", source=3), span([14, 15, 16])], (1, 2, 3)),
    ]
    return Trajectory(nodes, "p", index, "eos", reward=reward, outcome=reward)


def samples(maker: Any, *trajectories: Trajectory) -> list[Any]:
    group = Group(PROMPT, list(trajectories), "g")
    return [s for t in trajectories for s in maker.samples(t, group, SimpleNamespace())]


def test_the_tree_has_the_card_s_nodes_and_depths() -> None:
    (sample,) = samples(Tree(), forked())
    ids, parents = sample.ids, predecessors(forked())
    assert len(ids) == len(parents) == 21
    seen, depth = ancestors(torch.tensor([parents]))
    assert depth[0].tolist() == [*range(8), 5, 6, 7, 5, 6, *range(8, 16)]
    # The last token's ancestors are the joined context.
    assert [ids[i] for i in seen[0, -1].nonzero()[:, 0].tolist()] == list(range(1, 17))


def test_every_sampled_token_is_trained_once_and_copies_never() -> None:
    for maker in (Units(), Tree()):
        made = samples(maker, forked())
        trained = [i for s in made for i, flag in zip(s.ids, s.trained, strict=True) if flag]
        assert trained == [1, 2, 3, 4, 5, 7, 8, 10, 11, 13, 14, 15, 16]
        assert len(trained) == forked().sampled_tokens
        for s in made:
            assert [not math.isnan(x) for x in s.sampler_logprobs] == list(s.sampled)
    assert [len(s.prefix_ids) for s in samples(Units(), forked())] == [1, 7, 7, 7, 14]


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_tree_scores_every_piece_as_its_own_request(family: str) -> None:
    policy = tiny_policy(family=family)
    one, other = forked(), Trajectory([Node(0, [span([3, 4], "prompt"), span([7, 9])])], "p", 1, "eos", reward=0.0)
    units = build_batch(samples(Units(), one, other), policy.pad_id)
    trees = build_batch(samples(Tree(), one, other), policy.pad_id)
    found = {}
    for name, batch in (("units", units), ("trees", trees)):
        scores = score_batch(policy, batch, 0.7, entropy_grad=True)
        keep = batch.mask_NT > 0
        policy.model.zero_grad()
        (scores.logprobs_NT[keep].sum() + 0.3 * scores.entropy_NT[keep].sum()).backward()
        grads = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
        found[name] = scores.logprobs_NT[keep].detach(), scores.entropy_NT[keep].detach(), grads
    for a, b in zip(found["units"][:2], found["trees"][:2], strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    torch.testing.assert_close(found["units"][2], found["trees"][2], atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", ["group_zscore", "group_mean", "leave_one_out", "length_weighted", "batch_zscore"])
def test_in_how_many_samples_a_trajectory_comes_changes_neither_advantage_nor_loss(aggregation: Any, name: Any) -> None:
    line = Trajectory([Node(0, [span([3], "prompt"), span([7, 9, 4])])], "p", 1, "eos", reward=0.25)
    losses = []
    for maker in (Units(), Tree()):
        batch = build_batch(samples(maker, forked(), line), 0)
        outcome = Outcome(batch.reward_N, batch.group_ids, batch.mask_NT, batch.mask_NT * 0)
        value = estimate(outcome, batch.trajectory_ids, AlgorithmSection(advantage=name)).advantage
        assert len(set(value.tolist())) == 2
        counts = Denominators.of(batch, max_length=16)
        assert (counts.sequences, counts.tokens) == (2, 16)
        term = Term("t", (value[:, None] * batch.ids_NT).float(), 1.0, aggregation)
        losses.append(float(reduce_term(term, batch.mask_NT, counts, batch)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_the_advantage_is_centred_whatever_the_base_says() -> None:
    section = SimpleNamespace(algorithm=AlgorithmSection(advantage="group_zscore"))
    batch = build_batch(samples(Units(), forked(1.1), forked(1.0, 1)), 0)
    given = torch.full((batch.size,), 7.0)
    part = ThreadWeaverAdvantage(ThreadWeaverParams(), section)  # type: ignore[arg-type]
    shaped = part.shape(given, batch, SimpleNamespace())  # type: ignore[arg-type]
    assert shaped.tolist() == pytest.approx([0.05] * 5 + [-0.05] * 5)
    base = ThreadWeaverAdvantage(ThreadWeaverParams(advantage="base"), section)  # type: ignore[arg-type]
    assert base.shape(given, batch, SimpleNamespace()) is given  # type: ignore[arg-type]


# The orchestrator, with a scripted sampler


class Scripted:
    """Completions by the text of the context, one token a character; what it was asked is kept."""

    def __init__(self, policy: Any, answers: dict[str, str]) -> None:
        self.policy, self.answers, self.asked = policy, answers, []

    def generate(self, requests: Any, params: Any, stream: Any, *, should_stop: Any = None) -> list[list[Completion]]:
        out = []
        for r in requests:
            context = self.policy.decode_completion(r.prefix_ids)
            self.asked.append((context, r.limit(params), r.node))
            ids = list(self.policy.tokenizer(self.answers[context], add_special_tokens=False)["input_ids"])
            if self.answers[context][-1] == ".":
                ids[-1] = self.policy.eos_ids[0]
            ids = ids[: r.limit(params)]
            finish = "eos" if ids[-1] in params.eos_ids else "length"
            out.append([Completion(ids, [-1.0] * len(ids), finish)])
        return out


def weave(answers: dict[str, str], limit: int = 60, **algorithm: Any) -> tuple[Trajectory, Scripted, Any]:
    policy = tiny_policy(alphabet=ALPHABET)
    sampler = Scripted(policy, answers)
    config = SimpleNamespace(
        seed=0, algorithm=SimpleNamespace(num_generations=1),
        sampling=resolve_sampling(limit),
    )  # fmt: skip
    ctx = SimpleNamespace(
        policy=policy, sampler=sampler, scope="", iteration=1, should_stop=lambda: False,
        state=SimpleNamespace(counters=SimpleNamespace(policy_version=3)),
    )  # fmt: skip
    from trainer.core.slots import Draw
    from trainer.rollout.fork_join import ForkJoin

    (group,) = ForkJoin("letters", 32, config).rollout([Draw(PROMPT)], ctx)  # type: ignore[arg-type]
    return group.trajectories[0], sampler, policy


def resolve_sampling(limit: int) -> Any:
    from trainer.contract.config import SamplingSection

    return SamplingSection(max_new_tokens=limit)


OUTLINES = "poa1ba2ba2bc"
WHOLE = {"": OUTLINES, f"{OUTLINES}t1:": "7u", f"{OUTLINES}t2:": "8u", f"{OUTLINES}t1:7ut2:8u": "q15."}


def test_a_forked_rollout_is_a_dag_whose_path_is_what_the_model_saw() -> None:
    t, sampler, policy = weave(WHOLE)
    assert t.text == f"{OUTLINES}t1:7ut2:8uq15"
    assert t.end == "eos"
    assert [n.parents for n in t.nodes] == [(), (0,), (0,), (1, 2)]
    assert [s.kind for s in t.nodes[3].spans] == ["copy", "answer"]
    assert t.nodes[3].spans[0].source == 2
    assert t.sampled_tokens == len(OUTLINES) + 2 + 2 + 4
    assert len({node for _, _, node in sampler.asked}) == 4
    ids = [i for s in t.spans() if s.kind != "prompt" for i in s.ids]
    tags = Tags.of("letters", policy).ids
    assert well_formed(t, ids, tags)
    # Thread tags, the longest body "1:7" and everything outside of the threads.
    assert critical_path(ids, tags) == (len(ids), len(ids) - 3)


def test_outlines_that_cannot_be_read_go_on_in_sequence() -> None:
    t, _, _ = weave({"": "poaxbc", "poaxbc": "q4."})
    assert len(t.nodes) == 1
    assert t.text == "poaxbcq4"


def test_a_thread_that_ends_the_answer_or_is_cut_off_closes_the_block() -> None:
    ended, _, _ = weave({**WHOLE, f"{OUTLINES}t2:": "8."})
    assert (ended.end, ended.nodes[3].spans[-1].kind) == ("eos", "template")
    assert ended.text.endswith("<eos>uq")
    cut, sampler, _ = weave({**WHOLE, f"{OUTLINES}t2:": "8888888888888888u"}, limit=30)
    assert cut.end == "length"
    # 12 tokens of outlines, two headers of three, two ends and the block's: half of what is left each.
    assert [limit for _, limit, _ in sampler.asked] == [30, 4, 4]
    assert cut.text == f"{OUTLINES}t1:7ut2:8888uq"
    assert len(cut.text) <= 30


def test_without_room_for_threads_the_rollout_ends() -> None:
    t, _, _ = weave({"": OUTLINES}, limit=20)
    assert (t.end, len(t.nodes)) == ("length", 1)


def test_a_policy_that_writes_thread_tags_itself_is_not_well_formed() -> None:
    t, _, policy = weave({"": "pt1:3ut2:4uq7."})
    ids = [i for s in t.spans() if s.kind != "prompt" for i in s.ids]
    assert not well_formed(t, ids, Tags.of("letters", policy).ids)


def test_tags_that_are_no_single_token_are_refused() -> None:
    from trainer.core.errors import ConfigError

    with pytest.raises(ConfigError, match=r"<Parallel>.*special token"):
        Tags.of("xml", tiny_policy(alphabet=ALPHABET))
    assert len(set(STYLES["letters"])) == len(PIECES)


def test_copies_name_their_source_and_are_never_trained() -> None:
    with pytest.raises(ValueError, match="copy"):
        Span((1,), "copy")
    with pytest.raises(ValueError, match="not trained"):
        Span((1,), "copy", trained=True, source=1)


# Runs


@pytest.fixture(scope="session")
def weaving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage root whose ``base`` writes fork-join traces of a small task."""
    from trainer.loop.run import Attempt, run_attempt

    files = tmp_path_factory.mktemp("files")
    document = {
        "kind": "sft", "task": TASK, "sampling": {"max_new_tokens": 60},
        "policy": {"architecture": {**ARCHITECTURE, "max_positions": 96}},
        "sft": {"rows": 600, "batch_size": 32}, "budget": {"iterations": 120},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 5},
        "evaluation": {"every": 0, "problems": 0, "final_problems": 0}, "checkpoints": {"every": 0},
    }  # fmt: skip
    attempt = Attempt(run=files / "sft", number=1, files=files, resume=False, stop=lambda: False)
    assert run_attempt(document, attempt) == ExitCode.FINISHED
    (files / "base").symlink_to(files / "sft/attempts/1/checkpoints/it-00000120/policies/policy")
    return files


ARCHITECTURE = {"hidden_size": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate_size": 64}
TASK = {"name": "branches", "params": {"parts": 2, "numbers": 2, "forks": 0.8}, "problems": 60}


def document(params: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "kind": "rl", "policy": {"checkpoint": "base"}, "task": TASK, "sampling": {"max_new_tokens": 60},
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, **changes.pop("algorithm", {})},
        "methods": [{"slug": "threadweaver", "params": {"tags": "letters", **params}}],
        "optimizer": {"learning_rate": 0.003}, "budget": {"iterations": 2}, "checkpoints": {"every": 1},
        "evaluation": {"every": 0, "problems": 0, "final_problems": 0}, **changes,
    }  # fmt: skip


@pytest.fixture
def go(weaving: Path, tmp_path: Path) -> Any:
    from trainer.loop.run import Attempt, next_attempt, run_attempt

    def start(doc: Any, name: str = "r", **options: Any) -> Any:
        folder = tmp_path / name
        options = {"resume": False, "stop": lambda: False, **options}
        attempt = Attempt(run=folder, number=next_attempt(folder), files=weaving, **options)
        code = run_attempt(doc, attempt)
        return code, story_of(folder)

    return start


@pytest.mark.parametrize("preset", ["grpo", "dr-grpo", "dapo", "rloo", "cispo"])
def test_it_runs_over_every_base_it_claims(go: Any, preset: str) -> None:
    code, story = go(document({"packing": "tree"}, algorithm={"preset": preset}))
    assert code == ExitCode.FINISHED, story.last_message
    assert story.scalars[1, "tw/with_parallel_frac"] > 0
    assert story.scalars[1, "tw/units_per_traj"] > 1
    assert story.scalars[1, "sampling/sampling_logp_difference/max"] < 1e-3
    axes = story.axes[2]
    if preset != "dapo":
        assert axes["trained_tokens"] == axes["sampled_tokens"]


def test_a_base_that_credits_tokens_is_refused(go: Any) -> None:
    code, story = go(document({}, algorithm={"preset": "ppo"}))
    assert code == ExitCode.CONFIG
    assert "ThreadWeaver runs over" in story.last_message
    code, story = go(document({"advantage": "base"}, algorithm={"advantage": "whitened_return"}), "s")
    assert code == ExitCode.METHOD
    assert "several samples" in story.last_message


def test_units_and_trees_train_alike(go: Any) -> None:
    stories = [go(document({"packing": kind}), kind)[1] for kind in ("units", "tree")]
    assert stories[0].rollouts[1] == stories[1].rollouts[1]
    for key in ("loss", "grad_norm", "entropy"):
        assert stories[0].scalars[1, key] == pytest.approx(stories[1].scalars[1, key], rel=1e-3, abs=1e-5)


def test_self_training_raises_the_likelihood_of_accepted_rollouts_before_rl(go: Any) -> None:
    code, story = go(document({"refine": 1}))
    assert code == ExitCode.FINISHED, story.last_message
    assert story.phases == {1: "refine", 2: "rl"}
    assert [story.axes[i]["phase"] for i in (1, 2)] == ["refine", "rl"]
    assert story.scalars[1, "loss"] > 0
    assert story.axes[1]["trained_tokens"] < story.axes[1]["sampled_tokens"]


def test_decoding_in_sequence_forks_nothing(go: Any) -> None:
    code, story = go(document({"fork": False}))
    assert code == ExitCode.FINISHED, story.last_message
    assert story.scalars[1, "tw/with_parallel_frac"] == 0
    assert story.scalars[1, "tw/units_per_traj"] == 1


def test_a_frozen_run_moves_nothing(go: Any) -> None:
    _, story = go(document({}, optimizer={"learning_rate": 0.0}))
    assert len(set(story.checkpoints.values())) == 1


def test_stopped_anywhere_it_resumes_to_the_same_bits(go: Any) -> None:
    doc = document({"refine": 1, "packing": "tree"})
    _, expected = go(doc)
    asked = 0

    def never() -> bool:
        nonlocal asked
        asked += 1
        return False

    go(doc, "count", stop=never)
    for at in range(1, asked, max(1, asked // 4)):
        count = iter(range(10**6))
        code, _ = go(doc, str(at), stop=lambda count=count, at=at: next(count) >= at)
        assert code == ExitCode.STOPPED
        code, story = go(doc, str(at), resume=True)
        assert code == ExitCode.FINISHED
        assert story.scalars == expected.scalars
        assert story.rollouts == expected.rollouts
        assert story.checkpoints[2] == expected.checkpoints[2]
