"""Every pitfall of answer checking that was measured, as a literal case: (type, gold, completion, right, decided by)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract.dataset import ANSWER_TYPES, Checking
from trainer.rewards.compare import compare, judge
from trainer.rewards.extract import boxes, extract
from trainer.rewards.prover import MathProver

OPTIONS = (("A", "a red fox"), ("B", "a cow"), ("C", "7"), ("D", "none of these"))


@pytest.fixture(scope="module")
def prover() -> Iterator[MathProver]:
    made = MathProver()
    yield made
    made.close()


CASES = [
    # Plain words: the symbolic comparer calls even equal ones different.
    ("expr", "A", "A", True, "exact"),
    ("expr", "yes", "Yes.", True, "string"),
    ("expr", "cat", "\\text{cat}", True, "exact"),
    ("expr", "cat", "dog", False, "string"),
    # Lists it cannot read, and reads by the last number only.
    ("list", "[1, 2, 3]", "[1,2,3]", True, "list"),
    ("list", "1 2 3", "9 9 3", False, "list"),
    ("expr", "1 2 3", "9 9 3", False, "shape"),
    ("list", "[1, 2, 3]", "[3, 2, 1]", False, "list"),
    ("list", "[1,2]", "{1,2}", False, "list"),
    ("list", "[\"a b\", \"c\"]", "a b, c", True, "list"),
    # Scientific notation, rounding.
    ("float", "1e3", "1000", True, "float"),
    ("float", "1/3", "0.333", False, "float"),
    ("float", "3.14159", "\\pi", False, "float"),
    ("float", "0.5", "0.50", True, "float"),
    ("float", "1,234.5", "1234.50", True, "float"),
    ("int", "12", "twelve", False, "int"),
    ("int", "1000", "1{,}000", True, "int"),
    ("int", "42", "The answer is 42.", True, "int"),
    ("int", "42", "so we get\n#### 42", False, "int"),  # no #### in this chain
    ("int", "42", "$42$", True, "int"),
    ("int", "-3", "\u22123", True, "int"),
    ("int", "33", "033", True, "int"),
    # Sets, pairs, intervals.
    ("expr", "\\{1,2\\}", "(1,2)", False, "shape"),
    ("expr", "\\{1,2\\}", "\\{2,1\\}", True, "shape"),
    ("expr", "(1,2)", "(2,1)", False, "shape"),
    ("expr", "(1,2)", "(1, 2)", True, "exact"),
    ("expr", "(1,2)", "[1,2]", False, "shape"),
    ("set", "{1,2}", "(1,2)", False, "set"),
    ("set", "{1,2}", "2, 1", True, "set"),
    # Per cent, dates, times, codes, assignments.
    ("expr", "50\\%", "50", False, "number"),
    ("float", "50%", "50", False, "float"),
    ("float", "50%", "50 %", True, "float"),
    ("expr", "08:30", "8:45", False, "string"),
    ("expr", "2024-01-02", "2024-01-03", False, "string"),
    ("string", "2024-01-02", "2024-01-02", True, "string"),
    ("expr", "0011", "11", False, "string"),
    ("string", "0011", "11", False, "string"),
    ("list", "0011, 1", "11, 1", False, "list"),
    ("expr", "a=1, b=2", "2", False, "shape"),
    ("expr", "3", "x = 3", True, "number"),
    # Unevaluated expressions.
    ("int", "3", "1+2", False, "int"),
    ("int", "91", "7\\times13", False, "int"),
    ("int", "24", "(3+5)*3", False, "int"),
    ("expr", "24", "(3+5)*3", False, "number"),
    ("int", "13", "91/7", False, "int"),
    # Hedges.
    ("expr", "5", "5 or 6", False, "hedge"),
    ("int", "5", "5 or 6", False, "int"),
    ("int", "5", "maybe 6", False, "int"),
    ("int", "5", "\\boxed{5} \\boxed{6}", False, "hedge"),
    ("int", "6", "first \\boxed{5}\nso \\boxed{6}", True, "int"),
    # Options.
    ("choice", "A", "(A)", True, "choice"),
    ("choice", "A", "answer: a", True, "choice"),
    ("choice", "A", "I choose C because A is wrong", False, "choice"),
    ("choice", "C", "I choose C because A is wrong", True, "choice"),
    ("choice", "B", "B. a cow", True, "choice"),
    ("choice", "B", "a cow", True, "choice"),
    ("choice", "C", "\\boxed{\\text{(C)}}", True, "choice"),
    ("choice", "A", "A cow", False, "choice"),
    ("choice", "A", "A or B", False, "choice"),
    # What is thought aloud is no answer.
    ("int", "5", "<think>5</think>6", False, "int"),
    ("int", "5", "<think>it is 5", False, "none"),
    ("int", "5", "<answer>4</answer> no: <answer>5</answer>", True, "int"),
    ("int", "5", "", False, "none"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "gold", "completion", "right", "by"), CASES)
def test_literal_readings(kind: str, gold: str, completion: str, right: bool, by: str) -> None:
    checking = Checking(options=OPTIONS if kind == "choice" else ())
    decision = judge(completion, gold, kind, checking)
    assert (decision.right, decision.by) == (right, by)


MATHS = [
    ("\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt{3}}", True),
    ("x^2+2x+1", "(x+1)^2", True),
    ("2\\sqrt{3}", "\\sqrt{12}", True),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{bmatrix}1\\\\2\\end{bmatrix}", True),
    ("x^2", "x^3", False),
]


@pytest.mark.parametrize(("gold", "answer", "right"), MATHS)
def test_expressions_are_proved_and_say_so(gold: str, answer: str, right: bool, prover: MathProver) -> None:
    decision = judge(f"\\boxed{{{answer}}}", gold, "expr", Checking(), prover)
    assert (decision.right, decision.by) == (right, "math-verify")


def test_unevaluated_expressions_count_only_where_that_is_asked_for(prover: MathProver) -> None:
    lenient = Checking(literal=False)
    assert compare("24", "(3+5)*3", "expr", lenient, prover).right is True
    assert compare("24", "(3+5)*3", "expr", Checking(), prover).right is False


def test_the_prover_works_in_a_thread_and_ends_what_takes_too_long() -> None:
    quick = MathProver(seconds=1.0)
    found: list[bool | str] = []
    hostile = "9^{9^{9^{9^{9^{9}}}}}"

    def ask() -> None:
        found.append(quick("\\frac{1}{2}", "\\frac{2}{4}"))
        found.append(quick(hostile + "+x", "x+" + hostile + "+1"))
        found.append(quick("x+1", "1+x"))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    quick.close()
    assert found[0] is True
    assert found[1] is not True
    assert found[2] is True


def test_tolerances_and_any_of_a_list() -> None:
    assert compare("3.1416", "3.14", "float", Checking(abs_tol=0.01)).right is True
    assert compare("1000", "1009", "float", Checking(rel_tol=0.01)).right is True
    some = Checking(any_of=True)
    assert compare('["Paris", "the city of Paris"]', "the city of paris", "string", some).right is True
    assert compare('["Paris"]', "Rome", "string", some).right is False
    assert compare('["Paris"]', '["Paris"]', "string", some).right is True


def test_gold_answers_that_are_no_such_type_fail_against_themselves() -> None:
    assert compare("about 5", "about 5", "int", Checking()).why == "the gold answer is no whole number"
    assert compare("5.5", "5.5", "int", Checking()).right is False
    assert compare("E", "E", "choice", Checking(options=OPTIONS)).right is False
    assert compare("", "", "string", Checking()).right is False
    assert compare("3", "3", "program", Checking()).right is None


def test_boxes_have_balanced_braces() -> None:
    assert [content for _, content in boxes(r"a \boxed{\frac{1}{2}} b \boxed{x^{2}} \boxed{cut")] == [
        r"\frac{1}{2}",
        "x^{2}",
    ]
    assert extract(r"\boxed 7", ("boxed",)).text == "7"  # type: ignore[union-attr]


@given(text=st.text(), gold=st.text(max_size=30), kind=st.sampled_from(ANSWER_TYPES))
def test_no_text_raises(text: str, gold: str, kind: str) -> None:
    assert judge(text, gold, kind, Checking(options=OPTIONS)).right in (True, False, None)
    assert compare(gold, text, kind, Checking(), lambda a, b: "undecided").by
