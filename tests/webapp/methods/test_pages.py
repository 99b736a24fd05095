"""The library: methods are found by the words of a problem, and a page tells what is known of one."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse

from tests.conftest import Cast
from trainer.methods import all_methods
from trainer.studies.report import verdict_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def get(cast: Cast, client_of: Callable[[str], Client]) -> Callable[..., str]:
    def fetch(route: str, *args: str, who: str = "member", **query: str) -> str:
        response = client_of(who).get(reverse(route, args=(*cast.project.url_args, *args)), query)
        assert response.status_code == 200
        return unescape(response.content.decode())

    return fetch


@pytest.mark.parametrize(
    "words", ["entropy collapse", "rare solutions", "2604.16995", "Yifu Huo", "STEERING squeezing"]
)
def test_a_method_is_found_by_its_problem_its_paper_and_its_people(get, words) -> None:
    assert ">SPS</a>" in get("methods:index", q=words)


def test_other_words_find_others(get) -> None:
    page = get("methods:index", q="quantum chromodynamics")
    assert ">SPS</a>" not in page
    assert "No method has these words" in page


def test_without_words_all_are_there_with_their_verdicts(get) -> None:
    page = get("methods:index")
    for slug, spec in all_methods().items():
        assert reverse("launch:new", args=("lab", "squeezing")).partition("/p/")[1] in page
        assert f"?method={slug}" in page
        assert spec.summary in page
        assert verdict_of(slug) in page


def test_a_viewer_is_offered_no_launch(get) -> None:
    assert "?method=sps" not in get("methods:index", who="viewer")
    assert "Launch the quick study" not in get("methods:method", "sps", who="viewer")


def test_the_page_of_a_method_tells_rule_parameters_and_study(get) -> None:
    page = get("methods:method", "sps")
    for text in (
        "The rule: after every",
        "Deviations and what is derived",
        "k_rl",
        "derived",
        "Launch the quick study",
    ):
        assert text in page
    assert "[—" not in page, "a value without an interval has none"
    assert "Not seen: frontier@64 of sps minus grpo" in page


def test_figures_of_the_committed_study(cast: Cast, client_of) -> None:
    args = (*cast.project.url_args, "sps")
    spec = client_of("viewer").get(reverse("methods:figure", args=(*args, "frontier"))).json()
    assert spec["series"][0]["key"] == "base"
    assert {"grpo", "sps"} <= {one["key"] for one in spec["series"]}
    assert client_of("viewer").get(reverse("methods:figure", args=(*args, "nothing"))).status_code == 404


def test_an_unknown_method_is_not_found(cast: Cast, client_of) -> None:
    url = reverse("methods:method", args=(*cast.project.url_args, "nothing"))
    assert client_of("member").get(url).status_code == 404
