"""The two ways to sign in: a token in the header Authorization, or the session of a browser with its CSRF token."""

from typing import Any

from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import PermissionDenied

from webapp.accounts.models import AccessToken, User
from webapp.accounts.services import TokenRefused, TooManyFailures, use_token
from webapp.api.errors import Refused, TokenRefusedByApi

SCHEME = "Bearer"
CHALLENGE = f'{SCHEME} realm="unsqueeze"'


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer unsq_…`. A header that is there decides: a session beside it does not count."""

    def authenticate(self, request: Any) -> tuple[User, AccessToken] | None:
        header: str = request.META.get("HTTP_AUTHORIZATION", "")
        if not header:
            return None
        scheme, _, text = header.partition(" ")
        if scheme.lower() != SCHEME.lower():
            raise TokenRefusedByApi("invalid_token", f"Expected 'Authorization: {SCHEME} unsq_…'.")
        try:
            token = use_token(text.strip(), network_address=request.META.get("REMOTE_ADDR", ""))
        except TooManyFailures as error:
            message = f"Too many refused tokens from this address; try again in {error.seconds} s."
            raise Refused("too_many_failures", message, retry_after=error.seconds) from error
        except TokenRefused as error:
            raise TokenRefusedByApi(f"{error.reason}_token", str(error)) from error
        return token.user, token

    def authenticate_header(self, request: Any) -> str:
        return CHALLENGE


class BrowserAuthentication(SessionAuthentication):
    """The signed-in person of a browser; what changes something needs the CSRF token."""

    def enforce_csrf(self, request: Any) -> None:
        try:
            super().enforce_csrf(request)
        except PermissionDenied as error:
            raise Refused("csrf_failed", f"{error.detail} Send the header X-CSRFToken, or use a token.") from error
