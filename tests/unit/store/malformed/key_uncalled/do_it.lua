-- Do it.
-- @reads pool
-- @reply done key

local make = keys.pool
return reply.done(make('p'))
