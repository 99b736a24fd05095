"""One is not "1 rows", wherever Python makes the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import webapp
from webapp.core.counts import counted

COUNTABLE = (
    "answers attempts bytes characters checkpoints columns completions days entries evaluations events files folders iterations "
    "members orphans people problems prompts rollouts rows runs samples seconds seeds steps tokens values versions"
)
NOUN = re.compile(rf" (?:[a-z]+ )?(?:{COUNTABLE.replace(' ', '|')})\b")
# Never 1, or named after a file or a person rather than counted.
EXEMPT = {
    "sys.get_int_max_str_digits()", "largest", "most", "shortest",  # limits
    "split", "position", "self.offset", "batch.begin", "checkpoint_id", "worker",  # no counts
    "seen",  # of a progress that goes on
    "s.sampler.get('max_new_tokens')",  # may be None
    "end - self.offset",  # of a line that is too long
    "len(pairs)",  # said of several only
}  # fmt: skip


def uncounted() -> Iterator[str]:
    """Texts with a number straight before a plural."""
    for path in sorted(Path(webapp.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            for number, text in zip(node.values, node.values[1:], strict=False):
                if isinstance(number, ast.FormattedValue) and isinstance(text, ast.Constant) and NOUN.match(text.value):
                    said = ast.unparse(number.value)
                    if (
                        said not in EXEMPT
                        and not said.isupper()
                        and not said.startswith("counted(")
                        and not re.match(r"[A-Z_]+ // ", said)
                    ):
                        yield f"{path.name}:{number.lineno}: {said}{text.value[:40]}"


def test_every_number_before_a_noun_is_counted() -> None:
    assert list(uncounted()) == []


@pytest.mark.parametrize(
    ("count", "nouns", "said"),
    [
        (0, ("row",), "0 rows"),
        (1, ("row",), "1 row"),
        (2, ("row",), "2 rows"),
        (1, ("file is", "files are"), "1 file is"),
        (3, ("file is", "files are"), "3 files are"),
    ],
)
def test_the_noun_follows_the_number(count: int, nouns: tuple[str, ...], said: str) -> None:
    assert counted(count, *nouns) == said
