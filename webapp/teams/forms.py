"""Forms for a team's people and secrets."""

from typing import Any

from django import forms

from webapp.teams.models import Role


def roles_of(by: Role) -> list[tuple[str, str]]:
    """The roles that a member with this one may give."""
    return [(role.value, role.label) for role in Role if role != Role.OWNER or by == Role.OWNER]


class MemberForm(forms.Form):
    """Who comes into the team, and as what; the service decides what is allowed."""

    email = forms.CharField(
        max_length=254,
        label="E-mail",
        help_text="Somebody without an account gets one, with a password for the first time.",
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )
    role = forms.ChoiceField(
        help_text="Viewers look; members launch and edit; admins manage people, projects and secrets; owners also make owners."
    )

    def __init__(self, *args: Any, by: Role, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"].choices = roles_of(by)  # type: ignore[attr-defined]
        self.fields["role"].initial = Role.MEMBER


class SecretForm(forms.Form):
    """Name and value; the service decides what is allowed. The value is never shown again, not even after an error."""

    name = forms.CharField(
        max_length=64,
        help_text="The environment variable in which a run finds it, such as HF_TOKEN. An existing one is replaced.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "characters", "spellcheck": "false"}),
    )
    value = forms.CharField(
        strip=True,
        help_text="At least 8 characters. It is stored encrypted, and nobody can read it here again.",
        # A password field is emptied whenever the page is drawn.
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "spellcheck": "false"}),
    )
