-- The work budget of a call: about 5 ms of Redis commands. Work that may be long stops when it is used up, and a later call
-- resumes it.

-- True if no more work should begin in this call.
function work_budget.is_used_up() return server_calls.count >= const.MAX_STEPS end
