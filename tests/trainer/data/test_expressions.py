"""Reading expressions, their normal form, and counting all expressions over a set of numbers."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.tasks.expressions import (
    NumberSet,
    Tree,
    arrange,
    canonical,
    evaluate,
    leaves,
    normal_form,
    operators,
    parse,
)


def all_trees(numbers: tuple[int, ...], allowed: str) -> list[Tree]:
    """Every ordered binary tree over every order of the numbers: a second, direct reading of the chance policy."""

    def over(order: tuple[int, ...]) -> list[Tree]:
        if len(order) == 1:
            return [order[0]]
        return [
            (op, left, right)
            for cut in range(1, len(order))
            for left in over(order[:cut])
            for right in over(order[cut:])
            for op in allowed
        ]

    return [tree for order in itertools.permutations(numbers) for tree in over(order)]


def exact(tree: Tree) -> Fraction | None:
    if isinstance(tree, int):
        return Fraction(tree)
    left, right = exact(tree[1]), exact(tree[2])
    if left is None or right is None or (tree[0] == "/" and right == 0):
        return None
    if tree[0] == "/":
        return left / right
    return {"+": left + right, "-": left - right, "*": left * right}[tree[0]]


def modular(tree: Tree, prime: int) -> int:
    """The value in a large prime field; over random leaves, equal iff equal as rational functions."""
    if isinstance(tree, int):
        return tree % prime
    left, right = modular(tree[1], prime), modular(tree[2], prime)
    if tree[0] == "/":
        return left * pow(right, -1, prime) % prime
    return {"+": left + right, "-": left - right, "*": left * right}[tree[0]] % prime


def plain(tree: Tree) -> str:
    return str(tree) if isinstance(tree, int) else f"({plain(tree[1])}{tree[0]}{plain(tree[2])})"


def trees(allowed: str = "+-*", smallest: int = 1) -> st.SearchStrategy[Tree]:
    return st.recursive(
        st.integers(smallest, 30),
        lambda inner: st.tuples(st.sampled_from(list(allowed)), inner, inner),
        max_leaves=6,
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2*3", 7),
        ("(1+2)*3", 9),
        ("10-4-3", 3),
        ("10-(4-3)", 9),
        ("12/2/3", 2),
        ("12/(2*3)", 2),
        (" 7 + 8 \n", 15),
        ("((((5))))", 5),
        ("0*9", 0),
    ],
)
def test_reads_usual_precedence_and_left_grouping(text: str, value: int) -> None:
    tree = parse(text, 5)
    assert tree is not None
    assert evaluate(tree) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "+", "-3", "3+", "3 4",
     "(3", "3)", ")(", "()", "3(4)", "03+1", "3**4", "3//4", "2^3", "3+4=7", "٣+4", "²",
     "1.5", "1e3", "3+\n4", "x", "3+-4", "1234567890", "1+2+3+4+5+6"],
)  # fmt: skip
def test_refuses_what_is_not_an_expression(text: str) -> None:
    assert parse(text, 5) is None


def test_deep_or_long_text_is_read_without_overflow() -> None:
    assert parse("(" * 100_000 + "7" + ")" * 100_000, 5) == 7
    assert parse("(" * 100_000, 5) is None
    assert parse("1+" * 100_000 + "1", 5) is None
    assert parse("9" * 10_000, 5) is None


@given(trees("+-*/"))
def test_reading_what_was_written_gives_the_same_tree(tree: Tree) -> None:
    assert parse(plain(tree), 6) == tree


@given(trees("+-*/", smallest=0))
def test_value_is_exact_and_none_iff_an_intermediate_is_not_an_integer(tree: Tree) -> None:
    def whole(part: Tree) -> bool:
        value = exact(part)
        inner = isinstance(part, int) or (whole(part[1]) and whole(part[2]))
        return inner and value is not None and value.denominator == 1

    assert evaluate(tree) == (exact(tree) if whole(tree) else None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1+2", "2+1"),
        ("(1+2)+3", "1+(2+3)"),
        ("9-(4-3)", "9+3-4"),
        ("9-(4+3)", "9-4-3"),
        ("(9-4)*(3-5)", "(4-9)*(5-3)"),
        ("8-(2-3)*4", "8+(3-2)*4"),
        ("2*(3*4)", "4*3*2"),
        ("24/(4/2)", "24*2/4"),
        ("24/(4*2)", "24/2/4"),
        ("7+(3-3)*5", "7-(3-3)*5"),
        ("7-(5-2-3)*4", "7+(3+2-5)*4"),
        ("(3-3)*(2-5)", "(3-3)*(5-2)"),
    ],
)
def test_same_solution_has_the_same_canonical_form(one: str, other: str) -> None:
    a, b = parse(one, 5), parse(other, 5)
    assert a is not None
    assert b is not None
    assert canonical(a) == canonical(b)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2+2", "2*2"),
        ("(1+2)*3", "1*3+2*3"),
        ("5*1", "5/1"),
        ("(1+2)*5", "1+2*7"),
        ("9-4", "4-9"),
        ("7+(5-2-3)*4", "7-(5-2-3)*4"),
        ("(9-4)*3", "(4-9)*3"),
    ],
)
def test_different_solutions_differ_even_at_equal_value(one: str, other: str) -> None:
    a, b = parse(one, 5), parse(other, 5)
    assert a is not None
    assert b is not None
    assert canonical(a) != canonical(b)


def test_canonical_text_puts_larger_operands_first() -> None:
    tree = parse("3-(25-50)*(4+7)", 5)
    assert tree is not None
    assert canonical(tree) == "(50-25)*(7+4)+3"


@pytest.mark.parametrize(("count", "classes"), [(2, 6), (3, 68), (4, 1170)])
def test_number_of_different_expressions_over_distinct_variables(count: int, classes: int) -> None:
    # The first terms of OEIS A140606: inequivalent expressions in n variables with + - * / and no unary minus.
    numbers = (1_000_003, 10_007, 523, 97)[:count]
    assert len({canonical(tree) for tree in all_trees(numbers, "+-*/")}) == classes


@pytest.mark.parametrize("seed", [0, 1])
def test_canonical_forms_are_equal_iff_equal_as_rational_functions(seed: int) -> None:
    # Where each variable occurs once, expressions are equal functions iff the rules of the normal form join them.
    prime = 2**61 - 1
    numbers = tuple(random.Random(seed).sample(range(10**6, 10**15), 4))
    by_function: dict[int, set[str]] = {}
    by_form: dict[str, set[int]] = {}
    for tree in all_trees(numbers, "+-*/"):
        function, form = modular(tree, prime), canonical(tree)
        by_function.setdefault(function, set()).add(form)
        by_form.setdefault(form, set()).add(function)
    assert len(by_form) == 1170
    assert all(len(forms) == 1 for forms in by_function.values())
    assert all(len(functions) == 1 for functions in by_form.values())


def rewrite(tree: Tree, rng: random.Random) -> Tree:
    """The same solution by commutativity, associativity and sign rules at random places."""
    if isinstance(tree, int):
        return tree
    op, left, right = tree[0], rewrite(tree[1], rng), rewrite(tree[2], rng)
    if op in "+*" and rng.random() < 0.5:
        left, right = right, left
    if not isinstance(right, int) and rng.random() < 0.5:
        inner, a, b = right
        if op == "+" and inner in "+-":
            return inner, ("+", left, a), b
        if op == "-" and inner in "+-":
            return ("-" if inner == "+" else "+"), ("-", left, a), b
        if op == "*" and inner == "*":
            return "*", ("*", left, a), b
    if op == "*" and not isinstance(left, int) and not isinstance(right, int) and left[0] == right[0] == "-":
        return "*", ("-", left[2], left[1]), ("-", right[2], right[1])
    return op, left, right


@given(trees(smallest=0), st.integers(0, 2**32))
def test_rewriting_keeps_canonical_form_and_value(tree: Tree, seed: int) -> None:
    other = rewrite(tree, random.Random(seed))
    assert evaluate(other) == evaluate(tree)
    assert canonical(other) == canonical(tree)


@given(trees("+-*/"), st.integers(0, 2**32))
def test_arranged_text_is_the_same_solution_without_needless_parentheses(tree: Tree, seed: int) -> None:
    value = evaluate(tree)
    if value is None or value <= 0:
        return
    sign, form = normal_form(tree)
    assert sign == 1
    assert form.value == value
    text = arrange(form, random.Random(seed))
    for written in (text, form.text):
        again = parse(written, 6)
        assert again is not None
        assert evaluate(again) == value
        assert canonical(again) == canonical(tree)
        assert sorted(leaves(again)) == sorted(leaves(tree))
        assert operators(again) <= {"+", "-", "*", "/"}
        assert len(written) <= len(plain(tree))


@pytest.mark.parametrize(
    ("numbers", "allowed"),
    [
        ((3, 7, 25), "+-*"),
        ((2, 2, 4), "+-*/"),
        ((3, 7, 11, 4), "+-*"),
        ((2, 2, 4, 8), "+-*/"),
        ((1, 1, 1, 1), "+-*/"),
        ((6, 3, 9, 12), "-/"),
    ],
)
def test_counts_equal_the_direct_enumeration(numbers: tuple[int, ...], allowed: str) -> None:
    direct: dict[int, int] = {}
    for tree in all_trees(numbers, allowed):
        value = evaluate(tree)
        if value is not None:
            direct[value] = direct.get(value, 0) + 1
    assert NumberSet(numbers, allowed).counts == direct


def test_number_of_expressions_is_orders_times_shapes_times_operators() -> None:
    assert NumberSet((3, 7, 25), "+-*").total == 6 * 2 * 9
    assert NumberSet((3, 7, 25, 50), "+-*").total == 24 * 5 * 27
    assert NumberSet((3, 7, 25, 50, 9), "+-*").total == 120 * 14 * 81


def test_division_by_zero_and_uneven_division_are_left_out_of_the_count() -> None:
    # Over 2 and 3: a/b is never even. Over 2 and 4: only 4/2 is.
    assert NumberSet((2, 3), "/").counts == {}
    assert NumberSet((2, 3), "/").chance(1) == 0.0
    assert NumberSet((2, 4), "/").counts == {2: 1}
    assert NumberSet((2, 4), "+/").chance(2) == 1 / 3


@pytest.mark.parametrize(
    ("numbers", "allowed"),
    [((3, 7, 11, 4), "+-*"), ((2, 2, 4, 8), "+-*/"), ((5, 5, 5, 5), "+-*/"), ((3, 3, 7, 20), "+-")],
)
def test_solutions_are_exactly_the_canonical_forms_of_the_direct_enumeration(
    numbers: tuple[int, ...], allowed: str
) -> None:
    direct: dict[int, set[str]] = {}
    for tree in all_trees(numbers, allowed):
        value = evaluate(tree)
        if value is not None and value > 0:
            direct.setdefault(value, set()).add(canonical(tree))
    known = NumberSet(numbers, allowed)
    assert len(direct) > 5
    for value, forms in direct.items():
        found = [form.text for form in known.solutions(value)]
        assert found == sorted(forms)
    assert known.solutions(max(direct) + 1) == ()


def test_zero_over_a_sum_is_among_the_solutions() -> None:
    tree = parse("9+(2-2)/(4+8)", 5)
    assert tree is not None
    assert canonical(tree) in [form.text for form in NumberSet((2, 2, 4, 8, 9), "+-/").solutions(9)]
