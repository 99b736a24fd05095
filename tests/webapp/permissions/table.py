"""Who may open what: one row for each route and method. A route without a row fails `test_table.py`.

To add one, name the route, say how its arguments are made from the cast (objects are made there too), and which of the
columns below holds:

    Row("runs:detail", PROJECT_VIEW, args=lambda cast: (*cast.project.url_args, make_run(cast.project).number)),
    Row("runs:cancel", PROJECT_LAUNCH.after(302), method="post", args=...),
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from tests.conftest import EVERYONE, Cast
from tests.webapp.making import make_run
from webapp.runs.services import NewEvent, add_events

SIGN_IN = 302  # anonymous people are sent to the sign-in page


@dataclass(frozen=True)
class Column:
    """The status that each of the cast gets. `after(status)` replaces the status of those who may, e.g. 302 after a
    POST.
    """

    statuses: Mapping[str, int]

    def __post_init__(self) -> None:
        assert set(self.statuses) == set(EVERYONE)

    def after(self, status: int) -> Column:
        return Column({name: status if found == 200 else found for name, found in self.statuses.items()})


def _column(owner: int, admin: int, member: int, viewer: int, outsider: int, anonymous: int) -> Column:
    return Column(dict(zip(EVERYONE, (owner, admin, member, viewer, outsider, anonymous), strict=True)))


PUBLIC = _column(200, 200, 200, 200, 200, 200)
SIGNED_IN = _column(200, 200, 200, 200, 200, SIGN_IN)
PROJECT_VIEW = _column(200, 200, 200, 200, 404, SIGN_IN)
PROJECT_LAUNCH = _column(200, 200, 200, 403, 404, SIGN_IN)
PROJECT_EDIT = PROJECT_LAUNCH
PROJECT_MANAGE = _column(200, 200, 403, 403, 404, SIGN_IN)


def nothing(cast: Cast) -> tuple[Any, ...]:
    return ()


def in_project(cast: Cast) -> tuple[Any, ...]:
    return cast.project.url_args


def in_team(cast: Cast) -> tuple[Any, ...]:
    return (cast.team.slug,)


def of_run(cast: Cast) -> tuple[Any, ...]:
    return (*cast.project.url_args, make_run(cast.project).pk)


def of_run_with_figure(cast: Cast) -> tuple[Any, ...]:
    run = make_run(cast.project)
    note = NewEvent(kind="text", key="note", iteration=1, payload={"text": "Hello"}, time=timezone.now())
    add_events(run_id=run.pk, attempt=1, rows=[note], seq=2)
    return (*cast.project.url_args, run.pk)


@dataclass(frozen=True)
class Row:
    """One request. `args` are the route's arguments, `data` the form of a POST (or the query of a GET)."""

    route: str
    column: Column
    args: Callable[[Cast], tuple[Any, ...]] = nothing
    method: str = "get"
    data: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.route}"


TABLE: tuple[Row, ...] = (
    Row("core:healthz", PUBLIC),
    # Whoever is signed in already is sent on from the sign-in page.
    Row("accounts:sign-in", _column(302, 302, 302, 302, 302, 200)),
    Row("accounts:sign-out", SIGNED_IN.after(302), method="post"),
    Row("accounts:choose-password", SIGNED_IN),
    Row("teams:detail", PROJECT_VIEW, args=in_team),
    Row("projects:index", SIGNED_IN.after(302)),
    Row("projects:home", PROJECT_VIEW, args=in_project),
    Row("projects:new", PROJECT_MANAGE, args=in_team),
    Row("projects:new", PROJECT_MANAGE.after(302), args=in_team, method="post", data={"name": "New", "slug": "new"}),
    Row("launch:new", PROJECT_LAUNCH, args=in_project),
    # Without values the form comes back with what is wrong.
    Row("launch:new", PROJECT_LAUNCH, args=in_project, method="post"),
    Row("launch:parts", PROJECT_LAUNCH, args=in_project, method="post"),
    Row("launch:preview", PROJECT_LAUNCH, args=in_project, method="post"),
    Row("launch:document", PROJECT_LAUNCH, args=in_project, method="post"),
    Row("launch:fill", PROJECT_LAUNCH, args=in_project, method="post", data={"document": "{}"}),
    Row("runlist:index", PROJECT_VIEW, args=in_project),
    Row("compare:index", PROJECT_VIEW, args=in_project),
    Row("compare:passk", PROJECT_VIEW, args=in_project),
    Row("compare:metric", PROJECT_VIEW, args=in_project, data={"key": "reward"}),
    Row("live:stream", PROJECT_VIEW, args=of_run),
    Row("runpage:overview", PROJECT_VIEW, args=of_run),
    Row("runpage:squeezing", PROJECT_VIEW, args=of_run),
    Row("runpage:rollouts", PROJECT_VIEW, args=of_run),
    Row("runpage:evaluations", PROJECT_VIEW, args=of_run),
    Row("runpage:config", PROJECT_VIEW, args=of_run),
    Row("runpage:config-file", PROJECT_VIEW, args=of_run),
    Row("runpage:part", PROJECT_VIEW, args=lambda cast: (*of_run(cast), "head")),
    Row("runpage:chart", PROJECT_VIEW, args=lambda cast: (*of_run(cast), "reward")),
    Row("runpage:metric", PROJECT_VIEW, args=of_run, data={"key": "reward"}),
    Row("runpage:metrics-csv", PROJECT_VIEW, args=of_run),
    Row("runpage:behind", PROJECT_VIEW, args=of_run),
    Row("runpage:figure", PROJECT_VIEW, args=of_run_with_figure, data={"kind": "text", "key": "note"}),
    Row("runpage:stop", PROJECT_LAUNCH.after(302), args=of_run, method="post"),
    Row("runpage:resume", PROJECT_LAUNCH.after(302), args=of_run, method="post"),
)
