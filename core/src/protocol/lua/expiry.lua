if sub(op, OP_TTL, OP_REST - 1) ~= ttl then
  ttl = sub(op, OP_TTL, OP_REST - 1)
  expires = now_ms + ttl
  expires_digits = tostring(expires)
end
