"""Maze: legal moves, several right answers, the chance walk."""

from __future__ import annotations

import itertools
import random

import pytest
from pydantic import ValidationError

from trainer.core.errors import ConfigError
from trainer.core.types import Message, Prompt
from trainer.data.tasks.maze import Maze, MazeParams, walk_chance

OPEN = ["s..", ".#.", "..g"]


def problem(rows: list[str], limit: int, goal: str = "2,2") -> Prompt:
    return Prompt("0" * 16, (Message("user", "\n".join(rows) + ":"),), goal, "maze", {"rows": rows, "limit": limit})


@pytest.mark.parametrize(
    ("moves", "reward", "answer", "canonical"),
    [
        ("rrdd", 1.0, "2,2", "rrdd"),
        ("ddrr", 1.0, "2,2", "ddrr"),
        ("rlrrdd", 1.0, "2,2", "rrdd"),
        ("rrdudd", 1.0, "2,2", "rrdd"),
        ("rr", 0.0, "0,2", "rr"),
        ("rl", 0.0, "0,0", ""),
        ("rd", 0.0, None, None),  # into the wall
        ("u", 0.0, None, None),  # off the grid
        ("rrddl", 0.0, None, None),  # beyond the goal
        ("rlrlrrdd", 0.0, None, None),  # more than six moves
        ("", 0.0, None, None),
        ("RRDD", 0.0, None, None),
        ("rr dd", 0.0, None, None),
    ],
)
def test_verdicts_on_a_small_maze(moves: str, reward: float, answer: str | None, canonical: str | None) -> None:
    verdict = Maze().score(moves, problem(OPEN, 6))
    assert (verdict.reward, verdict.answer, verdict.canonical) == (reward, answer, canonical)


def test_chance_of_the_uniform_legal_walk_by_hand() -> None:
    # Around the ring of eight cells: the goal is four steps away either way, each step forwards with 1/2.
    assert walk_chance(OPEN, 3) == 0.0
    assert walk_chance(OPEN, 4) == 1 / 8
    assert walk_chance(["sg#", "###", "###"], 1) == 1.0
    assert walk_chance(["s.g", "###", "###"], 2) == 0.5
    assert walk_chance(["s.g", "###", "###"], 4) == 0.75


def test_chance_equals_the_share_of_simulated_walks() -> None:
    task = Maze()
    prompt = task.generate(random.Random(1))
    rows, limit = prompt.meta["rows"], prompt.meta["limit"]

    def walks(moves: str, probability: float) -> float:
        """Sum of the probabilities of all right move strings, by scoring each legal extension."""
        right = 0.0
        legal = [m for m in "udlr" if task.score(moves + m, problem(rows, 99, prompt.answer or "")).answer]
        for move in legal:
            text = moves + move
            if task.score(text, prompt).reward == 1.0:
                right += probability / len(legal)
            elif len(text) < limit:
                right += walks(text, probability / len(legal))
        return right

    assert prompt.meta["chance"] == pytest.approx(walks("", 1.0), rel=1e-12)


def test_most_default_mazes_have_several_right_ways() -> None:
    task = Maze()
    rng = random.Random(0)
    several = 0
    for _ in range(60):
        prompt = task.generate(rng)
        ways = {task.score(task.oracle(prompt, rng), prompt).canonical for _ in range(30)}
        several += len(ways) > 1
    assert several > 30


def test_oracle_draws_shortest_ways_evenly() -> None:
    task, rng = Maze(), random.Random(0)
    prompt = problem(["s..", "...", "..g"], 4)
    counts: dict[str, int] = {}
    for _ in range(1200):
        way = task.oracle(prompt, rng)
        assert len(way) == 4
        counts[way] = counts.get(way, 0) + 1
    assert len(counts) == 6
    assert min(counts.values()) > 140
    assert max(counts.values()) < 260


def test_perturbing_keeps_every_right_answer_right_and_every_wrong_one_wrong() -> None:
    task = Maze(MazeParams(size=4, slack=2, min_moves=2))
    changed = 0
    for seed in range(30):
        rng = random.Random(seed)
        prompt = task.generate(rng)
        other = task.perturb(prompt, rng)
        changed += other.text != prompt.text
        for length in range(1, min(prompt.meta["limit"], 6) + 1):
            for moves in map("".join, itertools.product("udlr", repeat=length)):
                assert task.score(moves, prompt).reward == task.score(moves, other).reward
    assert changed > 20


def test_start_and_goal_are_at_least_min_moves_apart() -> None:
    task = Maze(MazeParams(min_moves=6, slack=0))
    rng = random.Random(0)
    for _ in range(20):
        prompt = task.generate(rng)
        assert prompt.meta["limit"] >= 6
        assert len(task.oracle(prompt, rng)) == prompt.meta["limit"]


def test_impossible_or_odd_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="min_moves"):
        Maze(MazeParams(size=3, min_moves=20)).generate(random.Random(0))
    with pytest.raises(ValidationError, match="even"):
        MazeParams(slack=1)
