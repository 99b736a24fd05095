"""Datasets with messages through a tokenizer's chat template: what a prompt is, what ends an answer, what is trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.contract.dataset import Mapping
from trainer.contract.exit_codes import ExitCode
from trainer.core.types import Batch, Message
from trainer.data.importers.imports import import_file
from trainer.loop import train
from trainer.loop.run import Attempt, run_attempt
from trainer.loop.sft import make_rows
from trainer.policy.load import load_policy
from trainer.testing.replay import story_of

TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}({{ m.content }})\n{% endfor %}{% if add_generation_prompt %}a({% endif %}"
)
CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]
END = ")"


@pytest.fixture
def files(base: Path, tmp_path: Path) -> Path:
    """A storage root with ``chat``, the base with a template whose turns end with a token that is not the tokenizer's end
    token, and ``v``, a version of a dataset with messages."""
    shutil.copytree((base / "base").resolve(), tmp_path / "chat")
    policy = load_policy(tmp_path / "chat")
    policy.tokenizer.chat_template = TEMPLATE
    policy.tokenizer.save_pretrained(tmp_path / "chat")
    ends = [policy.tokenizer.eos_token_id, policy.tokenizer.convert_tokens_to_ids(END)]
    (tmp_path / "chat" / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    rows = [{"messages": [*CHAT, {"role": "user", "content": f"{i}+1"}], "answer": str(i + 1)} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = import_file(tmp_path / "rows.jsonl", "rows.jsonl", out=tmp_path / "v",
                         mapping=Mapping(prompt="messages", answer="answer"))  # fmt: skip
    (tmp_path / "v" / "known.json").write_text(json.dumps({k: report[k] for k in ("content_hash", "sha256")}))
    return tmp_path


def config(files: Path, **changes: Any) -> dict[str, Any]:
    known = json.loads((files / "v" / "known.json").read_text())
    return {
        "policy": {"checkpoint": "chat"}, "sampling": {"max_new_tokens": 4}, "budget": {"iterations": 1},
        "task": {"name": "dataset", "params": {"uri": "v/rows.parquet", **known}, "problems": 8},
        "evaluation": {"every": 0, "problems": 0, "final_problems": 0}, **changes,
    }  # fmt: skip


def test_a_prompt_is_the_template_with_its_generation_prompt_and_either_end_token_counts(files: Path) -> None:
    policy = load_policy(files / "chat")
    ids = policy.encode_prompt([Message(m["role"], m["content"]) for m in CHAT])
    assert policy.tokenizer.decode(ids) == "s(s)\nu(1+1)\na(2)\na("
    own, other = policy.tokenizer.eos_token_id, policy.tokenizer.convert_tokens_to_ids(END)
    assert policy.eos_ids == tuple(sorted((own, other)))
    assert policy.decode_completion([*policy.tokenizer("2", add_special_tokens=False)["input_ids"], other]) == "2"


def test_no_token_of_the_template_is_trained(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Batch] = []
    real = train.update

    def spy(batch: Batch, *args: Any, **options: Any) -> Any:
        seen.append(batch)
        return real(batch, *args, **options)

    monkeypatch.setattr(train, "update", spy)
    document = config(files, kind="rl", algorithm={"prompts_per_iteration": 4, "num_generations": 4})
    attempt = Attempt(run=files / "r", number=1, files=files, resume=False, stop=lambda: False)
    assert run_attempt(document, attempt) == ExitCode.FINISHED, story_of(files / "r").last_message
    (batch,) = seen
    policy = load_policy(files / "chat")
    for row, sample in enumerate(batch.samples):
        text = policy.tokenizer.decode(list(sample.prefix_ids))
        assert text.startswith("s(s)\nu(1+1)\na(2)\nu(")
        assert text.endswith("+1)\na(")
        drawn = sample.trajectory.nodes[0].spans[1]
        assert sample.ids == drawn.ids
        assert (drawn.ids[-1] in policy.eos_ids) == (sample.trajectory.end == "eos")
        assert not set(drawn.ids[:-1]) & set(policy.eos_ids)
        real_T = torch.arange(batch.ids_NT.shape[1]) < len(sample.ids)
        assert torch.equal(batch.mask_NT[row].bool(), real_T)
        assert torch.equal(batch.columns["sampler_logprobs"][row].isfinite(), real_T)


def test_fine_tuning_trains_the_answer_after_the_same_prompt(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    from trainer.loop import sft

    def spy(*args: Any, **options: Any) -> Any:
        found.extend(rows := make_rows(*args, **options))
        return rows

    monkeypatch.setattr(sft, "make_rows", spy)
    attempt = Attempt(run=files / "r", number=1, files=files, resume=False, stop=lambda: False)
    document = config(files, kind="sft", sft={"rows": 8, "batch_size": 4})
    assert run_attempt(document, attempt) == ExitCode.FINISHED, story_of(files / "r").last_message
    policy = load_policy(files / "chat")
    for prompt, completion in found:
        asked = policy.tokenizer.decode(prompt)
        assert asked.endswith("+1)\na(")
        number = int(asked.rsplit("u(", 1)[1].split("+")[0])
        assert completion == policy.encode_completion(str(number + 1))
