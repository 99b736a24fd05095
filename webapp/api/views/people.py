"""Who asks, their tokens, teams and projects."""

from typing import Any

from django.shortcuts import get_object_or_404
from rest_framework.request import Request

from webapp.accounts.selectors import tokens_of
from webapp.accounts.services import revoke_token
from webapp.api.base import ApiView, InProject, InTeam, operation
from webapp.api.serializers.people import (
    NewProject,
    ProjectSerializer,
    TeamDetailSerializer,
    TeamSerializer,
    TokenSerializer,
    WhoamiSerializer,
)
from webapp.projects.selectors import visible_projects
from webapp.projects.services import create_project
from webapp.teams.permissions import Capability
from webapp.teams.selectors import memberships_of, teams_of

TAG = "People and projects"


class WhoamiView(ApiView):
    @operation("whoami", "Whom the request speaks for", tag=TAG, answer=WhoamiSerializer)
    def get(self, request: Request) -> Any:
        return {"name": self.user.name, "email": self.user.email, "token": self.token}


class TokensView(ApiView):
    @operation(
        "listTokens",
        "One's own tokens, newest first",
        tag=TAG,
        paged=TokenSerializer,
        description="New tokens are made by people, on the page Access tokens.",
    )
    def get(self, request: Request, query: Any) -> Any:
        return tokens_of(self.user), "-created_at"


class TokenView(ApiView):
    @operation(
        "revokeToken",
        "Revoke one of one's own tokens",
        tag=TAG,
        status=204,
        description="Also the one that the request carries. Needs no scope beyond that of seeing.",
    )
    def delete(self, request: Request, public_id: str) -> Any:
        revoke_token(token=get_object_or_404(tokens_of(self.user), public_id=public_id))


class TeamsView(ApiView):
    @operation("listTeams", "One's teams", tag=TAG, paged=TeamSerializer)
    def get(self, request: Request, query: Any) -> Any:
        teams = teams_of(self.user)
        if self.token is not None and self.token.within:
            teams = teams.filter(slug=self.token.within)
        return teams, "name"


class TeamView(InTeam):
    @operation("getTeam", "A team and who is in it", tag=TAG, answer=TeamDetailSerializer)
    def get(self, request: Request) -> Any:
        self.team.my_role, self.team.everyone = self.role, memberships_of(self.team)  # type: ignore[attr-defined]
        return self.team


class TeamProjectsView(InTeam):
    capabilities = {"POST": Capability.MANAGE}

    @operation(
        "createProject",
        "Make a project in the team",
        tag=TAG,
        body=NewProject,
        answer=ProjectSerializer,
        status=201,
        repeatable=True,
    )
    def post(self, request: Request, body: Any) -> Any:
        return create_project(team=self.team, slug=body["slug"], name=body["name"].strip())


class ProjectsView(ApiView):
    @operation("listProjects", "The projects of one's teams", tag=TAG, paged=ProjectSerializer)
    def get(self, request: Request, query: Any) -> Any:
        projects = visible_projects(self.user)
        if self.token is not None and self.token.within:
            team, _, project = self.token.within.partition("/")
            projects = projects.filter(team__slug=team)
            projects = projects.filter(slug=project) if project else projects
        return projects, "name"


class ProjectView(InProject):
    @operation("getProject", "A project", tag=TAG, answer=ProjectSerializer)
    def get(self, request: Request) -> Any:
        return self.project
