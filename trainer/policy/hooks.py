"""Activations of named modules while the policy reads a batch; nothing of a module is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F

from trainer.core.errors import ConfigError
from trainer.core.types import Batch
from trainer.policy.adapters import using
from trainer.policy.load import Policy

Tokens = Literal["all", "prompt", "response"]
READ_AT_ONCE = 65536
"""Padded tokens of a forward pass."""


@dataclass
class Channels:
    """Sums over real tokens of a module's output, each (d,) in fp64: of |x|, of x², and the largest |x|; and how many
    tokens they are of."""

    absolute: torch.Tensor
    squared: torch.Tensor
    largest: torch.Tensor
    count: int = 0

    @classmethod
    def of_size(cls, d: int) -> Channels:
        """Of no token yet."""
        a, b, c = torch.zeros(3, d, dtype=torch.double)
        return cls(a, b, c)

    def add(self, values_Fd: torch.Tensor) -> None:
        """More tokens (F, d)."""
        size = values_Fd.detach().double().abs()
        if len(size):
            self.absolute += size.sum(0)
            self.squared += (size**2).sum(0)
            self.largest = torch.maximum(self.largest, size.amax(0))
            self.count += len(size)


@contextmanager
def outputs_of(model: Any, names: list[str], see: Callable[[str, torch.Tensor], None]) -> Iterator[None]:
    """Inside, ``see(name, output)`` is called whenever one of the named modules has computed something."""

    def hook(name: str) -> Callable[..., None]:
        def look(module: Any, given: Any, output: torch.Tensor) -> None:
            see(name, output)

        return look

    handles = [model.get_submodule(name).register_forward_hook(hook(name)) for name in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def projections(model: Any, kind: str) -> list[str]:
    """Names of the modules called ``kind`` (q_proj, k_proj …), in the order of the layers. Raises ConfigError without any."""
    found = [name for name, _ in model.named_modules() if name.rpartition(".")[2] == kind]
    if not found:
        raise ConfigError(
            f"the policy ({type(model).__name__}) has no module called {kind}: its projections are fused or named otherwise; "
            "expected one with separate q_proj and k_proj, as in Llama and Qwen"
        )
    return found


@torch.no_grad()
def channel_statistics(policy: Policy, batch: Batch, names: list[str], tokens: Tokens = "all") -> dict[str, Channels]:
    """What the named modules put out for the batch's real tokens: prompts, responses or both, padding never. One forward
    pass of the decoder, without the head."""
    modules: dict[str, Any] = {name: policy.model.get_submodule(name) for name in names}
    found = {name: Channels.of_size(module.out_features) for name, module in modules.items()}
    chosen = torch.zeros(0)

    def see(name: str, output: torch.Tensor) -> None:
        found[name].add(output[chosen])

    total_N = batch.prefix_len_N + batch.length_N
    order = torch.argsort(total_N, descending=True, stable=True).tolist()
    decoder = policy.model.get_decoder()
    with using(policy), outputs_of(policy.model, names, see):
        while order:
            width = int(total_N[order[0]])
            if not width:
                break
            count = max(1, READ_AT_ONCE // width)
            rows, order = torch.tensor(order[:count]), order[count:]
            ids, chosen = _joined(batch, rows, width, tokens)
            # Right-padded and causal: what comes after a row's end changes nothing before it.
            decoder(input_ids=ids, use_cache=False)
    return found


def _joined(batch: Batch, rows: torch.Tensor, width: int, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompt and response side by side (R, width), and which of the tokens are asked for."""
    prompt, length = batch.prefix_len_N[rows, None], batch.length_N[rows, None]
    column = torch.arange(width)[None].expand(len(rows), -1)
    inside = column - prompt
    # One column more, because a batch may have no responses at all.
    before, own = (F.pad(ids[rows], (0, 1)) for ids in (batch.prefix_ids_NP, batch.ids_NT))
    before = before.gather(1, column.clamp(max=before.shape[1] - 1))
    own = own.gather(1, inside.clamp(0, own.shape[1] - 1))
    ids = torch.where(inside >= 0, own, before)
    of_prompt, of_response = inside < 0, (inside >= 0) & (inside < length)
    wanted = {"all": of_prompt | of_response, "prompt": of_prompt, "response": of_response}
    return ids, wanted[tokens]
