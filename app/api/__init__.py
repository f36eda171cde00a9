"""HTTP in, service, HTTP out. Nothing is decided here.

`routes.py` is the table of everything there is: verb, path, who may, the handler. A handler is a plain function of typed
arguments; what it may be asked (`body`, `query`) and what it answers are its annotations, and `dispatch.py` fills the one and
writes the other. The OpenAPI document is made of the same table and the same annotations (`openapi.py`), so there is no second
description to keep in line. `errors.py` is the one table from what can go wrong to status and problem document.

A request goes through: an id → who is it (`access.py`) → may he → how often → what is asked (`dispatch.py`) → the handler →
the answer, one line in the log, one more in the counters. Long polls and event streams sit on counted seats
(`service/waiting.py`), so that a full house never keeps a submit from being answered.
"""
