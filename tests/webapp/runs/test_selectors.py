"""Who sees which runs, and what the pages read."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError
from django.http import Http404

from tests.conftest import Cast
from tests.webapp.making import claimed, make_run, send
from trainer.contract import events as ev
from webapp.projects.models import Project
from webapp.runs import selectors, storage
from webapp.runs.services import describe


def test_people_see_their_teams_runs_and_no_others(cast: Cast) -> None:
    mine, theirs = make_run(cast.project), make_run(cast.other_project)
    assert list(selectors.runs_visible_to(cast["viewer"])) == [mine]
    assert list(selectors.runs_visible_to(cast["outsider"])) == [theirs]


def test_another_projects_run_is_not_found(cast: Cast) -> None:
    theirs = make_run(cast.other_project)
    with pytest.raises(Http404):
        selectors.run_in(cast.project, theirs.pk)


def test_runs_are_found_by_words_state_and_tag(project: Project) -> None:
    sps = make_run(project, name="first", methods=["sps"], task="countdown", tags=["demo"])
    other = make_run(project, name="second", task="parity")
    found = selectors.project_runs
    assert list(found(project, search="sps count")) == [sps]
    assert list(found(project, search="SECOND")) == [other]
    assert list(found(project, tag="demo")) == [sps]
    assert list(found(project, tag="dem")) == []
    assert list(found(project, search=sps.pk)) == [sps]
    claimed(other)
    assert list(found(project, state="starting")) == [other]
    assert set(found(project, state="active")) == {sps, other}


def test_phases_are_bands_and_a_repeated_phase_is_one(project: Project) -> None:
    run = make_run(project)

    def phase(at: int, name: str) -> ev.Phase:
        return ev.Phase(axes=ev.Axes(iteration=at), name=name, title=name.upper())

    send(claimed(run), [phase(0, "rl"), phase(10, "irl"), phase(12, "rl"), phase(14, "rl"), phase(20, "irl")])
    bands = [(b.title, b.begin, b.end) for b in selectors.phase_bands(run)]
    assert bands == [("RL", 0, 9), ("IRL", 10, 11), ("RL", 12, 19), ("IRL", 20, None)]


def test_what_is_drawn_is_listed_by_kind_and_read_by_key(project: Project) -> None:
    run = make_run(project)
    axes = ev.Axes(iteration=4)
    histogram = ev.Histogram(axes=axes, key="lengths", edges=[0, 1, 2], counts=[3, 4])
    send(claimed(run), [histogram, ev.Text(axes=axes, key="sample", text="1+1")])
    assert selectors.event_keys(run) == {"histogram": ["lengths"], "text": ["sample"]}
    row = selectors.events_of(run, "histogram", key="lengths").get()
    assert row.iteration == 4
    assert row.payload == {"edges": [0.0, 1.0, 2.0], "counts": [3, 4], "nonfinite": {}, "note": ""}


@pytest.mark.parametrize("uri", ["/etc/passwd", "../other/x", "a/../../b", "", "a\\b", "a\0b"])
def test_a_uri_that_leaves_its_folder_is_refused(uri: str) -> None:
    with pytest.raises(storage.BadUri):
        storage.path_of(uri)


def test_a_link_out_of_the_storage_is_refused(settings: object, tmp_path: object) -> None:
    from pathlib import Path

    root = Path(str(tmp_path)) / "files"
    root.mkdir()
    (root / "out").symlink_to("/etc")
    settings.FILES_DIR = root  # type: ignore[attr-defined]
    with pytest.raises(storage.BadUri, match="outside the file storage"):
        storage.path_of("out/passwd")


def test_names_and_tags_are_tidied_and_an_empty_name_is_refused(project: Project) -> None:
    run = make_run(project)
    assert describe(run=run, name=" new ", tags=["b", "a", "b ", ""]).tags == ["a", "b"]
    with pytest.raises(ValidationError):
        describe(run=run, name="  ")
