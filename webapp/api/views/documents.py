"""The schema, and every address that is none."""

from typing import Any

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.request import Request

from webapp.api.base import ApiView, operation
from webapp.api.openapi import schema_text


class SchemaView(ApiView):
    @operation(
        "getSchema",
        "This description, as OpenAPI 3.1",
        tag="Library",
        raw={"application/vnd.oai.openapi": OpenApiTypes.STR},
    )
    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(schema_text(), content_type="application/vnd.oai.openapi; charset=utf-8")


class NothingView(ApiView):
    """Below /api/, what does not exist is an error like any other there."""

    authentication_classes = ()
    permission_classes = ()
    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise Http404


class OnlyReadView(NothingView):
    """What is no operation but a page refuses other methods as operations do."""

    @property
    def allowed_methods(self) -> list[str]:
        return ["GET", "HEAD"]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise MethodNotAllowed(str(request.method))
