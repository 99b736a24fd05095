"""A team's members and its secrets."""

from typing import Any

from django.db import transaction
from django.http import Http404
from django.views.decorators.debug import sensitive_variables
from rest_framework.request import Request

from webapp.api.base import IF_MATCH, InTeam, digest_of, operation
from webapp.api.serializers.people import (
    MemberChanges,
    MembershipSerializer,
    NewMember,
    NewMembershipSerializer,
    SecretBody,
    SecretSerializer,
)
from webapp.teams import secret_services, selectors, services
from webapp.teams.models import Role, Team, TeamSecret
from webapp.teams.permissions import Capability

TAG = "Teams"
ONLY_OWNERS = "Only an owner makes somebody an owner, and takes that away; a team keeps at least one."


class MembersView(InTeam):
    capabilities = {"POST": Capability.MANAGE}

    @operation("listMembers", "Everyone in the team", tag=TAG, paged=MembershipSerializer)
    def get(self, request: Request, query: Any) -> Any:
        return self.team.memberships.select_related("user"), "created_at"

    @operation(
        "addMember",
        "Take a person into the team",
        tag=TAG,
        body=NewMember,
        answer=NewMembershipSerializer,
        status=201,
        description="Someone without an account gets one, with a password for the first time of signing in; hand it over, "
        f"nobody can see it again. {ONLY_OWNERS}",
    )
    def post(self, request: Request, body: Any) -> Any:
        made, password = services.add_member(team=self.team, by=self.role, email=body["email"], role=Role(body["role"]))
        made.one_time_password = password  # type: ignore[attr-defined]
        return made


class MemberView(InTeam):
    capabilities = {"PATCH": Capability.MANAGE, "DELETE": Capability.MANAGE}

    @operation(
        "changeMember",
        "Give a member another role",
        tag=TAG,
        body=MemberChanges,
        answer=MembershipSerializer,
        errors=(409,),
        description=ONLY_OWNERS,
    )
    def patch(self, request: Request, membership: int, body: Any) -> Any:
        found = selectors.membership_in(self.team, membership)
        return services.change_member(membership=found, by=self.role, role=Role(body["role"]))

    @operation(
        "removeMember",
        "Take a member out of the team",
        tag=TAG,
        status=204,
        errors=(409,),
        description=f"What they launched stays. {ONLY_OWNERS}",
    )
    def delete(self, request: Request, membership: int) -> None:
        services.expel_member(membership=selectors.membership_in(self.team, membership), by=self.role)


def stored(secret: TeamSecret) -> str:
    """The ETag of a secret: another one after each storing."""
    return digest_of(secret.pk, secret.changed_at.isoformat())


class SecretsView(InTeam):
    capabilities = {"GET": Capability.MANAGE}

    @operation("listSecrets", "The team's secrets, without their values", tag=TAG, paged=SecretSerializer)
    def get(self, request: Request, query: Any) -> Any:
        return selectors.secrets_of(self.team), "name"


class SecretView(InTeam):
    capabilities = {"GET": Capability.MANAGE, "PUT": Capability.MANAGE, "DELETE": Capability.MANAGE}

    @operation("getSecret", "A secret, without its value", tag=TAG, answer=SecretSerializer, etag=stored)
    def get(self, request: Request, name: str) -> Any:
        return selectors.secret_in(self.team, name)

    @operation(
        "setSecret",
        "Store a secret, or replace its value",
        tag=TAG,
        body=SecretBody,
        answer=SecretSerializer,
        errors=(412,),
        extra=(IF_MATCH,),
        etag=stored,
        description="The name is the environment variable in which runs that name it find the value.",
    )
    @sensitive_variables("body")
    def put(self, request: Request, name: str, body: Any) -> Any:
        with transaction.atomic():
            self._check(name)
            return secret_services.set_secret(team=self.team, name=name, value=body["value"], user=self.user)

    @operation(
        "deleteSecret",
        "Delete a secret",
        tag=TAG,
        status=204,
        errors=(412,),
        extra=(IF_MATCH,),
        description="Runs that name it cannot be started or resumed any more.",
    )
    def delete(self, request: Request, name: str) -> None:
        with transaction.atomic():
            self._check(name)
            try:
                secret_services.delete_secret(team=self.team, name=name)
            except TeamSecret.DoesNotExist as error:
                raise Http404 from error

    def _check(self, name: str) -> None:
        """Locks the team, so that nobody stores another value meanwhile."""
        Team.objects.select_for_update(no_key=True).get(pk=self.team.pk)
        found = TeamSecret.objects.filter(team=self.team, name=name).first()
        self.check_unchanged(stored(found) if found is not None else "")
