-- Delete a task after its worker acknowledged that it will never run. `request` is the request that its message named; empty if none.
-- @use outbox tasks
-- @args task request
-- @reply heard
-- @reply conflict status
-- @reply not_found

local task = tasks.load(args.task)
if not task then return reply.not_found() end
local request = tasks.request(task)
local is_current = args.request == task.request or args.request == '' and (task.ended or not request)
if not (is_current and tasks.is_over(task, request)) then return reply.conflict(request and request.status or 'delayed') end
outbox.delete_task(task.id)
return reply.heard()
