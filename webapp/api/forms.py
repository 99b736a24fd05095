"""The form for a new access token."""

from typing import Any

from django import forms

from webapp.accounts.models import Scope, User
from webapp.accounts.services import DEFAULT_TOKEN_DAYS, LONGEST_TOKEN_DAYS
from webapp.projects.selectors import visible_projects

DAYS = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "a year"))


class TokenForm(forms.Form):
    """What the token is for, what it may do, where, and for how long."""

    name = forms.CharField(max_length=80, label="Name", help_text="Which program gets it, and on which machine.")
    scopes = forms.MultipleChoiceField(
        choices=Scope.choices,
        label="It may",
        initial=[Scope.READ],
        widget=forms.CheckboxSelectMultiple,
        help_text="Never more than your own role allows at the time.",
    )
    within = forms.ChoiceField(required=False, label="Only in", help_text="Elsewhere it finds nothing.")
    days = forms.TypedChoiceField(
        choices=DAYS,
        coerce=int,
        label="Ends after",
        initial=DEFAULT_TOKEN_DAYS,
        help_text=f"A token ends after {LONGEST_TOKEN_DAYS} days at most; revoke it earlier when it is not needed.",
    )

    def __init__(self, data: Any = None, *, user: User) -> None:
        super().__init__(data)
        places: list[tuple[str, str]] = [("", "all my teams and projects")]
        for project in visible_projects(user):
            team = project.team
            if (team.slug, f"the team {team}") not in places:
                places.append((team.slug, f"the team {team}"))
            places.append(("/".join(project.url_args), f"the project {team} / {project}"))
        self.fields["within"].choices = places  # type: ignore[attr-defined]
