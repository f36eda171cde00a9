"""Fair share: what part of a pool everybody under it is due, who is below that for too long, and what of theirs may be taken.

Amounts in, shares out. Pure: no Redis, no clock, no chance.
"""
