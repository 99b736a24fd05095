"""How static files are stored for serving."""

from whitenoise.storage import CompressedManifestStaticFilesStorage

# Only our own modules, and only statements at the start of a line: packages' files carry import examples in comments.
_IMPORTS = (
    "js/*.js",
    (
        (
            r"""(?m)^(?P<matched>(?P<what>(?:import|export)\s[^;"']*?\sfrom)\s*["'](?P<url>\./[^"']+)["'];)""",
            """%(what)s "%(url)s";""",
        ),
        (
            r"""(?m)^(?P<matched>import\s*["'](?P<url>\./[^"']+)["'];)""",
            """import "%(url)s";""",
        ),
    ),
)


class StaticStorage(CompressedManifestStaticFilesStorage):
    """Compressed files with the content's hash in the name, so that browsers may keep them for ever.

    `import ... from "./other.js"` between the modules in `static/js` is rewritten to the hashed name as well.
    """

    patterns = (CompressedManifestStaticFilesStorage.patterns[0], _IMPORTS)
