-- Know pools.

function pools.count()
  return args.now
end
