"""The address scheme: the whole view is in the URL.

    /p/<team>/<project>/...    everything in a project; the query string holds filters, selections and axes
    /t/<team>/...              the team itself: people, projects
    /sign-in, /password, /healthz ...   what belongs to no team

An app's `urls.py` puts its routes below a project with `in_project`, and its views carry `@project_view`:

    app_name = "runs"
    urlpatterns = [
        in_project(
            path("runs/", views.index, name="index"),
            path("runs/<int:number>/", views.detail, name="detail"),
        )
    ]

    {% url "runs:detail" project.team.slug project.slug run.number %}
"""

from django.urls import URLPattern, URLResolver, include, path


def in_project(*routes: URLPattern | URLResolver) -> URLResolver:
    """These routes, below /p/<team>/<project>/."""
    return path("p/<slug:team>/<slug:project>/", include(list(routes)))
