SELECT token FROM leasehold_fence WHERE resource = ? LIMIT 2 FOR UPDATE
