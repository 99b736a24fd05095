"""Pages of datasets, their versions and rows. Uploading and mapping is in `views_import`."""

from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.views.decorators.http import require_POST, require_safe

from webapp.core.counts import counted
from webapp.datasets import selectors, services
from webapp.datasets.models import Version
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.runs import storage
from webapp.teams.permissions import Capability

SPLITS = ("train", "validation", "test")


@require_safe
@project_view()
def index(request: ProjectRequest) -> HttpResponse:
    """All datasets of the project; `?archived=1` those that are archived."""
    archived = request.GET.get("archived") == "1"
    rows = list(selectors.datasets_in(request.project, archived=archived))
    return render(request, "datasets/index.html", {"datasets": rows, "archived": archived})


@require_safe
@project_view()
def detail(request: ProjectRequest, dataset: int) -> HttpResponse:
    """One dataset: versions, imports under way."""
    found = selectors.dataset_in(request.project, dataset)
    context = {
        "dataset": found,
        "versions": selectors.versions_of(found),
        "imports": found.imports.exclude(state="finished"),
    }
    return render(request, "datasets/detail.html", context)


@require_safe
@project_view()
def version(request: ProjectRequest, version: int) -> HttpResponse:
    """What an import found, and the runs that used the version."""
    found = selectors.version_in(request.project, version)
    report = found.report
    context = {
        "version": found,
        "report": report,
        "runs": selectors.runs_with(found)[:50],
        "checks": _checks(found),
        "splits": [(name, report["splits"][name], report["problems_by_split"][name]) for name in SPLITS],
        "lengths": [
            (title, report[key], max((one["count"] for one in report[key]["histogram"]), default=1))
            for title, key in (("Prompts", "prompt_chars"), ("Worked solutions", "completion_chars"))
            if report[key]
        ],
        "characters": [one for one in report["characters"] if not one.isascii()],
    }
    return render(request, "datasets/version.html", context)


def _checks(version: Version) -> list[dict[str, Any]]:
    """The report's checks, worst first: title, count, sentence, examples, tone."""
    r = version.report
    failed, repeated = r["gold_check"]["failed"], r["duplicates"]
    judged = sum(r["gold_check"]["decided_by"].values())
    rows: list[tuple[str, int, str, list[dict[str, Any]], str]] = [
        ("Gold answers that fail against themselves", failed["count"],
         "Their own checker calls them wrong, so no answer can be right: another answer type or extraction is needed.",
         failed["examples"], "bad"),
        ("Rows without a gold answer", r["empty_gold"]["count"],
         "They serve fine-tuning only; a run that has to judge an answer refuses them.", r["empty_gold"]["examples"], "warn"),
        ("Broken rows that were skipped", r["broken"]["count"], "They are not part of the version.",
         r["broken"]["examples"], "warn"),
        ("Problems with different gold answers", repeated["conflicting"],
         "The same problem stands in the file with another answer; runs use the first.",
         [one for one in repeated["examples"] if one["other_answer"]], "warn"),
        ("Rows that repeat a problem", repeated["normalised"],
         f"{repeated['exact']} word for word, the others but for blanks and case; "
         f"{counted(repeated['dropped'], 'was', 'were')} dropped.",
         repeated["examples"], ""),
        ("Rows moved to keep a problem in one split", r["moved_between_splits"],
         "Copies of a held-out problem follow it, so that training never sees it.", [], "warn"),
    ]  # fmt: skip
    out = [
        {"title": title, "count": count, "text": text, "examples": examples, "tone": tone if count else "good"}
        for title, count, text, examples, tone in rows
    ]
    by = ", ".join(f"{count} by {name}" for name, count in r["gold_check"]["decided_by"].items())
    out[0]["text"] = (
        f"{counted(judged, 'was', 'were')} compared ({by}). {out[0]['text'] if failed['count'] else ''}"
        if judged
        else "There are none."
    )
    return out


@require_safe
@project_view()
def rows(request: ProjectRequest, version: int) -> HttpResponse:
    """Rows with `?page=`, `?q=`, `?split=`, or one by `?line=` (and `&file=`)."""
    found = selectors.version_in(request.project, version)
    line = _number(request.GET.get("line"))
    search, split = request.GET.get("q", "")[:200], request.GET.get("split", "")
    try:
        shown = selectors.rows_of(
            found,
            page=_number(request.GET.get("page")) or 1,
            search=search,
            line=line,
            file=request.GET.get("file", ""),
            split=split if split in SPLITS else "",
        )
        problem = ""
    except selectors.FileMissing as error:
        shown, problem = selectors.Rows([], 1, 1, 0), str(error)
    context = {
        "version": found, "shown": shown, "problem": problem, "search": search, "split": split, "line": line, "splits": SPLITS,
    }  # fmt: skip
    return render(request, "datasets/rows.html", context)


def _number(text: str | None) -> int | None:
    return int(text[:15]) if text and text.isascii() and text.isdigit() else None


@require_safe
@project_view()
def download(request: ProjectRequest, version: int) -> StreamingHttpResponse:
    """The version's Parquet file, in pieces."""
    found = selectors.version_in(request.project, version)
    pieces = storage.chunks(found.uri)
    try:
        first = next(pieces, b"")
    except FileNotFoundError:
        raise Http404("The file of this version is gone.") from None

    async def apart() -> AsyncIterator[bytes]:
        data = first
        while data:
            yield data
            data = await sync_to_async(lambda: next(pieces, b""))()

    def together() -> Any:
        yield first
        yield from pieces

    body = apart() if isinstance(request, ASGIRequest) else together()
    response = StreamingHttpResponse(body, content_type="application/vnd.apache.parquet")
    name = slugify(found.dataset.name) or "dataset"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}-v{found.number}.parquet"'
    response.headers["Content-Length"] = str(found.size_bytes)
    return response


@require_POST
@project_view(Capability.EDIT)
def archive(request: ProjectRequest, dataset: int) -> HttpResponse:
    """Archives a dataset, or takes it back."""
    found = selectors.dataset_in(request.project, dataset)
    services.set_archived(dataset=found, archived=found.archived_at is None)
    return redirect(found)


@require_POST
@project_view(Capability.EDIT)
def delete(request: ProjectRequest, dataset: int) -> HttpResponse:
    """Removes a dataset that no run uses."""
    found = selectors.dataset_in(request.project, dataset)
    return _removed(
        request, lambda: services.remove_dataset(dataset=found), str(found), otherwise=found.get_absolute_url()
    )


@require_POST
@project_view(Capability.EDIT)
def delete_version(request: ProjectRequest, version: int) -> HttpResponse:
    """Removes a version that no run uses."""
    found = selectors.version_in(request.project, version)
    return _removed(
        request, lambda: services.remove_version(version=found), str(found), otherwise=found.get_absolute_url()
    )


def _removed(request: HttpRequest, remove: Any, name: str, *, otherwise: str) -> HttpResponse:
    try:
        remove()
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return redirect(otherwise)
    messages.success(request, f"{name} is removed.")
    return redirect("datasets:index", *request.project.url_args)  # type: ignore[attr-defined]
