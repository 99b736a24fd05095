"""The page of a team's people: taking somebody in, other roles, taking somebody out."""

from collections.abc import Callable

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from webapp.teams import selectors, services
from webapp.teams.forms import MemberForm, roles_of
from webapp.teams.models import Membership, Role, Team
from webapp.teams.permissions import Capability, can


@never_cache
@sensitive_variables("password")
@require_http_methods(["GET", "HEAD", "POST"])
def members(request: HttpRequest, team: str) -> HttpResponse:
    """GET: everyone with their role. POST: takes somebody in; whoever had no account gets one, and the answer alone shows
    its password.
    """
    found, role = selectors.team_for(request.user, team, Capability.MANAGE)
    form = MemberForm(request.POST if request.method == "POST" else None, by=role)
    added, password = None, ""
    if request.method == "POST" and form.is_valid():
        try:
            added, password = services.add_member(
                team=found, by=role, email=form.cleaned_data["email"], role=Role(form.cleaned_data["role"])
            )
        except ValidationError as error:
            form.add_error(None, error)
        else:
            if not password:
                messages.success(request, f"{added.user.name} is in the team now, as {added.role}.")
                return redirect("teams:members", found.slug)
            form = MemberForm(by=role)
    context = {
        "team": found,
        "role": role,
        "form": form,
        "roles": roles_of(role),
        "memberships": selectors.memberships_of(found),
        "added": added,
        "password": password,
    }
    return render(request, "teams/members.html", context, status=422 if form.errors else 200)


@require_POST
def change_member(request: HttpRequest, team: str, membership: int) -> HttpResponse:
    """Another role, `role`; refused when the one that the page showed, `was`, is no longer theirs."""

    def act(found: Membership, by: Role) -> str:
        wanted, was = request.POST.get("role", ""), request.POST.get("was", found.role)
        if wanted not in Role.values:
            raise ValidationError(f"There is no role {wanted!r}; nothing was changed.")
        if was != found.role:
            raise ValidationError(
                f"{found.user.name} was made {found.role} since this page was opened; nothing was changed."
            )
        changed = services.change_member(membership=found, by=by, role=Role(wanted))
        return f"The role of {changed.user.name} is {changed.role} now."

    return _act(request, team, membership, act)


@require_POST
def remove_member(request: HttpRequest, team: str, membership: int) -> HttpResponse:
    """Takes a person out of the team; what they launched stays."""

    def act(found: Membership, by: Role) -> str:
        services.expel_member(membership=found, by=by)
        return f"{found.user.name} is no longer in the team. What they launched stays."

    return _act(request, team, membership, act)


def _act(request: HttpRequest, slug: str, membership_id: int, act: Callable[[Membership, Role], str]) -> HttpResponse:
    """Does something with a membership, says how it went, and goes where the person still may look."""
    team, role = selectors.team_for(request.user, slug, Capability.MANAGE)
    try:
        said = act(selectors.membership_in(team, membership_id), role)
    except Http404:
        messages.warning(request, "This person is not in the team any more; nothing was changed.")
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    except PermissionDenied as error:
        messages.error(request, str(error))
    else:
        messages.success(request, said)
    return redirect(_after(request, team))


def _after(request: HttpRequest, team: Team) -> str:
    """People change themselves too: whoever lost the page goes to the team's, and whoever left the team goes home."""
    if not can(request.user, team, Capability.VIEW):
        return reverse("projects:index")
    page = "teams:members" if can(request.user, team, Capability.MANAGE) else "teams:detail"
    return reverse(page, args=[team.slug])
