-- Resume the work that bounded scripts left unfinished.
-- @use clock requests unfinished_work
-- @args now events_kept chunk
-- @reply advanced more

clock.start(args.now)
requests.set_stream_length(args.events_kept)
return reply.advanced(unfinished_work.resume(tonumber(args.chunk)))
