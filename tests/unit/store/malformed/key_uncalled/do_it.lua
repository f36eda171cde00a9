-- Do it.
-- @keys pool
-- @reply done key

local make = keys.pool
return reply.done(make('p'))
