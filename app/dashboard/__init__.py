"""HTML pages over the services: rendered on the server, refreshed in the browser, usable without JavaScript.

A page is a row of the table in `routes.py`: method, rule, permission and handler. `session.py` reads the user from a cookie,
which holds the secret of a token and nothing else. A revoked token therefore ends the session at the next request, in every
process, and no session is stored. The part of a page that changes is an element of its own (`live`). A stream announces changes
(`live_updates.py`), and the browser then asks for that part again and morphs the page into it.

Every change takes the same three steps (`actions.py`): the form, the dry run, and the change itself if the dry run still holds.
"""

from app.dashboard.routes import add_dashboard

__all__ = ["add_dashboard"]
