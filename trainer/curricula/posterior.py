"""What is known of a problem's success probability: a Beta posterior that forgets, as pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Beta:
    """θ ~ Beta(a, b); the default is the uniform prior."""

    a: float = 1.0
    b: float = 1.0

    def after(self, right: int, wrong: int, *, discount: float = 1.0, prior: Beta | None = None) -> Beta:
        """a ← a₀ + g·(a − a₀) + right, and b the same with wrong: what was seen before counts g as much."""
        p = prior or Beta()
        return Beta(p.a + discount * (self.a - p.a) + right, p.b + discount * (self.b - p.b) + wrong)

    @property
    def mean(self) -> float:
        return self.a / (self.a + self.b)

    def below(self, x: float) -> float:
        """Pr(θ < x), the regularised incomplete beta function I_x(a, b)."""
        if x <= 0 or x >= 1:
            return float(x >= 1)
        front = math.exp(
            math.lgamma(self.a + self.b) - math.lgamma(self.a) - math.lgamma(self.b)
            + self.a * math.log(x) + self.b * math.log1p(-x)
        )  # fmt: skip
        # The continued fraction converges fast below the mean; above it the other tail is computed.
        if x < (self.a + 1) / (self.a + self.b + 2):
            return front * _fraction(self.a, self.b, x) / self.a
        return 1 - front * _fraction(self.b, self.a, 1 - x) / self.b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's method."""
    tiny, c, d = 1e-300, 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 1000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 + numerator * d, 1 + numerator / c
            d, c = 1 / (d if abs(d) > tiny else tiny), c if abs(c) > tiny else tiny
            value *= d * c
        if abs(d * c - 1) < 1e-15:
            return value
    raise ArithmeticError(f"the incomplete beta function did not converge at a={a}, b={b}, x={x}")
