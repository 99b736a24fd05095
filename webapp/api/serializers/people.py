"""Who asks, teams and projects."""

from typing import Any

from django.urls import reverse
from rest_framework import serializers

from webapp.accounts.models import Scope
from webapp.api.serializers.common import NameField, Strict, TextField
from webapp.core.encryption import fingerprints
from webapp.projects.models import Project
from webapp.teams.models import Role, TeamSecret
from webapp.teams.secret_services import LONGEST

SLUG = r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$"


class TokenSerializer(serializers.Serializer):
    """A token, without its secret."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(Scope.values))
    within = serializers.CharField(help_text="Address of the only team or project that it opens; empty: all.")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class PersonSerializer(serializers.Serializer):
    """Someone with an account."""

    name = serializers.CharField()
    email = serializers.EmailField()


class WhoamiSerializer(PersonSerializer):
    """Whom the request speaks for; `token` is null in a browser's session."""

    token = TokenSerializer(allow_null=True)


class TeamSerializer(serializers.Serializer):
    """A team, and the person's role in it."""

    slug = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField(Role.values, source="my_role")
    url = serializers.SerializerMethodField()

    def get_url(self, team: Any) -> str:
        return reverse("api:team", args=[team.slug])


class MembershipSerializer(serializers.Serializer):
    """One person's role in a team."""

    id = serializers.IntegerField(source="pk")
    person = PersonSerializer(source="user")
    role = serializers.ChoiceField(Role.values)
    since = serializers.DateTimeField(source="created_at")


class NewMembershipSerializer(MembershipSerializer):
    """Who was added; whoever has an account already signs in as before."""

    one_time_password = serializers.CharField(
        allow_blank=True, help_text="Of an account that was made for this; shown here only. Empty: there was one."
    )


class NewMember(Strict):
    """Whom to add, and as what."""

    email = TextField(max_length=254)
    role = serializers.ChoiceField(Role.values)


class MemberChanges(Strict):
    """Another role."""

    role = serializers.ChoiceField(Role.values)


class SecretSerializer(serializers.Serializer):
    """A secret without its value, which nobody can read again."""

    name = serializers.CharField()
    readable = serializers.SerializerMethodField(help_text="This server has the key that it was encrypted with.")
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField(source="created_by.name", default=None, allow_null=True)
    changed_at = serializers.DateTimeField()
    changed_by = serializers.CharField(source="changed_by.name", default=None, allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    last_run = serializers.CharField(help_text="Id of the run that got it last; empty: none did.")
    last_project = serializers.CharField()

    def get_readable(self, secret: TeamSecret) -> bool:
        return secret.key in fingerprints()


class SecretBody(Strict):
    """The value; blanks at its ends are no part of it."""

    value = TextField(max_length=LONGEST)


class TeamDetailSerializer(TeamSerializer):
    """A team with everyone in it."""

    members = MembershipSerializer(many=True, source="everyone")


class ProjectSerializer(serializers.Serializer):
    """A project; `url` is the address of everything below it."""

    team = serializers.CharField(source="team.slug")
    slug = serializers.CharField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    url = serializers.SerializerMethodField()
    page = serializers.CharField(source="get_absolute_url", help_text="Where people see it.")

    def get_url(self, project: Project) -> str:
        return reverse("api:project", args=project.url_args)


class NewProject(Strict):
    """A project to make."""

    name = NameField(help_text="What the team calls it.")
    slug = TextField(max_length=40, help_text="How it appears in addresses: lower-case letters, digits, hyphens.")
