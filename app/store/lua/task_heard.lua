-- A worker of the task has heard that it will never run: nothing is kept of it.
-- @use outbox tasks
-- @args task
-- @reply heard
-- @reply conflict status
-- @reply not_found

local task = tasks.load(args.task)
if not task then return reply.not_found() end
local request = tasks.request(task)
if not tasks.are_over(task, request) then return reply.conflict(request and request.status or 'delayed') end
outbox.forget(task.id)
return reply.heard()
