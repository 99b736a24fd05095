"""How static files are stored for serving."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticStorage(CompressedManifestStaticFilesStorage):
    """Compressed files with the content's hash in the name, so that browsers may keep them for ever.

    Imports between our ES modules are rewritten to the hashed names as well.
    """

    support_js_module_import_aggregation = True
