SELECT 1 FROM leasehold_fence LIMIT 0
