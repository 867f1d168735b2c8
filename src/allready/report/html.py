"""report.html: one file that needs no network, in both languages, safe against anything in a log or host name.

The template takes the report itself.  Whatever it shows passes `safe.plain` and the template engine's escaping; the
only markup put in unescaped is this package's own style and script, which the page's Content-Security-Policy pins by
hash.
"""

import base64
import functools
import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Any

from allready import units
from allready.model import Report, ranges
from allready.report.compiled import TemplateCache
from allready.report.page import page
from allready.report.safe import plain, shorten

if TYPE_CHECKING:
    from jinja2 import Template


def render(report: Report, *, language: str = "en") -> str:
    """The page, showing `language` ("en" or "zh") first; the reader can switch."""
    from markupsafe import Markup

    css, js = _file("report.css"), _file("report.js")
    return _template().render(
        **page(report, language),
        css=Markup(css),  # noqa: S704 - our own file
        js=Markup(js),  # noqa: S704 - our own file
        css_hash=_hash(css),
        js_hash=_hash(js),
    )


@functools.cache
def _file(name: str) -> str:
    return (resources.files("allready.report") / "templates" / name).read_text(encoding="utf-8").strip()


@functools.cache
def _template() -> "Template":
    from jinja2 import Environment, FunctionLoader, MemcachedBytecodeCache, StrictUndefined, compiler

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_file),
        finalize=_harmless,
        bytecode_cache=MemcachedBytecodeCache(TemplateCache(compiler.__file__, __file__), prefix=""),
    )
    environment.filters |= {
        "plain": lambda text, most: plain(text, most=most),
        "ranges": lambda numbers, columns=1 << 20: shorten(ranges(numbers), columns),
        "size": units.size,
        "time": units.time,
        "bandwidth": units.bandwidth,
    }
    return environment.get_template("report.html.j2")


def _harmless(value: Any) -> Any:
    """What every expression of the template passes; markup was made of harmless texts."""
    return plain(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
