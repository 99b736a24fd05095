"""Integer arithmetic expressions: reading, evaluating, the normal form, and all expressions over a set of
numbers.

An expression is *valid* when every intermediate result is an integer: division must come out even, and
dividing by zero is invalid. Negative and zero intermediates are valid.

Two expressions are the same solution iff commutativity, associativity and the sign rules turn one into the
other: ``a+b = b+a``, ``a-(b-c) = a+c-b``, ``a/(b/c) = a*c/b``, ``(a-b)*(c-d) = (b-a)*(d-c)``. Distributivity
is not among them, nor are numerical accidents (``2+2`` and ``2*2``, or ``x*1`` and ``x/1``, differ).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Literal

Tree = int | tuple[str, "Tree", "Tree"]
"""A number, or (operator, left, right)."""

_TOKEN = re.compile(r" *([0-9]+|[-+*/()])")
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2}
_MAX_DIGITS = 9


def parse(text: str, max_leaves: int) -> Tree | None:
    """The tree of an infix expression with the usual precedence, grouping to the left; spaces between tokens
    are free.

    None for anything else: other characters, a sign without a left operand, leading zeros, more than
    ``max_leaves`` numbers. Works without recursion, so no nesting of parentheses can overflow.
    """
    operands: list[Tree] = []
    pending: list[str] = []
    leaves, wants_operand, position = 0, True, 0
    text = text.strip(" \n")
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return None
        token, position = match.group(1), match.end()
        if wants_operand != (token == "(" or token[0].isdigit()):
            return None
        if token == "(":
            pending.append(token)
        elif token == ")":
            while pending and pending[-1] != "(":
                _reduce(operands, pending)
            if not pending:
                return None
            pending.pop()
        elif token in _BINDING:
            while pending and pending[-1] != "(" and _BINDING[pending[-1]] >= _BINDING[token]:
                _reduce(operands, pending)
            pending.append(token)
            wants_operand = True
        else:
            leaves += 1
            if leaves > max_leaves or len(token) > _MAX_DIGITS or (token[0] == "0" and len(token) > 1):
                return None
            operands.append(int(token))
            wants_operand = False
    if wants_operand or "(" in pending:
        return None
    while pending:
        _reduce(operands, pending)
    return operands[0]


def _reduce(operands: list[Tree], pending: list[str]) -> None:
    right, left = operands.pop(), operands.pop()
    operands.append((pending.pop(), left, right))


def leaves(tree: Tree) -> list[int]:
    """The numbers of the expression, left to right."""
    if isinstance(tree, int):
        return [tree]
    return leaves(tree[1]) + leaves(tree[2])


def operators(tree: Tree) -> set[str]:
    """The operators that occur in the expression."""
    if isinstance(tree, int):
        return set()
    return {tree[0]} | operators(tree[1]) | operators(tree[2])


def evaluate(tree: Tree) -> int | None:
    """The value of a valid expression; None for an invalid one."""
    if isinstance(tree, int):
        return tree
    left, right = evaluate(tree[1]), evaluate(tree[2])
    if left is None or right is None:
        return None
    if tree[0] == "+":
        return left + right
    if tree[0] == "-":
        return left - right
    if tree[0] == "*":
        return left * right
    return left // right if right and left % right == 0 else None


@dataclass(frozen=True, eq=False)
class Form:
    """An expression in normal form, up to its sign: nested sums and products are one n-ary node.

    ``sum``: the ``up`` terms minus the ``down`` terms; ``product``: the ``up`` factors over the ``down``
    factors. Both are sorted by falling value, then text. A sum is turned so that its value is not negative,
    and the minus sign moves outwards. ``text`` is the infix expression with no needless parentheses, and
    equal for two forms iff they are the same. ``vanishing``: zero by its structure (``3-3``), so a minus sign
    before it means nothing.
    """

    kind: Literal["number", "sum", "product"]
    value: int | Fraction
    text: str
    up: tuple[Form, ...] = ()
    down: tuple[Form, ...] = ()
    vanishing: bool = False


Signed = tuple[int, Form]
"""A form with its sign, +1 or -1."""


def _number(value: int) -> Signed:
    return 1, Form("number", value, str(value))


def _rank(form: Form) -> tuple[int | Fraction, str]:
    return -form.value, form.text


def _sum(terms: list[Signed]) -> Signed:
    up = sorted((f for sign, f in terms if sign > 0 or f.vanishing), key=_rank)
    down = sorted((f for sign, f in terms if sign < 0 and not f.vanishing), key=_rank)
    fixed = [f for f in up if f.vanishing]
    free = [f for f in up if not f.vanishing]
    value = sum(f.value for f in up) - sum(f.value for f in down)
    text = _sum_text(up, down)
    vanishing = [f.text for f in free] == [f.text for f in down]
    turned_up, turned_down = sorted(down + fixed, key=_rank), free
    turned_text = _sum_text(turned_up, turned_down)
    turn = value < 0 or (value == 0 and bool(turned_up) and (not up or turned_text < text))
    if turn and not vanishing:
        return -1, Form("sum", -value, turned_text, tuple(turned_up), tuple(turned_down))
    return 1, Form("sum", value, text, tuple(up), tuple(down), vanishing)


def _sum_text(up: list[Form], down: list[Form]) -> str:
    return "+".join(f.text for f in up) + "".join("-" + f.text for f in down)


def _product(up: list[Form], down: list[Form], sign: int) -> Signed:
    up, down = sorted(up, key=_rank), sorted(down, key=_rank)
    top, bottom = prod(f.value for f in up), prod(f.value for f in down)
    value = top if not down else Fraction(top) / bottom
    text = "*".join(_factor_text(f) for f in up) + "".join("/" + _factor_text(f) for f in down)
    vanishing = any(f.vanishing for f in up)
    return 1 if vanishing else sign, Form("product", value, text, tuple(up), tuple(down), vanishing)


def _factor_text(form: Form) -> str:
    return f"({form.text})" if form.kind == "sum" else form.text


def combine(operator: str, left: Signed, right: Signed) -> Signed:
    """The normal form of ``left operator right``. The divisor's value must not be zero."""
    if operator in "+-":
        return _sum(_terms(left, 1) + _terms(right, 1 if operator == "+" else -1))
    (left_up, left_down), (up, down) = _factors(left[1]), _factors(right[1])
    if operator == "/":
        up, down = down, up
    return _product(left_up + up, left_down + down, left[0] * right[0])


