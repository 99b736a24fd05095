"""One whole training step of TRL's GRPOTrainer and RLOOTrainer, repeated here: the same weights and token ids give the same
loss, gradient norm, and parameters after AdamW. Advantages are made from the rewards on both sides."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.anchor, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("trl", reason="needs tests/anchor/run.sh")

from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer  # noqa: E402

from tests.trainer.faults.making import PROMPT, trajectory  # noqa: E402
from trainer.contract.config import RlConfig  # noqa: E402
from trainer.core.slots import PhasePlan  # noqa: E402
from trainer.core.state import PolicyState, TrainState  # noqa: E402
from trainer.core.types import Batch, Group  # noqa: E402
from trainer.core.world import World  # noqa: E402
from trainer.loop.assemble import advantage_column, assemble  # noqa: E402
from trainer.loop.batching import WholePath, build_batch  # noqa: E402
from trainer.loop.optim import make_optimizer  # noqa: E402
from trainer.loop.update import fill_columns, update  # noqa: E402
from trainer.methods import resolve  # noqa: E402
from trainer.policy.load import load_policy, save_policy  # noqa: E402
from trainer.testing.tiny import tiny_policy  # noqa: E402

RATE, LONGEST, GROUP, ROWS = 1e-4, 40, 4, 8
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"loss_type": "grpo"}, {"preset": "trl-grpo", "aggregation": "seq-mean-token-mean"}),
    "grpo with kl": (
        {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
        {"preset": "grpo", "adv_eps": 1e-4},
    ),
    "kl times ratio": ({"beta": 0.04}, {"preset": "trl-grpo", "kl_coef": 0.04}),
    "the defaults": ({}, {"preset": "trl-grpo"}),
    "accumulated": ({"gradient_accumulation_steps": 4}, {"preset": "trl-grpo", "microbatch_tokens": 64}),
    "batch std": ({"scale_rewards": "batch"}, {"preset": "trl-grpo", "advantage": "batch_zscore"}),
    "dr_grpo": ({"loss_type": "dr_grpo", "scale_rewards": "none"}, {"preset": "dr-grpo"}),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
        {"preset": "gspo", "minibatches": 1, "adv_eps": 1e-4},
    ),
    "cispo": ({"loss_type": "cispo", "epsilon_high": 5.0}, {"preset": "cispo", "adv_eps": 1e-4}),
    "truncated masked": ({"mask_truncated_completions": True}, {"preset": "trl-grpo", "mask_truncated": True}),
    "rloo": ({"rloo": True}, {"preset": "trl-rloo"}),
}  # fmt: skip


def score(completions: list[str], **kwargs: Any) -> list[float]:
    """Uneven rewards from the text alone."""
    return [sum(map(ord, text)) % 7 / 7 for text in completions]


def their_step(folder: Path, out: Path, options: dict[str, Any]) -> SimpleNamespace:
    """One optimiser step of TRL's trainer from the model in ``folder``, with what it drew and made of it."""
    options = dict(options)
    rloo = options.pop("rloo", False)
    pieces = options.get("gradient_accumulation_steps", 1)
    seen = SimpleNamespace(batch=None, rewards=[], losses=[])

    class Watched(RLOOTrainer if rloo else GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            seen.batch = super()._generate_and_score_completions(inputs)
            return seen.batch

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            loss = super()._compute_loss(model, inputs)
            seen.losses.append(float(loss.detach()))
            return loss

    def reward(completions: Any, **kwargs: Any) -> list[float]:
        found = score(completions)
        seen.rewards = found
        return found

    config = (RLOOConfig if rloo else GRPOConfig)(
        output_dir=str(out), per_device_train_batch_size=ROWS // pieces, num_generations=GROUP, max_steps=1,
        max_completion_length=LONGEST, learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=1.0,
        weight_decay=0.0, optim="adamw_torch", report_to=[], save_strategy="no", use_cpu=True, bf16=False,
        gradient_checkpointing=False, disable_tqdm=True, dataloader_pin_memory=False, logging_steps=1, seed=1, **options,
    )  # fmt: skip
    policy = load_policy(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    data = Dataset.from_list([{"prompt": text} for text in ("12+3=", "7*(8-2)=", "ab c", "9/3=")])
    trainer = Watched(
        model=model, reward_funcs=reward, args=config, train_dataset=data, processing_class=policy.tokenizer
    )
    trainer.train()
    log = next(row for row in trainer.state.log_history if "grad_norm" in row)
    seen.norm, seen.parameters = log["grad_norm"], {n: p.detach() for n, p in model.named_parameters()}
    seen.loss = sum(seen.losses)
    return seen


def rows_of(seen: SimpleNamespace, ended: tuple[int, ...]) -> Batch:
    """TRL's generation batch as ours: rows unpadded, groups by the prompt's place in it."""
    b, samples = seen.batch, []
    for i in range(ROWS):
        prompt = b["prompt_ids"][i][b["prompt_mask"][i].bool()].tolist()
        ids = b["completion_ids"][i]
        # Without its own mask: that of a truncated row may be empty.
        ends = [t for t, x in enumerate(ids.tolist()) if x in ended]
        full = ids[: ends[0] + 1].tolist() if ends else ids.tolist()
        one = trajectory(full, reward=seen.rewards[i], end="eos" if ends else "length", prompt=prompt)
        samples += WholePath().samples(one, Group(PROMPT, [one], f"g{i // GROUP}"), SimpleNamespace())  # type: ignore[arg-type]
    return build_batch(samples, 0)


def our_step(folder: Path, batch: Batch, algorithm: dict[str, Any]) -> SimpleNamespace:
    """The same by the loop's own functions."""
    small = {"num_generations": GROUP, "prompts_per_iteration": ROWS // GROUP, "measure_kl": False, **algorithm}
    document = {
        "kind": "rl", "policy": {"checkpoint": "x"}, "algorithm": small, "sampling": {"max_new_tokens": LONGEST},
        "optimizer": {"learning_rate": RATE, "weight_decay": 0.0},
    }  # fmt: skip
    config = resolve(document)
    assert isinstance(config, RlConfig)
    policy = load_policy(folder)
    states = {"policy": PolicyState(policy, make_optimizer(policy.model, config.optimizer))}
    if config.algorithm.needs_reference:
        states["reference"] = PolicyState(load_policy(folder))
    sums: dict[str, float] = {}
    ctx: Any = SimpleNamespace(
        policy=policy, state=TrainState(states), metrics={}, iteration=1, sampler=SimpleNamespace(refresh=lambda: None),
        world=World(), shared=lambda work, lockstep: [work()],
        tally=lambda key, n, d: sums.update({key: sums.get(key, 0.0) + n}),
    )  # fmt: skip
    parts = assemble(config)
    if config.algorithm.mask_truncated:
        from trainer.loop.batching import mask_truncated

        mask_truncated(batch)
    fill_columns(batch, parts.objectives, ctx, config, steps=1)
    batch.columns["advantage"] = advantage_column(parts, batch, ctx)
    for one in parts.objectives:
        one.prepare(batch, ctx)
    update(batch, PhasePlan("rl", "RL"), parts.objectives, parts.updates, ctx, config)
    return SimpleNamespace(
        loss=sums["loss"],
        norm=sums["grad_norm"],
        parameters={n: p.detach() for n, p in policy.model.named_parameters()},
    )


@pytest.mark.parametrize("name", CASES)
def test_one_step_is_trls(name: str, tmp_path: Path) -> None:
    options, algorithm = CASES[name]
    policy = tiny_policy(scale=2.0)
    policy.model.generation_config.pad_token_id = policy.pad_id
    save_policy(policy, tmp_path / "model")
    seen = their_step(tmp_path / "model", tmp_path / "out", options)
    batch = rows_of(seen, policy.eos_ids)
    found = our_step(tmp_path / "model", batch, algorithm)
    print(f"\n{name}: loss {found.loss - seen.loss:.1e}, norm {found.norm / seen.norm - 1:.1e}", end="")
    assert batch.columns["advantage"][:, 0].tolist() == pytest.approx(seen.batch["advantages"].tolist(), abs=1e-6)
    assert found.loss == pytest.approx(seen.loss, abs=1e-6, rel=1e-6)
    assert found.norm == pytest.approx(seen.norm, rel=1e-5)
    start = dict(policy.model.named_parameters())
    moved = {n: float((p - start[n]).abs().max()) for n, p in found.parameters.items()}
    assert min(moved.values()) > RATE / 2
    largest = max(float((p - seen.parameters[n]).abs().max()) for n, p in found.parameters.items())
    print(f", parameters {largest:.1e}")
    assert largest < 1e-6
