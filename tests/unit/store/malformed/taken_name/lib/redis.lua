-- Know redis.

function redis.count() return 1 end
