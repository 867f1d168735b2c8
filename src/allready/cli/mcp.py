"""`allready mcp`: a server of the Model Context Protocol over standard input and output, for agents.

Its tools only read.  Each runs a command of allready as a process of its own, with a time limit, and gives its JSON cut
to a size that fits an agent's context.
"""

import argparse
import functools
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from allready.cli.main import EXIT_HEALTHY, EXIT_UNCHECKED
from allready.errors import UsageError
from allready.text.usage import usage_text

EPILOG = """\
  allready mcp --root /logs --root ~/runs        serve; tools read files below these folders only
  allready mcp --skill                           print a SKILL.md for an agent
  {"mcpServers": {"allready": {"command": "allready", "args": ["mcp", "--root", "/logs"]}}}
Tools: diagnose, explain_line, doctor, env_lint, env_explain, explain. None writes, and none starts a job.
Exit codes: 0, 2 usage, 3 the package mcp is missing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `mcp`."""
    parser.add_argument(
        "--root", action="append", default=[], metavar="DIR", help="folder whose files tools may read; may be repeated"
    )
    parser.add_argument("--skill", action="store_true", help="print the instructions for an agent, and exit")


def run(args: argparse.Namespace) -> int:
    """Serve until standard input ends."""
    if args.skill:
        sys.stdout.write((resources.files("allready.text") / "SKILL.md").read_text(encoding="utf-8"))
        return EXIT_HEALTHY
    roots = [Path(root).expanduser() for root in args.root]
    for root in roots:
        if not root.is_dir():
            raise UsageError("--root {path}: this is no folder", path=root)
    found = _server_classes()
    if found is None:
        text = usage_text("the package mcp is not installed; install it with: pip install 'mcp>=1.9'")
        sys.stderr.write(f"allready mcp: {text}\n")
        return EXIT_UNCHECKED
    from allready.cli.mcp_tools import DESCRIPTION, Tools

    server_class, error_class = found
    server = server_class("allready", instructions=DESCRIPTION)
    for tool in Tools([root.resolve() for root in roots]).all():
        server.tool(annotations=_read_only())(_with_tool_errors(tool, error_class))
    server.run("stdio")
    return EXIT_HEALTHY


def _with_tool_errors(tool: Callable[..., Any], error_class: type[Exception]) -> Callable[..., Any]:
    """The tool with its refusals as the SDK's own errors: of any other exception the SDK tells no client the reason."""
    from allready.cli.mcp_tools import ToolError

    @functools.wraps(tool)
    def answered(*args: Any, **kwargs: Any) -> Any:
        try:
            return tool(*args, **kwargs)
        except ToolError as error:
            raise error_class(str(error)) from error

    return answered


def _server_classes() -> tuple[Callable[..., Any], type[Exception]] | None:
    """The server of the official SDK, whichever release is installed, and its error for a tool."""
    import importlib

    for module, name in (("mcp.server.mcpserver", "MCPServer"), ("mcp.server.fastmcp", "FastMCP")):
        try:
            found: Callable[..., Any] = getattr(importlib.import_module(module), name)
            error_class: type[Exception] = importlib.import_module(f"{module}.exceptions").ToolError
        except (ImportError, AttributeError):
            continue
        return found, error_class
    return None


def _read_only() -> Any:
    from mcp.types import ToolAnnotations

    return ToolAnnotations(readOnlyHint=True, destructiveHint=False, idempotentHint=True, openWorldHint=False)
