"""What all operations share: strict bodies and queries, pages, errors."""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from webapp.api.pagination import DEFAULT_LIMIT, LARGEST_LIMIT
from webapp.api.parsing import is_storable


class Strict(serializers.Serializer):
    """Something that is sent: unknown fields are errors. `lists` names the query parameters that may be repeated."""

    lists: ClassVar[tuple[str, ...]] = ()

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = [name for name in data if name not in self.fields]
            if unknown:
                known = ", ".join(self.fields) or "none"
                raise serializers.ValidationError(dict.fromkeys(unknown, f"is not known here; known are: {known}."))
            for name, value in data.items():
                if isinstance(value, str) and not is_storable(value):
                    raise serializers.ValidationError({name: "holds a NUL or half a surrogate pair."})
        return super().to_internal_value(data)


class TextField(serializers.CharField):
    """A JSON string as it is: a number is no text, and blanks at the ends stay."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError(f"Expected a string, found {type(data).__name__}.")
        text: str = super().to_internal_value(data)
        return text


class FlagField(serializers.BooleanField):
    """true or false, in a query as words; nothing that merely resembles one."""

    def to_internal_value(self, data: Any) -> bool:
        if isinstance(data, bool):
            return data
        if data in ("true", "false") and isinstance(self.parent, PageQuery):
            return bool(data == "true")
        raise serializers.ValidationError(f"Expected true or false, found {data!r}.")


@extend_schema_field({"type": "string", "minLength": 1, "maxLength": 120, "pattern": r"\S"})
class NameField(TextField):
    """What something is called: not only blanks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 120, **options})

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not text.strip():
            raise serializers.ValidationError("is empty; expected some words.")
        return text


class PageQuery(Strict):
    """Which part of a list."""

    limit = serializers.IntegerField(
        min_value=1, max_value=LARGEST_LIMIT, default=DEFAULT_LIMIT, help_text="Rows in the answer at most."
    )
    cursor = TextField(required=False, help_text="`next_cursor` of the answer before.")


class FieldErrorSerializer(serializers.Serializer):
    """Where something is wrong (dotted path; empty: as a whole), and what."""

    path = serializers.CharField(allow_blank=True)
    message = serializers.CharField()


class ErrorBodySerializer(serializers.Serializer):
    """`code` is stable, `message` is for people."""

    code = serializers.CharField()
    message = serializers.CharField()
    fields = FieldErrorSerializer(many=True)  # type: ignore[assignment]
    details = serializers.DictField()
    request_id = serializers.CharField()


class ErrorSerializer(serializers.Serializer):
    """Every answer from 400 on."""

    error = ErrorBodySerializer()


@cache
def page_serializer(row: type[serializers.Serializer]) -> type[serializers.Serializer]:
    """The serializer of a page of such rows."""
    name = row.__name__.removesuffix("Serializer")
    fields = {
        "__doc__": f"A page of {name}.",
        "results": row(many=True, source="rows"),
        "next_cursor": serializers.CharField(allow_null=True, help_text="For `?cursor=`; null at the end."),
    }
    return type(f"{name}PageSerializer", (serializers.Serializer,), fields)
