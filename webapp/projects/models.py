"""Projects: what runs, checkpoints and evaluations belong to."""

from django.db import models
from django.urls import reverse

from webapp.teams.models import Team, slug_validator


class Project(models.Model):
    """A line of work of one team. Its slug is unique within the team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="projects")
    slug = models.CharField(max_length=40, validators=[slug_validator])
    name = models.CharField(max_length=80)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "slug"],
                name="one_slug_per_team",
                violation_error_message="This team has a project with this address already.",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def url_args(self) -> tuple[str, str]:
        """The first two arguments of every route below a project: `reverse("runs:index", args=project.url_args)`."""
        return self.team.slug, self.slug

    def get_absolute_url(self) -> str:
        return reverse("projects:home", args=self.url_args)
