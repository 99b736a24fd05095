"""Models in the browser: an upload that breaks and goes on after a reload, the checkpoint that it becomes, its pages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.acts import sideways
from tests.e2e.conftest import NARROW, OWNER, Visitor, Watch
from tests.webapp.models import weights

pytestmark = pytest.mark.e2e
Visit = Callable[..., Visitor]
Shoot = Callable[[Page, str], None]
PASSWORD = "six plain words of my own"


def test_a_model_is_uploaded_over_a_break_and_a_reload(
    visit: Visit, passwords: dict[str, str], watch: Watch, shoot: Shoot, tmp_path: Path
) -> None:
    ada = visit()
    ada.sign_in(OWNER, passwords[OWNER])
    page = ada.page
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_role("button", name="Save password").click()
    passwords[OWNER] = PASSWORD
    expect(page.get_by_role("heading", name="Chains")).to_be_visible()
    body = weights(b"\1\2\3\4" * (5 << 20))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(body)
    files = [tmp_path / "config.json", tmp_path / "model.safetensors"]

    ada.open("checkpoints/upload")
    expect(page.get_by_role("heading", name="Upload a model")).to_be_visible()
    page.get_by_label("Name").fill("Brought along")
    page.get_by_label("Files").set_input_files([tmp_path / "config.json"])
    watch.expect(422, "/checkpoints/uploads/")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text("expected config.json and .safetensors files")
    shoot(page, "upload-refused")

    held: list[Route] = []
    page.route("**/piece*offset=8388608*", lambda route: held.append(route))
    page.get_by_label("Files").set_input_files(files)
    with page.expect_request("**/piece*offset=8388608*"):
        page.get_by_role("button", name="Upload").click()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[data-text]")).to_contain_text("Paused")
    page.unroute("**/piece*offset=8388608*")
    page.reload()
    expect(page.get_by_role("heading", name="Begun and not finished")).to_be_visible()
    shoot(page, "upload-begun")
    page.get_by_label("Files").set_input_files(files)
    with page.expect_request("**/piece*") as first:
        page.get_by_role("button", name="Upload").click()
    assert "name=model.safetensors&offset=8388608" in first.value.url
    expect(page.get_by_role("heading", name="Brought along")).to_be_visible()
    digest = hashlib.sha256(body).hexdigest()
    expect(page.get_by_title(digest)).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 900), NARROW], ids=["wide", "narrow"])
def test_pages_of_checkpoints_fit(
    visit: Visit, passwords: dict[str, str], shoot: Shoot, scheme: str, size: tuple[int, int]
) -> None:
    visitor = visit(size=size, color_scheme=scheme)
    visitor.sign_in(OWNER, passwords[OWNER])
    expect(visitor.page.get_by_role("heading", name="Chains")).to_be_visible()
    [detail] = (
        visitor.page.request.get(f"{visitor.address}/p/lab/chains/checkpoints/")
        .text()
        .split('class="lead"><a href="')[1:2]
    )
    for name in (
        "checkpoints/",
        "checkpoints/upload",
        "checkpoints/retention",
        "checkpoints/orphans",
        detail.partition('"')[0],
    ):
        page = visitor.open(name)
        assert sideways(page) == 0, name
        expect(page.locator("nav a[aria-current=page]").first).to_be_in_viewport(ratio=1)
        shoot(page, f"{name.strip('/').replace('/', '-')}-{scheme}-{size[0]}")
