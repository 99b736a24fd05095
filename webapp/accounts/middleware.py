"""Asks people who were given a password for one of their own."""

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin


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
