-- Know pools.

function pools.count() return 1 end
