"""Chromium against a real installation: web server, worker and scheduler on SQLite, static files as collected.

    CHROMIUM=/usr/bin/chromium    the browser
    E2E_SHOTS=folder              keeps screenshots there, light and dark, wide and narrow

Every page that a test opens is watched: an error on its console, an uncaught exception, a violation of the content
security policy or an answer of 400 or more that the test did not announce fails the test.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Response, sync_playwright

from tests.installed.hand import PROJECT, TEAM
from tests.installed.processes import Installed, any_port, installed

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
WIDE, NARROW = (1280, 900), (390, 844)
OWNER, VIEWER = "ada@example.org", "vera@example.org"
WATCH_POLICY = """
  addEventListener("securitypolicyviolation", (event) =>
    console.error(`policy violation: ${event.violatedDirective} ${event.blockedURI} ${event.sample} at ${
      event.target.outerHTML?.slice(0, 300)}`));
"""


@dataclass
class Watch:
    """What went wrong on the pages of a browser session. `expect` announces answers that are no fault."""

    faults: list[str] = field(default_factory=list)
    announced: list[tuple[int, str]] = field(default_factory=list)

    def expect(self, status: int, path: str) -> None:
        self.announced.append((status, path))

    def follow(self, page: Page) -> None:
        page.on("console", lambda message: self._said(page, message))
        page.on("pageerror", lambda error: self.faults.append(f"{page.url}: uncaught {error}"))
        page.on("response", self._answered)

    def _said(self, page: Page, message: ConsoleMessage) -> None:
        # The browser repeats every refused answer on the console; `_answered` judges those.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.faults.append(f"{page.url}: {message.type}: {message.text} ({message.location.get('url', '')})")

    def _answered(self, response: Response) -> None:
        known = any(response.status == status and path in response.url for status, path in self.announced)
        if response.status >= 400 and not known:
            self.faults.append(f"{response.request.method} {response.url} answered {response.status}")


class Visitor:
    """Someone with a browser: opens pages, photographs them, and is watched."""

    def __init__(self, context: BrowserContext, address: str, watch: Watch) -> None:
        self.context, self.address, self.watch = context, address, watch
        context.add_init_script(WATCH_POLICY)
        context.on("page", watch.follow)
        context.set_default_timeout(60_000)
        self.page = context.new_page()

    def open(self, path: str = "", *, page: Page | None = None) -> Page:
        """A page of the project, or any address that starts with a slash."""
        page = page or self.page
        page.goto(self.address + (path if path.startswith("/") else f"/p/{TEAM}/{PROJECT}/{path}"))
        return page

    def sign_in(self, email: str, password: str) -> None:
        """Up to the page that comes after; a one-time password is kept."""
        page = self.open("/")
        page.get_by_label("E-mail").fill(email)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Sign in").click()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """An installation of its own for each file, as a new user finds it."""
    data = tmp_path_factory.mktemp("installation")
    with installed(data, port=any_port()) as found:
        yield found


@pytest.fixture(scope="module")
def passwords(server: Installed) -> dict[str, str]:
    """One-time passwords by e-mail."""
    made: dict[str, str] = server.hand("people", roles={OWNER: "owner", VIEWER: "viewer"})
    return made


@pytest.fixture(scope="module")
def browser(server: Installed) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # The data folder in its environment makes it a process of the installation, which leaves nothing behind.
        env: dict[str, str | float | bool] = {**os.environ, "UNSQUEEZE_DATA": str(server.data)}
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, env=env)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.fixture(autouse=True)
def _nothing_went_wrong(watch: Watch) -> Iterator[None]:
    watch.faults.clear()
    watch.announced.clear()
    yield
    assert watch.faults == []


@pytest.fixture(scope="module")
def visit(browser: Browser, server: Installed, watch: Watch) -> Iterator[Callable[..., Visitor]]:
    """`visit()` is a new visitor; `visit(like=other)` one who is signed in like another; options go to the context."""
    contexts: list[BrowserContext] = []

    def make(*, like: Visitor | None = None, size: tuple[int, int] = WIDE, **options: Any) -> Visitor:
        state = like.context.storage_state() if like else None
        viewport = {"width": size[0], "height": size[1]}
        context = browser.new_context(viewport=viewport, storage_state=state, locale="en-GB", **options)
        contexts.append(context)
        return Visitor(context, server.address, watch)

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def shoot() -> Callable[[Page, str], None]:
    """Keeps a screenshot of the whole page, where screenshots are wanted."""
    folder = os.environ.get("E2E_SHOTS")

    def take(page: Page, name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder) / f"{name}.png", full_page=True, caret="initial")

    return take
