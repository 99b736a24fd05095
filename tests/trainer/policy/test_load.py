"""Making, saving and loading policies."""

import json
import time

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainer.core.errors import CheckpointError, ConfigError
from trainer.core.types import Message
from trainer.policy.char_tokenizer import char_tokenizer
from trainer.policy.fingerprint import weights_hash
from trainer.policy.load import load_policy, new_policy, save_policy
from trainer.testing.tiny import TINY, tiny_policy


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


def test_saved_policy_loads_bit_identically_here_and_in_transformers(policy, tmp_path):
    save_policy(policy, tmp_path / "p")
    again = load_policy(tmp_path / "p")
    assert weights_hash(again.model) == weights_hash(policy.model)
    assert weights_hash(AutoModelForCausalLM.from_pretrained(tmp_path / "p")) == weights_hash(policy.model)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "p")
    assert tokenizer("3+4=")["input_ids"] == policy.tokenizer("3+4=")["input_ids"]
    assert again.eos_ids == policy.eos_ids == (2,)
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


def test_loaded_weights_lie_where_fresh_ones_would(policy, tmp_path):
    """At addresses that are not multiples of 64 the BLAS sums in another order: a resumed run would leave its path."""
    save_policy(policy, tmp_path / "p")
    loaded = load_policy(tmp_path / "p")
    assert {weight.data_ptr() % 64 for weight in loaded.model.parameters()} == {0}


@pytest.mark.parametrize("changes", [{"family": "qwen2"}, {"tie_embeddings": False}])
def test_other_layouts_survive_saving(changes, tmp_path):
    policy = tiny_policy(**changes)
    save_policy(policy, tmp_path / "p")
    assert weights_hash(load_policy(tmp_path / "p").model) == weights_hash(policy.model)


def test_saving_over_a_folder_replaces_it_whole(policy, tmp_path):
    save_policy(policy, tmp_path / "p")
    (tmp_path / "p" / "stray.txt").write_text("old")
    other = tiny_policy(seed=1)
    save_policy(other, tmp_path / "p")
    assert weights_hash(load_policy(tmp_path / "p").model) == weights_hash(other.model)
    assert not (tmp_path / "p" / "stray.txt").exists()


def test_failed_save_leaves_the_old_folder_and_no_litter(policy, tmp_path, monkeypatch):
    save_policy(policy, tmp_path / "p")
    before = weights_hash(load_policy(tmp_path / "p").model)

    def full_disk(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    other = tiny_policy(seed=1)
    monkeypatch.setattr(type(other.tokenizer), "save_pretrained", full_disk)
    with pytest.raises(CheckpointError, match="No space left"):
        save_policy(other, tmp_path / "p")
    assert weights_hash(load_policy(tmp_path / "p").model) == before
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


def test_pickled_weights_are_refused_and_named(policy, tmp_path):
    save_policy(policy, tmp_path / "p")
    (tmp_path / "p" / "model.safetensors").unlink()
    torch.save({}, tmp_path / "p" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin.*safetensors"):
        load_policy(tmp_path / "p")


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors"])
def test_missing_file_is_named(policy, tmp_path, gone):
    save_policy(policy, tmp_path / "p")
    (tmp_path / "p" / gone).unlink()
    with pytest.raises(CheckpointError, match=gone.split(".")[-1]):
        load_policy(tmp_path / "p")


def test_missing_folder_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="not found"):
        load_policy(tmp_path / "nowhere")


def test_weights_that_do_not_cover_the_model_are_refused(policy, tmp_path):
    save_policy(policy, tmp_path / "p")
    config = json.loads((tmp_path / "p" / "config.json").read_text())
    config["num_hidden_layers"] = 3
    (tmp_path / "p" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="missing_keys"):
        load_policy(tmp_path / "p")


def test_new_policy_depends_on_its_seed_only():
    tokenizer = char_tokenizer("01+=")
    torch.manual_seed(123)
    state = torch.get_rng_state()
    first = new_policy(TINY, tokenizer, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(9)
    assert weights_hash(new_policy(TINY, tokenizer, seed=5).model) == weights_hash(first.model)
    assert weights_hash(new_policy(TINY, tokenizer, seed=6).model) != weights_hash(first.model)


@pytest.mark.parametrize("change", [{"family": "gpt2"}, {"heads": 5}, {"kv_heads": 3}, {"depth": 2}])
def test_bad_architecture_is_explained(change):
    with pytest.raises(ConfigError, match="architecture"):
        new_policy({**TINY, **change}, char_tokenizer("01"), seed=0)


def test_all_end_ids_of_config_and_tokenizer_count():
    policy = tiny_policy()
    policy.model.generation_config.eos_token_id = [7, 5]
    assert policy.eos_ids == (2, 5, 7)


def test_tiny_policy_is_built_in_milliseconds():
    tiny_policy()
    start = time.process_time()
    tiny_policy()
    assert time.process_time() - start < 0.5


def test_character_ids_round_trip_with_bos_in_front():
    tokenizer = char_tokenizer("01+= \n")
    ids = tokenizer("1 + 0\n")["input_ids"]
    assert ids == [1, 5, 8, 6, 8, 4, 9]
    assert tokenizer.decode(ids[1:]) == "1 + 0\n"
    assert tokenizer("1z", add_special_tokens=False)["input_ids"] == [5, 3]


def test_alphabet_with_a_repeated_character_is_refused():
    with pytest.raises(ConfigError, match="'0'"):
        char_tokenizer("010")


def test_special_tokens_inside_a_completion_stay_visible_to_the_checker(policy):
    one, two = policy.tokenizer("12", add_special_tokens=False)["input_ids"]
    assert policy.decode_completion([one, two, 2]) == "12"
    assert policy.decode_completion([one, 0, two, 2]) == "1<pad>2"
    assert policy.decode_completion([one, two]) == "12"
    assert policy.encode_completion("12") == (one, two, 2)
    assert policy.encode_prompt([Message("user", "1"), Message("user", "2")]) == (1, one, two)
