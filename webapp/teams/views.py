"""The team's pages."""

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.core.encryption import fingerprints
from webapp.teams import secret_services, selectors
from webapp.teams.forms import SecretForm
from webapp.teams.models import TeamSecret
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


@sensitive_post_parameters("value")
@sensitive_variables("form")
@require_http_methods(["GET", "HEAD", "POST"])
def secrets(request: HttpRequest, team: str) -> HttpResponse:
    """The list, and a form that adds a secret or replaces one."""
    found, _role = selectors.team_for(request.user, team, Capability.MANAGE)
    form = SecretForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            secret = secret_services.set_secret(team=found, user=request.user, **form.cleaned_data)  # type: ignore[arg-type]
        except ValidationError as error:
            form.add_error("value" if error.code == "secret_value" else "name", error)
        else:
            messages.success(request, f"{secret.name} is stored. Runs that name it get it when they start.")
            return redirect("teams:secrets", found.slug)
    context = {"team": found, "form": form, "secrets": selectors.secrets_of(found), "keys": fingerprints()}
    return render(request, "teams/secrets.html", context)


@require_POST
def delete_secret(request: HttpRequest, team: str, name: str) -> HttpResponse:
    """Takes the secret away."""
    found, _role = selectors.team_for(request.user, team, Capability.MANAGE)
    try:
        secret_services.delete_secret(team=found, name=name)
    except TeamSecret.DoesNotExist as error:
        raise Http404 from error
    messages.success(request, f"{name} is deleted. Runs that name it cannot be started or resumed.")
    return redirect("teams:secrets", found.slug)
