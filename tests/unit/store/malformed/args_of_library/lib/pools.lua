-- Know pools.
-- @args now

function pools.count() return 1 end
