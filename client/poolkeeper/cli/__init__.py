"""`poolkeeper`: Poolkeeper's command line, for people and for scripts.

`main` is the root and imports a noun's module (`pools`, `policies`, `requests` …) only when that noun is used, so that the
program starts at once. A verb is a click command of the class `grammar.Verb`, which takes the options every verb takes and has
an example in its help. What a verb has to say goes through `output`: a table for people, JSON or YAML or bare names for
programs, on stdout and nothing else there; messages go to stderr. What can go wrong is one of `exits.Exit`, and `refusals` puts
it into words.
"""
