"""What each role may do."""

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404

from tests.conftest import Cast
from webapp.teams.models import Membership, Role
from webapp.teams.permissions import Capability, can, require
from webapp.teams.selectors import team_for
from webapp.teams.services import remove_member, set_role

RIGHTS = {
    "viewer": {"view"},
    "member": {"view", "launch", "edit"},
    "admin": {"view", "launch", "edit", "manage"},
    "owner": {"view", "launch", "edit", "manage"},
    "outsider": set(),
}


@pytest.mark.parametrize("who", RIGHTS)
def test_rights_of(who: str, cast: Cast) -> None:
    assert {str(one) for one in Capability if can(cast[who], cast.team, one)} == RIGHTS[who]


def test_nobody_may_do_nothing(cast: Cast) -> None:
    assert not any(can(AnonymousUser(), cast.team, one) for one in Capability)


def test_being_a_superuser_opens_no_team(cast: Cast) -> None:
    cast["outsider"].is_superuser = True
    assert not can(cast["outsider"], cast.team, Capability.VIEW)


def test_someone_switched_off_has_no_rights(cast: Cast) -> None:
    cast["owner"].is_active = False
    assert not can(cast["owner"], cast.team, Capability.VIEW)


def test_require_tells_outsiders_that_nothing_is_there(cast: Cast) -> None:
    with pytest.raises(Http404):
        require(cast["outsider"], cast.team, Capability.VIEW)
    with pytest.raises(Http404):
        team_for(cast["outsider"], cast.team.slug)


def test_require_names_the_lowest_role_that_suffices(cast: Cast) -> None:
    with pytest.raises(PermissionDenied, match="You are a viewer of this team; this needs the role member"):
        require(cast["viewer"], cast.team, Capability.LAUNCH)


def test_the_last_owner_can_neither_leave_nor_step_down(cast: Cast) -> None:
    with pytest.raises(ValidationError, match="only one owner"):
        remove_member(team=cast.team, user=cast["owner"])
    with pytest.raises(ValidationError, match="only one owner"):
        set_role(team=cast.team, user=cast["owner"], role=Role.ADMIN)
    set_role(team=cast.team, user=cast["admin"], role=Role.OWNER)
    remove_member(team=cast.team, user=cast["owner"])
    assert not Membership.objects.filter(team=cast.team, user=cast["owner"]).exists()


def test_a_person_has_one_role_in_a_team(cast: Cast) -> None:
    set_role(team=cast.team, user=cast["viewer"], role=Role.MEMBER)
    assert list(cast["viewer"].memberships.values_list("role", flat=True)) == ["member"]
