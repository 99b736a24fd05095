"""Who may open what: one row for each route and method. A route without a row fails `test_table.py`.

To add one, name the route, say how its arguments are made from the cast (objects are made there too), and which of the
columns below holds:

    Row("runs:detail", PROJECT_VIEW, args=lambda cast: (*cast.project.url_args, make_run(cast.project).number)),
    Row("runs:cancel", PROJECT_LAUNCH.after(302), method="post", args=...),
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from tests.conftest import EVERYONE, Cast
from tests.webapp.datasets.making import bare_version, make_upload
from tests.webapp.making import make_run
from trainer.studies import load_study
from webapp.checkpoints.importing import add_imported
from webapp.checkpoints.manifests import manifest_text
from webapp.checkpoints.uploading import start
from webapp.runs.services import NewEvent, add_events
from webapp.runs.storage import write
from webapp.studies.models import Study
from webapp.teams.secret_services import set_secret

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


def of_viewer(cast: Cast) -> tuple[Any, ...]:
    return (cast.team.slug, cast.team.memberships.get(user=cast["viewer"]).pk)


def of_secret(cast: Cast) -> tuple[Any, ...]:
    return (cast.team.slug, set_secret(team=cast.team, name="HF_TOKEN", value="a long value", user=None).name)


def of_run(cast: Cast) -> tuple[Any, ...]:
    return (*cast.project.url_args, make_run(cast.project).pk)


def of_run_with_figure(cast: Cast) -> tuple[Any, ...]:
    run = make_run(cast.project)
    note = NewEvent(kind="text", key="note", iteration=1, payload={"text": "Hello"}, time=timezone.now())
    add_events(run_id=run.pk, attempt=1, rows=[note], seq=2)
    return (*cast.project.url_args, run.pk)


def of_upload(cast: Cast) -> tuple[Any, ...]:
    return (*cast.project.url_args, make_upload(cast.project, [{"prompt": "1"}]).pk)


def of_dataset(cast: Cast) -> tuple[Any, ...]:
    return (*cast.project.url_args, bare_version(cast.project).dataset_id)


def of_version(cast: Cast) -> tuple[Any, ...]:
    return (*cast.project.url_args, bare_version(cast.project).pk)


def of_checkpoint(cast: Cast) -> tuple[Any, ...]:
    uri = f"checkpoints/{cast.project.pk}/one"
    write(f"{uri}/config.json", b"{}")
    digest = hashlib.sha256(b"{}").hexdigest()
    write(f"{uri}/manifest.json", manifest_text({"config.json": {"size": 2, "sha256": digest}}))
    made = add_imported(project=cast.project, uri=uri, name="one", weights_hash="h", size=2, details={})
    return (*cast.project.url_args, made.pk)


def of_model_upload(cast: Cast) -> tuple[Any, ...]:
    made = start(project=cast.project, user=cast["outsider"], name="m", files={"m.gguf": {"size": 4}})
    return (*cast.project.url_args, made.pk)


def of_checkpoint_file(cast: Cast) -> tuple[Any, ...]:
    return (*of_checkpoint(cast), "config.json")


def of_study(cast: Cast) -> tuple[Any, ...]:
    study = Study.objects.create(
        project=cast.project, slug="sps", title="SPS", form="quick", document=load_study("sps").model_dump(mode="json")
    )
    return (*cast.project.url_args, study.pk)


QUICK_STUDY = {"study": "sps", "form": "quick"}


@dataclass(frozen=True)
class Row:
    """One request. `args` are the route's arguments, `data` the form or body of a POST (or the query of a GET)."""

    route: str
    column: Column
    args: Callable[[Cast], tuple[Any, ...]] = nothing
    method: str = "get"
    data: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    """Content type of a body that is no form."""

    def __str__(self) -> str:
        return f"{self.method} {self.route}"


