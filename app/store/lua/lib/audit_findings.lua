-- Findings of an audit: kind, place, stored value, expected value; repaired at once if asked.

local findings, repair_enabled = {}, false

function audit_findings.start(repair) repair_enabled = repair == '1' end
function audit_findings.list() return findings end
function audit_findings.any() return #findings > 0 end

-- Add a finding; true if it is to be repaired.
function audit_findings.add(kind, place, stored, expected)
  findings[#findings + 1] = {kind, place, tostring(stored or 'absent'), tostring(expected or 'absent')}
  return repair_enabled
end
