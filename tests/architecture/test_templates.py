"""What stands in templates, scripts and style sheets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.template.loader import get_template

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
SCRIPTS = sorted((ROOT / "static" / "js").rglob("*.js"))
STYLES = sorted((ROOT / "static" / "css").rglob("*.css"))
COMMENT = re.compile(r"\{% comment %\}.*?\{% endcomment %\}|\{#.*?#\}", re.DOTALL)

FORBIDDEN = {
    "an inline script": re.compile(r"<script(?![^>]*\ssrc=)(?![^>]*type=\"application/json\")", re.I),
    "a style element": re.compile(r"<style", re.I),
    "a style attribute": re.compile(r"<[^>]*\sstyle\s*=", re.I),
    "an event attribute": re.compile(r"<[^>]*\s(?:on[a-z]+|hx-on[:\w-]*)\s*=", re.I),
    "a javascript: link": re.compile(r"javascript:", re.I),
    "a script that evaluates text": re.compile(r"hx-(?:vals|headers)\s*=\s*[\"']js:", re.I),
    "something loaded from another server": re.compile(
        r"(?:src|srcset|poster|action|data|hx-(?:get|post|put|delete))\s*=\s*[\"']?(?:https?:)?//"
        r"|<link[^>]*href\s*=\s*[\"']?(?:https?:)?//",
        re.I,
    ),
}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", TEMPLATES, ids=_name)
def test_template_obeys_the_content_security_policy(path: Path) -> None:
    text = COMMENT.sub("", path.read_text(encoding="utf-8"))
    found = [what for what, pattern in FORBIDDEN.items() if pattern.search(text)]
    assert not found, f"{_name(path)} has {', '.join(found)}"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<script>x()</script>", "an inline script"),
        ('<p class="a" style="color:red">', "a style attribute"),
        ('<button onclick="x()">', "an event attribute"),
        ('<button hx-on:click="x()">', "an event attribute"),
        ('<script src="https://cdn.example/x.js"></script>', "something loaded from another server"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "something loaded from another server"),
    ],
)
def test_the_rules_find_what_they_are_for(text: str, what: str) -> None:
    assert FORBIDDEN[what].search(text)


@pytest.mark.parametrize("path", TEMPLATES, ids=_name)
def test_template_has_a_name_of_its_app_and_compiles(path: Path) -> None:
    relative = path.relative_to(ROOT / "templates")
    assert str(relative) == "base.html" or (ROOT / "webapp" / relative.parts[0]).is_dir()
    assert re.fullmatch(r"_?[a-z0-9]+(_[a-z0-9]+)*\.html", path.name)
    get_template(str(relative))


@pytest.mark.parametrize("path", TEMPLATES, ids=_name)
def test_fragments_and_only_they_start_with_an_underscore(path: Path) -> None:
    text = COMMENT.sub("", path.read_text(encoding="utf-8")).lstrip()
    is_page = text.startswith(("{% extends", "<!doctype"))
    assert is_page != path.name.startswith("_"), f"{_name(path)}: fragments are named _name.html, pages name.html"


@pytest.mark.parametrize("path", TEMPLATES, ids=_name)
def test_static_files_and_icons_of_a_template_exist(path: Path) -> None:
    text = COMMENT.sub("", path.read_text(encoding="utf-8"))
    for name in re.findall(r"\{% static ['\"]([^'\"]+)['\"]", text):
        assert finders.find(name), f"{_name(path)}: static file {name} is missing"
    sprite = (ROOT / "static" / "icons.svg").read_text()
    for name in re.findall(r"\{% icon ['\"]([^'\"]+)['\"]", text):
        assert f'id="{name}"' in sprite, f"{_name(path)}: icon {name} is missing in static/icons.svg"


@pytest.mark.parametrize("path", [*SCRIPTS, *STYLES], ids=_name)
def test_scripts_and_styles_load_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)
    assert not re.search(r"\beval\(|new Function\(|@import", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_modules_import_in_the_form_that_collecting_rewrites(path: Path) -> None:
    """See `webapp.core.storage`: one statement a line, relative, with a semicolon."""
    text = path.read_text(encoding="utf-8")
    for line in re.findall(r"^(?:import|export)\b.*\bfrom\b.*$", text, re.M):
        assert re.search(r"from [\"']\.{1,2}/[\w./-]+\.js[\"'];", line), f"{_name(path)}: {line}"
    assert not re.search(r"\bimport\(", text), "a dynamic import would ask for the name without the hash"


def _luminance(color: str) -> float:
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _mix(color: str, share: float, under: str) -> str:
    channels = [
        round(share * int(color[start : start + 2], 16) + (1 - share) * int(under[start : start + 2], 16))
        for start in (1, 3, 5)
    ]
    return "#" + "".join(f"{channel:02x}" for channel in channels)


def _tokens() -> dict[str, tuple[str, str]]:
    text = (ROOT / "static/css/tokens.css").read_text()
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", text)
    both = re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text)
    return {**{name: (light, dark) for name, light, dark in pairs}, **{name: (one, one) for name, one in both}}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_colours_reach_aa_on_every_surface(theme: int) -> None:
    tokens = _tokens()
    for text in ("text", "text-2", "text-3", "accent", "good", "bad", "warn"):
        for surface in ("bg", "surface", "surface-2"):
            found = _contrast(tokens[text][theme], tokens[surface][theme])
            assert found >= 4.5, f"--{text} on --{surface} has {found:.2f}"
    for tone in ("accent", "good", "bad", "warn", "text-2"):
        tinted = _mix(tokens[tone][theme], 0.11, tokens["surface"][theme])
        assert _contrast(tokens[tone][theme], tinted) >= 4.5, f"a state in --{tone}"
    assert _contrast(tokens["on-accent"][theme], tokens["accent"][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_series_stand_out_from_the_surface(theme: int) -> None:
    tokens = _tokens()
    for number in range(8):
        found = _contrast(tokens[f"series-{number}"][theme], tokens["surface"][theme])
        assert found >= 2.2, f"--series-{number} has {found:.2f}"
