"""Signing in and out, choosing a password."""

from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts import services
from webapp.accounts.forms import ChoosePasswordForm, SignInForm
from webapp.accounts.models import User


def _target(request: HttpRequest) -> str:
    """Where `next` leads, if it stays on this server."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    safe = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    # Without a slash in front `redirect` would take it for the name of a route.
    return wanted if safe and wanted.startswith("/") else ""


@login_not_required
@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    target = _target(request)
    if request.user.is_authenticated:
        return redirect(target or "projects:index")
    form = SignInForm(request.POST if request.method == "POST" else None, request=request)
    if request.method == "POST" and form.is_valid() and form.user is not None:
        login(request, form.user)
        return redirect(target or "projects:index")
    status = 429 if form.has_error("__all__", "throttled") else 200
    return render(request, "accounts/sign_in.html", {"form": form, "next": target}, status=status)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("accounts:sign-in")


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def choose_password(request: HttpRequest) -> HttpResponse:
    user = request.user
    assert isinstance(user, User)
    if request.method == "POST" and "keep" in request.POST:
        services.keep_password(user=user)
        return redirect("projects:index")
    form = ChoosePasswordForm(request.POST if request.method == "POST" else None, user=user)
    if request.method == "POST" and form.is_valid():
        services.choose_password(user=user, password=form.cleaned_data["password"])
        update_session_auth_hash(request, user)
        return redirect("projects:index")
    return render(request, "accounts/choose_password.html", {"form": form})
