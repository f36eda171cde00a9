-- How the composed scripts are judged: by what a script may use on Redis, on Valkey and on fakeredis alike.
std = "lua51"
not_globals = {
   "arg", "collectgarbage", "debug", "dofile", "getfenv", "io", "load", "loadfile", "loadstring",
   "module", "newproxy", "os", "package", "print", "require", "setfenv",
}
read_globals = {
   "KEYS",
   "ARGV",
   cjson = {fields = {"decode", "null"}}, -- what it encodes differs from server to server
   redis = {fields = {"call", "pcall", "error_reply", "status_reply", "log", "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"}},
}
allow_defined = false
max_line_length = false -- a composed script also carries generated tables
