-- Admit requests one after the other, each wholly: granted at once, queued or rejected.
-- @use admission clock grant_loop requests
-- @args now events_kept chunk remember_s specs
-- @reply taken outcomes more

clock.start(args.now)
requests.set_stream_length(args.events_kept)

local outcomes, more = {}, 0
for i, spec in ipairs(cjson.decode(args.specs)) do
  local tag, request = admission.admit(spec, args.remember_s)
  more = math.max(more, grant_loop.settle(tonumber(args.chunk)))
  outcomes[i] = {tag, request}
end
return reply.taken(outcomes, more)