def _terms(signed: Signed, outer: int) -> list[Signed]:
    sign, form = outer * signed[0], signed[1]
    if form.kind != "sum":
        return [(sign, form)]
    return [(sign, f) for f in form.up] + [(-sign, f) for f in form.down]


def _factors(form: Form) -> tuple[list[Form], list[Form]]:
    return (list(form.up), list(form.down)) if form.kind == "product" else ([form], [])


def normal_form(tree: Tree) -> Signed:
    """The sign and normal form of an expression in which nothing is divided by zero."""
    if isinstance(tree, int):
        return _number(tree)
    return combine(tree[0], normal_form(tree[1]), normal_form(tree[2]))


def canonical(tree: Tree) -> str:
    """The key of a valid expression as a solution. For a positive value it is itself a valid infix
    expression."""
    sign, form = normal_form(tree)
    return form.text if sign > 0 else f"-({form.text})"


def arrange(form: Form, rng: random.Random) -> str:
    """``form`` as infix text with no needless parentheses, the operands of every sum and product in random
    order.

    A sum starts with a term that is added; divisors come after all factors, so every intermediate stays an
    integer.
    """
    if form.kind == "number":
        return form.text
    if form.kind == "product":
        up, down = [list(part) for part in (form.up, form.down)]
        rng.shuffle(up)
        rng.shuffle(down)
        texts = [f"({arrange(f, rng)})" if f.kind == "sum" else arrange(f, rng) for f in up + down]
        return "*".join(texts[: len(up)]) + "".join("/" + t for t in texts[len(up) :])
    first = rng.randrange(len(form.up))
    rest = [("+", f) for i, f in enumerate(form.up) if i != first] + [("-", f) for f in form.down]
    rng.shuffle(rest)
    return arrange(form.up[first], rng) + "".join(op + arrange(f, rng) for op, f in rest)


