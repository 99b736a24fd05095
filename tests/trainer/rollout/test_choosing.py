"""Which engine a setting means on a host, and what is said where it cannot be had."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from trainer.contract.config import RolloutSection
from trainer.core.errors import ConfigError
from trainer.rollout import engines
from trainer.rollout.torch_sampler import TorchSampler
from trainer.rollout.vllm_sampler import VllmSampler, named_weights
from trainer.testing.tiny import tiny_policy


@pytest.mark.parametrize(
    ("setting", "gpu", "version", "expected"),
    [
        ("auto", False, None, "torch"),
        ("auto", False, "0.32", "torch"),
        ("auto", True, None, "torch"),
        ("auto", True, "0.33", "vllm"),
        ("torch", True, "0.33", "torch"),
        ("vllm", False, "0.32", "vllm"),
    ],
)
def test_auto_is_vllm_where_there_is_a_gpu_and_vllm(
    monkeypatch: pytest.MonkeyPatch, setting: str, gpu: bool, version: str | None, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(engines, "vllm_version", lambda: version)
    device = torch.device("cuda" if gpu else "cpu")
    assert engines.chosen_engine(RolloutSection(engine=setting), device) == expected  # type: ignore[arg-type]


def test_vllm_beside_a_policy_that_stays_on_the_cpu_of_a_gpu_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(engines, "vllm_version", lambda: "0.33")
    assert engines.chosen_engine(RolloutSection(), torch.device("cpu")) == "torch"
    with pytest.raises(ConfigError, match=r"runs on this host's GPU.*hardware\.device"):
        engines.chosen_engine(RolloutSection(engine="vllm"), torch.device("cpu"))


def test_vllm_that_is_not_installed_is_named_with_the_setting_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"rollout\.engine: .*not installed.*pip install --no-deps -r requirements-vllm"
    ):
        engines.make_sampler(tiny_policy(), RolloutSection(engine="vllm"))
    assert isinstance(engines.make_sampler(tiny_policy(), RolloutSection()), TorchSampler)


def test_a_policy_that_vllm_cannot_run_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.engine: .*heads have size 8"):
        VllmSampler(tiny_policy().model)
    policy = tiny_policy(hidden_size=64, heads=2, kv_heads=1)
    policy.model.model.layers[0].register_forward_hook(lambda _m, _a, out: out * 0.5)
    with pytest.raises(ConfigError, match=r"layers\.0 has a forward hook"):
        VllmSampler(policy.model)


def test_an_adapter_reaches_vllm_inside_the_weights_it_belongs_to() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed: no adapters, so none to hand over")
    model = tiny_policy(hidden_size=64, heads=2, kv_heads=1, tie_embeddings=False).model
    plain = {name: tensor.clone() for name, tensor in named_weights(model)}
    assert plain.keys() == model.state_dict().keys()
    config = peft.LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    peft.inject_adapter_in_model(config, model)
    found = dict(named_weights(model))
    assert found.keys() == plain.keys()
    changed = {name for name in plain if not torch.equal(found[name], plain[name])}
    assert changed == {name for name in plain if "q_proj" in name or "down_proj" in name}
    layer = model.model.layers[1].mlp.down_proj
    delta = 4.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    expected = plain["model.layers.1.mlp.down_proj.weight"] + delta
    assert torch.allclose(found["model.layers.1.mlp.down_proj.weight"], expected, atol=1e-6)
    for module in model.modules():
        if hasattr(module, "lora_A"):
            module.enable_adapters(False)
    assert all(torch.equal(tensor, plain[name]) for name, tensor in named_weights(model))
