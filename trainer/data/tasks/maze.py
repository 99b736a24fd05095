"""Maze: a grid with walls `#`, start `s`, goal `g`, one line per row and a final `:` → moves such as `uurd`.

Right: every move stays on free cells, the goal is reached with the last move and not before, and there are at
most ``limit`` moves (the shortest possible number plus the slack). Several answers are right in most mazes.
Chance policy: a walk that takes each legal move with equal probability until it reaches the goal or has used
up ``limit`` moves.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pydantic import Field, field_validator

from trainer.core.errors import ConfigError
from trainer.core.types import Prompt, Verdict
from trainer.data.task import WRONG, Task, TaskParams

Cell = tuple[int, int]
"""(row, column), from the top left."""

MOVES: Mapping[str, Cell] = {"u": (-1, 0), "d": (1, 0), "l": (0, -1), "r": (0, 1)}
_DRAWS_BEFORE_GIVING_UP = 3_000


class MazeParams(TaskParams):
    """Settings of the maze task."""

    size: int = Field(default=5, ge=3, le=12, title="Side", description="Rows and columns of the grid.")
    walls: float = Field(
        default=0.25, ge=0, le=0.6, title="Share of walls", description="Probability that a cell is a wall."
    )
    min_moves: int = Field(
        default=4, ge=1, le=30, title="Shortest way", description="Moves between start and goal, at least."
    )
    slack: int = Field(default=2, ge=0, le=8, title="Slack", description="Moves allowed beyond the shortest way; even.")

    @field_validator("slack")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"ways between the same cells differ by an even number of moves, found {value}")
        return value


class Maze(Task):
    """Find a way. The answer class is the cell where the moves end, the canonical form the way with its loops
    cut out."""

    name = "maze"
    title = "Maze"
    description = "Write the moves that lead from the start to the goal of a small grid."
    checker_version = "1"
    Params = MazeParams

    def __init__(self, params: TaskParams | None = None) -> None:
        super().__init__(params)
        assert isinstance(self._params, MazeParams)
        self.params = self._params

    @property
    def max_prompt_chars(self) -> int:
        return self.params.size * (self.params.size + 1)

    @property
    def max_completion_chars(self) -> int:
        return self.params.size**2 - 1 + self.params.slack

    def generate(self, rng: random.Random) -> Prompt:
        """Walls, start and goal uniform, redrawn until the goal is reachable and at least ``min_moves``
        away."""
        p = self.params
        cells = [(r, c) for r in range(p.size) for c in range(p.size)]
        for _ in range(_DRAWS_BEFORE_GIVING_UP):
            grid = [["#" if rng.random() < p.walls else "." for _ in range(p.size)] for _ in range(p.size)]
            (sr, sc), (gr, gc) = rng.sample(cells, 2)
            grid[sr][sc], grid[gr][gc] = "s", "g"
            rows = ["".join(row) for row in grid]
            shortest = _distances(rows, (gr, gc)).get((sr, sc))
            if shortest is not None and shortest >= p.min_moves:
                return self._prompt(rows, shortest + p.slack)
        raise ConfigError(
            f"no maze of side {p.size} with a shortest way of at least {p.min_moves} moves found in "
            f"{_DRAWS_BEFORE_GIVING_UP} draws: lower min_moves or walls, or raise size"
        )

    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """Admissible: at most ``limit`` legal moves, none of them after the goal; an empty string is not."""
        rows, limit = prompt.meta["rows"], prompt.meta["limit"]
        moves = completion.strip(" \n")
        if not 0 < len(moves) <= limit or not set(moves) <= set(MOVES):
            return WRONG
        goal = _find(rows, "g")
        way = [_find(rows, "s")]
        for move in moves:
            cell = _step(way[-1], move)
            if way[-1] == goal or not _free(rows, cell):
                return WRONG
            way.append(cell)
        answer = _key(way[-1])
        return Verdict(float(answer == prompt.answer), answer, _without_loops(way, moves))

    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """One of the shortest ways, each with equal probability."""
        rows = prompt.meta["rows"]
        cell, goal = _find(rows, "s"), _find(rows, "g")
        distance = _distances(rows, goal)
        ways = {goal: 1}
        for c in sorted(distance, key=distance.__getitem__)[1:]:
            ways[c] = sum(ways[n] for n in _neighbours(rows, c) if distance[n] < distance[c])
        moves = ""
        while cell != goal:
            nearer = [m for m in MOVES if distance.get(_step(cell, m), distance[cell]) < distance[cell]]
            moves += rng.choices(nearer, [ways[_step(cell, m)] for m in nearer])[0]
            cell = _step(cell, moves[-1])
        return moves

    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """Walls set or removed where no right way can pass, in about half of such cells; the right answers
        stay the same.

        A maze without such cells comes back unchanged. The uid differs where the grid does.
        """
        rows, limit = [list(row) for row in prompt.meta["rows"]], prompt.meta["limit"]
        start, goal = _find(rows, "s"), _find(rows, "g")
        cells = [(r, c) for r in range(len(rows)) for c in range(len(rows)) if rows[r][c] in ".#"]
        for r, c in rng.sample(cells, len(cells)):
            before = rows[r][c]
            rows[r][c] = "."
            from_start, to_goal = _distances(rows, start).get((r, c)), _distances(rows, goal).get((r, c))
            useful = from_start is not None and to_goal is not None and from_start + to_goal <= limit
            rows[r][c] = before if useful else rng.choice(".#")
        return self._prompt(["".join(row) for row in rows], limit)

    def _prompt(self, rows: list[str], limit: int) -> Prompt:
        return self.make_prompt(
            identity=rows,
            text="\n".join(rows) + ":",
            answer=_key(_find(rows, "g")),
            meta={"rows": rows, "limit": limit, "chance": walk_chance(rows, limit)},
        )


def walk_chance(rows: Sequence[Sequence[str]], limit: int) -> float:
    """The probability that the uniform legal walk from the start is at the goal within ``limit`` moves."""
    goal = _find(rows, "g")
    place = {_find(rows, "s"): 1.0}
    arrived = 0.0
    for _ in range(limit):
        following: dict[Cell, float] = {}
        for cell, probability in place.items():
            near = _neighbours(rows, cell)
            for n in near:
                following[n] = following.get(n, 0.0) + probability / len(near)
        arrived += following.pop(goal, 0.0)
        place = following
    return arrived


def _key(cell: Cell) -> str:
    return f"{cell[0]},{cell[1]}"


def _find(rows: Sequence[Sequence[str]], mark: str) -> Cell:
    return next((r, c) for r, row in enumerate(rows) for c, found in enumerate(row) if found == mark)


def _step(cell: Cell, move: str) -> Cell:
    return cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]


def _free(rows: Sequence[Sequence[str]], cell: Cell) -> bool:
    return 0 <= cell[0] < len(rows) and 0 <= cell[1] < len(rows[0]) and rows[cell[0]][cell[1]] != "#"


def _neighbours(rows: Sequence[Sequence[str]], cell: Cell) -> list[Cell]:
    return [n for n in (_step(cell, m) for m in MOVES) if _free(rows, n)]


def _distances(rows: Sequence[Sequence[str]], origin: Cell) -> dict[Cell, int]:
    """The number of moves from ``origin`` to each cell that can be reached, nearest first."""
    distance = {origin: 0}
    queue = [origin]
    for cell in queue:
        for n in _neighbours(rows, cell):
            if n not in distance:
                distance[n] = distance[cell] + 1
                queue.append(n)
    return distance


def _without_loops(way: list[Cell], moves: str) -> str:
    """The moves of ``way`` (one cell more than moves) after cutting out every return to a cell, oldest
    first."""
    kept: list[str] = []
    visited = [way[0]]
    for cell, move in zip(way[1:], moves, strict=True):
        if cell in visited:
            place = visited.index(cell)
            del visited[place + 1 :], kept[place:]
        else:
            visited.append(cell)
            kept.append(move)
    return "".join(kept)
