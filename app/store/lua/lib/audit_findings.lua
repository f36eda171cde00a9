-- What an audit finds: what kind, where, what is there, what should be. Repaired on the spot if asked.

local found, repairs = {}, false

function audit_findings.start(repair) repairs = repair == '1' end
function audit_findings.list() return found end
function audit_findings.any() return #found > 0 end

-- Note a difference; true if it is to be repaired.
function audit_findings.add(kind, where, is, should)
  found[#found + 1] = {kind, where, tostring(is or 'absent'), tostring(should or 'absent')}
  return repairs
end