TABLE: tuple[Row, ...] = (
    Row("core:healthz", PUBLIC),
    # Whoever is signed in already is sent on from the sign-in page.
    Row("accounts:sign-in", _column(302, 302, 302, 302, 302, 200)),
    Row("accounts:sign-out", SIGNED_IN.after(302), method="post"),
    Row("accounts:choose-password", SIGNED_IN),
    Row("teams:detail", PROJECT_VIEW, args=in_team),
    Row("teams:members", PROJECT_MANAGE, args=in_team),
    # Without an address the form comes back.
    Row("teams:members", PROJECT_MANAGE.after(422), args=in_team, method="post"),
    Row("teams:change-member", PROJECT_MANAGE.after(302), args=of_viewer, method="post", data={"role": "member"}),
    Row("teams:remove-member", PROJECT_MANAGE.after(302), args=of_viewer, method="post"),
    Row("teams:secrets", PROJECT_MANAGE, args=in_team),
    Row(
        "teams:secrets",
        PROJECT_MANAGE.after(302),
        args=in_team,
        method="post",
        data={"name": "HF_TOKEN", "value": "a long value"},
    ),
    Row("teams:delete-secret", PROJECT_MANAGE.after(302), args=of_secret, method="post"),
    Row("projects:index", SIGNED_IN.after(302)),
    Row("projects:home", PROJECT_VIEW, args=in_project),
    Row("projects:new", PROJECT_MANAGE, args=in_team),
    Row("projects:new", PROJECT_MANAGE.after(302), args=in_team, method="post", data={"name": "New", "slug": "new"}),
    Row("checkpoints:index", PROJECT_VIEW, args=in_project),
    Row("checkpoints:detail", PROJECT_VIEW, args=of_checkpoint),
    Row("checkpoints:download", PROJECT_VIEW, args=of_checkpoint),
    Row("checkpoints:file", PROJECT_VIEW, args=of_checkpoint_file),
    Row("checkpoints:verify", PROJECT_EDIT.after(302), args=of_checkpoint, method="post"),
    Row("checkpoints:pin", PROJECT_EDIT.after(302), args=of_checkpoint, method="post", data={"pinned": "1"}),
    Row("checkpoints:delete", PROJECT_EDIT.after(302), args=of_checkpoint, method="post"),
    Row("checkpoints:upload", PROJECT_EDIT, args=in_project),
    # An empty announcement, and uploads that are another person's.
    Row("checkpoints:upload-begin", PROJECT_EDIT.after(422), args=in_project, method="post"),
    Row("checkpoints:upload-piece", PROJECT_EDIT.after(404), args=of_model_upload, method="post"),
    Row("checkpoints:upload-complete", PROJECT_EDIT.after(404), args=of_model_upload, method="post"),
    Row("checkpoints:upload-discard", PROJECT_EDIT.after(404), args=of_model_upload, method="post"),
    Row("files:orphans", PROJECT_MANAGE, args=in_project),
    Row("files:orphans", PROJECT_MANAGE.after(302), args=in_project, method="post"),
    Row("checkpoints:retention", PROJECT_MANAGE, args=in_project),
    # Without values the form comes back.
    Row("checkpoints:retention", PROJECT_MANAGE, args=in_project, method="post", data={"keep": "0"}),
    Row("launch:new", PROJECT_LAUNCH, args=in_project),
    # Without values the form comes back with what is wrong.
    Row("launch:new", PROJECT_LAUNCH, args=in_project, method="post"),
    Row("launch:parts", PROJECT_LAUNCH, args=in_project, method="post"),
    Row("launch:preview", PROJECT_LAUNCH, args=in_project, method="post"),
    Row("launch:document", PROJECT_LAUNCH, args=in_project, method="post"),
    Row("launch:fill", PROJECT_LAUNCH, args=in_project, method="post", data={"document": "{}"}),
    Row("launch:queue", PROJECT_VIEW, args=in_project),
    Row("datasets:index", PROJECT_VIEW, args=in_project),
    Row("datasets:new", PROJECT_EDIT, args=in_project),
    # Without a file the form comes back.
    Row("datasets:new", PROJECT_EDIT.after(422), args=in_project, method="post"),
    # Empty announcements, and uploads that are another person's.
    Row("datasets:begin", PROJECT_EDIT.after(422), args=in_project, method="post"),
    Row("datasets:begin-version", PROJECT_EDIT.after(422), args=of_dataset, method="post"),
    Row("datasets:piece", PROJECT_EDIT.after(404), args=of_upload, method="post", kind="application/octet-stream"),
    Row("datasets:complete", PROJECT_EDIT.after(404), args=of_upload, method="post"),
    Row("datasets:detail", PROJECT_VIEW, args=of_dataset),
    Row("datasets:new-version", PROJECT_EDIT, args=of_dataset),
    Row("datasets:new-version", PROJECT_EDIT.after(422), args=of_dataset, method="post"),
    Row("datasets:archive", PROJECT_EDIT.after(302), args=of_dataset, method="post"),
    Row("datasets:delete", PROJECT_EDIT.after(302), args=of_dataset, method="post"),
    Row("datasets:version", PROJECT_VIEW, args=of_version),
    Row("datasets:rows", PROJECT_VIEW, args=of_version),
    Row("datasets:download", PROJECT_VIEW, args=of_version),
    Row("datasets:delete-version", PROJECT_EDIT.after(302), args=of_version, method="post"),
    Row("datasets:import", PROJECT_VIEW, args=of_upload),
    Row("datasets:mapping", PROJECT_EDIT, args=of_upload),
    # Without values the page comes back with what is wrong.
    Row("datasets:mapping", PROJECT_EDIT, args=of_upload, method="post"),
    Row("datasets:preview", PROJECT_EDIT, args=of_upload, method="post"),
    Row("datasets:again", PROJECT_EDIT.after(302), args=of_upload, method="post"),
    Row("datasets:discard", PROJECT_EDIT.after(302), args=of_upload, method="post"),
    Row("methods:index", PROJECT_VIEW, args=in_project),
    Row("methods:method", PROJECT_VIEW, args=lambda cast: (*cast.project.url_args, "sps")),
    Row("methods:figure", PROJECT_VIEW, args=lambda cast: (*cast.project.url_args, "sps", "frontier")),
    Row("studies:index", PROJECT_VIEW, args=in_project),
    Row("studies:launch", PROJECT_LAUNCH.after(302), args=in_project, method="post", data=QUICK_STUDY),
    Row("studies:detail", PROJECT_VIEW, args=of_study),
    Row("studies:grid", PROJECT_VIEW, args=of_study),
    Row("studies:stop", PROJECT_LAUNCH.after(302), args=of_study, method="post"),
    Row("studies:figure", PROJECT_VIEW, args=lambda cast: (*of_study(cast), "frontier")),
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
    Row("runpage:auto-resume", PROJECT_LAUNCH.after(302), args=of_run, method="post", data={"limit": "0"}),
)
