"""LoRA: the same numbers as peft's own model, one base in memory for policy and reference, peft's files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trainer.contract.config import LoraSection
from trainer.core.errors import CheckpointError, ConfigError
from trainer.loop.forward import score_ids
from trainer.policy import adapters
from trainer.policy.decoder import why_not_lean
from trainer.policy.export import export
from trainer.policy.load import Policy, load_policy, save_policy
from trainer.rollout.sampler import Request, SamplingParams, StreamKey
from trainer.rollout.torch_sampler import TorchSampler
from trainer.testing.tiny import tiny_policy

LORA = LoraSection(rank=4, alpha=8)
PROMPTS = [(1, 9, 12, 5), (1, 9, 12, 5), (1, 7)]
COMPLETIONS = [(6, 7, 2), (8, 2), (11, 12, 13, 14)]
Make = Callable[..., Policy]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """``make(moved=…, **changes)``: a tiny model with an adapter, its base saved as ``tmp_path``/base."""

    def made(*, moved: bool = True, lora: LoraSection = LORA, **changes: str) -> Policy:
        policy = tiny_policy(**changes)
        save_policy(policy, tmp_path / "base")
        out = adapters.add_adapter(policy, lora, base=adapters.Base("base", policy.weights_hash), seed=0)
        if moved:
            generator = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for name, tensor in out.model.named_parameters():
                    if ".lora_B." in name:
                        tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
        return out

    return made


def logprobs(policy: Policy) -> torch.Tensor:
    return score_ids(policy, PROMPTS, COMPLETIONS, 1.0)[0].logprobs_NT


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix("base_model.model."): p.grad for name, p in model.named_parameters() if p.grad is not None
    }


def test_only_the_adapters_are_trained_and_the_model_keeps_its_class(make: Make) -> None:
    policy = make(moved=False)
    trained = {name for name, p in policy.model.named_parameters() if p.requires_grad}
    assert len(trained) == 2 * 7 * 2  # A and B of seven projections in two layers
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)
    assert type(policy.model).__name__ == "LlamaForCausalLM"
    assert why_not_lean(policy.model) is None


def test_a_fresh_adapter_changes_nothing_to_the_bit_and_is_the_same_for_the_same_seed(make: Make) -> None:
    policy = make(moved=False)
    assert torch.equal(logprobs(policy), logprobs(adapters.base_of(policy)))
    again = adapters.tensors_of(make(moved=False).model)
    drawn = adapters.tensors_of(policy.model)
    assert drawn.keys() == again.keys()
    assert all(torch.equal(drawn[name], again[name]) for name in drawn)
    assert any(bool(value.any()) for name, value in drawn.items() if ".lora_A." in name)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_log_probs_and_gradients_are_those_of_pefts_own_model(make: Make, tmp_path: Path, family: str) -> None:
    from peft import PeftModel

    policy = make(family=family)
    save_policy(policy, tmp_path / "adapter")
    theirs = PeftModel.from_pretrained(load_policy(tmp_path / "base").model, tmp_path / "adapter", is_trainable=True)
    mine = logprobs(policy)
    rows = []
    for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True):
        logits = theirs(input_ids=torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
        rows.append(logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0])
    for row, expected in enumerate(rows):
        assert torch.allclose(mine[row, : len(expected)], expected, atol=2e-6)
    mine.sum().backward()
    sum(row.sum() for row in rows).backward()  # type: ignore[union-attr]
    found, wanted = gradients(policy.model), gradients(theirs)
    assert found.keys() == wanted.keys()
    assert len(found) == 28
    for name, gradient in wanted.items():
        assert torch.allclose(found[name], gradient, atol=1e-4, rtol=1e-4), name


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_lean_sampler_draws_from_what_the_trainer_scores(make: Make, family: str) -> None:
    policy = make(family=family)
    sampler = TorchSampler(policy.model)
    assert sampler.fallback_reason is None
    params = SamplingParams(temperature=1.0, max_new_tokens=12, eos_ids=(2,))
    stream = StreamKey(seed=0, purpose="rollout", iteration=1)
    groups = sampler.generate([Request("a", (1, 9, 12), 4), Request("b", (1, 5), 4)], params, stream)
    for prompt, group in zip([(1, 9, 12), (1, 5)], groups, strict=True):
        scores, _ = score_ids(policy, [prompt] * 4, [tuple(c.ids) for c in group], 1.0)
        for row, completion in enumerate(group):
            expected = scores.logprobs_NT[row, : len(completion.ids)].tolist()
            assert completion.logprobs == pytest.approx(expected, abs=2e-5)
    base = TorchSampler(tiny_policy(family=family).model).generate([Request("a", (1, 9, 12), 4)], params, stream)
    assert [c.ids for c in base[0]] != [c.ids for c in groups[0]]


def test_an_update_of_the_adapter_reaches_the_sampler(make: Make) -> None:
    policy = make(moved=False)
    sampler = TorchSampler(policy.model)
    params = SamplingParams(temperature=1.0, max_new_tokens=8, eos_ids=())
    stream = StreamKey(seed=0, purpose="rollout", iteration=1)
    before = sampler.generate([Request("a", (1, 9, 12), 1)], params, stream)[0][0].logprobs
    with torch.no_grad():
        policy.model.model.layers[0].mlp.up_proj.lora_B["default"].weight.add_(0.3)
    after = sampler.generate([Request("a", (1, 9, 12), 1)], params, stream)[0][0].logprobs
    assert before != after


def test_a_saved_adapter_comes_back_to_the_bit_beside_a_base_named_in_base_json(make: Make, tmp_path: Path) -> None:
    policy = make()
    folder = tmp_path / "runs" / "7" / "adapter"
    save_policy(policy, folder)
    assert {p.name for p in folder.iterdir()} >= {
        "adapter_config.json", "adapter_model.safetensors", "base.json", "tokenizer.json",
    }  # fmt: skip
    assert not (folder / "model.safetensors").exists()
    base = json.loads((folder / "base.json").read_text())
    assert base == {"schema_version": 1, "uri": "base", "weights_hash": load_policy(tmp_path / "base").weights_hash}
    # The root of the storage is found around the adapter, or named.
    for loaded in (load_policy(folder), load_policy(folder, files=tmp_path)):
        assert torch.equal(logprobs(loaded), logprobs(policy))
        assert loaded.weights_hash == policy.weights_hash


def test_a_base_that_is_gone_or_another_model_is_told(make: Make, tmp_path: Path) -> None:
    save_policy(make(), tmp_path / "adapter")
    (tmp_path / "base").rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"belongs to the base 'base', which is gone"):
        load_policy(tmp_path / "adapter")
    save_policy(tiny_policy(seed=5), tmp_path / "base")
    with pytest.raises(CheckpointError, match=r"another model than the one .* expected [0-9a-f]{64}"):
        load_policy(tmp_path / "adapter")
    (tmp_path / "adapter" / "base.json").unlink()
    with pytest.raises(CheckpointError, match=r"does not say which base it belongs to"):
        load_policy(tmp_path / "adapter")


def test_adapters_of_another_kind_and_damaged_ones_are_refused(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    save_policy(make(), folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    for change, text in (
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"target_modules": ["q_proj"]}, "is in only one of"),
        ({"r": 2}, "has shape"),
    ):
        (folder / "adapter_config.json").write_text(json.dumps(config | change))
        with pytest.raises(CheckpointError, match=text):
            load_policy(folder)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_policy(folder)


def test_the_reference_of_a_run_that_goes_on_with_an_adapter_is_that_adapter(make: Make, tmp_path: Path) -> None:
    save_policy(make(), tmp_path / "adapter")
    policy = load_policy(tmp_path / "adapter")
    expected = logprobs(policy)
    reference = adapters.reference_from(policy, tmp_path / "adapter")
    assert torch.equal(logprobs(reference), expected)
    assert not torch.equal(logprobs(adapters.base_of(policy)), expected)
    trained = [p for name, p in policy.model.named_parameters() if p.requires_grad]
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(0.05)
    assert torch.equal(logprobs(reference), expected)
    assert not torch.equal(logprobs(policy), expected)
    # Looking at the reference leaves the policy as it was: the same adapter is active and trained, and only it is saved.
    assert [p for name, p in policy.model.named_parameters() if p.requires_grad] == trained
    save_policy(policy, tmp_path / "after")
    assert torch.equal(logprobs(load_policy(tmp_path / "after")), logprobs(policy))
    assert load_policy(tmp_path / "after").weights_hash == policy.weights_hash


def test_identity_is_of_base_and_adapter_together(make: Make) -> None:
    fresh, moved = make(moved=False), make()
    assert fresh.weights_hash == fresh.adapter.base.weights_hash  # type: ignore[union-attr]
    assert (
        len({moved.weights_hash, fresh.weights_hash, make(lora=LORA.model_copy(update={"alpha": 4})).weights_hash}) == 3
    )
    other = replace(moved, adapter=replace(moved.adapter, base=adapters.Base("base", "0" * 64)))  # type: ignore[type-var]
    assert other.weights_hash != moved.weights_hash


def test_merged_it_is_a_plain_model_that_says_the_same(make: Make, tmp_path: Path) -> None:
    policy = make()
    expected = logprobs(policy)
    save_policy(policy, tmp_path / "adapter")
    layer = policy.model.model.layers[1].mlp.down_proj
    weight = layer.base_layer.weight + 2.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    said = export(str(tmp_path / "adapter"), tmp_path / "plain", files=tmp_path, merge=True)
    plain = load_policy(tmp_path / "plain")
    assert plain.adapter is None
    assert plain.weights_hash == said["weights_hash"]
    assert torch.allclose(plain.model.model.layers[1].mlp.down_proj.weight, weight, atol=1e-6)
    assert torch.allclose(logprobs(plain), expected, atol=2e-5)
    assert plain.model.state_dict().keys() == tiny_policy().model.state_dict().keys()
    assert all(p.requires_grad for p in plain.model.parameters())
    with pytest.raises(ConfigError, match="is no adapter"):
        export(str(tmp_path / "plain"), tmp_path / "again", files=tmp_path, merge=True)
    with pytest.raises(ConfigError, match="is not empty"):
        export(str(tmp_path / "adapter"), tmp_path / "plain", files=tmp_path, merge=True)


def test_another_adapter_than_the_bases_is_refused(make: Make) -> None:
    policy = make()
    assert adapters.goes_on_with(policy, LoraSection()) is policy
    assert adapters.goes_on_with(policy, LORA) is policy
    with pytest.raises(ConfigError, match=r"found rank, α and targets \(8, 8,"):
        adapters.goes_on_with(policy, LORA.model_copy(update={"rank": 8}))


def test_targets_that_a_model_lacks_are_told() -> None:
    policy = tiny_policy()
    for layer in policy.model.model.layers:
        layer.mlp.renamed = layer.mlp.gate_proj
        del layer.mlp.gate_proj
    lora = LoraSection(rank=2, targets=("gate_proj",))
    with pytest.raises(
        ConfigError, match=r"policy\.lora\.targets: found \['gate_proj'\], which the model does not have"
    ):
        adapters.add_adapter(policy, lora, base=adapters.Base("base", "0"), seed=0)
