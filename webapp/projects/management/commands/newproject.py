"""The first steps of an installation without the demo: a person, their team, a project."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from webapp.accounts.models import User
from webapp.accounts.services import create_user_with_one_time_password
from webapp.projects.models import Project
from webapp.projects.services import create_project
from webapp.teams.models import Team
from webapp.teams.services import create_team


class Command(BaseCommand):
    """Makes what is missing of owner, team and project, and prints a one-time password for a new person."""

    help = "Create a project, with its team and the team's owner where they don't exist yet."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email", help="the owner signs in with it")
        parser.add_argument("project", help="TEAM/PROJECT: how both appear in addresses, for example lab/countdown")

    @transaction.atomic
    def handle(self, *args: Any, email: str, project: str, **options: Any) -> None:
        team_slug, _, slug = project.partition("/")
        try:
            user = User.objects.filter(email=email.strip().lower()).first()
            if user is None:
                user, password = create_user_with_one_time_password(email)
                self.stdout.write(f"{user.email} signs in with the one-time password {password}")
            team = Team.objects.filter(slug=team_slug).first() or create_team(
                slug=team_slug, name=team_slug, owner=user
            )
            made = Project.objects.filter(team=team, slug=slug).first() or create_project(
                team=team, slug=slug, name=slug
            )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        self.stdout.write(f"project {'/'.join(made.url_args)} is at /p/{'/'.join(made.url_args)}/")
