"""A GGUF file is loaded as it is: configuration, tokenizer and weights from one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer.cli import main
from trainer.contract.events import Scalars
from trainer.contract.exit_codes import ExitCode
from trainer.core.errors import CheckpointError, ConfigError
from trainer.loop.run import Attempt, resolve_folder, run_attempt
from trainer.policy.fingerprint import weights_hash
from trainer.policy.load import load_policy
from trainer.testing.replay import story_of

TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "1", "2", "+"]
WIDTH, MLP, HEADS = 32, 64, 4
SHAPES = {
    "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH),
    "ffn_gate": (MLP, WIDTH), "ffn_up": (MLP, WIDTH), "ffn_down": (WIDTH, MLP),
}  # fmt: skip


def write_tiny(path: Path, *, without: str = "") -> dict[str, np.ndarray]:
    """A one-layer llama of random weights; its tensors by their names in the file."""
    from gguf import GGUFWriter

    path.parent.mkdir(exist_ok=True)
    draws = np.random.default_rng(0)
    tensors = {"token_embd.weight": draws.standard_normal((len(TOKENS), WIDTH)).astype(np.float32)}
    tensors |= {f"blk.0.{n}.weight": draws.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}
    tensors |= {
        n: np.ones(WIDTH, np.float32) for n in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight")
    }
    tensors["output.weight"] = draws.standard_normal((len(TOKENS), WIDTH)).astype(np.float32)
    writer = GGUFWriter(str(path), "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * 6])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for name, tensor in tensors.items():
        if name != without:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_a_gguf_file_gives_its_own_weights_and_tokenizer(tmp_path: Path) -> None:
    tensors = write_tiny(tmp_path / "tiny.gguf")
    policy = load_policy(tmp_path)
    assert (policy.eos_ids, policy.max_positions) == ((2,), 64)
    assert policy.decode_completion(policy.encode_completion("a+b")) == "a+b"
    weights = policy.model.state_dict()
    assert torch.equal(weights["model.embed_tokens.weight"], torch.from_numpy(tensors["token_embd.weight"]))
    assert torch.equal(weights["lm_head.weight"], torch.from_numpy(tensors["output.weight"]))
    assert torch.equal(
        weights["model.layers.0.mlp.down_proj.weight"], torch.from_numpy(tensors["blk.0.ffn_down.weight"])
    )


def test_a_gguf_file_without_one_of_its_weights_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny.gguf", without="blk.0.ffn_down.weight")
    with pytest.raises(CheckpointError, match=r"layers.0.mlp.down_proj.weight"):
        load_policy(tmp_path)


def test_one_of_several_files_is_named_by_its_path(tmp_path: Path) -> None:
    tensors = write_tiny(tmp_path / "models" / "full.gguf")
    write_tiny(tmp_path / "models" / "broken.gguf", without="blk.0.ffn_down.weight")
    with pytest.raises(ConfigError, match="found no model at 'models'"):
        resolve_folder(tmp_path, "models")
    weights = load_policy(resolve_folder(tmp_path, "models/full.gguf")).model.state_dict()
    assert torch.equal(weights["lm_head.weight"], torch.from_numpy(tensors["output.weight"]))


def test_the_command_line_makes_a_plain_folder_of_it(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny.gguf")
    here = ["--files", str(tmp_path)]
    assert main(["convert", "tiny.gguf", "--out", str(tmp_path / "plain"), *here]) == ExitCode.FINISHED
    assert (tmp_path / "plain" / "model.safetensors").is_file()
    plain, packed = load_policy(tmp_path / "plain"), load_policy(tmp_path / "tiny.gguf")
    assert weights_hash(plain.model) == weights_hash(packed.model)
    assert (plain.eos_ids, plain.encode_completion("a+b")) == (packed.eos_ids, packed.encode_completion("a+b"))


def test_a_run_from_it_trains_all_weights_and_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """The reference of the KL is the file, read again by every attempt; what is saved is a plain folder."""
    write_tiny(tmp_path / "base" / "tiny.gguf")
    document = {
        "kind": "rl", "policy": {"checkpoint": "base"}, "task": {"name": "mod_chain", "problems": 8},
        "sampling": {"max_new_tokens": 4}, "budget": {"iterations": 3}, "checkpoints": {"every": 1},
        "algorithm": {"prompts_per_iteration": 2, "num_generations": 4, "kl_coef": 0.1, "entropy_coef": 0.1},
        "evaluation": {"every": 0, "problems": 0, "final_problems": 0},
    }  # fmt: skip

    def attempt(name: str, number: int, stop: Callable[[], bool] = lambda: False, echo: Any = None) -> ExitCode:
        run = Attempt(run=tmp_path / name, number=number, files=tmp_path, resume=number > 1, stop=stop, echo=echo)
        return run_attempt(document, run)

    assert attempt("whole", 1) == ExitCode.FINISHED, story_of(tmp_path / "whole").last_message
    done: list[int] = []
    assert (
        attempt("parts", 1, lambda: bool(done), lambda e: isinstance(e, Scalars) and done.append(1)) == ExitCode.STOPPED
    )
    assert attempt("parts", 2) == ExitCode.FINISHED
    whole, parts = story_of(tmp_path / "whole"), story_of(tmp_path / "parts")
    assert whole.scalars[1, "kl"] == pytest.approx(0.0, abs=1e-9)
    assert whole.scalars[3, "kl"] > 0.0
    assert parts.scalars == whole.scalars
    assert parts.checkpoints[3] == whole.checkpoints[3]
    saved = tmp_path / "whole/attempts/1/checkpoints/it-00000003/policies/policy"
    assert weights_hash(load_policy(saved).model) == whole.checkpoints[3]
