-- Read a task, without its message.
-- @use tasks
-- @args task
-- @reply found task request
-- @reply not_found

if not tasks.load(args.task) then return reply.not_found() end
return reply.found(tasks.describe(args.task))
