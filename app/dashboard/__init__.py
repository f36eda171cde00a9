"""Pages over what the services tell: made on the server, kept fresh in the browser, working without JavaScript as well.

A page is a row of the table in `site.py`: verb, rule, who may, the function that makes it. `door.py` says who is looking: the
cookie holds the secret of a token and nothing else, so a token that is revoked ends the visit at the next request, in whichever
process that is, and nothing has to be kept. The part of a page that changes is an element of its own (`live`): a stream says
that something has changed (`live.py`), and the browser asks for that part again and morphs what it has into it.

Whatever changes something goes the same three steps (`actions.py`): what is meant, what would come of it (a dry run, by the
code that would do it), and the deed, if what was shown still holds.
"""

from app.dashboard.routes import add_dashboard

__all__ = ["add_dashboard"]
