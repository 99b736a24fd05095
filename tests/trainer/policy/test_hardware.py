"""Where a policy computes: settings that cannot be met are refused, and nothing is made on a device of its own choosing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from trainer.contract.config import HardwareSection
from trainer.core.errors import ConfigError
from trainer.core.slots import Scores
from trainer.loop import forward
from trainer.loop.forward import score_ids
from trainer.policy import hardware
from trainer.policy.decoder import Decoder
from trainer.policy.heads import ValueHead
from trainer.policy.scoring import score
from trainer.rollout.distribution import choose
from trainer.rollout.sampler import SamplingParams
from trainer.testing.tiny import tiny_policy

PROMPTS, COMPLETIONS = [[1, 5, 6], [1, 7]], [[8, 9, 2], [4, 2]]


def gpus(monkeypatch: pytest.MonkeyPatch, count: int, *, bfloat16: bool = True) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bfloat16)


def test_auto_is_the_gpu_in_bfloat16_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    section = HardwareSection()
    gpus(monkeypatch, 0)
    assert hardware.device_of(section) == torch.device("cpu")
    assert hardware.dtype_of(section, torch.device("cpu")) == torch.float32
    gpus(monkeypatch, 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert hardware.device_of(section) == torch.device("cuda", 1)
    assert hardware.dtype_of(section, torch.device("cuda", 1)) == torch.bfloat16
    gpus(monkeypatch, 2, bfloat16=False)
    assert hardware.dtype_of(section, torch.device("cuda", 1)) == torch.float32


def test_what_the_host_has_not_got_is_refused_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 0)
    with pytest.raises(ConfigError, match=r"hardware\.device: found cuda.*no GPU"):
        hardware.device_of(HardwareSection(device="cuda"))
    gpus(monkeypatch, 1, bfloat16=False)
    with pytest.raises(ConfigError, match=r"hardware\.dtype: found bfloat16"):
        hardware.dtype_of(HardwareSection(dtype="bfloat16"), torch.device("cuda"))
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ConfigError, match=r"hardware\.processes: process 2 .* torch sees 1"):
        hardware.device_of(HardwareSection())


def test_ids_go_to_the_policys_device_and_scores_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, seen = tiny_policy(), []
    monkeypatch.setattr(type(policy.model), "device", property(lambda _: torch.device("meta")))

    def recorded(model: Any, *tensors: torch.Tensor, **_: Any) -> Scores:
        seen.extend(t.device.type for t in tensors)
        return Scores(torch.zeros(2, 3), torch.zeros(2, 3))

    monkeypatch.setattr(forward, "score", recorded)
    scores, mask = score_ids(policy, PROMPTS, COMPLETIONS, 1.0)
    assert seen == ["meta"] * 4
    assert {scores.logprobs_NT.device.type, mask.device.type} == {"cpu"}


class OnNamedDevices(TorchFunctionMode):
    """Fails where a tensor is made without saying on which device."""

    FACTORIES = frozenset({"tensor", "zeros", "ones", "full", "empty", "arange", "rand", "randn", "eye", "linspace"})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in self.FACTORIES and getattr(torch, func.__name__) is func:
            assert kwargs.get("device") is not None, f"torch.{func.__name__} without a device"
        return func(*args, **kwargs)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("lean", [True, False])
def test_scoring_makes_every_tensor_on_the_device_of_its_arguments(
    family: str, lean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(family=family)
    if not lean:
        monkeypatch.setattr("trainer.policy.scoring.why_not_lean", lambda *_, **__: "for this test")
    prefix, prefix_len = forward._padded(PROMPTS, 0)
    ids, length = forward._padded(COMPLETIONS, 0)
    heads = {"value": ValueHead(32)}
    with OnNamedDevices():
        found = score(policy.model, prefix, prefix_len, ids, length, temperature=1.0, entropy_grad=True, heads=heads,
                      logit_elements=100)  # fmt: skip
        (found.logprobs_NT + found.entropy_NT + found.heads["value"]).sum().backward()


def test_decoding_makes_every_tensor_on_the_models_device() -> None:
    decoder = Decoder(tiny_policy().model)
    logits, uniform = torch.zeros(2, 5), torch.tensor([0.1, 0.9])
    with OnNamedDevices(), torch.inference_mode():
        decoder.reserve(8)
        tokens, logprobs = choose(logits, uniform, SamplingParams(1.0))
    assert tokens.tolist() == [0, 4]
    assert logprobs.shape == (2,)


@pytest.mark.parametrize("lean", [True, False])
def test_in_bfloat16_scores_and_gradients_are_near_those_of_float32_and_weights_stay(
    lean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not lean:
        monkeypatch.setattr("trainer.policy.scoring.why_not_lean", lambda *_, **__: "for this test")
    found = {}
    for name in ("float32", "bfloat16"):
        policy = hardware.placed(tiny_policy(scale=2.0), HardwareSection(device="cpu", dtype=name))  # type: ignore[arg-type]
        scores, mask = score_ids(policy, PROMPTS, COMPLETIONS, 1.0)
        (scores.logprobs_NT * mask).sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
        assert {p.dtype for p in policy.model.parameters()} == {gradient.dtype} == {scores.logprobs_NT.dtype}
        found[name] = scores.logprobs_NT.detach(), gradient
    (exact, slope), (rounded, its_slope) = found["float32"], found["bfloat16"]
    assert not torch.equal(exact, rounded)
    assert torch.allclose(exact, rounded, atol=0.05)
    assert torch.nn.functional.cosine_similarity(slope, its_slope, dim=0) > 0.99
