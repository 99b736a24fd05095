"""A storm can be had again: its plan depends on the seed alone."""

from __future__ import annotations

from collections import Counter

from tests.storm.plan import plan
from tests.storm.trouble import KINDS


def test_the_same_seed_gives_the_same_storm() -> None:
    assert list(plan(7, 40, list(KINDS))) == list(plan(7, 40, list(reversed(KINDS))))
    assert list(plan(7, 40, list(KINDS))) != list(plan(8, 40, list(KINDS)))


def test_every_kind_of_trouble_comes_equally_often() -> None:
    counts = Counter(one.trouble for one in plan(1, 3 * len(KINDS), list(KINDS)))
    assert counts == dict.fromkeys(KINDS, 3)
