UPDATE leasehold_fence SET tick = ? WHERE resource = ? AND tick < ? RETURNING tick
