-- Know pools.
-- @reply done

function pools.count() return 1 end
