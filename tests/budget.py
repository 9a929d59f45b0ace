"""The size of the tree: what every run of the tests prints, and the limits that a change may not exceed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "r2med"
LIMITS = {"lines": 70_000, "modules": 350}
"""What the tree may have at most; lower a limit when the tree has shrunk."""
_RELATIVE = re.compile(r"(What|How|Whether|Where|Which|Who)\b")


def measure_tree() -> dict[str, float]:
    """Return lines, modules without `__init__`, the share of private functions that are used once, and docstrings of
    functions that begin with a relative word.
    """
    files = {path: path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    functions = once = relative = 0
    for text in files.values():
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            functions += 1
            relative += bool(_RELATIVE.match(ast.get_docstring(node) or ""))
            private = node.name.startswith("_") and not node.name.startswith("__")
            once += private and len(re.findall(rf"\b{node.name}\b", text)) == 2
    return {
        "lines": sum(len(text.splitlines()) for text in files.values()),
        "modules": sum(path.name != "__init__.py" for path in files),
        "private functions used once": once / functions,
        "docstrings with a relative word": relative,
    }


def describe_tree() -> str:
    """Return one line with the size of the tree beside its limits."""
    size = measure_tree()
    parts = [f"{size[name]:,.0f} {name} (at most {limit:,})" for name, limit in LIMITS.items()]
    parts.append(f"{size['private functions used once']:.0%} of the functions private and used once")
    parts.append(f"{size['docstrings with a relative word']:,.0f} docstrings that begin with What, How, Whether, ...")
    return f"src: {', '.join(parts)}"
