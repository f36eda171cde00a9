-- The work budget of a call: a number of Redis commands, which take 1 to 2 ms. When it is used up, no more work begins, and a later
-- call resumes the rest.

server_calls.start()  -- runs when the budget is first needed: what a call does before is one item, whose size is bounded

-- True if no more work should begin in this call.
function work_budget.is_used_up() return server_calls.count >= const.MAX_STEPS end
