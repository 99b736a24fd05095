"""What people do on the pages, and what they see there."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.installed.processes import wait_until

Drawn = list[dict[str, Any]]

READ_CHART = """(slug) => {
  const plot = document.querySelector(`figure.chart[data-slug="${slug}"] .chart-plot`);
  return (plot?.data ?? []).map((one) => ({ name: one.name ?? "", x: [...one.x], y: [...one.y] }));
}"""
READ_BANDS = """(slug) => {
  const { data = [] } = document.querySelector(`figure.chart[data-slug="${slug}"] .chart-plot`) ?? {};
  return data.filter((one) => one.yaxis === "y2" && one.fill).length;
}"""


def choose(page: Page, name: str, value: str) -> None:
    """Picks a radio button or box of the launch form that decides which inputs there are, and waits for them."""
    box = page.locator(f'#launch-form input[name="{name}"][value="{value}"]:not([type=hidden])')
    if box.is_checked():
        return
    with page.expect_response(lambda answer: answer.url.endswith("/launch/parts")):
        box.check()
    expect(page.locator(f'#launch-form input[name="was.{name}"][value="{value}"]')).to_be_attached()


def choose_base(page: Page, name: str) -> None:
    """Picks the base checkpoint of that name."""
    box = page.locator("#bases label.choice").filter(has=page.get_by_text(name, exact=True)).locator("input")
    if not box.is_checked():
        with page.expect_response(lambda answer: answer.url.endswith("/launch/parts")):
            box.check()
    expect(box).to_be_checked()


def setting(page: Page, path: str) -> Locator:
    """The input of a setting by its path, in view: folded ones are unfolded."""
    found = page.locator("#f-" + path.replace(".", "-"))
    fold = page.locator("details.fold").filter(has=found)
    if fold.count() and fold.get_attribute("open") is None:
        fold.locator("summary").first.click()
    return found


def fill(page: Page, values: dict[str, Any]) -> None:
    """Types values into settings."""
    for path, value in values.items():
        setting(page, path).fill(str(value))


def launch(page: Page, name: str) -> str:
    """Names the run, presses Launch, and is then on the run's page; the run's id."""
    page.locator("#id_name").fill(name)
    valid = page.locator("#launch-preview .launch-state[data-tone=good]")
    expect(valid).to_be_visible()
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*/")
    return page.url.rstrip("/").rpartition("/")[2]


def state_of(page: Page) -> Locator:
    """The badge beside the run's name."""
    return page.locator("#run-head h1 [data-state]")


def drawn(page: Page, slug: str) -> Drawn:
    """The traces of a chart as the chart library holds them."""
    found: Drawn = page.evaluate(READ_CHART, slug)
    return found


def points(page: Page, slug: str) -> int:
    """How many points the chart's first line has."""
    traces = drawn(page, slug)
    return max((len([v for v in one["y"] if v is not None]) for one in traces), default=0)


def shown(page: Page, slug: str) -> Drawn:
    """The chart's traces once it is in view and drawn."""
    page.locator(f'figure.chart[data-slug="{slug}"]').scroll_into_view_if_needed()
    wait_until(lambda: drawn(page, slug))
    return drawn(page, slug)


def bands(page: Page, slug: str) -> int:
    """How many traces of shaded phases the chart has."""
    count: int = page.evaluate(READ_BANDS, slug)
    return count


def sideways(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    over: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return over
