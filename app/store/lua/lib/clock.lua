-- The time of a call: the caller's argument, else the time of Redis. It is read once and stays the same during the call.

function clock.start(now)
  if now ~= '' then
    clock.now = tonumber(now)
  else
    local time = redis.call('TIME')
    clock.now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
end

function clock.after(seconds)
  return clock.now + tonumber(seconds) * 1000
end
