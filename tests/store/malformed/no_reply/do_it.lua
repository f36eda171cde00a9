-- Do it.

return {'done'}
