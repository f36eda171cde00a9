-- The rules for composed scripts: they allow what Redis, Valkey and fakeredis have in common.
std = "lua51"
not_globals = {
   "arg", "collectgarbage", "debug", "dofile", "getfenv", "io", "load", "loadfile", "loadstring",
   "module", "newproxy", "os", "package", "print", "require", "setfenv",
}
read_globals = {
   "KEYS",
   "ARGV",
   cjson = {fields = {"decode", "null"}}, -- cjson.encode differs between servers
   redis = {fields = {"call", "pcall", "error_reply", "status_reply", "log", "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"}},
}
allow_defined = false
max_line_length = false -- composed scripts contain generated tables
