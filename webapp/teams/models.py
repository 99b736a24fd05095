"""Teams and memberships."""

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.urls import reverse

slug_validator = RegexValidator(
    r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$", "Use lower-case letters, digits and single hyphens between them."
)


class Role(models.TextChoices):
    """From least to most rights; `webapp.teams.permissions` says which."""

    VIEWER = "viewer", "Viewer"
    MEMBER = "member", "Member"
    ADMIN = "admin", "Admin"
    OWNER = "owner", "Owner"


class Team(models.Model):
    """The boundary of access: everything belongs to one team, and nobody outside it learns that it exists."""

    slug = models.CharField(max_length=40, unique=True, validators=[slug_validator])
    name = models.CharField(max_length=80)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="teams")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("teams:detail", args=[self.slug])


class Membership(models.Model):
    """One person's role in one team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_role_per_person_and_team")]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.team}"


class TeamSecret(models.Model):
    """A value that runs of the team may name and get as an environment variable; nobody can read it again.

    `stored` is the value encrypted under the key with the fingerprint `key` (`webapp.core.encryption`), together with
    team and name, so that it is of no use in another row. The last run is kept by id: it may be deleted.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=64)
    stored = models.TextField(editable=False)
    key = models.CharField(max_length=16, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    changed_at = models.DateTimeField()
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_run = models.CharField(max_length=12, blank=True)
    last_project = models.CharField(max_length=40, blank=True, help_text="Address of the last run's project.")

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="one_secret_per_team_and_name")]

    def __str__(self) -> str:
        return self.name
