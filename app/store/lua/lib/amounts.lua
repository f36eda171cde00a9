-- Amounts as text, `gpu=2,step_run=1` with the keys in order, and whole numbers as Redis takes them.

local decoded = {}

function amounts.format(number)
  return string.format('%d', number)  -- exact to 2^63, and cheaper than %.0f
end

function amounts.decode(text)
  local ask = decoded[text]
  if not ask then
    ask = {keys = {}, of = {}}
    for key, count in string.gmatch(text, '([^=,]+)=(%d+)') do
      ask.keys[#ask.keys + 1] = key
      ask.of[key] = tonumber(count)
    end
    decoded[text] = ask
  end
  return ask
end
