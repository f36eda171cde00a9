"""`poolkeeper`: Poolkeeper's command line, for people and for scripts.

`main` is the root. It imports the module of a noun (`pools`, `policies`, `requests` …) only when it is used, so that the
program starts at once. A verb is a click command of the class `command_base.VerbCommand`, which adds the global options and
shows an example in its help. `output` prints results on stdout, and nothing else goes there: a table for people; JSON, YAML or
bare names for programs. Messages go to stderr. The program ends with an `exit_codes.ExitCode`; `error_output` prints errors.
"""
