"""The schema: how drf-spectacular describes the two ways to sign in, and the configuration's own schema."""

from functools import cache
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer

from webapp.methods.library import document_schemas

LAUNCH_DOCUMENT = "LaunchDocument"


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """A token in the header Authorization."""

    target_class = "webapp.api.auth.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A token of the page Access tokens."}


class BrowserScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """A browser's session."""

    target_class = "webapp.api.auth.BrowserAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": "unsqueeze_session",
            "description": "For scripts of our own pages; what changes something needs the header X-CSRFToken.",
        }


class StrictScheme(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """What is sent has no other fields."""

    target_class = "webapp.api.serializers.common.Strict"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        found: dict[str, Any] = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        return found | {"additionalProperties": False}


def complete(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Adds the schemas of a run's configuration, which the trainer's own classes give; says each error once."""
    schemas = result["components"].setdefault("schemas", {})
    schemas.update(document_schemas(LAUNCH_DOCUMENT, "#/components/schemas/"))
    result["components"]["schemas"] = dict(sorted(schemas.items()))
    shared = result["components"].setdefault("responses", {})
    for ways in result["paths"].values():
        for one in ways.values():
            for code in [code for code, what in one["responses"].items() if code >= "400" and "content" in what]:
                shared[f"Error{code}"] = one["responses"][code]
                one["responses"][code] = {"$ref": f"#/components/responses/Error{code}"}
            one["responses"] = dict(sorted(one["responses"].items()))
    result["components"]["responses"] = dict(sorted(shared.items()))
    return result


@cache
def schema() -> dict[str, Any]:
    """The whole description. It depends on the code alone."""
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return found


@cache
def schema_text() -> str:
    """The same as YAML, as docs/openapi.yaml keeps it."""
    text: bytes = OpenApiYamlRenderer().render(schema(), renderer_context={})
    return text.decode()
