"""Which language a reader has."""

import os


def choose_language(asked: str | None, environ: dict[str, str] | None = None) -> str:
    """The language of people-facing text: `asked`, else ALLREADY_LANG, LC_ALL, LC_MESSAGES, LANG, else English."""
    if asked:
        return asked
    environ = dict(os.environ) if environ is None else environ
    for name in ("ALLREADY_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"