class NumberSet:
    """Everything that can be written with each of ``numbers`` exactly once and the ``allowed`` operators.

    ``counts[value]`` is the number of valid ordered binary trees with that value: n! orders of the leaves
    (equal numbers count as different leaves) × Catalan(n-1) shapes × operators at the n-1 inner nodes,
    invalid ones left out.
    """

    def __init__(self, numbers: tuple[int, ...], allowed: str) -> None:
        self.numbers = numbers
        self.allowed = allowed
        self._full = (1 << len(numbers)) - 1
        self._tables: list[dict[int, int]] = [{} for _ in range(self._full + 1)]
        self._forms: dict[tuple[int, int], tuple[Signed, ...]] = {}
        for mask in range(1, self._full + 1):
            self._tables[mask] = self._count(mask)
        self.counts = self._tables[self._full]
        self.total = sum(self.counts.values())

    def chance(self, target: int) -> float:
        """The probability that a uniformly drawn valid ordered tree has the value ``target``."""
        return self.counts.get(target, 0) / self.total if self.total else 0.0

    def solutions(self, target: int) -> tuple[Form, ...]:
        """The different solutions with the value ``target`` > 0, by normal form, in the order of their
        text."""
        return tuple(form for sign, form in self._solve(self._full, target) if sign > 0)

    def _splits(self, mask: int) -> Iterator[tuple[int, int]]:
        """The unordered ways to share the leaves of ``mask`` between two sides; the first holds the lowest
        leaf."""
        lowest = mask & -mask
        rest = mask ^ lowest
        part = rest
        while part:
            yield mask ^ part, part
            part = (part - 1) & rest

    def _count(self, mask: int) -> dict[int, int]:
        if mask & (mask - 1) == 0:
            return {self.numbers[mask.bit_length() - 1]: 1}
        plus, minus, times, over = (op in self.allowed for op in "+-*/")
        out: dict[int, int] = {}
        get = out.get
        for first, second in self._splits(mask):
            others = list(self._tables[second].items())
            for a, ways_a in self._tables[first].items():
                for b, ways_b in others:
                    ways = ways_a * ways_b
                    # Both orders of the two sides are different trees: hence twice for + and *.
                    if plus:
                        out[a + b] = get(a + b, 0) + 2 * ways
                    if times:
                        out[a * b] = get(a * b, 0) + 2 * ways
                    if minus:
                        out[a - b] = get(a - b, 0) + ways
                        out[b - a] = get(b - a, 0) + ways
                    if over and b and a % b == 0:
                        out[a // b] = get(a // b, 0) + ways
                    if over and a and b % a == 0:
                        out[b // a] = get(b // a, 0) + ways
        return out

    def _solve(self, mask: int, value: int) -> tuple[Signed, ...]:
        """The normal forms over the leaves of ``mask`` with ``value``, found backwards from it; sorted by
        text."""
        known = self._forms.get((mask, value))
        if known is not None:
            return known
        found: dict[tuple[int, str], Signed] = {}
        if mask & (mask - 1) == 0:
            signed = _number(self.numbers[mask.bit_length() - 1])
            found[1, signed[1].text] = signed
        else:
            for first, second in self._splits(mask):
                if len(self._tables[first]) > len(self._tables[second]):
                    first, second = second, first
                for op, a, b, swapped in self._pairs(first, second, value):
                    for left in self._solve(first, a):
                        for right in self._solve(second, b):
                            signed = combine(op, right, left) if swapped else combine(op, left, right)
                            found[signed[0], signed[1].text] = signed
        result = tuple(found[key] for key in sorted(found))
        self._forms[mask, value] = result
        return result

    def _pairs(self, first: int, second: int, value: int) -> Iterator[tuple[str, int, int, bool]]:
        """(operator, a, b, swapped) with a of ``first``, b of ``second`` and a∘b (b∘a if swapped) =
        ``value``."""
        table = self._tables[second]
        for a in self._tables[first]:
            if "+" in self.allowed and value - a in table:
                yield "+", a, value - a, False
            if "-" in self.allowed and a - value in table:
                yield "-", a, a - value, False
            if "-" in self.allowed and a + value in table:
                yield "-", a, a + value, True
            if "*" in self.allowed:
                if a == 0 == value:
                    yield from (("*", a, b, False) for b in table)
                elif a and value % a == 0 and value // a in table:
                    yield "*", a, value // a, False
            if "/" in self.allowed:
                if a and a * value in table:
                    yield "/", a, a * value, True
                if value and a and a % value == 0 and a // value in table:
                    yield "/", a, a // value, False
                elif value == 0 and a == 0:
                    yield from (("/", a, b, False) for b in table if b)


@lru_cache(maxsize=32)
def number_set(numbers: tuple[int, ...], allowed: str) -> NumberSet:
    """``NumberSet`` with the last few kept: problems and solutions of one set are usually asked for in a
    row."""
    return NumberSet(numbers, allowed)
