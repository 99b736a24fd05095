"""The peer's side of `grpo.py`: TRL's GRPOTrainer, in an environment that has TRL. Prints one JSON line."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

from grpo_case import LEARNING_RATE, Case, peak_mb, prompts, reward  # noqa: E402

sys.path.pop(0)  # this folder, whose datasets.py would hide the package
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: E402


class Clock(TrainerCallback):  # type: ignore[misc]
    """Process seconds of every step, and what of them went into completions and their rewards."""

    def __init__(self) -> None:
        self.began = self.drawing = 0.0
        self.steps: list[tuple[float, float]] = []

    def on_step_begin(self, *_args: Any, **_more: Any) -> None:
        self.began, self.drawing = time.process_time(), 0.0

    def on_step_end(self, *_args: Any, **_more: Any) -> None:
        self.steps.append((time.process_time() - self.began, self.drawing))

    def around(self, call: Any) -> Any:
        """The same call, its time taken."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.drawing += time.process_time() - began

        return timed


def main() -> None:
    folder, case = sys.argv[1], Case(**json.loads(sys.argv[2]))
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    rows = [{"prompt": text, "answer": answer} for text, answer in prompts(case)]
    before = peak_mb()
    with tempfile.TemporaryDirectory() as out:
        config = trl.GRPOConfig(
            output_dir=out, per_device_train_batch_size=case.rows, num_generations=case.group,
            max_completion_length=case.new_tokens, max_steps=case.steps + 1, learning_rate=LEARNING_RATE,
            loss_type="grpo", logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, bf16=False,
            gradient_checkpointing=False, temperature=1.0, seed=0, disable_tqdm=True,
            lr_scheduler_type="constant", max_grad_norm=1.0, dataloader_pin_memory=False,
        )  # fmt: skip
        clock = Clock()
        trainer = trl.GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            reward_funcs=lambda completions, answer, **_: [
                reward(t, a) for t, a in zip(completions, answer, strict=True)
            ],
            args=config, train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(folder), callbacks=[clock],
        )  # fmt: skip
        trainer._generate_and_score_completions = clock.around(trainer._generate_and_score_completions)
        trainer.train()
    logs = [line for line in trainer.state.log_history if "loss" in line]
    steps = [
        {"tokens": line["completions/mean_length"] * case.rows, "cpu": total, "drawing": drawing}
        for line, (total, drawing) in zip(logs, clock.steps, strict=True)
    ]
    versions = {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
    print(json.dumps({"steps": steps[1:], "before_mb": before, "peak_mb": peak_mb(), "versions": versions}))


if __name__ == "__main__":
    main()
