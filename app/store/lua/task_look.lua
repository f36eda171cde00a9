-- What is known of a task, but for its message.
-- @use tasks
-- @args task
-- @reply found task
-- @reply not_found

local task = tasks.load(args.task)
if not task then return reply.not_found() end
return reply.found(tasks.flat(task))
