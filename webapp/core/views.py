"""The health address and the pages for errors."""

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render, resolve_url
from django.template.defaultfilters import filesizeformat
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from webapp.core import selectors


@login_not_required
@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 when the database answers and the data folder is writable, else 503; the body names the part."""
    parts = selectors.health()
    healthy = all(state == "ok" for state in parts.values())
    return JsonResponse({"status": "ok" if healthy else "failing", **parts}, status=200 if healthy else 503)


def _error(
    request: HttpRequest,
    status: int,
    *,
    title: str,
    text: str,
    advice: str,
    link: tuple[str, str] = ("/", "Go to the home page"),
    new_tab: bool = False,
) -> HttpResponse:
    """`link` is the address and the words of the button."""
    context = {"status": status, "title": title, "text": text, "advice": advice, "link": link, "new_tab": new_tab}
    # No request goes to the template: context processors would ask a database that may be what failed.
    return render(None, "core/error.html", context, status=status)  # type: ignore[arg-type]


@login_not_required
def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, RequestDataTooBig):
        limit = filesizeformat(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        return _error(
            request,
            413,
            title="This form holds too much text",
            text=f"What was sent is larger than {limit}, the most that this server reads from a form. Nothing was changed.",
            advice="Go back and shorten the text.",
        )
    return _error(
        request,
        400,
        title="This request cannot be read",
        text="Something in the address or the form is not what the page expects. Nothing was changed.",
        advice="Go back and try again; if you typed the address, check it.",
    )


@login_not_required
def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _error(
        request,
        403,
        title="Your role does not allow this",
        text=str(exception)
        or "You are a member of this team, but this needs a role with more rights. Nothing was changed.",
        advice="An admin or owner of the team can change your role.",
    )


@login_not_required
def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _error(
        request,
        404,
        title="There is no such page",
        text="Either the address is wrong, or what it shows was deleted, or it belongs to a team that you are not in.",
        advice="Ask who sent you the link to add you to the team.",
    )


@login_not_required
def server_error(request: HttpRequest) -> HttpResponse:
    return _error(
        request,
        500,
        title="The server made a mistake",
        text="This page failed. Runs go on regardless: they need no web server. The reason stands in the server's log.",
        advice="Reload the page; if it fails again, show the log to whoever runs this server.",
    )


def signed_out(request: HttpRequest) -> HttpResponse:
    """The answer to a form that was sent without being signed in. Its page is one step back, with what was typed."""
    return _error(
        request,
        403,
        title="You are signed out",
        text="Nothing was changed. What you typed is still on the page that you came from.",
        advice="Sign in in a new tab, then go back to that page and send it again.",
        link=(resolve_url(settings.LOGIN_URL), "Sign in"),
        new_tab=True,
    )


@login_not_required
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    # The sign-in form is sent without a session by everyone; there the token alone is what is wrong.
    if settings.SESSION_COOKIE_NAME not in request.COOKIES and request.path != resolve_url(settings.LOGIN_URL):
        return signed_out(request)
    return _error(
        request,
        403,
        title="This form is out of date",
        text="The page was open for too long, or cookies are off, so the form cannot be trusted. Nothing was changed.",
        advice="Go back, reload the page and send the form again.",
    )
