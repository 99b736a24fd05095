"""A case through TRL's own `_compute_loss`, called on a stand-in for the trainer: it reads a few attributes of it."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer, RLOOTrainer

from tests.anchor.cases import LONGEST, ROWS, Case, Tensors, tensors
from tests.anchor.ours import graded
from trainer.objectives.mismatch import correction


class OneProcess:
    """An accelerator of one process: nothing to gather."""

    num_processes, process_index, sync_gradients, device = 1, 0, True, torch.device("cpu")

    def gather(self, x: Any) -> Any:
        return x

    gather_for_metrics = gather

    def reduce(self, x: Any, reduction: str = "sum") -> Any:
        return x

    def pad_across_processes(self, x: Any, dim: int = 0, pad_index: int = 0) -> Any:
        return x


def trainer(case: Case, logprobs: torch.Tensor, entropy: torch.Tensor) -> Any:
    """The attributes that `_compute_loss` reads."""
    o, pieces = case.theirs, case.pieces

    def exact(x: float) -> torch.Tensor:
        # A plain number would become fp32 in `torch.where`, whatever the run's type.
        return torch.tensor(x, dtype=logprobs.dtype)

    bonus = o.get("entropy_coef", 0.0)
    args = SimpleNamespace(
        delta=o.get("delta"), use_bias_correction_kl=o.get("bias_kl", False), sapo_temperature_pos=exact(1.0),
        sapo_temperature_neg=exact(1.05), vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0, vespo_lambda_neg=2.0,
        steps_per_generation=pieces, entropy_target=0.2,
    )  # fmt: skip
    own = SimpleNamespace(
        args=args, beta=o.get("beta", 0.0), epsilon_low=0.2, epsilon_high=o.get("eps_high", 0.2),
        loss_type=o.get("loss_type"), importance_sampling_level=o.get("level"),
        top_entropy_quantile=o.get("top_entropy", 1.0), max_completion_length=LONGEST,
        off_policy_mask_threshold=o.get("off_policy"), use_vllm="mismatch" in o,
        vllm_importance_sampling_correction="mismatch" in o, aux_loss_enabled=False, router_aux_loss_coef=0.0,
        use_adaptive_entropy=False, entropy_coef=bonus, _entropy_bonus_enabled=bonus > 0,
        current_gradient_accumulation_steps=pieces, accelerator=OneProcess(), model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)}, get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        _get_per_token_logps_and_entropies=lambda *a, **k: (logprobs, entropy, None),
    )  # fmt: skip
    own.get_high_entropy_mask = lambda e, m, share: GRPOTrainer.get_high_entropy_mask(own, e, m, share)
    return own


def inputs(case: Case, t: Tensors, rows: slice) -> dict[str, Any]:
    """The batch as TRL hands it on; a mask with holes comes as a completion mask and a tool mask."""
    mask = t.mask[rows]
    completion = (mask.flip(1).cumsum(1).flip(1) > 0).to(mask.dtype)
    ones = torch.ones(mask.shape[0], 1, dtype=torch.long)
    out = {
        "prompt_ids": ones, "prompt_mask": ones, "completion_ids": torch.zeros(mask.shape, dtype=torch.long),
        "completion_mask": completion, "tool_mask": mask, "advantages": t.advantage[rows],
        "old_per_token_logps": t.old[rows], "ref_per_token_logps": t.reference[rows],
        "sampling_per_token_logps": t.sampler[rows], "num_items_in_batch": t.mask.sum(),
    }  # fmt: skip
    if "mismatch" in case.theirs:
        # TRL makes the weights inside its generation; those of verl's function are compared in test_verl.py.
        found = correction(t.old, t.sampler, t.mask, mode=case.theirs["mismatch"], low=None, high=1.5)
        out["importance_sampling_ratio"] = found.weight[rows]
    return out


def by_trl(case: Case, dtype: torch.dtype) -> tuple[float, torch.Tensor]:
    """(loss, gradient) summed over the pieces of an accumulated step, as TRL's trainer sums them."""
    t = tensors(case, dtype)
    size = ROWS // case.pieces
    total = t.now.new_zeros(())
    for first in range(0, ROWS, size):
        rows = slice(first, first + size)
        own = trainer(case, t.now[rows], t.entropy[rows])
        if case.name.startswith("trl rloo"):
            old = (t.old * t.mask).sum(1)[rows]
            given = {**inputs(case, t, rows), "completion_mask": t.mask[rows], "old_logps": old}
            total = total + RLOOTrainer._compute_loss(own, None, given)
        else:
            total = total + GRPOTrainer._compute_loss(own, None, inputs(case, t, rows))
    return graded(total, t)
