"""A character tokenizer in the standard transformers layout, for small models trained from scratch.

Ids: 0 ``<pad>``, 1 ``<bos>``, 2 ``<eos>``, 3 ``<unk>``, then one id per character of the alphabet in the given order.
``tokenizer(text)`` puts ``<bos>`` in front, so that an empty prompt has one token; with ``add_special_tokens=False`` it
does not.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from trainer.core.errors import ConfigError

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")


def char_tokenizer(alphabet: str, *, max_length: int = 1_000_000) -> PreTrainedTokenizerFast:
    """Tokenizer with one id per character of ``alphabet`` (distinct characters); it saves and loads with AutoTokenizer.

    Encoding a character outside the alphabet gives ``<unk>``. ``decode`` joins characters without adding spaces.
    """
    repeated = sorted({c for c in alphabet if alphabet.count(c) > 1})
    if not alphabet or repeated:
        found = f"repeated characters {repeated}" if repeated else "an empty alphabet"
        raise ConfigError(f"char_tokenizer: found {found}, expected distinct characters; change the alphabet")
    vocab = {token: i for i, token in enumerate((*SPECIALS, *alphabet))}
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    core.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", vocab["<bos>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        padding_side="right",
    )
