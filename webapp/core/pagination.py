"""Pages of a list whose number stands in the URL."""

from typing import Any

from django.core.paginator import Page, Paginator
from django.http import HttpRequest

PER_PAGE = 50


def page_of(rows: Any, request: HttpRequest, *, per_page: int = PER_PAGE) -> "Page[Any]":
    """The page that `?page=` asks for; a number beyond the ends gives the nearest one. Show links with
    `core/_pagination.html`.
    """
    return Paginator(rows, per_page).get_page(request.GET.get("page"))
