"""What will happen when: a storm as data, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Aim = Literal["any", "starting", "ending", "queued"]
AIMS: tuple[Aim, ...] = ("any", "any", "any", "starting", "ending", "queued")
FIRST, LAST = 0.2, 12.0
SHORT, LONG = (0.2, 4.0), (8.0, 20.0)
LONG_SHARE = 0.2


@dataclass(frozen=True)
class Round:
    """One trouble. `aim` is the phase in which some run shall be, `wait` the seconds to let pass from then on, `hold` for
    how long a lasting trouble lasts, and `lot` chooses the victim among those that there are.
    """

    number: int
    trouble: str
    aim: Aim
    wait: float
    hold: float
    lot: float

    def __str__(self) -> str:
        return f"{self.trouble}, {self.wait:.1f} s into {self.aim}, {self.hold:.1f} s"


def plan(seed: int, rounds: int, troubles: Sequence[str], *, pace: float = 1.0) -> Iterator[Round]:
    """Every kind of trouble about equally often, in an order that the seed alone decides. A `pace` below 1 shortens all
    waits.
    """
    draw = random.Random(seed)
    bag: list[str] = []
    for number in range(1, rounds + 1):
        if not bag:
            bag = sorted(troubles)
            draw.shuffle(bag)
        span = LONG if draw.random() < LONG_SHARE else SHORT
        yield Round(
            number=number,
            trouble=bag.pop(),
            aim=draw.choice(AIMS),
            wait=round(draw.uniform(FIRST, LAST) * pace, 1),
            hold=round(draw.uniform(*span) * pace, 1),
            lot=draw.random(),
        )
