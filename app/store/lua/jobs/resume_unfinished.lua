-- Go on with what bounded scripts left unfinished.
-- @use clock requests rounds
-- @args now kept chunk
-- @reply advanced more

clock.start(args.now)
requests.keep(args.kept)
return reply.advanced(rounds.advance(tonumber(args.chunk)))
