-- Polls of waiters. The queue TTL begins anew with each poll, so the deadline of a waiter tells when it was polled last.
-- @use amounts requests
-- @reads waiting

-- Return the time (ms) at which a waiter was last submitted, requeued or polled, as text; empty if it has no queue TTL.
function polls.last_ms(request)
  local ttl_s = request.status == states.queued and requests.queue_ttl_s(request)
  local deadline = ttl_s and redis.call('ZSCORE', keys.waiting(), request.id)
  return deadline and amounts.format(tonumber(deadline) - tonumber(ttl_s) * 1000) or ''
end

-- Return a loaded request as one flat list for a reply, with the time of its last poll; for a new request this is its submission.
function polls.flat(request, is_new)
  local last_ms = is_new and (requests.queue_ttl_s(request) and request.submitted_ms or '') or polls.last_ms(request)
  local flat = requests.flat(request)
  if last_ms == '' then return flat end
  flat[#flat + 1] = 'polled_ms'
  flat[#flat + 1] = last_ms
  return flat
end
