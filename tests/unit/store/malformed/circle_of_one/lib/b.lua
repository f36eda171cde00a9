-- Know b.
-- @use b

function b.count() return b.count() end
