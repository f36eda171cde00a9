-- Know b.
-- @use a

function b.count() return a.count() end
