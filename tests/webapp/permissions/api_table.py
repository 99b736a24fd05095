"""The same for the API: who may call what. Foreign objects are 404, and without signing in everything is 401."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conftest import Cast
from tests.webapp.making import document, evaluation, make_run
from tests.webapp.permissions.table import (
    PUBLIC,
    Column,
    Row,
    _column,
    in_project,
    in_team,
    nothing,
    of_checkpoint,
    of_checkpoint_file,
    of_dataset,
    of_run,
    of_secret,
    of_study,
    of_upload,
    of_version,
)
from webapp.runs.models import Run

JSON = "application/json"
VIEW = _column(200, 200, 200, 200, 404, 401)
LAUNCH = _column(200, 200, 200, 403, 404, 401)
MANAGE = _column(200, 200, 403, 403, 404, 401)
ANYONE = _column(200, 200, 200, 200, 200, 401)
PERSON = _column(200, 200, 200, 200, 200, 302)


def _of_attempt(cast: Cast) -> tuple[Any, ...]:
    return (*of_run(cast), 1)


def _of_evaluation(cast: Cast) -> tuple[Any, ...]:
    run = make_run(cast.project)
    return (*cast.project.url_args, run.pk, evaluation(run, 0, [(4, 2)]).pk)


def _of_evaluated(cast: Cast) -> tuple[Any, ...]:
    return _of_evaluation(cast)[:3]


def _of_group(cast: Cast) -> tuple[Any, ...]:
    """A group whose file is not there: 404 for everyone, but with another code than for outsiders."""
    from webapp.rollouts.services import store_part

    run = make_run(cast.project)
    group = {"uid": "p", "text": "?", "answer": None, "n": 1, "c": 1, "first_row": 0, "mean_reward": 1.0}
    event = {"axes": {"iteration": 1}, "uri": "rollouts/1.parquet", "rows": 1, "groups": [group]}
    store_part(run_id=run.pk, attempt=1, event=event, seq=2)
    return (*cast.project.url_args, run.pk, Run.objects.get(pk=run.pk).rollout_parts.get().groups.get().pk)


def _of_resumable(cast: Cast) -> tuple[Any, ...]:
    from webapp.launch.services import cancel_run

    run = make_run(cast.project)
    cancel_run(run, None)
    return (*cast.project.url_args, run.pk)


def _of_member(cast: Cast) -> tuple[Any, ...]:
    return (cast.team.slug, cast.team.memberships.get(user=cast["viewer"]).pk)


def _of_model_upload(cast: Cast) -> tuple[Any, ...]:
    from webapp.checkpoints.uploading import start

    files = {"config.json": {"size": 2, "sha256": "0" * 64}, "model.safetensors": {"size": 2, "sha256": "0" * 64}}
    return (*cast.project.url_args, start(project=cast.project, user=None, name="m", files=files).pk)


def _of_model_file(cast: Cast) -> tuple[Any, ...]:
    return (*_of_model_upload(cast), "config.json")


def _get(route: str, args: Callable[[Cast], tuple[Any, ...]], column: Column = VIEW, **data: Any) -> Row:
    return Row(f"api:{route}", column, args=args, data=data)


def _post(
    route: str, args: Callable[[Cast], tuple[Any, ...]], column: Column, body: Any = None, *, method: str = "post"
) -> Row:
    return Row(f"api:{route}", column, args=args, method=method, data={} if body is None else body, kind=JSON)


RULE = {"keep": 2, "keep_best": 1, "best_metric": "eval/accuracy", "automatic": False}

API_TABLE: tuple[Row, ...] = (
    Row("api:tokens", PERSON),
    Row("api:tokens", PERSON, method="post"),
    Row("api:revoke-token", PERSON.after(404), args=lambda cast: ("nosuchtoken",), method="post"),
    Row("api:docs", PERSON),
    Row("api:nothing", PUBLIC.after(404)),
    _get("whoami", nothing, ANYONE),
    _get("token-list", nothing, ANYONE),
    _post("token", lambda cast: ("nosuchtoken",), ANYONE.after(404), method="delete"),
    _get("teams", nothing, ANYONE),
    _get("team", in_team),
    _get("members", in_team),
    _post("members", in_team, MANAGE.after(201), {"email": "new@example.org", "role": "viewer"}),
    _post("member", _of_member, MANAGE, {"role": "member"}, method="patch"),
    _post("member", _of_member, MANAGE.after(204), method="delete"),
    _get("secrets", in_team, MANAGE),
    _get("secret", of_secret, MANAGE),
    _post("secret", of_secret, MANAGE, {"value": "another long value"}, method="put"),
    _post("secret", of_secret, MANAGE.after(204), method="delete"),
    _post("team-projects", in_team, MANAGE.after(201), {"name": "New", "slug": "new"}),
    _get("projects", nothing, ANYONE),
    _get("project", in_project),
    _get("runs", in_project),
    _post("runs", in_project, LAUNCH.after(201), {"config": document()}),
    _post("validate", in_project, LAUNCH, {"config": document()}),
    _get("run", of_run),
    _post("run", of_run, LAUNCH, {"notes": "Why."}, method="patch"),
    _post("run-stop", of_run, LAUNCH),
    _post("run-resume", _of_resumable, LAUNCH),
    _post("run-copies", of_run, LAUNCH.after(422)),  # the configuration of the cast's run is no whole one
    _get("attempts", of_run),
    _get("transitions", of_run),
    _get("log", of_run),
    _get("changes", of_run),
    _get("stream", of_run),
    _get("series", of_run),
    _get("points", of_run, key="reward"),
    _get("metrics-csv", of_run),
    _get("evaluations", of_run),
    _get("evaluation", _of_evaluation),
    _get("passk", _of_evaluated),
    _get("rollouts", of_run),
    _get("rollout-groups", of_run),
    _get("rollout-group", _of_group, VIEW.after(404)),
    _post("claim", of_run, LAUNCH.after(201), {"worker": "elsewhere"}),
    # Without the header X-Claim, which only who claimed the attempt has.
    _post("heartbeat", _of_attempt, LAUNCH.after(400)),
    Row("api:events", LAUNCH.after(400), args=_of_attempt, method="post", data=b"", kind="application/x-ndjson"),  # type: ignore[arg-type]
    _post("end", _of_attempt, LAUNCH.after(400), {"state": "finished"}),
    _get("checkpoints", in_project),
    _post("checkpoints", in_project, LAUNCH.after(400), {"path": "/etc"}),  # no folder is offered
    _get("checkpoint", of_checkpoint),
    _get("checkpoint-file", of_checkpoint_file),
    _post("checkpoint", of_checkpoint, LAUNCH, {"pinned": True}, method="patch"),
    _post("checkpoint", of_checkpoint, LAUNCH, method="delete"),
    _post("checkpoint-verify", of_checkpoint, LAUNCH),
    _get("checkpoint-tar", of_checkpoint),
    _get("orphans", in_project, MANAGE),
    _post("orphans-remove", in_project, MANAGE, {"uris": ["uploads/x/y"]}),
    _get("uploads", in_project),
    _get("compare-metric", in_project, run="nosuchrun", key="reward"),
    _get("figures", of_run),
    _get("retention", in_project, MANAGE),
    _post("retention", in_project, MANAGE, RULE, method="put"),
    _post("retention-apply", in_project, MANAGE),
    # A model of one announced file that holds no weights.
    _post("uploads", in_project, LAUNCH.after(400), {"name": "m", "files": {"a": {"size": 1, "sha256": "0" * 64}}}),
    _get("upload", _of_model_upload),
    _post("upload", _of_model_upload, LAUNCH.after(204), method="delete"),
    _post("upload-file", _of_model_file, LAUNCH.after(400), method="put"),  # without an offset
    _post("upload-complete", _of_model_upload, LAUNCH.after(409)),  # nothing has arrived
    _get("datasets", in_project),
    _post("datasets", in_project, LAUNCH.after(201), {"name": "Sums"}),
    _get("dataset", of_dataset),
    _post("dataset", of_dataset, LAUNCH, {"archived": True}, method="patch"),
    _post("dataset", of_dataset, LAUNCH.after(204), method="delete"),
    _get("dataset-versions", of_dataset),
    _post("dataset-uploads", of_dataset, LAUNCH.after(400)),  # without a file's name
    _get("dataset-import", of_upload),
    _post("dataset-import", of_upload, LAUNCH.after(204), method="delete"),
    _post("dataset-inspect", of_upload, LAUNCH.after(400), {"mapping": 1}),
    _post("dataset-start", of_upload, LAUNCH.after(400), {"mapping": 1}),
    _get("dataset-version", of_version),
    _post("dataset-version", of_version, LAUNCH.after(204), method="delete"),
    _get("dataset-rows", of_version, VIEW.after(404)),  # its file is none
    _get("dataset-file", of_version),
    _get("compare", in_project, run="nosuchrun"),
    _get("studies", in_project),
    _post("studies", in_project, LAUNCH.after(201), {"study": "sps", "form": "quick"}),
    _get("study", of_study),
    _post("study-stop", of_study, LAUNCH),
    _get("methods", nothing, ANYONE),
    _get("method", lambda cast: ("sps",), ANYONE),
    _get("presets", nothing, ANYONE),
    _get("tasks", nothing, ANYONE),
    _get("config-schema", lambda cast: ("rl",), ANYONE),
    _get("queues", nothing, ANYONE),
    _get("workers", nothing, ANYONE),
    # Workers are the installation's: none of the cast administrates it.
    _post("worker", lambda cast: ("w",), ANYONE.after(403), {"draining": True}, method="patch"),
    _get("queue", nothing, ANYONE),
    _get("schema", nothing, ANYONE),
)
