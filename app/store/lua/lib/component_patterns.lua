-- The components of a token: `type/name`, or a pattern `type/beginning*` for all components of the type with that beginning.

local function matches(pattern, component)
  if string.sub(pattern, -1) ~= '*' then return pattern == component end
  return string.sub(component, 1, #pattern - 1) == string.sub(pattern, 1, -2)
end

-- True if the component is one of the list, or matches one of its patterns.
function component_patterns.include(patterns, component)
  for _, pattern in ipairs(patterns) do
    if matches(pattern, component) then return true end
  end
  return false
end
