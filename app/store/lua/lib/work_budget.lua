-- The work budget of a call: a number of Redis commands, which take 1 to 2 ms. When it is used up, no more work begins, and a later
-- call resumes the rest.

server_calls.start()  -- runs at the first use of the budget: the work of a call before that is one item of bounded size

-- True if no more work should begin in this call.
function work_budget.is_used_up() return server_calls.count >= const.MAX_STEPS end
