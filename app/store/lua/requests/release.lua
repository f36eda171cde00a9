-- Give allocations back one after the other, and grant after each what then fits.
-- @use clock grant_loop releases requests
-- @args now kept chunk held
-- @reply taken outcomes more

clock.start(args.now)
requests.set_stream_length(args.kept)

local outcomes, more = {}, 0
for i, held in ipairs(cjson.decode(args.held)) do
  local tag, request, reason = releases.release(held[1], held[2], held[3])
  more = math.max(more, grant_loop.settle(tonumber(args.chunk)))
  if tag == 'released' and held[3] == 'vacated' then request = requests.flat(requests.load(held[1])) end  -- it may be granted again
  outcomes[i] = {tag, request, reason}
end
return reply.taken(outcomes, more)
