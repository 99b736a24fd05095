"""Forms that are sent twice, after the back button, over an ended session, or from two tabs: nothing is doubled or lost.

Only a web server runs: launched runs stay in the queue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.acts import choose, fill, setting, sideways
from tests.e2e.conftest import NARROW, OWNER, VIEWER, Visitor, Watch
from tests.installed.processes import Installed, any_port, installed

pytestmark = pytest.mark.e2e
Visit = Callable[..., Visitor]
Shoot = Callable[[Page, str], None]
SESSION = "unsqueeze_session"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    with installed(tmp_path_factory.mktemp("installation"), port=any_port(), start=("web",)) as found:
        yield found


@pytest.fixture(scope="module")
def ada(visit: Visit, passwords: dict[str, str]) -> Visitor:
    visitor = visit()
    visitor.sign_in(OWNER, passwords[OWNER])
    visitor.page.get_by_role("button", name="Keep the one I have").click()
    expect(visitor.page.get_by_role("heading", name="Chains")).to_be_visible()
    return visitor


def filled(ada: Visitor, name: str) -> Page:
    page = ada.open("launch/")
    choose(page, "kind", "sft")
    choose(page, "task.name", "parity")
    page.locator("#id_name").fill(name)
    fill(page, {"budget.iterations": 3})
    expect(page.locator("#launch-preview .launch-state[data-tone=good]")).to_be_visible()
    return page


def runs_called(ada: Visitor, name: str) -> int:
    page = ada.open("runs/", page=ada.context.new_page())
    count = page.get_by_role("link", name=name, exact=True).count()
    page.close()
    return count


def test_pressing_twice_launches_once_and_so_does_going_back(ada: Visitor) -> None:
    page = filled(ada, "Pressed twice")
    page.get_by_role("button", name="Launch", exact=True).dblclick()
    page.wait_for_url("**/runs/*/")
    run = page.url
    assert runs_called(ada, "Pressed twice") == 1
    page.go_back()
    expect(page.locator("#id_name")).to_have_value("Pressed twice")
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*/")
    assert page.url == run
    expect(page.get_by_text("has launched this run already")).to_be_visible()
    assert runs_called(ada, "Pressed twice") == 1


def test_an_ended_session_costs_nothing_that_was_typed(
    ada: Visitor, passwords: dict[str, str], watch: Watch, shoot: Shoot
) -> None:
    page = filled(ada, "Over an ended session")
    ada.context.clear_cookies(name=SESSION)
    watch.expect(403, "/launch/")
    page.get_by_role("button", name="Launch", exact=True).click()
    expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
    shoot(page, "signed-out")
    with ada.context.expect_page() as opened:
        page.get_by_role("link", name="Sign in").click()
    tab = opened.value
    tab.get_by_label("E-mail").fill(OWNER)
    tab.get_by_label("Password").fill(passwords[OWNER])
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("heading", name="Chains")).to_be_visible()
    tab.close()
    page.go_back()
    expect(page.locator("#id_name")).to_have_value("Over an ended session")
    expect(setting(page, "budget.iterations")).to_have_value("3")
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*/")
    expect(page.get_by_role("heading", name="Over an ended session")).to_be_visible()


def test_a_file_is_uploaded_once_and_a_mapping_sent_twice_imports_once(ada: Visitor, tmp_path: Path) -> None:
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(f'{{"question": "{n}+1", "answer": "#### {n + 1}"}}\n' for n in range(30)))
    page = ada.open("datasets/new")
    page.get_by_label("Name").fill("Sums")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload").dblclick()
    page.wait_for_url("**/mapping")
    expect(page.locator("article.dataset-row")).to_have_count(20)
    page.get_by_role("button", name="Import").dblclick()
    page.wait_for_url(re.compile(r"/imports/\d+/?$"))
    there = page.url
    page.go_back()
    expect(page).to_have_url(there)  # it is under way: its mapping cannot be changed any more
    page = ada.open("datasets/")
    expect(page.get_by_role("link", name="sums.jsonl")).to_have_count(1)


def test_two_tabs_do_not_overwrite_each_other(ada: Visitor, shoot: Shoot) -> None:
    first, second = ada.context.new_page(), ada.context.new_page()
    for page in (first, second):
        ada.open("/t/lab/members", page=page)
    role = VIEWER.partition("@")[0]
    first.get_by_label(f"Role of {role}", exact=True).select_option("member")
    first.get_by_role("button", name=f"Change the role of {role}").dblclick()
    expect(first.get_by_text(f"The role of {role} is member now.")).to_be_visible()
    second.get_by_label(f"Role of {role}", exact=True).select_option("admin")
    second.get_by_role("button", name=f"Change the role of {role}").click()
    expect(second.get_by_text("was made member since this page was opened")).to_be_visible()
    expect(second.get_by_label(f"Role of {role}", exact=True)).to_have_value("member")
    shoot(second, "members")
    second.get_by_role("button", name=f"Remove {role}").click()
    expect(second.get_by_text("is no longer in the team")).to_be_visible()
    first.get_by_role("button", name=f"Remove {role}").click()
    expect(first.get_by_text("not in the team any more")).to_be_visible()
    for page in (first, second):
        page.close()


def test_a_person_is_taken_in_and_the_password_shown_once(ada: Visitor, shoot: Shoot) -> None:
    page = ada.open("/t/lab/members")
    page.get_by_label("E-mail").fill("new@example.org")
    page.get_by_role("button", name="Add").dblclick()
    expect(page.get_by_text("new@example.org is in the team now, as member.")).to_be_visible()
    shoot(page, "members-password")
    expect(page.get_by_role("row").filter(has_text="new@example.org")).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_members_page_fits_a_phone(ada: Visitor, visit: Visit, scheme: str, shoot: Shoot) -> None:
    phone = visit(like=ada, size=NARROW, color_scheme=scheme)
    page = phone.open("/t/lab/members")
    expect(page.get_by_role("heading", name="Members")).to_be_visible()
    assert sideways(page) <= 0
    shoot(page, f"members-{scheme}")
    phone.context.close()
