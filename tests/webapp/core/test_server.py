"""Health, headers, error pages, checks and static files."""

import asyncio
import gzip
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path

from tests.conftest import Cast
from webapp.config.urls import handler400, handler403, handler404, handler500
from webapp.config.urls import urlpatterns as real_urls
from webapp.core import checks, views
from webapp.core.finders import VENDOR_FILES, vendor_path

__all__ = ["handler400", "handler403", "handler404", "handler500"]


def _fails(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("secret detail")


_fails.login_required = False  # type: ignore[attr-defined]
urlpatterns = [*real_urls, path("fails", _fails)]


def test_health_is_ok_and_needs_no_sign_in(db: None, client: Client) -> None:
    response = client.get("/healthz")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "database": "ok", "data": "ok"}


def test_health_is_503_without_a_database(db: None, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def cursor(self) -> None:
            raise DatabaseError("password=hunter2")

    monkeypatch.setattr("webapp.core.selectors.connection", Gone())
    response = client.get("/healthz")
    assert response.status_code == 503
    assert response.json() == {"status": "failing", "database": "unreachable", "data": "ok"}


def test_health_is_503_when_the_data_folder_is_gone(db: None, client: Client, settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "gone"
    assert client.get("/healthz").json()["data"] == "not writable"


def test_every_page_forbids_inline_code_and_other_servers(db: None, client: Client) -> None:
    policy = client.get("/sign-in")["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_security_headers_and_server_time(db: None, client: Client) -> None:
    headers = client.get("/sign-in").headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Server-Timing"].startswith("app;dur=")


def test_async_requests_get_the_same_headers(db: None) -> None:
    response = asyncio.run(AsyncClient().get("/healthz"))
    assert "Content-Security-Policy" in response.headers
    assert "Server-Timing" in response.headers


def test_an_unknown_address_is_the_404_page(client: Client) -> None:
    response = client.get("/no/such/page")
    assert response.status_code == 404
    assert "There is no such page" in response.content.decode()


def test_a_failing_page_says_what_was_kept_and_no_detail(db: None, settings, caplog: pytest.LogCaptureFixture) -> None:
    settings.ROOT_URLCONF = __name__
    response = Client(raise_request_exception=False).get("/fails")
    page = response.content.decode()
    assert response.status_code == 500
    assert "Runs go on regardless" in page
    assert "secret detail" not in page
    assert "secret detail" in caplog.text


def test_a_form_without_its_token_is_the_403_page(cast: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    response = client.post("/sign-in", {"email": "member@example.org", "password": "x"})
    assert response.status_code == 403
    assert "This form is out of date" in response.content.decode()


def test_a_form_sent_without_a_session_says_so_and_leads_to_the_sign_in(cast: Cast) -> None:
    response = Client(enforce_csrf_checks=True).post("/p/lab/countdown/launch/", {})
    page = response.content.decode()
    assert response.status_code == 403
    assert "You are signed out" in page
    assert 'href="/sign-in"' in page


def test_a_form_sent_after_the_session_has_ended_leads_back_to_what_was_typed(cast: Cast, client: Client) -> None:
    client.force_login(cast["owner"])
    cast["owner"].set_password("another one")  # ends every session
    cast["owner"].save()
    address = "/p/lab/countdown/launch/"
    answer = client.post(address, {"name": "long typed"})
    assert answer.status_code == 403
    assert "What you typed is still on the page" in answer.content.decode()
    assert 'target="_blank"' in answer.content.decode()
    assert client.get(address)["Location"] == f"/sign-in?next={address}"


def test_a_wrong_host_is_the_400_page(client: Client, settings) -> None:
    response = views.bad_request(RequestFactory().get("/"), Exception())
    assert response.status_code == 400
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 400


def test_checks_find_nothing_wrong_here(db: None) -> None:
    call_command("check")


def test_a_data_folder_that_is_gone_is_reported_with_the_variable(settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "gone"
    (found,) = checks.data_folder(None)
    assert found.id == "unsqueeze.E001"
    assert "UNSQUEEZE_DATA" in str(found.hint)


def test_a_secret_key_that_others_can_read_is_reported(settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    key = tmp_path / "secret_key"
    key.write_text("k")
    key.chmod(0o644)
    assert [found.id for found in checks.data_folder(None)] == ["unsqueeze.W002"]
    key.chmod(0o600)
    assert checks.data_folder(None) == []


def test_a_broker_folder_that_is_gone_is_reported(settings, tmp_path: Path) -> None:
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = {"data_folder_in": str(tmp_path / "gone")}
    assert [found.id for found in checks.broker_folder(None)] == ["unsqueeze.E004"]


def test_uncollected_static_files_are_reported(settings, tmp_path: Path) -> None:
    settings.STORAGES = {"staticfiles": {"BACKEND": "webapp.core.storage.StaticStorage"}}
    settings.STATIC_ROOT = tmp_path
    assert [found.id for found in checks.static_manifest(None)] == ["unsqueeze.W005"]


@pytest.mark.parametrize("name", VENDOR_FILES)
def test_files_of_packages_are_found(name: str) -> None:
    found = vendor_path(name)
    assert found is not None
    assert found.stat().st_size > 1_000_000


def test_the_plotly_in_use_still_honours_the_stand_ins(settings) -> None:
    """`static/js/plotly.js` relies on two ids inside plotly.js; a new version may change them."""
    loader = (settings.BASE_DIR / "static/js/plotly.js").read_text()
    library = vendor_path("vendor/plotly.min.js")
    assert library is not None
    text = library.read_text(encoding="utf-8")
    assert '"plotly.js-style-"' in text
    assert ".no-inline-styles" in text
    map_id = loader.split('MAP_STYLE_ID = "')[1].split('"')[0]
    assert f'getElementById("{map_id}")' in text


def test_collected_modules_import_each_other_by_hashed_name(settings, tmp_path: Path) -> None:
    source = tmp_path / "source" / "js"
    (source / "charts").mkdir(parents=True)
    (source / "one.js").write_text(
        'import { two } from "./two.js";\n// import x from "./gone.js";\nexport {\n  two,\n} from "./two.js";\n'
    )
    (source / "two.js").write_text("export const two = 2;\n")
    (source / "charts" / "three.js").write_text('import { two } from "../two.js";\nimport "./four.js";\n')
    (source / "charts" / "four.js").write_text("export {};\n")
    settings.STATICFILES_DIRS = [source.parent]
    settings.STATIC_ROOT = tmp_path / "out"
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    settings.STORAGES = {**settings.STORAGES, "staticfiles": {"BACKEND": "webapp.core.storage.StaticStorage"}}
    call_command("collectstatic", interactive=False, verbosity=0)
    out = tmp_path / "out" / "js"
    (one,), (two,) = out.glob("one.*.js"), out.glob("two.*.js")
    (three,), (four,) = (out / "charts").glob("three.*.js"), (out / "charts").glob("four.*.js")
    assert one.read_text().count(f'from "./{two.name}"') == 2
    assert three.read_text().split("\n")[:2] == [
        f'import {{ two }} from "../{two.name}";',
        f'import "./{four.name}";',
    ]
    assert (tmp_path / "out" / "staticfiles.json").exists()


async def _read(response) -> bytes:
    return b"".join([block async for block in response.streaming_content])


@pytest.mark.parametrize("use_async", [False, True])
def test_static_files_are_served_compressed(use_async: bool, db: None, settings, tmp_path: Path) -> None:
    style = b"b{color:red}" * 100
    (tmp_path / "a.css").write_bytes(style)
    (tmp_path / "a.css.gz").write_bytes(gzip.compress(style))
    settings.STATIC_ROOT = tmp_path
    headers = {"accept-encoding": "gzip"}
    if use_async:

        async def fetch() -> tuple[HttpResponse, bytes]:
            response = await AsyncClient().get("/static/a.css", headers=headers)
            return response, await _read(response)

        response, body = asyncio.run(fetch())
    else:
        response = Client().get("/static/a.css", headers=headers)
        body = b"".join(response.streaming_content)
    assert response["Content-Type"].startswith("text/css")
    assert gzip.decompress(body) == style
