SELECT token FROM leasehold_fence WHERE resource = ?
