"""The demo's base checkpoint and launch documents: what is shipped is what its configuration says, and it can do something."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import trainer
from trainer.contract.config import EvaluateConfig, RlConfig, SftConfig
from trainer.contract.passk import chance_pass_at_k
from trainer.data.alphabet import ALPHABET
from trainer.data.task import problems, split_of
from trainer.data.tasks import make_task
from trainer.methods import resolve
from trainer.policy.fingerprint import weights_hash
from trainer.policy.load import load_policy
from trainer.rollout.sampler import Request, SamplingParams, StreamKey
from trainer.rollout.torch_sampler import TorchSampler

ASSETS = Path(trainer.__file__).parent / "assets"
BASE = ASSETS / "countdown4-base"
DEMO = ("demo-grpo", "demo-sps", "demo-evaluate", "demo-evaluate-hot")


def document(name):
    return json.loads((ASSETS / f"{name}.json").read_text())


def folder_record():
    return json.loads((BASE / "base.json").read_text())


def test_the_folder_loads_with_transformers_own_classes():
    model = AutoModelForCausalLM.from_pretrained(BASE)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    ids = tokenizer("1 7 8 9=48:")["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "1 7 8 9=48:"
    assert len(tokenizer) == model.config.vocab_size == len(ALPHABET) + 4


def test_it_is_small():
    assert sum(f.stat().st_size for f in BASE.iterdir()) <= 4_000_000
    assert 500_000 <= sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(BASE).parameters()) <= 1_000_000


def test_the_weights_are_those_that_the_record_names():
    record = folder_record()
    assert hashlib.sha256((BASE / "model.safetensors").read_bytes()).hexdigest() == record["file_sha256"]
    assert weights_hash(load_policy(BASE).model) == record["weights_hash"]
    assert re.search(record["weights_hash"], (ASSETS / "README.md").read_text())


def test_the_configuration_in_the_folder_is_the_committed_one_resolved():
    config = resolve(document("base"))
    assert isinstance(config, SftConfig)
    assert resolve(json.loads((BASE / "run.json").read_text())) == config
    assert folder_record()["seed"] == config.seed


@pytest.mark.parametrize("name", DEMO)
def test_the_demo_documents_resolve_with_any_checkpoint(name):
    config = resolve(document(name))
    assert isinstance(config, EvaluateConfig if "evaluate" in name else RlConfig)
    assert config.policy.checkpoint == "BASE"


def test_grpo_and_sps_differ_in_the_method_alone():
    grpo, sps = document("demo-grpo"), document("demo-sps")
    assert sps.pop("methods") == [{"slug": "sps", "params": {}}]
    assert grpo.pop("methods", []) == []
    assert grpo == sps


def test_all_demo_documents_measure_on_the_same_problems_and_differ_in_temperature_only():
    documents = [document(name) for name in DEMO]
    shared = [
        (d["task"]["name"], d["task"]["params"], d["task"]["seed"], d["sampling"]["max_new_tokens"],
         d["evaluation"]["final_problems"], d["evaluation"]["final_samples"])
        for d in documents
    ]  # fmt: skip
    assert all(s == shared[0] for s in shared)
    assert [d["evaluation"]["temperature"] for d in documents[:3]] == [1.0, 1.0, 1.0]
    assert documents[3]["evaluation"]["temperature"] > 1.0


def test_the_demo_fits_the_base_and_its_chance_line_is_low():
    config = resolve(document("demo-grpo"))
    task = make_task(config.task.name, config.task.params)
    room = AutoModelForCausalLM.from_pretrained(BASE).config.max_position_embeddings
    assert task.max_prompt_chars + 1 + config.sampling.max_new_tokens <= room
    assert task.max_completion_chars + 1 <= config.sampling.max_new_tokens
    test = problems(task, "test", 100, seed=config.task.seed)
    assert all(split_of(p.uid) == "test" for p in test)
    assert chance_pass_at_k([p.meta["chance"] for p in test], 64) < 0.25


def test_the_base_solves_far_more_than_chance():
    config = resolve(document("demo-evaluate"))
    task = make_task(config.task.name, config.task.params)
    prompts = problems(task, "validation", 20, seed=config.task.seed)
    policy = load_policy(BASE)
    requests = [Request(uid=p.uid, prompt_ids=policy.encode_prompt(p.messages), n=32) for p in prompts]
    params = SamplingParams(temperature=1.0, max_new_tokens=config.sampling.max_new_tokens, eos_ids=policy.eos_ids)
    found = TorchSampler(policy.model).generate(requests, params, StreamKey(seed=0, purpose="evaluation", iteration=0))
    correct = sum(
        task.score(policy.decode_completion(c.ids), p).reward == 1.0
        for p, completions in zip(prompts, found, strict=True)
        for c in completions
    )
    chance = sum(p.meta["chance"] for p in prompts) / len(prompts)
    assert correct / (20 * 32) > 5 * chance
