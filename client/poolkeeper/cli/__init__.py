"""`poolkeeper`: Poolkeeper's command line, for people and for scripts.

`main` is the root and imports the module of a noun (`pools`, `policies`, `requests` …) only when it is used, so that the
program starts at once. A verb is a click command of the class `command_base.VerbCommand`, which adds the global options and
shows an example in its help. Results are printed by `output`: a table for people; JSON, YAML or bare names for programs; on
stdout, with nothing else there. Messages go to stderr. Every end of the program is an `exit_codes.ExitCode`, and
`error_output` describes it.
"""
