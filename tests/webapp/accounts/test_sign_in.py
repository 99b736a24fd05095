"""Signing in and out, and the password that was made for someone."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.conftest import PASSWORD, Cast
from webapp.accounts import selectors, services
from webapp.accounts.models import SignInFailures, User

SIGN_IN = "/sign-in"


def _try(client: Client, password: str = PASSWORD, email: str = "member@example.org", **extra: str):
    return client.post(SIGN_IN, {"email": email, "password": password, **extra})


def test_signing_in_leads_to_the_project(cast: Cast, client: Client) -> None:
    response = client.post(SIGN_IN, {"email": "Member@Example.org", "password": PASSWORD}, follow=True)
    assert response.redirect_chain[-1][0] == "/p/lab/countdown/"


def test_signing_in_leads_on_to_the_page_that_was_asked_for(cast: Cast, client: Client) -> None:
    asked = client.get("/p/lab/countdown/?page=2")
    assert asked["Location"] == "/sign-in?next=/p/lab/countdown/%3Fpage%3D2"
    assert _try(client, next="/p/lab/countdown/?page=2")["Location"] == "/p/lab/countdown/?page=2"


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example/", "javascript:alert(1)", "nowhere", "?page=2", "core:healthz", "²"],
)
def test_signing_in_leads_to_an_address_of_this_server_or_home(target: str, cast: Cast, client: Client) -> None:
    assert _try(client, next=target)["Location"] == "/"
    assert client.get(SIGN_IN, {"next": target})["Location"] == "/"


@pytest.mark.parametrize("email", ["member@example.org", "nobody@example.org"])
def test_a_refusal_does_not_tell_whether_the_address_exists(email: str, cast: Cast, client: Client) -> None:
    response = _try(client, "wrong", email)
    assert "This e-mail and password do not belong together." in response.content.decode()


def test_too_many_failures_stop_even_the_right_password(cast: Cast, client: Client) -> None:
    for _ in range(selectors.LIMIT_ONE_PERSON):
        assert _try(client, "wrong").status_code == 200
    response = _try(client)
    assert response.status_code == 429
    assert "Too many failed attempts" in response.content.decode()


def test_failures_of_one_person_do_not_stop_another(cast: Cast, client: Client) -> None:
    for _ in range(selectors.LIMIT_ONE_PERSON):
        _try(client, "wrong")
    assert _try(client, email="viewer@example.org").status_code == 302


def test_one_network_address_cannot_try_everyone(cast: Cast, client: Client) -> None:
    for number in range(selectors.LIMIT_ONE_ADDRESS):
        services.count_failure(email=f"{number}@example.org", network_address="127.0.0.1")
    assert _try(client).status_code == 429


def test_failures_are_forgotten_after_the_window(cast: Cast, client: Client) -> None:
    for _ in range(selectors.LIMIT_ONE_PERSON):
        _try(client, "wrong")
    SignInFailures.objects.update(since=timezone.now() - timedelta(seconds=selectors.FAILURE_WINDOW + 1))
    assert _try(client).status_code == 302


def test_a_success_resets_the_own_count(cast: Cast, client: Client) -> None:
    for _ in range(selectors.LIMIT_ONE_PERSON - 1):
        _try(client, "wrong")
    assert _try(client).status_code == 302
    assert _try(Client(), "wrong").status_code == 200


def test_the_failure_table_holds_no_address(cast: Cast, client: Client) -> None:
    _try(client, "wrong")
    assert all(re.fullmatch("[0-9a-f]{64}", row.key) for row in SignInFailures.objects.all())


def test_signing_out_ends_the_session_and_needs_a_post(cast: Cast, client: Client) -> None:
    client.force_login(cast["member"])
    assert client.get("/sign-out").status_code == 405
    client.post("/sign-out")
    assert client.get("/p/lab/countdown/").status_code == 302


def test_a_one_time_password_is_asked_to_be_replaced_before_anything_else(db: None, client: Client) -> None:
    _user, password = services.create_user_with_one_time_password("new@example.org", display_name="New")
    assert re.fullmatch("[a-z0-9]{4}(-[a-z0-9]{4}){3}", password)
    _try(client, password, "new@example.org")
    choose = reverse("accounts:choose-password")
    assert client.get("/")["Location"] == choose
    assert client.get(choose).status_code == 200
    weak = client.post(choose, {"password": "password12"})
    assert "too common" in weak.content.decode()
    assert client.post(choose, {"password": "five unrelated words here"})["Location"] == "/"
    assert client.get("/").status_code == 200
    assert User.objects.get().check_password("five unrelated words here")


def test_a_one_time_password_can_be_kept(db: None, client: Client) -> None:
    _user, password = services.create_user_with_one_time_password("new@example.org")
    _try(client, password, "new@example.org")
    client.post(reverse("accounts:choose-password"), {"keep": "1"})
    assert client.get("/").status_code == 200
    assert User.objects.get().check_password(password)


def test_a_second_one_time_password_replaces_the_first(db: None) -> None:
    user, first = services.create_user_with_one_time_password("New@example.org")
    same, second = services.create_user_with_one_time_password("new@example.org")
    assert user == same
    same.refresh_from_db()
    assert (same.check_password(first), same.check_password(second)) == (False, True)
