-- Know a.
-- @use b

function a.count() return b.count() end
