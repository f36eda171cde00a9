"""The page `/docs`: Swagger UI from its Python package, so that it needs no other host."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from flask import Response, abort, redirect, send_from_directory

from app.api.routes import PREFIX
from app.api.views import View

FILES = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
POLICY = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Poolkeeper API</title>
<meta name="color-scheme" content="light dark">
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="stylesheet" href="/docs/page.css">
<link rel="icon" href="/docs/favicon-32x32.png">
<script src="/docs/theme.js"></script>
</head>
<body>
<header><a href="/">Poolkeeper</a> <span>API</span></header>
<div id="api"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
START_SCRIPT = f"""SwaggerUIBundle({{
  url: "{PREFIX}/openapi.json", dom_id: "#api", deepLinking: true, displayRequestDuration: true, validatorUrl: null,
}});
"""
THEME_SCRIPT = """const dark = matchMedia("(prefers-color-scheme: dark)");
const setTheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
setTheme();
dark.addEventListener("change", setTheme);
"""
"""Swagger UI is dark if the page has the class `dark-mode`."""
STYLE = """body { margin: 0; }
header { padding: 12px 20px; border-bottom: 1px solid #d9e0e2; font: 15px/1.4 system-ui, sans-serif; color: #56646a; }
header a { margin-right: 10px; font-weight: 650; color: #135e67; }
.dark-mode header { border-color: #2d383c; color: #a0afb4; }
.dark-mode header a { color: #7fd0d9; }
"""


def _page() -> Response:
    return Response(PAGE, mimetype="text/html", headers={"Content-Security-Policy": POLICY + "frame-ancestors 'none'"})


def _file(name: str) -> Response:
    if name not in FILES:
        abort(404, "there is no such file")
    return send_from_directory(_folder(), name, max_age=3600)


def _folder() -> Path:
    package = find_spec("flask_swagger_ui")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "dist"


VIEWS = (
    View("GET", "/docs/", "docs folder", lambda: redirect("/docs")),  # type: ignore[arg-type, return-value]
    View("GET", "/docs", "docs", _page),
    View("GET", "/docs/start.js", "docs start", lambda: Response(START_SCRIPT, mimetype="text/javascript")),
    View("GET", "/docs/theme.js", "docs theme", lambda: Response(THEME_SCRIPT, mimetype="text/javascript")),
    View("GET", "/docs/page.css", "docs style", lambda: Response(STYLE, mimetype="text/css")),
    View("GET", "/docs/<name>", "docs file", _file),
)
"""The views of the page and its files."""
