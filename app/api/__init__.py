"""The HTTP API: reads requests, calls services, writes responses. It decides nothing.

`routes.py` is the table of all routes: method, path, permission, handler. A handler is a plain function. Its annotations name
the models of its body, its query string and its response; `request_handler.py` reads the former and writes the latter. The
OpenAPI document (`openapi.py`) is made from the same table and annotations. `errors.py` is the one table from exceptions to
statuses.

A request passes these steps: request id, authentication (`auth.py`), permission, rate limit, input (`request_handler.py`),
handler, response, access log and metrics. Long polls and event streams take a limited number of wait slots
(`service/wait_slots.py`), so that they never block a submit.
"""
