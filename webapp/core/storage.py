"""How static files are stored for serving."""

from whitenoise.storage import CompressedManifestStaticFilesStorage

# Only our own modules, and only statements at the start of a line: packages' files carry import examples in comments.
_IMPORTS = (
    "js/*.js",
    (
        (
            r"""(?m)^(?P<matched>(?P<what>(?:import|export)\s[^;"']*?\sfrom)\s*["'](?P<url>\.{1,2}/[^"']+)["'];)""",
            """%(what)s "%(url)s";""",
        ),
        (
            r"""(?m)^(?P<matched>import\s*["'](?P<url>\.{1,2}/[^"']+)["'];)""",
            """import "%(url)s";""",
        ),
    ),
)


class StaticStorage(CompressedManifestStaticFilesStorage):
    """Compressed files with the content's hash in the name, so that browsers may keep them for ever.

    Relative imports between the modules in `static/js` are rewritten to the hashed names as well.
    """

    patterns = (CompressedManifestStaticFilesStorage.patterns[0], _IMPORTS)
