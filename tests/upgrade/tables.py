"""Every row of every table, for a comparison: run as a process with an installation's own settings."""

from __future__ import annotations

import json
import sys

import django


def main() -> None:
    django.setup()
    from django.apps import apps

    json.dump(
        {
            model._meta.label: [
                # PostgreSQL keeps JSON objects with their keys in an order of its own.
                json.dumps(row, sort_keys=True, default=repr)
                for row in model._base_manager.order_by("pk").values_list(
                    *(field.attname for field in model._meta.local_concrete_fields)
                )
            ]
            for model in apps.get_models(include_auto_created=True)
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
