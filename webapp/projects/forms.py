"""Form for a new project."""

from typing import Any

from django import forms

from webapp.projects.models import Project
from webapp.teams.models import Team


class ProjectForm(forms.ModelForm):  # type: ignore[type-arg]
    """Name and address of a project in the given team."""

    class Meta:
        model = Project
        fields = ("name", "slug")
        labels = {"slug": "Address"}
        help_texts = {
            "name": "What the team calls this line of work.",
            "slug": "Stands in every link of the project; lower-case letters, digits and hyphens.",
        }

    def __init__(self, data: Any = None, *, team: Team) -> None:
        super().__init__(data, instance=Project(team=team))

    def _get_validation_exclusions(self) -> set[str]:
        # The team is not a field of the form but belongs to the constraint that makes addresses unique.
        return super()._get_validation_exclusions() - {"team"}  # type: ignore[misc]
