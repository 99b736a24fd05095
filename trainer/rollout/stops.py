"""Stop strings on token ids: one rule for every engine."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from trainer.core.errors import SamplerError


class StopStrings:
    """Says whether a sample's last token completes one of the strings in its text.

    The text is that of the sample's own tokens, special ones written out, without the prompt's: a string that begins in
    the prompt does not count. Only the end of the text is decoded, because every token adds at least one byte.
    """

    def __init__(self, strings: Sequence[str], tokenizer: PreTrainedTokenizerBase | None) -> None:
        if strings and tokenizer is None:
            raise SamplerError(
                f"stop strings {list(strings)} need a tokenizer, found a sampler without one; make it with "
                "make_sampler(policy, …), or pass tokenizer="
            )
        self.strings = tuple(strings)
        self._tokenizer = tokenizer
        # One token more, because some tokenizers drop a leading space, and a few for characters cut in half.
        self.window = max((len(s.encode()) for s in strings), default=0) + 4
        """How many of a sample's last ids decide."""

    def __bool__(self) -> bool:
        return bool(self.strings)

    def completed_by(self, ids: Sequence[int]) -> bool:
        """Whether the last of the ids completes a stop string; at least the last ``window`` of the sample are needed."""
        if not self.strings or not ids:
            return False
        tail = list(ids[-self.window :])
        text = self._text(tail)
        found = [s for s in self.strings if s in text]
        if not found:
            return False
        before = self._text(tail[:-1])
        return any(text.rfind(s) > before.rfind(s) for s in found)

    def _text(self, ids: list[int]) -> str:
        assert self._tokenizer is not None
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
