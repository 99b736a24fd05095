"""The team's page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.teams import selectors
from webapp.teams.permissions import Capability, allows


@require_safe
def detail(request: HttpRequest, team: str) -> HttpResponse:
    found, role = selectors.team_for(request.user, team)
    context = {
        "team": found,
        "role": role,
        "memberships": selectors.memberships_of(found),
        "can_manage": allows(role, Capability.MANAGE),
    }
    return render(request, "teams/detail.html", context)
