"""Writes about projects."""

from django.db import transaction

from webapp.projects.models import Project
from webapp.teams.models import Team


@transaction.atomic
def create_project(*, team: Team, slug: str, name: str) -> Project:
    """A project in the team; raises `ValidationError` when the address is taken or malformed."""
    project = Project(team=team, slug=slug, name=name)
    project.full_clean()
    project.save()
    return project
