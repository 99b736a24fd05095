"""The whole path as one story, told in order: sign in, fine-tune a base, train from it, watch, stop, resume, compare.

Each test goes on where the one before it ended; when one fails, those that need its run say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.acts import (
    bands,
    choose,
    choose_base,
    drawn,
    fill,
    launch,
    points,
    setting,
    shown,
    sideways,
    state_of,
)
from tests.e2e.conftest import NARROW, OWNER, VIEWER, Visitor, Watch
from tests.installed.processes import Installed, wait_until

pytestmark = pytest.mark.e2e
Visit = Callable[..., Visitor]
Shoot = Callable[[Page, str], None]

PASSWORD = "five plain words of mine"
TASK = {
    "task.params.mod_chain.terms": 3,
    "task.params.mod_chain.largest": 9,
    "task.params.mod_chain.modulus": 5,
    "sampling.max_new_tokens": 4,
}
SMALL = {
    "policy.architecture.hidden_size": 32,
    "policy.architecture.layers": 1,
    "policy.architecture.heads": 2,
    "policy.architecture.kv_heads": 2,
    "policy.architecture.intermediate_size": 64,
    "policy.architecture.max_positions": 32,
}
EVALUATED = {
    "evaluation.problems": 40,
    "evaluation.samples": 8,
    "evaluation.final_problems": 40,
    "evaluation.final_samples": 16,
}
ITERATIONS = 300
RL = {
    "task.problems": 60,
    "algorithm.prompts_per_iteration": 8,
    "algorithm.num_generations": 8,
    "optimizer.learning_rate": 0.001,
    "evaluation.every": 100,
    "checkpoints.every": 50,
    "budget.iterations": ITERATIONS,
}


@dataclass
class Story:
    """What has happened so far: people with a browser, and runs by what they are called here."""

    ada: Visitor | None = None
    runs: dict[str, str] = field(default_factory=dict)
    before: list[dict[str, Any]] = field(default_factory=list)

    @property
    def owner(self) -> Visitor:
        if self.ada is None:
            pytest.fail("nobody has signed in: see the first test")
        return self.ada

    def run(self, name: str) -> str:
        if name not in self.runs:
            pytest.fail(f"the run {name!r} was not launched: see the tests before this one")
        return self.runs[name]


@pytest.fixture(scope="module")
def story() -> Story:
    return Story()


def test_a_one_time_password_lets_in_and_asks_for_an_own_one(
    visit: Visit, passwords: dict[str, str], watch: Watch, story: Story, shoot: Shoot
) -> None:
    ada = visit()
    ada.sign_in(OWNER, "not-the-password")
    expect(ada.page.get_by_role("alert")).to_contain_text("do not belong together")
    shoot(ada.page, "sign-in-refused")
    ada.sign_in(OWNER, passwords[OWNER])
    expect(ada.page.get_by_role("heading", name="Choose a password")).to_be_visible()
    ada.open("runs/")
    expect(ada.page.get_by_role("heading", name="Choose a password")).to_be_visible()
    ada.page.get_by_label("New password").fill("short")
    ada.page.get_by_role("button", name="Save password").click()
    expect(ada.page.locator(".error").first).to_contain_text("too short")
    shoot(ada.page, "choose-password")
    ada.page.get_by_label("New password").fill(PASSWORD)
    ada.page.get_by_role("button", name="Save password").click()
    expect(ada.page.get_by_role("heading", name="Chains")).to_be_visible()
    shoot(ada.page, "home-empty")
    again = visit()
    again.sign_in(OWNER, PASSWORD)
    expect(again.page.get_by_role("heading", name="Chains")).to_be_visible()
    again.context.close()
    story.ada = ada


def test_a_wrong_value_is_told_at_its_field_and_nothing_typed_is_lost(story: Story, watch: Watch, shoot: Shoot) -> None:
    page = story.owner.open("launch/")
    choose(page, "kind", "sft")
    choose(page, "task.name", "mod_chain")
    fill(page, {"budget.iterations": "many", "optimizer.learning_rate": "0.003", "task.params.mod_chain.modulus": 1})
    # Already while it is typed, by the same class that refuses it at the end.
    at_field = page.locator('[data-errors="f-budget-iterations"]')
    expect(at_field).to_contain_text("integer")
    watch.expect(422, "/launch/")
    page.get_by_role("button", name="Launch", exact=True).click()
    expect(page.get_by_text("Nothing was launched.")).to_be_visible()
    expect(at_field).to_contain_text("'many'")
    expect(page.locator('[data-errors="f-task-params-mod_chain-modulus"]')).to_contain_text(
        "greater than or equal to 2"
    )
    expect(setting(page, "budget.iterations")).to_have_value("many")
    expect(setting(page, "budget.iterations")).to_have_attribute("aria-invalid", "true")
    expect(setting(page, "optimizer.learning_rate")).to_have_value("0.003")
    expect(page.locator('input[name="kind"][value="sft"]')).to_be_checked()
    shoot(page, "launch-refused")
    page = story.owner.open("runs/")
    expect(page.get_by_text("No run yet")).to_be_visible()


def test_a_base_is_fine_tuned_from_the_form(story: Story, server: Installed, shoot: Shoot) -> None:
    page = story.owner.open("launch/")
    choose(page, "kind", "sft")
    choose(page, "task.name", "mod_chain")
    expect(page.locator('input[name="policy.source"][value="new"]')).to_be_checked()
    fill(page, TASK | SMALL | EVALUATED)
    fill(page, {"sft.rows": 400, "sft.batch_size": 32, "optimizer.learning_rate": 0.003, "optimizer.warmup_steps": 5})
    fill(page, {"evaluation.every": 30, "budget.iterations": 60})
    shoot(page, "launch-sft")
    story.runs["base"] = run = launch(page, "Base")
    expect(page.locator("#run-head h1")).to_contain_text("Base")
    found = server.wait_for(run)
    assert found["state"] == "finished", found
    # Nobody has reloaded: the page learnt of it by its stream.
    expect(state_of(page)).to_have_attribute("data-state", "finished")
    [loss] = [one for one in shown(page, "loss") if one["name"] == "Loss"]
    assert loss["x"] == [10, 20, 30, 40, 50, 60]
    assert loss["y"][-1] < loss["y"][0]
    shoot(page, "run-sft")


def test_a_launched_run_is_there_at_once_and_its_charts_grow_without_a_reload(
    story: Story, server: Installed, shoot: Shoot
) -> None:
    story.run("base")
    page = story.owner.open("launch/")
    choose_base(page, "Base · 60")
    choose(page, "task.name", "mod_chain")
    fill(page, TASK | RL | EVALUATED)
    shoot(page, "launch-grpo")
    story.runs["grpo"] = launch(page, "Plain GRPO")
    other = story.owner.open("runs/", page=story.owner.context.new_page())
    expect(other.get_by_role("link", name="Plain GRPO")).to_be_visible()
    other.close()

    page.evaluate("window.sameDocument = true")
    wait_until(lambda: points(page, "reward") >= 3)
    few = points(page, "reward")
    shoot(page, "run-live-early")
    wait_until(lambda: points(page, "reward") >= few + 10)
    assert page.evaluate("window.sameDocument") is True
    expect(state_of(page)).to_have_attribute("data-state", "running")
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#run-iteration")).to_contain_text("of 300")
    expect(page.locator("#run-head")).to_contain_text("from")
    shoot(page, "run-live")


def test_a_stop_saves_and_a_resume_goes_on_without_repeating_anything(
    story: Story, server: Installed, shoot: Shoot
) -> None:
    run, page = story.run("grpo"), story.owner.page
    page.get_by_role("button", name="Stop").click()
    stopped = server.wait_for(run)
    assert (stopped["state"], stopped["can_resume"]) == ("stopped", True), stopped
    assert 0 < stopped["iteration"] < ITERATIONS
    expect(state_of(page)).to_have_attribute("data-state", "stopped")
    expect(page.locator(".run-message")).to_contain_text("Stopped on request; the state was saved.")
    wait_until(lambda: points(page, "reward") == stopped["iteration"])
    shoot(page, "run-stopped")

    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#run-head")).to_contain_text("attempt 2")
    finished = server.wait_for(run)
    assert finished["state"] == "finished", finished
    expect(state_of(page)).to_have_attribute("data-state", "finished")
    wait_until(lambda: points(page, "reward") == ITERATIONS)
    reward, accuracy = [one for one in drawn(page, "reward") if one["name"]][:2]
    assert reward["x"] == list(range(1, ITERATIONS + 1))
    assert accuracy["x"] == list(range(0, ITERATIONS + 1, 100))
    assert server.hand("record", run=run)["series"]["reward"][0] == reward["x"]
    shoot(page, "run-finished")


SAME = ("reward", "passk-progress", "passk-curve", "entropy", "effective", "lengths", "truncation", "grad_norm")


def test_a_late_visitor_sees_what_the_first_one_saw(story: Story, visit: Visit) -> None:
    run, first = story.run("grpo"), story.owner.page
    late = visit(like=story.owner)
    page = late.open(f"runs/{run}/")
    for slug in SAME:
        expected = json.dumps(shown(page, slug))
        wait_until(lambda slug=slug, expected=expected: json.dumps(shown(first, slug)) == expected, seconds=20)
    late.context.close()


def test_the_runs_pages_have_their_content(story: Story, shoot: Shoot) -> None:
    run = story.run("grpo")
    page = story.owner.open(f"runs/{run}/rollouts")
    expect(page.locator("article.completion-card").first).to_be_visible()
    expect(page.locator(".prompt-list a")).to_have_count(9)
    shoot(page, "rollouts")
    page.locator('input[name="only"][value="wrong"]').check()
    page.wait_for_url("**only=wrong**")
    expect(page.locator('article.completion-card[data-correct="yes"]')).to_have_count(0)
    expect(page.locator('article.completion-card[data-correct="no"]').first).to_be_visible()
    page = story.owner.open(f"runs/{run}/squeezing")
    assert len(shown(page, "success") if page.locator('[data-slug="success"]').count() else [1]) > 0
    shoot(page, "squeezing")
    page = story.owner.open(f"runs/{run}/evaluations")
    expect(page.get_by_role("table").first).to_contain_text("validation")
    shoot(page, "evaluations")
    page = story.owner.open(f"runs/{run}/config")
    expect(page.locator("main")).to_contain_text("Base")
    shoot(page, "config")


def test_a_method_with_phases_shows_them_as_bands(story: Story, server: Installed, shoot: Shoot) -> None:
    story.run("base")
    page = story.owner.open("launch/")
    choose_base(page, "Base · 60")
    choose(page, "task.name", "mod_chain")
    choose(page, "methods", "sps")
    expect(setting(page, "methods.sps.params.k_rl")).to_have_value("5")
    fill(page, TASK | RL | EVALUATED | {"budget.iterations": 25, "evaluation.every": 5, "checkpoints.every": 0})
    fill(page, {"methods.sps.params.k_rl": 3, "methods.sps.params.k_irl": 2})
    story.runs["sps"] = run = launch(page, "SPS")
    found = server.wait_for(run)
    assert found["state"] == "finished", found
    expect(state_of(page)).to_have_attribute("data-state", "finished")
    phases = [name for name, _, _ in server.hand("record", run=run)["phases"]]
    assert phases[:4] == ["rl", "irl", "rl", "irl"]
    shown(page, "reward")
    wait_until(lambda: bands(page, "reward") == 1, seconds=20)
    expect(page.locator("#phases")).to_contain_text("Shaded: ")
    page.get_by_role("link", name="Sampled tokens").click()
    expect(page).to_have_url(re.compile(r"\?x=sampled_tokens$"))
    shoot(page, "run-sps")
    reloaded = story.owner.open(f"runs/{run}/")
    shown(reloaded, "reward")
    assert bands(reloaded, "reward") == 1


def test_runs_are_compared_and_the_address_holds_the_choice(story: Story, visit: Visit, shoot: Shoot) -> None:
    grpo, sps = story.run("grpo"), story.run("sps")
    page = story.owner.open("runs/")
    for name in ("Plain GRPO", "SPS"):
        page.get_by_label(f"Select {name}", exact=True).check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare/?runs=*")
    assert set(page.url.partition("runs=")[2].split(",")) == {grpo, sps}
    curves = [one["name"] for one in shown(page, "passk") if one["name"]]
    assert any("Plain GRPO" in name for name in curves), curves
    assert any("SPS" in name for name in curves), curves
    table = page.locator("table.compare-table").first
    expect(table).to_contain_text("Plain GRPO")
    expect(table).to_contain_text("chance")
    expect(table).to_contain_text("pass@16")
    expect(page.locator(".verdict").filter(has_text="one seed: a curve, not evidence")).to_be_visible()
    expect(page.locator("table.compare-table").nth(1)).to_contain_text(
        "of these two sets of weights, not of the methods"
    )
    for one in page.locator("table.compare-table").all():
        expect(one).not_to_contain_text("better")
    shoot(page, "compare")
    page.locator("#c-at").select_option("start")
    page.wait_for_url("**at=start*")
    expect(page.locator("#c-at")).to_have_value("start")
    someone = visit(like=story.owner)
    there = someone.open(page.url.removeprefix(story.owner.address))
    expect(there.locator("#c-at")).to_have_value("start")
    assert [one["name"] for one in shown(there, "passk")] == [one["name"] for one in shown(page, "passk")]
    someone.context.close()


def test_a_run_is_duplicated_with_all_that_was_typed(story: Story) -> None:
    page = story.owner.open(f"runs/{story.run('sps')}/")
    page.get_by_role("link", name="Duplicate").click()
    expect(page.locator('input[name="methods"][value="sps"]')).to_be_checked()
    expect(setting(page, "methods.sps.params.k_rl")).to_have_value("3")
    expect(setting(page, "budget.iterations")).to_have_value("25")
    expect(setting(page, "task.params.mod_chain.modulus")).to_have_value("5")


def test_a_viewer_sees_everything_and_launches_nothing(
    story: Story, visit: Visit, passwords: dict[str, str], watch: Watch, shoot: Shoot
) -> None:
    vera = visit()
    vera.sign_in(VIEWER, passwords[VIEWER])
    vera.page.get_by_role("button", name="Keep the one I have").click()
    expect(vera.page.get_by_role("heading", name="Chains")).to_be_visible()
    page = vera.open(f"runs/{story.run('grpo')}/")
    assert shown(page, "reward")
    for name in ("Stop", "Resume", "Duplicate", "Launch"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
        expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
    watch.expect(403, "/launch/")
    page = vera.open("launch/")
    expect(page.locator("main, body").first).to_contain_text("this needs the role member")
    shoot(page, "viewer-refused")
    vera.context.close()


PAGES = {
    "home": "",
    "runs": "runs/",
    "run": "runs/{sps}/",
    "rollouts": "runs/{sps}/rollouts",
    "squeezing": "runs/{grpo}/squeezing",
    "evaluations": "runs/{grpo}/evaluations",
    "config": "runs/{grpo}/config",
    "compare": "compare/?runs={grpo},{sps}",
    "launch": "launch/?from={sps}",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_scrolls_in_one_direction_only(name: str, story: Story, visit: Visit, shoot: Shoot) -> None:
    path = PAGES[name].format(grpo=story.run("grpo"), sps=story.run("sps"))
    phone = visit(like=story.owner, size=NARROW)
    page = phone.open(path)
    for figure in page.locator("main figure.chart").all()[:6]:
        figure.scroll_into_view_if_needed()
        expect(figure).to_have_attribute("data-state", re.compile("ready|empty"))
    assert sideways(page) <= 0
    shoot(page, f"phone-{name}")
    phone.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_in_the_dark(name: str, story: Story, visit: Visit, shoot: Shoot) -> None:
    path = PAGES[name].format(grpo=story.run("grpo"), sps=story.run("sps"))
    night = visit(like=story.owner, color_scheme="dark")
    page = night.open(path)
    for figure in page.locator("main figure.chart").all()[:6]:
        figure.scroll_into_view_if_needed()
        expect(figure).to_have_attribute("data-state", re.compile("ready|empty"))
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    numbers = [float(part) for part in re.findall(r"[\d.]+", background)[:3]]
    assert max(numbers) < 80, background
    shoot(page, f"dark-{name}")
    night.context.close()
