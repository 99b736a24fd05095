"""Pages need signing in; people who were given a password are asked for one of their own."""

from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin

from webapp.core.views import signed_out


class SignedInMiddleware(LoginRequiredMiddleware):
    """Sends people who are not signed in to the sign-in page and from there back. A form that they sent would be lost on
    that way: it is answered by a page that leads back to it.
    """

    def handle_no_permission(self, request: HttpRequest, view_func: Any) -> HttpResponseBase:  # type: ignore[override]
        if request.method in ("GET", "HEAD"):
            return super().handle_no_permission(request, view_func)
        return signed_out(request)


class ChoosePasswordMiddleware(MiddlewareMixin):
    """Sends signed-in people with `must_choose_password` to that page, from all pages that need signing in."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        needs_sign_in = getattr(view, "login_required", True)
        if not needs_sign_in or not getattr(request.user, "must_choose_password", False):
            return None
        target = reverse("accounts:choose-password")
        if request.path_info in (target, reverse("accounts:sign-out")):
            return None
        return redirect(target)
