"""Celery's side of Poolkeeper: the app, its beat and its tasks will live here; until then `poolkeeperd up` keeps house."""
