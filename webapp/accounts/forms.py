"""Forms for signing in and choosing a password."""

from typing import Any

from django import forms
from django.contrib.auth import authenticate
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from webapp.accounts import selectors, services
from webapp.accounts.models import User
from webapp.core.templatetags.figures import duration


class SignInForm(forms.Form):
    """Finds the person, or says no without saying which of the two was wrong. `user` is set when valid."""

    email = forms.EmailField(
        label="E-mail", widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True})
    )
    password = forms.CharField(
        label="Password", strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "current-password"})
    )

    def __init__(self, data: Any = None, *, request: HttpRequest) -> None:
        super().__init__(data)
        self.request = request
        self.user: User | None = None

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned
        email = cleaned["email"]
        network_address = self.request.META.get("REMOTE_ADDR", "")
        wait = selectors.seconds_until_sign_in(email=email, network_address=network_address)
        if wait:
            raise ValidationError(f"Too many failed attempts. Try again in {duration(wait)}.", code="throttled")
        found = authenticate(self.request, username=email, password=cleaned["password"])
        if not isinstance(found, User):
            services.count_failure(email=email, network_address=network_address)
            raise ValidationError("This e-mail and password do not belong together.", code="refused")
        services.forget_failures(email=email, network_address=network_address)
        self.user = found
        return cleaned


class ChoosePasswordForm(forms.Form):
    """A new password for the signed-in person."""

    password = forms.CharField(
        label="New password",
        strip=False,
        help_text="At least 10 characters; a few unrelated words are good.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "autofocus": True}),
    )

    def __init__(self, data: Any = None, *, user: User) -> None:
        super().__init__(data)
        self.user = user

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        validate_password(password, self.user)
        return password
